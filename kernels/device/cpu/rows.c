/* Dequantising, rounding and multiplying rows in plain C. */
#include "device/cpu/rows.h"

#include <math.h>

/* Q8_0: fp16 d, 32 int8; x = d q. */
static void dequantize_q8_0(const uint8_t *restrict block, int64_t blocks, float *restrict out)
{
    for (int64_t b = 0; b < blocks; b++, block += 34, out += CPU_BLOCK) {
        float d = cpu_f16(block);
        for (int i = 0; i < CPU_BLOCK; i++) {
            out[i] = (float)(int8_t)block[2 + i] * d;
        }
    }
}

/* Q4_1: fp16 d, fp16 m, 16 bytes; low nibbles are elements 0..15, high ones 16..31; x = d q + m. */
static void dequantize_q4_1(const uint8_t *restrict block, int64_t blocks, float *restrict out)
{
    for (int64_t b = 0; b < blocks; b++, block += 20, out += CPU_BLOCK) {
        float d = cpu_f16(block);
        float m = cpu_f16(block + 2);
        for (int i = 0; i < CPU_BLOCK / 2; i++) {
            out[i] = (float)(block[4 + i] & 15) * d + m;
            out[i + CPU_BLOCK / 2] = (float)(block[4 + i] >> 4) * d + m;
        }
    }
}

void cpu_dequantize(enum assay_dtype dtype, const void *stored, int64_t columns, float *out)
{
    switch (dtype) {
    case ASSAY_Q8_0: dequantize_q8_0(stored, columns / CPU_BLOCK, out); break;
    case ASSAY_Q4_1: dequantize_q4_1(stored, columns / CPU_BLOCK, out); break;
    default: memcpy(out, stored, (size_t)columns * sizeof *out); break;
    }
}

float cpu_dot(const float *x, const float *w, int64_t k)
{
    float sum = 0;
    for (int64_t begin = 0; begin < k; begin += CPU_BLOCK) {
        int64_t end = begin + CPU_BLOCK < k ? begin + CPU_BLOCK : k;
        float part = 0;
        for (int64_t i = begin; i < end; i++) {
            part += x[i] * w[i];
        }
        sum += part;
    }
    return sum;
}

void cpu_quantize_q8(const float *x, int64_t columns, int8_t *quants, float *scales)
{
    for (int64_t b = 0; b < columns / CPU_BLOCK; b++, x += CPU_BLOCK, quants += CPU_BLOCK) {
        float largest = 0;
        bool finite = true;
        for (int i = 0; i < CPU_BLOCK; i++) {
            finite = finite && isfinite(x[i]);
            largest = fmaxf(largest, fabsf(x[i]));
        }
        if (!finite) {
            scales[b] = NAN;
            memset(quants, 0, CPU_BLOCK);
            continue;
        }
        float d = largest / 127;
        float id = d == 0 ? 0 : 1 / d;
        for (int i = 0; i < CPU_BLOCK; i++) {
            /* id is infinite where d is subnormal enough; the clamp then decides. */
            quants[i] = (int8_t)lrintf(fminf(fmaxf(x[i] * id, -127), 127));
        }
        scales[b] = d;
    }
}
