/* Writes one element past the end of the last row. */
#include "wrong.h"

static int run_add_past_end(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    FOR_ROWS(launch, exec, t)
    {
        int64_t n = shape->n + (t == shape->tokens - 1);
        for (int64_t i = 0; i < n; i++)
            cpu_row(&launch->operand[2], t)[i] =
                cpu_row(&launch->operand[0], t)[i] + cpu_row(&launch->operand[1], t)[i];
    }
    return 0;
}

const struct assay_variant assay_wrong_add_past_end = {
    WRONG(ASSAY_ADD, "add_past_end", run_add_past_end)};
