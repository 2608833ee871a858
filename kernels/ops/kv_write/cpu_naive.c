/* kv_write/cpu_naive: copies each head's row of k and v to its slot. */
#include <string.h>

#include "device/cpu/rows.h"

static int run(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    const struct assay_kv_cache *cache = launch->cache;
    size_t bytes = (size_t)cache->head_dim * sizeof(float);
    int64_t begin, end;
    assay_share(exec, shape->tokens, 1, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        int64_t slot = launch->metadata->slots[t];
        if (slot < 0) {
            continue;
        }
        const float *k = cpu_row(&launch->operand[0], t); /* (kv_heads, head_dim) */
        const float *v = cpu_row(&launch->operand[1], t); /* (kv_heads, head_dim) */
        for (int32_t h = 0; h < cache->kv_heads; h++) {
            size_t to = assay_kv_offset(cache, slot / cache->block_size, h,
                                        (int32_t)(slot % cache->block_size));
            memcpy((char *)cache->k + to, k + (int64_t)h * cache->head_dim, bytes);
            memcpy((char *)cache->v + to, v + (int64_t)h * cache->head_dim, bytes);
        }
    }
    return 0;
}

const struct assay_variant assay_variant_kv_write_cpu_naive = {
    .name = "kv_write/cpu_naive",
    .idea = "copies each head's row to its slot",
    .op = ASSAY_KV_WRITE,
    .backend = ASSAY_CPU,
    .rung = 0,
    .flags = ASSAY_DEFAULT | ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT,
    .graph = ASSAY_GRAPH_ANY,
    .kv = ASSAY_BIT(ASSAY_F32),
    .run = run,
};
