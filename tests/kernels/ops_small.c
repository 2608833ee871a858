/* The small ops by hand: every variant of each, one and three threads. */
#include <math.h>

#include "device/cpu/avx2.h"
#include "ops_common.h"

#define NEAR(got, want, name)                                                         \
    cr_assert(fabsf((got) - (float)(want)) <= 2e-6f * fmaxf(1, fabsf((float)(want))), \
              "%s: %.9g, expected %.9g", name, (double)(got), (double)(want))

static struct assay_problem problem_of(struct assay_shape shape)
{
    shape.kv = shape.kv == 0 ? ASSAY_F32 : shape.kv;
    return (struct assay_problem){.nodes = 1, .node = {shape}};
}

Test(ops_small, embedding_takes_rows_and_padding_stays_finite)
{
    struct assay_problem problem =
        problem_of((struct assay_shape){.op = ASSAY_EMBEDDING, .tokens = 4, .n = 2});
    int32_t ids[4] = {2, 0, -1, 2};
    float table[6] = {1, 2, 3, 4, 5, 6}, y[8];
    struct assay_launch launch = {
        .problem = &problem,
        .operand = {{ids, ASSAY_I32, 4, 1, 1}, ops_f32(table, 3, 2), ops_f32(y, 4, 2)},
        .operands = 3};
    const float want[8] = {5, 6, 1, 2, 0, 0, 5, 6};
    OPS_EACH(variant, &problem)
    {
        memset(y, 0xff, sizeof y);
        ops_run(launch, variant, 1, 3);
        cr_assert_eq(memcmp(y, want, sizeof y), 0, "%s", variant->name);
    }
}

Test(ops_small, embedding_dequantises_as_the_formats_say)
{
    uint8_t q8_0[34] = {0x00, 0x38};             /* d = 0.5 */
    uint8_t q4_1[20] = {0x00, 0x38, 0x00, 0xc0}; /* d = 0.5, m = -2 */
    q8_0[2] = 3;
    q8_0[33] = (uint8_t)-128;
    q4_1[4] = 0xf1; /* element 0 is 1, element 16 is 15 */
    int32_t id = 0;
    float y[32];
    struct assay_problem problem = problem_of(
        (struct assay_shape){.op = ASSAY_EMBEDDING, .tokens = 1, .n = 32, .weights = ASSAY_Q8_0});
    struct assay_launch launch = {
        .problem = &problem,
        .operand = {{&id, ASSAY_I32, 1, 1, 1}, {q8_0, ASSAY_Q8_0, 1, 32, 32}, ops_f32(y, 1, 32)},
        .operands = 3};
    OPS_EACH(variant, &problem)
    {
        ops_run(launch, variant, 1, 1);
        cr_assert(y[0] == 1.5f && y[1] == 0 && y[31] == -64, "%s", variant->name);
    }
    problem.node[0].weights = ASSAY_Q4_1;
    launch.operand[1] = (struct assay_operand){q4_1, ASSAY_Q4_1, 1, 32, 32};
    OPS_EACH(variant, &problem)
    {
        ops_run(launch, variant, 1, 1);
        cr_assert(y[0] == -1.5f && y[1] == -2 && y[16] == 5.5f && y[17] == -2, "%s", variant->name);
    }
}

Test(ops_small, rms_norm_in_place)
{
    struct assay_problem problem =
        problem_of((struct assay_shape){.op = ASSAY_RMS_NORM, .tokens = 2, .n = 9});
    float weight[9] = {1, 1, 2, 1, 1, 1, 1, 1, -1};
    OPS_EACH(variant, &problem)
    {
        float x[18] = {3, 4, 12, 0, 0, 0, 0, 0, 13}; /* squares sum to 338; the second row is 0 */
        struct assay_launch launch = {
            .problem = &problem,
            .operand = {ops_f32(x, 2, 9), ops_f32(weight, 1, 9), ops_f32(x, 2, 9)},
            .operands = 3};
        problem.node[0].epsilon = 1e-6f;
        ops_run(launch, variant, -1, 2);
        double scale = 1 / sqrt(338.0 / 9 + 1e-6);
        NEAR(x[0], 3 * scale, variant->name);
        NEAR(x[2], 24 * scale, variant->name);
        NEAR(x[8], -13 * scale, variant->name);
        cr_assert_eq(x[9], 0, "%s", variant->name);
    }
}

Test(ops_small, add_rms_norm_gives_both)
{
    const struct assay_variant *first = NULL;
    for (int i = 0; as_builtin_variants[i] != NULL; i++)
        if (strncmp(as_builtin_variants[i]->name, "add_rms_norm/", 13) == 0)
            first = as_builtin_variants[i];
    cr_assert_not_null(first);
    struct assay_problem problem = {
        .cover = first->cover,
        .nodes = 2,
        .node = {{.op = ASSAY_ADD, .tokens = 2, .n = 2},
                 {.op = ASSAY_RMS_NORM, .tokens = 2, .n = 2, .epsilon = 0}}};
    float a[4] = {1, 2, 3, 3}, b[4] = {2, 2, 1, -3}, weight[2] = {1, 10}, sum[4], y[4];
    struct assay_launch launch = {.problem = &problem,
                                  .operand = {ops_f32(a, 2, 2), ops_f32(b, 2, 2),
                                              ops_f32(weight, 1, 2), ops_f32(sum, 2, 2),
                                              ops_f32(y, 2, 2)},
                                  .operands = 5};
    OPS_EACH(variant, &problem)
    {
        ops_run(launch, variant, -1, 3);
        cr_assert(sum[0] == 3 && sum[1] == 4 && sum[2] == 4 && sum[3] == 0, "%s", variant->name);
        NEAR(y[0], 3 / sqrt(12.5), variant->name);
        NEAR(y[1], 40 / sqrt(12.5), variant->name);
        NEAR(y[2], sqrt(2.0), variant->name);
        cr_assert_eq(y[3], 0);
    }
}

Test(ops_small, add_and_silu_mul_with_strides)
{
    float a[12] = {1, 2, 99, 3, 4, 99, -200, 200, 99, 0, -1, 99};
    float b[12] = {10, 20, 99, 30, 40, 99, 2, 2, 99, 5, 1, 99}, y[12];
    struct assay_problem problem =
        problem_of((struct assay_shape){.op = ASSAY_ADD, .tokens = 4, .n = 2});
    struct assay_launch launch = {
        .problem = &problem,
        .operand = {{a, ASSAY_F32, 4, 2, 3}, {b, ASSAY_F32, 4, 2, 3}, {y, ASSAY_F32, 4, 2, 3}},
        .operands = 3};
    OPS_EACH(variant, &problem)
    {
        memset(y, 0, sizeof y);
        ops_run(launch, variant, -1, 3);
        for (int i = 0; i < 12; i++)
            cr_assert_eq(y[i], i % 3 == 2 ? 0 : a[i] + b[i], "%s", variant->name);
    }
    problem.node[0].op = ASSAY_SILU_MUL;
    OPS_EACH(variant, &problem)
    {
        memset(y, 0, sizeof y);
        ops_run(launch, variant, -1, 3);
        for (int i = 0; i < 12; i++)
            NEAR(y[i], i % 3 == 2 ? 0 : a[i] / (1 + exp(-(double)a[i])) * b[i], variant->name);
    }
}

/* head_dim 6, of which 4 turn: theta 100 makes the second pair ten times slower. */
Test(ops_small, rope_turns_pairs_both_ways)
{
    int32_t positions[2] = {0, 3};
    struct assay_metadata metadata = {.tokens = 2, .positions = positions};
    struct assay_problem problem = problem_of((struct assay_shape){.op = ASSAY_ROPE,
                                                                   .tokens = 2,
                                                                   .n = 6,
                                                                   .heads = 1,
                                                                   .head_dim = 6,
                                                                   .rotary = 4,
                                                                   .theta = 100});
    double c = cos(3), s = sin(3), c2 = cos(0.3), s2 = sin(0.3);
    for (int halves = 0; halves < 2; halves++) {
        problem.node[0].pairing = halves ? ASSAY_ROPE_HALVES : ASSAY_ROPE_ADJACENT;
        int second = halves ? 2 : 1, third = halves ? 1 : 2;
        OPS_EACH(variant, &problem)
        {
            float x[12] = {1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6};
            struct assay_launch launch = {.problem = &problem,
                                          .operand = {ops_f32(x, 2, 6), ops_f32(x, 2, 6)},
                                          .operands = 2,
                                          .metadata = &metadata};
            ops_run(launch, variant, -1, 2);
            for (int i = 0; i < 6; i++)
                cr_assert_eq(x[i], i + 1, "%s", variant->name); /* position 0 */
            float *y = x + 6;
            NEAR(y[0], 1 * c - (1 + second) * s, variant->name);
            NEAR(y[second], 1 * s + (1 + second) * c, variant->name);
            NEAR(y[third], (1 + third) * c2 - 4 * s2, variant->name);
            NEAR(y[3], (1 + third) * s2 + 4 * c2, variant->name);
            cr_assert(y[4] == 5 && y[5] == 6, "%s", variant->name);
        }
    }
}

/* A late position must not lose precision: float32 angles would be off by 4e-3 here. */
Test(ops_small, rope_at_position_100000)
{
    int32_t position = 100000;
    struct assay_metadata metadata = {.tokens = 1, .positions = &position};
    struct assay_problem problem = problem_of((struct assay_shape){.op = ASSAY_ROPE,
                                                                   .tokens = 1,
                                                                   .n = 64,
                                                                   .heads = 1,
                                                                   .head_dim = 64,
                                                                   .rotary = 64,
                                                                   .theta = 10000});
    OPS_EACH(variant, &problem)
    {
        float x[64];
        for (int i = 0; i < 64; i++)
            x[i] = i % 2 == 0;
        struct assay_launch launch = {.problem = &problem,
                                      .operand = {ops_f32(x, 1, 64), ops_f32(x, 1, 64)},
                                      .operands = 2,
                                      .metadata = &metadata};
        ops_run(launch, variant, -1, 1);
        for (int i = 0; i < 32; i++) {
            double angle = position * pow(10000, -2.0 * i / 64);
            cr_assert_float_eq(x[2 * i], cos(angle), 1e-7, "%s", variant->name);
            cr_assert_float_eq(x[2 * i + 1], sin(angle), 1e-7, "%s", variant->name);
        }
    }
}

Test(ops_small, select_rows_in_any_order)
{
    int32_t wanted[3] = {3, 0, 3};
    struct assay_metadata metadata = {.tokens = 4, .logit_rows = 3, .logit_row = wanted};
    struct assay_problem problem =
        problem_of((struct assay_shape){.op = ASSAY_SELECT_ROWS, .tokens = 3, .n = 1});
    float x[4] = {1, 2, 3, 4}, y[3];
    struct assay_launch launch = {.problem = &problem,
                                  .operand = {ops_f32(x, 4, 1), ops_f32(y, 3, 1)},
                                  .operands = 2,
                                  .metadata = &metadata};
    OPS_EACH(variant, &problem)
    {
        ops_run(launch, variant, -1, 2);
        cr_assert(y[0] == 4 && y[1] == 1 && y[2] == 4, "%s", variant->name);
    }
}

static void check_top(const float *logits, int64_t n, struct assay_top want)
{
    struct assay_problem problem =
        problem_of((struct assay_shape){.op = ASSAY_ARGMAX, .tokens = 1, .n = n});
    struct assay_top top;
    float copy[5000];
    memcpy(copy, logits, (size_t)n * sizeof copy[0]);
    struct assay_launch launch = {.problem = &problem,
                                  .operand = {ops_f32(copy, 1, n), {&top, ASSAY_TOP, 1, 1, 1}},
                                  .operands = 2};
    for (int64_t i = 0; i < n; i++)
        want.projection += assay_sign(i) * logits[i];
    for (int32_t threads = 1; threads <= 3; threads++) {
        OPS_EACH(variant, &problem)
        {
            ops_run(launch, variant, -1, threads);
            cr_assert_eq(top.id, want.id, "%s: id %d, not %d", variant->name, top.id, want.id);
            cr_assert_eq(top.nonfinite, want.nonfinite, "%s", variant->name);
            cr_assert(top.logit == want.logit, "%s", variant->name);
            cr_assert(top.margin == want.margin, "%s: margin %g", variant->name,
                      (double)top.margin);
            cr_assert(isnan(want.projection)
                          ? isnan(top.projection)
                          : isinf(want.projection) || fabs(top.projection - want.projection) < 1e-9,
                      "%s: projection %g, not %g", variant->name, top.projection, want.projection);
        }
    }
}

Test(ops_small, argmax_ties_and_margins)
{
    check_top((const float[]){5}, 1, (struct assay_top){0, 0, 5, INFINITY, 0});
    check_top((const float[]){-3, 2, 2, 1}, 4, (struct assay_top){1, 0, 2, 0, 0});
    check_top((const float[]){7, 7}, 2, (struct assay_top){0, 0, 7, 0, 0});
    float row[5000];
    for (int i = 0; i < 5000; i++)
        row[i] = (float)(i % 97) * -0.25f - 1;
    row[4321] = 4;
    row[2047] = 3.5f;
    check_top(row, 5000, (struct assay_top){4321, 0, 4, 0.5f, 0});
    row[2048] = 4; /* the same in an earlier piece */
    check_top(row, 5000, (struct assay_top){2048, 0, 4, 0, 0});
    check_top(row, 2048, (struct assay_top){2047, 0, 3.5f, 4.5f, 0});
    row[16] = row[9] = row[3000] = 5; /* a lower id in a higher lane, a higher id in another */
    check_top(row, 5000, (struct assay_top){9, 0, 5, 0, 0});
}

/* C32: a NaN never wins, and is counted. */
Test(ops_small, argmax_of_nonfinite_rows)
{
    check_top((const float[]){NAN, 1, 3, NAN}, 4, (struct assay_top){2, 2, 3, 2, 0});
    check_top((const float[]){NAN, NAN}, 2, (struct assay_top){-1, 2, -INFINITY, INFINITY, 0});
    check_top((const float[]){1, INFINITY, 0}, 3, (struct assay_top){1, 1, INFINITY, INFINITY, 0});
    check_top((const float[]){-INFINITY, -INFINITY, 2}, 3,
              (struct assay_top){2, 2, 2, INFINITY, 0});
    check_top((const float[]){-INFINITY, -INFINITY}, 2,
              (struct assay_top){0, 2, -INFINITY, INFINITY, 0});
}

CPU_AVX2 static float exp_by_vector(float x)
{
    return _mm256_cvtss_f32(avx2_exp(_mm256_set1_ps(x)));
}

Test(ops_small, vector_exponential)
{
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        cr_skip_test("no AVX2 here");
    for (float x = -87.25f; x < 88.7f; x += 0.001953125f) {
        double want = exp((double)x), got = exp_by_vector(x);
        cr_assert(fabs(got - want) <= 2.4e-7 * want, "exp(%g) = %.9g, not %.9g", (double)x, got,
                  want);
    }
    cr_assert_eq(exp_by_vector(0), 1);
    cr_assert_eq(exp_by_vector(-INFINITY), 0);
    cr_assert_eq(exp_by_vector(-1000), 0);
    cr_assert_eq(exp_by_vector(INFINITY), INFINITY);
    cr_assert_eq(exp_by_vector(89), INFINITY);
    cr_assert(isnan(exp_by_vector(NAN)));
}

Test(ops_small, signs_are_fixed)
{
    int minus = 0;
    for (int64_t i = 0; i < 49152; i++) {
        cr_assert(assay_sign(i) == ((as_mix64((uint64_t)i) & 1) != 0 ? -1.0 : 1.0));
        minus += assay_sign(i) < 0;
    }
    cr_assert(minus > 24000 && minus < 25152, "%d of 49152 are negative", minus);
}

Test(ops_small, dtypes_know_their_blocks)
{
    cr_assert_eq(assay_row_bytes(ASSAY_Q4_1, 576), 576 / 32 * 20);
    cr_assert_eq(assay_row_bytes(ASSAY_Q8_0, 576), 576 / 32 * 34);
    cr_assert_eq(assay_row_bytes(ASSAY_Q6_K, 512), 420);
    cr_assert_eq(assay_row_bytes(ASSAY_BF16, 3), 6);
    cr_assert_str_eq(assay_dtype(ASSAY_NONE)->name, "none");
    cr_assert_str_eq(assay_dtype((enum assay_dtype)99)->name, "none");
}

Test(ops_small, no_rows_write_nothing)
{
    static const enum assay_op ops[] = {
        ASSAY_EMBEDDING, ASSAY_RMS_NORM,  ASSAY_LINEAR,   ASSAY_ADD,         ASSAY_ROPE,
        ASSAY_KV_WRITE,  ASSAY_ATTENTION, ASSAY_SILU_MUL, ASSAY_SELECT_ROWS, ASSAY_ARGMAX};
    int32_t zero = 0;
    struct assay_metadata metadata = {.cu_query = &zero};
    struct assay_kv_cache cache = {
        .dtype = ASSAY_F32, .block_size = 16, .kv_heads = 1, .head_dim = 32};
    float weight[2048] = {0};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        for (int q8 = 0; q8 < 2; q8++) {
            struct assay_problem problem =
                problem_of((struct assay_shape){.op = ops[i],
                                                .n = 32,
                                                .k = 32,
                                                .heads = 1,
                                                .kv_heads = 1,
                                                .head_dim = 32,
                                                .rotary = 32,
                                                .theta = 100,
                                                .block_size = 16,
                                                .causal = true,
                                                .weights = q8 ? ASSAY_Q8_0 : ASSAY_F32,
                                                .activations = q8 ? ASSAY_Q8 : ASSAY_F32});
            bool norm = ops[i] == ASSAY_RMS_NORM, product = ops[i] == ASSAY_LINEAR;
            struct assay_launch launch = {
                .problem = &problem,
                .operand = {ops_f32(NULL, 0, 32), ops_f32(NULL, 0, 32), ops_f32(NULL, 0, 32)},
                .operands = 3,
                .metadata = &metadata,
                .cache = &cache};
            if (norm || product)
                launch.operand[1] =
                    (struct assay_operand){weight, problem.node[0].weights, norm ? 1 : 32, 32, 32};
            OPS_EACH(variant, &problem)
            {
                ops_run(launch, variant, product ? 1 : -1, 2);
            }
        }
    }
}
