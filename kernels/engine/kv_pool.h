/* The paged KV cache: one pool of blocks, a table of block ids for each sequence.
 *
 * A block holds `block_size` rows of every layer, so one id serves all layers.
 */
#ifndef AS_KV_POOL_H
#define AS_KV_POOL_H

#include "kernel.h"

struct as_kv_pool;

struct as_kv_options {
    int32_t layers, kv_heads, head_dim, block_size;
    int64_t blocks;
    enum assay_dtype dtype;
    int32_t max_sequences; /* open at the same time */
};

/* Memory comes from `device`; free before the device closes. */
int as_kv_pool_create(struct assay_device *device, const struct as_kv_options *options,
                      struct as_kv_pool **pool, struct as_error *error);
void as_kv_pool_free(struct as_kv_pool *pool);

/* The cache of one layer. */
const struct assay_kv_cache *as_kv_pool_layer(const struct as_kv_pool *pool, int32_t layer);

/* Opens an empty sequence; its handle is >= 0, or AS_ERR_MEMORY when max_sequences are open. */
int32_t as_kv_open(struct as_kv_pool *pool);

/* Returns the sequence's blocks and forgets it. */
void as_kv_close(struct as_kv_pool *pool, int32_t sequence);

/* Makes room for `rows` rows in all. True, or false with nothing changed when the pool is short. */
bool as_kv_reserve(struct as_kv_pool *pool, int32_t sequence, int64_t rows);

/* Blocks of the sequence in order, and how many. */
const int32_t *as_kv_blocks(const struct as_kv_pool *pool, int32_t sequence, int32_t *count);

/* Rows written so far; the engine moves it on after each step. */
int64_t as_kv_length(const struct as_kv_pool *pool, int32_t sequence);
void as_kv_set_length(struct as_kv_pool *pool, int32_t sequence, int64_t rows);

int64_t as_kv_free_blocks(const struct as_kv_pool *pool);
int64_t as_kv_total_blocks(const struct as_kv_pool *pool);
size_t as_kv_bytes(const struct as_kv_pool *pool);

/* Fills every block that no sequence owns with NaN (0xff bytes): a kernel that reads dead rows
 * then shows it. For checks. */
void as_kv_poison_free(struct as_kv_pool *pool);

#endif
