/* Sums from one end in one run and from the other in the next, against `deterministic`; and, in
 * linear_crowd, from an end that depends on the number of rows, against `batch_invariant`. */
#include "wrong.h"

static void multiply_from(const struct assay_launch *launch, const struct assay_exec *exec,
                          bool backwards)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    FOR_ROWS(launch, exec, t)
    {
        const float *x = cpu_row(&launch->operand[0], t);
        for (int64_t row = 0; row < shape->n; row++) {
            const float *w = cpu_weight_row(&launch->operand[1], row);
            float sum = 0;
            for (int64_t i = 0; i < shape->k; i++) {
                int64_t at = backwards ? shape->k - 1 - i : i;
                sum += x[at] * w[at];
            }
            cpu_row(&launch->operand[2], t)[row] = sum;
        }
    }
}

static int run_linear_restless(const struct assay_launch *launch, const struct assay_exec *exec)
{
    static _Atomic unsigned entries;
    unsigned place = atomic_fetch_add(&entries, 1);
    multiply_from(launch, exec, place / (unsigned)exec->threads % 2 == 1);
    return 0;
}

static int run_linear_crowd(const struct assay_launch *launch, const struct assay_exec *exec)
{
    multiply_from(launch, exec, launch->problem->node[0].tokens >= 4);
    return 0;
}

const struct assay_variant assay_wrong_linear_restless = {
    WRONG(ASSAY_LINEAR, "linear_restless", run_linear_restless), .weights = ASSAY_BIT(ASSAY_F32),
    .activations = ASSAY_BIT(ASSAY_F32)};

const struct assay_variant assay_wrong_linear_crowd = {
    WRONG_FLAGS(ASSAY_LINEAR, "linear_crowd", run_linear_crowd,
                ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT),
    .weights = ASSAY_BIT(ASSAY_F32), .activations = ASSAY_BIT(ASSAY_F32)};
