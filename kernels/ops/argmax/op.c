/* argmax: what a step row keeps of a row of logits: struct assay_top. */
#include "kernel.h"

static void cost(const struct assay_shape *shape, double *flops, double *bytes)
{
    double elements = (double)shape->tokens * (double)shape->n;
    *flops = 2 * elements; /* a comparison, a sum */
    *bytes = 4 * elements + (double)sizeof(struct assay_top) * (double)shape->tokens;
}

/* Of the fields as numbers: ids, counts and logits are exact, the margin is rounded once to
 * float32, the projection is a sum in double whose order is free. */
static struct assay_tolerance tolerance(const struct assay_shape *shape)
{
    (void)shape;
    return (struct assay_tolerance){.absolute = 1e-9, .relative = 1.3e-7, .nmse = 1e-12};
}

#define ARGMAX(t, c)                            \
    {                                           \
        .op = ASSAY_ARGMAX, .tokens = t, .n = c \
    }

static const struct assay_shape suite[] = {
    ARGMAX(0, 64), ARGMAX(1, 1),   ARGMAX(1, 2),    ARGMAX(7, 7),     ARGMAX(3, 65),
    ARGMAX(2, 31), ARGMAX(1, 258), ARGMAX(2, 4099), ARGMAX(1, 49152),
};

const struct assay_op_info assay_op_argmax = {
    .op = ASSAY_ARGMAX,
    .name = "argmax",
    .inputs = 1,
    .weights = 0,
    .outputs = 1,
    .cost = cost,
    .tolerance = tolerance,
    .suite = suite,
    .suite_count = sizeof suite / sizeof suite[0],
};
