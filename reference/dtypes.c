/* Stored numbers to doubles, and doubles to what a tested dtype keeps of them. The block formats
 * are ggml's (ggml/src/ggml-quants.c); tests/golden/blocks holds them to the `gguf` package. */
#include "reference.h"

#include <math.h>
#include <string.h>

#define BLOCK 32        /* elements that share one scale in the simple formats and in Q8 */
#define SUPER_BLOCK 256 /* elements of a K-quant block */

static double half_to_double(const uint8_t *bytes)
{
    unsigned bits = bytes[0] | (unsigned)bytes[1] << 8;
    unsigned exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double value = exponent == 0    ? ldexp(mantissa, -24)
                   : exponent == 31 ? (mantissa == 0 ? INFINITY : NAN)
                                    : ldexp(1024 + mantissa, (int)exponent - 25);
    return bits >> 15 ? -value : value;
}

static float half_to_float(const uint8_t *bytes)
{
    return (float)half_to_double(bytes);
}

static float float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* --- one block of each format; products and sums in float32 --- */

static void block_f32(const uint8_t *bytes, double *out)
{
    float value;
    memcpy(&value, bytes, sizeof value);
    *out = value;
}

static void block_f16(const uint8_t *bytes, double *out)
{
    *out = half_to_double(bytes);
}

static void block_bf16(const uint8_t *bytes, double *out)
{
    *out = float_from_bits((uint32_t)bytes[0] << 16 | (uint32_t)bytes[1] << 24);
}

static void block_q8_0(const uint8_t *bytes, double *out)
{
    float d = half_to_float(bytes);
    for (int i = 0; i < BLOCK; i++)
        out[i] = d * (float)(int8_t)bytes[2 + i];
}

/* Elements 0..15 are the low nibbles, 16..31 the high ones. */
static int nibble(const uint8_t *quants, int i)
{
    return i < BLOCK / 2 ? quants[i] & 15 : quants[i - BLOCK / 2] >> 4;
}

static int bit(const uint8_t *bits, int i)
{
    return bits[i / 8] >> (i % 8) & 1;
}

static void block_q4_0(const uint8_t *bytes, double *out)
{
    float d = half_to_float(bytes);
    for (int i = 0; i < BLOCK; i++)
        out[i] = d * (float)(nibble(bytes + 2, i) - 8);
}

static void block_q4_1(const uint8_t *bytes, double *out)
{
    float d = half_to_float(bytes), m = half_to_float(bytes + 2);
    for (int i = 0; i < BLOCK; i++) {
        float product = d * (float)nibble(bytes + 4, i);
        out[i] = product + m;
    }
}

static void block_q5_0(const uint8_t *bytes, double *out)
{
    float d = half_to_float(bytes);
    for (int i = 0; i < BLOCK; i++)
        out[i] = d * (float)((nibble(bytes + 6, i) | bit(bytes + 2, i) << 4) - 16);
}

static void block_q5_1(const uint8_t *bytes, double *out)
{
    float d = half_to_float(bytes), m = half_to_float(bytes + 2);
    for (int i = 0; i < BLOCK; i++) {
        float product = d * (float)(nibble(bytes + 8, i) | bit(bytes + 4, i) << 4);
        out[i] = product + m;
    }
}

/* Scale and minimum of sub-block j (0..7), six bits each in 12 bytes: the first four plainly in
 * bytes 0..7, the other four as nibbles in bytes 8..11 with their top bits above the first. */
static void scale_and_minimum(const uint8_t *packed, int j, int *scale, int *minimum)
{
    if (j < 4) {
        *scale = packed[j] & 63;
        *minimum = packed[j + 4] & 63;
    } else {
        *scale = (packed[j + 4] & 15) | packed[j - 4] >> 6 << 4;
        *minimum = packed[j + 4] >> 4 | packed[j] >> 6 << 4;
    }
}

/* Sub-block j holds elements 32 j .. 32 j + 31. Each 32 bytes of nibbles serve two sub-blocks, low
 * nibbles first; bit j of high[i] is the fifth bit of element i of sub-block j (Q4_K: none). */
static void block_k(const uint8_t *bytes, const uint8_t *high, const uint8_t *low, double *out)
{
    float d = half_to_float(bytes), dmin = half_to_float(bytes + 2);
    for (int j = 0; j < SUPER_BLOCK / BLOCK; j++) {
        int scale, minimum;
        scale_and_minimum(bytes + 4, j, &scale, &minimum);
        float step = d * (float)scale, offset = dmin * (float)minimum;
        for (int i = 0; i < BLOCK; i++) {
            int q = low[j / 2 * BLOCK + i] >> (j % 2 * 4) & 15;
            if (high != NULL)
                q |= (high[i] >> j & 1) << 4;
            float product = step * (float)q;
            out[j * BLOCK + i] = product - offset;
        }
    }
}

static void block_q4_k(const uint8_t *bytes, double *out)
{
    block_k(bytes, NULL, bytes + 16, out);
}

static void block_q5_k(const uint8_t *bytes, double *out)
{
    block_k(bytes, bytes + 16, bytes + 48, out);
}

/* 128 bytes of low nibbles, 64 of high bit pairs, 16 scales, d. Each half of 128 elements has four
 * groups of 32: their nibbles are low(a), low(b), high(a), high(b) of two 32-byte runs a and b, and
 * their bit pairs lie in one 32-byte run, group 0 lowest. */
static void block_q6_k(const uint8_t *bytes, double *out)
{
    float d = half_to_float(bytes + 208);
    for (int element = 0; element < SUPER_BLOCK; element++) {
        int half = element / 128, group = element / BLOCK % 4, i = element % BLOCK;
        int low = bytes[half * 64 + group % 2 * BLOCK + i] >> (group / 2 * 4) & 15;
        int high = bytes[128 + half * BLOCK + i] >> (group * 2) & 3;
        float step = d * (float)(int8_t)bytes[192 + element / 16];
        out[element] = step * (float)((low | high << 4) - 32);
    }
}

static const struct {
    const char *name;
    int elements, bytes; /* of a block; 0 = never stored */
    void (*block)(const uint8_t *bytes, double *out);
} formats[AS_REF_DTYPES] = {
    [AS_REF_F32] = {"f32", 1, 4, block_f32},
    [AS_REF_F16] = {"f16", 1, 2, block_f16},
    [AS_REF_BF16] = {"bf16", 1, 2, block_bf16},
    [AS_REF_Q8_0] = {"q8_0", BLOCK, 34, block_q8_0},
    [AS_REF_Q4_0] = {"q4_0", BLOCK, 18, block_q4_0},
    [AS_REF_Q4_1] = {"q4_1", BLOCK, 20, block_q4_1},
    [AS_REF_Q5_0] = {"q5_0", BLOCK, 22, block_q5_0},
    [AS_REF_Q5_1] = {"q5_1", BLOCK, 24, block_q5_1},
    [AS_REF_Q4_K] = {"q4_k", SUPER_BLOCK, 144, block_q4_k},
    [AS_REF_Q5_K] = {"q5_k", SUPER_BLOCK, 176, block_q5_k},
    [AS_REF_Q6_K] = {"q6_k", SUPER_BLOCK, 210, block_q6_k},
    [AS_REF_Q8] = {"q8", 0, 0, NULL},
};

static bool known(int dtype)
{
    return dtype >= 0 && dtype < AS_REF_DTYPES;
}

const char *as_ref_dtype_name(int dtype)
{
    return known(dtype) ? formats[dtype].name : "?";
}

int64_t as_ref_dtype_bytes(int dtype, int64_t count)
{
    if (!known(dtype) || formats[dtype].block == NULL || count < 0 ||
        count % formats[dtype].elements != 0)
        return -1;
    int64_t bytes;
    return __builtin_mul_overflow(count / formats[dtype].elements, formats[dtype].bytes, &bytes)
               ? -1
               : bytes;
}

int as_ref_dequantize(int dtype, const void *bytes, double *out, int64_t count)
{
    if (!known(dtype) || formats[dtype].block == NULL)
        return AS_ERR_UNSUPPORTED;
    if (as_ref_dtype_bytes(dtype, count) < 0)
        return AS_ERR_DATA;
    const uint8_t *block = bytes;
    for (int64_t i = 0; i < count; i += formats[dtype].elements) {
        formats[dtype].block(block, out + i);
        block += formats[dtype].bytes;
    }
    return AS_OK;
}

/* --- rounding --- */

static double round_bf16(double value)
{
    float narrow = (float)value;
    if (isnan(narrow))
        return NAN;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    bits += 0x7fff + (bits >> 16 & 1); /* ties to even; a carry runs into the exponent as it must */
    return float_from_bits(bits & 0xffff0000u);
}

static double round_f16(double value)
{
    float narrow = (float)value;
    if (isnan(narrow) || isinf(narrow) || narrow == 0)
        return narrow;
    int exponent;
    frexp(narrow, &exponent); /* |narrow| in [2^(exponent-1), 2^exponent) */
    int step = exponent - 11 > -24 ? exponent - 11 : -24;
    double rounded = ldexp(nearbyint(ldexp(narrow, -step)), step);
    return fabs(rounded) > 65504 ? copysign(INFINITY, rounded) : rounded;
}

/* One block of at most 32 values; see as_ref_round. */
static void round_block(double *values, int64_t count, bool stored)
{
    float largest = 0;
    bool finite = true;
    for (int64_t i = 0; i < count; i++) {
        float magnitude = fabsf((float)values[i]);
        finite = finite && isfinite(magnitude);
        if (magnitude > largest)
            largest = magnitude;
    }
    float d = largest / 127.0f;
    float id = d == 0 ? 0 : 1.0f / d;
    if (isinf(id)) /* the block is too small for float32 to scale */
        d = id = 0;
    double scale = stored ? round_f16(d) : d;
    for (int64_t i = 0; i < count; i++) {
        float scaled = (float)values[i] * id;
        double q = stored ? roundf(scaled) : nearbyintf(scaled);
        values[i] = finite ? scale * fmax(-127, fmin(127, q)) : NAN;
    }
}

int as_ref_round(int dtype, double *values, int64_t rows, int64_t columns)
{
    int64_t count = rows * columns;
    switch (dtype) {
    case AS_REF_F32:
        for (int64_t i = 0; i < count; i++)
            values[i] = (float)values[i];
        return AS_OK;
    case AS_REF_F16:
        for (int64_t i = 0; i < count; i++)
            values[i] = round_f16(values[i]);
        return AS_OK;
    case AS_REF_BF16:
        for (int64_t i = 0; i < count; i++)
            values[i] = round_bf16(values[i]);
        return AS_OK;
    case AS_REF_Q8:
    case AS_REF_Q8_0:
        for (int64_t row = 0; row < rows; row++)
            for (int64_t start = 0; start < columns; start += BLOCK) {
                int64_t left = columns - start;
                round_block(values + row * columns + start, left < BLOCK ? left : BLOCK,
                            dtype == AS_REF_Q8_0);
            }
        return AS_OK;
    default: return AS_ERR_UNSUPPORTED;
    }
}
