#include "device/cpu/quantize_rows.h"

#include <math.h>

#include "device/cpu/avx2.h"

/* Rounding 4,000 elements takes about as long as a barrier of two threads (some 500 ns). */
#define FEW_ELEMENTS 4096

static bool alone(int64_t tokens, int64_t k)
{
    return tokens * k <= FEW_ELEMENTS;
}

/* Bytes of one copy: quants, then scales and sums. */
static size_t copy_size(int64_t tokens, int64_t k)
{
    size_t bytes = (size_t)(tokens * k) + (size_t)(tokens * (k / CPU_BLOCK)) * 2 * sizeof(float);
    return (bytes + 63) / 64 * 64;
}

/* Enough for fewer tokens too, for each of which every thread may hold a copy. */
size_t cpu_quantize_rows_size(int64_t tokens, int64_t k, int32_t threads)
{
    int64_t few = k > 0 && tokens > FEW_ELEMENTS / k ? FEW_ELEMENTS / k : tokens;
    size_t copies = copy_size(few, k) * (size_t)threads, shared = copy_size(tokens, k);
    return copies > shared ? copies : shared;
}

/* The largest |x| of a block, NaN or infinity where the block holds one. */
CPU_AVX2_INLINE float largest_magnitude(const __m256 x[4])
{
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    __m256 largest = _mm256_setzero_ps(), wrong = _mm256_setzero_ps();
    for (int i = 0; i < 4; i++) {
        largest = _mm256_max_ps(largest, _mm256_and_ps(magnitude, x[i]));
        wrong = _mm256_or_ps(wrong, _mm256_cmp_ps(x[i], x[i], _CMP_UNORD_Q));
    }
    return _mm256_movemask_ps(wrong) != 0 ? NAN : avx2_max(largest);
}

/* x[i] * id rounded to nearest even within -127 .. 127. */
CPU_AVX2_INLINE __m256i round_eight(__m256 x, __m256 id)
{
    __m256 scaled = _mm256_max_ps(_mm256_mul_ps(x, id), _mm256_set1_ps(-127));
    return _mm256_cvtps_epi32(_mm256_min_ps(scaled, _mm256_set1_ps(127)));
}

CPU_AVX2 static void quantize_row(const float *x, int64_t k, int8_t *quants, float *scales,
                                  float *sums)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); /* undoes the packs' lanes */
    for (int64_t b = 0; b < k / CPU_BLOCK; b++, x += CPU_BLOCK, quants += CPU_BLOCK) {
        __m256 v[4];
        for (int i = 0; i < 4; i++) {
            v[i] = _mm256_loadu_ps(x + 8 * i);
        }
        float largest = largest_magnitude(v);
        if (!isfinite(largest)) {
            memset(quants, 0, CPU_BLOCK);
            scales[b] = NAN;
            sums[b] = NAN;
            continue;
        }
        float d = largest / 127;
        __m256 id = _mm256_set1_ps(d == 0 ? 0 : 1 / d);
        __m256i q[4];
        for (int i = 0; i < 4; i++) {
            q[i] = round_eight(v[i], id);
        }
        __m256i sum = _mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3]));
        __m256i bytes =
            _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
        _mm256_storeu_si256((__m256i *)quants, _mm256_permutevar8x32_epi32(bytes, order));
        scales[b] = d;
        sums[b] = d * avx2_sum(_mm256_cvtepi32_ps(sum)); /* whole numbers: exact in any order */
    }
}

struct cpu_q8_rows cpu_quantize_rows(const struct assay_operand *x, int64_t tokens, int64_t k,
                                     void *scratch, const struct assay_exec *exec)
{
    int64_t blocks = k / CPU_BLOCK, begin = 0, end = tokens;
    bool shared = !alone(tokens, k);
    int8_t *quants = (int8_t *)scratch + (shared ? 0 : exec->thread) * copy_size(tokens, k);
    float *scales = (float *)(quants + tokens * k); /* k is whole blocks: stays aligned */
    float *sums = scales + tokens * blocks;
    if (shared) {
        assay_share(exec, tokens, 1, &begin, &end);
    }
    for (int64_t t = begin; t < end; t++) {
        quantize_row(cpu_row(x, t), k, quants + t * k, scales + t * blocks, sums + t * blocks);
    }
    if (shared) {
        cpu_barrier(exec);
    }
    return (struct cpu_q8_rows){quants, scales, sums};
}
