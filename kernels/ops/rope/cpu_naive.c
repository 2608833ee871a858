/* rope/cpu_naive: sine and cosine of every pair of every head, straight from the definition. */
#include <math.h>
#include <string.h>

#include "device/cpu/rows.h"

/* Turns the pairs of one head, x and y (head_dim); y may be x. The angle is taken in double: in
 * float32 it would be off by 1e-4 at position 2000. */
static void turn(const struct assay_shape *shape, int32_t position, const float *x, float *y)
{
    int32_t half = shape->rotary / 2;
    for (int32_t i = 0; i < half; i++) {
        double angle = position * pow(shape->theta, -2.0 * i / shape->rotary);
        float c = (float)cos(angle);
        float s = (float)sin(angle);
        int32_t first = shape->pairing == ASSAY_ROPE_ADJACENT ? 2 * i : i;
        int32_t second = shape->pairing == ASSAY_ROPE_ADJACENT ? 2 * i + 1 : i + half;
        float a = x[first];
        float b = x[second];
        y[first] = a * c - b * s;
        y[second] = a * s + b * c;
    }
    memmove(y + shape->rotary, x + shape->rotary,
            (size_t)(shape->head_dim - shape->rotary) * sizeof *y);
}

static int run(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    int64_t begin, end;
    assay_share(exec, shape->tokens, 1, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        const float *x = cpu_row(&launch->operand[0], t); /* (heads, head_dim) */
        float *y = cpu_row(&launch->operand[1], t);       /* (heads, head_dim) */
        for (int32_t h = 0; h < shape->heads; h++) {
            turn(shape, launch->metadata->positions[t], x + h * shape->head_dim,
                 y + h * shape->head_dim);
        }
    }
    return 0;
}

const struct assay_variant assay_variant_rope_cpu_naive = {
    .name = "rope/cpu_naive",
    .idea = "sine and cosine of every pair of every head",
    .op = ASSAY_ROPE,
    .backend = ASSAY_CPU,
    .rung = 0,
    .flags = ASSAY_DEFAULT | ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT | ASSAY_IN_PLACE,
    .graph = ASSAY_GRAPH_ANY,
    .run = run,
};
