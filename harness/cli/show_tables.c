/* The tables of assay show: throughput, latencies, steps, where the time went, counters. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/show_text.h"

#define CLASSES_SHOWN 8

/* --- throughput --- */

static const char *statistic_words(const struct as_show *show,
                                   const struct as_strategy_metrics *strategy,
                                   as_run_statistic *statistic, const void *argument,
                                   const char *(*words)(double))
{
    struct as_over_runs over;
    struct as_error error = {0};
    if (as_over_runs(&show->metrics, strategy, statistic, argument, &over, &error) != AS_OK)
        return NULL;
    free(over.values);
    return words(over.median);
}

/* The range over the runs; "" for a single one. */
static const char *range_words(const struct as_over_runs *over, const char *(*words)(double))
{
    if (over->count < 2 || isnan(over->median))
        return "";
    return as_words_printf("%s to %s", words(over->low), words(over->high));
}

int as_show_throughput(const struct as_show *show, struct as_error *error)
{
    struct as_columns columns = {.alignment = "lrrlrrrrr"};
    int rc = AS_OK;
    heading(show, "Throughput", "tokens/s, medians over the timing runs");
    ADD_ROW(&columns, "strategy", "runs", "output", "range", "decode", "prefill", "requests/s",
            "metadata", "traced/timing");
    for (size_t i = 0; rc == AS_OK && i < show->metrics.strategy_count; i++) {
        const struct as_strategy_metrics *s = &show->metrics.strategies[i];
        struct as_over_runs over;
        rc = as_over_runs(&show->metrics, s, as_statistic_output_rate, NULL, &over, error);
        if (rc != AS_OK)
            break;
        free(over.values);
        ADD_ROW(&columns, as_words_safe(s->name), as_words_count((double)s->timing_count),
                as_words_number(over.median), range_words(&over, as_words_number),
                statistic_words(show, s, as_statistic_decode_rate, NULL, as_words_number),
                statistic_words(show, s, as_statistic_prefill_rate, NULL, as_words_number),
                statistic_words(show, s, as_statistic_request_rate, NULL, as_words_number),
                statistic_words(show, s, as_statistic_metadata_share, NULL, as_words_percent),
                as_words_ratio(s->perturbation));
    }
    int printed = print(show, &columns, error);
    fprintf(show->stream,
            "  output: sampled tokens over the whole window; decode, prefill: in steps that do "
            "nothing else;\n  metadata: share of step time; traced/timing: step time of the traced "
            "over the timing run\n");
    return rc == AS_OK ? printed : rc;
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

static const struct {
    const char *label;
    enum as_latency latency;
    int service; /* the same from sending, or -1 */
} latencies[] = {{"TTFT", AS_LATENCY_TTFT, AS_LATENCY_TTFT_SERVICE},
                 {"TPOT", AS_LATENCY_TPOT, -1},
                 {"ITL", AS_LATENCY_ITL, -1},
                 {"E2E", AS_LATENCY_E2E, AS_LATENCY_E2E_SERVICE}};

static int add_latency(const struct as_show *show, struct as_columns *columns,
                       const struct as_strategy_metrics *strategy, size_t which,
                       struct as_error *error)
{
    const struct as_quantile median = {latencies[which].latency, AS_P50};
    int service = latencies[which].service;
    struct as_over_runs over;
    int rc = as_over_runs(&show->metrics, strategy, as_statistic_quantile, &median, &over, error);
    if (rc != AS_OK)
        return rc;
    free(over.values);
    if (isnan(over.median)) {
        ADD_ROW(columns, latencies[which].label, as_words_safe(strategy->name), "0", "no data", "",
                "", "", "", "", "");
        return AS_OK;
    }
    const struct as_quantile sent = {(enum as_latency)(service < 0 ? 0 : service), AS_P50};
    const struct as_distribution *values =
        &show->metrics.runs[over.median_run].latency[latencies[which].latency];
    ADD_ROW(columns, latencies[which].label, as_words_safe(strategy->name),
            as_words_count((double)values->count), as_words_ns(over.median), interval_words(values),
            range_words(&over, as_words_ns),
            service < 0
                ? ""
                : statistic_words(show, strategy, as_statistic_quantile, &sent, as_words_ns),
            percentile_words(values, AS_P90), percentile_words(values, AS_P95),
            percentile_words(values, AS_P99));
    return AS_OK;
}

int as_show_latency(const struct as_show *show, struct as_error *error)
{
    struct as_columns columns = {.alignment = "llrrllrrrr"};
    int rc = AS_OK;
    heading(show, "Latency", "from the scheduled arrival, of the run with the median p50");
    ADD_ROW(&columns, "", "strategy", "n", "p50", "95 % interval", "p50 of runs", "from sending",
            "p90", "p95", "p99");
    for (size_t l = 0; l < sizeof latencies / sizeof latencies[0]; l++) {
        for (size_t i = 0; rc == AS_OK && i < show->metrics.strategy_count; i++) {
            if (show->metrics.strategies[i].timing_count > 0)
                rc = add_latency(show, &columns, &show->metrics.strategies[i], l, error);
        }
    }
    int printed = print(show, &columns, error);
    fprintf(show->stream, "  interval: holds the population's median with 95 %%; from sending: the "
                          "service form of p50;\n  -: fewer than ten values lie beyond it\n");
    return rc == AS_OK ? printed : rc;
}

/* Parts are of the run with the median TTFT. */
int as_show_parts(const struct as_show *show, struct as_error *error)
{
    static const struct as_quantile ttft = {AS_LATENCY_TTFT, AS_P50};
    struct as_columns columns = {.alignment = "lrrrrrrrrr"};
    heading(show, "Parts of TTFT", "means, which add up");
    ADD_ROW(&columns, "strategy", "n", "TTFT", "sent late", "text wait", "text stage", "handover",
            "queue", "prefill", "unexplained");
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
                as_words_ns(p->text), as_words_ns(p->handover), as_words_ns(p->queue),
                as_words_ns(p->prefill), as_words_ns(p->remainder));
    }
    return print(show, &columns, error);
}

/* --- where the time went --- */

static void add_usage(struct as_columns *columns, const struct as_usage *u)
{
    ADD_ROW(columns, as_words_safe(u->op), as_words_safe(u->variant),
            as_words_count((double)u->calls), as_words_ns(u->ns), as_words_percent(u->share),
            as_words_ns(u->ns / (double)u->calls), as_words_number(u->bytes / u->ns),
            as_words_number(u->flops / u->ns), as_words_percent(u->ideal_ns / u->ns),
            as_words_percent(u->wait_ns / (u->work_ns + u->wait_ns)));
}

/* The op stands in the class, so the variant goes without it. */
static void add_class(struct as_columns *columns, const struct as_usage *u)
{
    const char *slash = u->variant != NULL ? strchr(u->variant, '/') : NULL;
    ADD_ROW(columns, as_words_safe(u->problem_class),
            as_words_safe(slash != NULL ? slash + 1 : u->variant), as_words_count((double)u->calls),
            as_words_ns(u->ns), as_words_percent(u->share), as_words_number(u->bytes / u->ns),
            as_words_number(u->flops / u->ns), as_words_percent(u->ideal_ns / u->ns));
}

static int print_usage(const struct as_show *show, const struct as_strategy_metrics *strategy,
                       enum as_usage_level level, struct as_error *error)
{
    bool classes = level == AS_USAGE_CLASS;
    struct as_columns columns = {.alignment = classes ? "llrrrrrr" : "llrrrrrrrr"};
    struct as_usage *rows;
    size_t count;
    int rc = as_metrics_usage(&show->metrics, strategy, level, &rows, &count, error);
    if (rc != AS_OK)
        return rc;
    size_t shown = classes && !show->all && count > CLASSES_SHOWN ? CLASSES_SHOWN : count;
    if (classes)
        ADD_ROW(&columns, "problem class", "variant", "calls", "time", "share", "GB/s", "GFLOP/s",
                "of ceiling");
    else
        ADD_ROW(&columns, "op", "variant", "calls", "time", "share", "mean", "GB/s", "GFLOP/s",
                "of ceiling", "waiting");
    for (size_t i = 0; i < shown; i++) {
        if (classes)
            add_class(&columns, &rows[i]);
        else
            add_usage(&columns, &rows[i]);
    }
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

int as_show_time(const struct as_show *show, struct as_error *error)
{
    bool any = false;
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
            any = true;
        }
    }
    if (any)
        fprintf(show->stream,
                "\n  GB/s, GFLOP/s: by the ops' cost models over the time of the launches; of "
                "ceiling: the least time\n  that the measured bandwidth and arithmetic allow over "
                "the real one (above 100 %%: data stayed in\n  caches); classes round tokens and "
                "context up to powers of two\n");
    return rc;
}

int as_show_steps(const struct as_show *show, struct as_error *error)
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

/* --- counters --- */

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

int as_show_counters(const struct as_show *show, struct as_error *error)
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
