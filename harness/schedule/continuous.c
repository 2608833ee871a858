#include <string.h>

#include "as_memory.h"
#include "schedule/schedule.h"

/* A request from add() to its end. Its tokens are the prompt and what was sampled since; after a
 * preemption all of them are run again. */
struct active {
    struct as_schedule_request request;
    int32_t *token;   /* prompt, then output; room for what the context allows */
    int32_t tokens;   /* known so far */
    int32_t computed; /* of them, rows in the cache */
    int32_t sequence; /* of the KV pool, -1 while waiting */
    bool used;
};

struct as_scheduler {
    struct as_schedule_options options;
    struct as_kv_pool *pool;
    struct active *active;
    size_t active_capacity, active_count; /* slots, used or not */
    int32_t *waiting;                     /* slots of `active`, in order */
    size_t waiting_capacity, waiting_count;
    int32_t *running; /* (max_batch_size) slots, oldest first */
    int32_t running_count;
    struct as_batch_row *row;  /* (max_batch_size) */
    struct as_step_part *part; /* (max_batch_size) */
    uint32_t *preempted;       /* (max_batch_size) */
};

int as_scheduler_create(const struct as_schedule_options *options, struct as_kv_pool *pool,
                        struct as_scheduler **result, struct as_error *error)
{
    struct as_scheduler *s = *result = as_calloc(error, 1, sizeof *s, "the scheduler");
    if (s == NULL)
        return AS_ERR_MEMORY;
    size_t rows = (size_t)options->max_batch_size;
    s->options = *options;
    s->pool = pool;
    s->running = as_calloc(error, rows, sizeof s->running[0], "the scheduler");
    s->row = as_calloc(error, rows, sizeof s->row[0], "the scheduler");
    s->part = as_calloc(error, rows, sizeof s->part[0], "the scheduler");
    s->preempted = as_calloc(error, rows, sizeof s->preempted[0], "the scheduler");
    if (s->running == NULL || s->row == NULL || s->part == NULL || s->preempted == NULL) {
        as_scheduler_free(s);
        *result = NULL;
        return AS_ERR_MEMORY;
    }
    return 0;
}

void as_scheduler_free(struct as_scheduler *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->active_count; i++)
        free(s->active[i].token);
    free(s->active);
    free(s->waiting);
    free(s->running);
    free(s->row);
    free(s->part);
    free(s->preempted);
    free(s);
}

/* ---- adding ------------------------------------------------------------------------------- */

static int check_request(const struct as_scheduler *s, const struct as_schedule_request *request,
                         struct as_error *error)
{
    if (request->prompt_tokens < 1 || request->max_output < 1)
        return as_fail(error, AS_ERR_USAGE,
                       "a request needs a prompt and an output of at least one token; it has %d "
                       "and %d",
                       (int)request->prompt_tokens, (int)request->max_output);
    if (request->prompt_tokens >= s->options.context)
        return as_fail(error, AS_ERR_USAGE,
                       "a prompt of %d tokens leaves no room to answer in a context of %d; shorten "
                       "it or raise the strategy's context",
                       (int)request->prompt_tokens, (int)s->options.context);
    /* The last sampled token needs no row: it is never run. */
    int64_t rows = (int64_t)request->prompt_tokens + request->max_output - 1;
    if (rows > s->options.context && request->exact)
        return as_fail(error, AS_ERR_USAGE,
                       "a prompt of %d tokens and exactly %d of output need %lld rows, the context "
                       "has %d; shorten them or raise the strategy's context",
                       (int)request->prompt_tokens, (int)request->max_output, (long long)rows,
                       (int)s->options.context);
    if (rows > s->options.context)
        rows = s->options.context;
    int64_t size = as_kv_pool_layer(s->pool, 0)->block_size;
    int64_t blocks = (rows + size - 1) / size;
    if (blocks > as_kv_total_blocks(s->pool))
        return as_fail(error, AS_ERR_USAGE,
                       "a request of %lld rows needs %lld cache blocks, the whole cache has %lld; "
                       "raise kv_blocks or shorten it",
                       (long long)rows, (long long)blocks, (long long)as_kv_total_blocks(s->pool));
    return 0;
}

static int32_t free_slot(struct as_scheduler *s, struct as_error *error)
{
    for (size_t i = 0; i < s->active_count; i++)
        if (!s->active[i].used)
            return (int32_t)i;
    if (as_grow(error, &s->active, &s->active_capacity, s->active_count, sizeof s->active[0],
                "the scheduler") != 0)
        return -1;
    return (int32_t)s->active_count++;
}

int as_scheduler_add(struct as_scheduler *s, const struct as_schedule_request *request,
                     struct as_error *error)
{
    int code = check_request(s, request, error);
    if (code == 0)
        code = as_grow(error, &s->waiting, &s->waiting_capacity, s->waiting_count,
                       sizeof s->waiting[0], "the scheduler");
    if (code != 0)
        return code;
    /* A request may ask for two thousand million tokens; the context ends it one past its rows. */
    size_t room = (size_t)request->prompt_tokens + (size_t)request->max_output;
    if (room > (size_t)s->options.context + 1)
        room = (size_t)s->options.context + 1;
    int32_t *token = as_calloc(error, room, sizeof *token, "a request's tokens");
    int32_t slot = token == NULL ? -1 : free_slot(s, error);
    if (slot < 0) {
        free(token);
        return AS_ERR_MEMORY;
    }
    memcpy(token, request->prompt, (size_t)request->prompt_tokens * sizeof *token);
    s->active[slot] = (struct active){.request = *request,
                                      .token = token,
                                      .tokens = request->prompt_tokens,
                                      .sequence = -1,
                                      .used = true};
    s->active[slot].request.prompt = NULL;
    s->waiting[s->waiting_count++] = slot;
    return 0;
}

/* ---- forming a step ----------------------------------------------------------------------- */

static void remove_running(struct as_scheduler *s, int32_t index)
{
    memmove(&s->running[index], &s->running[index + 1],
            (size_t)(--s->running_count - index) * sizeof s->running[0]);
}

/* The sequence admitted last gives its blocks back and waits in front of the others. The waiting
 * list has room: the slot once stood in it. */
static void preempt_last(struct as_scheduler *s, int32_t *preempted)
{
    int32_t slot = s->running[--s->running_count];
    struct active *active = &s->active[slot];
    as_kv_close(s->pool, active->sequence);
    active->sequence = -1;
    active->computed = 0;
    memmove(&s->waiting[1], &s->waiting[0], s->waiting_count * sizeof s->waiting[0]);
    s->waiting[0] = slot;
    s->waiting_count++;
    s->preempted[(*preempted)++] = active->request.request;
}

static void add_part(struct as_scheduler *s, struct as_formed_step *step, int32_t slot,
                     int32_t count)
{
    struct active *active = &s->active[slot];
    int32_t index = step->batch.rows++;
    bool last = active->computed + count == active->tokens;
    bool decode = active->tokens > active->request.prompt_tokens && count == 1 && last;
    bool greedy = active->request.sampling.temperature <= 0;
    s->row[index] = (struct as_batch_row){.sequence = active->sequence,
                                          .tokens = active->token + active->computed,
                                          .count = count,
                                          .wants_logits = last};
    s->part[index] =
        (struct as_step_part){.request = active->request.request,
                              .tokens = count,
                              .position = active->computed,
                              .phase = decode ? AS_PHASE_DECODE
                                       : last ? AS_PHASE_PREFILL_END
                                              : AS_PHASE_PREFILL,
                              .logit_row = -1,
                              .active = slot,
                              .sampling = greedy ? NULL : &active->request.sampling,
                              .draw = (uint64_t)(active->tokens - active->request.prompt_tokens)};
    step->keep_logits = step->keep_logits || (last && !greedy);
    if (decode)
        step->decode_tokens += count;
    else
        step->prefill_tokens += count;
}

/* Gives each decoding sequence its row, oldest first; when the cache is full, the youngest go. */
static void take_decodes(struct as_scheduler *s, struct as_formed_step *step, int32_t *budget,
                         int32_t *preempted)
{
    for (int32_t i = 0; i<s->running_count && * budget> 0; i++) {
        struct active *active = &s->active[s->running[i]];
        if (active->computed + 1 != active->tokens)
            continue;
        bool reserved;
        while (!(reserved = as_kv_reserve(s->pool, active->sequence, active->tokens)) &&
               s->running_count - 1 > i)
            preempt_last(s, preempted);
        if (!reserved) {
            preempt_last(s, preempted);
            return;
        }
        add_part(s, step, s->running[i], 1);
        (*budget)--;
    }
}

static int32_t chunk_of(const struct as_scheduler *s, const struct active *active, int32_t budget)
{
    int32_t chunk = active->tokens - active->computed;
    chunk = chunk < s->options.chunk_tokens ? chunk : s->options.chunk_tokens;
    return chunk < budget ? chunk : budget;
}

static void take_prompts(struct as_scheduler *s, struct as_formed_step *step, int32_t *budget)
{
    for (int32_t i = 0; i<s->running_count && * budget> 0; i++) {
        struct active *active = &s->active[s->running[i]];
        bool taken = false;
        for (int32_t p = 0; p < step->batch.rows; p++)
            taken = taken || s->part[p].active == s->running[i];
        int32_t chunk = taken ? 0 : chunk_of(s, active, *budget);
        if (chunk < 1 || !as_kv_reserve(s->pool, active->sequence, active->computed + chunk))
            continue;
        add_part(s, step, s->running[i], chunk);
        *budget -= chunk;
    }
}

/* Admits waiting requests in order while sequences, tokens and blocks last. The first that does
 * not fit ends it: overtaking would starve the long ones. */
static void admit(struct as_scheduler *s, struct as_formed_step *step, int32_t *budget)
{
    while (s->waiting_count > 0 && s->running_count<s->options.max_batch_size && * budget> 0) {
        int32_t slot = s->waiting[0];
        struct active *active = &s->active[slot];
        int32_t chunk = chunk_of(s, active, *budget);
        int32_t sequence = as_kv_open(s->pool);
        if (sequence < 0)
            return;
        if (!as_kv_reserve(s->pool, sequence, chunk)) {
            as_kv_close(s->pool, sequence);
            return;
        }
        active->sequence = sequence;
        memmove(&s->waiting[0], &s->waiting[1], --s->waiting_count * sizeof s->waiting[0]);
        s->running[s->running_count++] = slot;
        add_part(s, step, slot, chunk);
        *budget -= chunk;
    }
}

int as_scheduler_form(struct as_scheduler *s, struct as_formed_step *step, int32_t *preempted,
                      struct as_error *error)
{
    *step = (struct as_formed_step){.batch = {.row = s->row}, .part = s->part};
    *preempted = 0;
    int code =
        as_grow(error, &s->waiting, &s->waiting_capacity,
                s->waiting_count + (size_t)s->running_count, sizeof s->waiting[0], "the scheduler");
    if (code != 0)
        return code;
    int32_t budget = s->options.max_batch_tokens;
    take_decodes(s, step, &budget, preempted);
    take_prompts(s, step, &budget);
    /* Prompts that hold the whole cache between them would wait for each other for ever. */
    while (step->batch.rows == 0 && s->running_count > 1) {
        preempt_last(s, preempted);
        take_prompts(s, step, &budget);
    }
    if (*preempted == 0)
        admit(s, step, &budget);
    int32_t logit_row = 0;
    for (int32_t i = 0; i < step->batch.rows; i++)
        if (s->row[i].wants_logits)
            s->part[i].logit_row = logit_row++;
    return 0;
}

const uint32_t *as_scheduler_preempted(const struct as_scheduler *s)
{
    return s->preempted;
}

/* ---- after a step ------------------------------------------------------------------------- */

void as_scheduler_drop(struct as_scheduler *s, const struct as_step_part *part)
{
    struct active *active = &s->active[part->active];
    for (int32_t i = 0; i < s->running_count; i++)
        if (s->running[i] == part->active)
            remove_running(s, i--);
    as_kv_close(s->pool, active->sequence);
    free(active->token);
    *active = (struct active){0};
}

static bool ends(const struct as_schedule_request *request, int32_t token, int32_t output)
{
    return !request->exact && output >= request->min_output && token >= 0 &&
           (token == request->end[0] || token == request->end[1]);
}

enum as_finish as_scheduler_apply(struct as_scheduler *s, const struct as_step_part *part,
                                  int32_t token)
{
    struct active *active = &s->active[part->active];
    active->computed += part->tokens;
    if (part->logit_row < 0)
        return AS_RUNNING;
    active->token[active->tokens++] = token;
    int32_t output = active->tokens - active->request.prompt_tokens;
    enum as_finish finish = AS_RUNNING;
    if (ends(&active->request, token, output))
        finish = AS_FINISH_END;
    else if (output == active->request.max_output)
        finish = AS_FINISH_LENGTH;
    else if (active->tokens > s->options.context)
        finish = AS_FINISH_CONTEXT;
    if (finish != AS_RUNNING)
        as_scheduler_drop(s, part);
    return finish;
}

int32_t as_scheduler_waiting(const struct as_scheduler *s)
{
    return (int32_t)s->waiting_count;
}

int32_t as_scheduler_running(const struct as_scheduler *s)
{
    return s->running_count;
}
