/* Byte pair merging inside one word, the best rank first and of equal ones the leftmost.
 * O(n log n) in the word's length: a linked list of symbols and a heap of candidate merges. */
#ifndef AS_BPE_H
#define AS_BPE_H

#include <stddef.h>
#include <stdint.h>

#include "as_error.h"

/* A growing array of ids; free `data`. */
struct as_ids {
    int32_t *data;
    size_t count, capacity;
};

int as_ids_add(struct as_ids *ids, int32_t id, struct as_error *error);

struct as_bpe_merge {
    uint64_t pair; /* left id << 32 | right id */
    uint32_t rank; /* AS_BPE_FREE: the slot is empty */
    int32_t id;
};

#define AS_BPE_FREE UINT32_MAX

struct as_bpe {
    int32_t bytes[256];          /* the id of each single byte, -1 where the vocabulary has none */
    struct as_bpe_merge *merges; /* open addressing */
    size_t slots;                /* a power of two */
    uint64_t seed;               /* of the hash: no file can be made to collide */
};

/* An empty table for `count` merges; bytes are all -1. */
int as_bpe_init(struct as_bpe *bpe, size_t count, struct as_error *error);
void as_bpe_free(struct as_bpe *bpe);

/* `rank` counts up; a pair that comes again takes its last rank, as for Hugging Face. */
void as_bpe_add(struct as_bpe *bpe, int32_t left, int32_t right, uint32_t rank, int32_t id);

struct as_bpe_symbol {
    int32_t id;             /* -1: merged into the one before */
    int32_t previous, next; /* -1 at the ends */
};

/* What one thread's merging writes into; zero it at first. */
struct as_bpe_scratch {
    struct as_bpe_symbol *symbols;
    size_t symbol_capacity;
    uint64_t *heap; /* rank << 32 | position of the left symbol */
    size_t heap_count, heap_capacity;
};

void as_bpe_scratch_free(struct as_bpe_scratch *scratch);

/* Adds the ids of `word` (at most INT32_MAX bytes) to `ids`. A byte without an id is dropped, as
 * Hugging Face does where the vocabulary has no unknown token. */
int as_bpe_word(const struct as_bpe *bpe, struct as_bpe_scratch *scratch, const char *word,
                size_t length, struct as_ids *ids, struct as_error *error);

#endif
