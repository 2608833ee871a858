/* linear/cpu_avx2: eight products an instruction, and a tile of outputs in registers.
 *
 * Four rows of W are dequantised side by side into scratch that stays in the first cache, then
 * meet three tokens at a time: seven loads feed twelve fused multiply-adds. Each output has one
 * accumulator of eight lanes in every tile, so its bits do not depend on the tile's size. */
#include <stdio.h>

#include "device/cpu/avx2.h"
#include "device/cpu/rows.h"

#define ROWS 4
#define TOKENS 3

/* q d + m in two roundings, as the stored values are defined. */
CPU_AVX2_INLINE void store_eight(float *out, __m256i q, __m256 d, __m256 m)
{
    _mm256_storeu_ps(out, _mm256_add_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(q), d), m));
}

CPU_AVX2 static void unpack_q4_1(const uint8_t *block, int64_t blocks, float *out)
{
    for (int64_t b = 0; b < blocks; b++, block += 20, out += CPU_BLOCK) {
        __m256 d = _mm256_set1_ps(avx2_f16(block));
        __m256 m = _mm256_set1_ps(avx2_f16(block + 2));
        __m128i bytes = _mm_loadu_si128((const __m128i *)(block + 4));
        __m128i low = _mm_and_si128(bytes, _mm_set1_epi8(15));
        __m128i high = _mm_and_si128(_mm_srli_epi16(bytes, 4), _mm_set1_epi8(15));
        store_eight(out, _mm256_cvtepu8_epi32(low), d, m);
        store_eight(out + 8, _mm256_cvtepu8_epi32(_mm_srli_si128(low, 8)), d, m);
        store_eight(out + 16, _mm256_cvtepu8_epi32(high), d, m);
        store_eight(out + 24, _mm256_cvtepu8_epi32(_mm_srli_si128(high, 8)), d, m);
    }
}

CPU_AVX2 static void unpack_q8_0(const uint8_t *block, int64_t blocks, float *out)
{
    for (int64_t b = 0; b < blocks; b++, block += 34, out += CPU_BLOCK) {
        __m256 d = _mm256_set1_ps(avx2_f16(block));
        for (int i = 0; i < CPU_BLOCK; i += 8) {
            __m256i q = _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(block + 2 + i)));
            _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_cvtepi32_ps(q), d));
        }
    }
}

/* The dot products of `rows` rows of W and `tokens` rows of x, both constants where it is
 * inlined. w (rows, k) with rows `w_stride` apart, x likewise; y[t * y_stride + r]. */
CPU_AVX2_INLINE void tile(const float *w, int64_t w_stride, const float *x, int64_t x_stride,
                          int64_t k, float *y, int64_t y_stride, int rows, int tokens)
{
    __m256 sum[TOKENS][ROWS];
    for (int t = 0; t < tokens; t++) {
        for (int r = 0; r < rows; r++) {
            sum[t][r] = _mm256_setzero_ps();
        }
    }
    for (int64_t i = 0; i < k; i += 8) {
        __m256 a[TOKENS];
        for (int t = 0; t < tokens; t++) {
            a[t] = _mm256_loadu_ps(x + t * x_stride + i);
        }
        for (int r = 0; r < rows; r++) {
            __m256 b = _mm256_loadu_ps(w + r * w_stride + i);
            for (int t = 0; t < tokens; t++) {
                sum[t][r] = _mm256_fmadd_ps(a[t], b, sum[t][r]);
            }
        }
    }
    for (int t = 0; t < tokens; t++) {
        for (int r = 0; r < rows; r++) {
            y[t * y_stride + r] = avx2_sum(sum[t][r]);
        }
    }
}

/* All tokens against `rows` rows of W, a constant. */
CPU_AVX2_INLINE void panel(const struct assay_launch *launch, const float *w, int64_t w_stride,
                           int64_t row, int rows)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    const struct assay_operand *x = &launch->operand[0], *y = &launch->operand[2];
    int64_t t = 0;
    for (; t + TOKENS <= shape->tokens; t += TOKENS) {
        tile(w, w_stride, cpu_row(x, t), x->stride, shape->k, cpu_row(y, t) + row, y->stride, rows,
             TOKENS);
    }
    for (; t < shape->tokens; t++) {
        tile(w, w_stride, cpu_row(x, t), x->stride, shape->k, cpu_row(y, t) + row, y->stride, rows,
             1);
    }
}

/* Unpacks rows [row, row + rows) of a quantised W into `buffer` (rows, k). */
CPU_AVX2 static void unpack(const struct assay_operand *weight, int64_t row, int64_t rows,
                            int64_t k, float *buffer)
{
    for (int64_t r = 0; r < rows; r++) {
        const void *stored = cpu_weight_row(weight, row + r);
        if (weight->dtype == ASSAY_Q4_1) {
            unpack_q4_1(stored, k / CPU_BLOCK, buffer + r * k);
        } else {
            unpack_q8_0(stored, k / CPU_BLOCK, buffer + r * k);
        }
    }
}

CPU_AVX2 static int run(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    const struct assay_operand *weight = &launch->operand[1];
    bool quantised = weight->dtype != ASSAY_F32;
    float *buffer = quantised ? (float *)launch->scratch + exec->thread * ROWS * shape->k : NULL;
    int64_t stride = quantised ? shape->k : weight->stride, begin, end;
    assay_share(exec, shape->tokens > 0 ? shape->n : 0, ROWS, &begin, &end);
    for (int64_t row = begin; row < end; row += ROWS) {
        int64_t rows = end - row < ROWS ? end - row : ROWS;
        const float *w = quantised ? buffer : cpu_weight_row(weight, row);
        if (quantised) {
            unpack(weight, row, rows, shape->k, buffer);
        }
        if (rows == ROWS) {
            panel(launch, w, stride, row, ROWS);
            continue;
        }
        for (int64_t r = 0; r < rows; r++) {
            panel(launch, w + r * stride, stride, row + r, 1);
        }
    }
    return 0;
}

static bool supports(const struct assay_device *device, const struct assay_problem *problem,
                     char *why, size_t why_size)
{
    (void)device;
    if (problem->node[0].k % 8 != 0) {
        snprintf(why, why_size, "k = %lld is not a multiple of 8", (long long)problem->node[0].k);
        return false;
    }
    return true;
}

static size_t scratch_size(const struct assay_problem *problem, int32_t threads)
{
    const struct assay_shape *shape = &problem->node[0];
    size_t floats = (size_t)threads * ROWS * (size_t)shape->k;
    return shape->weights == ASSAY_F32 ? 0 : floats * sizeof(float);
}

const struct assay_variant assay_variant_linear_cpu_avx2 = {
    .name = "linear/cpu_avx2",
    .idea = "eight products an instruction; tiles of 4 rows x 3 tokens in registers",
    .improves = "linear/cpu_naive",
    .op = ASSAY_LINEAR,
    .backend = ASSAY_CPU,
    .rung = 1,
    .flags = ASSAY_DEFAULT | ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT,
    .graph = ASSAY_GRAPH_ANY,
    .weights = ASSAY_BIT(ASSAY_F32) | ASSAY_BIT(ASSAY_Q8_0) | ASSAY_BIT(ASSAY_Q4_1),
    .activations = ASSAY_BIT(ASSAY_F32),
    .features = ASSAY_CPU_AVX2,
    .supports = supports,
    .scratch_size = scratch_size,
    .run = run,
};
