/* A GGUF file as a model: tensors, metadata, name, and the family that reads the rest. */
#include "model_internal.h"

#include <stdlib.h>
#include <string.h>

#include "as_memory.h"

/* Dimensions but for those of size 1 after the last other one; at least 1. */
static uint32_t significant_dimensions(const struct as_gguf_tensor *stored)
{
    uint32_t count = stored->dimensions;
    while (count > 1 && stored->dimension[count - 1] == 1)
        count--;
    return count;
}

/* The tensor table, in the file's order, and its index by name. */
static int list_tensors(struct as_model_storage *storage, struct as_error *error)
{
    const struct as_gguf *gguf = &storage->gguf;
    struct as_model *model = storage->model;
    size_t count = gguf->tensor_count, name_bytes = 0;
    for (size_t i = 0; i < count; i++)
        name_bytes += gguf->tensors[i].name.length + 1;
    storage->tensors = as_calloc(error, count, sizeof *storage->tensors, "the tensors");
    storage->names = as_calloc(error, name_bytes, 1, "the tensors");
    if (storage->tensors == NULL || storage->names == NULL)
        return AS_ERR_MEMORY;
    char *name = storage->names;
    for (size_t i = 0; i < count; i++) {
        const struct as_gguf_tensor *stored = &gguf->tensors[i];
        memcpy(name, stored->name.bytes, stored->name.length);
        storage->tensors[i] = (struct as_tensor){
            .name = name,
            .type = stored->type->name,
            .dtype = stored->type->dtype,
            .rows = stored->rows,
            .columns = stored->columns,
            .data = stored->data,
            .bytes = stored->bytes,
            .stored_name = name,
            .stored_bytes = stored->bytes,
            .dimensions = significant_dimensions(stored),
        };
        model->tensor_bytes += stored->bytes;
        name += stored->name.length + 1;
    }
    model->tensors = storage->tensors;
    model->tensor_count = count;
    return as_model_index_tensors(storage, error);
}

static const char *const array_names[AS_GGUF_VALUE_TYPES] = {
    [AS_GGUF_U8] = "array of u8",         [AS_GGUF_I8] = "array of i8",
    [AS_GGUF_U16] = "array of u16",       [AS_GGUF_I16] = "array of i16",
    [AS_GGUF_U32] = "array of u32",       [AS_GGUF_I32] = "array of i32",
    [AS_GGUF_F32] = "array of f32",       [AS_GGUF_BOOL] = "array of bool",
    [AS_GGUF_STRING] = "array of string", [AS_GGUF_ARRAY] = "array of arrays",
    [AS_GGUF_U64] = "array of u64",       [AS_GGUF_I64] = "array of i64",
    [AS_GGUF_F64] = "array of f64",
};

static struct as_metadata describe(const struct as_gguf_entry *entry)
{
    struct as_metadata item = {.key = entry->key, .type = as_gguf_value_name(entry->type)};
    bool flag;
    if (entry->type == AS_GGUF_ARRAY) {
        item.kind = AS_METADATA_ARRAY;
        item.type = array_names[entry->element];
        item.value.count = entry->count;
    } else if (as_gguf_string(entry, &item.value.text)) {
        item.kind = AS_METADATA_STRING;
    } else if (as_gguf_bool(entry, &flag)) {
        item.kind = AS_METADATA_BOOL;
        item.value.u = flag;
    } else if (as_gguf_float(entry, &item.value.f)) {
        item.kind = AS_METADATA_FLOAT;
    } else if (as_gguf_unsigned(entry, &item.value.u)) {
        item.kind = AS_METADATA_UNSIGNED;
    } else {
        item.kind = AS_METADATA_SIGNED;
        as_gguf_signed(entry, &item.value.i);
    }
    return item;
}

static int list_metadata(struct as_model_storage *storage, struct as_error *error)
{
    const struct as_gguf *gguf = &storage->gguf;
    storage->metadata =
        as_calloc(error, gguf->entry_count, sizeof *storage->metadata, "the metadata");
    if (storage->metadata == NULL)
        return AS_ERR_MEMORY;
    for (size_t i = 0; i < gguf->entry_count; i++)
        storage->metadata[i] = describe(&gguf->entries[i]);
    storage->model->metadata = storage->metadata;
    storage->model->metadata_count = gguf->entry_count;
    return 0;
}

/* general.name, or the file's own name where there is none. */
static int name_model(struct as_model_storage *storage, const char *path, struct as_error *error)
{
    struct as_model *model = storage->model;
    const char *slash = strrchr(path, '/');
    int code = as_model_key_text(&storage->gguf, "general.name", false, &storage->name, error);
    if (code == 0 && storage->name == NULL &&
        (storage->name = as_strdup(error, slash != NULL ? slash + 1 : path)) == NULL)
        code = AS_ERR_MEMORY;
    model->name = storage->name;
    return code;
}

/* Mistral's files say `llama`. */
static const char *const families[] = {"llama", "qwen2", "qwen3"};

#define FAMILY_COUNT (sizeof families / sizeof families[0])

static int read_family(struct as_model_storage *storage, struct as_error *error)
{
    struct as_model *model = storage->model;
    int code =
        as_model_key_text(&storage->gguf, "general.architecture", true, &storage->family, error);
    if (code != 0)
        return code;
    model->family = storage->family;
    bool served = false;
    for (size_t i = 0; i < FAMILY_COUNT; i++)
        served = served || strcmp(model->family, families[i]) == 0;
    if (!served)
        return as_model_refuse_key(as_gguf_find(&storage->gguf, "general.architecture"),
                                   AS_ERR_UNSUPPORTED, error,
                                   "architecture '%.40s' is not served yet; served: llama (also "
                                   "Mistral), qwen2, qwen3",
                                   model->family);
    if ((code = as_model_read_vocabulary(storage, error)) != 0)
        return code;
    return as_model_read_llama(storage, error);
}

int as_model_read_gguf(struct as_model_storage *storage, const void *bytes, size_t size,
                       struct as_error *error)
{
    struct as_model *model = storage->model;
    int code = as_gguf_parse(&storage->gguf, bytes, size, error);
    if (code != 0)
        return code;
    model->format = storage->gguf.version == 2 ? "GGUF v2" : "GGUF v3";
    model->file_bytes = size;
    if ((code = list_tensors(storage, error)) != 0 || (code = list_metadata(storage, error)) != 0 ||
        (code = name_model(storage, model->path, error)) != 0)
        return code;
    return read_family(storage, error);
}
