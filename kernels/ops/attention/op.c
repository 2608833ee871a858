/* attention: y = softmax(scale q . k) v over the rows of the paged cache that a query may see;
 * zeros where it sees none. Query head h reads kv head h / (heads / kv_heads). */
#include "kernel.h"

static void cost(const struct assay_shape *shape, double *flops, double *bytes)
{
    double rows = (double)assay_row_bytes(shape->kv, shape->head_dim) * shape->kv_heads;
    double queries = (double)shape->tokens * shape->heads * shape->head_dim;
    *flops = 4.0 * (double)shape->kv_tokens * shape->heads * shape->head_dim;
    *bytes = 2 * (double)shape->kv_rows * rows + 2 * 4 * queries;
}

/* A weighted mean does not grow with the context; the scores' own error is bounded by scale. */
static struct assay_tolerance tolerance(const struct assay_shape *shape)
{
    (void)shape;
    return (struct assay_tolerance){.absolute = 1e-5, .relative = 1.3e-6, .nmse = 1e-10};
}

#define ATTENTION(t, h, g, d, s, c, b, see, root)                                                 \
    {                                                                                             \
        .op = ASSAY_ATTENTION, .tokens = t, .n = h * d, .heads = h, .kv_heads = g, .head_dim = d, \
        .sequences = s, .context = c, .block_size = b, .causal = see, .scale = 1.0f / root        \
    }

#define ROOT_32 5.65685425f
#define ROOT_64 8.0f
#define ROOT_80 8.94427191f

/* Lengths are the checker's choice: `tokens` query rows over `sequences`, of which some may own
 * none, the longest with `context` rows in the cache. kv_tokens and kv_rows follow from them. */
static const struct assay_shape suite[] = {
    ATTENTION(0, 9, 3, 64, 0, 0, 16, true, ROOT_64), /* nothing at all */
    ATTENTION(1, 9, 3, 64, 1, 0, 16, true, ROOT_64), /* a query that sees no row */
    ATTENTION(1, 9, 3, 64, 1, 1, 16, true, ROOT_64), /* decode around the cache's blocks */
    ATTENTION(1, 9, 3, 64, 1, 15, 16, true, ROOT_64),
    ATTENTION(1, 9, 3, 64, 1, 16, 16, true, ROOT_64),
    ATTENTION(1, 9, 3, 64, 1, 17, 16, true, ROOT_64),
    ATTENTION(1, 9, 3, 64, 1, 33, 16, true, ROOT_64),
    ATTENTION(1, 9, 3, 64, 1, 257, 16, true, ROOT_64),
    ATTENTION(1, 4, 4, 32, 1, 1030, 16, true, ROOT_32), /* long enough to be split */
    ATTENTION(3, 8, 1, 80, 3, 33, 16, true, ROOT_80),   /* one kv head, an odd head */
    ATTENTION(4, 9, 3, 32, 7, 65, 16, true, ROOT_32),   /* more sequences than queries */
    ATTENTION(17, 9, 3, 64, 1, 17, 16, true, ROOT_64),  /* a prompt */
    ATTENTION(33, 3, 3, 32, 1, 129, 1, true, ROOT_32),  /* a later chunk; blocks of one row */
    ATTENTION(40, 6, 2, 64, 5, 100, 16, true, ROOT_64), /* chunks and decodes together */
    ATTENTION(70, 2, 1, 64, 1, 70, 32, true, ROOT_64),
    ATTENTION(9, 4, 2, 80, 2, 31, 16, false, ROOT_80), /* every query sees every row */
};

const struct assay_op_info assay_op_attention = {
    .op = ASSAY_ATTENTION,
    .name = "attention",
    .inputs = 1,
    .weights = 0,
    .outputs = 1,
    .uses_metadata = true,
    .uses_cache = true,
    .cost = cost,
    .tolerance = tolerance,
    .suite = suite,
    .suite_count = sizeof suite / sizeof suite[0],
};
