/* Runs of one strategy side by side, and the statistics that they are compared by. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "as_memory.h"
#include "metrics_internal.h"

static struct as_strategy_metrics *find_strategy(struct as_metrics *metrics, const char *name)
{
    for (size_t i = 0; i < metrics->strategy_count; i++) {
        if (strcmp(metrics->strategies[i].name, name) == 0)
            return &metrics->strategies[i];
    }
    return NULL;
}

static int group_strategies(struct as_metrics *metrics, struct as_error *error)
{
    metrics->strategies = as_calloc(error, metrics->run_count, sizeof *metrics->strategies,
                                    "the strategies of a report");
    if (metrics->strategies == NULL)
        return AS_ERR_MEMORY;
    for (size_t r = 0; r < metrics->run_count; r++) {
        const struct as_row_run *row = &metrics->runs[r].row;
        const char *name = as_report_string(metrics->report, row->strategy);
        name = name != NULL ? name : "(no name)";
        struct as_strategy_metrics *strategy = find_strategy(metrics, name);
        if (strategy == NULL) {
            strategy = &metrics->strategies[metrics->strategy_count++];
            strategy->name = name;
            strategy->timing = as_calloc(error, metrics->run_count, sizeof(size_t), "runs");
            strategy->traced = as_calloc(error, metrics->run_count, sizeof(size_t), "runs");
            if (strategy->timing == NULL || strategy->traced == NULL)
                return AS_ERR_MEMORY;
        }
        if (row->valid != 1)
            strategy->invalid_count++;
        else if (row->pass == AS_REPORT_PASS_TIMING)
            strategy->timing[strategy->timing_count++] = r;
        else if (row->pass == AS_REPORT_PASS_TRACED)
            strategy->traced[strategy->traced_count++] = r;
    }
    return AS_OK;
}

static int over_list(const struct as_metrics *metrics, const size_t *list, size_t count,
                     as_run_statistic *statistic, const void *argument, struct as_over_runs *result,
                     struct as_error *error)
{
    *result = (struct as_over_runs){.count = count, .median = NAN, .low = NAN, .high = NAN};
    result->values = as_calloc(error, count, sizeof(double), "values of runs");
    double *sorted = as_calloc(error, count, sizeof(double), "values of runs");
    if (result->values == NULL || sorted == NULL) {
        free(result->values);
        free(sorted);
        result->values = NULL;
        return AS_ERR_MEMORY;
    }
    for (size_t i = 0; i < count; i++)
        sorted[i] = result->values[i] = statistic(&metrics->runs[list[i]], argument);
    size_t known = as_sort_f64(sorted, count);
    if (known > 0) {
        result->median = as_percentile(sorted, known, AS_P50);
        result->low = sorted[0];
        result->high = sorted[known - 1];
        for (size_t i = count; i-- > 0;) {
            if (result->values[i] == result->median)
                result->median_run = list[i];
        }
    }
    free(sorted);
    return AS_OK;
}

int as_over_runs(const struct as_metrics *metrics, const struct as_strategy_metrics *strategy,
                 as_run_statistic *statistic, const void *argument, struct as_over_runs *result,
                 struct as_error *error)
{
    return over_list(metrics, strategy->timing, strategy->timing_count, statistic, argument, result,
                     error);
}

static int compare_passes(struct as_metrics *metrics, struct as_error *error)
{
    int rc = AS_OK;
    for (size_t i = 0; rc == AS_OK && i < metrics->strategy_count; i++) {
        struct as_strategy_metrics *s = &metrics->strategies[i];
        struct as_over_runs timing = {0}, traced = {0};
        rc = over_list(metrics, s->timing, s->timing_count, as_statistic_step_ns, NULL, &timing,
                       error);
        if (rc == AS_OK)
            rc = over_list(metrics, s->traced, s->traced_count, as_statistic_step_ns, NULL, &traced,
                           error);
        s->perturbation = rc == AS_OK ? traced.median / timing.median : NAN;
        free(timing.values);
        free(traced.values);
    }
    return rc;
}

/* --- statistics of a run --- */

double as_statistic_quantile(const struct as_run_metrics *run, const void *argument)
{
    const struct as_quantile *quantile = argument;
    const struct as_distribution *values = &run->latency[quantile->latency];
    if (!as_percentile_shown(values->count, quantile->millionths))
        return NAN;
    return as_percentile(values->sorted, values->count, quantile->millionths);
}

/* Nothing counted is no rate, rather than one of 0: an encoder makes no tokens. */
static double rate(uint64_t count, double ns)
{
    return count > 0 && ns > 0 ? (double)count / ns * 1e9 : NAN;
}

double as_statistic_output_rate(const struct as_run_metrics *run, const void *argument)
{
    (void)argument;
    return rate(run->window_output, run->window_ns);
}

double as_statistic_request_rate(const struct as_run_metrics *run, const void *argument)
{
    (void)argument;
    return rate(run->in_window, run->window_ns);
}

double as_statistic_prefill_rate(const struct as_run_metrics *run, const void *argument)
{
    (void)argument;
    return rate(run->steps[AS_STEPS_PREFILL].prefill_tokens, run->steps[AS_STEPS_PREFILL].ns);
}

double as_statistic_decode_rate(const struct as_run_metrics *run, const void *argument)
{
    (void)argument;
    return rate(run->steps[AS_STEPS_DECODE].decode_tokens, run->steps[AS_STEPS_DECODE].ns);
}

double as_statistic_step_ns(const struct as_run_metrics *run, const void *argument)
{
    (void)argument;
    return run->step_ns > 0 ? run->step_ns : NAN;
}

double as_statistic_metadata_share(const struct as_run_metrics *run, const void *argument)
{
    (void)argument;
    double parts[] = {run->metadata_build_ns, run->metadata_upload_ns, run->metadata_wait_ns};
    double sum = NAN;
    for (int i = 0; i < 3; i++) {
        if (!isnan(parts[i]))
            sum = isnan(sum) ? parts[i] : sum + parts[i];
    }
    return run->step_ns > 0 ? sum / run->step_ns : NAN;
}

void as_metrics_same_output(const struct as_run_metrics *a, const struct as_run_metrics *b,
                            size_t *both, size_t *same)
{
    size_t count = a->output_count < b->output_count ? a->output_count : b->output_count;
    *both = *same = 0;
    for (size_t i = 0; i < count; i++) {
        const struct as_request_output *x = &a->outputs[i], *y = &b->outputs[i];
        if (!x->done || !y->done || x->tokens == 0 || y->tokens == 0)
            continue;
        ++*both;
        *same += x->tokens == y->tokens && x->hash == y->hash;
    }
}

int as_metrics_add_strategies(struct as_metrics *metrics, struct as_error *error)
{
    int rc = group_strategies(metrics, error);
    return rc == AS_OK ? compare_passes(metrics, error) : rc;
}
