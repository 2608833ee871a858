#include "metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "as_memory.h"
#include "as_random.h"
#include "metrics_internal.h"

#define BLOCK 65536 /* rows of a large table held at a time */

const char *as_latency_name(enum as_latency latency)
{
    static const char *const names[] = {"ttft", "ttft_service", "tpot",
                                        "itl",  "e2e",          "e2e_service"};
    return (unsigned)latency < AS_LATENCIES ? names[latency] : "?";
}

/* --- loading --- */

static int by_run_number(const void *a, const void *b)
{
    const struct as_row_run *x = a, *y = b;
    return (x->run > y->run) - (x->run < y->run);
}

static int by_request(const void *a, const void *b)
{
    const struct as_row_request *x = a, *y = b;
    if (x->run != y->run)
        return x->run < y->run ? -1 : 1;
    return (x->request > y->request) - (x->request < y->request);
}

static int by_step(const void *a, const void *b)
{
    const struct as_row_step *x = a, *y = b;
    if (x->run != y->run)
        return x->run < y->run ? -1 : 1;
    return (x->step > y->step) - (x->step < y->step);
}

static int read_table(struct as_report *report, enum as_table table, void *rows, size_t *count,
                      struct as_error *error)
{
    void *read;
    int rc = as_report_read(report, table, &read, count, error);
    memcpy(rows, &read, sizeof read);
    return rc;
}

static int read_runs(struct as_metrics *metrics, struct as_error *error)
{
    struct as_row_run *rows;
    size_t count;
    int rc = read_table(metrics->report, AS_TABLE_RUNS, &rows, &count, error);
    if (rc != AS_OK)
        return rc;
    if (count > 1)
        qsort(rows, count, sizeof *rows, by_run_number);
    metrics->runs = as_calloc(error, count, sizeof *metrics->runs, "the runs of a report");
    for (size_t i = 0; metrics->runs != NULL && i < count; i++) {
        struct as_run_metrics *run = &metrics->runs[metrics->run_count++];
        run->row = rows[i];
        if (rows[i].window_start == AS_UNKNOWN_U64)
            run->row.window_start = rows[i].start;
        if (rows[i].window_end == AS_UNKNOWN_U64 && rows[i].end != AS_UNKNOWN_U64)
            run->row.window_end = rows[i].end + 1; /* the end itself belongs to the run */
        run->window_ns = NAN;
        if (run->row.window_start != AS_UNKNOWN_U64 && run->row.window_end != AS_UNKNOWN_U64 &&
            run->row.window_end > run->row.window_start)
            run->window_ns = (double)(run->row.window_end - run->row.window_start) -
                             (rows[i].window_end == AS_UNKNOWN_U64);
        run->metadata_build_ns = run->metadata_upload_ns = run->metadata_wait_ns = NAN;
    }
    free(rows);
    return metrics->runs == NULL ? AS_ERR_MEMORY : AS_OK;
}

ptrdiff_t as_metrics_run_index(const struct as_metrics *metrics, uint32_t run)
{
    size_t low = 0, high = metrics->run_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (metrics->runs[middle].row.run < run)
            low = middle + 1;
        else
            high = middle;
    }
    return low < metrics->run_count && metrics->runs[low].row.run == run ? (ptrdiff_t)low : -1;
}

static int load(const struct as_metrics *metrics, struct as_loaded *loaded, struct as_error *error)
{
    int rc = read_table(metrics->report, AS_TABLE_REQUESTS, &loaded->requests,
                        &loaded->request_count, error);
    if (rc == AS_OK)
        rc =
            read_table(metrics->report, AS_TABLE_STEPS, &loaded->steps, &loaded->step_count, error);
    loaded->first_request =
        as_calloc(error, metrics->run_count + 1, sizeof *loaded->first_request, "runs");
    loaded->first_step =
        as_calloc(error, metrics->run_count + 1, sizeof *loaded->first_step, "runs");
    if (rc == AS_OK && (loaded->first_request == NULL || loaded->first_step == NULL))
        rc = AS_ERR_MEMORY;
    if (rc != AS_OK)
        return rc;
    if (loaded->request_count > 1)
        qsort(loaded->requests, loaded->request_count, sizeof *loaded->requests, by_request);
    if (loaded->step_count > 1)
        qsort(loaded->steps, loaded->step_count, sizeof *loaded->steps, by_step);
    size_t request = 0, step = 0;
    for (size_t r = 0; r < metrics->run_count; r++) {
        uint32_t number = metrics->runs[r].row.run;
        while (request < loaded->request_count && loaded->requests[request].run < number)
            request++;
        while (step < loaded->step_count && loaded->steps[step].run < number)
            step++;
        loaded->first_request[r] = request;
        loaded->first_step[r] = step;
        while (request < loaded->request_count && loaded->requests[request].run == number)
            request++;
        while (step < loaded->step_count && loaded->steps[step].run == number)
            step++;
        loaded->first_request[r + 1] = request;
        loaded->first_step[r + 1] = step;
    }
    return AS_OK;
}

static void free_loaded(struct as_loaded *loaded)
{
    free(loaded->requests);
    free(loaded->steps);
    free(loaded->first_request);
    free(loaded->first_step);
}

/* --- requests --- */

/* later - earlier, or NaN when one is not known. A difference of exact stamps, which may be
 * negative when stamps contradict each other: it is shown, not hidden. */
static double gap(uint64_t earlier, uint64_t later)
{
    if (earlier == AS_UNKNOWN_U64 || later == AS_UNKNOWN_U64)
        return NAN;
    return later >= earlier ? (double)(later - earlier) : -(double)(earlier - later);
}

static void add_known(uint64_t *sum, uint32_t value)
{
    if (value != AS_UNKNOWN_U32)
        *sum += value;
}

static void add_parts(struct as_ttft_parts *parts, const struct as_row_request *row)
{
    double ttft = gap(row->scheduled, row->first_token), lag = gap(row->scheduled, row->sent);
    double text_wait = gap(row->sent, row->preprocess_start);
    double text = gap(row->preprocess_start, row->preprocess_end);
    double handover = gap(row->preprocess_end, row->queued);
    double queue = gap(row->queued, row->first_scheduled);
    double prefill = gap(row->first_scheduled, row->prefill_end);
    double remainder = ttft - lag - text_wait - text - handover - queue - prefill;
    if (isnan(remainder))
        return;
    parts->count++;
    parts->ttft += ttft;
    parts->lag += lag;
    parts->text_wait += text_wait;
    parts->text += text;
    parts->handover += handover;
    parts->queue += queue;
    parts->prefill += prefill;
    parts->remainder += remainder;
}

static void average_parts(struct as_ttft_parts *parts)
{
    double *sums[] = {&parts->ttft,     &parts->lag,   &parts->text_wait, &parts->text,
                      &parts->handover, &parts->queue, &parts->prefill,   &parts->remainder};
    for (size_t i = 0; i < sizeof sums / sizeof sums[0]; i++)
        *sums[i] = parts->count > 0 ? *sums[i] / (double)parts->count : NAN;
}

static double latency_of(const struct as_row_request *row, enum as_latency latency)
{
    switch (latency) {
    case AS_LATENCY_TTFT: return gap(row->scheduled, row->first_token);
    case AS_LATENCY_TTFT_SERVICE: return gap(row->sent, row->first_token);
    case AS_LATENCY_E2E: return gap(row->scheduled, row->last_token);
    case AS_LATENCY_E2E_SERVICE: return gap(row->sent, row->last_token);
    case AS_LATENCY_TPOT:
        if (row->output_tokens == AS_UNKNOWN_U32 || row->output_tokens < 2)
            return NAN;
        return gap(row->first_token, row->last_token) / (row->output_tokens - 1);
    default: return NAN;
    }
}

static int add_requests(struct as_run_metrics *run, const struct as_row_request *rows, size_t count,
                        struct as_error *error)
{
    for (int l = 0; l < AS_LATENCIES; l++) {
        if (l == AS_LATENCY_ITL)
            continue;
        run->latency[l].sorted = as_calloc(error, count, sizeof(double), "latencies");
        if (run->latency[l].sorted == NULL)
            return AS_ERR_MEMORY;
    }
    size_t done = 0;
    run->requests = count;
    for (size_t i = 0; i < count; i++) {
        const struct as_row_request *row = &rows[i];
        if (row->outcome < 5)
            run->outcomes[row->outcome]++;
        else
            run->unfinished++;
        add_known(&run->prompt_tokens, row->prompt_tokens);
        add_known(&run->cached_tokens, row->cached_tokens);
        add_known(&run->output_tokens, row->output_tokens);
        if (row->outcome != AS_REPORT_OUTCOME_DONE)
            continue;
        run->in_window += row->done != AS_UNKNOWN_U64 && row->done >= run->row.window_start &&
                          row->done < run->row.window_end;
        add_parts(&run->parts, row);
        for (int l = 0; l < AS_LATENCIES; l++) {
            if (l != AS_LATENCY_ITL)
                run->latency[l].sorted[done] = latency_of(row, (enum as_latency)l);
        }
        done++;
    }
    average_parts(&run->parts);
    for (int l = 0; l < AS_LATENCIES; l++) {
        if (l == AS_LATENCY_ITL)
            continue;
        run->latency[l].count = as_sort_f64(run->latency[l].sorted, done);
        run->latency[l].absent = done - run->latency[l].count;
    }
    return AS_OK;
}

/* --- steps --- */

static void add_metadata(double *sum, uint64_t ns)
{
    if (ns != AS_UNKNOWN_U64)
        *sum = isnan(*sum) ? (double)ns : *sum + (double)ns;
}

static void add_step(struct as_run_metrics *run, const struct as_row_step *row)
{
    double ns = gap(row->start, row->end);
    uint64_t prefill = 0, decode = 0;
    add_known(&prefill, row->prefill_tokens);
    add_known(&decode, row->decode_tokens);
    add_known(&run->padded_tokens, row->padded_tokens);
    add_metadata(&run->metadata_build_ns, row->metadata_build_ns);
    add_metadata(&run->metadata_upload_ns, row->metadata_upload_ns);
    add_metadata(&run->metadata_wait_ns, row->metadata_wait_ns);
    if (isnan(ns))
        return;
    run->step_ns += ns;
    if (row->end >= run->row.window_start && row->end < run->row.window_end)
        run->window_prefill += prefill;
    if (prefill + decode == 0)
        return;
    struct as_step_kind *kind = &run->steps[decode == 0    ? AS_STEPS_PREFILL
                                            : prefill == 0 ? AS_STEPS_DECODE
                                                           : AS_STEPS_MIXED];
    kind->steps++;
    kind->prefill_tokens += prefill;
    kind->decode_tokens += decode;
    kind->ns += ns;
}

/* The end of a step of run `r`, or unknown. */
static uint64_t step_end(const struct as_loaded *loaded, size_t r, uint32_t step)
{
    size_t low = loaded->first_step[r], high = loaded->first_step[r + 1];
    if (step < high - low && loaded->steps[low + step].step == step)
        return loaded->steps[low + step].end;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (loaded->steps[middle].step < step)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < loaded->first_step[r + 1] && loaded->steps[low].step == step;
    return found ? loaded->steps[low].end : AS_UNKNOWN_U64;
}

/* --- parts of steps: gaps between tokens, tokens in the window, what came out --- */

struct token_state {
    uint64_t *last_end; /* by request number; unknown before its first token */
    size_t capacity;    /* of the ITL array */
};

static int add_token(struct as_run_metrics *run, struct token_state *state,
                     const struct as_row_step_row *row, uint64_t end, struct as_error *error)
{
    if (end != AS_UNKNOWN_U64 && end >= run->row.window_start && end < run->row.window_end)
        run->window_output++;
    if (row->request >= run->output_count)
        return AS_OK;
    struct as_request_output *output = &run->outputs[row->request];
    uint64_t last = state->last_end[row->request];
    output->hash = as_mix64(output->hash ^ row->token);
    output->tokens++;
    state->last_end[row->request] = end;
    if (!output->done || last == AS_UNKNOWN_U64 || end == AS_UNKNOWN_U64)
        return AS_OK;
    struct as_distribution *itl = &run->latency[AS_LATENCY_ITL];
    int rc = as_grow(error, &itl->sorted, &state->capacity, itl->count, sizeof *itl->sorted,
                     "gaps between tokens");
    if (rc == AS_OK)
        itl->sorted[itl->count++] = gap(last, end);
    return rc;
}

static int make_states(struct as_metrics *metrics, const struct as_loaded *loaded,
                       struct token_state *states, struct as_error *error)
{
    for (size_t r = 0; r < metrics->run_count; r++) {
        struct as_run_metrics *run = &metrics->runs[r];
        const struct as_row_request *rows = loaded->requests + loaded->first_request[r];
        size_t count = loaded->first_request[r + 1] - loaded->first_request[r];
        run->outputs = as_calloc(error, count, sizeof *run->outputs, "outputs");
        states[r].last_end = as_calloc(error, count, sizeof(uint64_t), "outputs");
        if (run->outputs == NULL || states[r].last_end == NULL)
            return AS_ERR_MEMORY;
        run->output_count = count;
        memset(states[r].last_end, 0xff, count * sizeof(uint64_t));
        for (size_t i = 0; i < count; i++) {
            if (rows[i].request < count)
                run->outputs[rows[i].request].done = rows[i].outcome == AS_REPORT_OUTCOME_DONE;
        }
    }
    return AS_OK;
}

static int add_step_rows(struct as_metrics *metrics, const struct as_loaded *loaded,
                         struct token_state *states, struct as_error *error)
{
    struct as_row_step_row *rows = as_calloc(error, BLOCK, sizeof *rows, "parts of steps");
    uint64_t total = as_report_count(metrics->report, AS_TABLE_STEP_ROWS);
    int rc = rows == NULL ? AS_ERR_MEMORY : AS_OK;
    for (uint64_t at = 0; rc == AS_OK && at < total; at += BLOCK) {
        size_t count = total - at < BLOCK ? (size_t)(total - at) : BLOCK;
        rc = as_report_read_range(metrics->report, AS_TABLE_STEP_ROWS, at, count, rows, error);
        for (size_t i = 0; rc == AS_OK && i < count; i++) {
            ptrdiff_t r = as_metrics_run_index(metrics, rows[i].run);
            if (r >= 0 && rows[i].token != AS_UNKNOWN_U32)
                rc = add_token(&metrics->runs[r], &states[r], &rows[i],
                               step_end(loaded, (size_t)r, rows[i].step), error);
        }
    }
    free(rows);
    return rc;
}

static int compute_runs(struct as_metrics *metrics, const struct as_loaded *loaded,
                        struct as_error *error)
{
    int rc = AS_OK;
    for (size_t r = 0; rc == AS_OK && r < metrics->run_count; r++) {
        rc = add_requests(&metrics->runs[r], loaded->requests + loaded->first_request[r],
                          loaded->first_request[r + 1] - loaded->first_request[r], error);
        for (size_t i = loaded->first_step[r]; i < loaded->first_step[r + 1]; i++)
            add_step(&metrics->runs[r], &loaded->steps[i]);
    }
    struct token_state *states =
        as_calloc(error, metrics->run_count, sizeof *states, "the runs of a report");
    if (rc == AS_OK)
        rc = states == NULL ? AS_ERR_MEMORY : make_states(metrics, loaded, states, error);
    if (rc == AS_OK)
        rc = add_step_rows(metrics, loaded, states, error);
    for (size_t r = 0; r < metrics->run_count; r++) {
        struct as_distribution *itl = &metrics->runs[r].latency[AS_LATENCY_ITL];
        itl->count = as_sort_f64(itl->sorted, itl->count);
        if (states != NULL)
            free(states[r].last_end);
    }
    free(states);
    return rc;
}

/* --- all of it --- */

int as_metrics_compute(struct as_metrics *metrics, struct as_report *report, struct as_error *error)
{
    struct as_loaded loaded = {0};
    *metrics = (struct as_metrics){.report = report};
    int rc = read_runs(metrics, error);
    if (rc == AS_OK)
        rc = load(metrics, &loaded, error);
    if (rc == AS_OK)
        rc = compute_runs(metrics, &loaded, error);
    free_loaded(&loaded);
    if (rc == AS_OK)
        rc = read_table(report, AS_TABLE_PROBLEMS, &metrics->problems, &metrics->problem_count,
                        error);
    if (rc == AS_OK)
        rc = read_table(report, AS_TABLE_VARIANTS, &metrics->variants, &metrics->variant_count,
                        error);
    if (rc == AS_OK)
        rc = read_table(report, AS_TABLE_COUNTERS, &metrics->counters, &metrics->counter_count,
                        error);
    if (rc == AS_OK)
        rc = read_table(report, AS_TABLE_CEILINGS, &metrics->ceilings, &metrics->ceiling_count,
                        error);
    if (rc == AS_OK)
        rc = as_metrics_add_launches(metrics, error);
    if (rc == AS_OK)
        rc = as_metrics_add_strategies(metrics, error);
    if (rc != AS_OK)
        as_metrics_free(metrics);
    return rc;
}

void as_metrics_free(struct as_metrics *metrics)
{
    for (size_t r = 0; r < metrics->run_count; r++) {
        for (int l = 0; l < AS_LATENCIES; l++)
            free(metrics->runs[r].latency[l].sorted);
        free(metrics->runs[r].outputs);
    }
    for (size_t i = 0; i < metrics->strategy_count; i++) {
        free(metrics->strategies[i].timing);
        free(metrics->strategies[i].traced);
    }
    free(metrics->runs);
    free(metrics->strategies);
    free(metrics->cells);
    free(metrics->problems);
    free(metrics->variants);
    free(metrics->counters);
    free(metrics->ceilings);
    *metrics = (struct as_metrics){0};
}
