#include "quantize.h"

#include <float.h>
#include <math.h>

#include "quantize_blocks.h"

uint16_t as_f16_encode(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t sign = (uint16_t)(bits >> 16 & 0x8000u);
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u)
        return sign | 0x7e00u;
    if (bits >= 0x477ff000u) /* 65520: halfway to 2^16, which ties to the even infinity */
        return sign | 0x7c00u;
    if (bits < 0x38800000u) { /* below 2^-14: adding 0.5 rounds at bit 2^-24, to nearest even */
        float magnitude, shifted;
        memcpy(&magnitude, &bits, sizeof magnitude);
        shifted = magnitude + 0.5f;
        memcpy(&bits, &shifted, sizeof bits);
        return sign | (uint16_t)(bits - 0x3f000000u);
    }
    bits += 0xfffu + (bits >> 13 & 1u);
    return sign | (uint16_t)((bits - (112u << 23)) >> 13);
}

uint16_t as_bf16_encode(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 64u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

bool as_quantize_serves(enum assay_dtype dtype)
{
    switch (dtype) {
    case ASSAY_F32:
    case ASSAY_F16:
    case ASSAY_BF16:
    case ASSAY_Q8_0:
    case ASSAY_Q4_0:
    case ASSAY_Q4_1: return true;
    default: return false;
    }
}

bool as_dequantize_serves(enum assay_dtype dtype)
{
    return as_quantize_serves(dtype) || as_decode_blocks_serves(dtype);
}

/* roundf() for |x| < 2^31, written so that compilers vectorise it: halves go away from zero. The
 * conversion cuts and the difference is exact. */
static inline int32_t round_half_away(float x)
{
    int32_t whole = (int32_t)x;
    float rest = x - (float)whole;
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}

/* x cut to an integer in [0, 15]; NaN becomes 0. */
static inline uint8_t nibble(float x)
{
    return x >= 0.0f ? (x < 15.0f ? (uint8_t)x : 15) : 0;
}

static void encode_q8_0(const float *x, struct as_block_q8_0 *block)
{
    float largest = 0.0f;
    for (int i = 0; i < AS_BLOCK; i++) {
        float magnitude = fabsf(x[i]);
        largest = magnitude > largest ? magnitude : largest;
    }
    float d = largest / 127.0f;
    float inverse = d != 0.0f ? 1.0f / d : 0.0f;
    block->d = as_f16_encode(d);
    for (int i = 0; i < AS_BLOCK; i++) {
        float scaled = x[i] * inverse;
        scaled = scaled >= -127.0f ? (scaled <= 127.0f ? scaled : 127.0f) : -127.0f;
        block->q[i] = (int8_t)round_half_away(scaled);
    }
}

static void encode_q4_0(const float *x, struct as_block_q4_0 *block)
{
    float largest = 0.0f, extreme = 0.0f; /* the value of largest magnitude, with its sign */
    for (int i = 0; i < AS_BLOCK; i++) {
        if (largest < fabsf(x[i])) {
            largest = fabsf(x[i]);
            extreme = x[i];
        }
    }
    float d = extreme / -8.0f;
    float inverse = d != 0.0f ? 1.0f / d : 0.0f;
    block->d = as_f16_encode(d);
    for (int i = 0; i < AS_BLOCK / 2; i++) {
        uint8_t low = nibble(x[i] * inverse + 8.5f);
        uint8_t high = nibble(x[i + AS_BLOCK / 2] * inverse + 8.5f);
        block->q[i] = (uint8_t)(low | high << 4);
    }
}

static void encode_q4_1(const float *x, struct as_block_q4_1 *block)
{
    float least = FLT_MAX, most = -FLT_MAX;
    for (int i = 0; i < AS_BLOCK; i++) {
        least = x[i] < least ? x[i] : least;
        most = x[i] > most ? x[i] : most;
    }
    float d = (most - least) / 15.0f;
    float inverse = d != 0.0f ? 1.0f / d : 0.0f;
    block->d = as_f16_encode(d);
    block->m = as_f16_encode(least);
    for (int i = 0; i < AS_BLOCK / 2; i++) {
        uint8_t low = nibble((x[i] - least) * inverse + 0.5f);
        uint8_t high = nibble((x[i + AS_BLOCK / 2] - least) * inverse + 0.5f);
        block->q[i] = (uint8_t)(low | high << 4);
    }
}

void as_quantize(enum assay_dtype dtype, const float *values, void *blocks, size_t count)
{
    uint16_t *halves = blocks;
    switch (dtype) {
    case ASSAY_F32: memcpy(blocks, values, count * sizeof *values); break;
    case ASSAY_F16:
        for (size_t i = 0; i < count; i++)
            halves[i] = as_f16_encode(values[i]);
        break;
    case ASSAY_BF16:
        for (size_t i = 0; i < count; i++)
            halves[i] = as_bf16_encode(values[i]);
        break;
    case ASSAY_Q8_0:
        for (size_t i = 0; i < count / AS_BLOCK; i++)
            encode_q8_0(values + i * AS_BLOCK, (struct as_block_q8_0 *)blocks + i);
        break;
    case ASSAY_Q4_0:
        for (size_t i = 0; i < count / AS_BLOCK; i++)
            encode_q4_0(values + i * AS_BLOCK, (struct as_block_q4_0 *)blocks + i);
        break;
    case ASSAY_Q4_1:
        for (size_t i = 0; i < count / AS_BLOCK; i++)
            encode_q4_1(values + i * AS_BLOCK, (struct as_block_q4_1 *)blocks + i);
        break;
    default: break;
    }
}

static void decode_q8_0(const struct as_block_q8_0 *block, float *x)
{
    float d = as_f16_decode(block->d);
    for (int i = 0; i < AS_BLOCK; i++)
        x[i] = d * (float)block->q[i];
}

static void decode_q4_0(const struct as_block_q4_0 *block, float *x)
{
    float d = as_f16_decode(block->d);
    for (int i = 0; i < AS_BLOCK / 2; i++) {
        x[i] = d * (float)((block->q[i] & 15) - 8);
        x[i + AS_BLOCK / 2] = d * (float)((block->q[i] >> 4) - 8);
    }
}

static void decode_q4_1(const struct as_block_q4_1 *block, float *x)
{
    float d = as_f16_decode(block->d), m = as_f16_decode(block->m);
    for (int i = 0; i < AS_BLOCK / 2; i++) {
        x[i] = d * (float)(block->q[i] & 15) + m;
        x[i + AS_BLOCK / 2] = d * (float)(block->q[i] >> 4) + m;
    }
}

void as_dequantize(enum assay_dtype dtype, const void *blocks, float *values, size_t count)
{
    const uint16_t *halves = blocks;
    switch (dtype) {
    case ASSAY_F32: memcpy(values, blocks, count * sizeof *values); break;
    case ASSAY_F16:
        for (size_t i = 0; i < count; i++)
            values[i] = as_f16_decode(halves[i]);
        break;
    case ASSAY_BF16:
        for (size_t i = 0; i < count; i++)
            values[i] = as_bf16_decode(halves[i]);
        break;
    case ASSAY_Q8_0:
        for (size_t i = 0; i < count / AS_BLOCK; i++)
            decode_q8_0((const struct as_block_q8_0 *)blocks + i, values + i * AS_BLOCK);
        break;
    case ASSAY_Q4_0:
        for (size_t i = 0; i < count / AS_BLOCK; i++)
            decode_q4_0((const struct as_block_q4_0 *)blocks + i, values + i * AS_BLOCK);
        break;
    case ASSAY_Q4_1:
        for (size_t i = 0; i < count / AS_BLOCK; i++)
            decode_q4_1((const struct as_block_q4_1 *)blocks + i, values + i * AS_BLOCK);
        break;
    default: as_decode_blocks(dtype, blocks, values, count); break;
    }
}
