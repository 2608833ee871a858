#include "check/values.h"

#include <string.h>

#include "as_random.h"

/* 1 / sd of the sum of two uniform 16-bit numbers: sd^2 = 2 (2^32 - 1) / 12. */
#define TWO_UNIFORMS 3.7376758e-5f

static float sum_of_two(uint32_t bits)
{
    return (float)((int32_t)(bits & 0xffff) + (int32_t)(bits >> 16) - 65535) * TWO_UNIFORMS;
}

void as_values(float *out, int64_t count, uint64_t seed)
{
    for (int64_t i = 0; i < count; i += 2) {
        uint64_t bits = as_mix64(seed + 0x9e3779b97f4a7c15u * (uint64_t)i);
        out[i] = sum_of_two((uint32_t)bits);
        if (i + 1 < count)
            out[i + 1] = sum_of_two((uint32_t)(bits >> 32));
    }
}

int64_t as_value_below(uint64_t seed, uint64_t counter, int64_t bound)
{
    return (int64_t)(as_random_u64(seed, 0, counter) % (uint64_t)bound);
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* fp16 bits of a value in fp16's normal range, rounded towards zero; smaller ones become 0. */
static uint16_t half_of(float value)
{
    uint32_t bits = bits_of(value);
    int32_t exponent = (int32_t)(bits >> 23 & 255) - 112;
    if (exponent <= 0)
        return (uint16_t)(bits >> 16 & 0x8000);
    return (uint16_t)((bits >> 16 & 0x8000) | (uint32_t)exponent << 10 | (bits >> 13 & 1023));
}

static void put_half(uint8_t *to, float value)
{
    uint16_t half = half_of(value);
    memcpy(to, &half, sizeof half);
}

/* Where a block format keeps its fp16 scale and offset, and what makes its values about unit. */
struct block_format {
    int scale_at, offset_at; /* bytes into the block; offset_at -1: none */
    float scale;             /* 1 / root mean square of the integer part */
    float offset;            /* in scales: centres the integer part */
};

static const struct block_format formats[ASSAY_DTYPES] = {
    [ASSAY_Q8_0] = {0, -1, 1 / 73.9f, 0},
    [ASSAY_Q4_0] = {0, -1, 1 / 4.64f, 0},
    [ASSAY_Q4_1] = {0, 2, 1 / 4.61f, -7.5f},
    [ASSAY_Q5_0] = {0, -1, 1 / 9.25f, 0},
    [ASSAY_Q5_1] = {0, 2, 1 / 9.23f, -15.5f},
    [ASSAY_Q4_K] = {0, 2, 1 / 259.0f, 7.5f}, /* d sc q - dmin m, sc and m in 0..63 */
    [ASSAY_Q5_K] = {0, 2, 1 / 519.0f, 15.5f},
    [ASSAY_Q6_K] = {208, -1, 1 / 1367.0f, 0}, /* d sc (q - 32), sc in -128..127 */
};

static void stored_blocks(enum assay_dtype dtype, uint8_t *out, int64_t blocks, uint64_t seed)
{
    const struct block_format *format = &formats[dtype];
    size_t bytes = (size_t)assay_dtype(dtype)->bytes;
    uint64_t counter = 0;
    for (size_t at = 0; at < (size_t)blocks * bytes; at += 8) {
        uint64_t word = as_mix64(seed + 0x9e3779b97f4a7c15u * counter++);
        size_t left = (size_t)blocks * bytes - at;
        memcpy(out + at, &word, left < 8 ? left : 8);
    }
    for (int64_t b = 0; b < blocks; b++) {
        uint8_t *block = out + (size_t)b * bytes;
        uint64_t bits = as_random_u64(seed, 1, (uint64_t)b);
        float size = 0.5f + (float)(bits >> 40) * 0x1p-24f; /* 0.5 .. 1.5 */
        if (bits % 64 == 0)
            size = 0;
        else if (bits % 8 == 1)
            size = -size;
        put_half(block + format->scale_at, size * format->scale);
        if (format->offset_at >= 0)
            put_half(block + format->offset_at, size * format->scale * format->offset);
    }
}

void as_values_stored(enum assay_dtype dtype, void *out, int64_t count, uint64_t seed)
{
    uint8_t *bytes = out;
    switch (dtype) {
    case ASSAY_F32: as_values(out, count, seed); break;
    case ASSAY_BF16:
    case ASSAY_F16:
        for (int64_t i = 0; i < count; i++) {
            float value;
            as_values(&value, 1, seed + (uint64_t)i);
            uint16_t half = dtype == ASSAY_BF16 ? (uint16_t)(bits_of(value) >> 16) : half_of(value);
            memcpy(bytes + 2 * i, &half, sizeof half);
        }
        break;
    default: stored_blocks(dtype, bytes, count / assay_dtype(dtype)->block, seed);
    }
}
