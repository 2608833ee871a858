/* attention/cpu_avx2: the three passes of the naive rung, eight numbers an instruction. Query
 * rows and heads are dealt out in turn, since later rows of a prompt see more. */
#include <math.h>
#include <stdio.h>

#include "device/cpu/avx2.h"
#include "device/cpu/paged.h"
#include "device/cpu/rows.h"

/* q . k (head_dim, whole vectors), in two sums. */
CPU_AVX2_INLINE float dot(const float *q, const float *k, int32_t head_dim)
{
    __m256 sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int32_t i = 0; i < head_dim; i += 8) {
        __m256 *to = &sum[i / 8 % 2];
        *to = _mm256_fmadd_ps(_mm256_loadu_ps(q + i), _mm256_loadu_ps(k + i), *to);
    }
    return avx2_sum(_mm256_add_ps(sum[0], sum[1]));
}

/* scores (rows) become exp(score - largest); returns their sum. */
CPU_AVX2 static float exponentials(float *scores, int32_t rows, float largest)
{
    __m256 sum = _mm256_setzero_ps();
    for (int32_t p = 0; p < rows; p += 8) {
        __m256 e =
            avx2_exp(_mm256_sub_ps(avx2_load(scores + p, rows - p), _mm256_set1_ps(largest)));
        if (rows - p < 8) {
            e = _mm256_and_ps(e, _mm256_castsi256_ps(avx2_mask(rows - p)));
        }
        avx2_store(scores + p, rows - p, e);
        sum = _mm256_add_ps(sum, e);
    }
    return avx2_sum(sum);
}

/* q, y (head_dim), scores (rows). */
CPU_AVX2 static void attend(const struct assay_launch *launch, int32_t s, int32_t h, int32_t rows,
                            const float *q, float *scores, float *y)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    float largest = -INFINITY;
    for (int32_t p = 0; p < rows; p++) {
        const float *k = cpu_cached(launch, launch->cache->k, s, h, p);
        scores[p] = dot(q, k, shape->head_dim) * shape->scale;
        largest = fmaxf(largest, scores[p]);
    }
    float sum = exponentials(scores, rows, largest);
    memset(y, 0, (size_t)shape->head_dim * sizeof *y);
    for (int32_t p = 0; p < rows; p++) {
        const float *v = cpu_cached(launch, launch->cache->v, s, h, p);
        __m256 weight = _mm256_set1_ps(scores[p] / sum);
        for (int32_t i = 0; i < shape->head_dim; i += 8) {
            _mm256_storeu_ps(
                y + i, _mm256_fmadd_ps(weight, _mm256_loadu_ps(v + i), _mm256_loadu_ps(y + i)));
        }
    }
}

static int run(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    int32_t group = shape->heads / shape->kv_heads; /* query heads that share a kv head */
    float *scores = (float *)launch->scratch + exec->thread * shape->context;
    for (int64_t item = exec->thread; item < shape->tokens * shape->heads; item += exec->threads) {
        int64_t t = item / shape->heads;
        int32_t h = (int32_t)(item % shape->heads);
        const float *q = cpu_row(&launch->operand[0], t) + (int64_t)h * shape->head_dim;
        float *y = cpu_row(&launch->operand[1], t) + (int64_t)h * shape->head_dim;
        attend(launch, launch->metadata->token_sequence[t], h / group, cpu_visible(launch, t), q,
               scores, y);
    }
    return 0;
}

static bool supports(const struct assay_device *device, const struct assay_problem *problem,
                     char *why, size_t why_size)
{
    (void)device;
    if (problem->node[0].head_dim % 8 != 0) {
        snprintf(why, why_size, "head_dim = %d is not a multiple of 8", problem->node[0].head_dim);
        return false;
    }
    return true;
}

static size_t scratch_size(const struct assay_problem *problem, int32_t threads)
{
    return (size_t)threads * (size_t)problem->node[0].context * sizeof(float); /* scores */
}

const struct assay_variant assay_variant_attention_cpu_avx2 = {
    .name = "attention/cpu_avx2",
    .idea = "the three passes with eight numbers an instruction",
    .improves = "attention/cpu_naive",
    .op = ASSAY_ATTENTION,
    .backend = ASSAY_CPU,
    .rung = 1,
    .flags = ASSAY_DEFAULT | ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT,
    .graph = ASSAY_GRAPH_ANY,
    .kv = ASSAY_BIT(ASSAY_F32),
    .features = ASSAY_CPU_AVX2,
    .supports = supports,
    .scratch_size = scratch_size,
    .run = run,
};
