/* Synthetic models: "synthetic:<shape>[,key=value...]" (design.md section 11).
 *
 * Seeded random weights in a shape that users know, a tokenizer of single bytes and a chat
 * template, written once as GGUF. The file depends on the specification alone: the same bytes on
 * any machine and for any number of threads.
 */
#ifndef AS_SYNTHETIC_H
#define AS_SYNTHETIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "as_error.h"
#include "kernel.h"
#include "model.h"

#define AS_SYNTHETIC_PREFIX "synthetic:"

/* What a specification asks for, defaults filled in. */
struct as_synthetic {
    const char *shape; /* "llama-135m"; static */
    uint32_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab, context;
    float rope_base;
    bool tied_output;
    enum assay_dtype weights;
    uint64_t seed;
};

/* True when `path` asks for a synthetic model. */
bool as_synthetic_is(const char *path);

/* The shapes' names: `index` 0 upward, NULL at the end. */
const char *as_synthetic_shape(size_t index);

/* Reads a specification, with or without the prefix. Keys: layers, context, weights, seed.
 * Unknown shapes and keys are refused with the nearest name, values outside their range too. */
int as_synthetic_parse(struct as_synthetic *synthetic, const char *text, struct as_error *error);

/* "synthetic:llama-135m,layers=2": the shape and what differs from its defaults. */
void as_synthetic_describe(const struct as_synthetic *synthetic, char *text, size_t size);

/* Bytes of the tensors' data. */
uint64_t as_synthetic_bytes(const struct as_synthetic *synthetic);

/* Writes the model to `path`, whole or not at all, with `threads` threads (0: as many as there
 * are processors). */
int as_synthetic_write(const struct as_synthetic *synthetic, const char *path, int threads,
                       struct as_error *error);

/* The file of the model in the cache folder, whether or not it is there. */
int as_synthetic_cache_path(const struct as_synthetic *synthetic, char *path, size_t size,
                            struct as_error *error);

/* True when `model` was written from this specification by this generator. */
bool as_synthetic_matches(const struct as_synthetic *synthetic, const struct as_model *model);

#endif
