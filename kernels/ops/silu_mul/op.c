/* silu_mul: y = gate / (1 + exp(-gate)) * up, elementwise (Shazeer, 2020). */
#include "kernel.h"

static void cost(const struct assay_shape *shape, double *flops, double *bytes)
{
    double elements = (double)shape->tokens * (double)shape->n;
    *flops = 5 * elements; /* sign, exp, sum, quotient, product */
    *bytes = 3 * 4 * elements;
}

static struct assay_tolerance tolerance(const struct assay_shape *shape)
{
    (void)shape;
    return (struct assay_tolerance){.absolute = 1e-5, .relative = 1.3e-6, .nmse = 1e-10};
}

#define SILU_MUL(t, c)                            \
    {                                             \
        .op = ASSAY_SILU_MUL, .tokens = t, .n = c \
    }

static const struct assay_shape suite[] = {
    SILU_MUL(0, 64), SILU_MUL(1, 1),  SILU_MUL(1, 576), SILU_MUL(1, 1536), SILU_MUL(7, 33),
    SILU_MUL(3, 80), SILU_MUL(33, 7), SILU_MUL(2, 8),   SILU_MUL(5, 1001),
};

const struct assay_op_info assay_op_silu_mul = {
    .op = ASSAY_SILU_MUL,
    .name = "silu_mul",
    .inputs = 2,
    .weights = 0,
    .outputs = 1,
    .cost = cost,
    .tolerance = tolerance,
    .suite = suite,
    .suite_count = sizeof suite / sizeof suite[0],
};
