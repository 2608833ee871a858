/* Reading the paged cache: which rows a query sees, and where they lie. */
#ifndef CPU_PAGED_H
#define CPU_PAGED_H

#include "kernel.h"

/* How many rows of the cache query row `t` sees: 0 for padding. */
static inline int32_t cpu_visible(const struct assay_launch *launch, int64_t t)
{
    const struct assay_metadata *metadata = launch->metadata;
    int32_t s = metadata->token_sequence[t];
    int32_t context = s < 0 ? 0 : metadata->context[s];
    int32_t causal = metadata->positions[t] + 1;
    return launch->problem->node[0].causal && causal < context ? causal : context;
}

/* Row `position` of sequence `s`, kv head `h`, of a float32 pool (cache->k or cache->v):
 * (head_dim). */
static inline const float *cpu_cached(const struct assay_launch *launch, const void *pool,
                                      int32_t s, int32_t h, int32_t position)
{
    const struct assay_kv_cache *cache = launch->cache;
    const int32_t *table =
        launch->metadata->block_table + (int64_t)s * launch->metadata->table_stride;
    size_t offset = assay_kv_offset(cache, table[position / cache->block_size], h,
                                    position % cache->block_size);
    return (const float *)((const char *)pool + offset);
}

/* Rows [position, position + count) of k and v at once: one division instead of four a row. */
static inline void cpu_cached_rows(const struct assay_launch *launch, int32_t s, int32_t h,
                                   int32_t position, int32_t count, const float **k,
                                   const float **v)
{
    const struct assay_kv_cache *cache = launch->cache;
    const int32_t *table =
        launch->metadata->block_table + (int64_t)s * launch->metadata->table_stride;
    int32_t block = position / cache->block_size, offset = position % cache->block_size;
    for (int32_t i = 0; i < count; i++) {
        size_t at = assay_kv_offset(cache, table[block], h, offset);
        k[i] = (const float *)((const char *)cache->k + at);
        v[i] = (const float *)((const char *)cache->v + at);
        if (++offset == cache->block_size) {
            offset = 0;
            block++;
        }
    }
}

#endif
