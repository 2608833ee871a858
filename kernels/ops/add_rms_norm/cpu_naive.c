/* add_rms_norm/cpu_naive: the sum of a row, then its norm, in one launch. */
#include <math.h>

#include "device/cpu/rows.h"
#include "ops/add_rms_norm/cover.h"

const struct assay_cover assay_cover_add_rms_norm = {
    .name = "add_rms_norm",
    .nodes = 2,
    .externals = 2,
    .outputs = 2,
    .node = {{.op = ASSAY_ADD, .input = {ASSAY_EXTERNAL(0), ASSAY_EXTERNAL(1)}},
             {.op = ASSAY_RMS_NORM, .input = {0}}},
    .output = {0, 1},
};

static int run(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[1];
    const float *weight = launch->operand[2].data; /* (n) */
    int64_t begin, end;
    assay_share(exec, shape->tokens, 1, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        const float *a = cpu_row(&launch->operand[0], t); /* (n) */
        const float *b = cpu_row(&launch->operand[1], t); /* (n) */
        float *sum = cpu_row(&launch->operand[3], t);     /* (n) */
        float *y = cpu_row(&launch->operand[4], t);       /* (n) */
        float squares = 0;
        for (int64_t i = 0; i < shape->n; i++) {
            sum[i] = a[i] + b[i];
            squares += sum[i] * sum[i];
        }
        float scale = 1 / sqrtf(squares / (float)shape->n + shape->epsilon);
        for (int64_t i = 0; i < shape->n; i++) {
            y[i] = sum[i] * scale * weight[i];
        }
    }
    return 0;
}

const struct assay_variant assay_variant_add_rms_norm_cpu_naive = {
    .name = "add_rms_norm/cpu_naive",
    .idea = "adds and squares in one pass, then scales: the sum is read once less",
    .cover = &assay_cover_add_rms_norm,
    .op = ASSAY_ADD,
    .backend = ASSAY_CPU,
    .rung = 0,
    .flags = ASSAY_DEFAULT | ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT | ASSAY_IN_PLACE,
    .graph = ASSAY_GRAPH_ANY,
    .weights = ASSAY_BIT(ASSAY_F32),
    .run = run,
};
