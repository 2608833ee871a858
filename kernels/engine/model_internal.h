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

/* Owns what struct as_model points to. */
struct as_model_storage {
    struct as_mapping mapping; /* empty when the bytes are the caller's */
    struct as_gguf gguf;
    struct as_model *model;
    struct as_tensor *tensors;        /* model->tensors */
    const struct as_tensor **by_name; /* sorted */
    char *names;                      /* the tensors', each with its NUL */
    struct as_model_layer *layers;
    struct as_bytes *pieces, *merges;
    int32_t *types;
    float *scores;
    struct as_metadata *metadata;
    char *path, *name, *family, *tokenizer, *pre;
};

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

/* model_vocabulary.c: tokenizer.* into model->vocabulary. */
int as_model_read_vocabulary(struct as_model_storage *storage, struct as_error *error);

/* model_llama.c: configuration and tensors of the `llama` architecture. */
int as_model_read_llama(struct as_model_storage *storage, struct as_error *error);

#endif
