/* attention/cpu_naive: for each query row and head three passes over the rows it may see:
 * scores, softmax, weighted sum. */
#include <math.h>
#include <string.h>

#include "device/cpu/paged.h"
#include "device/cpu/rows.h"

/* q, y (head_dim), scores (rows). */
static void attend(const struct assay_launch *launch, int32_t s, int32_t h, int32_t rows,
                   const float *q, float *scores, float *y)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    float largest = -INFINITY, sum = 0;
    for (int32_t p = 0; p < rows; p++) {
        const float *k = cpu_cached(launch, launch->cache->k, s, h, p);
        float score = 0;
        for (int32_t i = 0; i < shape->head_dim; i++) {
            score += q[i] * k[i];
        }
        scores[p] = score * shape->scale;
        largest = fmaxf(largest, scores[p]);
    }
    for (int32_t p = 0; p < rows; p++) {
        scores[p] = expf(scores[p] - largest);
        sum += scores[p];
    }
    memset(y, 0, (size_t)shape->head_dim * sizeof *y);
    for (int32_t p = 0; p < rows; p++) {
        const float *v = cpu_cached(launch, launch->cache->v, s, h, p);
        float weight = scores[p] / sum;
        for (int32_t i = 0; i < shape->head_dim; i++) {
            y[i] += weight * v[i];
        }
    }
}

static size_t scratch_size(const struct assay_problem *problem, int32_t threads)
{
    return (size_t)threads * (size_t)problem->node[0].context * sizeof(float); /* scores */
}

static int run(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    int32_t group = shape->heads / shape->kv_heads; /* query heads that share a kv head */
    float *scores = (float *)launch->scratch + exec->thread * shape->context;
    int64_t begin, end;
    assay_share(exec, shape->tokens * shape->heads, 1, &begin, &end);
    for (int64_t item = begin; item < end; item++) {
        int64_t t = item / shape->heads;
        int32_t h = (int32_t)(item % shape->heads);
        const float *q = cpu_row(&launch->operand[0], t) + (int64_t)h * shape->head_dim;
        float *y = cpu_row(&launch->operand[1], t) + (int64_t)h * shape->head_dim;
        int32_t rows = cpu_visible(launch, t);
        attend(launch, launch->metadata->token_sequence[t], h / group, rows, q, scores, y);
    }
    return 0;
}

const struct assay_variant assay_variant_attention_cpu_naive = {
    .name = "attention/cpu_naive",
    .idea = "scores, softmax and weighted sum in three passes for each query and head",
    .op = ASSAY_ATTENTION,
    .backend = ASSAY_CPU,
    .rung = 0,
    .flags = ASSAY_DEFAULT | ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT,
    .graph = ASSAY_GRAPH_ANY,
    .kv = ASSAY_BIT(ASSAY_F32),
    .scratch_size = scratch_size,
    .run = run,
};
