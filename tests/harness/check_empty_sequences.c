/* Case C22: sequences of length zero among others leave the others' bits alone. Queries [0,1,0,1]
 * on caches of [0,3,0,5] rows; a query on an empty cache; nothing but empty sequences; no
 * sequence at all. 9 query heads on 3 KV heads of 64, causal. */
#include "check_launch.h"

#include <math.h>

#include "check/values.h"

enum { HEADS = 9, KV_HEADS = 3, HEAD = 64, BLOCK = 4, COLUMNS = HEADS * HEAD };

/* Three blocks: two for five rows, one for three. */
static float k[3 * KV_HEADS * BLOCK * HEAD], v[3 * KV_HEADS * BLOCK * HEAD];

static struct assay_device *device;

static void open_device(void)
{
    struct as_error error = {0};
    cr_assert_eq(as_cpu_device_open(&device, 2, NULL, &error), 0, "%s", error.message);
    as_values(k, sizeof k / sizeof k[0], 1);
    as_values(v, sizeof v / sizeof v[0], 2);
}

static void close_device(void)
{
    device->close(device);
}

TestSuite(check_empty_sequences, .init = open_device, .fini = close_device);

static struct assay_problem problem_of(int64_t tokens, int64_t sequences, int64_t context)
{
    struct assay_problem problem;
    memset(&problem, 0, sizeof problem);
    problem.nodes = 1;
    problem.node[0] = (struct assay_shape){.op = ASSAY_ATTENTION,
                                           .weights = ASSAY_NONE,
                                           .activations = ASSAY_F32,
                                           .kv = ASSAY_F32,
                                           .tokens = tokens,
                                           .n = COLUMNS,
                                           .heads = HEADS,
                                           .kv_heads = KV_HEADS,
                                           .head_dim = HEAD,
                                           .sequences = sequences,
                                           .context = context,
                                           .kv_tokens = context * tokens,
                                           .kv_rows = context * sequences,
                                           .block_size = BLOCK,
                                           .causal = true,
                                           .scale = 0.125f};
    return problem;
}

/* y (tokens, heads, head) of a batch given by queries and cache rows of each sequence; a table
 * row holds two blocks. */
static void attend(const struct assay_variant *variant, int32_t sequences, const int32_t *queries,
                   const int32_t *context, const int32_t *table, const float *q, float *y)
{
    int32_t cu_query[8] = {0}, positions[8], token_sequence[8], longest = 0;
    int64_t slots[8];
    for (int32_t s = 0; s < sequences; s++) {
        cu_query[s + 1] = cu_query[s] + queries[s];
        longest = context[s] > longest ? context[s] : longest;
        for (int32_t i = 0; i < queries[s]; i++) {
            int32_t t = cu_query[s] + i, p = context[s] - queries[s] + i;
            positions[t] = p < 0 ? 0 : p;
            token_sequence[t] = s;
            slots[t] = context[s] == 0 ? -1 : table[2 * s + p / BLOCK] * BLOCK + p % BLOCK;
        }
    }
    int32_t tokens = cu_query[sequences];
    struct assay_metadata metadata = {.sequences = sequences,
                                      .tokens = tokens,
                                      .max_query = tokens > 0,
                                      .max_context = longest,
                                      .table_stride = 2,
                                      .cu_query = cu_query,
                                      .context = context,
                                      .positions = positions,
                                      .token_sequence = token_sequence,
                                      .block_table = table,
                                      .slots = slots};
    struct assay_kv_cache cache = {.k = k,
                                   .v = v,
                                   .dtype = ASSAY_F32,
                                   .block_size = BLOCK,
                                   .kv_heads = KV_HEADS,
                                   .head_dim = HEAD,
                                   .blocks = 3};
    struct assay_problem problem = problem_of(tokens, sequences, longest);
    struct assay_launch launch = {
        .metadata = &metadata,
        .cache = &cache,
        .operands = 2,
        .operand = {dense((float *)(uintptr_t)q, tokens, COLUMNS), dense(y, tokens, COLUMNS)}};
    launch_once(device, variant, &problem, &launch);
}

static void bits_stay(struct assay_device *unused, const struct assay_variant *variant)
{
    static const int32_t far[] = {99999, 99999};
    static const int32_t queries[] = {0, 1, 0, 1}, context[] = {0, 3, 0, 5};
    const int32_t table[] = {far[0], far[1], 2, far[1], far[0], far[1], 0, 1};
    static float q[2 * COLUMNS], y[2 * COLUMNS], alone[2 * COLUMNS];
    (void)unused;
    as_values(q, 2 * COLUMNS, 3);
    attend(variant, 4, queries, context, table, q, y);
    const int32_t two_queries[] = {1, 1}, two_context[] = {3, 5};
    const int32_t two_table[] = {2, far[1], 0, 1};
    attend(variant, 2, two_queries, two_context, two_table, q, alone);
    cr_assert_eq(memcmp(y, alone, sizeof y), 0, "%s", variant->name);
    cr_assert(isfinite(y[0]) && y[0] != y[COLUMNS]);
}

static void no_row_gives_zeros(struct assay_device *unused, const struct assay_variant *variant)
{
    static const int32_t one[] = {1}, none[] = {0}, table[] = {99999, 99999};
    static float q[COLUMNS], y[COLUMNS];
    (void)unused;
    as_values(q, COLUMNS, 4);
    for (int i = 0; i < COLUMNS; i++)
        y[i] = NAN;
    attend(variant, 1, one, none, table, q, y);
    for (int i = 0; i < COLUMNS; i++)
        cr_assert(y[i] == 0, "%s: y[%d] is %g", variant->name, i, (double)y[i]);
}

static void nothing_at_all(struct assay_device *unused, const struct assay_variant *variant)
{
    static const int32_t none[] = {0, 0}, table[] = {99999, 99999, 99999, 99999};
    static float q[1], y[1];
    (void)unused;
    attend(variant, 2, none, none, table, q, y);
    attend(variant, 0, none, none, table, q, y);
}

Test(check_empty_sequences, do_not_disturb_others)
{
    struct assay_problem problem = problem_of(2, 4, 5);
    cr_assert(each_variant(device, ASSAY_ATTENTION, &problem, bits_stay) > 0);
}

Test(check_empty_sequences, a_query_without_rows_gets_zeros)
{
    struct assay_problem problem = problem_of(1, 1, 0);
    cr_assert(each_variant(device, ASSAY_ATTENTION, &problem, no_row_gives_zeros) > 0);
}

Test(check_empty_sequences, batches_of_nothing_end_quietly)
{
    struct assay_problem problem = problem_of(0, 0, 0);
    cr_assert(each_variant(device, ASSAY_ATTENTION, &problem, nothing_at_all) > 0);
}
