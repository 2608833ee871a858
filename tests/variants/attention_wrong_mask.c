/* Lets every query see the whole context, and in attention_short_mask one row too few. */
#include "attention.h"

static int32_t visible_no_mask(const struct assay_launch *launch, int64_t t)
{
    int32_t s = launch->metadata->token_sequence[t];
    return s < 0 ? 0 : launch->metadata->context[s];
}

static int32_t visible_short_mask(const struct assay_launch *launch, int64_t t)
{
    int32_t rows = right_visible(launch, t);
    return rows > 1 ? rows - 1 : rows;
}

static int run_no_mask(const struct assay_launch *launch, const struct assay_exec *exec)
{
    wrong_attention_run(launch, exec, visible_no_mask);
    return 0;
}

static int run_short_mask(const struct assay_launch *launch, const struct assay_exec *exec)
{
    wrong_attention_run(launch, exec, visible_short_mask);
    return 0;
}

const struct assay_variant assay_wrong_attention_no_mask = {
    WRONG(ASSAY_ATTENTION, "attention_no_mask", run_no_mask), .kv = ASSAY_BIT(ASSAY_F32)};

const struct assay_variant assay_wrong_attention_short_mask = {
    WRONG(ASSAY_ATTENTION, "attention_short_mask", run_short_mask), .kv = ASSAY_BIT(ASSAY_F32)};
