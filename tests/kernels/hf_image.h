/* Writes Hugging Face folders of the tiny families of model_family.h. */
#ifndef HF_IMAGE_H
#define HF_IMAGE_H

#include "model_family.h"

#include <dirent.h>
#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

#include "as_file.h"
#include "engine/hf_folder.h"

/* Without the sync to disk of as_write_file(), which tests need not wait for. */
static inline void hf_write_file(const char *path, const void *data, size_t size)
{
    FILE *out = fopen(path, "wb");
    cr_assert_not_null(out);
    cr_assert_eq(fwrite(data, 1, size, out), size);
    cr_assert_eq(fclose(out), 0);
}

struct hf_tensor {
    char name[128];
    const char *type; /* "BF16" */
    char shape[64];   /* "2,3" */
    size_t bytes;
    void *data;
};

/* Tensors of one safetensors file; room for those of a family and a few more. */
struct hf_tensors {
    struct hf_tensor list[64];
    size_t count;
};

static inline void hf_add(struct hf_tensors *tensors, const char *name, const char *type,
                          const char *shape, const void *data, size_t bytes)
{
    struct hf_tensor *tensor = &tensors->list[tensors->count++];
    cr_assert_leq(tensors->count, 64);
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    snprintf(tensor->shape, sizeof tensor->shape, "%s", shape);
    tensor->type = type;
    tensor->bytes = bytes;
    tensor->data = exact_copy(data, bytes);
}

static inline void hf_free(struct hf_tensors *tensors)
{
    for (size_t i = 0; i < tensors->count; i++)
        free(tensors->list[i].data);
    *tensors = (struct hf_tensors){.count = 0};
}

static inline void hf_remove(struct hf_tensors *tensors, const char *name)
{
    for (size_t i = 0; i < tensors->count; i++)
        if (strcmp(tensors->list[i].name, name) == 0) {
            free(tensors->list[i].data);
            memmove(&tensors->list[i], &tensors->list[i + 1],
                    (tensors->count - i - 1) * sizeof tensors->list[0]);
            tensors->count--;
            return;
        }
    cr_assert_fail("no tensor %s", name);
}

/* Adds a tensor of the family's values for GGUF's `name`, as F32, F16 or BF16. */
static inline void hf_add_values(struct hf_tensors *tensors, const char *stored, const char *name,
                                 enum assay_dtype dtype, size_t rows, size_t columns)
{
    static const char *const types[] = {
        [ASSAY_F32] = "F32", [ASSAY_F16] = "F16", [ASSAY_BF16] = "BF16"};
    size_t count = (rows + (rows == 0)) * columns;
    size_t bytes = assay_row_bytes(dtype, (int64_t)count);
    float *values = malloc(count * sizeof *values);
    void *data = malloc(bytes);
    char shape[64];
    for (size_t i = 0; i < count; i++)
        values[i] = family_value(name, i);
    as_quantize(dtype, values, data, count);
    if (rows == 0)
        snprintf(shape, sizeof shape, "%zu", columns);
    else
        snprintf(shape, sizeof shape, "%zu,%zu", rows, columns);
    hf_add(tensors, stored, types[dtype], shape, data, bytes);
    free(values);
    free(data);
}

/* All of the family's tensors; matrices as `dtype`, vectors too. */
static inline void hf_add_family(struct hf_tensors *tensors, const struct family *family,
                                 enum assay_dtype dtype)
{
    struct family_part part;
    for (size_t i = 0; family_part(family, i, &part); i++) {
        char stored[128];
        snprintf(stored, sizeof stored, "%s", part.name);
        as_hf_stored_name(part.name, stored, sizeof stored);
        hf_add_values(tensors, stored, part.name, dtype, part.rows, part.columns);
    }
}

/* Writes tensors [first, end) as a safetensors file whose header is `padding` bytes longer than
 * it need be, their data in reverse order of the header. */
static inline void hf_write(const struct hf_tensors *tensors, size_t first, size_t end,
                            size_t padding, const char *path)
{
    struct as_text json = {0}, file = {0};
    size_t total = 0;
    for (size_t i = first; i < end; i++)
        total += tensors->list[i].bytes;
    as_text_addf(&json, "{\"__metadata__\":{\"format\":\"pt\"}");
    size_t at = total;
    for (size_t i = first; i < end; i++) {
        const struct hf_tensor *tensor = &tensors->list[i];
        as_text_addf(&json, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                     tensor->name, tensor->type, tensor->shape, at - tensor->bytes, at);
        at -= tensor->bytes;
    }
    as_text_addf(&json, "}");
    while (json.length % 8 != 0)
        as_text_add(&json, " ", 1);
    for (size_t i = 0; i < padding; i++)
        as_text_add(&json, " ", 1);
    put_u64(&file, json.length);
    as_text_add(&file, json.data, json.length);
    for (size_t i = end; i-- > first;)
        as_text_add(&file, tensors->list[i].data, tensors->list[i].bytes);
    cr_assert(!file.failed);
    hf_write_file(path, file.data, file.length);
    as_text_free(&json);
    as_text_free(&file);
}

static inline void hf_write_text(const char *folder, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    hf_write_file(path, text, strlen(text));
}

static inline void hf_write_single(const struct hf_tensors *tensors, const char *folder)
{
    char path[512];
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    hf_write(tensors, 0, tensors->count, 0, path);
}

/* config.json of a family; `more` is appended, and takes precedence where it names a member. */
static inline void hf_write_config(const char *folder, const char *type, bool tied,
                                   const char *more)
{
    json_error_t failure;
    char text[1024];
    snprintf(text, sizeof text,
             "{\"model_type\":\"%s\",\"num_hidden_layers\":%d,\"hidden_size\":%d,"
             "\"num_attention_heads\":%d,\"num_key_value_heads\":%d,\"head_dim\":%d,"
             "\"intermediate_size\":%d,\"vocab_size\":%d,\"max_position_embeddings\":4096,"
             "\"rms_norm_eps\":1e-06,\"rope_theta\":1000000.0,\"hidden_act\":\"silu\","
             "\"sliding_window\":null,\"tie_word_embeddings\":%s}",
             type, F_LAYERS, F_HIDDEN, F_HEADS, F_KV, F_HEAD, F_FFN, F_VOCAB,
             tied ? "true" : "false");
    json_t *config = json_loads(text, 0, &failure);
    json_t *changes = json_loads(more != NULL ? more : "{}", 0, &failure);
    cr_assert(config != NULL && changes != NULL, "%s", failure.text);
    cr_assert_eq(json_object_update(config, changes), 0);
    const char *key;
    void *next;
    json_t *value;
    json_object_foreach_safe(config, next, key, value)
    {
        if (json_is_string(value) && strcmp(json_string_value(value), "(absent)") == 0)
            json_object_del(config, key);
    }
    char *dump = json_dumps(config, JSON_INDENT(2));
    hf_write_text(folder, "config.json", dump);
    free(dump);
    json_decref(config);
    json_decref(changes);
}

#endif
