/* argmax/cpu_avx2: eight logits an instruction, one row shared by all threads.
 *
 * A row is scanned in pieces of fixed length whose results meet after one barrier, in order: the
 * bits of the projection do not depend on the number of threads. Signs are bits in plan memory.
 * Logits that are not finite are only noticed here; a piece that has any is counted again. */
#include <math.h>

#include "device/cpu/avx2.h"
#include "device/cpu/rows.h"

#define PIECE 2048 /* columns, a multiple of 8 */

/* Per lane: the largest and the second largest logit so far, and the largest one's column. */
struct lanes {
    float first[8], second[8];
    int32_t id[8];
};

/* In the results of pieces `margin` holds the second largest logit. Lower ids win ties. */
static void merge(struct assay_top *top, int32_t id, float first, float second)
{
    bool wins =
        id >= 0 && (top->id < 0 || first > top->logit || (first == top->logit && id < top->id));
    float loser = wins ? top->logit : first;
    if (wins) {
        top->id = id;
        top->logit = first;
    }
    top->margin = fmaxf(fmaxf(top->margin, second), loser);
}

/* The slow way, for pieces with NaN or infinities. */
static void scan_special(const float *logits, int64_t begin, int64_t end, struct assay_top *top)
{
    top->id = -1;
    top->logit = top->margin = -INFINITY;
    for (int64_t i = begin; i < end; i++) {
        top->nonfinite += !isfinite(logits[i]);
        if (!isnan(logits[i])) {
            merge(top, (int32_t)i, logits[i], -INFINITY);
        }
    }
}

/* Columns [begin, end) of a row; begin is a multiple of 8. signs: one bit a column, 1 = minus. */
CPU_AVX2 static struct assay_top scan(const float *logits, const uint8_t *signs, int64_t begin,
                                      int64_t end)
{
    const __m256 none = _mm256_set1_ps(-INFINITY);
    const __m256i to_top = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
    __m256 first = none, second = none, special = _mm256_setzero_ps();
    __m256i id = _mm256_set1_epi32(-1);
    __m256i column = _mm256_add_epi32(_mm256_set1_epi32((int32_t)begin),
                                      _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256d sum[2] = {_mm256_setzero_pd(), _mm256_setzero_pd()};
    for (int64_t i = begin; i < end; i += 8) {
        __m256 x = avx2_load(logits + i, end - i);
        __m256i sign = _mm256_sllv_epi32(_mm256_set1_epi32(signs[i / 8]), to_top);
        sign = _mm256_and_si256(sign, _mm256_set1_epi32(INT32_MIN));
        __m256 turned = _mm256_xor_ps(x, _mm256_castsi256_ps(sign));
        sum[0] = _mm256_add_pd(sum[0], _mm256_cvtps_pd(_mm256_castps256_ps128(turned)));
        sum[1] = _mm256_add_pd(sum[1], _mm256_cvtps_pd(_mm256_extractf128_ps(turned, 1)));
        special = _mm256_or_ps(special, _mm256_sub_ps(x, x)); /* NaN unless x is finite */
        if (end - i < 8) { /* columns past the end must not win */
            x = _mm256_blendv_ps(none, x, _mm256_castsi256_ps(avx2_mask(end - i)));
        }
        __m256 above = _mm256_cmp_ps(x, first, _CMP_GT_OQ);
        second = _mm256_max_ps(second, _mm256_min_ps(x, first));
        first = _mm256_max_ps(x, first);
        id = _mm256_blendv_epi8(id, column, _mm256_castps_si256(above));
        column = _mm256_add_epi32(column, _mm256_set1_epi32(8));
    }
    double part[4];
    _mm256_storeu_pd(part, _mm256_add_pd(sum[0], sum[1]));
    struct assay_top top = {.id = -1, .logit = -INFINITY, .margin = -INFINITY};
    top.projection = (part[0] + part[1]) + (part[2] + part[3]);
    __m256i bits = _mm256_castps_si256(special);
    if (!_mm256_testz_si256(bits, bits)) {
        scan_special(logits, begin, end, &top);
        return top;
    }
    struct lanes lanes;
    _mm256_storeu_ps(lanes.first, first);
    _mm256_storeu_ps(lanes.second, second);
    _mm256_storeu_si256((__m256i *)lanes.id, id);
    for (int i = 0; i < 8; i++) {
        merge(&top, lanes.id[i], lanes.first[i], lanes.second[i]);
    }
    return top;
}

static int64_t pieces_of(const struct assay_shape *shape)
{
    return (shape->n + PIECE - 1) / PIECE;
}

static int run(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    int64_t pieces = pieces_of(shape), begin, end;
    struct assay_top *parts = launch->scratch;       /* (rows, pieces) */
    struct assay_top *out = launch->operand[1].data; /* (rows) */
    assay_share(exec, shape->tokens * pieces, 1, &begin, &end);
    for (int64_t item = begin; item < end; item++) {
        int64_t first = item % pieces * PIECE;
        int64_t last = shape->n - first < PIECE ? shape->n : first + PIECE;
        parts[item] = scan(cpu_row(&launch->operand[0], item / pieces), launch->plan, first, last);
    }
    cpu_barrier(exec);
    assay_share(exec, shape->tokens, 1, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        struct assay_top top = {.id = -1, .logit = -INFINITY, .margin = -INFINITY};
        for (int64_t i = 0; i < pieces; i++) {
            const struct assay_top *part = &parts[row * pieces + i];
            merge(&top, part->id, part->logit, part->margin);
            top.nonfinite += part->nonfinite;
            top.projection += part->projection;
        }
        top.margin = top.margin == -INFINITY ? INFINITY : top.logit - top.margin;
        out[row] = top;
    }
    return 0;
}

static size_t plan_size(const struct assay_problem *problem)
{
    return (size_t)((problem->node[0].n + 7) / 8);
}

static int plan(struct assay_launch *launch, struct as_error *error)
{
    (void)error;
    uint8_t *signs = launch->plan;
    memset(signs, 0, plan_size(launch->problem));
    for (int64_t i = 0; i < launch->problem->node[0].n; i++) {
        signs[i / 8] |= (uint8_t)((assay_sign(i) < 0) << (i % 8));
    }
    return 0;
}

static size_t scratch_size(const struct assay_problem *problem, int32_t threads)
{
    (void)threads;
    const struct assay_shape *shape = &problem->node[0];
    return (size_t)(shape->tokens * pieces_of(shape)) * sizeof(struct assay_top);
}

const struct assay_variant assay_variant_argmax_cpu_avx2 = {
    .name = "argmax/cpu_avx2",
    .idea = "eight logits an instruction, one row shared by all threads",
    .improves = "argmax/cpu_naive",
    .op = ASSAY_ARGMAX,
    .backend = ASSAY_CPU,
    .rung = 1,
    .flags = ASSAY_DEFAULT | ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT,
    .graph = ASSAY_GRAPH_ANY,
    .features = ASSAY_CPU_AVX2,
    .plan_size = plan_size,
    .scratch_size = scratch_size,
    .plan = plan,
    .run = run,
};
