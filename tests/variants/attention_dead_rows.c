/* Reads rows of the cache that nobody wrote: to the end of the last block; and in
 * attention_dead_entry the block behind it, whose product it then ignores. */
#include "attention.h"

static int32_t visible_whole_blocks(const struct assay_launch *launch, int64_t t)
{
    int32_t rows = right_visible(launch, t), block = launch->cache->block_size;
    return (rows + block - 1) / block * block;
}

static int run_dead_rows(const struct assay_launch *launch, const struct assay_exec *exec)
{
    wrong_attention_run(launch, exec, visible_whole_blocks);
    return 0;
}

static int run_dead_entry(const struct assay_launch *launch, const struct assay_exec *exec)
{
    FOR_ROWS(launch, exec, t)
    {
        int32_t s = launch->metadata->token_sequence[t];
        int32_t behind = visible_whole_blocks(launch, t);
        for (int32_t h = 0; h < launch->problem->node[0].heads; h++)
            wrong_attend(launch, t, h, right_visible(launch, t));
        if (s < 0 || behind / launch->cache->block_size >= launch->metadata->table_stride)
            continue;
        volatile float ahead = *wrong_cached(launch, launch->cache->k, s, 0, behind);
        (void)ahead;
    }
    return 0;
}

const struct assay_variant assay_wrong_attention_dead_rows = {
    WRONG(ASSAY_ATTENTION, "attention_dead_rows", run_dead_rows), .kv = ASSAY_BIT(ASSAY_F32)};

const struct assay_variant assay_wrong_attention_dead_entry = {
    WRONG(ASSAY_ATTENTION, "attention_dead_entry", run_dead_entry), .kv = ASSAY_BIT(ASSAY_F32)};
