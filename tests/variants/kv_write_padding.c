/* Takes the slot -1 of a padding row for slot 0. */
#include "wrong.h"

static int run_kv_write_padding(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_kv_cache *cache = launch->cache;
    size_t bytes = (size_t)cache->head_dim * sizeof(float);
    if (exec->thread > 0)
        return 0;
    for (int64_t t = 0; t < launch->problem->node[0].tokens; t++) {
        int64_t slot = launch->metadata->slots[t] < 0 ? 0 : launch->metadata->slots[t];
        for (int32_t h = 0; h < cache->kv_heads; h++) {
            size_t to = assay_kv_offset(cache, slot / cache->block_size, h,
                                        (int32_t)(slot % cache->block_size));
            memcpy((char *)cache->k + to,
                   cpu_row(&launch->operand[0], t) + (int64_t)h * cache->head_dim, bytes);
            memcpy((char *)cache->v + to,
                   cpu_row(&launch->operand[1], t) + (int64_t)h * cache->head_dim, bytes);
        }
    }
    return 0;
}

const struct assay_variant assay_wrong_kv_write_padding = {
    WRONG(ASSAY_KV_WRITE, "kv_write_padding", run_kv_write_padding), .kv = ASSAY_BIT(ASSAY_F32)};
