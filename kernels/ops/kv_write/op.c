/* kv_write: the rows of k and v go to their slots of the paged cache. */
#include "kernel.h"

static void cost(const struct assay_shape *shape, double *flops, double *bytes)
{
    double rows = 2.0 * (double)shape->tokens * shape->kv_heads; /* k and v */
    double stored = (double)assay_row_bytes(shape->kv, shape->head_dim);
    *flops = 0;
    *bytes = rows * (4.0 * shape->head_dim + stored) + 8 * (double)shape->tokens;
}

static struct assay_tolerance tolerance(const struct assay_shape *shape)
{
    (void)shape;
    return (struct assay_tolerance){.bitwise = true};
}

#define WRITE(t, h, d, s, b)                                                                     \
    {                                                                                            \
        .op = ASSAY_KV_WRITE, .tokens = t, .n = h * d, .heads = h, .kv_heads = h, .head_dim = d, \
        .sequences = s, .block_size = b                                                          \
    }

static const struct assay_shape suite[] = {
    WRITE(0, 3, 64, 0, 16),  WRITE(1, 3, 64, 1, 16), WRITE(7, 3, 32, 2, 16),
    WRITE(17, 1, 80, 3, 16), WRITE(33, 2, 64, 1, 1), WRITE(5, 3, 96, 5, 32),
};

const struct assay_op_info assay_op_kv_write = {
    .op = ASSAY_KV_WRITE,
    .name = "kv_write",
    .inputs = 2,
    .weights = 0,
    .outputs = 0,
    .uses_metadata = true,
    .uses_cache = true,
    .cost = cost,
    .tolerance = tolerance,
    .suite = suite,
    .suite_count = sizeof suite / sizeof suite[0],
};
