#include "replay/session.h"

#include <stdio.h>
#include <string.h>

#include "as_clock.h"
#include "as_memory.h"
#include "device/cpu/team.h"
#include "replay/validity.h"
#include "schedule/schedule.h"

#define PROGRESS_NS 100000000u

/* A request's stamps until its row is written. */
struct entry {
    struct as_row_request row;
    uint64_t preempted; /* when, while it waits again; else 0 */
};

struct session {
    const struct as_session_options *options;
    struct as_session_summary *summary;
    struct as_stage *stage;
    struct as_arrivals *arrivals;
    struct as_scheduler *scheduler;
    struct as_sampler *sampler;
    struct entry *entry; /* one a request, by its place in the workload */
    int32_t *token;      /* (max_batch_size): chosen in the step, -1 where none is */
    size_t ended;
    int32_t end[2]; /* ids that end generation */
    uint32_t step;
    uint64_t last_progress;
    struct as_error *error;
};

static size_t total(const struct session *s)
{
    return s->options->workload->count;
}

/* ---- endings ------------------------------------------------------------------------------ */

static int end_request(struct session *s, size_t index, uint8_t outcome, uint8_t finish)
{
    struct entry *entry = &s->entry[index];
    entry->row.outcome = outcome;
    entry->row.finish = finish;
    entry->row.done = as_clock_ns();
    s->ended++;
    if (outcome == AS_REPORT_OUTCOME_DONE)
        s->summary->done++;
    else
        s->summary->failed++;
    int code = as_arrivals_ended(s->arrivals, index, entry->row.done, s->error);
    return code != 0 ? code
                     : as_spool_put(as_recorder_spool(s->options->recorder), AS_TABLE_REQUESTS,
                                    &entry->row);
}

static int fail_request(struct session *s, size_t index, uint8_t outcome, const char *why)
{
    if (s->summary->first_failure[0] == '\0')
        snprintf(s->summary->first_failure, sizeof s->summary->first_failure, "request %s: %s",
                 s->options->workload->requests[index].id, why);
    return end_request(s, index, outcome, AS_REPORT_FINISH_NONE);
}

/* ---- arrivals ----------------------------------------------------------------------------- */

static void begin_entry(struct session *s, size_t index)
{
    const struct as_workload_request *request = &s->options->workload->requests[index];
    struct as_spool *spool = as_recorder_spool(s->options->recorder);
    struct as_row_request *row = &s->entry[index].row;
    as_row_unknown(AS_TABLE_REQUESTS, row);
    row->run = s->options->run;
    row->request = (uint32_t)index;
    row->name = as_spool_string(spool, request->id);
    row->class_name = as_spool_string(spool, request->class_name);
    row->cached_tokens = 0;
    row->output_tokens = 0;
    row->preemptions = 0;
    row->requeue_ns = 0;
    if (request->output.exact)
        row->exact_tokens = request->output.n;
}

static int add_to_schedule(struct session *s, const struct as_stage_result *result)
{
    const struct as_workload_request *request = &s->options->workload->requests[result->id];
    const struct as_workload_sampling *sampling = &request->sampling;
    struct as_error refused = {0};
    const struct as_schedule_request schedule = {
        .request = (uint32_t)result->id,
        .prompt = result->tokens,
        .prompt_tokens = (int32_t)result->token_count,
        .max_output = (int32_t)request->output.n,
        .min_output = (int32_t)request->output.min,
        .exact = request->output.exact,
        .end = {s->end[0], s->end[1]},
        .sampling = {.seed = sampling->seed,
                     .temperature = sampling->present ? sampling->temperature : 0,
                     .top_k = (int32_t)sampling->top_k,
                     .top_p = sampling->present ? sampling->top_p : 1}};
    int code = as_scheduler_add(s->scheduler, &schedule, &refused);
    if (code == 0)
        return 0;
    if (code == AS_ERR_MEMORY)
        return as_fail(s->error, code, "%s", refused.message);
    return fail_request(s, result->id, AS_REPORT_OUTCOME_REJECTED, refused.message);
}

static int take_one(struct session *s, const struct as_stage_result *result)
{
    struct as_row_request *row = &s->entry[result->id].row;
    struct as_arrival arrival = as_arrivals_stamp(s->arrivals, result->id);
    row->scheduled = arrival.scheduled_ns;
    row->sent = arrival.sent_ns;
    row->preprocess_start = result->start_ns;
    row->preprocess_end = result->end_ns;
    row->queued = as_clock_ns();
    row->prompt_tokens = (uint32_t)result->token_count;
    if (result->status != 0)
        return fail_request(s, result->id, AS_REPORT_OUTCOME_REJECTED,
                            as_stage_result_error(result));
    if (result->token_count == 0)
        return fail_request(s, result->id, AS_REPORT_OUTCOME_REJECTED, "the prompt has no tokens");
    return add_to_schedule(s, result);
}

/* Takes what the text stage has ready; without anything else to do, waits for the next. Waiting
 * ends now and then to look for a failure on the sending thread. */
static int take_results(struct session *s)
{
    bool idle = as_scheduler_waiting(s->scheduler) + as_scheduler_running(s->scheduler) == 0;
    int code = as_arrivals_work(s->arrivals, idle && as_stage_pending(s->stage) == 0, s->error);
    uint64_t deadline = idle ? as_clock_ns() + PROGRESS_NS : 0;
    struct as_stage_result *result;
    while (code == 0 && (result = as_stage_take(s->stage, deadline)) != NULL) {
        code = take_one(s, result);
        free(result);
        deadline = 0;
    }
    return code != 0 ? code : as_arrivals_failed(s->arrivals, s->error);
}

/* ---- steps -------------------------------------------------------------------------------- */

static int record_step(struct session *s, const struct as_formed_step *formed,
                       const struct as_step_result *result)
{
    struct as_kv_pool *pool = as_engine_pool(s->options->bench->engine);
    struct as_row_step row;
    as_row_unknown(AS_TABLE_STEPS, &row);
    row.run = s->options->run;
    row.step = s->step;
    row.prefill_tokens = (uint32_t)formed->prefill_tokens;
    row.decode_tokens = (uint32_t)formed->decode_tokens;
    row.padded_tokens = 0;
    row.sequences = (uint32_t)formed->batch.rows;
    row.kv_blocks = (uint32_t)(as_kv_total_blocks(pool) - as_kv_free_blocks(pool));
    row.queue_depth = (uint32_t)as_scheduler_waiting(s->scheduler);
    row.start = result->start_ns;
    row.end = result->end_ns;
    row.metadata_build_ns = result->metadata.build_ns;
    row.metadata_upload_ns = result->metadata.upload_ns;
    row.metadata_wait_ns = result->metadata.wait_ns;
    row.device_start = result->device_start_ns;
    row.device_end = result->device_end_ns;
    return as_spool_put(as_recorder_spool(s->options->recorder), AS_TABLE_STEPS, &row);
}

static int record_part(struct session *s, const struct as_step_part *part, int32_t token,
                       const struct assay_top *top)
{
    static const uint8_t phases[] = {[AS_PHASE_PREFILL] = AS_REPORT_PHASE_PREFILL,
                                     [AS_PHASE_PREFILL_END] = AS_REPORT_PHASE_PREFILL_END,
                                     [AS_PHASE_DECODE] = AS_REPORT_PHASE_DECODE};
    struct as_row_step_row row;
    as_row_unknown(AS_TABLE_STEP_ROWS, &row);
    row.run = s->options->run;
    row.step = s->step;
    row.request = part->request;
    row.tokens = (uint32_t)part->tokens;
    row.position = (uint32_t)part->position;
    row.phase = phases[part->phase];
    if (top != NULL) {
        row.token = (uint32_t)token;
        row.top1 = (uint32_t)top->id;
        row.top1_logit = top->logit;
        row.margin = top->margin;
        row.projection = top->projection;
    }
    return as_spool_put(as_recorder_spool(s->options->recorder), AS_TABLE_STEP_ROWS, &row);
}

static void stamp_start(struct session *s, const struct as_step_part *part, uint64_t start_ns)
{
    struct entry *entry = &s->entry[part->request];
    if (entry->row.first_scheduled == AS_UNKNOWN_U64)
        entry->row.first_scheduled = start_ns;
    if (entry->preempted != 0)
        entry->row.requeue_ns += start_ns - entry->preempted;
    entry->preempted = 0;
}

static void stamp_token(struct session *s, const struct as_step_part *part,
                        const struct as_step_result *result)
{
    struct as_row_request *row = &s->entry[part->request].row;
    if (row->first_token == AS_UNKNOWN_U64) {
        row->prefill_end = result->end_ns;
        row->first_token = result->end_ns;
    }
    row->last_token = result->end_ns;
    row->output_tokens++;
}

/* Ends the request of `part`, whose logits are not numbers. */
static int fail_part(struct session *s, const struct as_step_part *part, int32_t nonfinite)
{
    char why[160];
    snprintf(why, sizeof why,
             "op linear (logits) gave %d non-finite values in step %u, at output token %llu",
             (int)nonfinite, (unsigned)s->step, (unsigned long long)part->draw);
    as_scheduler_drop(s->scheduler, part);
    return fail_request(s, part->request, AS_REPORT_OUTCOME_FAILED, why);
}

/* The step's tokens. A step ends when they are known, so drawing them belongs to its time. */
static void choose_tokens(struct session *s, const struct as_formed_step *formed,
                          struct as_step_result *result)
{
    size_t vocab = s->options->bench->model->config.vocab;
    for (int32_t i = 0; i < formed->batch.rows; i++) {
        const struct as_step_part *part = &formed->part[i];
        s->token[i] = -1;
        if (part->logit_row < 0 || result->top[part->logit_row].nonfinite > 0)
            continue;
        s->token[i] = part->sampling == NULL
                          ? result->top[part->logit_row].id
                          : as_sample(s->sampler, result->logits + (size_t)part->logit_row * vocab,
                                      part->sampling, part->draw);
    }
    if (formed->keep_logits)
        result->end_ns = as_clock_ns();
}

static int apply_part(struct session *s, const struct as_step_part *part, int32_t token,
                      const struct as_step_result *result)
{
    const struct assay_top *top = part->logit_row < 0 ? NULL : &result->top[part->logit_row];
    int code = record_part(s, part, token, top);
    if (code != 0)
        return code;
    stamp_start(s, part, result->start_ns);
    if (top != NULL && top->nonfinite > 0)
        return fail_part(s, part, top->nonfinite);
    if (top != NULL) {
        stamp_token(s, part, result);
        as_engine_counters_mutable(s->options->bench->engine)->rows_sampled++;
    }
    switch (as_scheduler_apply(s->scheduler, part, token)) {
    case AS_RUNNING: return 0;
    case AS_FINISH_END:
        return end_request(s, part->request, AS_REPORT_OUTCOME_DONE, AS_REPORT_FINISH_STOP);
    default: return end_request(s, part->request, AS_REPORT_OUTCOME_DONE, AS_REPORT_FINISH_LENGTH);
    }
}

static void count_preempted(struct session *s, int32_t preempted)
{
    const uint32_t *request = as_scheduler_preempted(s->scheduler);
    uint64_t now = as_clock_ns();
    for (int32_t i = 0; i < preempted; i++) {
        s->entry[request[i]].row.preemptions++;
        s->entry[request[i]].preempted = now;
    }
    as_engine_counters_mutable(s->options->bench->engine)->preemptions += (uint64_t)preempted;
}

static int run_step(struct session *s)
{
    struct as_engine *engine = s->options->bench->engine;
    struct as_formed_step formed;
    struct as_step_result result;
    int32_t preempted;
    int code = as_scheduler_form(s->scheduler, &formed, &preempted, s->error);
    if (code != 0)
        return code;
    count_preempted(s, preempted);
    if (formed.batch.rows == 0)
        return 0;
    if ((code = as_recorder_begin_step(s->options->recorder, s->step)) != 0 ||
        (code = as_engine_submit(engine, &formed.batch, formed.keep_logits, s->error)) != 0 ||
        (code = as_engine_collect(engine, &result, s->error)) != 0)
        return code;
    as_recorder_end_step(s->options->recorder);
    choose_tokens(s, &formed, &result);
    struct as_counters *counters = as_engine_counters_mutable(engine);
    counters->tokens_prefill += (uint64_t)formed.prefill_tokens;
    counters->tokens_decode += (uint64_t)formed.decode_tokens;
    code = record_step(s, &formed, &result);
    for (int32_t i = 0; code == 0 && i < formed.batch.rows; i++)
        code = apply_part(s, &formed.part[i], s->token[i], &result);
    s->step++;
    return code == 0 ? as_recorder_tables(s->options->recorder, engine, s->error) : code;
}

static void report_progress(struct session *s, bool now)
{
    uint64_t time = as_clock_ns();
    if (s->options->progress == NULL || (!now && time - s->last_progress < PROGRESS_NS))
        return;
    s->last_progress = time;
    s->options->progress(s->options->progress_context, s->ended, total(s));
}

static int judge_load(struct session *s)
{
    const struct as_row_request **row = as_calloc(s->error, total(s), sizeof *row, "requests");
    if (row == NULL)
        return AS_ERR_MEMORY;
    for (size_t i = 0; i < total(s); i++)
        row[i] = &s->entry[i].row;
    as_open_loop_valid(row, total(s), s->summary->not_the_load, sizeof s->summary->not_the_load);
    free(row);
    return 0;
}

static int run_all(struct session *s)
{
    s->summary->start_ns = as_clock_ns();
    report_progress(s, true);
    int code = as_arrivals_start(s->arrivals, s->summary->start_ns, s->error);
    while (code == 0 && s->ended < total(s)) {
        code = take_results(s);
        if (code == 0)
            code = run_step(s);
        report_progress(s, false);
    }
    s->summary->end_ns = as_clock_ns();
    report_progress(s, true);
    if (code == 0 && s->options->mode == AS_MODE_OPEN)
        code = judge_load(s);
    if (code != 0 && s->error->code == 0)
        as_recorder_failed(s->options->recorder, s->error);
    return code;
}

/* ---- set-up ------------------------------------------------------------------------------- */

/* A prompt and two tokens of an unmeasured sequence: first touches of memory happen here, and
 * nothing of it is counted. Its ids are 0, 1, 2, ..., which no text gives. */
static int warm_up(struct session *s)
{
    struct as_bench *bench = s->options->bench;
    struct as_kv_pool *pool = as_engine_pool(bench->engine);
    int32_t prompt[16], count = bench->context < 18 ? 1 : 16;
    count = count < bench->strategy.max_batch_tokens ? count : 1;
    for (int32_t i = 0; i < 16; i++)
        prompt[i] = i % (int32_t)bench->model->config.vocab;
    struct as_batch_row row = {
        .sequence = as_kv_open(pool), .tokens = prompt, .count = count, .wants_logits = true};
    int code = 0;
    for (int step = 0; code == 0 && step < 3; step++, row.count = 1) {
        struct as_step_result result;
        const struct as_batch batch = {.row = &row, .rows = 1};
        int64_t rows = as_kv_length(pool, row.sequence) + row.count;
        if (rows > bench->context || !as_kv_reserve(pool, row.sequence, rows))
            break;
        if ((code = as_engine_submit(bench->engine, &batch, false, s->error)) == 0)
            code = as_engine_collect(bench->engine, &result, s->error);
    }
    as_kv_close(pool, row.sequence);
    as_engine_restart_counting(bench->engine);
    return code;
}

/* The text stage and the thread that sends. */
static int open_senders(struct session *s)
{
    const struct as_session_options *o = s->options;
    const struct as_strategy *strategy = &o->bench->strategy;
    bool async = strategy->preprocess == AS_PREPROCESS_ASYNC;
    const struct as_stage_options stage = {.tokenizer = o->tokenizer,
                                           .chat = o->chat,
                                           .threads =
                                               async ? (unsigned)strategy->preprocess_threads : 0,
                                           .queue = (size_t)strategy->preprocess_queue,
                                           .max_tokens = (size_t)o->bench->model->config.context};
    int code = as_stage_create(&stage, &s->stage, s->error);
    if (code != 0)
        return code;
    const struct as_arrivals_options arrivals = {.mode = o->mode,
                                                 .concurrency = o->concurrency,
                                                 .workload = o->workload,
                                                 .tokenizer = o->tokenizer,
                                                 .stage = s->stage,
                                                 .inline_text = !async};
    return as_arrivals_create(&arrivals, &s->arrivals, s->error);
}

struct opening {
    struct session *session;
    int code;
};

static void open_senders_unpinned(void *context)
{
    struct opening *opening = context;
    opening->code = open_senders(opening->session);
}

static int open_session(struct session *s)
{
    const struct as_session_options *o = s->options;
    const struct as_strategy *strategy = &o->bench->strategy;
    const struct as_schedule_options schedule = {.max_batch_size = strategy->max_batch_size,
                                                 .max_batch_tokens = strategy->max_batch_tokens,
                                                 .chunk_tokens = strategy->chunk_tokens,
                                                 .context = o->bench->context};
    s->end[0] = o->bench->model->vocabulary.eos;
    s->end[1] = o->bench->model->vocabulary.eot;
    s->entry = as_calloc(s->error, total(s), sizeof s->entry[0], "requests");
    s->token = as_calloc(s->error, (size_t)strategy->max_batch_size, sizeof s->token[0],
                         "a step's tokens");
    if (s->entry == NULL || s->token == NULL)
        return AS_ERR_MEMORY;
    int code =
        as_scheduler_create(&schedule, as_engine_pool(o->bench->engine), &s->scheduler, s->error);
    if (code == 0)
        code = as_sampler_create(o->bench->model->config.vocab, &s->sampler, s->error);
    s->summary->first_step_ns = as_clock_ns();
    if (code == 0)
        code = warm_up(s);
    if (code != 0)
        return code;
    for (size_t i = 0; i < total(s); i++)
        begin_entry(s, i);
    struct opening opening = {.session = s};
    as_team_unpinned(as_cpu_device_team(o->bench->device), open_senders_unpinned, &opening);
    return opening.code;
}

int as_session_run(const struct as_session_options *options, struct as_session_summary *summary,
                   struct as_error *error)
{
    *summary = (struct as_session_summary){0};
    struct session s = {.options = options, .summary = summary, .error = error};
    int code = open_session(&s);
    if (code == 0)
        code = run_all(&s);
    /* First the stage, which a sender may be waiting on; then the sender. */
    if (s.stage != NULL)
        as_stage_close(s.stage);
    as_arrivals_free(s.arrivals);
    as_stage_free(s.stage);
    as_scheduler_free(s.scheduler);
    as_sampler_free(s.sampler);
    free(s.entry);
    free(s.token);
    return code;
}

int32_t as_session_context(const struct as_workload *workload)
{
    /* A rendered message adds its role and markers, the template perhaps a system message. */
    enum { TEMPLATE_TOKENS = 64, MESSAGE_TOKENS = 16 };
    uint64_t most = 0;
    for (size_t i = 0; i < workload->count; i++) {
        const struct as_workload_request *request = &workload->requests[i];
        uint64_t rows = request->length + (uint64_t)request->output.n + TEMPLATE_TOKENS;
        if (request->form == AS_WORKLOAD_TEXT)
            rows += strlen(request->text);
        for (size_t m = 0; m < request->message_count; m++)
            rows += strlen(request->messages[m].content) + MESSAGE_TOKENS;
        most = rows > most ? rows : most;
    }
    return most > INT32_MAX ? INT32_MAX : (int32_t)most;
}
