/* Adds into its input a and copies from there. */
#include "wrong.h"

static int run_add_into_input(const struct assay_launch *launch, const struct assay_exec *exec)
{
    FOR_ROWS(launch, exec, t)
    {
        float *a = cpu_row(&launch->operand[0], t);
        for (int64_t i = 0; i < launch->problem->node[0].n; i++) {
            a[i] += cpu_row(&launch->operand[1], t)[i];
            cpu_row(&launch->operand[2], t)[i] = a[i];
        }
    }
    return 0;
}

const struct assay_variant assay_wrong_add_into_input = {
    WRONG(ASSAY_ADD, "add_into_input", run_add_into_input)};
