#include "model.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "as_hash.h"
#include "as_memory.h"
#include "gguf.h"
#include "model_internal.h"
#include "synthetic.h"

static int compare_by_name(const void *a, const void *b)
{
    const struct as_tensor *const *left = a, *const *right = b;
    return strcmp((*left)->name, (*right)->name);
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
    storage->by_name = as_calloc(error, count, sizeof *storage->by_name, "the tensors");
    storage->names = as_calloc(error, name_bytes, 1, "the tensors");
    if (storage->tensors == NULL || storage->by_name == NULL || storage->names == NULL)
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
        };
        storage->by_name[i] = &storage->tensors[i];
        model->tensor_bytes += stored->bytes;
        name += stored->name.length + 1;
    }
    qsort(storage->by_name, count, sizeof *storage->by_name, compare_by_name);
    model->tensors = storage->tensors;
    model->tensor_count = count;
    return 0;
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

static int read_family(struct as_model_storage *storage, struct as_error *error)
{
    struct as_model *model = storage->model;
    int code =
        as_model_key_text(&storage->gguf, "general.architecture", true, &storage->family, error);
    if (code != 0)
        return code;
    model->family = storage->family;
    if (strcmp(model->family, "llama") != 0)
        return as_model_refuse_key(
            as_gguf_find(&storage->gguf, "general.architecture"), AS_ERR_UNSUPPORTED, error,
            "architecture '%.40s' is not served yet; served: llama", model->family);
    if ((code = as_model_read_vocabulary(storage, error)) != 0)
        return code;
    return as_model_read_llama(storage, error);
}

static int read_model(struct as_model_storage *storage, const void *bytes, size_t size,
                      struct as_error *error)
{
    struct as_model *model = storage->model;
    int code = as_gguf_parse(&storage->gguf, bytes, size, error);
    if (code != 0)
        return code;
    model->format = storage->gguf.version == 2 ? "GGUF v2" : "GGUF v3";
    model->file_bytes = size;
    if ((code = list_tensors(storage, error)) != 0 || (code = list_metadata(storage, error)) != 0 ||
        (code = name_model(storage, model->path, error)) != 0 ||
        (code = read_family(storage, error)) != 0)
        return code;
    for (size_t i = 0; i < model->tensor_count; i++)
        model->unused_count += !model->tensors[i].used;
    return 0;
}

/* Takes over `mapping`, which is empty where `bytes` are the caller's. */
static int open_bytes(struct as_mapping mapping, const void *bytes, size_t size, const char *path,
                      struct as_model **opened, struct as_error *error)
{
    *opened = NULL;
    struct as_model *model = as_calloc(error, 1, sizeof *model, "a model");
    struct as_model_storage *storage = as_calloc(error, 1, sizeof *storage, "a model");
    if (model == NULL || storage == NULL) {
        as_unmap(&mapping);
        free(model);
        free(storage);
        return AS_ERR_MEMORY;
    }
    model->storage = storage;
    storage->model = model;
    storage->mapping = mapping;
    storage->path = as_strdup(error, path);
    model->path = storage->path;
    int code = storage->path == NULL ? AS_ERR_MEMORY : read_model(storage, bytes, size, error);
    if (code != 0) {
        as_model_close(model);
        as_error_prefix(error, "cannot read the model %s", path);
        return code;
    }
    *opened = model;
    return 0;
}

int as_model_open_bytes(const void *bytes, size_t size, const char *name, struct as_model **model,
                        struct as_error *error)
{
    return open_bytes((struct as_mapping){0}, bytes, size, name, model, error);
}

static int open_file(const char *path, struct as_model **model, struct as_error *error)
{
    struct as_mapping mapping;
    int code = as_map_file(&mapping, path, error);
    if (code != 0)
        return code;
    return open_bytes(mapping, mapping.data, mapping.size, path, model, error);
}

/* The cached file of a synthetic model, written unless it is there, whole and the right one. */
static int open_synthetic(const char *text, struct as_model **model, struct as_error *error)
{
    struct as_synthetic synthetic;
    char path[PATH_MAX];
    int code = as_synthetic_parse(&synthetic, text, error);
    if (code == 0)
        code = as_synthetic_cache_path(&synthetic, path, sizeof path, error);
    if (code != 0)
        return code;
    if (open_file(path, model, NULL) == 0) {
        if (as_synthetic_matches(&synthetic, *model))
            return 0;
        as_model_close(*model);
        *model = NULL;
    }
    code = as_synthetic_write(&synthetic, path, 0, error);
    return code != 0 ? code : open_file(path, model, error);
}

int as_model_open(const char *path, struct as_model **model, struct as_error *error)
{
    *model = NULL;
    return as_synthetic_is(path) ? open_synthetic(path, model, error)
                                 : open_file(path, model, error);
}

void as_model_close(struct as_model *model)
{
    if (model == NULL)
        return;
    struct as_model_storage *storage = model->storage;
    as_gguf_free(&storage->gguf);
    as_unmap(&storage->mapping);
    free(storage->tensors);
    free(storage->by_name);
    free(storage->names);
    free(storage->layers);
    free(storage->pieces);
    free(storage->merges);
    free(storage->types);
    free(storage->scores);
    free(storage->metadata);
    free(storage->path);
    free(storage->name);
    free(storage->family);
    free(storage->tokenizer);
    free(storage->pre);
    free(storage);
    free(model);
}

const struct as_tensor *as_model_tensor(const struct as_model *model, const char *name)
{
    const struct as_tensor wanted = {.name = name}, *key = &wanted;
    const struct as_tensor **found = bsearch(&key, model->storage->by_name, model->tensor_count,
                                             sizeof *model->storage->by_name, compare_by_name);
    return found != NULL ? *found : NULL;
}

const struct as_metadata *as_model_metadata(const struct as_model *model, const char *key)
{
    size_t length = strlen(key);
    for (size_t i = 0; i < model->metadata_count; i++) {
        const struct as_bytes *name = &model->metadata[i].key;
        if (name->length == length && memcmp(name->bytes, key, length) == 0)
            return &model->metadata[i];
    }
    return NULL;
}

uint64_t as_model_digest(const struct as_model *model)
{
    return as_hash64(model->storage->gguf.base, model->storage->gguf.size, 0);
}
