/* rms_norm/cpu_naive: two passes over each row, one number at a time. */
#include <math.h>

#include "device/cpu/rows.h"

static int run(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    const float *weight = launch->operand[1].data; /* (n) */
    int64_t begin, end;
    assay_share(exec, shape->tokens, 1, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        const float *x = cpu_row(&launch->operand[0], t); /* (n) */
        float *y = cpu_row(&launch->operand[2], t);       /* (n) */
        float sum = 0;
        for (int64_t i = 0; i < shape->n; i++) {
            sum += x[i] * x[i];
        }
        float scale = 1 / sqrtf(sum / (float)shape->n + shape->epsilon);
        for (int64_t i = 0; i < shape->n; i++) {
            y[i] = x[i] * scale * weight[i];
        }
    }
    return 0;
}

const struct assay_variant assay_variant_rms_norm_cpu_naive = {
    .name = "rms_norm/cpu_naive",
    .idea = "sums the squares of a row, then scales it",
    .op = ASSAY_RMS_NORM,
    .backend = ASSAY_CPU,
    .rung = 0,
    .flags = ASSAY_DEFAULT | ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT | ASSAY_IN_PLACE,
    .graph = ASSAY_GRAPH_ANY,
    .weights = ASSAY_BIT(ASSAY_F32),
    .run = run,
};
