/* select_rows: the rows of x whose logits are wanted, in the order of metadata's logit_row. */
#include "kernel.h"

static void cost(const struct assay_shape *shape, double *flops, double *bytes)
{
    *flops = 0;
    *bytes = (double)shape->tokens * (2 * 4 * (double)shape->n + 4);
}

static struct assay_tolerance tolerance(const struct assay_shape *shape)
{
    (void)shape;
    return (struct assay_tolerance){.bitwise = true};
}

/* `tokens` counts the rows that are selected, as in all ops on rows with logits. */
#define SELECT(t, c)                                 \
    {                                                \
        .op = ASSAY_SELECT_ROWS, .tokens = t, .n = c \
    }

static const struct assay_shape suite[] = {SELECT(0, 64), SELECT(1, 1), SELECT(1, 576),
                                           SELECT(7, 33), SELECT(33, 80)};

const struct assay_op_info assay_op_select_rows = {
    .op = ASSAY_SELECT_ROWS,
    .name = "select_rows",
    .inputs = 1,
    .weights = 0,
    .outputs = 1,
    .uses_metadata = true,
    .cost = cost,
    .tolerance = tolerance,
    .suite = suite,
    .suite_count = sizeof suite / sizeof suite[0],
};
