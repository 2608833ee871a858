/* The ops against PyTorch in float64, and against what their definitions say of edges. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "as_random.h"
#include "reference.h"

static json_t *golden;

static void load(void)
{
    json_error_t error;
    golden = json_load_file(ASSAY_SOURCE_DIR "/tests/golden/ops/ops.json", 0, &error);
    cr_assert(golden != NULL, "ops.json: %s", error.text);
}

static void unload(void)
{
    json_decref(golden);
}

/* The n-th case of an op. */
static const json_t *find(const char *op, int n)
{
    size_t index;
    json_t *entry;
    json_array_foreach(json_object_get(golden, "cases"), index, entry)
    {
        if (strcmp(json_string_value(json_object_get(entry, "op")), op) == 0 && n-- == 0)
            return entry;
    }
    cr_assert_fail("no golden for %s", op);
    return NULL;
}

static int64_t integer(const json_t *entry, const char *member)
{
    return json_integer_value(json_object_get(entry, member));
}

/* The numbers of a member; freed by the caller. */
static double *numbers(const json_t *entry, const char *member)
{
    const json_t *array = json_object_get(entry, member);
    cr_assert(json_is_array(array), "no member %s", member);
    double *out = calloc(json_array_size(array) + 1, sizeof *out);
    for (size_t i = 0; i < json_array_size(array); i++)
        out[i] = json_number_value(json_array_get(array, i));
    return out;
}

/* Frees both. */
static void expect(const json_t *entry, double *got)
{
    double *wanted = numbers(entry, "out");
    size_t count = json_array_size(json_object_get(entry, "out"));
    for (size_t i = 0; i < count; i++)
        cr_assert(fabs(got[i] - wanted[i]) <= 1e-15 + 2e-14 * fabs(wanted[i]),
                  "%s, element %zu: %.17g, want %.17g",
                  json_string_value(json_object_get(entry, "op")), i, got[i], wanted[i]);
    free(wanted);
    free(got);
}

TestSuite(ops, .init = load, .fini = unload);

Test(ops, gelu_and_silu_agree_with_torch)
{
    const json_t *entry = find("gelu_tanh", 0);
    int64_t count = (int64_t)json_array_size(json_object_get(entry, "out"));
    double *x = numbers(entry, "x");
    as_ref_gelu(AS_REF_GELU_TANH, x, count, x);
    expect(entry, x);
    entry = find("silu_mul", 0);
    double *up = numbers(entry, "up");
    x = numbers(entry, "x");
    as_ref_silu_mul(x, up, count, x);
    expect(entry, x);
    free(up);
}

/* torch computes 1 + erf, which cancels far on the left; relative to x it is exact. */
Test(ops, gelu_erf_agrees_with_torch)
{
    const json_t *entry = find("gelu_erf", 0);
    size_t count = json_array_size(json_object_get(entry, "out"));
    double *x = numbers(entry, "x"), *wanted = numbers(entry, "out"), out;
    for (size_t i = 0; i < count; i++) {
        as_ref_gelu(AS_REF_GELU_ERF, x + i, 1, &out);
        cr_assert(fabs(out - wanted[i]) <= 2e-16 * fabs(x[i]) + 1e-15 * fabs(wanted[i]),
                  "gelu(%g) = %.17g, want %.17g", x[i], out, wanted[i]);
    }
    free(wanted);
    free(x);
}

Test(ops, row_ops_agree_with_torch)
{
    const json_t *entry = find("softmax", 0);
    int64_t rows = integer(entry, "rows"), columns = integer(entry, "columns");
    double *x = numbers(entry, "x");
    as_ref_softmax(x, rows, columns, x);
    expect(entry, x);

    entry = find("layer_norm", 0);
    double *weight = numbers(entry, "weight"), *bias = numbers(entry, "bias");
    double epsilon = json_number_value(json_object_get(entry, "epsilon"));
    x = numbers(entry, "x");
    as_ref_layer_norm(x, weight, bias, epsilon, rows, columns, x);
    expect(entry, x);
    free(weight);
    free(bias);

    entry = find("rms_norm", 0);
    weight = numbers(entry, "weight");
    epsilon = json_number_value(json_object_get(entry, "epsilon"));
    x = numbers(entry, "x");
    as_ref_rms_norm(x, weight, epsilon, rows, columns, x);
    expect(entry, x);
    free(weight);

    entry = find("l2_normalise", 0);
    x = numbers(entry, "x");
    as_ref_l2_normalise(x, rows, columns, x);
    expect(entry, x);
}

Test(ops, linear_agrees_with_torch)
{
    const json_t *entry = find("linear", 0);
    int64_t rows = integer(entry, "rows"), outputs = integer(entry, "outputs");
    double *x = numbers(entry, "x"), *w = numbers(entry, "weight"), *bias = numbers(entry, "bias");
    double *y = calloc((size_t)(rows * outputs), sizeof *y);
    cr_assert_eq(as_ref_linear(x, w, bias, rows, outputs, integer(entry, "columns"), y, NULL), 0);
    expect(entry, y);
    free(x);
    free(w);
    free(bias);
}

/* Every token count around the panel width, against the plain triple loop, to the bit. */
Test(ops, linear_sums_in_ascending_order)
{
    enum { ROWS = 3, COLUMNS = 37, MOST = 35 };
    static double x[MOST * COLUMNS], w[ROWS * COLUMNS], y[MOST * ROWS];
    for (uint64_t i = 0; i < MOST * COLUMNS; i++)
        x[i] = as_random_normal(1, 0, i);
    for (uint64_t i = 0; i < ROWS * COLUMNS; i++)
        w[i] = as_random_normal(1, 1, i);
    for (int tokens = 0; tokens <= MOST; tokens++) {
        cr_assert_eq(as_ref_linear(x, w, NULL, tokens, ROWS, COLUMNS, y, NULL), 0);
        for (int t = 0; t < tokens; t++)
            for (int r = 0; r < ROWS; r++) {
                double sum = 0;
                for (int k = 0; k < COLUMNS; k++)
                    sum += w[r * COLUMNS + k] * x[t * COLUMNS + k];
                cr_assert(y[t * ROWS + r] == sum, "token %d of %d, row %d", t, tokens, r);
            }
    }
}

/* The golden pairs halves; the adjacent form of a head with its elements interleaved must give
 * the same, interleaved. */
Test(ops, rope_agrees_with_transformers_in_both_pairings)
{
    const json_t *entry = find("rope", 0);
    int64_t heads = integer(entry, "heads"), dim = integer(entry, "head_dim");
    const json_t *list = json_object_get(entry, "positions");
    int64_t tokens = (int64_t)json_array_size(list), positions[8];
    for (int64_t t = 0; t < tokens; t++)
        positions[t] = json_integer_value(json_array_get(list, (size_t)t));
    struct as_ref_rope rope = {.pairing = AS_REF_HALVES,
                               .dims = dim,
                               .theta = json_number_value(json_object_get(entry, "theta"))};
    double *x = numbers(entry, "x");
    double *woven = calloc((size_t)(tokens * heads * dim), sizeof *woven);
    for (int64_t i = 0; i < tokens * heads * dim; i++)
        woven[i / dim * dim + i % dim % (dim / 2) * 2 + i % dim / (dim / 2)] = x[i];
    as_ref_rope(&rope, positions, tokens, heads, dim, x);
    rope.pairing = AS_REF_ADJACENT;
    as_ref_rope(&rope, positions, tokens, heads, dim, woven);
    for (int64_t i = 0; i < tokens * heads * dim; i++)
        cr_assert(x[i] == woven[i / dim * dim + i % dim % (dim / 2) * 2 + i % dim / (dim / 2)]);
    free(woven);
    expect(entry, x);
}

Test(ops, rope_turns_only_its_dimensions_and_obeys_divisors)
{
    double x[8] = {1, 0, 1, 0, 5, 6, 7, 8}, divisors[2] = {1, 4};
    int64_t position = 3;
    struct as_ref_rope rope = {
        .pairing = AS_REF_ADJACENT, .theta = 100, .dims = 4, .divisors = divisors, .magnitude = 2};
    as_ref_rope(&rope, &position, 1, 1, 8, x);
    cr_assert_float_eq(x[0], 2 * cos(3.0), 1e-15);
    cr_assert_float_eq(x[1], 2 * sin(3.0), 1e-15);
    cr_assert_float_eq(x[2], 2 * cos(3.0 / 10 / 4), 1e-15);
    cr_assert_float_eq(x[3], 2 * sin(3.0 / 10 / 4), 1e-15);
    for (int i = 4; i < 8; i++)
        cr_assert_eq(x[i], i + 1);
}

Test(ops, attention_agrees_with_torch)
{
    for (int n = 0; n < 2; n++) {
        const json_t *entry = find("attention", n);
        double *q = numbers(entry, "q"), *k = numbers(entry, "k"), *v = numbers(entry, "v");
        int64_t queries[2], keys[2], total = 0;
        int64_t kv_heads = integer(entry, "kv_heads"), dim = integer(entry, "head_dim");
        for (size_t s = 0; s < 2; s++) {
            queries[s] = json_integer_value(json_array_get(json_object_get(entry, "queries"), s));
            keys[s] = json_integer_value(json_array_get(json_object_get(entry, "keys"), s));
            total += queries[s];
        }
        const double *key_rows[] = {k, k + keys[0] * kv_heads * dim};
        const double *value_rows[] = {v, v + keys[0] * kv_heads * dim};
        struct as_ref_attention attention = {.heads = integer(entry, "heads"),
                                             .kv_heads = kv_heads,
                                             .head_dim = dim,
                                             .scale = 1 / sqrt((double)dim),
                                             .causal = integer(entry, "causal") != 0,
                                             .sequences = 2,
                                             .query_lengths = queries,
                                             .kv_lengths = keys,
                                             .keys = key_rows,
                                             .values = value_rows};
        double *out = calloc((size_t)(total * attention.heads * dim), sizeof *out);
        cr_assert_eq(as_ref_attention(&attention, q, out, NULL), 0);
        expect(entry, out);
        free(q);
        free(k);
        free(v);
    }
}

/* Lengths q [0,1,0,1] and kv [0,3,0,5] give the rows of q [1,1], kv [3,5]; no key gives zeros;
 * a stated position hides the keys after it. */
Test(ops, attention_of_empty_sequences)
{
    enum { HEADS = 9, KV_HEADS = 3, DIM = 64 };
    static double q[3 * HEADS * DIM], k[5 * KV_HEADS * DIM], out[3 * HEADS * DIM],
        dense[2 * HEADS * DIM];
    for (uint64_t i = 0; i < 3 * HEADS * DIM; i++)
        q[i] = as_random_normal(2, 0, i);
    for (uint64_t i = 0; i < 5 * KV_HEADS * DIM; i++)
        k[i] = as_random_normal(2, 1, i);
    const double *rows[] = {NULL, k, NULL, k, NULL}, *dense_rows[] = {k, k};
    struct as_ref_attention attention = {.heads = HEADS,
                                         .kv_heads = KV_HEADS,
                                         .head_dim = DIM,
                                         .scale = 0.125,
                                         .causal = true,
                                         .sequences = 5,
                                         .query_lengths = (int64_t[]){0, 1, 0, 1, 1},
                                         .kv_lengths = (int64_t[]){0, 3, 0, 5, 0},
                                         .keys = rows,
                                         .values = rows};
    cr_assert_eq(as_ref_attention(&attention, q, out, NULL), 0);
    attention.sequences = 2;
    attention.query_lengths = (int64_t[]){1, 1};
    attention.kv_lengths = (int64_t[]){3, 5};
    attention.keys = attention.values = dense_rows;
    cr_assert_eq(as_ref_attention(&attention, q, dense, NULL), 0);
    cr_assert_eq(memcmp(out, dense, sizeof dense), 0);
    for (int i = 0; i < HEADS * DIM; i++)
        cr_assert(out[2 * HEADS * DIM + i] == 0);

    attention.positions = (int64_t[]){2, 2};
    cr_assert_eq(as_ref_attention(&attention, q, out, NULL), 0);
    attention.kv_lengths = (int64_t[]){3, 3};
    cr_assert_eq(as_ref_attention(&attention, q, dense, NULL), 0);
    cr_assert_eq(memcmp(out, dense, sizeof dense), 0);

    attention.sequences = 0;
    cr_assert_eq(as_ref_attention(&attention, q, out, NULL), 0);
}

Test(ops, softmax_of_masked_rows)
{
    double x[] = {-INFINITY, 0, -INFINITY, -INFINITY, -INFINITY, -INFINITY};
    as_ref_softmax(x, 2, 3, x);
    cr_assert(x[0] == 0 && x[1] == 1 && x[2] == 0 && x[3] == 0 && x[4] == 0 && x[5] == 0);
}

Test(ops, pool_reads_only_its_sequence)
{
    const double x[] = {1, 2, 3, 4, 5, 6, 100, 200};
    const int64_t lengths[] = {3, 0, 1};
    double out[6];
    as_ref_pool(AS_REF_POOL_MEAN, x, lengths, 3, 2, out);
    cr_assert(out[0] == 3 && out[1] == 4 && out[2] == 0 && out[3] == 0 && out[4] == 100);
    as_ref_pool(AS_REF_POOL_CLS, x, lengths, 3, 2, out);
    cr_assert(out[0] == 1 && out[1] == 2 && out[2] == 0 && out[3] == 0 && out[5] == 200);
}

Test(ops, short_rows_are_not_blown_up)
{
    double x[] = {0, 0, 3e-8, 4e-8, 6e-14, 8e-14};
    as_ref_l2_normalise(x, 3, 2, x);
    cr_assert(x[0] == 0 && x[1] == 0);
    cr_assert_float_eq(x[2], 0.6, 1e-15);
    cr_assert_float_eq(x[3], 0.8, 1e-15);
    cr_assert_float_eq(x[4], 0.06, 1e-15); /* divided by 1e-12, not by its length */
}

Test(ops, embedding_and_add)
{
    const double table[] = {1, 2, 3, 4, 5, 6};
    const int32_t tokens[] = {2, 0, 2};
    double out[6];
    as_ref_embedding(table, tokens, 3, 2, out);
    cr_assert(out[0] == 5 && out[1] == 6 && out[2] == 1 && out[3] == 2 && out[4] == 5);
    as_ref_add(out, table, 6, out);
    cr_assert(out[0] == 6 && out[5] == 12);
}

Test(ops, argmax_keeps_what_a_step_row_keeps)
{
    const double logits[] = {1, 7, 3, 7, 5};
    struct as_ref_top top = as_ref_argmax(logits, 5);
    cr_assert(top.id == 1 && top.logit == 7 && top.margin == 0 && top.non_finite == 0);
    double sum = 0;
    for (int t = 0; t < 5; t++)
        sum += (as_mix64((uint64_t)t) & 1 ? -1 : 1) * logits[t];
    cr_assert(top.projection == sum);
    top = as_ref_argmax(logits, 3);
    cr_assert(top.id == 1 && top.margin == 4);
    const double falling[] = {3, 7, 1};
    top = as_ref_argmax(falling, 3);
    cr_assert(top.id == 1 && top.margin == 4);
    top = as_ref_argmax(logits, 1);
    cr_assert(top.id == 0 && top.margin == INFINITY);
    const double bad[] = {NAN, -3, INFINITY, NAN};
    top = as_ref_argmax(bad, 4);
    cr_assert(top.id == 2 && top.non_finite == 3);
    top = as_ref_argmax(bad, 1);
    cr_assert(top.id == -1 && top.non_finite == 1);
}

/* The first signs written out, so that both sides of a verdict share them for ever. */
Test(ops, signs_are_fixed)
{
    const int first[] = {-1, -1, 1, -1, 1, 1, 1, -1, 1, 1, 1, -1, -1, -1, 1, -1};
    for (int64_t t = 0; t < 16; t++)
        cr_assert_eq(as_ref_sign(t), first[t]);
    int plus = 0;
    for (int64_t t = 0; t < 49152; t++)
        plus += as_ref_sign(t) > 0;
    cr_assert(abs(plus - 24576) < 500, "%d of 49152 are +1", plus);
}
