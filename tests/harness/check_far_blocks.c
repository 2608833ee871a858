/* Case C24: blocks past 2^31 elements. One layer of 8 KV heads of 128 in blocks of 16 rows is
 * 16,384 elements a block; a pool of 131,080 blocks is more than 2^31. Blocks 0 and 1 and the last
 * two must give the same bits, in attention and in kv_write. The pool is address space that is
 * never touched, but for those four blocks. */
#define _GNU_SOURCE
#include "check_launch.h"

#include <sys/mman.h>

#include "check/values.h"

enum { HEADS = 16, KV_HEADS = 8, HEAD = 128, BLOCK = 16, ROWS = 20, COLUMNS = HEADS * HEAD };

static const int64_t blocks = 131080, far_block = 131078;

static struct assay_device *device;
static struct assay_kv_cache cache;
static size_t pool_bytes;

static void open_pool(void)
{
    struct as_error error = {0};
    cr_assert_eq(as_cpu_device_open(&device, 2, NULL, &error), 0, "%s", error.message);
    cache = (struct assay_kv_cache){.dtype = ASSAY_F32,
                                    .block_size = BLOCK,
                                    .kv_heads = KV_HEADS,
                                    .head_dim = HEAD,
                                    .blocks = blocks};
    pool_bytes = assay_kv_offset(&cache, blocks, 0, 0);
    cr_assert(pool_bytes / sizeof(float) > (size_t)1 << 31);
    void **pools[] = {&cache.k, &cache.v};
    for (int i = 0; i < 2; i++) {
        *pools[i] = mmap(NULL, pool_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (*pools[i] == MAP_FAILED)
            cr_skip_test("no %zu bytes of address space", pool_bytes);
    }
}

static void close_pool(void)
{
    munmap(cache.k, pool_bytes);
    munmap(cache.v, pool_bytes);
    device->close(device);
}

TestSuite(check_far_blocks, .init = open_pool, .fini = close_pool, .timeout = 120);

static struct assay_problem problem_of(enum assay_op op, int64_t tokens)
{
    struct assay_problem problem;
    memset(&problem, 0, sizeof problem);
    problem.nodes = 1;
    problem.node[0] = (struct assay_shape){.op = op,
                                           .weights = ASSAY_NONE,
                                           .activations = ASSAY_F32,
                                           .kv = ASSAY_F32,
                                           .tokens = tokens,
                                           .heads = op == ASSAY_KV_WRITE ? KV_HEADS : HEADS,
                                           .kv_heads = KV_HEADS,
                                           .head_dim = HEAD,
                                           .sequences = 1,
                                           .context = ROWS,
                                           .kv_tokens = tokens * ROWS,
                                           .kv_rows = ROWS,
                                           .block_size = BLOCK,
                                           .causal = true,
                                           .scale = 0.0883883476f};
    problem.node[0].n = (int64_t)problem.node[0].heads * HEAD;
    return problem;
}

/* Metadata of one sequence of ROWS rows whose `tokens` last ones are queries, in blocks `first`
 * and `first` + 1. */
struct step {
    int32_t cu_query[2], context[1], positions[ROWS], token_sequence[ROWS], table[2];
    int64_t slots[ROWS];
    struct assay_metadata metadata;
};

static void make_step(struct step *step, int32_t tokens, int64_t first)
{
    *step = (struct step){
        .cu_query = {0, tokens}, .context = {ROWS}, .table = {(int32_t)first, (int32_t)first + 1}};
    for (int32_t t = 0; t < tokens; t++) {
        step->positions[t] = ROWS - tokens + t;
        step->slots[t] = first * BLOCK + step->positions[t];
    }
    step->metadata = (struct assay_metadata){.sequences = 1,
                                             .tokens = tokens,
                                             .max_query = tokens,
                                             .max_context = ROWS,
                                             .table_stride = 2,
                                             .cu_query = step->cu_query,
                                             .context = step->context,
                                             .positions = step->positions,
                                             .token_sequence = step->token_sequence,
                                             .block_table = step->table,
                                             .slots = step->slots};
}

static void near_and_far_agree(struct assay_device *unused, const struct assay_variant *variant)
{
    static float q[2 * COLUMNS], y[2][2 * COLUMNS];
    size_t bytes = assay_kv_offset(&cache, 2, 0, 0);
    size_t far = assay_kv_offset(&cache, far_block, 0, 0);
    (void)unused;
    as_values(q, 2 * COLUMNS, 5);
    as_values(cache.k, (int64_t)(bytes / sizeof(float)), 6);
    as_values(cache.v, (int64_t)(bytes / sizeof(float)), 7);
    memcpy((char *)cache.k + far, cache.k, bytes);
    memcpy((char *)cache.v + far, cache.v, bytes);
    for (int i = 0; i < 2; i++) {
        struct assay_problem problem = problem_of(ASSAY_ATTENTION, 2);
        struct step step;
        make_step(&step, 2, i == 0 ? 0 : far_block);
        struct assay_launch launch = {.metadata = &step.metadata,
                                      .cache = &cache,
                                      .operands = 2,
                                      .operand = {dense(q, 2, COLUMNS), dense(y[i], 2, COLUMNS)}};
        launch_once(device, variant, &problem, &launch);
    }
    cr_assert_eq(memcmp(y[0], y[1], sizeof y[0]), 0, "%s", variant->name);
    cr_assert(y[0][0] != 0);
}

static void both_are_written(struct assay_device *unused, const struct assay_variant *variant)
{
    static float k[ROWS * KV_HEADS * HEAD], v[ROWS * KV_HEADS * HEAD];
    size_t bytes = assay_kv_offset(&cache, 2, 0, 0);
    size_t far = assay_kv_offset(&cache, far_block, 0, 0);
    (void)unused;
    as_values(k, ROWS * KV_HEADS * HEAD, 8);
    as_values(v, ROWS * KV_HEADS * HEAD, 9);
    memset(cache.k, 0, bytes);
    memset(cache.v, 0, bytes);
    memset((char *)cache.k + far, 0, bytes);
    memset((char *)cache.v + far, 0, bytes);
    for (int i = 0; i < 2; i++) {
        struct assay_problem problem = problem_of(ASSAY_KV_WRITE, ROWS);
        struct step step;
        make_step(&step, ROWS, i == 0 ? 0 : far_block);
        struct assay_launch launch = {
            .metadata = &step.metadata,
            .cache = &cache,
            .operands = 2,
            .operand = {dense(k, ROWS, KV_HEADS * HEAD), dense(v, ROWS, KV_HEADS * HEAD)}};
        launch_once(device, variant, &problem, &launch);
    }
    cr_assert_eq(memcmp(cache.k, (char *)cache.k + far, bytes), 0, "%s", variant->name);
    cr_assert_eq(memcmp(cache.v, (char *)cache.v + far, bytes), 0, "%s", variant->name);
    cr_assert_eq(memcmp(cache.k, k, HEAD * sizeof(float)), 0, "%s", variant->name);
}

Test(check_far_blocks, attention_reads_the_right_ones)
{
    struct assay_problem problem = problem_of(ASSAY_ATTENTION, 2);
    cr_assert(each_variant(device, ASSAY_ATTENTION, &problem, near_and_far_agree) > 0);
}

Test(check_far_blocks, kv_write_writes_the_right_ones)
{
    struct assay_problem problem = problem_of(ASSAY_KV_WRITE, ROWS);
    cr_assert(each_variant(device, ASSAY_KV_WRITE, &problem, both_are_written) > 0);
}
