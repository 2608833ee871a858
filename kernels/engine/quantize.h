/* Stored forms of numbers: float32 to and from half floats and ggml's blocks.
 *
 * The formulae are those of ggml's reference quantisers (ggml-quants.c, quantize_row_*_ref), so
 * that files written here decode to the same values everywhere. Decoding is one float32 rounding
 * an operation, as ggml and the `gguf` package do.
 */
#ifndef AS_QUANTIZE_H
#define AS_QUANTIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernel.h"

#define AS_BLOCK 32 /* elements a block of Q8_0, Q4_0, Q4_1, Q5_0 and Q5_1 */

/* x = d q */
struct as_block_q8_0 {
    uint16_t d; /* binary16 */
    int8_t q[AS_BLOCK];
};

/* x = d (q - 8). In this and the next, byte i holds q of element i in its low half and of element
 * i + 16 in its high half. */
struct as_block_q4_0 {
    uint16_t d;
    uint8_t q[AS_BLOCK / 2];
};

/* x = d q + m */
struct as_block_q4_1 {
    uint16_t d, m;
    uint8_t q[AS_BLOCK / 2];
};

/* IEEE 754 binary16, subnormals and NaNs included. */
static inline float as_f16_decode(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, bits;
    uint32_t exponent = (half >> 10) & 31u, mantissa = half & 0x3ffu;
    float value;
    if (exponent == 0) {
        value = (float)mantissa * 0x1p-24f;
        memcpy(&bits, &value, sizeof bits);
        bits |= sign;
    } else if (exponent == 31) {
        bits = sign | 0x7f800000u | mantissa << 13;
    } else {
        bits = sign | (exponent + 112u) << 23 | mantissa << 13;
    }
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The upper half of a float32. */
static inline float as_bf16_decode(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Nearest, ties to even; overflow gives infinity, NaN stays NaN. */
uint16_t as_f16_encode(float value);
uint16_t as_bf16_encode(float value);

/* True for the dtypes that as_quantize() writes: F32, F16, BF16, Q8_0, Q4_0, Q4_1. */
bool as_quantize_serves(enum assay_dtype dtype);

/* True for the dtypes that as_dequantize() reads: those and Q5_0, Q5_1, Q4_K, Q5_K, Q6_K. */
bool as_dequantize_serves(enum assay_dtype dtype);

/* Stores `count` values (a multiple of the block) at `blocks`. A block with a value that is not
 * finite decodes to values that are not finite, with no promise which. */
void as_quantize(enum assay_dtype dtype, const float *values, void *blocks, size_t count);

/* Values of `count` stored elements (a multiple of the block; 256 for the K-quants). `blocks` are
 * aligned to 2 bytes, F32 to 4. */
void as_dequantize(enum assay_dtype dtype, const void *blocks, float *values, size_t count);

#endif
