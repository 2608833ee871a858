#include "engine/kv_pool.h"

#include <string.h>

#include "as_memory.h"

struct sequence {
    bool open;
    int32_t *block;
    size_t blocks, capacity;
    int64_t length;
};

struct as_kv_pool {
    struct assay_device *device;
    struct as_kv_options options;
    struct assay_kv_cache *layer;
    void *memory;
    size_t bytes, plane; /* plane: k or v of one layer */
    int32_t *free_block; /* a stack: the block freed last is the one that is warm */
    int64_t free_blocks;
    struct sequence *sequence;
};

static int allocate(struct as_kv_pool *pool, struct as_error *error)
{
    const struct as_kv_options *o = &pool->options;
    size_t rows, bytes;
    if (as_mul_overflows((size_t)o->blocks, (size_t)o->kv_heads * (size_t)o->block_size, &rows) ||
        as_mul_overflows(rows, assay_row_bytes(o->dtype, o->head_dim), &pool->plane) ||
        as_mul_overflows(pool->plane, 2 * (size_t)o->layers, &bytes))
        return as_fail(error, AS_ERR_MEMORY, "a KV cache of %lld blocks is larger than memory",
                       (long long)o->blocks);
    pool->bytes = bytes;
    pool->memory = pool->device->alloc(pool->device, bytes, error);
    pool->layer = as_calloc(error, (size_t)o->layers, sizeof pool->layer[0], "the KV cache");
    pool->free_block = as_calloc(error, (size_t)o->blocks, sizeof(int32_t), "the KV cache");
    pool->sequence =
        as_calloc(error, (size_t)o->max_sequences, sizeof pool->sequence[0], "the KV cache");
    if (pool->memory == NULL || pool->layer == NULL || pool->free_block == NULL ||
        pool->sequence == NULL)
        return as_error_prefix(error, "KV cache of %lld blocks of %d rows (%zu bytes)",
                               (long long)o->blocks, (int)o->block_size, bytes);
    return 0;
}

int as_kv_pool_create(struct assay_device *device, const struct as_kv_options *options,
                      struct as_kv_pool **result, struct as_error *error)
{
    *result = NULL;
    if (options->blocks < 1 || options->blocks > INT32_MAX || options->block_size < 1 ||
        options->layers < 1 || options->max_sequences < 1)
        return as_fail(error, AS_ERR_USAGE,
                       "a KV cache needs at least one block, row, layer and sequence, and at most "
                       "2^31-1 blocks; asked for %lld blocks of %d rows",
                       (long long)options->blocks, (int)options->block_size);
    struct as_kv_pool *pool = as_calloc(error, 1, sizeof *pool, "the KV cache");
    if (pool == NULL)
        return AS_ERR_MEMORY;
    pool->device = device;
    pool->options = *options;
    int code = allocate(pool, error);
    if (code != 0) {
        as_kv_pool_free(pool);
        return code;
    }
    for (int32_t l = 0; l < options->layers; l++)
        pool->layer[l] =
            (struct assay_kv_cache){.k = (char *)pool->memory + 2 * (size_t)l * pool->plane,
                                    .v = (char *)pool->memory + (2 * (size_t)l + 1) * pool->plane,
                                    .dtype = options->dtype,
                                    .block_size = options->block_size,
                                    .kv_heads = options->kv_heads,
                                    .head_dim = options->head_dim,
                                    .blocks = options->blocks};
    pool->free_blocks = options->blocks;
    for (int64_t b = 0; b < options->blocks; b++)
        pool->free_block[b] = (int32_t)(options->blocks - 1 - b);
    *result = pool;
    return 0;
}

void as_kv_pool_free(struct as_kv_pool *pool)
{
    if (pool == NULL)
        return;
    for (int32_t s = 0; pool->sequence != NULL && s < pool->options.max_sequences; s++)
        free(pool->sequence[s].block);
    free(pool->sequence);
    free(pool->free_block);
    free(pool->layer);
    pool->device->free(pool->device, pool->memory);
    free(pool);
}

const struct assay_kv_cache *as_kv_pool_layer(const struct as_kv_pool *pool, int32_t layer)
{
    return &pool->layer[layer];
}

int32_t as_kv_open(struct as_kv_pool *pool)
{
    for (int32_t s = 0; s < pool->options.max_sequences; s++) {
        if (pool->sequence[s].open)
            continue;
        pool->sequence[s].open = true;
        pool->sequence[s].length = 0;
        return s;
    }
    return AS_ERR_MEMORY;
}

void as_kv_close(struct as_kv_pool *pool, int32_t sequence)
{
    struct sequence *s = &pool->sequence[sequence];
    while (s->blocks > 0)
        pool->free_block[pool->free_blocks++] = s->block[--s->blocks];
    s->open = false;
    s->length = 0;
}

bool as_kv_reserve(struct as_kv_pool *pool, int32_t sequence, int64_t rows)
{
    struct sequence *s = &pool->sequence[sequence];
    int64_t size = pool->options.block_size;
    int64_t wanted = (rows + size - 1) / size;
    if (wanted - (int64_t)s->blocks > pool->free_blocks)
        return false;
    while ((int64_t)s->blocks < wanted) {
        if (as_grow(NULL, &s->block, &s->capacity, s->blocks, sizeof s->block[0],
                    "a block table") != 0)
            return false;
        s->block[s->blocks++] = pool->free_block[--pool->free_blocks];
    }
    return true;
}

const int32_t *as_kv_blocks(const struct as_kv_pool *pool, int32_t sequence, int32_t *count)
{
    *count = (int32_t)pool->sequence[sequence].blocks;
    return pool->sequence[sequence].block;
}

int64_t as_kv_length(const struct as_kv_pool *pool, int32_t sequence)
{
    return pool->sequence[sequence].length;
}

void as_kv_set_length(struct as_kv_pool *pool, int32_t sequence, int64_t rows)
{
    pool->sequence[sequence].length = rows;
}

int64_t as_kv_free_blocks(const struct as_kv_pool *pool)
{
    return pool->free_blocks;
}

int64_t as_kv_total_blocks(const struct as_kv_pool *pool)
{
    return pool->options.blocks;
}

size_t as_kv_bytes(const struct as_kv_pool *pool)
{
    return pool->bytes;
}

void as_kv_poison_free(struct as_kv_pool *pool)
{
    const struct as_kv_options *o = &pool->options;
    size_t block = pool->plane / (size_t)o->blocks;
    for (int64_t i = 0; i < pool->free_blocks; i++)
        for (int32_t l = 0; l < o->layers; l++) {
            memset((char *)pool->layer[l].k + (size_t)pool->free_block[i] * block, 0xff, block);
            memset((char *)pool->layer[l].v + (size_t)pool->free_block[i] * block, 0xff, block);
        }
}
