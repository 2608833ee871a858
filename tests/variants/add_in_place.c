/* Clears the output first, which breaks the promise that it may be the first input. */
#include "wrong.h"

static int run_add_in_place(const struct assay_launch *launch, const struct assay_exec *exec)
{
    FOR_ROWS(launch, exec, t)
    {
        float *y = cpu_row(&launch->operand[2], t);
        memset(y, 0, (size_t)launch->problem->node[0].n * sizeof *y);
        for (int64_t i = 0; i < launch->problem->node[0].n; i++)
            y[i] = cpu_row(&launch->operand[0], t)[i] + cpu_row(&launch->operand[1], t)[i];
    }
    return 0;
}

const struct assay_variant assay_wrong_add_in_place = {
    WRONG_FLAGS(ASSAY_ADD, "add_in_place", run_add_in_place, ASSAY_DETERMINISTIC | ASSAY_IN_PLACE)};
