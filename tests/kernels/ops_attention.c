/* attention and kv_write: values by hand, sequences of length 0, blocks beyond 2^31 elements,
 * threads and batches that must not change a bit. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, MAP_NORESERVE */
#include <math.h>
#include <sys/mman.h>

#include "ops_common.h"

enum { MAX_SEQUENCES = 8, MAX_TOKENS = 64, TABLE = 80 };

/* A batch over one cache. Block ids are dealt out backwards, so that order matters. */
struct batch {
    struct assay_problem problem;
    struct assay_metadata metadata;
    struct assay_kv_cache cache;
    int32_t cu_query[MAX_SEQUENCES + 1], context[MAX_SEQUENCES];
    int32_t positions[MAX_TOKENS], token_sequence[MAX_TOKENS];
    int32_t table[MAX_SEQUENCES * TABLE];
    int64_t slots[MAX_TOKENS];
};

static void set_lengths(struct batch *b, int32_t sequences, const int32_t *queries,
                        const int32_t *contexts)
{
    struct assay_shape *shape = &b->problem.node[0];
    int32_t tokens = 0;
    shape->context = 0;
    for (int32_t s = 0; s < sequences; s++) {
        b->cu_query[s] = tokens;
        b->context[s] = contexts[s];
        shape->context = contexts[s] > shape->context ? contexts[s] : shape->context;
        for (int32_t i = 0; i < queries[s]; i++, tokens++) {
            int32_t position = contexts[s] - queries[s] + i;
            b->positions[tokens] = position < 0 ? 0 : position;
            b->token_sequence[tokens] = s;
        }
    }
    b->cu_query[sequences] = tokens;
    shape->tokens = tokens;
    shape->sequences = sequences;
    b->metadata = (struct assay_metadata){.sequences = sequences,
                                          .tokens = tokens,
                                          .max_context = (int32_t)shape->context,
                                          .table_stride = TABLE,
                                          .cu_query = b->cu_query,
                                          .context = b->context,
                                          .positions = b->positions,
                                          .token_sequence = b->token_sequence,
                                          .block_table = b->table,
                                          .slots = b->slots};
}

static void open_batch(struct batch *b, int32_t heads, int32_t kv_heads, int32_t head_dim,
                       int32_t sequences, const int32_t *queries, const int32_t *contexts)
{
    struct as_error error = {0};
    *b = (struct batch){0};
    b->problem = (struct assay_problem){.nodes = 1,
                                        .node = {{.op = ASSAY_ATTENTION,
                                                  .weights = ASSAY_NONE,
                                                  .kv = ASSAY_F32,
                                                  .n = (int64_t)heads * head_dim,
                                                  .heads = heads,
                                                  .kv_heads = kv_heads,
                                                  .head_dim = head_dim,
                                                  .block_size = 16,
                                                  .causal = true,
                                                  .scale = 0.25f}}};
    set_lengths(b, sequences, queries, contexts);
    b->cache = (struct assay_kv_cache){.dtype = ASSAY_F32,
                                       .block_size = 16,
                                       .kv_heads = kv_heads,
                                       .head_dim = head_dim,
                                       .blocks = MAX_SEQUENCES * TABLE};
    size_t floats = (size_t)b->cache.blocks * 16 * (size_t)(kv_heads * head_dim);
    b->cache.k = as_calloc(&error, floats, sizeof(float), "k");
    b->cache.v = as_calloc(&error, floats, sizeof(float), "v");
    memset(b->cache.k, 0xff, floats * sizeof(float)); /* dead rows are NaN */
    memset(b->cache.v, 0xff, floats * sizeof(float));
    for (int32_t i = 0; i < MAX_SEQUENCES * TABLE; i++)
        b->table[i] = 1 << 29; /* dead entries are huge */
    for (int32_t s = 0; s < sequences; s++)
        for (int32_t block = 0; block * 16 < contexts[s]; block++)
            b->table[s * TABLE + block] = (s + 1) * TABLE - 1 - block;
}

static void close_batch(struct batch *b)
{
    free(b->cache.k);
    free(b->cache.v);
}

static float *row_of(const struct batch *b, void *pool, int32_t s, int32_t h, int32_t position)
{
    int32_t block = b->table[s * TABLE + position / 16];
    return (float *)((char *)pool + assay_kv_offset(&b->cache, block, h, position % 16));
}

/* Every row of every sequence from a seed; the same for a sequence whatever its neighbours. */
static void fill_cache(struct batch *b)
{
    int32_t head_dim = b->cache.head_dim;
    for (int32_t s = 0; s < b->metadata.sequences; s++)
        for (int32_t p = 0; p < b->context[s]; p++)
            for (int32_t h = 0; h < b->cache.kv_heads; h++)
                for (int32_t i = 0; i < head_dim; i++) {
                    uint64_t at = (uint64_t)(((p * 8) + h) * 256 + i);
                    row_of(b, b->cache.k, s, h, p)[i] = (float)as_random_normal(1, 1, at);
                    row_of(b, b->cache.v, s, h, p)[i] = (float)as_random_normal(1, 2, at);
                }
}

static void attend(struct batch *b, const struct assay_variant *variant, int32_t threads, float *q,
                   float *y)
{
    int64_t tokens = b->problem.node[0].tokens, n = b->problem.node[0].n;
    struct assay_launch launch = {.problem = &b->problem,
                                  .operand = {ops_f32(q, tokens, n), ops_f32(y, tokens, n)},
                                  .operands = 2,
                                  .metadata = &b->metadata,
                                  .cache = &b->cache};
    memset(y, 0xff, (size_t)(tokens * n) * sizeof *y);
    ops_run(launch, variant, -1, threads);
}

/* Two keys, e^0 and e^ln(3): weights 1/4 and 3/4; a third key lies in the future. */
Test(ops_attention, values_by_hand)
{
    struct batch b;
    open_batch(&b, 2, 1, 8, 1, (const int32_t[]){2}, (const int32_t[]){3});
    for (int32_t p = 0; p < 3; p++)
        for (int32_t i = 0; i < 8; i++) {
            row_of(&b, b.cache.k, 0, 0, p)[i] = i == 0 ? (float)p : 0;
            row_of(&b, b.cache.v, 0, 0, p)[i] = (float)(p * 4 + i);
        }
    float q[32] = {0}, y[32];
    q[0] = 4 * logf(3);  /* row 0, head 0; scale 1/4 */
    q[24] = 4 * logf(3); /* row 1, head 1 */
    OPS_EACH(variant, &b.problem)
    {
        attend(&b, variant, 2, q, y);
        for (int i = 0; i < 8; i++) {
            cr_assert_float_eq(y[i], 3 + i, 1e-5, "%s", variant->name);      /* (0 + 3 * 4) / 4 */
            cr_assert_float_eq(y[8 + i], 2 + i, 1e-5, "%s", variant->name);  /* plain mean of two */
            cr_assert_float_eq(y[16 + i], 4 + i, 1e-5, "%s", variant->name); /* of three */
            cr_assert_float_eq(y[24 + i], (3 * 4 + 9 * 8) / 13.0 + i, 1e-5, "%s", variant->name);
        }
    }
    b.problem.node[0].causal = false;
    OPS_EACH(variant, &b.problem)
    {
        attend(&b, variant, 1, q, y);
        cr_assert_float_eq(y[8], 4, 1e-5, "%s", variant->name);
    }
    close_batch(&b);
}

/* C22: sequences without queries or rows change nothing; a query that sees nothing gets zeros. */
Test(ops_attention, zero_length_sequences)
{
    struct batch with, without;
    open_batch(&with, 9, 3, 64, 4, (const int32_t[]){0, 1, 0, 1}, (const int32_t[]){0, 3, 0, 5});
    open_batch(&without, 9, 3, 64, 2, (const int32_t[]){1, 1}, (const int32_t[]){3, 5});
    fill_cache(&with);
    fill_cache(&without);
    float *q = ops_normal(4, 2 * 576), y[2 * 576], z[2 * 576];
    OPS_EACH(variant, &with.problem)
    {
        for (int32_t threads = 1; threads <= 3; threads++) {
            attend(&with, variant, threads, q, y);
            attend(&without, variant, threads, q, z);
            cr_assert_eq(memcmp(y, z, sizeof y), 0, "%s", variant->name);
        }
    }
    set_lengths(&with, 1, (const int32_t[]){1}, (const int32_t[]){0});
    OPS_EACH(variant, &with.problem)
    {
        attend(&with, variant, 2, q, y);
        for (int i = 0; i < 576; i++)
            cr_assert_eq(y[i], 0, "%s", variant->name);
    }
    set_lengths(&with, 2, (const int32_t[]){0, 0}, (const int32_t[]){0, 0});
    OPS_EACH(variant, &with.problem)
    {
        attend(&with, variant, 2, q, y);
    }
    set_lengths(&with, 0, NULL, NULL);
    OPS_EACH(variant, &with.problem)
    {
        attend(&with, variant, 2, q, y);
    }
    free(q);
    close_batch(&with);
    close_batch(&without);
}

/* Rows of padding (token_sequence -1), behind the sequences and in between, become zeros. */
Test(ops_attention, padded_rows_are_zero)
{
    struct batch b;
    open_batch(&b, 4, 2, 32, 2, (const int32_t[]){2, 1}, (const int32_t[]){20, 9});
    fill_cache(&b);
    b.cu_query[MAX_SEQUENCES] = 9; /* what lies in front of context[0] */
    b.token_sequence[1] = -1;
    b.token_sequence[3] = b.token_sequence[4] = -1;
    b.problem.node[0].tokens = b.metadata.tokens = 5;
    float *q = ops_normal(4, 5 * 128), y[5 * 128];
    OPS_EACH(variant, &b.problem)
    {
        attend(&b, variant, 2, q, y);
        for (int i = 0; i < 128; i++)
            cr_assert(y[i] != 0 && y[128 + i] == 0 && y[256 + i] != 0 && y[384 + i] == 0 &&
                          y[512 + i] == 0 && isfinite(y[i]),
                      "%s", variant->name);
    }
    free(q);
    close_batch(&b);
}

/* A row's bits: on 1 to 4 threads, alone as a decode, and as part of a prompt or a batch. */
Test(ops_attention, bits_depend_on_neither_threads_nor_batch)
{
    enum { CONTEXT = 300, ROWS = 20 };
    struct batch b;
    open_batch(&b, 6, 2, 32, 3, (const int32_t[]){1, ROWS, 3}, (const int32_t[]){33, CONTEXT, 130});
    fill_cache(&b);
    float *q = ops_normal(4, 24 * 192), first[24 * 192], again[24 * 192];
    OPS_EACH(variant, &b.problem)
    {
        cr_assert(variant->flags & ASSAY_DETERMINISTIC);
        set_lengths(&b, 3, (const int32_t[]){1, ROWS, 3}, (const int32_t[]){33, CONTEXT, 130});
        attend(&b, variant, 1, q, first);
        for (int32_t threads = 2; threads <= 4; threads++) {
            attend(&b, variant, threads, q, again);
            cr_assert_eq(memcmp(first, again, sizeof first), 0, "%s: %d threads", variant->name,
                         threads);
        }
        if ((variant->flags & ASSAY_BATCH_INVARIANT) == 0)
            continue;
        for (int32_t rows = 1; rows <= 3; rows++) { /* the last rows of the prompt, alone */
            set_lengths(&b, 2, (const int32_t[]){0, rows}, (const int32_t[]){33, CONTEXT});
            attend(&b, variant, 2, q + (1 + ROWS - rows) * 192, again);
            cr_assert_eq(memcmp(first + (1 + ROWS - rows) * 192, again,
                                (size_t)rows * 192 * sizeof again[0]),
                         0, "%s: %d rows", variant->name, rows);
        }
    }
    free(q);
    close_batch(&b);
}

Test(ops_attention, kv_write_by_slots)
{
    struct batch b;
    open_batch(&b, 4, 2, 8, 1, (const int32_t[]){3}, (const int32_t[]){3});
    b.problem.node[0].op = ASSAY_KV_WRITE;
    b.problem.node[0].n = 16;
    b.slots[0] = 5 * 16 + 15;
    b.slots[1] = -1;
    b.slots[2] = 0;
    float k[48], v[48];
    for (int i = 0; i < 48; i++) {
        k[i] = (float)i;
        v[i] = (float)-i;
    }
    struct assay_launch launch = {.problem = &b.problem,
                                  .operand = {ops_f32(k, 3, 16), ops_f32(v, 3, 16)},
                                  .operands = 2,
                                  .metadata = &b.metadata,
                                  .cache = &b.cache};
    size_t floats = (size_t)b.cache.blocks * 16 * 16;
    OPS_EACH(variant, &b.problem)
    {
        memset(b.cache.k, 0xff, floats * sizeof(float));
        memset(b.cache.v, 0xff, floats * sizeof(float));
        ops_run(launch, variant, -1, 2);
        const float *pool_k = b.cache.k, *pool_v = b.cache.v;
        for (int h = 0; h < 2; h++)
            for (int i = 0; i < 8; i++) {
                size_t last = (size_t)(((5 * 2 + h) * 16 + 15) * 8 + i);
                size_t zero = (size_t)(h * 16 * 8 + i);
                cr_assert_eq(pool_k[last], (float)(h * 8 + i), "%s", variant->name);
                cr_assert_eq(pool_v[zero], (float)-(32 + h * 8 + i), "%s", variant->name);
            }
        size_t written = 0;
        for (size_t i = 0; i < floats; i++)
            written += !isnan(pool_k[i]);
        cr_assert_eq(written, 32u, "%s wrote %zu elements", variant->name, written);
    }
    close_batch(&b);
}

/* C24: offsets are 64-bit; blocks at the end of a pool of more than 2^31 elements are read and
 * written where they are. The pool is address space that is never touched. */
Test(ops_attention, offsets_past_two_to_the_31st)
{
    enum { HEADS = 8, DIM = 128, BLOCK = 16, BLOCKS = 131080 };
    struct assay_kv_cache cache = {.dtype = ASSAY_F32,
                                   .block_size = BLOCK,
                                   .kv_heads = HEADS,
                                   .head_dim = DIM,
                                   .blocks = BLOCKS};
    cr_assert_eq(assay_kv_offset(&cache, 131079, 7, 15),
                 ((size_t)131079 * HEADS * BLOCK + 7 * BLOCK + 15) * DIM * sizeof(float));
    size_t bytes = (size_t)BLOCKS * HEADS * BLOCK * DIM * sizeof(float);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    cache.k = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    cache.v = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (cache.k == MAP_FAILED || cache.v == MAP_FAILED)
        cr_skip_test("no 17 GB of address space; the address function alone was tested");
    int32_t cu_query[2] = {0, 20}, context = 20, positions[20], sequence[20] = {0}, table[2];
    int64_t slots[20];
    struct assay_metadata metadata = {.sequences = 1,
                                      .tokens = 20,
                                      .max_context = 20,
                                      .table_stride = 2,
                                      .cu_query = cu_query,
                                      .context = &context,
                                      .positions = positions,
                                      .token_sequence = sequence,
                                      .block_table = table,
                                      .slots = slots};
    struct assay_problem write = {.nodes = 1,
                                  .node = {{.op = ASSAY_KV_WRITE,
                                            .weights = ASSAY_NONE,
                                            .kv = ASSAY_F32,
                                            .tokens = 20,
                                            .n = HEADS * DIM,
                                            .kv_heads = HEADS,
                                            .heads = HEADS,
                                            .head_dim = DIM,
                                            .sequences = 1,
                                            .block_size = BLOCK}}};
    struct assay_problem read = write;
    read.node[0].op = ASSAY_ATTENTION;
    read.node[0].context = 20;
    read.node[0].causal = true;
    read.node[0].scale = 0.1f;
    float *k = ops_normal(5, 20 * HEADS * DIM), *v = ops_normal(6, 20 * HEADS * DIM);
    float *q = ops_normal(7, 20 * HEADS * DIM), *y[2];
    y[0] = ops_normal(0, 20 * HEADS * DIM);
    y[1] = ops_normal(0, 20 * HEADS * DIM);
    static const int32_t tables[2][2] = {{0, 1}, {131078, 131079}};
    struct assay_launch launch = {.metadata = &metadata, .cache = &cache, .operands = 2};
    OPS_EACH(writer, &write)
    for (int i = 0; i < 2; i++) {
        memcpy(table, tables[i], sizeof table);
        for (int t = 0; t < 20; t++) {
            positions[t] = t;
            slots[t] = (int64_t)table[t / BLOCK] * BLOCK + t % BLOCK;
        }
        launch.problem = &write;
        launch.operand[0] = ops_f32(k, 20, HEADS * DIM);
        launch.operand[1] = ops_f32(v, 20, HEADS * DIM);
        ops_run(launch, writer, -1, 2);
    }
    launch.problem = &read;
    launch.operand[0] = ops_f32(q, 20, HEADS * DIM);
    OPS_EACH(variant, &read)
    {
        for (int i = 0; i < 2; i++) {
            memcpy(table, tables[i], sizeof table);
            launch.operand[1] = ops_f32(y[i], 20, HEADS * DIM);
            ops_run(launch, variant, -1, 2);
        }
        cr_assert(isfinite(y[0][0]) && y[0][0] != 0);
        cr_assert_eq(memcmp(y[0], y[1], 20 * HEADS * DIM * sizeof(float)), 0, "%s", variant->name);
    }
    munmap(cache.k, bytes);
    munmap(cache.v, bytes);
    free(k);
    free(v);
    free(q);
    free(y[0]);
    free(y[1]);
}
