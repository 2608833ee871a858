/* Works on pairs of output columns and forgets the one that is left over. */
#include "wrong.h"

static float tail_dot(const float *x, const float *w, int64_t k)
{
    double sum = 0;
    for (int64_t i = 0; i < k; i++)
        sum += (double)x[i] * (double)w[i];
    return (float)sum;
}

static int run_linear_tail(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    const struct assay_operand *weight = &launch->operand[1];
    FOR_ROWS(launch, exec, t)
    {
        const float *x = cpu_row(&launch->operand[0], t);
        float *y = cpu_row(&launch->operand[2], t);
        if (shape->n == 1)
            y[0] = tail_dot(x, cpu_weight_row(weight, 0), shape->k);
        for (int64_t row = 0; row + 2 <= shape->n; row += 2) {
            y[row] = tail_dot(x, cpu_weight_row(weight, row), shape->k);
            y[row + 1] = tail_dot(x, cpu_weight_row(weight, row + 1), shape->k);
        }
    }
    return 0;
}

const struct assay_variant assay_wrong_linear_tail = {
    WRONG(ASSAY_LINEAR, "linear_tail", run_linear_tail), .weights = ASSAY_BIT(ASSAY_F32),
    .activations = ASSAY_BIT(ASSAY_F32)};
