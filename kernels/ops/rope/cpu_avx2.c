/* rope/cpu_avx2: sines and cosines once a token instead of once a head, by polynomials.
 *
 * The frequencies are kept in plan memory; angles, their reduction to a quarter turn and the
 * polynomials are in double, four pairs at a time, so that a late position costs no precision.
 * The turning itself is two multiplications of eight floats. */
#include <math.h>

#include "device/cpu/avx2.h"
#include "device/cpu/rows.h"

/* Floats of a token's table: cosines, then sines, each with room for whole vectors. */
static int32_t table_length(int32_t rotary)
{
    return (rotary + 7) / 8 * 8;
}

/* Cosine and sine of |angle| < 2^26 within 1e-10. The quarter turn is subtracted in two parts
 * (fdlibm's pio2_1 and the rest); Taylor's series then have |r| <= pi / 4. */
CPU_AVX2_INLINE void cosine_sine(__m256d angle, __m128 *cosine, __m128 *sine)
{
    __m256d turns = _mm256_round_pd(_mm256_mul_pd(angle, _mm256_set1_pd(0.6366197723675814)),
                                    _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256d r = _mm256_fnmadd_pd(turns, _mm256_set1_pd(1.57079632673412561417e+00), angle);
    r = _mm256_fnmadd_pd(turns, _mm256_set1_pd(6.07710050650619224932e-11), r);
    __m256d z = _mm256_mul_pd(r, r);
    __m256d s = _mm256_set1_pd(-1.0 / 39916800);
    s = _mm256_fmadd_pd(s, z, _mm256_set1_pd(1.0 / 362880));
    s = _mm256_fmadd_pd(s, z, _mm256_set1_pd(-1.0 / 5040));
    s = _mm256_fmadd_pd(s, z, _mm256_set1_pd(1.0 / 120));
    s = _mm256_fmadd_pd(s, z, _mm256_set1_pd(-1.0 / 6));
    s = _mm256_fmadd_pd(_mm256_mul_pd(s, z), r, r);
    __m256d c = _mm256_set1_pd(1.0 / 479001600);
    c = _mm256_fmadd_pd(c, z, _mm256_set1_pd(-1.0 / 3628800));
    c = _mm256_fmadd_pd(c, z, _mm256_set1_pd(1.0 / 40320));
    c = _mm256_fmadd_pd(c, z, _mm256_set1_pd(-1.0 / 720));
    c = _mm256_fmadd_pd(c, z, _mm256_set1_pd(1.0 / 24));
    c = _mm256_fmadd_pd(c, z, _mm256_set1_pd(-0.5));
    c = _mm256_fmadd_pd(c, z, _mm256_set1_pd(1.0));
    /* Odd quarter turns swap the two; bit 1 of turns (+1 for the cosine) is the sign. */
    __m128i quarter = _mm256_cvtpd_epi32(turns);
    __m128 swap = _mm_castsi128_ps(_mm_slli_epi32(quarter, 31));
    __m128 sine_sign = _mm_castsi128_ps(_mm_slli_epi32(_mm_srli_epi32(quarter, 1), 31));
    __m128i next = _mm_add_epi32(quarter, _mm_set1_epi32(1));
    __m128 cosine_sign = _mm_castsi128_ps(_mm_slli_epi32(_mm_srli_epi32(next, 1), 31));
    __m128 cs = _mm256_cvtpd_ps(c), ss = _mm256_cvtpd_ps(s);
    *cosine = _mm_xor_ps(_mm_blendv_ps(cs, ss, swap), cosine_sign);
    *sine = _mm_xor_ps(_mm_blendv_ps(ss, cs, swap), sine_sign);
}

/* Fills the table of one token: HALVES one entry a pair; ADJACENT each entry twice, the first sine
 * of a pair negated, so that y = x cosines + swapped x sines. */
CPU_AVX2 static void fill_table(const double *frequency, int32_t position, int32_t rotary,
                                enum assay_rope_pairing pairing, float *cosines, float *sines)
{
    for (int32_t i = 0; i < rotary / 2; i += 4) {
        __m128 c, s;
        __m256d angle = _mm256_mul_pd(_mm256_set1_pd(position), _mm256_loadu_pd(frequency + i));
        cosine_sine(angle, &c, &s);
        if (pairing == ASSAY_ROPE_HALVES) {
            _mm_storeu_ps(cosines + i, c);
            _mm_storeu_ps(sines + i, s);
            continue;
        }
        __m128 negative = _mm_xor_ps(s, _mm_set1_ps(-0.0f));
        _mm_storeu_ps(cosines + 2 * i, _mm_unpacklo_ps(c, c));
        _mm_storeu_ps(cosines + 2 * i + 4, _mm_unpackhi_ps(c, c));
        _mm_storeu_ps(sines + 2 * i, _mm_unpacklo_ps(negative, s));
        _mm_storeu_ps(sines + 2 * i + 4, _mm_unpackhi_ps(negative, s));
    }
}

CPU_AVX2 static void turn_adjacent(const float *x, const float *cosines, const float *sines,
                                   int32_t rotary, float *y)
{
    for (int32_t i = 0; i < rotary; i += 8) {
        __m256 v = avx2_load(x + i, rotary - i);
        __m256 swapped = _mm256_permute_ps(v, 0xb1); /* 1 0 3 2 */
        __m256 turned = _mm256_mul_ps(v, _mm256_loadu_ps(cosines + i));
        turned = _mm256_fmadd_ps(swapped, _mm256_loadu_ps(sines + i), turned);
        avx2_store(y + i, rotary - i, turned);
    }
}

CPU_AVX2 static void turn_halves(const float *x, const float *cosines, const float *sines,
                                 int32_t rotary, float *y)
{
    int32_t half = rotary / 2;
    for (int32_t i = 0; i < half; i += 8) {
        int32_t left = half - i;
        __m256 a = avx2_load(x + i, left), b = avx2_load(x + half + i, left);
        __m256 c = _mm256_loadu_ps(cosines + i), s = _mm256_loadu_ps(sines + i);
        avx2_store(y + i, left, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
        avx2_store(y + half + i, left, _mm256_fmadd_ps(a, s, _mm256_mul_ps(b, c)));
    }
}

static int run(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    int32_t length = table_length(shape->rotary), still = shape->head_dim - shape->rotary;
    float *cosines = (float *)launch->scratch + 2 * exec->thread * (int64_t)length;
    float *sines = cosines + length;
    int64_t begin, end, filled = -1;
    assay_share(exec, shape->tokens * shape->heads, 1, &begin, &end);
    for (int64_t item = begin; item < end; item++) {
        int64_t t = item / shape->heads, at = item % shape->heads * shape->head_dim;
        const float *x = cpu_row(&launch->operand[0], t) + at; /* (head_dim) */
        float *y = cpu_row(&launch->operand[1], t) + at;       /* (head_dim) */
        if (t != filled) {
            fill_table(launch->plan, launch->metadata->positions[t], shape->rotary, shape->pairing,
                       cosines, sines);
            filled = t;
        }
        if (shape->pairing == ASSAY_ROPE_ADJACENT) {
            turn_adjacent(x, cosines, sines, shape->rotary, y);
        } else {
            turn_halves(x, cosines, sines, shape->rotary, y);
        }
        if (still > 0) {
            memmove(y + shape->rotary, x + shape->rotary, (size_t)still * sizeof *y);
        }
    }
    return 0;
}

/* The frequencies, in whole vectors of four. */
static size_t plan_size(const struct assay_problem *problem)
{
    return (size_t)table_length(problem->node[0].rotary) * sizeof(double);
}

static int plan(struct assay_launch *launch, struct as_error *error)
{
    (void)error;
    const struct assay_shape *shape = &launch->problem->node[0];
    double *frequency = launch->plan;
    for (int32_t i = 0; i < table_length(shape->rotary); i++) {
        bool used = i < shape->rotary / 2;
        frequency[i] = used ? pow(shape->theta, -2.0 * i / shape->rotary) : 0;
    }
    return 0;
}

static size_t scratch_size(const struct assay_problem *problem, int32_t threads)
{
    size_t length = (size_t)table_length(problem->node[0].rotary);
    return (size_t)threads * 2 * length * sizeof(float);
}

const struct assay_variant assay_variant_rope_cpu_avx2 = {
    .name = "rope/cpu_avx2",
    .idea = "sines and cosines once a token, by polynomials in double",
    .improves = "rope/cpu_naive",
    .op = ASSAY_ROPE,
    .backend = ASSAY_CPU,
    .rung = 1,
    .flags = ASSAY_DEFAULT | ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT | ASSAY_IN_PLACE,
    .graph = ASSAY_GRAPH_ANY,
    .features = ASSAY_CPU_AVX2,
    .plan_size = plan_size,
    .scratch_size = scratch_size,
    .plan = plan,
    .run = run,
};
