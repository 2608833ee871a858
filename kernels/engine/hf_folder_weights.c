/* The safetensors files of a Hugging Face folder: one, or several and their index; and the names of
 * their tensors as GGUF has them. */
#include "hf_folder.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "as_memory.h"
#include "gguf.h"
#include "safetensors_json.h"

#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"

static bool equal(struct as_bytes a, struct as_bytes b)
{
    return a.length == b.length && memcmp(a.bytes, b.bytes, a.length) == 0;
}

static struct as_bytes text_of(const char *text)
{
    return (struct as_bytes){text, strlen(text)};
}

/* ---- index -------------------------------------------------------------------------------- */

/* A shard is a file of the folder itself: no path leads out of it. */
static bool names_shard(struct as_bytes name)
{
    static const char ending[] = ".safetensors";
    size_t length = sizeof ending - 1;
    return name.length > length && name.length < 256 && name.bytes[0] != '.' &&
           memchr(name.bytes, '/', name.length) == NULL &&
           memchr(name.bytes, '\0', name.length) == NULL &&
           memcmp(name.bytes + name.length - length, ending, length) == 0;
}

/* The shard of that name, added where it is new. */
static int find_shard(struct as_hf_folder *folder, struct as_bytes name, size_t *index,
                      struct as_error *error)
{
    char quoted[80];
    /* Neighbours in the index mostly lie in one file. */
    for (size_t i = folder->shard_count; i-- > 0;)
        if (equal(folder->shards[i].name, name)) {
            *index = i;
            return 0;
        }
    if (!names_shard(name))
        return as_fail(error, AS_ERR_DATA,
                       INDEX ": '%s' is not the name of a safetensors file in the folder",
                       as_gguf_quote(quoted, name));
    if (folder->shard_count == AS_HF_SHARD_LIMIT)
        return as_fail(error, AS_ERR_DATA, INDEX ": it names more than %u files",
                       AS_HF_SHARD_LIMIT);
    int code = as_grow(error, &folder->shards, &folder->shard_capacity, folder->shard_count,
                       sizeof *folder->shards, "the files of weights");
    if (code != 0)
        return code;
    *index = folder->shard_count;
    folder->shards[folder->shard_count++].name = name;
    return 0;
}

static int read_weight_map(struct as_hf_folder *folder, struct as_scan *scan)
{
    bool first = true, more = true;
    int code = as_scan_enter(scan, '{');
    while (code == 0) {
        struct as_bytes tensor, shard;
        size_t index = 0;
        if ((code = as_scan_next(scan, '}', &first, &more)) != 0 || !more)
            return code;
        if (folder->place_count == AS_SAFETENSORS_TENSOR_LIMIT)
            return as_fail(scan->error, AS_ERR_DATA, INDEX ": it has more tensors than %u",
                           AS_SAFETENSORS_TENSOR_LIMIT);
        if ((code = as_scan_key(scan, &tensor)) != 0 ||
            (code = as_scan_string(scan, &shard)) != 0 ||
            (code = find_shard(folder, shard, &index, scan->error)) != 0)
            return code;
        code = as_grow(scan->error, &folder->places, &folder->place_capacity, folder->place_count,
                       sizeof *folder->places, "the index");
        if (code == 0)
            folder->places[folder->place_count++] =
                (struct as_hf_place){.tensor = tensor, .shard = index};
    }
    return code;
}

static int compare_places(const void *a, const void *b)
{
    const struct as_hf_place *left = a, *right = b;
    size_t length =
        left->tensor.length < right->tensor.length ? left->tensor.length : right->tensor.length;
    int order = memcmp(left->tensor.bytes, right->tensor.bytes, length);
    return order != 0 ? order
                      : (left->tensor.length > right->tensor.length) -
                            (left->tensor.length < right->tensor.length);
}

static int scan_index(struct as_hf_folder *folder, struct as_scan *scan)
{
    bool first = true, more = true, seen = false;
    int code = as_scan_enter(scan, '{');
    while (code == 0) {
        struct as_bytes key;
        if ((code = as_scan_next(scan, '}', &first, &more)) != 0 || !more)
            break;
        if ((code = as_scan_key(scan, &key)) != 0)
            return code;
        if (!equal(key, text_of("weight_map")))
            code = as_scan_skip(scan);
        else if (seen)
            return as_fail(scan->error, AS_ERR_DATA, INDEX ": weight_map comes twice");
        else
            code = read_weight_map(folder, scan);
        seen = seen || equal(key, text_of("weight_map"));
    }
    if (code == 0)
        code = as_scan_finish(scan);
    if (code == 0 && folder->place_count == 0)
        code = as_fail(scan->error, AS_ERR_DATA, INDEX ": weight_map is missing or empty");
    return code;
}

static int read_index(struct as_hf_folder *folder, struct as_error *error)
{
    const struct as_mapping *mapping = &folder->files[AS_HF_INDEX].mapping;
    struct as_scan scan = {0};
    if (mapping->size > AS_HF_INDEX_LIMIT)
        return as_fail(error, AS_ERR_DATA, INDEX ": it is %zu bytes, more than the limit of %zu",
                       mapping->size, AS_HF_INDEX_LIMIT);
    const char *text = mapping->size > 0 ? (const char *)mapping->data : "";
    int code = as_scan_begin(&scan, text, mapping->size, 0, error);
    if (code == 0)
        code = scan_index(folder, &scan);
    folder->decoded = scan.decoded;
    if (code != 0)
        return error != NULL && strncmp(error->message, "byte ", 5) == 0
                   ? as_error_prefix(error, INDEX)
                   : code;
    qsort(folder->places, folder->place_count, sizeof *folder->places, compare_places);
    for (size_t i = 1; i < folder->place_count; i++) {
        char quoted[80];
        if (equal(folder->places[i - 1].tensor, folder->places[i].tensor))
            return as_fail(error, AS_ERR_DATA, INDEX ": tensor %s comes twice",
                           as_gguf_quote(quoted, folder->places[i].tensor));
    }
    return 0;
}

/* ---- files -------------------------------------------------------------------------------- */

static int open_shard(struct as_hf_shard *shard, const char *folder, struct as_error *error)
{
    char name[256];
    snprintf(name, sizeof name, "%.*s", (int)shard->name.length, shard->name.bytes);
    shard->mapped.path = as_hf_path(folder, name, error);
    if (shard->mapped.path == NULL)
        return AS_ERR_MEMORY;
    int code = as_map_file(&shard->mapped.mapping, shard->mapped.path, error);
    if (code != 0)
        return code;
    const struct as_mapping *mapping = &shard->mapped.mapping;
    code = as_safetensors_parse(&shard->file, mapping->size > 0 ? mapping->data : (const void *)"",
                                mapping->size, error);
    if (code != 0)
        as_error_prefix(error, "%s", name);
    return code;
}

/* Index and shards must agree: each tensor of one is where the other says. */
static int check_places(struct as_hf_folder *folder, struct as_error *error)
{
    char quoted[80], file[80];
    for (size_t i = 0; i < folder->shard_count; i++)
        for (size_t j = 0; j < folder->shards[i].file.tensor_count; j++) {
            const struct as_hf_place key = {.tensor = folder->shards[i].file.tensors[j].name};
            struct as_hf_place *place = bsearch(&key, folder->places, folder->place_count,
                                                sizeof *folder->places, compare_places);
            if (place == NULL || place->shard != i)
                return as_fail(error, AS_ERR_DATA,
                               "tensor %s lies in %s, but " INDEX " does not say so; the folder "
                               "is incomplete or mixed: fetch it again",
                               as_gguf_quote(quoted, key.tensor),
                               as_gguf_quote(file, folder->shards[i].name));
            place->found = true;
        }
    for (size_t i = 0; i < folder->place_count; i++)
        if (!folder->places[i].found)
            return as_fail(error, AS_ERR_DATA,
                           "tensor %s does not lie in %s, where " INDEX " has it; the folder is "
                           "incomplete or mixed: fetch it again",
                           as_gguf_quote(quoted, folder->places[i].tensor),
                           as_gguf_quote(file, folder->shards[folder->places[i].shard].name));
    return 0;
}

static int refuse_no_weights(const char *path, struct as_error *error)
{
    static const char *const others[] = {"pytorch_model.bin", "pytorch_model.bin.index.json",
                                         "consolidated.safetensors", "adapter_model.safetensors"};
    const char *found = NULL;
    for (size_t i = 0; i < sizeof others / sizeof others[0] && found == NULL; i++) {
        char *name = as_hf_path(path, others[i], error);
        if (name != NULL && access(name, F_OK) == 0)
            found = others[i];
        free(name);
    }
    return as_fail(error, AS_ERR_DATA, "the folder has neither " SINGLE " nor " INDEX "%s%s%s",
                   found != NULL ? "; it has " : "", found != NULL ? found : "",
                   found != NULL ? ", which is not read: convert the model with transformers' "
                                   "save_pretrained"
                                 : "");
}

int as_hf_open_weights(struct as_hf_folder *folder, const char *path, struct as_error *error)
{
    struct stat info;
    size_t index, tensors = 0;
    char *single = as_hf_path(path, SINGLE, error);
    if (single == NULL)
        return AS_ERR_MEMORY;
    bool one = stat(single, &info) == 0; /* which transformers prefers too */
    free(single);
    int code = 0;
    if (one)
        code = find_shard(folder, text_of(SINGLE), &index, error);
    else if (folder->files[AS_HF_INDEX].path == NULL)
        code = refuse_no_weights(path, error);
    else
        code = read_index(folder, error);
    for (size_t i = 0; i < folder->shard_count && code == 0; i++) {
        code = open_shard(&folder->shards[i], path, error);
        tensors += folder->shards[i].file.tensor_count;
        if (code == 0 && tensors > AS_SAFETENSORS_TENSOR_LIMIT)
            code = as_fail(error, AS_ERR_DATA, "the files hold more tensors than the limit of %u",
                           AS_SAFETENSORS_TENSOR_LIMIT);
    }
    return code == 0 && !one ? check_places(folder, error) : code;
}

/* ---- names -------------------------------------------------------------------------------- */

static const struct {
    const char *stored, *name;
} outer_names[] = {{"model.embed_tokens.weight", "token_embd.weight"},
                   {"model.norm.weight", "output_norm.weight"},
                   {"lm_head.weight", "output.weight"}};

static const struct {
    const char *stored, *name;
} layer_names[] = {{"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
                   {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
                   {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
                   {"self_attn.k_norm", "attn_k_norm"}, {"post_attention_layernorm", "ffn_norm"},
                   {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
                   {"mlp.down_proj", "ffn_down"}};

#define LAYER_NAMES (sizeof layer_names / sizeof layer_names[0])

/* The number and the rest of "[model.]layers.<number>.<rest>"; false for other names. */
static bool split_layer(const char *stored, uint32_t *layer, const char **rest)
{
    char *end;
    if (strncmp(stored, "model.", 6) == 0)
        stored += 6;
    if (strncmp(stored, "layers.", 7) != 0)
        return false;
    stored += 7;
    if (*stored < '0' || *stored > '9' || (*stored == '0' && stored[1] != '.'))
        return false;
    errno = 0;
    unsigned long number = strtoul(stored, &end, 10);
    *layer = (uint32_t)number;
    *rest = end + 1;
    return errno == 0 && number < 1000000 && *end == '.';
}

/* GGUF's name of a tensor; false where it has none. */
static bool map_name(const char *stored, char name[64])
{
    uint32_t layer;
    const char *rest;
    for (size_t i = 0; i < sizeof outer_names / sizeof outer_names[0]; i++) {
        bool bare = strncmp(outer_names[i].stored, "model.", 6) == 0 &&
                    strcmp(stored, outer_names[i].stored + 6) == 0;
        if (bare || strcmp(stored, outer_names[i].stored) == 0) {
            snprintf(name, 64, "%s", outer_names[i].name);
            return true;
        }
    }
    if (!split_layer(stored, &layer, &rest))
        return false;
    for (size_t i = 0; i < LAYER_NAMES; i++) {
        size_t length = strlen(layer_names[i].stored);
        if (strncmp(rest, layer_names[i].stored, length) == 0 &&
            (strcmp(rest + length, ".weight") == 0 || strcmp(rest + length, ".bias") == 0)) {
            snprintf(name, 64, "blk.%u.%s%s", layer, layer_names[i].name, rest + length);
            return true;
        }
    }
    return false;
}

void as_hf_stored_name(const char *name, char *text, size_t size)
{
    unsigned layer;
    int used = 0;
    for (size_t i = 0; i < sizeof outer_names / sizeof outer_names[0]; i++)
        if (strcmp(outer_names[i].name, name) == 0)
            snprintf(text, size, "%s", outer_names[i].stored);
    if (sscanf(name, "blk.%u.%n", &layer, &used) != 1 || used == 0)
        return;
    for (size_t i = 0; i < LAYER_NAMES; i++) {
        size_t length = strlen(layer_names[i].name);
        if (strncmp(name + used, layer_names[i].name, length) == 0 && name[used + length] == '.')
            snprintf(text, size, "model.layers.%u.%s%s", layer, layer_names[i].stored,
                     name + used + length);
    }
}

/* Buffers that transformers computes itself and old checkpoints carry. */
static bool is_buffer(const char *rest)
{
    return strcmp(rest, "self_attn.rotary_emb.inv_freq") == 0;
}

int as_hf_check_unknown(const struct as_model *model, struct as_error *error)
{
    for (size_t i = 0; i < model->tensor_count; i++) {
        const struct as_tensor *tensor = &model->tensors[i];
        uint32_t layer;
        const char *rest;
        if (!tensor->used && split_layer(tensor->stored_name, &layer, &rest) &&
            layer < model->config.layers && !is_buffer(rest))
            return as_fail(error, AS_ERR_UNSUPPORTED,
                           "tensor %.200s: a part of layer %u that is not served; without it the "
                           "results would be others",
                           tensor->stored_name, layer);
    }
    return 0;
}

/* ---- tensors ------------------------------------------------------------------------------ */

/* Rows, columns and dimensions of a shape whose data was found to be there. */
static void set_shape(struct as_tensor *tensor, const struct as_safetensors_tensor *stored)
{
    uint32_t first = 0;
    tensor->columns =
        stored->dimensions > 0 ? (size_t)stored->dimension[stored->dimensions - 1] : 1;
    tensor->rows = 1;
    for (uint32_t i = 0; i + 1 < stored->dimensions; i++)
        tensor->rows = stored->bytes > 0 ? tensor->rows * (size_t)stored->dimension[i] : 0;
    while (first + 1 < stored->dimensions && stored->dimension[first] == 1)
        first++;
    tensor->dimensions = stored->dimensions > 0 ? stored->dimensions - first : 1;
}

static char *copy_name(char **pool, const char *bytes, size_t length)
{
    char *name = *pool;
    memcpy(name, bytes, length);
    *pool += length + 1;
    return name;
}

int as_hf_list_tensors(struct as_model_storage *storage, struct as_error *error)
{
    const struct as_hf_folder *folder = storage->folder;
    struct as_model *model = storage->model;
    size_t count = 0, name_bytes = 0;
    for (size_t i = 0; i < folder->shard_count; i++) {
        count += folder->shards[i].file.tensor_count;
        model->file_bytes += folder->shards[i].mapped.mapping.size;
        for (size_t j = 0; j < folder->shards[i].file.tensor_count; j++)
            name_bytes += folder->shards[i].file.tensors[j].name.length + 1 + 64;
    }
    storage->tensors = as_calloc(error, count, sizeof *storage->tensors, "the tensors");
    storage->names = as_calloc(error, name_bytes, 1, "the tensors");
    if (storage->tensors == NULL || storage->names == NULL)
        return AS_ERR_MEMORY;
    char *pool = storage->names;
    struct as_tensor *tensor = storage->tensors;
    for (size_t i = 0; i < folder->shard_count; i++) {
        const struct as_safetensors *file = &folder->shards[i].file;
        for (size_t j = 0; j < file->tensor_count; j++, tensor++) {
            const struct as_safetensors_tensor *stored = &file->tensors[j];
            char name[64];
            tensor->stored_name = copy_name(&pool, stored->name.bytes, stored->name.length);
            tensor->name = tensor->stored_name;
            if (map_name(tensor->stored_name, name))
                tensor->name = copy_name(&pool, name, strlen(name));
            tensor->type = stored->type->name;
            tensor->dtype = stored->type->dtype;
            tensor->data = stored->data;
            tensor->bytes = tensor->stored_bytes = stored->bytes;
            set_shape(tensor, stored);
            model->tensor_bytes += stored->bytes;
        }
    }
    model->tensors = storage->tensors;
    model->tensor_count = count;
    return as_model_index_tensors(storage, error);
}
