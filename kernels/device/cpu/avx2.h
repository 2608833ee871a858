/* Small vector helpers of the AVX2 rungs. */
#ifndef CPU_AVX2_H
#define CPU_AVX2_H

#include <stdint.h>
#include <string.h>

#include "device/cpu/isa.h"

/* The sum of eight lanes, always in the same order. */
CPU_AVX2_INLINE float avx2_sum(__m256 v)
{
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

CPU_AVX2_INLINE float avx2_max(__m256 v)
{
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

/* Lanes 0 .. count - 1 set, for masked loads and stores; count 0 .. 8. */
CPU_AVX2_INLINE __m256i avx2_mask(int64_t count)
{
    __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)count), lane);
}

/* Eight floats, or the `left` that a row still has and zeros. */
CPU_AVX2_INLINE __m256 avx2_load(const float *from, int64_t left)
{
    return left >= 8 ? _mm256_loadu_ps(from) : _mm256_maskload_ps(from, avx2_mask(left));
}

CPU_AVX2_INLINE void avx2_store(float *to, int64_t left, __m256 v)
{
    if (left >= 8) {
        _mm256_storeu_ps(to, v);
    } else {
        _mm256_maskstore_ps(to, avx2_mask(left), v);
    }
}

/* The fp16 at `stored`, which may lie at any address. */
CPU_AVX2_INLINE float avx2_f16(const void *stored)
{
    uint16_t half;
    memcpy(&half, stored, sizeof half);
    return _cvtsh_ss(half);
}

/* Four bytes at `bytes` in every lane. */
CPU_AVX2_INLINE __m256i avx2_four_bytes(const void *bytes)
{
    int32_t four;
    memcpy(&four, bytes, sizeof four);
    return _mm256_set1_epi32(four);
}

/* Keeps the compiler from gathering the sums around `v` into a tree: gcc reassociates integer
 * vector sums, delays all of them, and then spills what does not fit the sixteen registers. */
#define AVX2_PIN(v) __asm__("" : "+x"(v))

/* exp(x) within 2 ulp; 0 below -87.3 (results would be subnormal), infinity above 88.7, NaN stays.
 * 2^n times a polynomial on |r| <= ln 2 / 2, coefficients as in Cephes' expf (Moshier). */
CPU_AVX2_INLINE __m256 avx2_exp(__m256 x)
{
    const __m256 low = _mm256_set1_ps(-87.33654f), high = _mm256_set1_ps(89.0f);
    __m256 under = _mm256_cmp_ps(x, low, _CMP_LT_OQ);
    /* min and max return their second operand where one is NaN, so NaN passes. */
    __m256 bounded = _mm256_min_ps(high, _mm256_max_ps(low, x));
    __m256 n = _mm256_round_ps(_mm256_mul_ps(bounded, _mm256_set1_ps(1.44269504f)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    /* ln 2 in two parts, the first with few enough bits that n times it is exact. */
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), bounded);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
    __m256 p = _mm256_set1_ps(1.9875691500e-4f);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1f));
    p = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0f));
    /* n reaches 128, whose power does not fit the exponent: scale by two halves of n. */
    __m256i whole = _mm256_cvtps_epi32(n);
    __m256i half = _mm256_srai_epi32(whole, 1);
    __m256i rest = _mm256_sub_epi32(whole, half);
    __m256i bias = _mm256_set1_epi32(127);
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23)));
    p = _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23)));
    return _mm256_andnot_ps(under, p);
}

#endif
