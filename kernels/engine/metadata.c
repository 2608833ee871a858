#include "engine/metadata.h"

#include <string.h>

#include "as_clock.h"
#include "as_memory.h"

/* All arrays lie in one buffer, laid out for the largest step, so that one upload sends a step's
 * worth: sizes are rounded up to 64 bytes and the order never changes. */
struct layout {
    size_t token_ids, cu_query, context, positions, token_sequence, logit_row, slots, block_table;
    size_t bytes;
};

struct as_metadata_builder {
    struct assay_device *device;
    struct as_metadata_limits limits;
    struct layout layout;
    char *host, *memory; /* the staging copy, and the device's */
    struct assay_metadata view;
};

static size_t place(size_t *end, size_t count, size_t size)
{
    size_t begin = *end;
    *end = as_align_up(begin + count * size, 64);
    return begin;
}

/* The block table comes last: its used part varies most, so the tail is left out of the upload. */
static struct layout lay_out(const struct as_metadata_limits *limits)
{
    size_t tokens = (size_t)limits->tokens, sequences = (size_t)limits->sequences, end = 0;
    struct layout layout;
    layout.token_ids = place(&end, tokens, sizeof(int32_t));
    layout.cu_query = place(&end, sequences + 1, sizeof(int32_t));
    layout.context = place(&end, sequences, sizeof(int32_t));
    layout.positions = place(&end, tokens, sizeof(int32_t));
    layout.token_sequence = place(&end, tokens, sizeof(int32_t));
    layout.logit_row = place(&end, sequences, sizeof(int32_t));
    layout.slots = place(&end, tokens, sizeof(int64_t));
    layout.block_table = place(&end, sequences * (size_t)limits->blocks, sizeof(int32_t));
    layout.bytes = end;
    return layout;
}

int as_metadata_create(struct assay_device *device, const struct as_metadata_limits *limits,
                       struct as_metadata_builder **builder, struct as_error *error)
{
    *builder = as_calloc(error, 1, sizeof **builder, "attention metadata");
    if (*builder == NULL)
        return AS_ERR_MEMORY;
    struct as_metadata_builder *b = *builder;
    b->device = device;
    b->limits = *limits;
    b->layout = lay_out(limits);
    b->host = as_calloc_aligned(error, b->layout.bytes, 1, "attention metadata");
    b->memory = device->alloc(device, b->layout.bytes, error);
    if (b->host == NULL || b->memory == NULL) {
        as_metadata_free(b);
        *builder = NULL;
        return AS_ERR_MEMORY;
    }
    const struct layout *l = &b->layout;
    b->view =
        (struct assay_metadata){.table_stride = limits->blocks,
                                .cu_query = (const int32_t *)(b->memory + l->cu_query),
                                .context = (const int32_t *)(b->memory + l->context),
                                .positions = (const int32_t *)(b->memory + l->positions),
                                .token_sequence = (const int32_t *)(b->memory + l->token_sequence),
                                .block_table = (const int32_t *)(b->memory + l->block_table),
                                .slots = (const int64_t *)(b->memory + l->slots),
                                .logit_row = (const int32_t *)(b->memory + l->logit_row)};
    return 0;
}

void as_metadata_free(struct as_metadata_builder *builder)
{
    if (builder == NULL)
        return;
    builder->device->free(builder->device, builder->memory);
    free(builder->host);
    free(builder);
}

/* Fills sequence `s` of the staging copy, whose first token is row `first` of the step. */
static void fill_sequence(struct as_metadata_builder *b, const struct as_kv_pool *pool,
                          const struct as_batch_row *row, int32_t s, int32_t first)
{
    const struct layout *l = &b->layout;
    int32_t blocks;
    const int32_t *block = as_kv_blocks(pool, row->sequence, &blocks);
    int32_t size = as_kv_pool_layer(pool, 0)->block_size;
    int32_t length = (int32_t)as_kv_length(pool, row->sequence);
    int32_t *table = (int32_t *)(b->host + l->block_table) + (size_t)s * (size_t)b->limits.blocks;
    int32_t used = (length + row->count + size - 1) / size;
    memcpy(table, block, (size_t)used * sizeof table[0]);
    memcpy((int32_t *)(b->host + l->token_ids) + first, row->tokens,
           (size_t)row->count * sizeof(int32_t));
    ((int32_t *)(b->host + l->context))[s] = length + row->count;
    for (int32_t i = 0; i < row->count; i++) {
        int32_t position = length + i;
        ((int32_t *)(b->host + l->positions))[first + i] = position;
        ((int32_t *)(b->host + l->token_sequence))[first + i] = s;
        ((int64_t *)(b->host + l->slots))[first + i] =
            (int64_t)block[position / size] * size + position % size;
    }
}

static void fill(struct as_metadata_builder *b, const struct as_kv_pool *pool,
                 const struct as_batch *batch)
{
    int32_t *cu_query = (int32_t *)(b->host + b->layout.cu_query);
    int32_t *logit_row = (int32_t *)(b->host + b->layout.logit_row);
    struct assay_metadata *view = &b->view;
    view->sequences = batch->rows;
    view->tokens = view->logit_rows = view->max_query = view->max_context = 0;
    cu_query[0] = 0;
    for (int32_t s = 0; s < batch->rows; s++) {
        const struct as_batch_row *row = &batch->row[s];
        int32_t context = (int32_t)as_kv_length(pool, row->sequence) + row->count;
        fill_sequence(b, pool, row, s, view->tokens);
        view->tokens += row->count;
        cu_query[s + 1] = view->tokens;
        view->max_query = row->count > view->max_query ? row->count : view->max_query;
        view->max_context = context > view->max_context ? context : view->max_context;
        if (row->wants_logits && row->count > 0)
            logit_row[view->logit_rows++] = view->tokens - 1;
    }
}

static int check_limits(const struct as_metadata_builder *b, const struct as_kv_pool *pool,
                        const struct as_batch *batch, struct as_error *error)
{
    int64_t tokens = 0;
    if (batch->rows > b->limits.sequences)
        return as_fail(error, AS_ERR_USAGE, "a step of %d sequences, the engine holds %d",
                       (int)batch->rows, (int)b->limits.sequences);
    for (int32_t s = 0; s < batch->rows; s++) {
        const struct as_batch_row *row = &batch->row[s];
        int32_t blocks;
        as_kv_blocks(pool, row->sequence, &blocks);
        int64_t rows = as_kv_length(pool, row->sequence) + row->count;
        int64_t room = (int64_t)blocks * as_kv_pool_layer(pool, 0)->block_size;
        tokens += row->count;
        if (row->count < 0 || rows > room || blocks > b->limits.blocks)
            return as_fail(error, AS_ERR_USAGE,
                           "a step wants %lld rows of sequence %d, whose blocks hold %lld",
                           (long long)rows, (int)row->sequence, (long long)room);
    }
    if (tokens > b->limits.tokens)
        return as_fail(error, AS_ERR_USAGE, "a step of %lld tokens, the engine holds %d",
                       (long long)tokens, (int)b->limits.tokens);
    return 0;
}

int as_metadata_build(struct as_metadata_builder *b, const struct as_kv_pool *pool,
                      const struct as_batch *batch, struct as_counters *counters,
                      struct as_metadata_cost *cost, struct as_error *error)
{
    uint64_t start = as_clock_ns();
    int code = check_limits(b, pool, batch, error);
    if (code != 0)
        return code;
    fill(b, pool, batch);
    uint64_t built = as_clock_ns();
    size_t table = (size_t)batch->rows * (size_t)b->limits.blocks * sizeof(int32_t);
    size_t bytes = b->layout.block_table + table;
    code = b->device->upload(b->device, b->memory, b->host, bytes, error);
    uint64_t sent = as_clock_ns();
    *cost = (struct as_metadata_cost){.build_ns = built - start, .upload_ns = sent - built};
    counters->metadata_builds++;
    counters->metadata_bytes += bytes;
    counters->uploads++;
    counters->upload_bytes += bytes;
    return code;
}

const struct assay_metadata *as_metadata_view(const struct as_metadata_builder *builder)
{
    return &builder->view;
}

int32_t *as_metadata_token_ids(const struct as_metadata_builder *builder)
{
    return (int32_t *)(builder->memory + builder->layout.token_ids);
}
