/* linear/cpu_naive: every output is one dot product, one number at a time.
 *
 * A row of the weight is dequantised once and then meets every token, so that a prompt costs the
 * products and not the dequantising. */
#include "device/cpu/rows.h"

static size_t scratch_size(const struct assay_problem *problem, int32_t threads)
{
    return (size_t)threads * (size_t)problem->node[0].k * sizeof(float); /* a row of W each */
}

static int run(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    const struct assay_operand *x = &launch->operand[0];      /* (tokens, k) */
    const struct assay_operand *weight = &launch->operand[1]; /* (n, k) */
    const struct assay_operand *y = &launch->operand[2];      /* (tokens, n) */
    float *w = (float *)launch->scratch + exec->thread * shape->k;
    int64_t begin, end;
    assay_share(exec, shape->tokens > 0 ? shape->n : 0, 1, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        cpu_dequantize(weight->dtype, cpu_weight_row(weight, row), shape->k, w);
        for (int64_t t = 0; t < shape->tokens; t++) {
            cpu_row(y, t)[row] = cpu_dot(cpu_row(x, t), w, shape->k);
        }
    }
    return 0;
}

const struct assay_variant assay_variant_linear_cpu_naive = {
    .name = "linear/cpu_naive",
    .idea = "one dot product per output over the dequantised row",
    .op = ASSAY_LINEAR,
    .backend = ASSAY_CPU,
    .rung = 0,
    .flags = ASSAY_DEFAULT | ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT,
    .graph = ASSAY_GRAPH_ANY,
    .weights = ASSAY_BIT(ASSAY_F32) | ASSAY_BIT(ASSAY_Q8_0) | ASSAY_BIT(ASSAY_Q4_1),
    .activations = ASSAY_BIT(ASSAY_F32),
    .scratch_size = scratch_size,
    .run = run,
};
