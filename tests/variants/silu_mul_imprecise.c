/* Every output within its tolerance, and yet all of them a little too large. */
#include "wrong.h"

static int run_silu_mul_imprecise(const struct assay_launch *launch, const struct assay_exec *exec)
{
    FOR_ROWS(launch, exec, t)
    {
        const float *gate = cpu_row(&launch->operand[0], t), *up = cpu_row(&launch->operand[1], t);
        for (int64_t i = 0; i < launch->problem->node[0].n; i++) {
            double g = (double)gate[i];
            cpu_row(&launch->operand[2], t)[i] =
                (float)(g / (1 + exp(-g)) * (double)up[i] * (1 + 8e-7));
        }
    }
    return 0;
}

const struct assay_variant assay_wrong_silu_mul_imprecise = {
    WRONG(ASSAY_SILU_MUL, "silu_mul_imprecise", run_silu_mul_imprecise)};
