/* rms_norm/cpu_avx2: eight elements an instruction; two sums, since one would wait for itself. */
#include <math.h>

#include "device/cpu/avx2.h"
#include "device/cpu/rows.h"

CPU_AVX2 static void norm_row(const float *x, const float *weight, float *y, int64_t n,
                              float epsilon)
{
    __m256 sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int64_t i = 0; i < n; i += 16) {
        __m256 a = avx2_load(x + i, n - i);
        sum[0] = _mm256_fmadd_ps(a, a, sum[0]);
        if (n - i > 8) {
            __m256 b = avx2_load(x + i + 8, n - i - 8);
            sum[1] = _mm256_fmadd_ps(b, b, sum[1]);
        }
    }
    float squares = avx2_sum(_mm256_add_ps(sum[0], sum[1]));
    __m256 scale = _mm256_set1_ps(1 / sqrtf(squares / (float)n + epsilon));
    for (int64_t i = 0; i < n; i += 8) {
        __m256 scaled = _mm256_mul_ps(avx2_load(x + i, n - i), scale);
        avx2_store(y + i, n - i, _mm256_mul_ps(scaled, avx2_load(weight + i, n - i)));
    }
}

static int run(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    const float *weight = launch->operand[1].data; /* (n) */
    int64_t begin, end;
    assay_share(exec, shape->tokens, 1, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        norm_row(cpu_row(&launch->operand[0], t), weight, cpu_row(&launch->operand[2], t), shape->n,
                 shape->epsilon);
    }
    return 0;
}

const struct assay_variant assay_variant_rms_norm_cpu_avx2 = {
    .name = "rms_norm/cpu_avx2",
    .idea = "eight elements an instruction",
    .improves = "rms_norm/cpu_naive",
    .op = ASSAY_RMS_NORM,
    .backend = ASSAY_CPU,
    .rung = 1,
    .flags = ASSAY_DEFAULT | ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT | ASSAY_IN_PLACE,
    .graph = ASSAY_GRAPH_ANY,
    .weights = ASSAY_BIT(ASSAY_F32),
    .features = ASSAY_CPU_AVX2,
    .run = run,
};
