/* The part of as_dequantize() for formats that are read and never written: Q5_0, Q5_1, Q4_K, Q5_K
 * and Q6_K. */
#ifndef AS_QUANTIZE_BLOCKS_H
#define AS_QUANTIZE_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>

#include "kernel.h"

bool as_decode_blocks_serves(enum assay_dtype dtype);

/* Values of `count` stored elements (a multiple of the block); nothing for other dtypes. */
void as_decode_blocks(enum assay_dtype dtype, const void *blocks, float *values, size_t count);

#endif
