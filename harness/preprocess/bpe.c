#include "preprocess/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "as_clock.h"
#include "as_memory.h"

/* Beyond these, scratch memory goes back after the word that needed it. */
#define KEPT_SYMBOLS ((size_t)1 << 17)

int as_ids_add(struct as_ids *ids, int32_t id, struct as_error *error)
{
    if (ids->count == ids->capacity &&
        as_grow(error, &ids->data, &ids->capacity, ids->count, sizeof *ids->data, "token ids") != 0)
        return AS_ERR_MEMORY;
    ids->data[ids->count++] = id;
    return 0;
}

static uint64_t pair_of(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static struct as_bpe_merge *merge_slot(const struct as_bpe *bpe, uint64_t pair)
{
    uint64_t mixed = (pair ^ bpe->seed) * 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ mixed >> 32) * 0xbf58476d1ce4e5b9u;
    size_t slot = (size_t)(mixed >> 32) & (bpe->slots - 1);
    while (bpe->merges[slot].rank != AS_BPE_FREE && bpe->merges[slot].pair != pair)
        slot = (slot + 1) & (bpe->slots - 1);
    return &bpe->merges[slot];
}

int as_bpe_init(struct as_bpe *bpe, size_t count, struct as_error *error)
{
    *bpe = (struct as_bpe){.seed = as_clock_ns()};
    memset(bpe->bytes, 0xff, sizeof bpe->bytes);
    if (count >= AS_BPE_FREE)
        return as_fail(error, AS_ERR_DATA, "%zu merges are more than %u", count, AS_BPE_FREE - 1);
    size_t slots = 64;
    while (slots < count * 2)
        slots *= 2;
    bpe->merges = as_calloc(error, slots, sizeof *bpe->merges, "the table of merges");
    if (bpe->merges == NULL)
        return AS_ERR_MEMORY;
    bpe->slots = slots;
    for (size_t i = 0; i < slots; i++)
        bpe->merges[i].rank = AS_BPE_FREE;
    return 0;
}

void as_bpe_free(struct as_bpe *bpe)
{
    free(bpe->merges);
    *bpe = (struct as_bpe){0};
}

void as_bpe_add(struct as_bpe *bpe, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    uint64_t pair = pair_of(left, right);
    *merge_slot(bpe, pair) = (struct as_bpe_merge){.pair = pair, .rank = rank, .id = id};
}

void as_bpe_scratch_free(struct as_bpe_scratch *scratch)
{
    free(scratch->symbols);
    free(scratch->heap);
    *scratch = (struct as_bpe_scratch){0};
}

/* A heap with four children a node: half the levels, and the children share a cache line. */
static int heap_push(struct as_bpe_scratch *scratch, uint64_t key, struct as_error *error)
{
    if (scratch->heap_count == scratch->heap_capacity &&
        as_grow(error, &scratch->heap, &scratch->heap_capacity, scratch->heap_count,
                sizeof *scratch->heap, "candidate merges") != 0)
        return AS_ERR_MEMORY;
    size_t at = scratch->heap_count++;
    while (at > 0 && scratch->heap[(at - 1) / 4] > key) {
        scratch->heap[at] = scratch->heap[(at - 1) / 4];
        at = (at - 1) / 4;
    }
    scratch->heap[at] = key;
    return 0;
}

static uint64_t heap_pop(struct as_bpe_scratch *scratch)
{
    uint64_t *heap = scratch->heap;
    uint64_t top = heap[0], last = heap[--scratch->heap_count];
    size_t at = 0;
    for (;;) {
        size_t first = 4 * at + 1, least = first;
        if (first >= scratch->heap_count)
            break;
        for (size_t i = first + 1; i < first + 4 && i < scratch->heap_count; i++)
            if (heap[i] < heap[least])
                least = i;
        if (heap[least] >= last)
            break;
        heap[at] = heap[least];
        at = least;
    }
    heap[at] = last;
    return top;
}

/* Puts the merge of the symbol at `left` with the one after it on the heap, if there is one. */
static int offer(const struct as_bpe *bpe, struct as_bpe_scratch *scratch, int32_t left,
                 struct as_error *error)
{
    const struct as_bpe_symbol *symbols = scratch->symbols;
    if (left < 0 || symbols[left].next < 0)
        return 0;
    const struct as_bpe_merge *merge =
        merge_slot(bpe, pair_of(symbols[left].id, symbols[symbols[left].next].id));
    if (merge->rank == AS_BPE_FREE)
        return 0;
    return heap_push(scratch, (uint64_t)merge->rank << 32 | (uint32_t)left, error);
}

/* The word's bytes as symbols; *count of them. */
static int fill(const struct as_bpe *bpe, struct as_bpe_scratch *scratch, const char *word,
                size_t length, size_t *count, struct as_error *error)
{
    if (length > scratch->symbol_capacity) {
        free(scratch->symbols);
        scratch->symbol_capacity = 0;
        scratch->symbols = as_calloc(error, length, sizeof *scratch->symbols, "a word's symbols");
        if (scratch->symbols == NULL)
            return AS_ERR_MEMORY;
        scratch->symbol_capacity = length;
    }
    *count = 0;
    for (size_t i = 0; i < length; i++) {
        int32_t id = bpe->bytes[(unsigned char)word[i]], at = (int32_t)*count;
        if (id >= 0)
            scratch->symbols[(*count)++] = (struct as_bpe_symbol){id, at - 1, at + 1};
    }
    if (*count > 0)
        scratch->symbols[*count - 1].next = -1;
    return 0;
}

static int merge_all(const struct as_bpe *bpe, struct as_bpe_scratch *scratch, size_t count,
                     struct as_error *error)
{
    struct as_bpe_symbol *symbols = scratch->symbols;
    int code = 0;
    scratch->heap_count = 0;
    for (size_t i = 0; i + 1 < count && code == 0; i++)
        code = offer(bpe, scratch, (int32_t)i, error);
    while (scratch->heap_count > 0 && code == 0) {
        uint64_t key = heap_pop(scratch);
        int32_t left = (int32_t)(uint32_t)key, right;
        if (symbols[left].id < 0 || (right = symbols[left].next) < 0)
            continue;
        const struct as_bpe_merge *merge =
            merge_slot(bpe, pair_of(symbols[left].id, symbols[right].id));
        /* The pair may have changed since it was offered. */
        if (merge->rank != (uint32_t)(key >> 32))
            continue;
        symbols[left].id = merge->id;
        symbols[left].next = symbols[right].next;
        symbols[right].id = -1;
        if (symbols[left].next >= 0)
            symbols[symbols[left].next].previous = left;
        code = offer(bpe, scratch, symbols[left].previous, error);
        if (code == 0)
            code = offer(bpe, scratch, left, error);
    }
    return code;
}

int as_bpe_word(const struct as_bpe *bpe, struct as_bpe_scratch *scratch, const char *word,
                size_t length, struct as_ids *ids, struct as_error *error)
{
    size_t count;
    int code = fill(bpe, scratch, word, length, &count, error);
    if (code == 0)
        code = merge_all(bpe, scratch, count, error);
    for (int32_t at = count > 0 ? 0 : -1; at >= 0 && code == 0; at = scratch->symbols[at].next)
        code = as_ids_add(ids, scratch->symbols[at].id, error);
    if (scratch->symbol_capacity > KEPT_SYMBOLS || scratch->heap_capacity > KEPT_SYMBOLS)
        as_bpe_scratch_free(scratch);
    return code;
}
