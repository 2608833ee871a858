/* assay show --json: one object. "assay_show" is its version, raised when a meaning changes; fields
 * are only added. Times are in ns, rates per second, shares of 1; what is not known is null. */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/show.h"
#include "words.h"

#define VERSION 1

/* jansson takes no broken UTF-8 and no NaN. */
static json_t *text(const char *value)
{
    if (value == NULL)
        return json_null();
    json_t *json = json_string(value);
    return json != NULL ? json : json_string(as_words_safe(value));
}

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *count_of(uint64_t value)
{
    if (value == AS_UNKNOWN_U64)
        return json_null();
    return value <= INT64_MAX ? json_integer((json_int_t)value) : json_real((double)value);
}

static json_t *u32_of(uint32_t value)
{
    return value == AS_UNKNOWN_U32 ? json_null() : json_integer(value);
}

static const char *string_of(const struct as_show *show, uint32_t id)
{
    return as_report_string(show->report, id);
}

static json_t *attributes(const struct as_show *show)
{
    json_t *object = json_object();
    const char *key, *value;
    for (size_t i = 0; (key = as_report_attribute_at(show->report, i, &value)) != NULL; i++) {
        uint64_t u64;
        double f64;
        json_t *json = as_report_attribute(show->report, key) != NULL ? text(value)
                       : as_report_attribute_u64(show->report, key, &u64)
                           ? count_of(u64)
                           : number(as_report_attribute_f64(show->report, key, &f64) ? f64 : NAN);
        json_object_set_new(object, as_words_safe(key), json);
    }
    return object;
}

/* {"median", "low", "high", "values": one a valid timing run}. */
static int add_statistic(const struct as_show *show, json_t *object, const char *key,
                         const struct as_strategy_metrics *strategy, as_run_statistic *statistic,
                         const void *argument, struct as_error *error)
{
    struct as_over_runs over;
    int rc = as_over_runs(&show->metrics, strategy, statistic, argument, &over, error);
    if (rc != AS_OK)
        return rc;
    json_t *values = json_array();
    for (size_t i = 0; i < over.count; i++)
        json_array_append_new(values, number(over.values[i]));
    json_object_set_new(object, key,
                        json_pack("{s:o, s:o, s:o, s:o}", "median", number(over.median), "low",
                                  number(over.low), "high", number(over.high), "values", values));
    free(over.values);
    return AS_OK;
}

static json_t *percentile(const struct as_distribution *d, uint32_t millionths)
{
    return number(as_percentile_shown(d->count, millionths)
                      ? as_percentile(d->sorted, d->count, millionths)
                      : NAN);
}

static json_t *distribution(const struct as_distribution *d)
{
    struct as_interval interval = as_percentile_interval(d->count, AS_P50, 0.95);
    return json_pack(
        "{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "n", (json_int_t)d->count,
        "absent", (json_int_t)d->absent, "p50", percentile(d, AS_P50), "p50_low",
        number(interval.low > 0 ? d->sorted[interval.low - 1] : NAN), "p50_high",
        number(interval.high <= d->count ? d->sorted[interval.high - 1] : NAN), "p90",
        percentile(d, AS_P90), "p95", percentile(d, AS_P95), "p99", percentile(d, AS_P99), "p999",
        percentile(d, AS_P999), "mean", number(as_mean(d->sorted, d->count)), "deviation",
        number(as_deviation(d->sorted, d->count)));
}

static json_t *parts(const struct as_ttft_parts *p)
{
    return json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "n", (json_int_t)p->count,
                     "ttft", number(p->ttft), "sent_late", number(p->lag), "text_wait",
                     number(p->text_wait), "text_stage", number(p->text), "handover",
                     number(p->handover), "queue", number(p->queue), "prefill", number(p->prefill),
                     "unexplained", number(p->remainder));
}

static json_t *step_kinds(const struct as_run_metrics *run)
{
    static const char *const names[] = {"prefill", "decode", "mixed"};
    json_t *object = json_object();
    for (int k = 0; k < AS_STEPS_KINDS; k++) {
        const struct as_step_kind *kind = &run->steps[k];
        json_object_set_new(object, names[k],
                            json_pack("{s:o, s:o, s:o, s:o}", "steps", count_of(kind->steps),
                                      "prefill_tokens", count_of(kind->prefill_tokens),
                                      "decode_tokens", count_of(kind->decode_tokens), "ns",
                                      number(kind->steps > 0 ? kind->ns : NAN)));
    }
    return object;
}

static json_t *run_counters(const struct as_show *show, uint32_t run)
{
    json_t *object = json_object();
    for (size_t i = 0; i < show->metrics.counter_count; i++) {
        const struct as_row_counter *row = &show->metrics.counters[i];
        const char *name = string_of(show, row->name);
        if (row->run == run && name != NULL)
            json_object_set_new(object, as_words_safe(name), count_of(row->value));
    }
    return object;
}

static json_t *outcomes(const struct as_run_metrics *run)
{
    json_t *object = json_object();
    for (uint8_t o = 0; o < 5; o++)
        json_object_set_new(object, as_report_outcome_name(o), count_of(run->outcomes[o]));
    json_object_set_new(object, "unfinished", count_of(run->unfinished));
    return object;
}

static json_t *run_json(const struct as_show *show, const struct as_run_metrics *run)
{
    const struct as_row_run *row = &run->row;
    json_t *latency = json_object();
    for (int l = 0; l < AS_LATENCIES; l++)
        json_object_set_new(latency, as_latency_name((enum as_latency)l),
                            distribution(&run->latency[l]));
    json_t *object = json_pack(
        "{s:o, s:o, s:s, s:o, s:o, s:b, s:o, s:o, s:o, s:o}", "run", u32_of(row->run), "strategy",
        text(string_of(show, row->strategy)), "pass", as_report_pass_name(row->pass), "repetition",
        u32_of(row->repetition), "order", u32_of(row->order), "valid", row->valid == 1,
        "invalid_reason", text(string_of(show, row->invalid_reason)), "exit", u32_of(row->exit),
        "signal", u32_of(row->signal), "threads", u32_of(row->threads));
    json_object_set_new(object, "plan_digest", text(string_of(show, row->plan_digest)));
    json_object_set_new(object, "build", text(string_of(show, row->build)));
    json_object_set_new(object, "start_ns", count_of(row->start));
    json_object_set_new(object, "end_ns", count_of(row->end));
    json_object_set_new(object, "window_ns", number(run->window_ns));
    json_object_set_new(object, "peak_rss_bytes", count_of(row->peak_rss));
    json_object_set_new(object, "recording_ns", number(row->recording_ns));
    json_object_set_new(object, "requests", count_of(run->requests));
    json_object_set_new(object, "outcomes", outcomes(run));
    json_object_set_new(object, "prompt_tokens", count_of(run->prompt_tokens));
    json_object_set_new(object, "cached_tokens", count_of(run->cached_tokens));
    json_object_set_new(object, "output_tokens", count_of(run->output_tokens));
    json_object_set_new(object, "window_prefill_tokens", count_of(run->window_prefill));
    json_object_set_new(object, "window_output_tokens", count_of(run->window_output));
    json_object_set_new(object, "step_ns", number(as_statistic_step_ns(run, NULL)));
    json_object_set_new(object, "steps", step_kinds(run));
    json_object_set_new(object, "padded_tokens", count_of(run->padded_tokens));
    json_object_set_new(object, "metadata_build_ns", number(run->metadata_build_ns));
    json_object_set_new(object, "metadata_upload_ns", number(run->metadata_upload_ns));
    json_object_set_new(object, "metadata_wait_ns", number(run->metadata_wait_ns));
    json_object_set_new(object, "launches", count_of(run->launches));
    if (run->launches > 0) {
        json_object_set_new(object, "launch_ns", number(run->launch_ns));
        json_object_set_new(object, "work_ns", number(run->work_ns));
        json_object_set_new(object, "wait_ns", number(run->wait_ns));
    }
    json_object_set_new(object, "latency", latency);
    json_object_set_new(object, "ttft_parts", parts(&run->parts));
    json_object_set_new(object, "counters", run_counters(show, row->run));
    return object;
}

static json_t *usage_json(const struct as_usage *u)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "op", text(u->op),
                     "variant", text(u->variant), "problem_class",
                     text(u->problem_class[0] != '\0' ? u->problem_class : NULL), "calls",
                     count_of(u->calls), "ns", number(u->ns), "share", number(u->share), "work_ns",
                     number(u->work_ns), "wait_ns", number(u->wait_ns), "bytes_per_s",
                     number(u->ns > 0 ? u->bytes / u->ns * 1e9 : NAN), "flops_per_s",
                     number(u->ns > 0 ? u->flops / u->ns * 1e9 : NAN), "share_of_ceiling",
                     number(u->ns > 0 ? u->ideal_ns / u->ns : NAN));
}

static int add_usage(const struct as_show *show, json_t *object,
                     const struct as_strategy_metrics *strategy, struct as_error *error)
{
    static const char *const keys[] = {"by_op", "by_variant", "by_problem_class"};
    for (int level = AS_USAGE_OP; level <= AS_USAGE_CLASS; level++) {
        struct as_usage *rows;
        size_t count;
        int rc = as_metrics_usage(&show->metrics, strategy, (enum as_usage_level)level, &rows,
                                  &count, error);
        if (rc != AS_OK)
            return rc;
        json_t *array = json_array();
        for (size_t i = 0; i < count; i++)
            json_array_append_new(array, usage_json(&rows[i]));
        json_object_set_new(object, keys[level], array);
        free(rows);
    }
    return AS_OK;
}

static json_t *run_numbers(const struct as_show *show, const size_t *list, size_t count)
{
    json_t *array = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(array, u32_of(show->metrics.runs[list[i]].row.run));
    return array;
}

static void add_checks(const struct as_show *show, json_t *object,
                       const struct as_strategy_metrics *strategy)
{
    uint64_t needed = AS_UNKNOWN_U64, passed = AS_UNKNOWN_U64;
    struct as_show_verify verify;
    as_report_attribute_u64(show->report, as_words_printf("checks_needed %s", strategy->name),
                            &needed);
    as_report_attribute_u64(show->report, as_words_printf("checks_passed %s", strategy->name),
                            &passed);
    as_show_find_verify(show, strategy, &verify);
    json_object_set_new(object, "checks_needed", count_of(needed));
    json_object_set_new(object, "checks_passed", count_of(passed));
    json_object_set_new(object, "last_verify",
                        verify.found
                            ? json_pack("{s:b, s:I, s:o}", "passed", verify.passed, "time",
                                        (json_int_t)verify.time, "words", text(verify.words))
                            : json_null());
}

static int strategy_json(const struct as_show *show, const struct as_strategy_metrics *strategy,
                         json_t *array, struct as_error *error)
{
    static const struct {
        const char *key;
        as_run_statistic *statistic;
    } rates[] = {{"output_tokens_per_s", as_statistic_output_rate},
                 {"decode_tokens_per_s", as_statistic_decode_rate},
                 {"prefill_tokens_per_s", as_statistic_prefill_rate},
                 {"requests_per_s", as_statistic_request_rate},
                 {"metadata_share", as_statistic_metadata_share},
                 {"step_ns", as_statistic_step_ns}};
    json_t *object = json_pack(
        "{s:o, s:o, s:o, s:I, s:o}", "name", text(strategy->name), "timing_runs",
        run_numbers(show, strategy->timing, strategy->timing_count), "traced_runs",
        run_numbers(show, strategy->traced, strategy->traced_count), "invalid_runs",
        (json_int_t)strategy->invalid_count, "traced_over_timing", number(strategy->perturbation));
    json_t *latency = json_object();
    int rc = AS_OK;
    json_array_append_new(array, object);
    json_object_set_new(object, "latency_p50_ns", latency);
    for (size_t i = 0; rc == AS_OK && i < sizeof rates / sizeof rates[0]; i++)
        rc = add_statistic(show, object, rates[i].key, strategy, rates[i].statistic, NULL, error);
    for (int l = 0; rc == AS_OK && l < AS_LATENCIES; l++) {
        const struct as_quantile median = {(enum as_latency)l, AS_P50};
        rc = add_statistic(show, latency, as_latency_name((enum as_latency)l), strategy,
                           as_statistic_quantile, &median, error);
    }
    add_checks(show, object, strategy);
    return rc == AS_OK ? add_usage(show, object, strategy, error) : rc;
}

static int ranking_json(const struct as_show *show, json_t *root, struct as_error *error)
{
    struct as_show_ranking ranking;
    int rc = as_show_rank(&show->metrics, &ranking, error);
    if (rc == AS_OK) {
        json_t *order = json_array();
        for (size_t i = 0; i < ranking.count; i++)
            json_array_append_new(order, text(show->metrics.strategies[ranking.order[i]].name));
        json_object_set_new(root, "fastest_first", order);
        json_object_set_new(root, "ranked_by",
                            json_string(ranking.by_latency    ? "latency_p50_ns.e2e"
                                        : ranking.by_requests ? "requests_per_s"
                                                              : "output_tokens_per_s"));
    }
    as_show_ranking_free(&show->metrics, &ranking);
    return rc;
}

static json_t *ceilings(const struct as_show *show)
{
    json_t *array = json_array();
    for (size_t i = 0; i < show->metrics.ceiling_count; i++) {
        const struct as_row_ceiling *row = &show->metrics.ceilings[i];
        json_array_append_new(array, json_pack("{s:o, s:o, s:o, s:o}", "name",
                                               text(string_of(show, row->name)), "units",
                                               text(string_of(show, row->units)), "threads",
                                               u32_of(row->threads), "value", number(row->value)));
    }
    return array;
}

int as_show_json(const struct as_show *show, struct as_error *error)
{
    json_t *strategies = json_array(), *runs = json_array();
    json_t *root = json_pack("{s:i, s:o, s:b, s:o, s:o, s:o, s:o}", "assay_show", VERSION, "report",
                             text(as_report_path(show->report)), "sealed",
                             as_report_sealed(show->report), "attributes", attributes(show),
                             "ceilings", ceilings(show), "strategies", strategies, "runs", runs);
    if (root == NULL)
        return as_fail(error, AS_ERR_MEMORY, "making JSON of the report");
    int rc = ranking_json(show, root, error);
    for (size_t i = 0; rc == AS_OK && i < show->metrics.strategy_count; i++)
        rc = strategy_json(show, &show->metrics.strategies[i], strategies, error);
    for (size_t i = 0; rc == AS_OK && i < show->metrics.run_count; i++)
        json_array_append_new(runs, run_json(show, &show->metrics.runs[i]));
    if (rc == AS_OK && json_dumpf(root, show->stream, JSON_INDENT(2)) != 0)
        rc = as_fail(error, AS_ERR_IO, "writing JSON to standard output");
    if (rc == AS_OK)
        fputc('\n', show->stream);
    json_decref(root);
    return rc;
}
