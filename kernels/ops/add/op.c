/* add: y = a + b, elementwise. */
#include "kernel.h"

static void cost(const struct assay_shape *shape, double *flops, double *bytes)
{
    double elements = (double)shape->tokens * (double)shape->n;
    *flops = elements;
    *bytes = 3 * 4 * elements;
}

static struct assay_tolerance tolerance(const struct assay_shape *shape)
{
    (void)shape;
    return (struct assay_tolerance){.absolute = 1e-5, .relative = 1.3e-6, .nmse = 1e-10};
}

#define ADD(t, c)                            \
    {                                        \
        .op = ASSAY_ADD, .tokens = t, .n = c \
    }

static const struct assay_shape suite[] = {
    ADD(0, 64), ADD(1, 1),  ADD(1, 576), ADD(1, 1536), ADD(7, 33),
    ADD(3, 80), ADD(33, 7), ADD(2, 8),   ADD(5, 1001),
};

const struct assay_op_info assay_op_add = {
    .op = ASSAY_ADD,
    .name = "add",
    .inputs = 2,
    .weights = 0,
    .outputs = 1,
    .cost = cost,
    .tolerance = tolerance,
    .suite = suite,
    .suite_count = sizeof suite / sizeof suite[0],
};
