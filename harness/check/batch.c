#include "check/batch.h"

#include <string.h>

#include "as_memory.h"
#include "as_random.h"
#include "check/values.h"

/* Where no context is asked for: rows in the cache that a sequence may have beyond its queries. */
#define SOME_HISTORY 40

/* Where kv_tokens limits the work: most queries of a sequence. */
#define FEW_QUERIES 32

struct maker {
    struct as_check_batch *batch;
    const struct as_check_batch_options *options;
    uint64_t draws;
    int64_t padding; /* rows at the end that belong to nobody */
    int32_t orphan;  /* the sequence with one query and no cache, or -1 */
};

static int64_t below(struct maker *m, int64_t bound)
{
    return bound <= 0 ? 0 : as_value_below(m->options->seed, m->draws++, bound);
}

static int allocate(struct as_check_batch *b, struct as_error *error)
{
    size_t sequences = (size_t)b->sequences, tokens = (size_t)b->tokens;
    b->cu_query = as_calloc(error, sequences + 1, sizeof *b->cu_query, "a batch");
    b->context = as_calloc(error, sequences, sizeof *b->context, "a batch");
    b->positions = as_calloc(error, tokens, sizeof *b->positions, "a batch");
    b->token_sequence = as_calloc(error, tokens, sizeof *b->token_sequence, "a batch");
    b->slots = as_calloc(error, tokens, sizeof *b->slots, "a batch");
    b->logit_row = as_calloc(error, (size_t)b->logit_rows, sizeof *b->logit_row, "a batch");
    b->block_table =
        as_calloc(error, sequences * (size_t)b->table_stride, sizeof *b->block_table, "a batch");
    bool failed = b->cu_query == NULL || b->context == NULL || b->positions == NULL ||
                  b->token_sequence == NULL || b->slots == NULL || b->logit_row == NULL ||
                  b->block_table == NULL;
    return failed ? AS_ERR_MEMORY : 0;
}

void as_check_batch_free(struct as_check_batch *batch)
{
    if (batch == NULL)
        return;
    free(batch->cu_query);
    free(batch->context);
    free(batch->positions);
    free(batch->token_sequence);
    free(batch->slots);
    free(batch->logit_row);
    free(batch->block_table);
    *batch = (struct as_check_batch){0};
}

/* How many sequences share `real` rows when none may have more than `most` of them. */
static int32_t count_sequences(struct maker *m, int64_t real, int64_t most)
{
    const struct as_check_batch_options *o = m->options;
    int64_t count = o->sequences;
    if (count == 0)
        count = real == 0 ? (o->oddities ? 2 : 0) : 1 + below(m, real < 5 ? real : 5);
    if (o->kv_tokens > 0 && count < real * 2 / FEW_QUERIES)
        count = real * 2 / FEW_QUERIES;
    most = most < 1 ? 1 : most;
    if (count < (real + most - 1) / most)
        count = (real + most - 1) / most;
    if (o->sequences == 0 && o->oddities && count > 0 && real > 0)
        count += 2; /* without queries */
    return (int32_t)count;
}

/* Splits `real` rows into query lengths, none over `most`, one for each sequence as far as they
 * go; the last two sequences stay empty where sequences are ours to choose. The lengths are left
 * in cu_query[1..]. */
static void split_queries(struct maker *m, int64_t real, int64_t most)
{
    int32_t *length = m->batch->cu_query + 1;
    int32_t filled = m->batch->sequences;
    if (m->options->kv_tokens > 0 && most > FEW_QUERIES)
        most = FEW_QUERIES;
    if (m->options->sequences == 0 && m->options->oddities && filled > 2)
        filled -= 2;
    for (int32_t s = 0; s < filled && real > 0; s++, real--)
        length[s] = 1;
    while (real > 0) {
        int32_t s = (int32_t)below(m, filled);
        while (length[s] >= most)
            s = (s + 1) % filled;
        int64_t room = most - length[s] < real ? most - length[s] : real;
        int64_t more = 1 + below(m, room);
        length[s] += (int32_t)more;
        real -= more;
    }
}

/* Gives sequence `s` its rows in the cache: at least its queries, at most `most`. */
static void choose_contexts(struct maker *m, int64_t most)
{
    struct as_check_batch *b = m->batch;
    int32_t longest = 0; /* the one with the fewest queries but one, so that it is cheap */
    for (int32_t s = 1; s < b->sequences; s++)
        if (b->cu_query[s + 1] > 0 && b->cu_query[s + 1] < b->cu_query[longest + 1])
            longest = s;
    for (int32_t s = 0; s < b->sequences; s++) {
        int64_t queries = b->cu_query[s + 1];
        int64_t history = most - queries;
        if (m->options->kv_tokens > 0) {
            int64_t share = m->options->kv_tokens / (b->sequences * (queries > 0 ? queries : 1));
            history = history > share ? share : history;
        }
        b->context[s] = (int32_t)(queries + (history > 0 ? below(m, history + 1) : 0));
        if (b->context[s] > most || (s == longest && m->options->context >= 0))
            b->context[s] = (int32_t)most;
        if (queries == 0 && below(m, 2) == 0 && s != longest)
            b->context[s] = 0;
    }
    m->orphan = -1;
    for (int32_t s = 0; m->options->oddities && s < b->sequences; s++)
        if (b->cu_query[s + 1] == 1 && s != longest && m->orphan < 0) {
            m->orphan = s;
            b->context[s] = 0;
        }
}

static void place_tokens(struct maker *m)
{
    struct as_check_batch *b = m->batch;
    for (int32_t s = 0; s < b->sequences; s++) {
        int32_t queries = b->cu_query[s + 1];
        b->cu_query[s + 1] = b->cu_query[s] + queries;
        b->max_query = queries > b->max_query ? queries : b->max_query;
        b->max_context = b->context[s] > b->max_context ? b->context[s] : b->max_context;
        for (int32_t i = 0; i < queries; i++) {
            int32_t position = b->context[s] - queries + i;
            b->positions[b->cu_query[s] + i] = position < 0 ? 0 : position;
            b->token_sequence[b->cu_query[s] + i] = s;
        }
    }
    int32_t real = b->sequences == 0 ? 0 : b->cu_query[b->sequences];
    for (int32_t t = real; t < b->tokens; t++)
        b->token_sequence[t] = -1;
}

static int64_t blocks_of(const struct as_check_batch *b, int32_t sequence)
{
    return (b->context[sequence] + b->block_size - 1) / b->block_size;
}

/* Where each query's own row of the cache lies. */
static void place_slots(struct as_check_batch *b)
{
    for (int32_t t = 0; t < b->tokens; t++) {
        int32_t s = b->token_sequence[t], p = b->positions[t];
        b->slots[t] = -1;
        if (s < 0 || b->context[s] == 0)
            continue;
        int64_t block = b->block_table[(int64_t)s * b->table_stride + p / b->block_size];
        b->slots[t] = block * b->block_size + p % b->block_size;
    }
}

/* Deals shuffled block ids out. A block of history may be shared, as prefixes are. */
static int place_blocks(struct maker *m, struct as_error *error)
{
    struct as_check_batch *b = m->batch;
    int64_t needed = 0;
    for (int32_t s = 0; s < b->sequences; s++)
        needed += blocks_of(b, s);
    b->blocks = needed + 3;
    int32_t *deck = as_calloc(error, (size_t)b->blocks, sizeof *deck, "cache blocks");
    if (deck == NULL)
        return AS_ERR_MEMORY;
    for (int64_t i = 0; i < b->blocks; i++) {
        int64_t j = below(m, i + 1);
        deck[i] = deck[j];
        deck[j] = (int32_t)i;
    }
    b->dead_block = deck[needed];
    int64_t next = 0;
    for (int32_t s = 0; s < b->sequences; s++) {
        int32_t *table = b->block_table + (int64_t)s * b->table_stride;
        for (int64_t i = 0; i < b->table_stride; i++)
            table[i] = i < blocks_of(b, s) ? deck[next + i] : -1;
        next += blocks_of(b, s);
        int32_t history = b->context[s] - (b->cu_query[s + 1] - b->cu_query[s]);
        int32_t before = s == 0 ? 0 : b->context[s - 1] - (b->cu_query[s] - b->cu_query[s - 1]);
        if (m->options->oddities && history >= b->block_size && before >= b->block_size &&
            below(m, 2) == 0)
            table[0] = table[-b->table_stride];
    }
    free(deck);
    place_slots(b);
    return 0;
}

int as_check_batch_make(struct as_check_batch *batch, const struct as_check_batch_options *options,
                        struct as_error *error)
{
    *batch =
        (struct as_check_batch){.tokens = (int32_t)options->tokens,
                                .logit_rows = (int32_t)options->logit_rows,
                                .block_size = options->block_size > 0 ? options->block_size : 16};
    struct maker m = {.batch = batch, .options = options};
    if (options->oddities && options->tokens >= 6)
        m.padding = 1 + below(&m, 2);
    int64_t real = options->tokens - m.padding;
    int64_t most = options->context >= 0 ? options->context : real + SOME_HISTORY;
    batch->sequences = count_sequences(&m, real, most);
    int64_t stride = (most + batch->block_size - 1) / batch->block_size + 2;
    batch->table_stride = (int32_t)stride;
    int code = allocate(batch, error);
    if (code == 0) {
        split_queries(&m, real, most);
        choose_contexts(&m, most);
        place_tokens(&m);
        code = place_blocks(&m, error);
    }
    for (int64_t i = 0; code == 0 && i < options->logit_rows; i++)
        batch->logit_row[i] = (int32_t)((i + 1) * options->tokens / options->logit_rows - 1);
    if (code != 0)
        as_check_batch_free(batch);
    return code;
}

int as_check_batch_part(struct as_check_batch *part, const struct as_check_batch *whole,
                        int32_t sequence, struct as_error *error)
{
    int32_t first = whole->cu_query[sequence], last = whole->cu_query[sequence + 1];
    *part = *whole;
    part->sequences = 1;
    part->tokens = part->max_query = last - first;
    part->max_context = whole->context[sequence];
    part->logit_rows = 0;
    for (int32_t i = 0; i < whole->logit_rows; i++)
        part->logit_rows += whole->logit_row[i] >= first && whole->logit_row[i] < last;
    int code = allocate(part, error);
    if (code != 0) {
        as_check_batch_free(part);
        return code;
    }
    part->cu_query[1] = part->tokens;
    part->context[0] = whole->context[sequence];
    size_t count = (size_t)part->tokens;
    memcpy(part->positions, whole->positions + first, count * sizeof *part->positions);
    memcpy(part->slots, whole->slots + first, count * sizeof *part->slots);
    memcpy(part->block_table, whole->block_table + (int64_t)sequence * whole->table_stride,
           (size_t)whole->table_stride * sizeof *part->block_table);
    for (int32_t i = 0, at = 0; i < whole->logit_rows; i++)
        if (whole->logit_row[i] >= first && whole->logit_row[i] < last)
            part->logit_row[at++] = whole->logit_row[i] - first;
    return 0;
}

static bool shares_block(const struct as_check_batch *b, int32_t sequence)
{
    int32_t first = b->block_table[(int64_t)sequence * b->table_stride];
    for (int32_t s = 0; first >= 0 && s < b->sequences; s++)
        if (s != sequence && b->block_table[(int64_t)s * b->table_stride] == first)
            return true;
    return false;
}

int as_check_batch_shorter(struct as_check_batch *shorter, const struct as_check_batch *whole,
                           struct as_error *error)
{
    *shorter = *whole;
    int code = allocate(shorter, error);
    if (code != 0) {
        as_check_batch_free(shorter);
        return code;
    }
    size_t sequences = (size_t)whole->sequences, tokens = (size_t)whole->tokens;
    size_t entries = sequences * (size_t)whole->table_stride;
    memcpy(shorter->cu_query, whole->cu_query, (sequences + 1) * sizeof(int32_t));
    memcpy(shorter->context, whole->context, sequences * sizeof(int32_t));
    memcpy(shorter->positions, whole->positions, tokens * sizeof(int32_t));
    memcpy(shorter->token_sequence, whole->token_sequence, tokens * sizeof(int32_t));
    memcpy(shorter->block_table, whole->block_table, entries * sizeof(int32_t));
    memcpy(shorter->logit_row, whole->logit_row, (size_t)whole->logit_rows * sizeof(int32_t));
    shorter->max_context = 0;
    for (int32_t s = 0; s < shorter->sequences; s++) {
        int32_t first = shorter->cu_query[s], last = shorter->cu_query[s + 1];
        int32_t history = shorter->context[s] - (last - first);
        int32_t gone = history > 0 ? (history + 1) / 2 : 0;
        if (shares_block(shorter, s) && history - gone < shorter->block_size)
            gone = history - shorter->block_size; /* a shared block is never written */
        shorter->context[s] -= gone;
        if (shorter->context[s] > shorter->max_context)
            shorter->max_context = shorter->context[s];
        for (int32_t t = first; t < last; t++)
            shorter->positions[t] -= gone;
        for (int64_t i = blocks_of(shorter, s); i < shorter->table_stride; i++)
            shorter->block_table[(int64_t)s * shorter->table_stride + i] = -1;
    }
    place_slots(shorter);
    return 0;
}

int64_t as_check_batch_visible(const struct as_check_batch *batch, int32_t token, bool causal)
{
    int32_t sequence = batch->token_sequence[token];
    if (sequence < 0)
        return 0;
    int64_t rows = batch->context[sequence];
    int64_t past = (int64_t)batch->positions[token] + 1;
    return causal && past < rows ? past : rows;
}
