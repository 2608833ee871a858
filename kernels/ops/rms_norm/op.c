/* rms_norm: y = x / sqrt(mean(x^2) + epsilon) * weight, per row (Zhang and Sennrich, 2019). */
#include "kernel.h"

static void cost(const struct assay_shape *shape, double *flops, double *bytes)
{
    double elements = (double)shape->tokens * (double)shape->n;
    *flops = 4 * elements; /* square, sum, two products */
    *bytes = shape->tokens > 0 ? 4 * (2 * elements + (double)shape->n) : 0;
}

static struct assay_tolerance tolerance(const struct assay_shape *shape)
{
    (void)shape;
    return (struct assay_tolerance){.absolute = 1e-5, .relative = 1.3e-6, .nmse = 1e-10};
}

#define NORM(t, c, e)                                           \
    {                                                           \
        .op = ASSAY_RMS_NORM, .tokens = t, .n = c, .epsilon = e \
    }

static const struct assay_shape suite[] = {
    NORM(0, 64, 1e-5f),  NORM(1, 1, 1e-5f),  NORM(1, 576, 1e-5f),
    NORM(7, 33, 1e-6f),  NORM(3, 80, 1e-5f), NORM(2, 1537, 1e-12f),
    NORM(33, 31, 1e-5f), NORM(5, 8, 1e-5f),  NORM(1, 2048, 1e-6f)};

const struct assay_op_info assay_op_rms_norm = {
    .op = ASSAY_RMS_NORM,
    .name = "rms_norm",
    .inputs = 1,
    .weights = 1,
    .outputs = 1,
    .cost = cost,
    .tolerance = tolerance,
    .suite = suite,
    .suite_count = sizeof suite / sizeof suite[0],
};
