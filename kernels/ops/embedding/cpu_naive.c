/* embedding/cpu_naive: each token's row of the table, dequantised where it is quantised. */
#include <string.h>

#include "device/cpu/rows.h"

static int run(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    const int32_t *ids = launch->operand[0].data;            /* (tokens) */
    const struct assay_operand *table = &launch->operand[1]; /* (vocab, n) */
    int64_t begin, end;
    assay_share(exec, shape->tokens, 1, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        float *y = cpu_row(&launch->operand[2], t); /* (n) */
        if (ids[t] < 0 || ids[t] >= table->rows) {  /* a padded row: it must only stay finite */
            memset(y, 0, (size_t)shape->n * sizeof *y);
            continue;
        }
        cpu_dequantize(table->dtype, cpu_weight_row(table, ids[t]), shape->n, y);
    }
    return 0;
}

const struct assay_variant assay_variant_embedding_cpu_naive = {
    .name = "embedding/cpu_naive",
    .idea = "copies or dequantises the row of each token",
    .op = ASSAY_EMBEDDING,
    .backend = ASSAY_CPU,
    .rung = 0,
    .flags = ASSAY_DEFAULT | ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT,
    .graph = ASSAY_GRAPH_ANY,
    .weights = ASSAY_BIT(ASSAY_F32) | ASSAY_BIT(ASSAY_Q8_0) | ASSAY_BIT(ASSAY_Q4_1),
    .run = run,
};
