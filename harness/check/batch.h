/* The metadata of a random batch: uneven splits, sequences without queries, without a cache, and
 * padding rows, their cache blocks shuffled over a pool. */
#ifndef AS_CHECK_BATCH_H
#define AS_CHECK_BATCH_H

#include <stdbool.h>
#include <stdint.h>

#include "as_error.h"

struct as_check_batch_options {
    int64_t tokens;     /* query rows in all, padding included */
    int64_t sequences;  /* 0: some */
    int64_t context;    /* rows that the longest sequence has in the cache; -1: some */
    int64_t kv_tokens;  /* about the most rows that all queries may see together; 0: no limit */
    int64_t logit_rows; /* for select_rows: at most `tokens`; the last row is one */
    int32_t block_size;
    bool oddities; /* padding rows, empty sequences, a query without a cache, shared blocks */
    uint64_t seed;
};

/* Arrays as struct assay_metadata has them, in host memory. */
struct as_check_batch {
    int32_t sequences, tokens, logit_rows;
    int32_t max_query, max_context;
    int32_t table_stride, block_size;
    int64_t blocks;     /* of the pool */
    int32_t dead_block; /* one that no sequence owns: all its rows are dead */
    int32_t *cu_query, *context, *positions, *token_sequence, *block_table, *logit_row;
    int64_t *slots;
};

/* Entries of block_table past a sequence's blocks are -1 here; the memory that a kernel sees gets
 * dead_block or a huge number there. */
int as_check_batch_make(struct as_check_batch *batch, const struct as_check_batch_options *options,
                        struct as_error *error);
void as_check_batch_free(struct as_check_batch *batch);

/* The batch that holds sequence `sequence` of `whole` alone, on the same cache; query row i of it
 * is row whole->cu_query[sequence] + i. Padding is left out, and logit rows of other sequences. */
int as_check_batch_part(struct as_check_batch *part, const struct as_check_batch *whole,
                        int32_t sequence, struct as_error *error);

/* The same sequences, queries and pool, with about half of every history gone. */
int as_check_batch_shorter(struct as_check_batch *shorter, const struct as_check_batch *whole,
                           struct as_error *error);

/* Rows of the cache that query row `token` may see. */
int64_t as_check_batch_visible(const struct as_check_batch *batch, int32_t token, bool causal);

#endif
