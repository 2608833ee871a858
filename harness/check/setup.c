#include "check/setup.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "as_memory.h"

/* What `apart` adds: elements between rows, and bytes past a boundary for weights (files promise
 * 8). */
#define GAP 5
#define WEIGHT_SHIFT 8

/* A dead entry that no pool has; its rows lie far outside any process. */
#define HUGE_BLOCK (INT_MAX - 7)

struct opening {
    struct as_setup *setup;
    struct as_complaint *complaint;
    struct as_error *error;
    int32_t threads;
};

void as_complain(struct as_complaint *complaint, const char *format, ...)
{
    if (complaint->words[0] != '\0')
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(complaint->words, sizeof complaint->words, format, arguments);
    va_end(arguments);
}

static int open_array(struct opening *o, struct as_guarded *to, const char *name, const void *from,
                      size_t bytes)
{
    struct as_guarded_shape shape = {.rows = 1,
                                     .row_bytes = bytes,
                                     .pitch = bytes,
                                     .fenced = o->setup->layout.fenced && from != NULL};
    return as_guarded_open(to, name, o->setup->device, &shape, from, o->error);
}

/* ---- operands ----------------------------------------------------------------------------- */

/* Packs in pieces of 64 rows, the last first: pieces must not lean on each other. */
static int pack_weight(struct opening *o, int32_t index, const struct as_case_operand *from)
{
    const struct assay_variant *variant = o->setup->launch.variant;
    size_t bytes = variant->packed_size(from->dtype, from->rows, from->columns);
    struct as_guarded packed;
    int code = open_array(o, &packed, "the packed weight", NULL, bytes);
    if (code != 0)
        return code;
    for (int64_t begin = (from->rows - 1) / 64 * 64; begin >= 0; begin -= 64) {
        int64_t end = begin + 64 < from->rows ? begin + 64 : from->rows;
        variant->pack(packed.block + packed.start, from->stored, from->dtype, from->rows,
                      from->columns, begin, end);
    }
    char words[200];
    if (!as_guarded_intact(&packed, words, sizeof words))
        as_complain(o->complaint, "pack %s", words);
    void *copy = as_calloc_aligned(o->error, bytes, 1, "a packed weight");
    if (copy != NULL)
        memcpy(copy, packed.block + packed.start, bytes);
    o->setup->packed[index] = copy;
    as_guarded_close(&packed);
    return copy == NULL ? AS_ERR_MEMORY : 0;
}

static bool wants_packing(const struct assay_variant *variant, const struct assay_problem *problem,
                          int32_t node)
{
    return variant->weight_layout != NULL && variant->weight_layout(problem, node) != NULL;
}

static struct as_guarded_shape shape_of(const struct as_setup *setup,
                                        const struct as_case_operand *from, int64_t *stride)
{
    size_t row = assay_row_bytes(from->dtype, from->columns);
    size_t element = (size_t)assay_dtype(from->dtype)->bytes;
    struct as_guarded_shape shape = {.rows = (size_t)from->rows, .row_bytes = row, .pitch = row};
    *stride = from->columns;
    if (!setup->layout.apart)
        return shape;
    shape.shift = from->role == AS_CASE_WEIGHT ? WEIGHT_SHIFT : element;
    if (from->role != AS_CASE_WEIGHT && from->dtype == ASSAY_F32) {
        *stride += GAP;
        shape.pitch += GAP * element;
    }
    return shape;
}

static int open_operand(struct opening *o, int32_t index)
{
    struct as_setup *setup = o->setup;
    const struct as_case_operand *from = &setup->made->operand[index];
    struct assay_operand *to = &setup->launch.operand[index];
    const void *stored = from->stored;
    int64_t stride;
    struct as_guarded_shape shape = shape_of(setup, from, &stride);
    if (from->role == AS_CASE_WEIGHT &&
        wants_packing(setup->launch.variant, &setup->problem, from->node)) {
        int code = pack_weight(o, index, from);
        if (code != 0)
            return code;
        stored = setup->packed[index];
        shape = (struct as_guarded_shape){.rows = 1};
        shape.row_bytes = shape.pitch =
            setup->launch.variant->packed_size(from->dtype, from->rows, from->columns);
    }
    shape.fenced = setup->layout.fenced && from->role != AS_CASE_OUTPUT;
    bool shared = setup->layout.in_place && index == as_case_first_output(setup->made);
    int code = shared ? 0
                      : as_guarded_open(&setup->operand[index], from->name, setup->device, &shape,
                                        stored, o->error);
    if (code != 0)
        return code;
    struct as_guarded *memory = &setup->operand[shared ? 0 : index];
    if (from->role == AS_CASE_OUTPUT)
        memory->written = true;
    *to = (struct assay_operand){.data = as_guarded_at(memory),
                                 .dtype = from->dtype,
                                 .rows = from->rows,
                                 .columns = from->columns,
                                 .stride = stride};
    return 0;
}

/* ---- metadata and cache ------------------------------------------------------------------- */

/* The batch's block table as a kernel gets it. */
static void fill_dead_entries(struct as_setup *setup, const struct as_check_batch *batch)
{
    int64_t count = (int64_t)batch->sequences * batch->table_stride;
    for (int64_t i = 0; i < count; i++) {
        int32_t entry = batch->block_table[i];
        setup->dead_table[i] = entry >= 0           ? entry
                               : setup->layout.huge ? HUGE_BLOCK
                                                    : batch->dead_block;
    }
}

struct metadata_array {
    const char *name;
    const void *from;
    size_t bytes;
};

/* The arrays in the order of struct assay_metadata. */
static void list_arrays(const struct as_setup *setup, const struct as_check_batch *batch,
                        struct metadata_array *list)
{
    size_t sequences = (size_t)batch->sequences, tokens = (size_t)batch->tokens;
    size_t word = sizeof(int32_t);
    const struct metadata_array arrays[AS_SETUP_METADATA] = {
        {"metadata cu_query", batch->cu_query, (sequences + 1) * word},
        {"metadata context", batch->context, sequences * word},
        {"metadata positions", batch->positions, tokens * word},
        {"metadata token_sequence", batch->token_sequence, tokens * word},
        {"metadata block_table", setup->dead_table, sequences * (size_t)batch->table_stride * word},
        {"metadata slots", batch->slots, tokens * sizeof(int64_t)},
        {"metadata logit_row", batch->logit_row, (size_t)batch->logit_rows * word},
    };
    memcpy(list, arrays, sizeof arrays);
}

static void set_metadata(struct as_setup *setup, const struct as_check_batch *batch)
{
    setup->metadata = (struct assay_metadata){.sequences = batch->sequences,
                                              .tokens = batch->tokens,
                                              .logit_rows = batch->logit_rows,
                                              .max_query = batch->max_query,
                                              .max_context = batch->max_context,
                                              .table_stride = batch->table_stride,
                                              .cu_query = as_guarded_at(&setup->array[0]),
                                              .context = as_guarded_at(&setup->array[1]),
                                              .positions = as_guarded_at(&setup->array[2]),
                                              .token_sequence = as_guarded_at(&setup->array[3]),
                                              .block_table = as_guarded_at(&setup->array[4]),
                                              .slots = as_guarded_at(&setup->array[5]),
                                              .logit_row = as_guarded_at(&setup->array[6])};
}

static int open_metadata(struct opening *o)
{
    struct as_setup *setup = o->setup;
    const struct as_check_batch *batch = &setup->made->batch;
    struct metadata_array list[AS_SETUP_METADATA];
    size_t entries = (size_t)batch->sequences * (size_t)batch->table_stride;
    setup->dead_table = as_calloc(o->error, entries, sizeof(int32_t), "a block table");
    if (setup->dead_table == NULL)
        return AS_ERR_MEMORY;
    fill_dead_entries(setup, batch);
    list_arrays(setup, batch, list);
    for (int i = 0; i < AS_SETUP_METADATA; i++) {
        int code = open_array(o, &setup->array[i], list[i].name, list[i].from, list[i].bytes);
        if (code != 0)
            return code;
    }
    set_metadata(setup, batch);
    setup->launch.metadata = &setup->metadata;
    return 0;
}

static int open_cache(struct opening *o)
{
    struct as_setup *setup = o->setup;
    const struct as_case_cache *from = &setup->made->cache;
    int code = open_array(o, &setup->k, "the cache's k", from->k, from->bytes);
    if (code == 0)
        code = open_array(o, &setup->v, "the cache's v", from->v, from->bytes);
    setup->k.written = setup->v.written = setup->made->writes_cache;
    setup->cache = (struct assay_kv_cache){.k = as_guarded_at(&setup->k),
                                           .v = as_guarded_at(&setup->v),
                                           .dtype = from->dtype,
                                           .block_size = from->block_size,
                                           .kv_heads = from->kv_heads,
                                           .head_dim = from->head_dim,
                                           .blocks = from->blocks};
    setup->launch.cache = &setup->cache;
    return code;
}

/* ---- plan --------------------------------------------------------------------------------- */

/* The engine plans for a context rounded up and refreshes before every step. */
static void round_context_up(struct assay_problem *problem)
{
    for (int32_t i = 0; i < problem->nodes; i++) {
        int64_t context = 1;
        while (context < problem->node[i].context)
            context *= 2;
        if (problem->node[i].op == ASSAY_ATTENTION)
            problem->node[i].context = context;
    }
}

static void refresh(struct as_setup *setup, struct as_complaint *complaint)
{
    struct as_error refused = {0};
    if (setup->launch.variant->refresh != NULL &&
        setup->launch.variant->refresh(&setup->launch, &refused) != 0)
        as_complain(complaint, "refresh refused: %s", refused.message);
}

static int open_plan(struct opening *o)
{
    struct as_setup *setup = o->setup;
    round_context_up(&setup->problem);
    const struct assay_variant *variant = setup->launch.variant;
    const struct assay_problem *problem = &setup->problem;
    size_t bytes = variant->plan_size != NULL ? variant->plan_size(problem) : 0;
    int code = open_array(o, &setup->plan, "the plan", NULL, bytes);
    setup->plan.written = true;
    setup->launch.plan = bytes > 0 ? as_guarded_at(&setup->plan) : NULL;
    bytes = variant->scratch_size != NULL ? variant->scratch_size(problem, o->threads) : 0;
    if (code == 0)
        code = open_array(o, &setup->scratch, "the scratch memory", NULL, bytes);
    setup->scratch.written = true;
    setup->launch.scratch = bytes > 0 ? as_guarded_at(&setup->scratch) : NULL;
    if (code != 0)
        return code;
    struct as_error refused = {0};
    if (variant->plan != NULL && variant->plan(&setup->launch, &refused) != 0)
        as_complain(o->complaint, "plan refused: %s", refused.message);
    else
        setup->planned = true;
    setup->problem = setup->made->problem;
    if (setup->planned)
        refresh(setup, o->complaint);
    return 0;
}

int as_setup_open(struct as_setup *setup, const struct as_case *made,
                  const struct assay_variant *variant, struct assay_device *device,
                  const struct as_layout *layout, int32_t threads, struct as_complaint *complaint,
                  struct as_error *error)
{
    *setup = (struct as_setup){
        .made = made, .device = device, .layout = *layout, .problem = made->problem};
    struct opening o = {.setup = setup, .complaint = complaint, .error = error, .threads = threads};
    setup->launch = (struct assay_launch){.variant = variant,
                                          .problem = &setup->problem,
                                          .operands = made->operands,
                                          .layer = made->uses_cache ? 0 : -1};
    int code = 0;
    for (int32_t i = 0; code == 0 && i < made->operands; i++)
        code = open_operand(&o, i);
    if (code == 0 && made->uses_metadata)
        code = open_metadata(&o);
    if (code == 0 && made->uses_cache)
        code = open_cache(&o);
    if (code == 0)
        code = open_plan(&o);
    if (code != 0)
        as_setup_close(setup);
    return code;
}

void as_setup_close(struct as_setup *setup)
{
    if (setup->planned && setup->launch.variant->fini != NULL)
        setup->launch.variant->fini(&setup->launch);
    for (int i = 0; i < ASSAY_MAX_OPERANDS; i++) {
        as_guarded_close(&setup->operand[i]);
        free(setup->packed[i]);
    }
    for (int i = 0; i < AS_SETUP_METADATA; i++)
        as_guarded_close(&setup->array[i]);
    as_guarded_close(&setup->k);
    as_guarded_close(&setup->v);
    as_guarded_close(&setup->plan);
    as_guarded_close(&setup->scratch);
    free(setup->dead_table);
    *setup = (struct as_setup){0};
}

/* ---- another step at the same addresses ---------------------------------------------------- */

int as_setup_refit(struct as_setup *setup, const struct as_case *other,
                   struct as_complaint *complaint, struct as_error *error)
{
    int code = 0;
    setup->made = other;
    setup->problem = other->problem; /* at the address that launches know */
    if (other->uses_metadata) {
        struct metadata_array list[AS_SETUP_METADATA];
        fill_dead_entries(setup, &other->batch);
        list_arrays(setup, &other->batch, list);
        for (int i = 0; code == 0 && i < AS_SETUP_METADATA; i++) {
            setup->array[i].stored = list[i].from;
            code = as_guarded_fill(&setup->array[i], error);
        }
        set_metadata(setup, &other->batch);
    }
    if (code == 0 && other->uses_cache) {
        setup->k.stored = other->cache.k;
        setup->v.stored = other->cache.v;
        code = as_guarded_fill(&setup->k, error);
        if (code == 0)
            code = as_guarded_fill(&setup->v, error);
    }
    if (code == 0)
        refresh(setup, complaint);
    return code;
}
