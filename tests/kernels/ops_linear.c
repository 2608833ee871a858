/* linear: values by hand, rounding to Q8 bit by bit, extremes of the integer products, threads
 * and batches that must not change a bit. */
#include <math.h>

#include "device/cpu/quantize_rows.h"
#include "ops_common.h"

static struct assay_problem product(int64_t tokens, int64_t n, int64_t k, enum assay_dtype weights,
                                    enum assay_dtype activations)
{
    return (struct assay_problem){.nodes = 1,
                                  .node = {{.op = ASSAY_LINEAR,
                                            .tokens = tokens,
                                            .n = n,
                                            .k = k,
                                            .weights = weights,
                                            .activations = activations,
                                            .kv = ASSAY_NONE}}};
}

/* fp16 bits of small powers of two and their halves: 1.5 * 2^e. */
static uint16_t half_of(int exponent, bool and_a_half)
{
    return (uint16_t)((exponent + 15) << 10 | (and_a_half ? 512 : 0));
}

/* Stored blocks filled from a seed, with scales between 1/64 and 1.5/8. */
static void fill_blocks(uint8_t *blocks, enum assay_dtype dtype, int64_t count, uint64_t seed)
{
    int64_t bytes = assay_dtype(dtype)->bytes;
    for (int64_t b = 0; b < count; b++) {
        uint8_t *block = blocks + b * bytes;
        for (int64_t i = 0; i < bytes; i++)
            block[i] = (uint8_t)as_random_u64(seed, 7, (uint64_t)(b * bytes + i));
        uint64_t bits = as_random_u64(seed, 8, (uint64_t)b);
        uint16_t d = half_of(-6 + (int)(bits & 3), (bits & 4) != 0);
        uint16_t m = (uint16_t)(0x8000 | half_of(-4 + (int)(bits >> 3 & 3), (bits & 32) != 0));
        memcpy(block, &d, 2);
        if (dtype == ASSAY_Q4_1)
            memcpy(block + 2, &m, 2);
    }
}

static struct assay_operand stored_weight(enum assay_dtype dtype, int64_t n, int64_t k)
{
    struct as_error error = {0};
    uint8_t *data = as_calloc(&error, assay_row_bytes(dtype, k), (size_t)n, "a weight");
    if (dtype == ASSAY_F32) {
        for (int64_t i = 0; i < n * k; i++)
            ((float *)data)[i] = (float)as_random_normal(3, 3, (uint64_t)i);
    } else {
        fill_blocks(data, dtype, n * k / 32, 5);
    }
    return (struct assay_operand){data, dtype, n, k, k};
}

Test(ops_linear, float_values_by_hand)
{
    float w[2 * 32] = {0}, x[2 * 32] = {0}, y[4];
    w[0] = 2, w[31] = 3;   /* row 0 */
    w[32] = -1, w[40] = 4; /* row 1 */
    x[0] = 10, x[31] = 1, x[32 + 8] = 0.5f;
    struct assay_problem problem = product(2, 2, 32, ASSAY_F32, ASSAY_F32);
    struct assay_launch launch = {
        .problem = &problem,
        .operand = {ops_f32(x, 2, 32), ops_f32(w, 2, 32), ops_f32(y, 2, 2)},
        .operands = 3};
    OPS_EACH(variant, &problem)
    {
        ops_run(launch, variant, 1, 2);
        cr_assert(y[0] == 23 && y[1] == -10 && y[2] == 0 && y[3] == 2, "%s", variant->name);
    }
}

/* Nibbles in the stored order: low ones are elements 0..15, high ones 16..31. */
Test(ops_linear, nibbles_meet_their_columns)
{
    uint8_t w[20] = {0x00, 0x3c, 0x00, 0xbc}; /* d = 1, m = -1 */
    for (int i = 0; i < 16; i++)
        w[4 + i] = (uint8_t)(i | (15 - i) << 4);
    for (int q8 = 0; q8 < 2; q8++) {
        struct assay_problem problem = product(1, 1, 32, ASSAY_Q4_1, q8 ? ASSAY_Q8 : ASSAY_F32);
        for (int column = 0; column < 32; column++) {
            float x[32] = {0}, y = NAN;
            x[column] = 127; /* d = 1: exact in Q8 too */
            struct assay_launch launch = {
                .problem = &problem,
                .operand = {ops_f32(x, 1, 32), {w, ASSAY_Q4_1, 1, 32, 32}, ops_f32(&y, 1, 1)},
                .operands = 3};
            int nibble = column < 16 ? column : 31 - column;
            OPS_EACH(variant, &problem)
            {
                ops_run(launch, variant, 1, 1);
                cr_assert_eq(y, 127.0f * (float)(nibble - 1), "%s: column %d gives %g",
                             variant->name, column, (double)y);
            }
        }
    }
}

/* The largest sums of int8 products: nothing may saturate in 16 bits. */
Test(ops_linear, extremes_do_not_saturate)
{
    uint8_t q4_1[3 * 20], q8_0[3 * 34];
    float x[96], y;
    for (int b = 0; b < 3; b++) {
        memcpy(q4_1 + 20 * b, (const uint8_t[]){0x00, 0x3c, 0, 0}, 4);
        memset(q4_1 + 20 * b + 4, 0xff, 16);
        memcpy(q8_0 + 34 * b, (const uint8_t[]){0x00, 0x3c}, 2);
        memset(q8_0 + 34 * b + 2, 0x80, 32); /* -128 */
    }
    for (int sign = -1; sign <= 1; sign += 2) {
        for (int i = 0; i < 96; i++)
            x[i] = (float)(127 * sign);
        struct assay_problem problem = product(1, 1, 96, ASSAY_Q4_1, ASSAY_Q8);
        struct assay_launch launch = {
            .problem = &problem,
            .operand = {ops_f32(x, 1, 96), {q4_1, ASSAY_Q4_1, 1, 96, 96}, ops_f32(&y, 1, 1)},
            .operands = 3};
        OPS_EACH(variant, &problem)
        {
            ops_run(launch, variant, 1, 1);
            cr_assert_eq(y, (float)(sign * 96 * 15 * 127), "%s: %g", variant->name, (double)y);
        }
        problem.node[0].weights = ASSAY_Q8_0;
        launch.operand[1] = (struct assay_operand){q8_0, ASSAY_Q8_0, 1, 96, 96};
        OPS_EACH(variant, &problem)
        {
            ops_run(launch, variant, 1, 1);
            cr_assert_eq(y, (float)(sign * 96 * -128 * 127), "%s: %g", variant->name, (double)y);
        }
    }
}

/* What kernel.h says of ASSAY_Q8, once more and in as few words. */
static void round_block(const float *x, int8_t *quants, float *scale)
{
    float largest = 0;
    for (int i = 0; i < 32; i++)
        largest = fabsf(x[i]) > largest ? fabsf(x[i]) : largest;
    *scale = largest / 127.0f;
    float id = *scale == 0 ? 0 : 1.0f / *scale;
    for (int i = 0; i < 32; i++)
        quants[i] = (int8_t)nearbyintf(x[i] * id);
}

struct rounding {
    const struct assay_operand *x;
    void *scratch;
    struct cpu_q8_rows rows[8];
};

static void round_on_team(void *context, const struct assay_exec *exec)
{
    struct rounding *r = context;
    r->rows[exec->thread] = cpu_quantize_rows(r->x, r->x->rows, r->x->columns, r->scratch, exec);
}

static void check_rounding(int64_t tokens, int64_t k, int32_t threads)
{
    struct as_error error = {0};
    struct as_team *team;
    float *x = ops_normal(1, tokens * k);
    for (int64_t i = 0; i < 32 && tokens > 1; i++)
        x[k + i] = 0; /* an empty block */
    for (int64_t i = 0; i < 32; i++)
        x[(tokens - 1) * k + i] = (float)(i - 16) * 0.5f + (i == 0 ? -119.0f : 0); /* ties */
    struct assay_operand operand = ops_f32(x, tokens, k);
    struct rounding r = {.x = &operand};
    r.scratch = as_calloc_aligned(&error, cpu_quantize_rows_size(tokens, k, threads), 1, "rows");
    cr_assert_eq(as_team_create(&team, threads, NULL, &error), 0);
    as_team_run(team, round_on_team, &r);
    int8_t plain_quants[2048], want[32];
    float plain_scales[64], scale;
    for (int64_t t = 0; t < tokens; t++) {
        cpu_quantize_q8(x + t * k, k, plain_quants, plain_scales);
        for (int64_t b = 0; b < k / 32; b++) {
            round_block(x + t * k + b * 32, want, &scale);
            cr_assert_eq(memcmp(plain_quants + b * 32, want, 32), 0, "plain, row %d", (int)t);
            cr_assert_eq(memcmp(plain_scales + b, &scale, 4), 0);
            int total = 0;
            for (int i = 0; i < 32; i++)
                total += want[i];
            for (int32_t thread = 0; thread < threads; thread++) {
                const struct cpu_q8_rows *got = &r.rows[thread];
                cr_assert_eq(memcmp(got->quants + t * k + b * 32, want, 32), 0, "AVX2, row %d",
                             (int)t);
                cr_assert_eq(memcmp(got->scales + t * (k / 32) + b, &scale, 4), 0);
                cr_assert_eq(got->sums[t * (k / 32) + b], scale * (float)total);
            }
        }
    }
    as_team_free(team);
    free(r.scratch);
    free(x);
}

Test(ops_linear, q8_rounds_as_declared)
{
    if (!__builtin_cpu_supports("avx2"))
        cr_skip_test("no AVX2 here");
    check_rounding(1, 576, 1);
    check_rounding(1, 1536, 2);
    check_rounding(7, 576, 3);  /* a copy each */
    check_rounding(40, 576, 2); /* shared out */
    check_rounding(13, 1536, 3);
    check_rounding(2, 32, 3);
}

Test(ops_linear, nonfinite_inputs_stay_visible)
{
    float *x = ops_normal(2, 3 * 64), y[3 * 5];
    x[40] = NAN;
    x[64 + 3] = INFINITY;
    static const enum assay_dtype dtypes[] = {ASSAY_F32, ASSAY_Q8_0, ASSAY_Q4_1};
    for (int d = 0; d < 3; d++) {
        for (int q8 = 0; q8 < 2; q8++) {
            struct assay_problem problem = product(3, 5, 64, dtypes[d], q8 ? ASSAY_Q8 : ASSAY_F32);
            struct assay_operand weight = stored_weight(dtypes[d], 5, 64);
            struct assay_launch launch = {.problem = &problem,
                                          .operand = {ops_f32(x, 3, 64), weight, ops_f32(y, 3, 5)},
                                          .operands = 3};
            OPS_EACH(variant, &problem)
            {
                ops_run(launch, variant, 1, 2);
                for (int i = 0; i < 5; i++)
                    cr_assert(isnan(y[i]) && !isfinite(y[5 + i]) && isfinite(y[10 + i]), "%s",
                              variant->name);
            }
            free(weight.data);
        }
    }
    free(x);
}

/* Threads 1, 2, 3 and 5 give the same bits; so does each row alone and in every smaller batch
 * where the variant says so. */
static void check_invariance(enum assay_dtype dtype, bool q8, int64_t tokens, int64_t n, int64_t k)
{
    struct assay_problem problem = product(tokens, n, k, dtype, q8 ? ASSAY_Q8 : ASSAY_F32);
    struct assay_operand weight = stored_weight(dtype, n, k);
    float *x = ops_normal(9, tokens * k);
    float *first = ops_normal(0, tokens * n), *again = ops_normal(0, tokens * n);
    size_t bytes = (size_t)(tokens * n) * sizeof *first;
    struct assay_launch launch = {
        .problem = &problem,
        .operand = {ops_f32(x, tokens, k), weight, ops_f32(first, tokens, n)},
        .operands = 3};
    OPS_EACH(variant, &problem)
    {
        cr_assert(variant->flags & ASSAY_DETERMINISTIC, "%s", variant->name);
        problem.node[0].tokens = tokens;
        launch.operand[2].data = first;
        ops_run(launch, variant, 1, 1);
        launch.operand[2].data = again;
        for (int32_t threads = 2; threads <= 5; threads++) {
            memset(again, 0xff, bytes);
            ops_run(launch, variant, 1, threads);
            cr_assert_eq(memcmp(first, again, bytes), 0, "%s: %d threads", variant->name, threads);
        }
        for (int64_t batch = 1; batch < tokens; batch++) {
            if ((variant->flags & ASSAY_BATCH_INVARIANT) == 0)
                break;
            problem.node[0].tokens = batch; /* the last `batch` rows */
            struct assay_launch part = launch;
            part.operand[0].data = x + (tokens - batch) * k;
            part.operand[2].data = again + (tokens - batch) * n;
            memset(again, 0xff, bytes);
            ops_run(part, variant, 1, 2);
            cr_assert_eq(memcmp(first + (tokens - batch) * n, part.operand[2].data,
                                (size_t)(batch * n) * sizeof *first),
                         0, "%s: %d of %d rows", variant->name, (int)batch, (int)tokens);
        }
    }
    free(weight.data);
    free(x);
    free(first);
    free(again);
}

Test(ops_linear, bits_depend_on_neither_threads_nor_batch)
{
    static const enum assay_dtype dtypes[] = {ASSAY_F32, ASSAY_Q8_0, ASSAY_Q4_1};
    for (int d = 0; d < 3; d++)
        for (int q8 = 0; q8 < 2; q8++) {
            check_invariance(dtypes[d], q8 == 1, 9, 37, 96);
            check_invariance(dtypes[d], q8 == 1, 5, 200, 1024); /* around the copied rows */
        }
}

/* Packing in pieces of 64 rows equals packing at once, and n need not fill the last group. */
Test(ops_linear, packing_in_pieces)
{
    struct as_error error = {0};
    static const enum assay_dtype dtypes[] = {ASSAY_Q8_0, ASSAY_Q4_1};
    for (int d = 0; d < 2; d++) {
        struct assay_problem problem = product(1, 150, 64, dtypes[d], ASSAY_Q8);
        struct assay_operand weight = stored_weight(dtypes[d], 150, 64);
        OPS_EACH(variant, &problem)
        {
            if (variant->weight_layout == NULL)
                continue;
            size_t bytes = variant->packed_size(dtypes[d], 150, 64);
            cr_assert(bytes >= assay_row_bytes(dtypes[d], 64) * 150);
            cr_assert(bytes < assay_row_bytes(dtypes[d], 64) * 150 * 11 / 10);
            char *whole = as_calloc(&error, bytes, 1, "a copy");
            char *pieces = as_calloc(&error, bytes, 1, "a copy");
            variant->pack(whole, weight.data, dtypes[d], 150, 64, 0, 150);
            for (int64_t row = 128; row >= 0; row -= 64)
                variant->pack(pieces, weight.data, dtypes[d], 150, 64, row,
                              row + 64 < 150 ? row + 64 : 150);
            cr_assert_eq(memcmp(whole, pieces, bytes), 0, "%s", variant->name);
            free(whole);
            free(pieces);
        }
        free(weight.data);
    }
}
