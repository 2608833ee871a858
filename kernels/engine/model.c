#include "model.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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

int as_model_index_tensors(struct as_model_storage *storage, struct as_error *error)
{
    struct as_model *model = storage->model;
    size_t count = model->tensor_count;
    storage->by_name = as_calloc(error, count, sizeof *storage->by_name, "the tensors");
    if (storage->by_name == NULL)
        return AS_ERR_MEMORY;
    for (size_t i = 0; i < count; i++)
        storage->by_name[i] = &storage->tensors[i];
    qsort(storage->by_name, count, sizeof *storage->by_name, compare_by_name);
    for (size_t i = 1; i < count; i++) {
        const struct as_tensor *first = storage->by_name[i - 1], *second = storage->by_name[i];
        if (strcmp(first->name, second->name) == 0)
            return as_fail(error, AS_ERR_DATA, "tensors %.200s and %.200s are the same part (%s)",
                           first->stored_name, second->stored_name, first->name);
    }
    return 0;
}

/* Frees what a failed opening left. */
static int give_up(struct as_model_storage *storage, int code, struct as_error *error)
{
    as_error_prefix(error, "cannot read the model %s", storage->model->path);
    as_model_close(storage->model);
    return code;
}

/* A model of nothing but its path; takes over `mapping`. */
static struct as_model_storage *begin(struct as_mapping mapping, const char *path,
                                      struct as_error *error)
{
    struct as_model *model = as_calloc(error, 1, sizeof *model, "a model");
    struct as_model_storage *storage = as_calloc(error, 1, sizeof *storage, "a model");
    char *copy = as_strdup(error, path);
    if (model == NULL || storage == NULL || copy == NULL) {
        as_unmap(&mapping);
        free(model);
        free(storage);
        free(copy);
        return NULL;
    }
    model->storage = storage;
    model->path = storage->path = copy;
    storage->model = model;
    storage->mapping = mapping;
    return storage;
}

static int finish(struct as_model_storage *storage, int code, struct as_model **opened,
                  struct as_error *error)
{
    struct as_model *model = storage->model;
    if (code != 0)
        return give_up(storage, code, error);
    for (size_t i = 0; i < model->tensor_count; i++)
        model->unused_count += !model->tensors[i].used;
    *opened = model;
    return 0;
}

int as_model_inspect_bytes(const void *bytes, size_t size, const char *name,
                           struct as_model **model, struct as_error *error)
{
    *model = NULL;
    struct as_model_storage *storage = begin((struct as_mapping){0}, name, error);
    if (storage == NULL)
        return AS_ERR_MEMORY;
    return finish(storage, as_model_read_gguf(storage, bytes, size, error), model, error);
}

static int inspect_file(const char *path, struct as_model **model, struct as_error *error)
{
    struct as_mapping mapping;
    int code = as_map_file(&mapping, path, error);
    if (code != 0)
        return code;
    struct as_model_storage *storage = begin(mapping, path, error);
    if (storage == NULL)
        return AS_ERR_MEMORY;
    code = as_model_read_gguf(storage, mapping.data, mapping.size, error);
    return finish(storage, code, model, error);
}

static int inspect_folder(const char *path, struct as_model **model, struct as_error *error)
{
    struct as_model_storage *storage = begin((struct as_mapping){0}, path, error);
    if (storage == NULL)
        return AS_ERR_MEMORY;
    return finish(storage, as_model_read_folder(storage, error), model, error);
}

/* The cached file of a synthetic model, written unless it is there, whole and the right one. */
static int inspect_synthetic(const char *text, struct as_model **model, struct as_error *error)
{
    struct as_synthetic synthetic;
    char path[PATH_MAX];
    int code = as_synthetic_parse(&synthetic, text, error);
    if (code == 0)
        code = as_synthetic_cache_path(&synthetic, path, sizeof path, error);
    if (code != 0)
        return code;
    if (inspect_file(path, model, NULL) == 0) {
        if (as_synthetic_matches(&synthetic, *model))
            return 0;
        as_model_close(*model);
        *model = NULL;
    }
    code = as_synthetic_write(&synthetic, path, 0, error);
    return code != 0 ? code : inspect_file(path, model, error);
}

int as_model_inspect(const char *path, struct as_model **model, struct as_error *error)
{
    struct stat info;
    *model = NULL;
    if (as_synthetic_is(path))
        return inspect_synthetic(path, model, error);
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return inspect_folder(path, model, error);
    return inspect_file(path, model, error);
}

/* Closes again what the engine does not compute. */
static int keep_served(struct as_model **model, struct as_error *error)
{
    int code = as_model_check_served(*model, error);
    if (code == 0)
        return 0;
    code = give_up((*model)->storage, code, error);
    *model = NULL;
    return code;
}

int as_model_open(const char *path, struct as_model **model, struct as_error *error)
{
    int code = as_model_inspect(path, model, error);
    return code != 0 ? code : keep_served(model, error);
}

int as_model_open_bytes(const void *bytes, size_t size, const char *name, struct as_model **model,
                        struct as_error *error)
{
    int code = as_model_inspect_bytes(bytes, size, name, model, error);
    return code != 0 ? code : keep_served(model, error);
}

void as_model_close(struct as_model *model)
{
    if (model == NULL)
        return;
    struct as_model_storage *storage = model->storage;
    for (size_t i = 0; i < storage->copy_count; i++)
        free(storage->copies[i]);
    free(storage->copies);
    free(storage->rope_divisors);
    as_hf_folder_free(storage->folder);
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
    const struct as_model_storage *storage = model->storage;
    if (storage->folder != NULL)
        return as_hf_folder_digest(storage->folder);
    return as_hash64(storage->gguf.base, storage->gguf.size, 0);
}

const char *as_model_file(const struct as_model *model, size_t index)
{
    if (model->storage->folder != NULL)
        return as_hf_folder_file(model->storage->folder, index);
    return index == 0 ? model->path : NULL;
}
