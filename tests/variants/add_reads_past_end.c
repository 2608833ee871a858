/* Loads whole vectors to the end of a row and throws the surplus away. */
#include "wrong.h"

static int run_add_reads_past_end(const struct assay_launch *launch, const struct assay_exec *exec)
{
    FOR_ROWS(launch, exec, t)
    {
        int64_t n = launch->problem->node[0].n;
        const float *a = cpu_row(&launch->operand[0], t), *b = cpu_row(&launch->operand[1], t);
        for (int64_t i = 0; i < n; i++)
            cpu_row(&launch->operand[2], t)[i] = a[i] + b[i];
        volatile float surplus = a[n + 3] + b[n + 3];
        (void)surplus;
    }
    return 0;
}

const struct assay_variant assay_wrong_add_reads_past_end = {
    WRONG(ASSAY_ADD, "add_reads_past_end", run_add_reads_past_end)};
