/* What the CPU variants share in plain C: places in operands, fp16, dequantising a row, rounding
 * a row to the activation class Q8, and the team's barrier. */
#ifndef CPU_ROWS_H
#define CPU_ROWS_H

#include <stdint.h>
#include <string.h>

#include "kernel.h"

/* Elements of a block of Q8_0, Q4_1 and Q8. */
#define CPU_BLOCK 32

/* A team of one may come without a barrier. */
static inline void cpu_barrier(const struct assay_exec *exec)
{
    if (exec->threads > 1) {
        exec->barrier(exec);
    }
}

/* Row `row` of a float32 operand. */
static inline float *cpu_row(const struct assay_operand *operand, int64_t row)
{
    return (float *)operand->data + row * operand->stride;
}

/* Row `row` of a weight in any dtype; rows are whole blocks. */
static inline const void *cpu_weight_row(const struct assay_operand *operand, int64_t row)
{
    return (const char *)operand->data +
           (size_t)row * assay_row_bytes(operand->dtype, operand->stride);
}

/* The fp16 at `stored`, which may lie at any address. */
static inline float cpu_f16(const void *stored)
{
    uint16_t half;
    memcpy(&half, stored, sizeof half);
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = (half >> 10) & 31;
    uint32_t fraction = half & 1023;
    uint32_t bits;
    if (exponent == 31) { /* infinities and NaN */
        bits = sign | 0x7f800000u | fraction << 13;
    } else if (exponent > 0) {
        bits = sign | (exponent + 112) << 23 | fraction << 13; /* 112 = 127 - 15, the biases */
    } else { /* subnormal: fraction / 2^24 is exact in float32 */
        float magnitude = (float)fraction * 0x1p-24f;
        return sign != 0 ? -magnitude : magnitude;
    }
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The stored values of `columns` elements (whole blocks) in float32, each operation rounded once:
 * that is what a file's quantised weights are defined to be. F32, Q8_0 and Q4_1. */
void cpu_dequantize(enum assay_dtype dtype, const void *stored, int64_t columns, float *out);

/* One row of the activation class Q8 (kernel.h): quants (columns), scales (columns / 32).
 * A block that holds NaN or infinity gets the scale NaN, so that it stays visible. */
void cpu_quantize_q8(const float *x, int64_t columns, int8_t *quants, float *scales);

/* x . w over k elements, one at a time; a sum for each block of 32, so that a processor can work
 * on two blocks at once and the error stays that of a short sum. */
float cpu_dot(const float *x, const float *w, int64_t k);

#endif
