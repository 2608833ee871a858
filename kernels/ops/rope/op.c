/* rope: pair i of a head turns by position * theta^(-2i / rotary) (Su et al., 2021). */
#include "kernel.h"

static void cost(const struct assay_shape *shape, double *flops, double *bytes)
{
    double rows = (double)shape->tokens * shape->heads;
    *flops = rows * 3 * shape->rotary; /* a pair: four products, two sums */
    *bytes = rows * 2 * 4 * shape->head_dim + 4 * (double)shape->tokens;
}

static struct assay_tolerance tolerance(const struct assay_shape *shape)
{
    (void)shape;
    return (struct assay_tolerance){.absolute = 1e-5, .relative = 1.3e-6, .nmse = 1e-10};
}

#define ROPE(t, h, d, r, p, base)                                                          \
    {                                                                                      \
        .op = ASSAY_ROPE, .tokens = t, .n = h * d, .heads = h, .head_dim = d, .rotary = r, \
        .pairing = ASSAY_ROPE_##p, .theta = base                                           \
    }

static const struct assay_shape suite[] = {
    ROPE(0, 9, 64, 64, ADJACENT, 1e4f), ROPE(1, 9, 64, 64, ADJACENT, 1e5f),
    ROPE(1, 3, 64, 64, HALVES, 1e4f),   ROPE(7, 9, 32, 32, ADJACENT, 1e4f),
    ROPE(7, 3, 32, 32, HALVES, 5e5f),   ROPE(5, 2, 80, 80, HALVES, 1e4f),
    ROPE(5, 2, 80, 32, ADJACENT, 1e4f), ROPE(3, 1, 80, 20, HALVES, 1e4f),
    ROPE(33, 1, 6, 6, ADJACENT, 1e4f),  ROPE(17, 3, 10, 6, HALVES, 1e4f),
};

const struct assay_op_info assay_op_rope = {
    .op = ASSAY_ROPE,
    .name = "rope",
    .inputs = 1,
    .weights = 0,
    .outputs = 1,
    .uses_metadata = true,
    .cost = cost,
    .tolerance = tolerance,
    .suite = suite,
    .suite_count = sizeof suite / sizeof suite[0],
};
