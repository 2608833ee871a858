/* Does not write the last row of several. */
#include "wrong.h"

static void norm_row(const struct assay_launch *launch, int64_t t, int64_t n)
{
    const float *x = cpu_row(&launch->operand[0], t), *weight = launch->operand[1].data;
    double squares = 0;
    for (int64_t i = 0; i < n; i++)
        squares += (double)x[i] * (double)x[i];
    float scale = (float)(1 / sqrt(squares / (double)n + (double)launch->problem->node[0].epsilon));
    for (int64_t i = 0; i < n; i++)
        cpu_row(&launch->operand[2], t)[i] = x[i] * scale * weight[i];
}

static int run_rms_norm_skips_row(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    FOR_ROWS(launch, exec, t)
    {
        if (t == 0 || t < shape->tokens - 1)
            norm_row(launch, t, shape->n);
    }
    return 0;
}

const struct assay_variant assay_wrong_rms_norm_skips_row = {
    WRONG(ASSAY_RMS_NORM, "rms_norm_skips_row", run_rms_norm_skips_row),
    .weights = ASSAY_BIT(ASSAY_F32)};
