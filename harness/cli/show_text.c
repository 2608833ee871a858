/* assay show, for people. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/show_text.h"

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
                         commit ? as_words_printf("%.12s", commit) : "",
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
    line(show, "mode", attribute(show, "mode"));
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
    return ranking->by_latency ? as_words_ns(value) : as_words_number(value);
}

static const char *ranked_units(const struct as_show_ranking *ranking)
{
    return ranking->by_latency    ? " E2E p50"
           : ranking->by_requests ? " requests/s"
                                  : " output tokens/s";
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
    fprintf(show->stream, "%s%s was %s as fast as %s%s: %s%s against %s", bold(show),
            as_words_safe(show->metrics.strategies[ranking->order[0]].name), as_words_ratio(ratio),
            as_words_safe(show->metrics.strategies[slower].name), plain(show),
            ranked_value(ranking, best->median), ranked_units(ranking),
            ranked_value(ranking, other->median));
    if (best->count < 2 || other->count < 2)
        fprintf(show->stream, " (from one run, so its spread is not known)\n");
    else
        fprintf(show->stream, " (medians of %zu and %zu runs, %s)\n", best->count, other->count,
                apart ? "every one faster than every other one"
                      : "which overlap: this may be chance");
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
            fprintf(show->stream, "%s and %s made the same tokens in %zu of %zu requests%s\n",
                    as_words_safe(first->name), as_words_safe(strategy->name), same, both,
                    same < both ? " (near ties may fall either way; `assay verify` judges)" : "");
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
        fprintf(show->stream, "%s%s: %s%s%s\n", bold(show),
                as_words_safe(show->metrics.strategies[ranking.order[0]].name),
                ranked_value(&ranking, ranking.over[ranking.order[0]].median),
                ranked_units(&ranking), plain(show));
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

/* Requests that did not end well in runs that count. */
static void print_failures(const struct as_show *show, const struct as_run_metrics *run)
{
    uint64_t done = run->outcomes[AS_REPORT_OUTCOME_DONE];
    if (run->row.valid != 1 || done == run->requests)
        return;
    fprintf(show->stream, "run %u of %s: %s of %s requests done", run->row.run,
            as_words_safe(as_report_string(show->report, run->row.strategy)),
            as_words_count((double)done), as_words_count((double)run->requests));
    for (uint8_t o = AS_REPORT_OUTCOME_FAILED; o < 5; o++) {
        if (run->outcomes[o] > 0)
            fprintf(show->stream, ", %s %s", as_words_count((double)run->outcomes[o]),
                    as_report_outcome_name(o));
    }
    if (run->unfinished > 0)
        fprintf(show->stream, ", %s unfinished", as_words_count((double)run->unfinished));
    fprintf(show->stream, "\n");
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
        print_failures(show, &metrics->runs[r]);
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
        as_show_throughput, as_show_latency, as_show_parts,
        as_show_steps,      as_show_time,    as_show_counters};
    for (size_t i = 0; rc == AS_OK && i < sizeof parts / sizeof parts[0]; i++)
        rc = parts[i](show, error);
    if (rc == AS_OK && show->runs)
        rc = print_runs(show, error);
    return rc;
}
