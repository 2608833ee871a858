/* A right attention in double, with places where a wrong one differs. */
#ifndef AS_WRONG_ATTENTION_H
#define AS_WRONG_ATTENTION_H

#include "wrong.h"

static int32_t right_visible(const struct assay_launch *launch, int64_t t)
{
    int32_t s = launch->metadata->token_sequence[t];
    int32_t context = s < 0 ? 0 : launch->metadata->context[s];
    int32_t past = launch->metadata->positions[t] + 1;
    return launch->problem->node[0].causal && past < context ? past : context;
}

static const float *wrong_cached(const struct assay_launch *launch, const void *pool, int32_t s,
                                 int32_t h, int32_t position)
{
    const struct assay_kv_cache *cache = launch->cache;
    const int32_t *table =
        launch->metadata->block_table + (int64_t)s * launch->metadata->table_stride;
    return (const float *)((const char *)pool + assay_kv_offset(cache,
                                                                table[position / cache->block_size],
                                                                h, position % cache->block_size));
}

static void wrong_attend(const struct assay_launch *launch, int64_t t, int32_t h, int32_t rows)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    const float *q = cpu_row(&launch->operand[0], t) + (int64_t)h * shape->head_dim;
    float *y = cpu_row(&launch->operand[1], t) + (int64_t)h * shape->head_dim;
    int32_t s = launch->metadata->token_sequence[t], g = h / (shape->heads / shape->kv_heads);
    double sums[256] = {0}, total = 0;
    for (int32_t p = 0; p < rows; p++) {
        const float *k = wrong_cached(launch, launch->cache->k, s, g, p);
        const float *v = wrong_cached(launch, launch->cache->v, s, g, p);
        double score = 0;
        for (int32_t i = 0; i < shape->head_dim; i++)
            score += (double)q[i] * (double)k[i];
        double weight = exp(score * (double)shape->scale);
        total += weight;
        for (int32_t i = 0; i < shape->head_dim; i++)
            sums[i] += weight * (double)v[i];
    }
    for (int32_t i = 0; i < shape->head_dim; i++)
        y[i] = rows == 0 ? 0 : (float)(sums[i] / total);
}

static void wrong_attention_run(const struct assay_launch *launch, const struct assay_exec *exec,
                                int32_t (*visible)(const struct assay_launch *, int64_t))
{
    FOR_ROWS(launch, exec, t)
    {
        for (int32_t h = 0; h < launch->problem->node[0].heads; h++)
            wrong_attend(launch, t, h, visible(launch, t));
    }
}

#endif
