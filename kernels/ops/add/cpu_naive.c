/* add/cpu_naive: one sum at a time. */
#include "device/cpu/rows.h"

static int run(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    int64_t begin, end;
    assay_share(exec, shape->tokens, 1, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        const float *a = cpu_row(&launch->operand[0], t); /* (n) */
        const float *b = cpu_row(&launch->operand[1], t); /* (n) */
        float *y = cpu_row(&launch->operand[2], t);       /* (n) */
        for (int64_t i = 0; i < shape->n; i++) {
            y[i] = a[i] + b[i];
        }
    }
    return 0;
}

const struct assay_variant assay_variant_add_cpu_naive = {
    .name = "add/cpu_naive",
    .idea = "one sum at a time, tokens shared out to the threads",
    .op = ASSAY_ADD,
    .backend = ASSAY_CPU,
    .rung = 0,
    .flags = ASSAY_DEFAULT | ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT | ASSAY_IN_PLACE,
    .graph = ASSAY_GRAPH_ANY,
    .run = run,
};
