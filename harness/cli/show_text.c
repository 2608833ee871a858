/* assay show, for people. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/show.h"
#include "words.h"

#define CLASSES_SHOWN 8

static const char *bold(const struct as_show *show)
{
    return show->colour ? "\033[1m" : "";
}

static const char *red(const struct as_show *show)
{
    return show->colour ? "\033[31m" : "";
}

static const char *plain(const struct as_show *show)
{
    return show->colour ? "\033[0m" : "";
}

static void heading(const struct as_show *show, const char *text, const char *note)
{
    fprintf(show->stream, "\n%s%s%s%s%s\n", bold(show), text, plain(show),
            note[0] != '\0' ? ": " : "", note);
}

static int print(const struct as_show *show, struct as_columns *columns, struct as_error *error)
{
    return as_columns_print(columns, show->stream, "  ", bold(show), plain(show), error);
}

/* A row of cells that are texts. */
static void add_row(struct as_columns *columns, const char *const *cells, size_t count)
{
    for (size_t i = 0; i < count; i++)
        as_columns_add(columns, cells[i]);
}

#define ADD_ROW(columns, ...)                            \
    add_row(columns, (const char *const[]){__VA_ARGS__}, \
            sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

/* --- where it comes from --- */

static void line(const struct as_show *show, const char *label, const char *text)
{
    if (text != NULL && text[0] != '\0')
        fprintf(show->stream, "%-9s %s\n", label, text);
}

static const char *attribute(const struct as_show *show, const char *key)
{
    const char *text = as_report_attribute(show->report, key);
    return text != NULL ? as_words_safe(text) : NULL;
}

/* "<text> (<note> <value>)" of what is known of it; NULL when the text is not. */
static const char *with_note(const char *text, const char *note, const char *value)
{
    if (text == NULL || value == NULL)
        return text;
    return as_words_printf("%s (%s%s)", text, note, value);
}

static void print_source(const struct as_show *show)
{
    uint64_t cpus, requests;
    const char *version = attribute(show, "version"), *commit = attribute(show, "git_commit");
    fprintf(show->stream, "%s%s%s\n", bold(show), as_words_safe(as_report_path(show->report)),
            plain(show));
    line(show, "made by",
         as_words_printf("%s%s%s%s%s%s",
                         attribute(show, "producer") ? attribute(show, "producer")
                                                     : "an unnamed program",
                         version ? " " : "", version ? version : "", commit ? ", commit " : "",
                         commit ? commit : "",
                         as_report_sealed(show->report)
                             ? ""
                             : "; changed by another program since (its seal is gone)"));
    line(show, "date", attribute(show, "date"));
    line(show, "command", attribute(show, "command_line"));
    const char *model =
        attribute(show, "model_name") ? attribute(show, "model_name") : attribute(show, "model");
    line(show, "model", with_note(model, "digest ", attribute(show, "model_digest")));
    const char *workload = attribute(show, "workload");
    if (workload != NULL && as_report_attribute_u64(show->report, "workload_requests", &requests))
        workload = as_words_printf("%s, %s requests", workload, as_words_count((double)requests));
    line(show, "workload", with_note(workload, "digest ", attribute(show, "workload_digest")));
    const char *cpu = attribute(show, "cpu");
    if (cpu != NULL && as_report_attribute_u64(show->report, "cpus", &cpus))
        cpu = as_words_printf("%s, %llu CPUs", cpu, (unsigned long long)cpus);
    line(show, "machine", with_note(cpu, "governor ", attribute(show, "governor")));
    line(show, "gpu", attribute(show, "gpu"));
}

/* --- which was faster --- */

static const char *ranked_value(const struct as_show_ranking *ranking, double value)
{
    if (ranking->by_latency)
        return as_words_printf("%s E2E p50", as_words_ns(value));
    return as_words_printf("%s %s/s", as_words_number(value),
                           ranking->by_requests ? "requests" : "output tokens");
}

/* One strategy against the fastest. */
static void print_against(const struct as_show *show, const struct as_show_ranking *ranking,
                          size_t slower)
{
    const struct as_over_runs *best = &ranking->over[ranking->order[0]];
    const struct as_over_runs *other = &ranking->over[slower];
    double ratio =
        ranking->by_latency ? other->median / best->median : best->median / other->median;
    bool apart = ranking->by_latency ? best->high < other->low : best->low > other->high;
    fprintf(show->stream, "%s%s was %s as fast as %s%s: %s against %s", bold(show),
            as_words_safe(show->metrics.strategies[ranking->order[0]].name), as_words_ratio(ratio),
            as_words_safe(show->metrics.strategies[slower].name), plain(show),
            ranked_value(ranking, best->median), ranked_value(ranking, other->median));
    if (best->count < 2 || other->count < 2)
        fprintf(show->stream, " (one run each: their spread is not known)\n");
    else
        fprintf(show->stream, " (medians over %zu and %zu runs; %s)\n", best->count, other->count,
                apart ? "no run of one was as fast as any of the other"
                      : "their runs overlap, so this may be chance");
}

static void print_same_output(const struct as_show *show)
{
    const struct as_metrics *metrics = &show->metrics;
    const struct as_strategy_metrics *first = NULL;
    for (size_t i = 0; i < metrics->strategy_count; i++) {
        const struct as_strategy_metrics *strategy = &metrics->strategies[i];
        size_t both, same;
        if (strategy->timing_count == 0)
            continue;
        if (first == NULL) {
            first = strategy;
            continue;
        }
        as_metrics_same_output(&metrics->runs[first->timing[0]],
                               &metrics->runs[strategy->timing[0]], &both, &same);
        if (both > 0)
            fprintf(show->stream, "%s and %s made the same tokens in %zu of %zu requests\n",
                    as_words_safe(first->name), as_words_safe(strategy->name), same, both);
    }
}

static int print_ranking(const struct as_show *show, struct as_error *error)
{
    struct as_show_ranking ranking;
    int rc = as_show_rank(&show->metrics, &ranking, error);
    fprintf(show->stream, "\n");
    if (rc == AS_OK && ranking.count == 0)
        fprintf(show->stream, "no data: no valid timing run finished a request\n");
    else if (rc == AS_OK && ranking.count == 1)
        fprintf(show->stream, "%s made %s\n",
                as_words_safe(show->metrics.strategies[ranking.order[0]].name),
                ranked_value(&ranking, ranking.over[ranking.order[0]].median));
    for (size_t i = 1; rc == AS_OK && i < ranking.count; i++)
        print_against(show, &ranking, ranking.order[i]);
    if (rc == AS_OK)
        print_same_output(show);
    as_show_ranking_free(&show->metrics, &ranking);
    return rc;
}

/* --- right answers --- */

static void print_checks(const struct as_show *show)
{
    for (size_t i = 0; i < show->metrics.strategy_count; i++) {
        const struct as_strategy_metrics *strategy = &show->metrics.strategies[i];
        struct as_show_verify verify;
        uint64_t needed, passed;
        char date[64] = "";
        if (as_report_attribute_u64(show->report,
                                    as_words_printf("checks_needed %s", strategy->name), &needed) &&
            as_report_attribute_u64(show->report,
                                    as_words_printf("checks_passed %s", strategy->name), &passed))
            fprintf(show->stream, "%s: %s%llu of %llu kernel checks passed%s",
                    as_words_safe(strategy->name), passed < needed ? red(show) : "",
                    (unsigned long long)passed, (unsigned long long)needed,
                    passed < needed ? plain(show) : "");
        else
            fprintf(show->stream, "%s: no kernel checks recorded", as_words_safe(strategy->name));
        as_show_find_verify(show, strategy, &verify);
        time_t when = (time_t)verify.time;
        struct tm utc;
        if (verify.found && gmtime_r(&when, &utc) != NULL)
            strftime(date, sizeof date, " of %Y-%m-%d %H:%M UTC", &utc);
        if (!verify.found)
            fprintf(show->stream,
                    "; the whole model was not verified here (`assay verify` does)\n");
        else if (verify.passed)
            fprintf(show->stream, "; the last verify%s passed\n", date);
        else
            fprintf(show->stream, "; %sthe last verify%s failed: %s%s\n", red(show), date,
                    as_words_safe(verify.words), plain(show));
    }
}

/* --- throughput --- */

/* The median over the runs with the range behind it where there is one. */
static const char *over_runs_words(const struct as_over_runs *over, const char *(*words)(double))
{
    if (isnan(over->median))
        return "n/a";
    if (over->count < 2 || over->low == over->high)
        return words(over->median);
    return as_words_printf("%s (%s to %s)", words(over->median), words(over->low),
                           words(over->high));
}

static const char *statistic_words(const struct as_show *show,
                                   const struct as_strategy_metrics *strategy,
                                   as_run_statistic *statistic, const void *argument,
                                   const char *(*words)(double))
{
    struct as_over_runs over;
    struct as_error error = {0};
    if (as_over_runs(&show->metrics, strategy, statistic, argument, &over, &error) != AS_OK)
        return NULL;
    const char *text = over_runs_words(&over, words);
    free(over.values);
    return text;
}

static int print_throughput(const struct as_show *show, struct as_error *error)
{
    struct as_columns columns = {.alignment = "lrrrrrrr"};
    heading(show, "Throughput", "median over the timing runs (range)");
    ADD_ROW(&columns, "strategy", "runs", "output tokens/s", "decode tokens/s", "prefill tokens/s",
            "requests/s", "metadata", "traced/timing");
    for (size_t i = 0; i < show->metrics.strategy_count; i++) {
        const struct as_strategy_metrics *s = &show->metrics.strategies[i];
        ADD_ROW(&columns, as_words_safe(s->name), as_words_count((double)s->timing_count),
                statistic_words(show, s, as_statistic_output_rate, NULL, as_words_number),
                statistic_words(show, s, as_statistic_decode_rate, NULL, as_words_number),
                statistic_words(show, s, as_statistic_prefill_rate, NULL, as_words_number),
                statistic_words(show, s, as_statistic_request_rate, NULL, as_words_number),
                statistic_words(show, s, as_statistic_metadata_share, NULL, as_words_percent),
                as_words_ratio(s->perturbation));
    }
    int rc = print(show, &columns, error);
    fprintf(
        show->stream,
        "  Output tokens over the run's whole window; decode and prefill over the steps that do "
        "nothing else;\n  metadata as a share of step time; step time of the traced over that "
        "of the timing run.\n");
    return rc;
}

/* --- latency --- */

static const char *percentile_words(const struct as_distribution *values, uint32_t millionths)
{
    if (!as_percentile_shown(values->count, millionths))
        return "-";
    return as_words_ns(as_percentile(values->sorted, values->count, millionths));
}

static const char *interval_words(const struct as_distribution *values)
{
    struct as_interval interval = as_percentile_interval(values->count, AS_P50, 0.95);
    if (interval.low == 0 || interval.high > values->count)
        return "n too small";
    return as_words_printf("%s to %s", as_words_ns(values->sorted[interval.low - 1]),
                           as_words_ns(values->sorted[interval.high - 1]));
}

static int add_latency(const struct as_show *show, struct as_columns *columns,
                       const struct as_strategy_metrics *strategy, const char *label,
                       enum as_latency latency, int service, struct as_error *error)
{
    const struct as_quantile median = {latency, AS_P50};
    const struct as_quantile from_sending = {(enum as_latency)(service < 0 ? 0 : service), AS_P50};
    struct as_over_runs over;
    int rc = as_over_runs(&show->metrics, strategy, as_statistic_quantile, &median, &over, error);
    if (rc != AS_OK)
        return rc;
    free(over.values);
    if (isnan(over.median)) {
        ADD_ROW(columns, as_words_safe(strategy->name), label, "0", "no data", "", "", "", "", "",
                "");
        return AS_OK;
    }
    const struct as_distribution *values = &show->metrics.runs[over.median_run].latency[latency];
    ADD_ROW(columns, as_words_safe(strategy->name), label, as_words_count((double)values->count),
            as_words_ns(over.median), interval_words(values), percentile_words(values, AS_P90),
            percentile_words(values, AS_P95), percentile_words(values, AS_P99),
            service < 0 ? ""
                        : statistic_words(show, strategy, as_statistic_quantile, &from_sending,
                                          as_words_ns),
            over.count < 2
                ? ""
                : as_words_printf("%s to %s", as_words_ns(over.low), as_words_ns(over.high)));
    return AS_OK;
}

static int print_latency(const struct as_show *show, struct as_error *error)
{
    static const struct {
        const char *label;
        enum as_latency latency;
        int service;
    } rows[] = {{"TTFT", AS_LATENCY_TTFT, AS_LATENCY_TTFT_SERVICE},
                {"TPOT", AS_LATENCY_TPOT, -1},
                {"ITL", AS_LATENCY_ITL, -1},
                {"E2E", AS_LATENCY_E2E, AS_LATENCY_E2E_SERVICE}};
    struct as_columns columns = {.alignment = "llrrlrrrll"};
    int rc = AS_OK;
    heading(show, "Latency", "from the scheduled arrival; of the run with the median p50");
    ADD_ROW(&columns, "strategy", "", "n", "p50", "95 % interval", "p90", "p95", "p99",
            "p50 from sending", "p50 of the runs");
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        for (size_t i = 0; rc == AS_OK && i < show->metrics.strategy_count; i++) {
            if (show->metrics.strategies[i].timing_count > 0)
                rc = add_latency(show, &columns, &show->metrics.strategies[i], rows[r].label,
                                 rows[r].latency, rows[r].service, error);
        }
    }
    int printed = print(show, &columns, error);
    return rc == AS_OK ? printed : rc;
}

/* Parts are of the run with the median TTFT. */
static int print_parts(const struct as_show *show, struct as_error *error)
{
    static const struct as_quantile ttft = {AS_LATENCY_TTFT, AS_P50};
    struct as_columns columns = {.alignment = "lrrrrrrrr"};
    heading(show, "Parts of TTFT", "means, which add up");
    ADD_ROW(&columns, "strategy", "n", "TTFT", "sent late", "text wait", "text stage", "queue",
            "prefill", "unexplained");
    for (size_t i = 0; i < show->metrics.strategy_count; i++) {
        const struct as_strategy_metrics *s = &show->metrics.strategies[i];
        struct as_over_runs over;
        int rc = as_over_runs(&show->metrics, s, as_statistic_quantile, &ttft, &over, error);
        if (rc != AS_OK)
            return rc;
        free(over.values);
        if (isnan(over.median))
            continue;
        const struct as_ttft_parts *p = &show->metrics.runs[over.median_run].parts;
        ADD_ROW(&columns, as_words_safe(s->name), as_words_count((double)p->count),
                as_words_ns(p->ttft), as_words_ns(p->lag), as_words_ns(p->text_wait),
                as_words_ns(p->text), as_words_ns(p->queue), as_words_ns(p->prefill),
                as_words_ns(p->remainder));
    }
    return print(show, &columns, error);
}

/* --- where the time went --- */

static void add_usage(struct as_columns *columns, const struct as_usage *u, const char *what,
                      const char *variant)
{
    ADD_ROW(columns, as_words_safe(what), variant, as_words_count((double)u->calls),
            as_words_ns(u->ns), as_words_percent(u->share), as_words_ns(u->ns / (double)u->calls),
            as_words_number(u->bytes / u->ns), as_words_number(u->flops / u->ns),
            as_words_percent(u->ideal_ns / u->ns),
            as_words_percent(u->wait_ns / (u->work_ns + u->wait_ns)));
}

static int print_usage(const struct as_show *show, const struct as_strategy_metrics *strategy,
                       enum as_usage_level level, struct as_error *error)
{
    struct as_columns columns = {.alignment = "llrrrrrrrr"};
    struct as_usage *rows;
    size_t count;
    int rc = as_metrics_usage(&show->metrics, strategy, level, &rows, &count, error);
    if (rc != AS_OK)
        return rc;
    bool classes = level == AS_USAGE_CLASS;
    size_t shown = classes && !show->all && count > CLASSES_SHOWN ? CLASSES_SHOWN : count;
    ADD_ROW(&columns, classes ? "problem class" : "op", "variant", "calls", "time", "share", "mean",
            "GB/s", "GFLOP/s", "of ceiling", "waiting");
    for (size_t i = 0; i < shown; i++)
        add_usage(&columns, &rows[i], classes ? rows[i].problem_class : rows[i].op,
                  as_words_safe(rows[i].variant));
    rc = print(show, &columns, error);
    if (shown < count)
        fprintf(show->stream, "  and %zu more classes (--all prints them)\n", count - shown);
    free(rows);
    return rc;
}

static void sum_traced(const struct as_show *show, const struct as_strategy_metrics *strategy,
                       struct as_run_metrics *sum)
{
    *sum = (struct as_run_metrics){0};
    for (size_t i = 0; i < strategy->traced_count; i++) {
        const struct as_run_metrics *run = &show->metrics.runs[strategy->traced[i]];
        sum->launches += run->launches;
        sum->launch_ns += run->launch_ns;
        sum->work_ns += run->work_ns;
        sum->wait_ns += run->wait_ns;
        sum->step_ns += run->step_ns;
        sum->row.recording_ns = run->row.recording_ns;
    }
}

static int print_time(const struct as_show *show, struct as_error *error)
{
    int rc = AS_OK;
    for (size_t i = 0; rc == AS_OK && i < show->metrics.strategy_count; i++) {
        const struct as_strategy_metrics *strategy = &show->metrics.strategies[i];
        struct as_run_metrics sum;
        sum_traced(show, strategy, &sum);
        if (sum.launches == 0)
            continue;
        heading(show, as_words_printf("Where the time of %s went", as_words_safe(strategy->name)),
                as_words_printf("%zu traced run%s, %s of steps", strategy->traced_count,
                                strategy->traced_count == 1 ? "" : "s", as_words_ns(sum.step_ns)));
        double share = sum.step_ns > 0 ? sum.launch_ns / sum.step_ns : NAN;
        double cost =
            sum.step_ns > 0 ? sum.row.recording_ns * (double)sum.launches / sum.step_ns : NAN;
        fprintf(
            show->stream,
            "  %s launches took %s of it; %s of the threads' time in them was waiting; recording "
            "cost about %s\n",
            as_words_count((double)sum.launches), as_words_percent(share),
            as_words_percent(sum.wait_ns / (sum.work_ns + sum.wait_ns)), as_words_percent(cost));
        rc = print_usage(show, strategy, AS_USAGE_VARIANT, error);
        if (rc == AS_OK) {
            fprintf(show->stream, "\n");
            rc = print_usage(show, strategy, AS_USAGE_CLASS, error);
        }
    }
    return rc;
}

static int print_steps(const struct as_show *show, struct as_error *error)
{
    static const char *const names[] = {"prefill only", "decode only", "mixed"};
    struct as_columns columns = {.alignment = "llrrrrr"};
    heading(show, "Steps", "of the first timing run");
    ADD_ROW(&columns, "strategy", "kind", "steps", "time", "mean", "prefill tokens",
            "decode tokens");
    for (size_t i = 0; i < show->metrics.strategy_count; i++) {
        const struct as_strategy_metrics *strategy = &show->metrics.strategies[i];
        for (int k = 0; strategy->timing_count > 0 && k < AS_STEPS_KINDS; k++) {
            const struct as_step_kind *kind = &show->metrics.runs[strategy->timing[0]].steps[k];
            if (kind->steps > 0)
                ADD_ROW(&columns, as_words_safe(strategy->name), names[k],
                        as_words_count((double)kind->steps), as_words_ns(kind->ns),
                        as_words_ns(kind->ns / (double)kind->steps),
                        as_words_count((double)kind->prefill_tokens),
                        as_words_count((double)kind->decode_tokens));
        }
    }
    return print(show, &columns, error);
}

/* --- counters, runs --- */

static const char *counter_words(const struct as_show *show,
                                 const struct as_strategy_metrics *strategy, uint32_t name,
                                 bool *any)
{
    size_t run = strategy->timing_count > 0   ? strategy->timing[0]
                 : strategy->traced_count > 0 ? strategy->traced[0]
                                              : show->metrics.run_count;
    for (size_t i = 0; run < show->metrics.run_count && i < show->metrics.counter_count; i++) {
        const struct as_row_counter *row = &show->metrics.counters[i];
        if (row->run != show->metrics.runs[run].row.run || row->name != name ||
            row->value == AS_UNKNOWN_U64)
            continue;
        *any = *any || row->value != 0;
        return as_words_count((double)row->value);
    }
    return "n/a";
}

/* Whether counter `index` is the first row of its name. */
static bool first_of_name(const struct as_show *show, size_t index)
{
    for (size_t i = 0; i < index; i++) {
        if (show->metrics.counters[i].name == show->metrics.counters[index].name)
            return false;
    }
    return true;
}

static int print_counters(const struct as_show *show, struct as_error *error)
{
    char alignment[32] = "ll";
    struct as_columns columns = {.alignment = alignment};
    size_t strategies = show->metrics.strategy_count < 28 ? show->metrics.strategy_count : 28;
    if (show->metrics.counter_count == 0)
        return AS_OK;
    memset(alignment + 2, 'r', strategies);
    alignment[2 + strategies] = '\0';
    heading(show, "Counters",
            show->all ? "of the first timing run"
                      : "of the first timing run, without those that are 0");
    ADD_ROW(&columns, "counter", "units");
    for (size_t i = 0; i < strategies; i++)
        as_columns_add(&columns, as_words_safe(show->metrics.strategies[i].name));
    for (size_t c = 0; c < show->metrics.counter_count; c++) {
        const struct as_row_counter *row = &show->metrics.counters[c];
        const char *cells[32];
        bool any = show->all;
        if (!first_of_name(show, c))
            continue;
        for (size_t i = 0; i < strategies; i++)
            cells[i] = counter_words(show, &show->metrics.strategies[i], row->name, &any);
        if (!any)
            continue;
        const char *units = as_report_string(show->report, row->units);
        ADD_ROW(&columns, as_words_safe(as_report_string(show->report, row->name)),
                units != NULL ? as_words_safe(units) : "");
        add_row(&columns, cells, strategies);
    }
    return print(show, &columns, error);
}

static void print_invalid(const struct as_show *show)
{
    const struct as_metrics *metrics = &show->metrics;
    uint64_t dropped = 0;
    for (size_t r = 0; r < metrics->run_count; r++) {
        const struct as_row_run *row = &metrics->runs[r].row;
        if (row->valid != 1)
            fprintf(show->stream, "%srun %u of %s (%s) is not valid: %s%s\n", red(show), row->run,
                    as_words_safe(as_report_string(show->report, row->strategy)),
                    as_report_pass_name(row->pass),
                    as_words_safe(as_report_string(show->report, row->invalid_reason)),
                    plain(show));
    }
    if (as_report_attribute_u64(show->report, "merge_dropped_launches", &dropped) && dropped > 0)
        fprintf(show->stream, "%s launches were left out: not every thread had ended them\n",
                as_words_count((double)dropped));
}

static int print_runs(const struct as_show *show, struct as_error *error)
{
    struct as_columns columns = {.alignment = "rllrrrrrrl"};
    heading(show, "Runs", "");
    ADD_ROW(&columns, "run", "strategy", "pass", "repetition", "time", "requests", "done",
            "output tokens/s", "peak memory", "valid");
    for (size_t r = 0; r < show->metrics.run_count; r++) {
        const struct as_run_metrics *run = &show->metrics.runs[r];
        const struct as_row_run *row = &run->row;
        ADD_ROW(&columns, as_words_printf("%u", row->run),
                as_words_safe(as_report_string(show->report, row->strategy)),
                as_report_pass_name(row->pass),
                row->repetition == AS_UNKNOWN_U32 ? "n/a" : as_words_printf("%u", row->repetition),
                as_words_ns(run->window_ns), as_words_count((double)run->requests),
                as_words_count((double)run->outcomes[AS_REPORT_OUTCOME_DONE]),
                as_words_number(as_statistic_output_rate(run, NULL)),
                row->peak_rss == AS_UNKNOWN_U64 ? "n/a" : as_words_bytes((double)row->peak_rss),
                row->valid == 1 ? "yes" : "no");
    }
    return print(show, &columns, error);
}

int as_show_text(const struct as_show *show, struct as_error *error)
{
    print_source(show);
    if (show->metrics.run_count == 0) {
        fprintf(show->stream, "\nno data: the report holds no runs\n");
        return AS_OK;
    }
    int rc = print_ranking(show, error);
    if (rc != AS_OK)
        return rc;
    print_checks(show);
    print_invalid(show);
    int (*const parts[])(const struct as_show *, struct as_error *) = {
        print_throughput, print_latency, print_parts, print_steps, print_time, print_counters};
    for (size_t i = 0; rc == AS_OK && i < sizeof parts / sizeof parts[0]; i++)
        rc = parts[i](show, error);
    if (rc == AS_OK && show->runs)
        rc = print_runs(show, error);
    return rc;
}
