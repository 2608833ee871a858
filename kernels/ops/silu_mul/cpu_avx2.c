/* silu_mul/cpu_avx2: eight elements an instruction, the exponential as a polynomial; a row is
 * shared out in pieces, so that one token keeps all threads busy. */
#include "device/cpu/avx2.h"
#include "device/cpu/rows.h"

#define PIECE 256 /* columns */

CPU_AVX2 static void silu_piece(const float *gate, const float *up, float *y, int64_t n)
{
    const __m256 one = _mm256_set1_ps(1), sign = _mm256_set1_ps(-0.0f);
    for (int64_t i = 0; i < n; i += 8) {
        __m256 g = avx2_load(gate + i, n - i);
        __m256 below = _mm256_add_ps(one, avx2_exp(_mm256_xor_ps(g, sign)));
        __m256 silu = _mm256_div_ps(g, below);
        avx2_store(y + i, n - i, _mm256_mul_ps(silu, avx2_load(up + i, n - i)));
    }
}

static int run(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    int64_t pieces = (shape->n + PIECE - 1) / PIECE, begin, end;
    assay_share(exec, shape->tokens * pieces, 1, &begin, &end);
    for (int64_t item = begin; item < end; item++) {
        int64_t t = item / pieces, column = item % pieces * PIECE;
        int64_t count = shape->n - column < PIECE ? shape->n - column : PIECE;
        silu_piece(cpu_row(&launch->operand[0], t) + column,
                   cpu_row(&launch->operand[1], t) + column,
                   cpu_row(&launch->operand[2], t) + column, count);
    }
    return 0;
}

const struct assay_variant assay_variant_silu_mul_cpu_avx2 = {
    .name = "silu_mul/cpu_avx2",
    .idea = "eight elements an instruction, the exponential as a polynomial",
    .improves = "silu_mul/cpu_naive",
    .op = ASSAY_SILU_MUL,
    .backend = ASSAY_CPU,
    .rung = 1,
    .flags = ASSAY_DEFAULT | ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT | ASSAY_IN_PLACE,
    .graph = ASSAY_GRAPH_ANY,
    .features = ASSAY_CPU_AVX2,
    .run = run,
};
