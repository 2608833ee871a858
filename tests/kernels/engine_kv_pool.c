/* The paged cache: blocks are owned once, come back whole, and run out politely. */
#include <criterion/criterion.h>

#include "as_random.h"
#include "device/cpu/cpu_device.h"
#include "engine/kv_pool.h"

static struct assay_device *device;

static void open_device(void)
{
    cr_assert_eq(as_cpu_device_open(&device, 1, NULL, NULL), 0);
}

static void close_device(void)
{
    device->close(device);
}

TestSuite(engine_kv_pool, .init = open_device, .fini = close_device);

static struct as_kv_options small(int64_t blocks, int32_t sequences)
{
    return (struct as_kv_options){.layers = 2,
                                  .kv_heads = 3,
                                  .head_dim = 8,
                                  .block_size = 4,
                                  .blocks = blocks,
                                  .dtype = ASSAY_F32,
                                  .max_sequences = sequences};
}

/* Every block belongs to one open sequence or is free. */
static void check_ownership(const struct as_kv_pool *pool, const bool *open, int32_t sequences)
{
    int64_t total = as_kv_total_blocks(pool), owned = 0;
    bool *seen = calloc((size_t)total, sizeof *seen);
    for (int32_t s = 0; s < sequences; s++) {
        int32_t count;
        const int32_t *block = as_kv_blocks(pool, s, &count);
        cr_assert(open[s] || count == 0);
        for (int32_t i = 0; i < count; i++) {
            cr_assert(block[i] >= 0 && block[i] < total);
            cr_assert_not(seen[block[i]], "block %d belongs to two sequences", block[i]);
            seen[block[i]] = true;
            owned++;
        }
    }
    cr_assert_eq(owned + as_kv_free_blocks(pool), total);
    free(seen);
}

Test(engine_kv_pool, random_use_never_shares_or_loses_a_block)
{
    enum { SEQUENCES = 6, BLOCKS = 20 };
    struct as_kv_pool *pool;
    const struct as_kv_options options = small(BLOCKS, SEQUENCES);
    bool open[SEQUENCES] = {false};
    int64_t rows[SEQUENCES] = {0};
    cr_assert_eq(as_kv_pool_create(device, &options, &pool, NULL), 0);
    for (uint64_t i = 0; i < 20000; i++) {
        int32_t s = (int32_t)(as_random_u64(1, 0, i) % SEQUENCES);
        uint64_t act = as_random_u64(1, 1, i) % 4;
        if (act == 0 && open[s]) {
            as_kv_close(pool, s);
            open[s] = false;
        } else if (act == 1) {
            int32_t opened = as_kv_open(pool);
            if (opened >= 0) {
                cr_assert_not(open[opened]);
                open[opened] = true;
                rows[opened] = 0;
            } else {
                for (int32_t j = 0; j < SEQUENCES; j++)
                    cr_assert(open[j], "open refused with sequence %d free", j);
            }
        } else if (open[s]) {
            int64_t wanted = rows[s] + (int64_t)(as_random_u64(1, 2, i) % 9);
            int64_t before = as_kv_free_blocks(pool);
            if (as_kv_reserve(pool, s, wanted))
                rows[s] = wanted;
            else
                cr_assert_eq(as_kv_free_blocks(pool), before, "a failed reserve took blocks");
        }
        check_ownership(pool, open, SEQUENCES);
    }
    as_kv_pool_free(pool);
}

Test(engine_kv_pool, layers_do_not_overlap)
{
    struct as_kv_pool *pool;
    const struct as_kv_options options = small(3, 1);
    cr_assert_eq(as_kv_pool_create(device, &options, &pool, NULL), 0);
    const struct assay_kv_cache *first = as_kv_pool_layer(pool, 0);
    const struct assay_kv_cache *second = as_kv_pool_layer(pool, 1);
    size_t plane = assay_kv_offset(first, 2, 2, 3) + 8 * sizeof(float);
    cr_assert_eq(plane, (size_t)3 * 3 * 4 * 8 * sizeof(float));
    cr_assert_eq((char *)first->v, (char *)first->k + plane);
    cr_assert_eq((char *)second->k, (char *)first->v + plane);
    cr_assert_eq(as_kv_bytes(pool), 4 * plane);
    as_kv_pool_free(pool);
}

Test(engine_kv_pool, impossible_sizes_are_refused)
{
    struct as_kv_pool *pool;
    struct as_error error = {0};
    struct as_kv_options options = small(0, 1);
    cr_assert_eq(as_kv_pool_create(device, &options, &pool, &error), AS_ERR_USAGE);
    as_error_clear(&error);
    options = small((int64_t)1 << 31, 1);
    cr_assert_eq(as_kv_pool_create(device, &options, &pool, &error), AS_ERR_USAGE);
    as_error_clear(&error);
    options = small(INT32_MAX, 1);
    options.kv_heads = options.head_dim = 1 << 16;
    cr_assert_eq(as_kv_pool_create(device, &options, &pool, &error), AS_ERR_MEMORY);
    cr_assert_null(pool);
}

/* Offsets are 64-bit: block 131,079 of 8 heads x 16 rows x 128 starts past 2^31 elements. */
Test(engine_kv_pool, offsets_pass_two_to_the_31)
{
    const struct assay_kv_cache cache = {
        .dtype = ASSAY_F32, .block_size = 16, .kv_heads = 8, .head_dim = 128, .blocks = 131080};
    cr_assert_eq(assay_kv_offset(&cache, 131079, 7, 15),
                 ((((size_t)131079 * 8 + 7) * 16 + 15) * 128) * 4);
}
