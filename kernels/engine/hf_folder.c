/* A Hugging Face folder as a model. */
#define _GNU_SOURCE /* realpath */
#include "hf_folder.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "as_hash.h"
#include "as_memory.h"

char *as_hf_path(const char *folder, const char *name, struct as_error *error)
{
    size_t length = strlen(folder);
    size_t size = length + strlen(name) + 2;
    char *path = as_calloc(error, size, 1, "a path");
    if (path != NULL)
        snprintf(path, size, "%s%s%s", folder, length > 0 && folder[length - 1] == '/' ? "" : "/",
                 name);
    return path;
}

static const char *const file_names[AS_HF_FILES] = {
    [AS_HF_CONFIG] = "config.json",
    [AS_HF_GENERATION] = "generation_config.json",
    [AS_HF_TOKENIZER] = "tokenizer.json",
    [AS_HF_TOKENIZER_CONFIG] = "tokenizer_config.json",
    [AS_HF_CHAT_TEMPLATE] = "chat_template.jinja",
    [AS_HF_INDEX] = "model.safetensors.index.json",
};

/* Maps a file of the folder where it is there. */
static int map_file(struct as_hf_folder *folder, const char *path, enum as_hf_file file,
                    struct as_error *error)
{
    struct as_hf_mapped *mapped = &folder->files[file];
    struct stat info;
    char *name = as_hf_path(path, file_names[file], error);
    if (name == NULL)
        return AS_ERR_MEMORY;
    if (stat(name, &info) != 0) {
        free(name);
        return 0;
    }
    mapped->path = name;
    return as_map_file(&mapped->mapping, name, error);
}

/* A GGUF file in the folder, for the message to a user who meant that; "" where there is none. */
static void find_gguf(const char *path, char name[256])
{
    DIR *folder = opendir(path);
    name[0] = '\0';
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        size_t length = strlen(entry->d_name);
        if (length > 5 && length < 200 && strcmp(entry->d_name + length - 5, ".gguf") == 0)
            snprintf(name, 256, "%.200s", entry->d_name);
    }
    if (folder != NULL)
        closedir(folder);
}

static int parse_json(const struct as_hf_folder *folder, enum as_hf_file file, json_t **json,
                      struct as_error *error)
{
    const struct as_mapping *mapping = &folder->files[file].mapping;
    json_error_t failure;
    if (mapping->size > AS_HF_CONFIG_LIMIT)
        return as_fail(error, AS_ERR_DATA, "%s: it is %zu bytes, more than the limit of %zu",
                       file_names[file], mapping->size, AS_HF_CONFIG_LIMIT);
    *json = json_loadb(mapping->size > 0 ? (const char *)mapping->data : "", mapping->size,
                       JSON_REJECT_DUPLICATES, &failure);
    if (*json == NULL)
        return as_fail(error, AS_ERR_DATA, "%s: line %d, column %d: %s", file_names[file],
                       failure.line, failure.column, failure.text);
    if (!json_is_object(*json))
        return as_fail(error, AS_ERR_DATA, "%s: it is no JSON object", file_names[file]);
    return 0;
}

static int open_files(struct as_hf_folder *folder, const char *path, struct as_error *error)
{
    for (unsigned i = 0; i < AS_HF_FILES; i++) {
        int code = map_file(folder, path, i, error);
        if (code != 0)
            return code;
    }
    if (folder->files[AS_HF_CONFIG].path == NULL) {
        char gguf[256];
        find_gguf(path, gguf);
        return as_fail(error, AS_ERR_DATA,
                       "the folder has no config.json, so it is no Hugging Face model%s%s%s",
                       gguf[0] != '\0' ? "; it has the file " : "", gguf,
                       gguf[0] != '\0' ? ": give that file's path" : "");
    }
    int code = parse_json(folder, AS_HF_CONFIG, &folder->config, error);
    if (code == 0 && folder->files[AS_HF_GENERATION].path != NULL)
        code = parse_json(folder, AS_HF_GENERATION, &folder->generation, error);
    return code;
}

/* The folder's own name, also of "." and of "x/". */
static int name_model(struct as_model_storage *storage, struct as_error *error)
{
    char *real = realpath(storage->path, NULL);
    const char *path = real != NULL ? real : storage->path;
    const char *slash = strrchr(path, '/');
    storage->name = as_strdup(error, slash != NULL && slash[1] != '\0' ? slash + 1 : path);
    storage->model->name = storage->name;
    free(real);
    return storage->name != NULL ? 0 : AS_ERR_MEMORY;
}

static struct as_bytes bytes_of(const struct as_hf_mapped *mapped)
{
    if (mapped->path == NULL)
        return (struct as_bytes){0};
    return (struct as_bytes){mapped->mapping.size > 0 ? (const char *)mapped->mapping.data : "",
                             mapped->mapping.size};
}

static void expose_files(struct as_model_storage *storage)
{
    const struct as_hf_mapped *files = storage->folder->files;
    storage->model->folder = (struct as_model_folder){
        .path = storage->path,
        .tokenizer = bytes_of(&files[AS_HF_TOKENIZER]),
        .tokenizer_config = bytes_of(&files[AS_HF_TOKENIZER_CONFIG]),
        .chat_template = bytes_of(&files[AS_HF_CHAT_TEMPLATE]),
    };
}

/* tie_word_embeddings decides, as in transformers: an output matrix that lies there beside it is
 * not used. */
static int settle_output(struct as_model_storage *storage, struct as_hf_settings *settings,
                         struct as_error *error)
{
    const struct as_tensor *output = as_model_tensor(storage->model, "output.weight");
    settings->parts.output = settings->tied ? AS_PART_ABSENT : AS_PART_REQUIRED;
    if (!settings->tied && output == NULL)
        return as_fail(error, AS_ERR_DATA,
                       "tensor lm_head.weight is missing, and config.json does not say "
                       "tie_word_embeddings true, so nothing gives the logits; fetch or convert "
                       "the model again");
    if (!settings->tied || output == NULL)
        return 0;
    static const char note[] = "lm_head.weight is not used: config.json says tie_word_embeddings "
                               "true, so logits come from the embeddings";
    storage->model->note = note;
    return 0;
}

static int read_model(struct as_model_storage *storage, struct as_error *error)
{
    struct as_model *model = storage->model;
    struct as_hf_settings settings = {0};
    int code = as_hf_read_config(storage, &settings, error);
    if (code == 0)
        code = as_hf_open_weights(storage->folder, storage->path, error);
    if (code == 0)
        code = as_hf_list_tensors(storage, error);
    if (code == 0)
        code = as_hf_list_metadata(storage, error);
    if (code == 0)
        code = name_model(storage, error);
    if (code == 0)
        code = settle_output(storage, &settings, error);
    if (code == 0)
        code = as_model_scale_rope(storage, &settings.rope, NULL, error);
    if (code == 0)
        code = as_model_bind_tensors(storage, &settings.parts, error);
    if (code != 0)
        return code;
    model->format = "safetensors";
    expose_files(storage);
    return as_hf_check_unknown(model, error);
}

int as_model_read_folder(struct as_model_storage *storage, struct as_error *error)
{
    storage->folder = as_calloc(error, 1, sizeof *storage->folder, "a folder");
    if (storage->folder == NULL)
        return AS_ERR_MEMORY;
    storage->stored_name = as_hf_stored_name;
    int code = open_files(storage->folder, storage->path, error);
    return code != 0 ? code : read_model(storage, error);
}

static void unmap(struct as_hf_mapped *mapped)
{
    as_unmap(&mapped->mapping);
    free(mapped->path);
}

void as_hf_folder_free(struct as_hf_folder *folder)
{
    if (folder == NULL)
        return;
    for (size_t i = 0; i < folder->shard_count; i++) {
        as_safetensors_free(&folder->shards[i].file);
        unmap(&folder->shards[i].mapped);
    }
    for (size_t i = 0; i < AS_HF_FILES; i++)
        unmap(&folder->files[i]);
    json_decref(folder->config);
    json_decref(folder->generation);
    free(folder->shards);
    free(folder->places);
    free(folder->decoded);
    free(folder);
}

/* The file of that number: those of the table that are there, then the shards. */
static const struct as_hf_mapped *file_at(const struct as_hf_folder *folder, size_t index)
{
    for (size_t i = 0; i < AS_HF_FILES; i++)
        if (folder->files[i].path != NULL && index-- == 0)
            return &folder->files[i];
    return index < folder->shard_count ? &folder->shards[index].mapped : NULL;
}

const char *as_hf_folder_file(const struct as_hf_folder *folder, size_t index)
{
    const struct as_hf_mapped *file = file_at(folder, index);
    return file != NULL ? file->path : NULL;
}

uint64_t as_hf_folder_digest(const struct as_hf_folder *folder)
{
    const struct as_hf_mapped *file;
    uint64_t digest = 0;
    for (size_t i = 0; (file = file_at(folder, i)) != NULL; i++)
        digest = as_hash64(file->mapping.data, file->mapping.size, digest);
    return digest;
}
