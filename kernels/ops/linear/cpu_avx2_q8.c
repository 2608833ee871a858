/* linear/cpu_avx2_q8: integer products on the stored blocks.
 *
 * The inputs are rounded to int8 (class Q8), so 32 products of a block are one vpmaddubsw, one
 * vpmaddwd and one conversion, and W is read as it lies in the file: a quarter to an eighth of
 * the bytes and instructions of the float rung. A row of W meets four tokens at a time, so that
 * nibbles are taken apart once. Each output has one accumulator of eight lanes in every tile. */
#include "device/cpu/avx2.h"
#include "device/cpu/quantize_rows.h"

#define TOKENS 4

/* Sums of four products in each 32-bit lane: u (32 bytes, unsigned) times s (32 bytes, signed).
 * vpmaddubsw saturates at 32767; two products of 15 * 127 or of 128 * 127 stay below. */
CPU_AVX2_INLINE __m256 products(__m256i u, __m256i s)
{
    __m256i pairs = _mm256_maddubs_epi16(u, s);
    return _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

CPU_AVX2_INLINE __m256i quants_of(const struct cpu_q8_rows *x, int64_t k, int64_t t, int64_t b)
{
    return _mm256_loadu_si256((const __m256i *)(x->quants + t * k + b * CPU_BLOCK));
}

/* One row of W in Q4_1 against tokens t .. t + tokens - 1 (a constant): y[i * y_stride].
 * sum (q d + m) x = d sum q x + m sum x. */
CPU_AVX2_INLINE void row_q4_1(const uint8_t *block, const struct cpu_q8_rows *x, int64_t t,
                              int64_t k, float *y, int64_t y_stride, int tokens)
{
    __m256 sum[TOKENS];
    float minima[TOKENS];
    for (int i = 0; i < tokens; i++) {
        sum[i] = _mm256_setzero_ps();
        minima[i] = 0;
    }
    int64_t blocks = k / CPU_BLOCK;
    for (int64_t b = 0; b < blocks; b++, block += 20) {
        float d = avx2_f16(block), m = avx2_f16(block + 2);
        __m128i bytes = _mm_loadu_si128((const __m128i *)(block + 4));
        __m256i q = _mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes);
        q = _mm256_and_si256(q, _mm256_set1_epi8(15));
        for (int i = 0; i < tokens; i++) {
            int64_t at = (t + i) * blocks + b;
            __m256 scale = _mm256_set1_ps(d * x->scales[at]);
            sum[i] = _mm256_fmadd_ps(scale, products(q, quants_of(x, k, t + i, b)), sum[i]);
            minima[i] += m * x->sums[at];
        }
    }
    for (int i = 0; i < tokens; i++) {
        y[i * y_stride] = avx2_sum(sum[i]) + minima[i];
    }
}

/* As row_q4_1 for Q8_0. Both factors are signed: the sign of w moves over to x. */
CPU_AVX2_INLINE void row_q8_0(const uint8_t *block, const struct cpu_q8_rows *x, int64_t t,
                              int64_t k, float *y, int64_t y_stride, int tokens)
{
    __m256 sum[TOKENS];
    for (int i = 0; i < tokens; i++) {
        sum[i] = _mm256_setzero_ps();
    }
    int64_t blocks = k / CPU_BLOCK;
    for (int64_t b = 0; b < blocks; b++, block += 34) {
        float d = avx2_f16(block);
        __m256i q = _mm256_loadu_si256((const __m256i *)(block + 2));
        __m256i magnitude = _mm256_abs_epi8(q);
        for (int i = 0; i < tokens; i++) {
            __m256 scale = _mm256_set1_ps(d * x->scales[(t + i) * blocks + b]);
            __m256i turned = _mm256_sign_epi8(quants_of(x, k, t + i, b), q);
            sum[i] = _mm256_fmadd_ps(scale, products(magnitude, turned), sum[i]);
        }
    }
    for (int i = 0; i < tokens; i++) {
        y[i * y_stride] = avx2_sum(sum[i]);
    }
}

CPU_AVX2 static int run(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    const struct assay_operand *weight = &launch->operand[1], *y = &launch->operand[2];
    int64_t k = shape->k, row, end;
    struct cpu_q8_rows x =
        cpu_quantize_rows(&launch->operand[0], shape->tokens, k, launch->scratch, exec);
    assay_share(exec, shape->tokens > 0 ? shape->n : 0, 1, &row, &end);
    for (; row < end; row++) {
        const uint8_t *w = cpu_weight_row(weight, row);
        bool q4_1 = weight->dtype == ASSAY_Q4_1;
        int64_t t = 0;
        for (; t + TOKENS <= shape->tokens; t += TOKENS) {
            float *to = cpu_row(y, t) + row;
            if (q4_1) {
                row_q4_1(w, &x, t, k, to, y->stride, TOKENS);
            } else {
                row_q8_0(w, &x, t, k, to, y->stride, TOKENS);
            }
        }
        for (; t < shape->tokens; t++) {
            float *to = cpu_row(y, t) + row;
            if (q4_1) {
                row_q4_1(w, &x, t, k, to, y->stride, 1);
            } else {
                row_q8_0(w, &x, t, k, to, y->stride, 1);
            }
        }
    }
    return 0;
}

static size_t scratch_size(const struct assay_problem *problem, int32_t threads)
{
    return cpu_quantize_rows_size(problem->node[0].tokens, problem->node[0].k, threads);
}

const struct assay_variant assay_variant_linear_cpu_avx2_q8 = {
    .name = "linear/cpu_avx2_q8",
    .idea = "int8 products straight on the stored blocks",
    .improves = "linear/cpu_naive_q8",
    .op = ASSAY_LINEAR,
    .backend = ASSAY_CPU,
    .rung = 1,
    .flags = ASSAY_DEFAULT | ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT,
    .graph = ASSAY_GRAPH_ANY,
    .weights = ASSAY_BIT(ASSAY_Q8_0) | ASSAY_BIT(ASSAY_Q4_1),
    .activations = ASSAY_BIT(ASSAY_Q8),
    .features = ASSAY_CPU_AVX2,
    .scratch_size = scratch_size,
    .run = run,
};
