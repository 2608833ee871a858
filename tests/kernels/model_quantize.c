/* Block formats: known blocks, what quantising may lose, awkward values, half floats. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "as_random.h"
#include "engine/quantize.h"

/* One element per bit pattern: decoding and encoding again is the identity (NaNs stay NaN). */
Test(model_quantize, f16_round_trip)
{
    for (uint32_t half = 0; half < 65536; half++) {
        float value = as_f16_decode((uint16_t)half);
        bool nan = (half & 0x7c00) == 0x7c00 && (half & 0x3ff) != 0;
        cr_assert_eq(isnan(value) != 0, nan, "%04x", half);
        if (!nan)
            cr_assert_eq(as_f16_encode(value), half, "%04x", half);
        else
            cr_assert(isnan(as_f16_decode(as_f16_encode(value))));
        if ((half & 0x7c00) == 0 && half < 0x8000)
            cr_assert_eq(value, ldexpf((float)half, -24));
    }
}

Test(model_quantize, f16_rounding)
{
    static const struct {
        float value;
        uint16_t half;
    } cases[] = {
        {1.0f, 0x3c00},
        {-2.0f, 0xc000},
        {65504.0f, 0x7bff},
        {65519.996f, 0x7bff},
        {65520.0f, 0x7c00},
        {1e30f, 0x7c00},
        {-1e30f, 0xfc00},
        {0x1p-24f, 0x0001},
        {0x1p-25f, 0x0000},
        {0x1.000002p-25f, 1},
        {0x1.8p-24f, 0x0002},
        {0x1p-14f, 0x0400},
        {0x1.ff8p-15f, 0x03ff},
        {0x1.ffcp-15f, 0x0400},
        {1.0f + 0x1p-11f, 0x3c00},
        {1.0f + 0x1.8p-10f, 0x3c02},
        {1.0f + 0x1.8p-11f, 0x3c01},
        {-0.0f, 0x8000},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        cr_assert_eq(as_f16_encode(cases[i].value), cases[i].half, "%a: %04x",
                     (double)cases[i].value, as_f16_encode(cases[i].value));
}

Test(model_quantize, bf16_rounding)
{
    cr_assert_eq(as_bf16_encode(1.0f), 0x3f80);
    cr_assert_eq(as_bf16_encode(1.0f + 0x1p-8f), 0x3f80);
    cr_assert_eq(as_bf16_encode(1.0f + 0x1.8p-7f), 0x3f82);
    cr_assert_eq(as_bf16_encode(0x1.fffffep127f), 0x7f80);
    cr_assert(isnan(as_bf16_decode(as_bf16_encode((float)NAN))));
    for (uint32_t half = 0; half < 0x7f80; half++)
        cr_assert_eq(as_bf16_encode(as_bf16_decode((uint16_t)half)), half);
}

/* Blocks whose bytes follow from the formulae by hand. */
Test(model_quantize, known_blocks)
{
    float x[32] = {0}, y[32];
    struct as_block_q8_0 q8;
    struct as_block_q4_0 q4;
    struct as_block_q4_1 q41;
    x[0] = 127.0f;
    x[1] = -63.5f; /* a half goes away from zero */
    x[2] = 0.49999997f;
    x[31] = 2.5f;
    as_quantize(ASSAY_Q8_0, x, &q8, 32);
    cr_assert_eq(q8.d, 0x3c00);
    cr_assert(q8.q[0] == 127 && q8.q[1] == -64 && q8.q[2] == 0 && q8.q[31] == 3);

    x[0] = -8.0f;
    x[1] = 7.0f;
    x[2] = 7.4f;
    x[16] = -1.0f;
    x[31] = 20.0f;
    as_quantize(ASSAY_Q4_0, x, &q4, 32); /* the largest is 20: d = -2.5 */
    cr_assert_eq(q4.d, 0xc100);
    cr_assert_eq(q4.q[0], 11 | 8 << 4);
    cr_assert_eq(q4.q[1], 5 | 8 << 4);
    cr_assert_eq(q4.q[15] >> 4, 0);

    for (int i = 0; i < 32; i++)
        x[i] = (float)(i % 16) - 3.0f;
    as_quantize(ASSAY_Q4_1, x, &q41, 32); /* d = 1, m = -3: exact */
    cr_assert(q41.d == 0x3c00 && q41.m == 0xc200);
    cr_assert_eq(q41.q[5], 5 | 5 << 4);
    as_dequantize(ASSAY_Q4_1, &q41, y, 32);
    cr_assert_eq(memcmp(x, y, sizeof x), 0);
}

/* No value moves by more than half a step (a whole one where q4_0 clips), plus the rounding of
 * the scales to half floats. */
Test(model_quantize, error_bound)
{
    static const enum assay_dtype dtypes[] = {ASSAY_Q8_0, ASSAY_Q4_0, ASSAY_Q4_1};
    for (uint64_t round = 0; round < 2000; round++) {
        float x[64], y[64], scale = ldexpf(1.0f, (int)(round % 21) - 10);
        uint8_t blocks[128];
        for (uint64_t i = 0; i < 64; i++)
            x[i] = scale * (float)(as_random_normal(7, round, i) + (double)(round % 3));
        for (size_t k = 0; k < 3; k++) {
            as_quantize(dtypes[k], x, blocks, 64);
            as_dequantize(dtypes[k], blocks, y, 64);
            for (size_t b = 0; b < 64; b += 32) {
                float least = x[b], most = x[b];
                for (size_t i = b; i < b + 32; i++) {
                    least = fminf(least, x[i]);
                    most = fmaxf(most, x[i]);
                }
                float extent = fmaxf(fabsf(least), fabsf(most));
                float bound = k == 0   ? extent / 127.0f * 0.5f
                              : k == 1 ? extent / 8.0f
                                       : (most - least) / 15.0f * 0.5f;
                bound += extent * 0x1p-9f;
                for (size_t i = b; i < b + 32; i++)
                    cr_assert_leq(fabsf(x[i] - y[i]), bound, "%zu: %g became %g", k, (double)x[i],
                                  (double)y[i]);
            }
        }
    }
}

/* Quantising what was decoded gives the same block again where scales are exact half floats. */
Test(model_quantize, zeros_and_constants)
{
    static const enum assay_dtype dtypes[] = {ASSAY_F32,  ASSAY_F16,  ASSAY_BF16,
                                              ASSAY_Q8_0, ASSAY_Q4_0, ASSAY_Q4_1};
    static const float constants[] = {0.0f, -0.0f, 1.0f, -2.0f};
    for (size_t k = 0; k < sizeof dtypes / sizeof dtypes[0]; k++) {
        cr_assert(as_quantize_serves(dtypes[k]));
        for (size_t c = 0; c < 4; c++) {
            float x[32], y[32];
            uint8_t blocks[128];
            for (int i = 0; i < 32; i++)
                x[i] = constants[c];
            as_quantize(dtypes[k], x, blocks, 32);
            as_dequantize(dtypes[k], blocks, y, 32);
            for (int i = 0; i < 32; i++)
                cr_assert_float_eq(y[i], x[i], 1e-3f, "dtype %zu: %g became %g", k, (double)x[i],
                                   (double)y[i]);
        }
    }
    cr_assert(!as_quantize_serves(ASSAY_I32));
    cr_assert(!as_quantize_serves(ASSAY_Q6_K));
}

/* No undefined conversion, and the fault stays visible. */
Test(model_quantize, not_finite)
{
    static const enum assay_dtype dtypes[] = {ASSAY_Q8_0, ASSAY_Q4_0, ASSAY_Q4_1};
    const float bad[] = {(float)INFINITY, -(float)INFINITY, 3e38f, -3e38f, (float)NAN};
    for (size_t k = 0; k < 3; k++) {
        for (size_t b = 0; b < 5; b++) {
            float x[32] = {0}, y[32];
            uint8_t blocks[64];
            x[3] = bad[b];
            x[20] = 1.0f;
            as_quantize(dtypes[k], x, blocks, 32);
            as_dequantize(dtypes[k], blocks, y, 32);
            if (b < 4)
                cr_assert(!isfinite(y[3]), "dtype %zu: %g became %g", k, (double)x[3],
                          (double)y[3]);
        }
    }
}
