/* add_rms_norm/cpu_avx2: the sum is squared while it is still in registers. */
#include <math.h>

#include "device/cpu/avx2.h"
#include "device/cpu/rows.h"
#include "ops/add_rms_norm/cover.h"

/* Stores eight sums and returns them. */
CPU_AVX2_INLINE __m256 add_eight(const float *a, const float *b, float *sum, int64_t left)
{
    __m256 v = _mm256_add_ps(avx2_load(a, left), avx2_load(b, left));
    avx2_store(sum, left, v);
    return v;
}

CPU_AVX2 static void add_norm_row(const float *a, const float *b, const float *weight, float *sum,
                                  float *y, int64_t n, float epsilon)
{
    __m256 squares[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int64_t i = 0; i < n; i += 16) {
        __m256 v = add_eight(a + i, b + i, sum + i, n - i);
        squares[0] = _mm256_fmadd_ps(v, v, squares[0]);
        if (n - i > 8) {
            v = add_eight(a + i + 8, b + i + 8, sum + i + 8, n - i - 8);
            squares[1] = _mm256_fmadd_ps(v, v, squares[1]);
        }
    }
    float mean = avx2_sum(_mm256_add_ps(squares[0], squares[1])) / (float)n;
    __m256 scale = _mm256_set1_ps(1 / sqrtf(mean + epsilon));
    for (int64_t i = 0; i < n; i += 8) {
        __m256 scaled = _mm256_mul_ps(avx2_load(sum + i, n - i), scale);
        avx2_store(y + i, n - i, _mm256_mul_ps(scaled, avx2_load(weight + i, n - i)));
    }
}

static int run(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[1];
    const float *weight = launch->operand[2].data; /* (n) */
    int64_t begin, end;
    assay_share(exec, shape->tokens, 1, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        add_norm_row(cpu_row(&launch->operand[0], t), cpu_row(&launch->operand[1], t), weight,
                     cpu_row(&launch->operand[3], t), cpu_row(&launch->operand[4], t), shape->n,
                     shape->epsilon);
    }
    return 0;
}

const struct assay_variant assay_variant_add_rms_norm_cpu_avx2 = {
    .name = "add_rms_norm/cpu_avx2",
    .idea = "eight elements an instruction; the sum is squared while in registers",
    .improves = "add_rms_norm/cpu_naive",
    .cover = &assay_cover_add_rms_norm,
    .op = ASSAY_ADD,
    .backend = ASSAY_CPU,
    .rung = 1,
    .flags = ASSAY_DEFAULT | ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT | ASSAY_IN_PLACE,
    .graph = ASSAY_GRAPH_ANY,
    .weights = ASSAY_BIT(ASSAY_F32),
    .features = ASSAY_CPU_AVX2,
    .run = run,
};
