/* What a report says, in numbers. Definitions:
 *
 * - A latency is taken of a request that ended "done". TTFT, E2E: from the scheduled arrival to the
 *   first, last token; the service forms from the moment of sending. TPOT: (last - first) /
 *   (n - 1) for n >= 2 tokens, else absent. ITL: gaps between the ends of the steps that sampled a
 *   request's tokens, pooled over the requests of one run.
 * - Parts of TTFT: lag (sent - scheduled), waiting for the text stage, the text stage, handing over
 *   (queued - preprocess_end: the engine takes texts between steps), the scheduler's queue
 *   (first_scheduled - queued), prefill (prefill_end - first_scheduled), and the unexplained
 *   remainder. They are means, which add up; medians would not.
 * - Throughput counts tokens of steps that end inside the run's window, over the window's length.
 * - Repetitions are not pooled: a statistic belongs to a run, and a strategy shows the median
 *   (nearest rank, so that it is a value of one of them) over its valid timing runs.
 * - A launch lasts from its first thread's begin to its last thread's end. Ideal time of a launch:
 *   max(bytes / bandwidth, flops / arithmetic ceiling) with the ceilings for the run's threads; the
 *   share of the ceiling is summed ideal over summed real time. It passes 1 where data stayed in
 *   caches.
 * - Metadata share: summed build, upload and wait over summed step time.
 *
 * Runs that are not valid are listed and count for nothing. */
#ifndef AS_METRICS_H
#define AS_METRICS_H

#include "report.h"
#include "statistics.h"

enum as_latency {
    AS_LATENCY_TTFT,
    AS_LATENCY_TTFT_SERVICE,
    AS_LATENCY_TPOT,
    AS_LATENCY_ITL,
    AS_LATENCY_E2E,
    AS_LATENCY_E2E_SERVICE,
    AS_LATENCIES
};

/* "ttft", "ttft_service", ... */
const char *as_latency_name(enum as_latency latency);

/* Values in ns, sorted. */
struct as_distribution {
    double *sorted;
    size_t count;
    size_t absent; /* requests of which the value does not exist or is not known */
};

/* Means in ns over the requests of which every stamp is known; NaN when there is none. */
struct as_ttft_parts {
    size_t count;
    double ttft, lag, text_wait, text, handover, queue, prefill, remainder;
};

/* Steps of one kind. */
struct as_step_kind {
    uint64_t steps, prefill_tokens, decode_tokens;
    double ns;
};

enum as_step_kinds {
    AS_STEPS_PREFILL, /* no token of a decoding sequence in them */
    AS_STEPS_DECODE,  /* nothing else in them */
    AS_STEPS_MIXED,
    AS_STEPS_KINDS
};

/* The tokens that a request got, as far as they are recorded. */
struct as_request_output {
    uint64_t hash; /* of the tokens in order */
    uint32_t tokens;
    bool done; /* it ended "done" */
};

struct as_run_metrics {
    struct as_row_run row;
    double window_ns; /* NaN when the run has no start or end */
    uint64_t requests, outcomes[5], unfinished;
    uint64_t in_window;                                   /* requests done in it */
    uint64_t prompt_tokens, cached_tokens, output_tokens; /* of requests, as recorded */
    uint64_t window_prefill, window_output;               /* tokens in it */
    struct as_distribution latency[AS_LATENCIES];
    struct as_ttft_parts parts;
    struct as_step_kind steps[AS_STEPS_KINDS];
    double step_ns;                                                 /* all steps */
    double metadata_build_ns, metadata_upload_ns, metadata_wait_ns; /* NaN when not recorded */
    uint64_t padded_tokens;
    uint64_t launches;
    double launch_ns, work_ns, wait_ns; /* of launches */
    struct as_request_output *outputs;  /* by request number */
    size_t output_count;
};

struct as_strategy_metrics {
    const char *name;        /* owned by the report */
    size_t *timing, *traced; /* indices of valid runs */
    size_t timing_count, traced_count, invalid_count;
    double perturbation; /* step time of the median traced over the median timing run; NaN */
};

/* Launches of one run with one variant on one problem. */
struct as_launch_cell {
    uint32_t run, variant, problem; /* run: index into runs */
    uint64_t calls;
    double ns, work_ns, wait_ns;
};

struct as_metrics {
    struct as_report *report; /* borrowed: it must live as long as this */
    struct as_run_metrics *runs;
    size_t run_count;
    struct as_strategy_metrics *strategies; /* by first sight */
    size_t strategy_count;
    struct as_launch_cell *cells;
    size_t cell_count;
    struct as_row_problem *problems;
    size_t problem_count;
    struct as_row_variant *variants;
    size_t variant_count;
    struct as_row_counter *counters;
    size_t counter_count;
    struct as_row_ceiling *ceilings;
    size_t ceiling_count;
};

/* Reads the whole report once. */
int as_metrics_compute(struct as_metrics *metrics, struct as_report *report,
                       struct as_error *error);
void as_metrics_free(struct as_metrics *metrics);

/* One statistic over the valid timing runs of a strategy. */
struct as_over_runs {
    double *values; /* by repetition; NaN where absent; freed by the caller */
    size_t count;
    size_t median_run;        /* index into runs of the run that the median is of */
    double median, low, high; /* NaN when no run has a value */
};

typedef double as_run_statistic(const struct as_run_metrics *run, const void *argument);

int as_over_runs(const struct as_metrics *metrics, const struct as_strategy_metrics *strategy,
                 as_run_statistic *statistic, const void *argument, struct as_over_runs *result,
                 struct as_error *error);

/* Statistics of a run to pass to as_over_runs(); rates are per second; NaN when absent. */
struct as_quantile {
    enum as_latency latency;
    uint32_t millionths;
};
as_run_statistic as_statistic_quantile;    /* argument: struct as_quantile; NaN if not shown */
as_run_statistic as_statistic_output_rate; /* output tokens / window */
as_run_statistic as_statistic_request_rate;
as_run_statistic as_statistic_prefill_rate; /* in steps that only prefill */
as_run_statistic as_statistic_decode_rate;  /* in steps that only decode */
as_run_statistic as_statistic_step_ns;
as_run_statistic as_statistic_metadata_share;

/* --- where the time went (traced runs) --- */

enum as_usage_level { AS_USAGE_OP, AS_USAGE_VARIANT, AS_USAGE_CLASS };

struct as_usage {
    const char *op, *variant; /* owned by the report; variant NULL when there are several */
    char problem_class[160];  /* level CLASS; else "" */
    uint64_t calls;
    double ns, share; /* share of all launches' time */
    double work_ns, wait_ns;
    double bytes, flops, ideal_ns; /* NaN when not known of every launch */
};

/* Rows of one strategy's valid traced runs (summed over them), most time first; freed by the
 * caller. */
int as_metrics_usage(const struct as_metrics *metrics, const struct as_strategy_metrics *strategy,
                     enum as_usage_level level, struct as_usage **rows, size_t *count,
                     struct as_error *error);

/* The ceiling called `name` for `threads`, or NaN. */
double as_metrics_ceiling(const struct as_metrics *metrics, const char *name, uint32_t threads);

/* "linear 576 to 1536, tokens<=4, q4_1/q8": sizes that vary by step rounded up to powers of two. */
void as_metrics_class(const struct as_report *report, const struct as_row_problem *problem,
                      char *text, size_t size);

/* --- what came out --- */

/* Compares what two runs made, request by request (by number): how many both finished, and of how
 * many of those the tokens are equal. */
void as_metrics_same_output(const struct as_run_metrics *a, const struct as_run_metrics *b,
                            size_t *both, size_t *same);

#endif
