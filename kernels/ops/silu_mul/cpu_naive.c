/* silu_mul/cpu_naive: one number at a time with the library's exponential. */
#include <math.h>

#include "device/cpu/rows.h"

static int run(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    int64_t begin, end;
    assay_share(exec, shape->tokens, 1, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        const float *gate = cpu_row(&launch->operand[0], t); /* (n) */
        const float *up = cpu_row(&launch->operand[1], t);   /* (n) */
        float *y = cpu_row(&launch->operand[2], t);          /* (n) */
        for (int64_t i = 0; i < shape->n; i++) {
            y[i] = gate[i] / (1 + expf(-gate[i])) * up[i];
        }
    }
    return 0;
}

const struct assay_variant assay_variant_silu_mul_cpu_naive = {
    .name = "silu_mul/cpu_naive",
    .idea = "one number at a time with expf",
    .op = ASSAY_SILU_MUL,
    .backend = ASSAY_CPU,
    .rung = 0,
    .flags = ASSAY_DEFAULT | ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT | ASSAY_IN_PLACE,
    .graph = ASSAY_GRAPH_ANY,
    .run = run,
};
