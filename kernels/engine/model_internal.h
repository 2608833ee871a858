/* What the files of the model reader share: storage, and metadata with its checks. */
#ifndef AS_MODEL_INTERNAL_H
#define AS_MODEL_INTERNAL_H

#include "as_file.h"
#include "gguf.h"
#include "model.h"

/* The vocabulary's limits keep what a hostile header makes us allocate small (design.md
 * section 9); the largest published ones have 262,144 pieces and 580,000 merges. */
#define AS_MODEL_PIECE_LIMIT ((uint64_t)1 << 19)
#define AS_MODEL_MERGE_LIMIT ((uint64_t)1 << 20)

/* What may be copied out of the mapping: vectors converted to F32, and tensors whose data is not
 * aligned to its elements. Llama 3.1 405B converts 17 MB of norms. */
#define AS_MODEL_COPY_LIMIT ((size_t)32 << 20)

struct as_hf_folder;

/* Owns what struct as_model points to. */
struct as_model_storage {
    struct as_mapping mapping; /* empty when the bytes are the caller's */
    struct as_gguf gguf;
    struct as_hf_folder *folder; /* NULL of a GGUF file */
    struct as_model *model;
    struct as_tensor *tensors;        /* model->tensors */
    const struct as_tensor **by_name; /* sorted */
    char *names;                      /* the tensors', each with its NUL */
    struct as_model_layer *layers;
    struct as_bytes *pieces, *merges;
    int32_t *types;
    float *scores;
    struct as_metadata *metadata;
    float *rope_divisors;
    void **copies; /* of tensors' data */
    size_t copy_count, copy_capacity, copy_bytes;
    char *path, *name, *family, *tokenizer, *pre;
    /* For messages: the name that the files would use for tensor `name`; NULL: the same. */
    void (*stored_name)(const char *name, char *text, size_t size);
};

/* ---- model.c ------------------------------------------------------------------------------ */

/* Sorts the tensors by name; two of the same are refused. */
int as_model_index_tensors(struct as_model_storage *storage, struct as_error *error);

/* ---- model_gguf.c ------------------------------------------------------------------------- */

/* Reads the `size` bytes at `bytes` as GGUF into the storage and its model. */
int as_model_read_gguf(struct as_model_storage *storage, const void *bytes, size_t size,
                       struct as_error *error);

/* ---- hf_folder.c -------------------------------------------------------------------------- */

/* Reads the folder model->path into the storage and its model. */
int as_model_read_folder(struct as_model_storage *storage, struct as_error *error);
void as_hf_folder_free(struct as_hf_folder *folder);
uint64_t as_hf_folder_digest(const struct as_hf_folder *folder);
const char *as_hf_folder_file(const struct as_hf_folder *folder, size_t index);

/* ---- model_keys.c ------------------------------------------------------------------------- */

/* Reads a key into *value, which keeps its value where the key is absent and `required` is false.
 * Wrong types, values outside [least, most] and missing keys are refused with key and place. */
int as_model_key_u32(const struct as_gguf *gguf, const char *key, bool required, uint32_t least,
                     uint32_t most, uint32_t *value, struct as_error *error);
int as_model_key_float(const struct as_gguf *gguf, const char *key, bool required, double least,
                       double most, float *value, struct as_error *error);
int as_model_key_bool(const struct as_gguf *gguf, const char *key, bool *value,
                      struct as_error *error);
/* A NUL-terminated copy in *value, or NULL where the key is absent; the old *value is lost. */
int as_model_key_text(const struct as_gguf *gguf, const char *key, bool required, char **value,
                      struct as_error *error);

/* Fails with "metadata key <key> at byte <place>: <message>". */
int as_model_refuse_key(const struct as_gguf_entry *entry, int code, struct as_error *error,
                        const char *format, ...) __attribute__((format(printf, 4, 5)));

/* ---- model_vocabulary.c, model_llama.c ---------------------------------------------------- */

/* tokenizer.* into model->vocabulary. */
int as_model_read_vocabulary(struct as_model_storage *storage, struct as_error *error);

/* Configuration of the architectures `llama`, `qwen2` and `qwen3`, and their tensors. */
int as_model_read_llama(struct as_model_storage *storage, struct as_error *error);

/* ---- model_tensors.c ---------------------------------------------------------------------- */

/* How a container states what the tensors alone do not say. */
struct as_model_parts {
    enum { AS_PART_OPTIONAL, AS_PART_REQUIRED, AS_PART_ABSENT } qkv_bias, qk_norm, output;
};

/* Finds the tensors of the family by their names, shapes checked against model->config, marks them
 * used and refuses parts whose neglect would change the results. Sets qkv_bias, qk_norm and
 * tied_output. AS_PART_ABSENT: not to be used even where the files carry it; biases and norms are
 * then refused, an output matrix is left unused. */
int as_model_bind_tensors(struct as_model_storage *storage, const struct as_model_parts *parts,
                          struct as_error *error);

/* Finds rope_freqs.weight, a vector of rope_dims / 2; *found is NULL where there is none. */
int as_model_bind_rope_freqs(struct as_model_storage *storage, const struct as_tensor **found,
                             struct as_error *error);

/* ---- model_rope.c ------------------------------------------------------------------------- */

/* RoPE scaling as files state it; as_rope_rule() has the defaults. */
struct as_rope_rule {
    enum as_rope_scaling scaling;
    double factor;
    double low_frequency, high_frequency; /* llama3 */
    double original_context;              /* llama3, yarn: positions before the stretch */
    double beta_fast, beta_slow;          /* yarn: turns over the original context */
    double magnitude;                     /* yarn: of cos and sin; 0 = 1 + ln(factor) / 10 */
    double more_magnitude;                /* yarn: multiplies it */
    bool truncate;                        /* yarn: the ramp starts and ends at whole pairs */
};

struct as_rope_rule as_rope_rule(void);

/* Sets rope_scaling, rope_factor, rope_divisors and rope_magnitude of the configuration from the
 * rule and from `freqs` (rope_dims / 2 further divisors, or NULL). What scales nothing is no
 * scaling. */
int as_model_scale_rope(struct as_model_storage *storage, const struct as_rope_rule *rule,
                        const float *freqs, struct as_error *error);

#endif
