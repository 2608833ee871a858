/* linear/cpu_naive_q8: the naive product for inputs rounded to the class Q8.
 *
 * What the class means is spelled out here: each input row becomes int8 blocks with a float32
 * scale, and the product sees q * d. The integer rungs must agree with this one. */
#include "device/cpu/rows.h"

/* Scratch: the rounded inputs (tokens, k), then a row of W for each thread (threads, k), then
 * quants and scales of one row for each thread. */
static size_t scratch_size(const struct assay_problem *problem, int32_t threads)
{
    size_t k = (size_t)problem->node[0].k, tokens = (size_t)problem->node[0].tokens;
    size_t floats = tokens * k + (size_t)threads * (k + k / CPU_BLOCK);
    return floats * sizeof(float) + (size_t)threads * k;
}

static void round_row(const float *x, int64_t k, int8_t *quants, float *scales, float *rounded)
{
    cpu_quantize_q8(x, k, quants, scales);
    for (int64_t i = 0; i < k; i++) {
        rounded[i] = (float)quants[i] * scales[i / CPU_BLOCK];
    }
}

static int run(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    const struct assay_operand *weight = &launch->operand[1]; /* (n, k) */
    int64_t k = shape->k, tokens = shape->tokens, begin, end;
    float *rounded = launch->scratch;
    float *w = rounded + tokens * k + exec->thread * k;
    float *scales = rounded + (tokens + exec->threads) * k + exec->thread * (k / CPU_BLOCK);
    int8_t *quants =
        (int8_t *)(rounded + (tokens + exec->threads) * k + exec->threads * (k / CPU_BLOCK)) +
        exec->thread * k;

    assay_share(exec, tokens, 1, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        round_row(cpu_row(&launch->operand[0], t), k, quants, scales, rounded + t * k);
    }
    cpu_barrier(exec);
    assay_share(exec, tokens > 0 ? shape->n : 0, 1, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        cpu_dequantize(weight->dtype, cpu_weight_row(weight, row), k, w);
        for (int64_t t = 0; t < tokens; t++) {
            cpu_row(&launch->operand[2], t)[row] = cpu_dot(rounded + t * k, w, k);
        }
    }
    return 0;
}

const struct assay_variant assay_variant_linear_cpu_naive_q8 = {
    .name = "linear/cpu_naive_q8",
    .idea = "rounds each input row to int8 blocks first, then as cpu_naive",
    .op = ASSAY_LINEAR,
    .backend = ASSAY_CPU,
    .rung = 0,
    .flags = ASSAY_DEFAULT | ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT,
    .graph = ASSAY_GRAPH_ANY,
    .weights = ASSAY_BIT(ASSAY_F32) | ASSAY_BIT(ASSAY_Q8_0) | ASSAY_BIT(ASSAY_Q4_1),
    .activations = ASSAY_BIT(ASSAY_Q8),
    .scratch_size = scratch_size,
    .run = run,
};
