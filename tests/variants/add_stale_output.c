/* Adds to what the output held before, as a kernel does that takes zeroed memory for granted. */
#include "wrong.h"

static int run_add_stale_output(const struct assay_launch *launch, const struct assay_exec *exec)
{
    FOR_ROWS(launch, exec, t)
    {
        for (int64_t i = 0; i < launch->problem->node[0].n; i++)
            cpu_row(&launch->operand[2], t)[i] +=
                cpu_row(&launch->operand[0], t)[i] + cpu_row(&launch->operand[1], t)[i];
    }
    return 0;
}

const struct assay_variant assay_wrong_add_stale_output = {
    WRONG(ASSAY_ADD, "add_stale_output", run_add_stale_output)};
