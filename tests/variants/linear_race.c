/* Shares out the rounding of the inputs and reads all of them without waiting for the others; and
 * asks, in linear_scratch, for too little memory to round them in. */
#include "wrong.h"

static void round_shared(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    FOR_ROWS(launch, exec, t)
    {
        float *to = (float *)launch->scratch + t * shape->k;
        memcpy(to, cpu_row(&launch->operand[0], t), (size_t)shape->k * sizeof *to);
    }
}

static void multiply_shared(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    int64_t begin, end;
    assay_share(exec, shape->tokens > 0 ? shape->n : 0, 1, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        const float *w = cpu_weight_row(&launch->operand[1], row);
        for (int64_t t = 0; t < shape->tokens; t++) {
            const float *x = (const float *)launch->scratch + t * shape->k;
            double sum = 0;
            for (int64_t i = 0; i < shape->k; i++)
                sum += (double)x[i] * (double)w[i];
            cpu_row(&launch->operand[2], t)[row] = (float)sum;
        }
    }
}

static int run_linear_race(const struct assay_launch *launch, const struct assay_exec *exec)
{
    round_shared(launch, exec);
    multiply_shared(launch, exec);
    return 0;
}

static int run_linear_scratch(const struct assay_launch *launch, const struct assay_exec *exec)
{
    round_shared(launch, exec);
    exec->barrier(exec);
    multiply_shared(launch, exec);
    return 0;
}

static size_t scratch_linear_race(const struct assay_problem *problem, int32_t threads)
{
    (void)threads;
    return (size_t)problem->node[0].tokens * (size_t)problem->node[0].k * sizeof(float);
}

static size_t scratch_linear_scratch(const struct assay_problem *problem, int32_t threads)
{
    size_t right = scratch_linear_race(problem, threads);
    return right > 0 ? right - sizeof(float) : 0;
}

const struct assay_variant assay_wrong_linear_race = {
    WRONG(ASSAY_LINEAR, "linear_race", run_linear_race), .weights = ASSAY_BIT(ASSAY_F32),
    .activations = ASSAY_BIT(ASSAY_F32), .scratch_size = scratch_linear_race};

const struct assay_variant assay_wrong_linear_scratch = {
    WRONG(ASSAY_LINEAR, "linear_scratch", run_linear_scratch), .weights = ASSAY_BIT(ASSAY_F32),
    .activations = ASSAY_BIT(ASSAY_F32), .scratch_size = scratch_linear_scratch};
