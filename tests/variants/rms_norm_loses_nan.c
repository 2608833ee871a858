/* Leaves NaN out of the sum, so that a broken row looks like a healthy one with a hole. */
#include "wrong.h"

static int run_rms_norm_loses_nan(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    const float *weight = launch->operand[1].data;
    FOR_ROWS(launch, exec, t)
    {
        const float *x = cpu_row(&launch->operand[0], t);
        double squares = 0;
        for (int64_t i = 0; i < shape->n; i++)
            squares += isnan(x[i]) ? 0 : (double)x[i] * (double)x[i];
        float scale = (float)(1 / sqrt(squares / (double)shape->n + (double)shape->epsilon));
        for (int64_t i = 0; i < shape->n; i++)
            cpu_row(&launch->operand[2], t)[i] = x[i] * scale * weight[i];
    }
    return 0;
}

const struct assay_variant assay_wrong_rms_norm_loses_nan = {
    WRONG(ASSAY_RMS_NORM, "rms_norm_loses_nan", run_rms_norm_loses_nan),
    .weights = ASSAY_BIT(ASSAY_F32)};
