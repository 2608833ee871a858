/* add/cpu_avx2: eight sums an instruction; a row is shared out in pieces, so that one token keeps
 * all threads busy. */
#include "device/cpu/avx2.h"
#include "device/cpu/rows.h"

#define PIECE 256 /* columns */

CPU_AVX2 static void add_piece(const float *a, const float *b, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += 8) {
        __m256 sum = _mm256_add_ps(avx2_load(a + i, n - i), avx2_load(b + i, n - i));
        avx2_store(y + i, n - i, sum);
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
        add_piece(cpu_row(&launch->operand[0], t) + column,
                  cpu_row(&launch->operand[1], t) + column,
                  cpu_row(&launch->operand[2], t) + column, count);
    }
    return 0;
}

const struct assay_variant assay_variant_add_cpu_avx2 = {
    .name = "add/cpu_avx2",
    .idea = "eight sums an instruction, rows shared out in pieces",
    .improves = "add/cpu_naive",
    .op = ASSAY_ADD,
    .backend = ASSAY_CPU,
    .rung = 1,
    .flags = ASSAY_DEFAULT | ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT | ASSAY_IN_PLACE,
    .graph = ASSAY_GRAPH_ANY,
    .features = ASSAY_CPU_AVX2,
    .run = run,
};
