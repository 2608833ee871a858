/* Packs whole tiles of four rows, the last one past the end of what it asked for. */
#include "wrong.h"

static const char *layout_packs_past_end(const struct assay_problem *problem, int32_t node)
{
    (void)problem;
    (void)node;
    return "wrong tiles";
}

static size_t size_packs_past_end(enum assay_dtype dtype, int64_t rows, int64_t columns)
{
    (void)dtype;
    return (size_t)(rows * columns) * sizeof(float);
}

static void pack_past_end(void *packed, const void *stored, enum assay_dtype dtype, int64_t rows,
                          int64_t columns, int64_t begin, int64_t end)
{
    (void)dtype;
    memcpy((float *)packed + begin * columns, (const float *)stored + begin * columns,
           (size_t)((end - begin) * columns) * sizeof(float));
    if (end == rows && rows % 4 != 0)
        memset((float *)packed + rows * columns, 0, (size_t)columns * sizeof(float));
}

static int run_packs_past_end(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    FOR_ROWS(launch, exec, t)
    {
        const float *x = cpu_row(&launch->operand[0], t);
        for (int64_t row = 0; row < shape->n; row++) {
            const float *w = (const float *)launch->operand[1].data + row * shape->k;
            double sum = 0;
            for (int64_t i = 0; i < shape->k; i++)
                sum += (double)x[i] * (double)w[i];
            cpu_row(&launch->operand[2], t)[row] = (float)sum;
        }
    }
    return 0;
}

const struct assay_variant assay_wrong_linear_packs_past_end = {
    WRONG(ASSAY_LINEAR, "linear_packs_past_end", run_packs_past_end),
    .weights = ASSAY_BIT(ASSAY_F32),
    .activations = ASSAY_BIT(ASSAY_F32),
    .weight_layout = layout_packs_past_end,
    .packed_size = size_packs_past_end,
    .pack = pack_past_end};
