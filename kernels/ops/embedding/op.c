/* embedding: y (tokens, n) = rows `ids` of table (vocab, n), dequantised. */
#include "kernel.h"

static void cost(const struct assay_shape *shape, double *flops, double *bytes)
{
    double row = (double)assay_row_bytes(shape->weights, shape->n);
    *flops = 0;
    *bytes = (double)shape->tokens * (4 + row + 4 * (double)shape->n);
}

static struct assay_tolerance tolerance(const struct assay_shape *shape)
{
    (void)shape;
    return (struct assay_tolerance){.bitwise = true};
}

/* The table's height is the checker's choice. */
static const struct assay_shape suite[] = {
    {.op = ASSAY_EMBEDDING, .tokens = 0, .n = 32},   {.op = ASSAY_EMBEDDING, .tokens = 1, .n = 32},
    {.op = ASSAY_EMBEDDING, .tokens = 1, .n = 576},  {.op = ASSAY_EMBEDDING, .tokens = 7, .n = 96},
    {.op = ASSAY_EMBEDDING, .tokens = 33, .n = 160},
};

const struct assay_op_info assay_op_embedding = {
    .op = ASSAY_EMBEDDING,
    .name = "embedding",
    .inputs = 1,
    .weights = 1,
    .outputs = 1,
    .cost = cost,
    .tolerance = tolerance,
    .suite = suite,
    .suite_count = sizeof suite / sizeof suite[0],
};
