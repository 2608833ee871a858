/* Sums one product too few. */
#include "wrong.h"

static int run_linear_depth(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    FOR_ROWS(launch, exec, t)
    {
        const float *x = cpu_row(&launch->operand[0], t);
        for (int64_t row = 0; row < shape->n; row++) {
            const float *w = cpu_weight_row(&launch->operand[1], row);
            double sum = 0;
            for (int64_t i = 0; i < shape->k - 1; i++)
                sum += (double)x[i] * (double)w[i];
            cpu_row(&launch->operand[2], t)[row] = (float)sum;
        }
    }
    return 0;
}

const struct assay_variant assay_wrong_linear_depth = {
    WRONG(ASSAY_LINEAR, "linear_depth", run_linear_depth), .weights = ASSAY_BIT(ASSAY_F32),
    .activations = ASSAY_BIT(ASSAY_F32)};
