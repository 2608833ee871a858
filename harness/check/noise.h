/* How far apart a model's logits may be and mean the same: the noise of a naive implementation.
 *
 * It belongs to (model digest, weights, activations, kv): the RMS error of the naive rung against
 * the reference, over the first AS_NOISE_POSITIONS tokens of as_verify_text_standard().
 * Noise is 4 times that. For shipped models it is frozen in noise.c; for others it is measured
 * once (harness/check/verify.h) and kept in "<cache folder>/noise/<digest>-<weights>-<activations>-
 * <kv>.json". `assay verify --measure-noise` measures it anew and shows what was known.
 */
#ifndef AS_NOISE_H
#define AS_NOISE_H

#include <stdbool.h>
#include <stdint.h>

#include "as_error.h"
#include "kernel.h"

#define AS_NOISE_POSITIONS 64

struct as_noise_key {
    uint64_t model;           /* as_model_digest() */
    enum assay_dtype weights; /* ASSAY_NONE = as the file stores them */
    enum assay_dtype activations, kv;
};

enum as_noise_source { AS_NOISE_FROZEN, AS_NOISE_CACHED, AS_NOISE_MEASURED };

struct as_noise {
    double naive_rms;  /* of the naive rung's logits */
    double below;      /* share of the positions whose reference margin is at most the noise */
    int32_t positions; /* AS_NOISE_POSITIONS, or the model's context where that is shorter */
    enum as_noise_source source;
};

/* 4 x the naive rung's RMS error. */
double as_noise_level(const struct as_noise *noise);

/* Whether activations and cache are f32: the naive rung then only rounds. */
bool as_noise_exact(const struct as_noise_key *key);

/* The largest share of positions below the noise that a verdict may rest on: 2 % where all is
 * f32, elsewhere the naive rung's own share and 2 points more. */
double as_noise_below_limit(const struct as_noise_key *key, double naive_below);

/* What is known of `key`: frozen, else cached. False where nothing is, or the cache's entry cannot
 * be used. */
bool as_noise_known(const struct as_noise_key *key, struct as_noise *noise);

/* Keeps what was measured. Frozen keys are left alone. */
int as_noise_keep(const struct as_noise_key *key, const struct as_noise *noise,
                  struct as_error *error);

/* "file", "f32", "q8", ...: the strategy file's words. */
const char *as_noise_dtype(enum assay_dtype dtype);

#endif
