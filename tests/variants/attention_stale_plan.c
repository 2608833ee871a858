/* Notes lengths in its plan and has no refresh. */
#include "attention.h"

static size_t plan_size_stale(const struct assay_problem *problem)
{
    return (size_t)problem->node[0].tokens * sizeof(int32_t);
}

static int plan_stale(struct assay_launch *launch, struct as_error *error)
{
    int32_t *rows = launch->plan;
    (void)error;
    for (int64_t t = 0; t < launch->problem->node[0].tokens; t++)
        rows[t] = right_visible(launch, t);
    return 0;
}

static int32_t visible_stale(const struct assay_launch *launch, int64_t t)
{
    return ((const int32_t *)launch->plan)[t];
}

static int run_stale_plan(const struct assay_launch *launch, const struct assay_exec *exec)
{
    wrong_attention_run(launch, exec, visible_stale);
    return 0;
}

const struct assay_variant assay_wrong_attention_stale_plan = {
    WRONG(ASSAY_ATTENTION, "attention_stale_plan", run_stale_plan), .kv = ASSAY_BIT(ASSAY_F32),
    .plan_size = plan_size_stale, .plan = plan_stale};
