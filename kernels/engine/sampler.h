/* Choosing a token from logits: greedy, or drawn with a seed. */
#ifndef AS_SAMPLER_H
#define AS_SAMPLER_H

#include "kernel.h"

struct as_sampling {
    uint64_t seed;
    double temperature; /* 0 = greedy */
    int32_t top_k;      /* 0 = all */
    double top_p;       /* 1 = all */
};

struct as_sampler;

int as_sampler_create(int64_t vocabulary, struct as_sampler **sampler, struct as_error *error);
void as_sampler_free(struct as_sampler *sampler);

/* The token drawn from `logits` (vocabulary), all finite. Depends on the seed and on `draw`, the
 * number of the token in its request, alone: the batch around it changes nothing. */
int32_t as_sample(struct as_sampler *sampler, const float *logits,
                  const struct as_sampling *sampling, uint64_t draw);

#endif
