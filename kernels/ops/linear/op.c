/* linear: y (tokens, n) = x (tokens, k) times the transpose of weight (n, k). */
#include <math.h>

#include "kernel.h"

static void cost(const struct assay_shape *shape, double *flops, double *bytes)
{
    double tokens = (double)shape->tokens, n = (double)shape->n, k = (double)shape->k;
    double weights = n * (double)assay_row_bytes(shape->weights, shape->k);
    *flops = 2 * tokens * n * k;
    *bytes = tokens > 0 ? weights + 4 * tokens * (n + k) : 0;
}

/* The error of a sum of k products grows with sqrt(k). Truth is computed from inputs already
 * rounded to the activation class, so one tolerance serves all classes held in float32. */
static struct assay_tolerance tolerance(const struct assay_shape *shape)
{
    double depth = sqrt(shape->k > 1 ? (double)shape->k : 1);
    if (shape->activations == ASSAY_BF16) {
        return (struct assay_tolerance){.absolute = 1e-3 * depth, .relative = 1.6e-2, .nmse = 1e-5};
    }
    return (struct assay_tolerance){.absolute = 1e-5 * depth, .relative = 1.3e-6, .nmse = 1e-10};
}

#define LINEAR(t, rows, columns)                                 \
    {                                                            \
        .op = ASSAY_LINEAR, .tokens = t, .n = rows, .k = columns \
    }

/* k in whole blocks of 32 but rarely of 64 or 256; n off every multiple of 2, 4 and 8; token
 * counts around the register tiles. */
static const struct assay_shape suite[] = {
    LINEAR(0, 8, 32),    LINEAR(1, 1, 32),   LINEAR(1, 192, 576), LINEAR(1, 49, 1536),
    LINEAR(1, 131, 96),  LINEAR(2, 65, 32),  LINEAR(3, 33, 544),  LINEAR(4, 72, 128),
    LINEAR(5, 7, 160),   LINEAR(7, 193, 96), LINEAR(8, 64, 64),   LINEAR(13, 100, 288),
    LINEAR(17, 31, 224), LINEAR(33, 9, 64),  LINEAR(67, 40, 32),  LINEAR(6, 2, 864),
};

const struct assay_op_info assay_op_linear = {
    .op = ASSAY_LINEAR,
    .name = "linear",
    .inputs = 1,
    .weights = 1,
    .outputs = 1,
    .cost = cost,
    .tolerance = tolerance,
    .suite = suite,
    .suite_count = sizeof suite / sizeof suite[0],
};
