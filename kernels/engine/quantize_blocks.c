/* Decoding the formats that assay reads and never writes: 5-bit blocks and K-quants. Layouts and
 * formulae are those of ggml-quants.c (dequantize_row_*), one float32 rounding an operation. */
#include "quantize_blocks.h"

#include "quantize.h"

#define SUPER 256 /* elements a block of the K-quants */

/* x = d (q - 16). Bit i of `high` is the fifth bit of element i; the nibbles lie as in Q4_0. */
struct block_q5_0 {
    uint16_t d; /* binary16, as every uint16_t below */
    uint8_t high[4], q[AS_BLOCK / 2];
};

/* x = d q + m */
struct block_q5_1 {
    uint16_t d, m;
    uint8_t high[4], q[AS_BLOCK / 2];
};

/* x = d scale q - dmin minimum, with a scale and a minimum for every 32 elements. */
struct block_q4_k {
    uint16_t d, dmin;
    uint8_t scales[12]; /* six bits each, see unpack_scales() */
    uint8_t q[SUPER / 2];
};

struct block_q5_k {
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t high[SUPER / 8]; /* bit j of byte i: the fifth bit of element 32 j + i */
    uint8_t q[SUPER / 2];
};

/* x = d scale (q - 32), with a scale for every 16 elements. */
struct block_q6_k {
    uint8_t low[SUPER / 2], high[SUPER / 4];
    int8_t scales[SUPER / 16];
    uint16_t d;
};

static uint32_t word_of(const uint8_t bytes[4])
{
    uint32_t word;
    memcpy(&word, bytes, sizeof word);
    return word;
}

static int five_bits(const uint8_t *q, uint32_t high, int i)
{
    int nibble = i < AS_BLOCK / 2 ? q[i] & 15 : q[i - AS_BLOCK / 2] >> 4;
    return nibble | (int)(high >> i & 1) << 4;
}

static void decode_q5_0(const void *stored, float *x)
{
    const struct block_q5_0 *block = stored;
    float d = as_f16_decode(block->d);
    uint32_t high = word_of(block->high);
    for (int i = 0; i < AS_BLOCK; i++)
        x[i] = d * (float)(five_bits(block->q, high, i) - 16);
}

static void decode_q5_1(const void *stored, float *x)
{
    const struct block_q5_1 *block = stored;
    float d = as_f16_decode(block->d), m = as_f16_decode(block->m);
    uint32_t high = word_of(block->high);
    for (int i = 0; i < AS_BLOCK; i++)
        x[i] = d * (float)five_bits(block->q, high, i) + m;
}

/* Bytes 0..3 hold the scales of sub-blocks 0..3 in their low six bits, 4..7 the minima; bytes 8..11
 * hold the low halves of both of sub-blocks 4..7, whose upper bits are the top two of 0..7. */
static void unpack_scales(const uint8_t packed[12], uint8_t scale[8], uint8_t minimum[8])
{
    for (int j = 0; j < 4; j++) {
        scale[j] = packed[j] & 63;
        minimum[j] = packed[j + 4] & 63;
        scale[j + 4] = (uint8_t)((packed[j + 8] & 15) | packed[j] >> 6 << 4);
        minimum[j + 4] = (uint8_t)(packed[j + 8] >> 4 | packed[j + 4] >> 6 << 4);
    }
}

/* Sub-blocks 2 i and 2 i + 1 share 32 bytes of nibbles, the even one in the low halves. `high` is
 * NULL where there is no fifth bit. */
static void decode_k(uint16_t half_d, uint16_t half_dmin, const uint8_t packed[12],
                     const uint8_t *high, const uint8_t *q, float *x)
{
    float d = as_f16_decode(half_d), dmin = as_f16_decode(half_dmin);
    uint8_t scale[8], minimum[8];
    unpack_scales(packed, scale, minimum);
    for (int j = 0; j < SUPER / AS_BLOCK; j++) {
        float step = d * (float)scale[j], offset = dmin * (float)minimum[j];
        const uint8_t *nibbles = q + j / 2 * AS_BLOCK;
        for (int i = 0; i < AS_BLOCK; i++) {
            int value = nibbles[i] >> j % 2 * 4 & 15;
            if (high != NULL)
                value |= (high[i] >> j & 1) << 4;
            x[j * AS_BLOCK + i] = step * (float)value - offset;
        }
    }
}

static void decode_q4_k(const void *stored, float *x)
{
    const struct block_q4_k *block = stored;
    decode_k(block->d, block->dmin, block->scales, NULL, block->q, x);
}

static void decode_q5_k(const void *stored, float *x)
{
    const struct block_q5_k *block = stored;
    decode_k(block->d, block->dmin, block->scales, block->high, block->q, x);
}

/* Each half of 128 elements is four runs of 32: run r has the nibbles of 32 bytes r % 2, low halves
 * for r < 2, and bits 2 r and 2 r + 1 of 32 bytes of `high`. */
static void decode_q6_k(const void *stored, float *x)
{
    const struct block_q6_k *block = stored;
    float d = as_f16_decode(block->d);
    for (int run = 0; run < SUPER / AS_BLOCK; run++) {
        int half = run / 4, r = run % 4;
        const uint8_t *low = block->low + half * 64 + r % 2 * AS_BLOCK;
        const uint8_t *high = block->high + half * AS_BLOCK;
        for (int i = 0; i < AS_BLOCK; i++) {
            float step = d * (float)block->scales[run * 2 + i / 16];
            int value = (low[i] >> r / 2 * 4 & 15) | (high[i] >> r * 2 & 3) << 4;
            x[run * AS_BLOCK + i] = step * (float)(value - 32);
        }
    }
}

static const struct {
    void (*decode)(const void *stored, float *x);
    size_t elements, bytes; /* of a block */
} decoders[ASSAY_DTYPES] = {
    [ASSAY_Q5_0] = {decode_q5_0, AS_BLOCK, sizeof(struct block_q5_0)},
    [ASSAY_Q5_1] = {decode_q5_1, AS_BLOCK, sizeof(struct block_q5_1)},
    [ASSAY_Q4_K] = {decode_q4_k, SUPER, sizeof(struct block_q4_k)},
    [ASSAY_Q5_K] = {decode_q5_k, SUPER, sizeof(struct block_q5_k)},
    [ASSAY_Q6_K] = {decode_q6_k, SUPER, sizeof(struct block_q6_k)},
};

bool as_decode_blocks_serves(enum assay_dtype dtype)
{
    return (unsigned)dtype < ASSAY_DTYPES && decoders[dtype].decode != NULL;
}

void as_decode_blocks(enum assay_dtype dtype, const void *blocks, float *values, size_t count)
{
    if (!as_decode_blocks_serves(dtype))
        return;
    const uint8_t *block = blocks;
    for (size_t i = 0; i < count; i += decoders[dtype].elements) {
        decoders[dtype].decode(block, values + i);
        block += decoders[dtype].bytes;
    }
}
