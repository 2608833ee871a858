/* Rounds rows up to eight elements, as if nothing lay between them. */
#include "wrong.h"

static int run_add_between_rows(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    bool gaps = launch->operand[2].stride > shape->n;
    FOR_ROWS(launch, exec, t)
    {
        bool last = t == shape->tokens - 1;
        int64_t n = gaps && !last ? (shape->n + 3) / 4 * 4 : shape->n;
        for (int64_t i = 0; i < n; i++)
            cpu_row(&launch->operand[2], t)[i] =
                i < shape->n
                    ? cpu_row(&launch->operand[0], t)[i] + cpu_row(&launch->operand[1], t)[i]
                    : 0;
    }
    return 0;
}

const struct assay_variant assay_wrong_add_between_rows = {
    WRONG(ASSAY_ADD, "add_between_rows", run_add_between_rows)};
