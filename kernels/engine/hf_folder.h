/* A Hugging Face folder: config.json, safetensors files, and what the text stage reads.
 *
 * Internal to the model reader. Names of tensors become GGUF's (model.h); their RoPE pairs are
 * halves apart, since Hugging Face's q and k are not permuted. */
#ifndef AS_HF_FOLDER_H
#define AS_HF_FOLDER_H

#include <jansson.h>

#include "as_file.h"
#include "model_internal.h"
#include "safetensors.h"

/* jansson takes up to 50 bytes a byte of text, so this bounds its memory to some 13 MB; published
 * files have under 8 KB. */
#define AS_HF_CONFIG_LIMIT ((size_t)256 << 10)
#define AS_HF_INDEX_LIMIT ((size_t)8 << 20) /* model.safetensors.index.json, not read by jansson */
#define AS_HF_SHARD_LIMIT 512u

enum as_hf_file {
    AS_HF_CONFIG,
    AS_HF_GENERATION,
    AS_HF_TOKENIZER,
    AS_HF_TOKENIZER_CONFIG,
    AS_HF_CHAT_TEMPLATE,
    AS_HF_INDEX,
    AS_HF_FILES
};

/* A file of the folder; `path` NULL = absent. */
struct as_hf_mapped {
    char *path;
    struct as_mapping mapping;
};

struct as_hf_shard {
    struct as_bytes name; /* as the index has it */
    struct as_hf_mapped mapped;
    struct as_safetensors file;
};

/* One line of the index: which shard holds a tensor. */
struct as_hf_place {
    struct as_bytes tensor;
    size_t shard;
    bool found;
};

struct as_hf_folder {
    struct as_hf_mapped files[AS_HF_FILES];
    json_t *config, *generation; /* generation may be NULL */
    struct as_hf_shard *shards;
    size_t shard_count, shard_capacity;
    struct as_hf_place *places; /* sorted by name; empty of a single file */
    size_t place_count, place_capacity;
    char *decoded; /* strings of the index that had escapes */
};

/* "<folder>/<name>", freed by the caller; NULL without memory. */
char *as_hf_path(const char *folder, const char *name, struct as_error *error);

/* hf_folder_weights.c: finds and reads the safetensors files of the folder `path`. */
int as_hf_open_weights(struct as_hf_folder *folder, const char *path, struct as_error *error);

/* The tensors of all files into storage->tensors, under GGUF's names where they have one. */
int as_hf_list_tensors(struct as_model_storage *storage, struct as_error *error);

/* Refuses tensors of the model's layers that no name of GGUF's stands for. */
int as_hf_check_unknown(const struct as_model *model, struct as_error *error);

/* For messages: GGUF's name back to Hugging Face's. */
void as_hf_stored_name(const char *name, char *text, size_t size);

/* hf_folder_config.c: what config.json and generation_config.json say. */
struct as_hf_settings {
    struct as_model_parts parts;
    struct as_rope_rule rope;
    bool tied;
};

int as_hf_read_config(struct as_model_storage *storage, struct as_hf_settings *settings,
                      struct as_error *error);

/* config.json's outer members as model->metadata. */
int as_hf_list_metadata(struct as_model_storage *storage, struct as_error *error);

#endif
