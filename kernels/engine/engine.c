#include "engine/engine.h"

#include <string.h>

#include "as_clock.h"
#include "as_memory.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/team.h"
#include "engine/plan.h"

/* Steps of more kinds than these in turn make plans over and over; 64 plans of a 30-layer model
 * take about 14 MB. */
#define MAX_PLANS 64

/* Two programs: one whose logits may be swallowed by a cover, one that keeps them. */
enum { GREEDY, KEEP_LOGITS, KINDS };

struct as_engine {
    struct as_engine_options options;
    struct as_counters counters;
    struct as_program *program[KINDS];
    struct as_grouping *grouping[KINDS];
    struct as_plan *plan[MAX_PLANS];
    size_t plans;
    uint64_t uses; /* of plans, to find the one used longest ago */
    struct as_kv_pool *pool;
    struct as_metadata_builder *metadata;
    struct as_weights *weights;
    struct as_tables tables;
    void *arena;
    void *scratch;
    size_t scratch_bytes;
    struct assay_top *top; /* (max_sequences), the host's copy */
    float *logits;         /* (max_sequences, vocab), the host's copy; made at first need */

    /* The step in flight. */
    struct as_plan *running;
    struct assay_step step;
    struct as_batch_row *batch_row; /* (max_sequences) */
    int32_t batch_rows, kind;
    struct as_step_result result;
    bool warm;
    uint64_t regions_before, barriers_before; /* of the team, at the last restart of counting */
};

/* ---- making one --------------------------------------------------------------------------- */

static int group_kind(struct as_engine *engine, int kind, struct as_error *error)
{
    const struct as_engine_options *o = &engine->options;
    struct as_program_options program_options = {.activations = o->activations,
                                                 .kv = o->kv,
                                                 .block_size = o->block_size,
                                                 .keep_logits = kind == KEEP_LOGITS};
    const int64_t rows[2] = {o->max_tokens, o->max_sequences};
    int code = as_program_llama(o->model, &program_options, &engine->program[kind], error);
    if (code != 0)
        return code;
    return as_group_program(engine->program[kind], o->registry, o->choice, o->choices, rows,
                            &engine->grouping[kind], error);
}

static int create_pool(struct as_engine *engine, struct as_error *error)
{
    const struct as_engine_options *o = &engine->options;
    const struct as_model_config *config = &o->model->config;
    struct as_kv_options kv = {.layers = (int32_t)config->layers,
                               .kv_heads = (int32_t)config->kv_heads,
                               .head_dim = (int32_t)config->head_dim,
                               .block_size = o->block_size,
                               .blocks = o->kv_blocks,
                               .dtype = o->kv,
                               .max_sequences = o->max_sequences};
    int code = as_kv_pool_create(o->device, &kv, &engine->pool, error);
    if (code != 0)
        return code;
    struct as_metadata_limits limits = {.sequences = o->max_sequences,
                                        .tokens = o->max_tokens,
                                        .blocks = (o->context + o->block_size - 1) / o->block_size};
    return as_metadata_create(o->device, &limits, &engine->metadata, error);
}

static int create_memory(struct as_engine *engine, struct as_error *error)
{
    const struct as_engine_options *o = &engine->options;
    size_t bytes = 0;
    for (int kind = 0; kind < KINDS; kind++)
        if (engine->grouping[kind]->arena_bytes > bytes)
            bytes = engine->grouping[kind]->arena_bytes;
    engine->arena = o->device->alloc(o->device, bytes, error);
    engine->top = as_calloc(error, (size_t)o->max_sequences, sizeof engine->top[0], "step rows");
    engine->batch_row =
        as_calloc(error, (size_t)o->max_sequences, sizeof engine->batch_row[0], "step rows");
    if (engine->arena == NULL || engine->top == NULL || engine->batch_row == NULL)
        return AS_ERR_MEMORY;
    engine->counters.arena_bytes = bytes;
    engine->counters.kv_bytes = as_kv_bytes(engine->pool);
    engine->counters.kv_blocks = (uint64_t)as_kv_total_blocks(engine->pool);
    engine->counters.model_bytes = o->model->tensor_bytes;
    return as_weights_create(o->device, &engine->counters, &engine->weights, error);
}

static int check_options(const struct as_engine_options *o, struct as_error *error)
{
    if (o->max_tokens < 1 || o->max_sequences < 1 || o->block_size < 1 || o->context < 1)
        return as_fail(error, AS_ERR_USAGE,
                       "an engine needs at least one token, sequence, cache row and context row; "
                       "asked for %d tokens, %d sequences, blocks of %d, context %d",
                       (int)o->max_tokens, (int)o->max_sequences, (int)o->block_size,
                       (int)o->context);
    if (o->context > (int32_t)o->model->config.context)
        return as_fail(error, AS_ERR_USAGE, "context %d is more than the model's %u",
                       (int)o->context, o->model->config.context);
    return 0;
}

static struct as_plan_source plan_source(struct as_engine *engine, int32_t kind)
{
    return (struct as_plan_source){.options = &engine->options,
                                   .grouping = engine->grouping[kind],
                                   .weights = engine->weights,
                                   .tables = &engine->tables,
                                   .metadata = as_metadata_view(engine->metadata),
                                   .pool = engine->pool,
                                   .arena = engine->arena,
                                   .token_ids = as_metadata_token_ids(engine->metadata),
                                   .scratch = &engine->scratch};
}

static int find_plan(struct as_engine *engine, int32_t kind, const struct as_step_shape *shape,
                     struct as_plan **found, struct as_error *error);

/* Packs every weight and makes the plans of a lone token and of the largest step, so that the
 * first measured step does neither. */
static int warm_plans(struct as_engine *engine, struct as_error *error)
{
    const struct as_engine_options *o = &engine->options;
    struct as_plan *plan;
    struct as_step_shape one = {1, 1, 1, 1, 1, 1};
    struct as_step_shape most = {o->max_tokens, 1, 1, o->max_tokens, o->max_tokens, o->max_tokens};
    int code = find_plan(engine, GREEDY, &one, &plan, error);
    return code != 0 ? code : find_plan(engine, GREEDY, &most, &plan, error);
}

int as_engine_create(const struct as_engine_options *options, struct as_engine **result,
                     struct as_error *error)
{
    *result = NULL;
    struct as_engine *engine = as_calloc(error, 1, sizeof *engine, "the engine");
    if (engine == NULL)
        return AS_ERR_MEMORY;
    engine->options = *options;
    int code = check_options(options, error);
    for (int kind = 0; code == 0 && kind < KINDS; kind++)
        code = group_kind(engine, kind, error);
    if (code == 0)
        code = create_pool(engine, error);
    if (code == 0)
        code = create_memory(engine, error);
    if (code == 0)
        code = warm_plans(engine, error);
    if (code != 0) {
        as_engine_free(engine);
        return code;
    }
    *result = engine;
    return 0;
}

void as_engine_free(struct as_engine *engine)
{
    if (engine == NULL)
        return;
    struct assay_device *device = engine->options.device;
    for (size_t i = 0; i < engine->plans; i++)
        as_plan_free(engine->plan[i]);
    as_tables_free(&engine->tables);
    as_weights_free(engine->weights);
    as_metadata_free(engine->metadata);
    as_kv_pool_free(engine->pool);
    for (int kind = 0; kind < KINDS; kind++) {
        as_grouping_free(engine->grouping[kind]);
        as_program_free(engine->program[kind]);
    }
    device->free(device, engine->arena);
    device->free(device, engine->scratch);
    free(engine->top);
    free(engine->logits);
    free(engine->batch_row);
    free(engine);
}

/* ---- plans -------------------------------------------------------------------------------- */

static int32_t class_of(int64_t size)
{
    int32_t class = 0;
    while (((int64_t)1 << class) < size)
        class ++;
    return class;
}

static int grow_scratch(struct as_engine *engine, size_t bytes, struct as_error *error)
{
    struct assay_device *device = engine->options.device;
    if (bytes <= engine->scratch_bytes)
        return 0;
    device->free(device, engine->scratch);
    engine->scratch_bytes = 0;
    engine->scratch = device->alloc(device, bytes, error);
    if (engine->scratch == NULL)
        return AS_ERR_MEMORY;
    engine->scratch_bytes = bytes;
    engine->counters.scratch_bytes = bytes;
    if (engine->warm)
        engine->counters.allocations_after_warmup++;
    return 0;
}

static size_t slot_for_new_plan(struct as_engine *engine)
{
    if (engine->plans < MAX_PLANS)
        return engine->plans++;
    size_t oldest = 0;
    for (size_t i = 1; i < MAX_PLANS; i++)
        if (engine->plan[i]->last_used < engine->plan[oldest]->last_used)
            oldest = i;
    as_plan_free(engine->plan[oldest]);
    engine->plan[oldest] = NULL;
    return oldest;
}

static int make_plan(struct as_engine *engine, const struct as_plan_key *key,
                     const struct as_step_shape *shape, struct as_plan **found,
                     struct as_error *error)
{
    struct as_plan_source source = plan_source(engine, key->kind);
    struct as_step_shape class_shape = *shape;
    class_shape.context = (int64_t)1 << key->context_class;
    size_t scratch = 0;
    int code = as_plan_create(&source, key, &class_shape, found, &scratch, error);
    if (code != 0)
        return code;
    code = grow_scratch(engine, scratch, error);
    if (code != 0) {
        as_plan_free(*found);
        return code;
    }
    engine->plan[slot_for_new_plan(engine)] = *found;
    engine->counters.plans_built++;
    if (engine->warm)
        engine->counters.allocations_after_warmup++;
    return 0;
}

static int find_plan(struct as_engine *engine, int32_t kind, const struct as_step_shape *shape,
                     struct as_plan **found, struct as_error *error)
{
    const struct as_plan_key key = {.kind = kind,
                                    .tokens = (int32_t)shape->tokens,
                                    .logit_rows = (int32_t)shape->logit_rows,
                                    .context_class = class_of(shape->context)};
    *found = NULL;
    for (size_t i = 0; i < engine->plans && *found == NULL; i++)
        if (memcmp(&engine->plan[i]->key, &key, sizeof key) == 0)
            *found = engine->plan[i];
    int code = 0;
    if (*found != NULL)
        engine->counters.plan_hits++;
    else
        code = make_plan(engine, &key, shape, found, error);
    if (code == 0)
        (*found)->last_used = ++engine->uses;
    return code;
}

/* ---- steps -------------------------------------------------------------------------------- */

static struct as_step_shape shape_of_batch(const struct as_kv_pool *pool,
                                           const struct as_batch *batch)
{
    struct as_step_shape shape = {.sequences = batch->rows};
    for (int32_t i = 0; i < batch->rows; i++) {
        const struct as_batch_row *row = &batch->row[i];
        int64_t before = as_kv_length(pool, row->sequence), rows = before + row->count;
        shape.tokens += row->count;
        shape.logit_rows += row->wants_logits && row->count > 0;
        shape.context = rows > shape.context ? rows : shape.context;
        shape.kv_rows += row->count > 0 ? rows : 0;
        shape.kv_tokens += row->count * before + (int64_t)row->count * (row->count + 1) / 2;
    }
    return shape;
}

static int launch_step(struct as_engine *engine, const struct as_step_shape *shape,
                       struct as_error *error)
{
    const struct as_engine_options *o = &engine->options;
    struct as_plan_source source = plan_source(engine, engine->kind);
    int code = find_plan(engine, engine->kind, shape, &engine->running, error);
    if (code == 0)
        code = as_plan_refresh(&source, engine->running, shape, o->observer != NULL, error);
    if (code != 0)
        return code;
    engine->step = (struct assay_step){.launch = engine->running->launch,
                                       .launches = engine->running->launches,
                                       .observer = o->observer};
    engine->counters.launches += (uint64_t)engine->running->launches;
    return o->device->submit(o->device, &engine->step, error);
}

int as_engine_submit(struct as_engine *engine, const struct as_batch *batch, bool keep_logits,
                     struct as_error *error)
{
    engine->result = (struct as_step_result){.start_ns = as_clock_ns()};
    engine->running = NULL;
    engine->step = (struct assay_step){0};
    engine->kind = keep_logits ? KEEP_LOGITS : GREEDY;
    int code = as_metadata_build(engine->metadata, engine->pool, batch, &engine->counters,
                                 &engine->result.metadata, error);
    if (code != 0)
        return code;
    memcpy(engine->batch_row, batch->row, (size_t)batch->rows * sizeof engine->batch_row[0]);
    engine->batch_rows = batch->rows;
    struct as_step_shape shape = shape_of_batch(engine->pool, batch);
    engine->result.tokens = (int32_t)shape.tokens;
    engine->result.sequences = batch->rows;
    engine->result.logit_rows = (int32_t)shape.logit_rows;
    return shape.tokens == 0 ? 0 : launch_step(engine, &shape, error);
}

static int fetch(struct as_engine *engine, void *to, int32_t value, size_t bytes,
                 struct as_error *error)
{
    struct assay_device *device = engine->options.device;
    const char *from = (const char *)engine->arena + engine->grouping[engine->kind]->offset[value];
    engine->counters.downloads++;
    engine->counters.download_bytes += bytes;
    return device->download(device, to, from, bytes, error);
}

static int fetch_outputs(struct as_engine *engine, struct as_error *error)
{
    const struct as_program *program = engine->program[engine->kind];
    size_t rows = (size_t)engine->result.logit_rows, vocab = engine->options.model->config.vocab;
    if (rows == 0)
        return 0;
    int code = fetch(engine, engine->top, program->top, rows * sizeof engine->top[0], error);
    engine->result.top = engine->top;
    if (code != 0 || engine->kind != KEEP_LOGITS)
        return code;
    if (engine->logits == NULL) {
        engine->logits = as_calloc(error, (size_t)engine->options.max_sequences * vocab,
                                   sizeof engine->logits[0], "logits");
        if (engine->logits == NULL)
            return AS_ERR_MEMORY;
        engine->counters.allocations_after_warmup += engine->warm;
    }
    engine->result.logits = engine->logits;
    return fetch(engine, engine->logits, program->logits, rows * vocab * sizeof(float), error);
}

static void move_on(struct as_engine *engine)
{
    struct as_counters *counters = &engine->counters;
    for (int32_t i = 0; i < engine->batch_rows; i++) {
        const struct as_batch_row *row = &engine->batch_row[i];
        as_kv_set_length(engine->pool, row->sequence,
                         as_kv_length(engine->pool, row->sequence) + row->count);
    }
    uint64_t used = (uint64_t)(as_kv_total_blocks(engine->pool) - as_kv_free_blocks(engine->pool));
    if (used > counters->kv_blocks_peak)
        counters->kv_blocks_peak = used;
    counters->steps++;
    engine->warm = true;
}

int as_engine_collect(struct as_engine *engine, struct as_step_result *result,
                      struct as_error *error)
{
    struct assay_device *device = engine->options.device;
    int code = engine->running == NULL ? 0 : device->collect(device, &engine->step, error);
    engine->counters.synchronizations++;
    if (code == 0)
        code = fetch_outputs(engine, error);
    if (code != 0)
        return code;
    move_on(engine);
    engine->result.device_start_ns = engine->step.device_start;
    engine->result.device_end_ns = engine->step.device_end;
    engine->result.end_ns = as_clock_ns();
    *result = engine->result;
    return 0;
}

/* ---- looking in --------------------------------------------------------------------------- */

struct as_kv_pool *as_engine_pool(struct as_engine *engine)
{
    return engine->pool;
}

const struct as_counters *as_engine_counters(struct as_engine *engine)
{
    struct as_team *team = as_cpu_device_team(engine->options.device);
    as_team_counts(team, &engine->counters.regions, &engine->counters.barriers);
    engine->counters.regions -= engine->regions_before;
    engine->counters.barriers -= engine->barriers_before;
    return &engine->counters;
}

void as_engine_restart_counting(struct as_engine *engine)
{
    const struct as_counters old = engine->counters;
    struct as_team *team = as_cpu_device_team(engine->options.device);
    as_team_counts(team, &engine->regions_before, &engine->barriers_before);
    engine->counters = (struct as_counters){.packed_tensors = old.packed_tensors,
                                            .packed_bytes = old.packed_bytes,
                                            .model_bytes = old.model_bytes,
                                            .arena_bytes = old.arena_bytes,
                                            .scratch_bytes = old.scratch_bytes,
                                            .kv_bytes = old.kv_bytes,
                                            .kv_blocks = old.kv_blocks};
}

struct as_counters *as_engine_counters_mutable(struct as_engine *engine)
{
    return &engine->counters;
}

const struct assay_problem *as_engine_problem(const struct as_engine *engine, size_t index)
{
    return &engine->tables.problem[index];
}

size_t as_engine_problem_count(const struct as_engine *engine)
{
    return engine->tables.problems;
}

const struct assay_variant *as_engine_variant(const struct as_engine *engine, size_t index)
{
    return engine->tables.variant[index];
}

size_t as_engine_variant_count(const struct as_engine *engine)
{
    return engine->tables.variants;
}

const struct assay_launch *as_engine_launches(const struct as_engine *engine, int32_t *count)
{
    *count = engine->running == NULL ? 0 : engine->running->launches;
    return engine->running == NULL ? NULL : engine->running->launch;
}

struct visiting {
    const struct as_step_shape *shape;
    int (*visit)(void *context, const struct assay_variant *variant,
                 const struct assay_problem *problem);
    void *context;
    struct as_tables seen;
    struct as_error *error;
};

static int visit_group(struct visiting *visiting, const struct as_engine_options *options,
                       const struct as_grouping *grouping, const struct as_group *group)
{
    struct assay_problem problem;
    int32_t index;
    size_t before = visiting->seen.problems;
    as_group_problem(grouping, group, visiting->shape, &problem);
    int code = as_tables_problem(&visiting->seen, &problem, &index, visiting->error);
    if (code != 0 || visiting->seen.problems == before)
        return code;
    const struct assay_variant *variant =
        as_select_variant(options->registry, options->device, &options->choice[group->choice],
                          &problem, visiting->error);
    return variant == NULL ? visiting->error->code
                           : visiting->visit(visiting->context, variant, &problem);
}

/* Both programs: a cover that swallows the logits leaves other variants to the steps that keep
 * them. */
int as_engine_visit_problems(const struct as_engine_options *options,
                             const struct as_step_shape *shape,
                             int (*visit)(void *context, const struct assay_variant *variant,
                                          const struct assay_problem *problem),
                             void *context, struct as_error *error)
{
    struct as_engine engine = {.options = *options};
    struct visiting visiting = {.shape = shape, .visit = visit, .context = context, .error = error};
    const struct as_plan_key key = {.logit_rows = (int32_t)shape->logit_rows};
    int code = 0;
    for (int kind = 0; code == 0 && kind < KINDS; kind++) {
        code = group_kind(&engine, kind, error);
        const struct as_grouping *grouping = engine.grouping[kind];
        for (size_t g = 0; code == 0 && g < grouping->groups; g++)
            if (!as_plan_skips(grouping, &grouping->group[g], &key))
                code = visit_group(&visiting, options, grouping, &grouping->group[g]);
    }
    as_tables_free(&visiting.seen);
    for (int kind = 0; kind < KINDS; kind++) {
        as_grouping_free(engine.grouping[kind]);
        as_program_free(engine.program[kind]);
    }
    return code;
}
