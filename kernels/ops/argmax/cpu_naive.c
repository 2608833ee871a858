/* argmax/cpu_naive: one scan of each row. */
#include <math.h>

#include "device/cpu/rows.h"

static struct assay_top scan(const float *logits, int64_t n)
{
    struct assay_top top = {.id = -1, .logit = -INFINITY};
    float second = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        float logit = logits[i];
        top.projection += assay_sign(i) * logit;
        top.nonfinite += !isfinite(logit);
        if (isnan(logit)) {
            continue;
        }
        if (top.id < 0 || logit > top.logit) {
            second = top.id < 0 ? second : top.logit;
            top.logit = logit;
            top.id = (int32_t)i;
        } else if (logit > second) {
            second = logit;
        }
    }
    /* Without a second number nothing could have won instead. */
    top.margin = second == -INFINITY ? INFINITY : top.logit - second;
    return top;
}

static int run(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    struct assay_top *top = launch->operand[1].data; /* (rows) */
    int64_t begin, end;
    assay_share(exec, shape->tokens, 1, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        top[row] = scan(cpu_row(&launch->operand[0], row), shape->n);
    }
    return 0;
}

const struct assay_variant assay_variant_argmax_cpu_naive = {
    .name = "argmax/cpu_naive",
    .idea = "one scan of each row",
    .op = ASSAY_ARGMAX,
    .backend = ASSAY_CPU,
    .rung = 0,
    .flags = ASSAY_DEFAULT | ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT,
    .graph = ASSAY_GRAPH_ANY,
    .run = run,
};
