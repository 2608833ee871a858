/* Seeded random numbers, in float32 and in every stored dtype. */
#ifndef AS_VALUES_H
#define AS_VALUES_H

#include <stdint.h>

#include "kernel.h"

/* `count` values of mean 0 and variance 1 within +-2.45: sums of two uniforms, a twentieth of the
 * price of Box and Muller. */
void as_values(float *out, int64_t count, uint64_t seed);

/* Uniform in 0 .. bound - 1; bound > 0. */
int64_t as_value_below(uint64_t seed, uint64_t counter, int64_t bound);

/* `count` elements in the stored form of `dtype`, whole blocks, with a root mean square near 1.
 * Quants are uniform bits, scales differ by block and in sign, one block in 64 has the scale 0. */
void as_values_stored(enum assay_dtype dtype, void *out, int64_t count, uint64_t seed);

#endif
