/* A barrier that thread 0 alone reaches. */
#include "wrong.h"

static int run_add_deadlock(const struct assay_launch *launch, const struct assay_exec *exec)
{
    if (exec->threads > 1 && exec->thread == 0)
        exec->barrier(exec);
    FOR_ROWS(launch, exec, t)
    {
        for (int64_t i = 0; i < launch->problem->node[0].n; i++)
            cpu_row(&launch->operand[2], t)[i] =
                cpu_row(&launch->operand[0], t)[i] + cpu_row(&launch->operand[1], t)[i];
    }
    return 0;
}

const struct assay_variant assay_wrong_add_deadlock = {
    WRONG(ASSAY_ADD, "add_deadlock", run_add_deadlock)};
