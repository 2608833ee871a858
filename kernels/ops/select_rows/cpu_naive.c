/* select_rows/cpu_naive: copies the wanted rows. */
#include <string.h>

#include "device/cpu/rows.h"

static int run(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    const struct assay_metadata *metadata = launch->metadata;
    int64_t begin, end;
    assay_share(exec, metadata->logit_rows, 1, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        memcpy(cpu_row(&launch->operand[1], row),
               cpu_row(&launch->operand[0], metadata->logit_row[row]),
               (size_t)shape->n * sizeof(float));
    }
    return 0;
}

const struct assay_variant assay_variant_select_rows_cpu_naive = {
    .name = "select_rows/cpu_naive",
    .idea = "copies the wanted rows",
    .op = ASSAY_SELECT_ROWS,
    .backend = ASSAY_CPU,
    .rung = 0,
    .flags = ASSAY_DEFAULT | ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT,
    .graph = ASSAY_GRAPH_ANY,
    .run = run,
};
