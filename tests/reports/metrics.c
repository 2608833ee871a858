/* Metrics from reports with numbers small enough to check by hand. */
#include <math.h>

#include "helpers.h"
#include "metrics.h"

TestSuite(metrics, .init = make_scratch, .fini = drop_scratch);

static struct as_report *report;
static struct as_metrics metrics;

static void compute(const char *work)
{
    struct as_error error = {0};
    MUST(as_merge(work, in_scratch("r.h5"), NULL, &error));
    report = open_report(in_scratch("r.h5"));
    MUST(as_metrics_compute(&metrics, report, &error));
}

static void done(void)
{
    as_metrics_free(&metrics);
    as_report_close(report);
}

static void put_run_row(struct as_spool *spool, uint32_t run, const char *strategy, uint8_t pass,
                        uint64_t start, uint64_t end)
{
    struct as_row_run row;
    as_row_unknown(AS_TABLE_RUNS, &row);
    row.run = run;
    row.strategy = as_spool_string(spool, strategy);
    row.pass = pass;
    row.threads = 2;
    row.start = start;
    row.end = end;
    row.exit = row.signal = 0;
    put(spool, AS_TABLE_RUNS, &row);
}

static struct as_spool *new_child(uint32_t run)
{
    struct as_error error = {0};
    char folder[400];
    MUST(as_spool_child_folder(folder, sizeof folder, in_scratch("w"), run, &error));
    return new_spool(folder, AS_SPOOL_ENGINE);
}

static void put_plain_step(struct as_spool *spool, uint32_t run, uint32_t step, uint64_t start,
                           uint64_t end, uint32_t prefill, uint32_t decode)
{
    struct as_row_step row;
    as_row_unknown(AS_TABLE_STEPS, &row);
    row.run = run;
    row.step = step;
    row.start = start;
    row.end = end;
    row.prefill_tokens = prefill;
    row.decode_tokens = decode;
    put(spool, AS_TABLE_STEPS, &row);
}

static void put_token(struct as_spool *spool, uint32_t run, uint32_t step, uint32_t request,
                      uint32_t token)
{
    struct as_row_step_row row;
    as_row_unknown(AS_TABLE_STEP_ROWS, &row);
    row.run = run;
    row.step = step;
    row.request = request;
    row.tokens = 1;
    row.phase = AS_REPORT_PHASE_DECODE;
    row.token = token;
    put(spool, AS_TABLE_STEP_ROWS, &row);
}

static struct as_row_request request_row(uint32_t run, uint32_t request, uint64_t base)
{
    struct as_row_request row;
    as_row_unknown(AS_TABLE_REQUESTS, &row);
    row.run = run;
    row.request = request;
    row.scheduled = base;
    row.sent = base + 3;
    row.preprocess_start = base + 10;
    row.preprocess_end = base + 30;
    row.queued = base + 31;
    row.first_scheduled = base + 50;
    row.prefill_end = base + 150;
    row.first_token = base + 152;
    row.last_token = base + 352;
    row.done = base + 360;
    row.prompt_tokens = 7;
    row.output_tokens = 3;
    row.outcome = AS_REPORT_OUTCOME_DONE;
    return row;
}

/* Two requests in four steps, one more that gets one token, one cancelled before its first. */
static void make_small(uint32_t run, const char *strategy, uint64_t base, uint32_t token)
{
    struct as_spool *spool = new_child(run);
    put_run_row(spool, run, strategy, AS_REPORT_PASS_TIMING, base, base + 1000);
    put_plain_step(spool, run, 0, base + 50, base + 150, 14, 0);
    put_plain_step(spool, run, 1, base + 160, base + 250, 0, 2);
    put_plain_step(spool, run, 2, base + 250, base + 352, 5, 2);
    put_plain_step(spool, run, 3, base + 1500, base + 2000, 0, 1); /* beyond the window */
    put_token(spool, run, 0, 0, token);
    put_token(spool, run, 0, 1, token + 1);
    put_token(spool, run, 1, 0, token + 2);
    put_token(spool, run, 1, 1, token + 3);
    put_token(spool, run, 2, 0, token + 4);
    put_token(spool, run, 2, 1, token + 5);
    put_token(spool, run, 2, 2, token + 6);
    put_token(spool, run, 3, 2, token + 7);
    struct as_row_request row = request_row(run, 0, base);
    put(spool, AS_TABLE_REQUESTS, &row);
    row = request_row(run, 1, base + 10);
    put(spool, AS_TABLE_REQUESTS, &row);
    row = request_row(run, 2, base + 20);
    row.output_tokens = 1;
    row.last_token = row.first_token;
    put(spool, AS_TABLE_REQUESTS, &row);
    row = request_row(run, 3, base);
    row.outcome = AS_REPORT_OUTCOME_CANCELLED;
    row.first_token = row.last_token = AS_UNKNOWN_U64;
    row.output_tokens = 0;
    put(spool, AS_TABLE_REQUESTS, &row);
    close_spool(spool);
}

static void expect_values(const struct as_distribution *found, size_t count, const double *values)
{
    cr_assert_eq(found->count, count, "%zu values", found->count);
    for (size_t i = 0; i < count; i++)
        cr_expect_eq(found->sorted[i], values[i], "%g, not %g", found->sorted[i], values[i]);
}

Test(metrics, latencies)
{
    make_small(0, "naive", 5000, 65);
    compute(in_scratch("w"));
    cr_assert_eq(metrics.run_count, 1);
    const struct as_run_metrics *run = &metrics.runs[0];
    expect_values(&run->latency[AS_LATENCY_TTFT], 3, (double[]){152, 152, 152});
    expect_values(&run->latency[AS_LATENCY_TTFT_SERVICE], 3, (double[]){149, 149, 149});
    expect_values(&run->latency[AS_LATENCY_E2E], 3, (double[]){152, 352, 352});
    expect_values(&run->latency[AS_LATENCY_TPOT], 2, (double[]){100, 100});
    cr_assert_eq(run->latency[AS_LATENCY_TPOT].absent, 1, "one token has no TPOT, not 0");
    /* Steps end at 150, 250, 352, 2000. */
    expect_values(&run->latency[AS_LATENCY_ITL], 5, (double[]){100, 100, 102, 102, 1648});
    cr_assert_eq(run->requests, 4);
    cr_assert_eq(run->outcomes[AS_REPORT_OUTCOME_DONE], 3);
    cr_assert_eq(run->outcomes[AS_REPORT_OUTCOME_CANCELLED], 1);
    cr_assert_eq(run->prompt_tokens, 28);
    done();
}

Test(metrics, parts_of_ttft_add_up)
{
    make_small(0, "naive", 5000, 65);
    compute(in_scratch("w"));
    const struct as_ttft_parts *parts = &metrics.runs[0].parts;
    cr_assert_eq(parts->count, 3);
    cr_assert_eq(parts->lag, 3);
    cr_assert_eq(parts->text_wait, 7);
    cr_assert_eq(parts->text, 20);
    cr_assert_eq(parts->queue, 19);
    cr_assert_eq(parts->prefill, 100);
    cr_assert_eq(parts->handover, 1);
    cr_assert_eq(parts->remainder, 2, "the token out");
    cr_assert_eq(parts->ttft, 152);
    done();
}

Test(metrics, steps_and_rates)
{
    make_small(0, "naive", 5000, 65);
    compute(in_scratch("w"));
    const struct as_run_metrics *run = &metrics.runs[0];
    cr_assert_eq(run->steps[AS_STEPS_PREFILL].steps, 1);
    cr_assert_eq(run->steps[AS_STEPS_PREFILL].prefill_tokens, 14);
    cr_assert_eq(run->steps[AS_STEPS_DECODE].steps, 2);
    cr_assert_eq(run->steps[AS_STEPS_DECODE].ns, 90 + 500);
    cr_assert_eq(run->steps[AS_STEPS_MIXED].decode_tokens, 2);
    cr_assert_eq(run->window_ns, 1000);
    cr_assert_eq(run->window_output, 7, "the eighth came after the window");
    cr_assert_eq(run->window_prefill, 19);
    cr_assert_eq(run->in_window, 3);
    cr_assert_float_eq(as_statistic_output_rate(run, NULL), 7e6, 1e-3);
    cr_assert_float_eq(as_statistic_prefill_rate(run, NULL), 14e9 / 100, 1e-3);
    cr_assert_float_eq(as_statistic_decode_rate(run, NULL), 3e9 / 590, 1e-3);
    cr_assert(isnan(as_statistic_metadata_share(run, NULL)), "not recorded is not 0");
    done();
}

/* Three repetitions: the statistic is of a run, the strategy's value is one of them. */
Test(metrics, repetitions_are_not_pooled)
{
    for (uint32_t r = 0; r < 3; r++) {
        static const uint64_t ends[] = {2000, 1000, 4000};
        struct as_spool *spool = new_child(r);
        put_run_row(spool, r, "fast", AS_REPORT_PASS_TIMING, 1000, 1000 + ends[r]);
        put_plain_step(spool, r, 0, 1000, 1100, 0, 1);
        put_token(spool, r, 0, 0, 65);
        close_spool(spool);
    }
    compute(in_scratch("w"));
    struct as_error error = {0};
    struct as_over_runs over;
    cr_assert_eq(metrics.strategy_count, 1);
    cr_assert_eq(metrics.strategies[0].timing_count, 3);
    MUST(as_over_runs(&metrics, &metrics.strategies[0], as_statistic_output_rate, NULL, &over,
                      &error));
    cr_assert_eq(over.count, 3);
    cr_assert_eq(over.median, 1e9 / 2000);
    cr_assert_eq(over.median_run, 0);
    cr_assert_eq(over.low, 1e9 / 4000);
    cr_assert_eq(over.high, 1e9 / 1000);
    cr_assert_eq(over.values[1], 1e9 / 1000);
    free(over.values);
    const struct as_quantile ttft = {AS_LATENCY_TTFT, AS_P50};
    MUST(as_over_runs(&metrics, &metrics.strategies[0], as_statistic_quantile, &ttft, &over,
                      &error));
    cr_assert(isnan(over.median) && isnan(over.low), "no request, no TTFT");
    free(over.values);
    done();
}

Test(metrics, invalid_runs_count_for_nothing)
{
    make_small(0, "naive", 5000, 65);
    struct as_spool *spool = new_spool(in_scratch("w"), AS_SPOOL_PARENT);
    struct as_row_run row;
    as_row_unknown(AS_TABLE_RUNS, &row);
    row.run = 0;
    row.exit = AS_UNKNOWN_U32;
    row.signal = 9;
    put(spool, AS_TABLE_RUNS, &row);
    close_spool(spool);
    compute(in_scratch("w"));
    cr_assert_eq(metrics.strategies[0].timing_count, 0);
    cr_assert_eq(metrics.strategies[0].invalid_count, 1);
    done();
}

Test(metrics, same_output)
{
    size_t both, same;
    make_small(0, "naive", 5000, 65);
    make_small(1, "fast", 9000, 65);
    make_small(2, "wrong", 19000, 70);
    compute(in_scratch("w"));
    as_metrics_same_output(&metrics.runs[0], &metrics.runs[1], &both, &same);
    cr_assert(both == 3 && same == 3, "%zu of %zu", same, both);
    as_metrics_same_output(&metrics.runs[0], &metrics.runs[2], &both, &same);
    cr_assert(both == 3 && same == 0, "%zu of %zu", same, both);
    done();
}

static void put_ceilings(void)
{
    static const struct {
        const char *name, *units;
        uint32_t threads;
        double value;
    } list[] = {{"bandwidth_read", "B/s", 2, 1e10},
                {"bandwidth_read", "B/s", 1, 6e9},
                {"compute_f32", "FLOP/s", 2, 5e10}};
    struct as_spool *spool = new_spool(in_scratch("w"), AS_SPOOL_PARENT);
    for (int i = 0; i < 3; i++) {
        struct as_row_ceiling row = {.name = as_spool_string(spool, list[i].name),
                                     .units = as_spool_string(spool, list[i].units),
                                     .threads = list[i].threads,
                                     .boot = AS_UNKNOWN_U32,
                                     .measured = AS_UNKNOWN_U64,
                                     .value = list[i].value};
        put(spool, AS_TABLE_CEILINGS, &row);
    }
    close_spool(spool);
}

/* 40 launches on two threads: launch i lasts from 0 to 160 ns after its start (thread 1 begins 10
 * ns later and takes 101 + 49). */
Test(metrics, usage)
{
    const struct child_options options = {.run = 0, .threads = 2, .launches = 40, .base = 1000};
    struct as_error error = {0};
    struct as_usage *rows;
    size_t count;
    put_ceilings();
    make_child(in_scratch("w"), &options);
    compute(in_scratch("w"));
    const struct as_strategy_metrics *strategy = &metrics.strategies[0];
    cr_assert_eq(strategy->traced_count, 1);
    cr_assert_eq(metrics.runs[0].launches, 40);
    cr_assert_eq(metrics.runs[0].launch_ns, 40 * 160);
    cr_assert_eq(metrics.runs[0].work_ns, 40 * 201);
    cr_assert_eq(metrics.runs[0].wait_ns, 40 * 99);
    MUST(as_metrics_usage(&metrics, strategy, AS_USAGE_OP, &rows, &count, &error));
    cr_assert_eq(count, 2);
    cr_assert_str_eq(rows[0].op, "linear");
    cr_assert_str_eq(rows[0].variant, "linear/cpu_naive");
    cr_assert_eq(rows[0].calls, 20);
    cr_assert_eq(rows[0].ns, 20 * 160);
    cr_assert_eq(rows[0].share, 0.5);
    const double bytes = 1536.0 * 576 * 20 / 32, flops = 2.0 * 1536 * 576;
    cr_assert_eq(rows[0].bytes, 20 * bytes);
    cr_assert_eq(rows[0].flops, 20 * flops);
    cr_assert_float_eq(rows[0].ideal_ns, 20 * fmax(bytes / 10, flops / 50), 1e-6);
    cr_assert_str_eq(rows[1].op, "rms_norm");
    free(rows);
    MUST(as_metrics_usage(&metrics, strategy, AS_USAGE_CLASS, &rows, &count, &error));
    cr_assert_eq(count, 2);
    cr_assert_str_eq(rows[0].problem_class, "linear 576 to 1536, tokens 1, q4_1/f32");
    cr_assert_str_eq(rows[1].problem_class, "rms_norm, tokens 1, f32");
    free(rows);
    cr_assert_eq(as_metrics_ceiling(&metrics, "bandwidth_read", 1), 6e9);
    cr_assert(isnan(as_metrics_ceiling(&metrics, "bandwidth_read", 4)));
    done();
}

/* Without ceilings, or with a problem whose cost is not known, there is no share of one. */
Test(metrics, usage_without_ceilings)
{
    const struct child_options options = {.run = 0, .threads = 2, .launches = 8, .base = 1000};
    struct as_error error = {0};
    struct as_usage *rows;
    size_t count;
    make_child(in_scratch("w"), &options);
    compute(in_scratch("w"));
    MUST(as_metrics_usage(&metrics, &metrics.strategies[0], AS_USAGE_VARIANT, &rows, &count,
                          &error));
    cr_assert_eq(count, 2);
    cr_assert(isnan(rows[0].ideal_ns));
    cr_assert(isnan(metrics.strategies[0].perturbation), "no timing run");
    free(rows);
    done();
}

Test(metrics, classes)
{
    char text[160];
    struct as_spool *spool = new_child(0);
    struct as_row_problem problem;
    as_row_unknown(AS_TABLE_PROBLEMS, &problem);
    problem.op = as_spool_string(spool, "attention");
    problem.heads = 9;
    problem.kv_heads = 3;
    problem.head_dim = 64;
    problem.tokens = 5;
    problem.context = 512;
    problem.activations = as_spool_string(spool, "f32");
    problem.kv = as_spool_string(spool, "f16");
    put(spool, AS_TABLE_PROBLEMS, &problem);
    problem.problem = 1;
    problem.context = 513;
    problem.tokens = 1;
    put(spool, AS_TABLE_PROBLEMS, &problem);
    close_spool(spool);
    compute(in_scratch("w"));
    as_metrics_class(report, &metrics.problems[0], text, sizeof text);
    cr_assert_str_eq(text, "attention 9/3 heads of 64, tokens<=8, context<=512, f32/f16");
    as_metrics_class(report, &metrics.problems[1], text, sizeof text);
    cr_assert_str_eq(text, "attention 9/3 heads of 64, tokens 1, context<=1024, f32/f16");
    char narrow[12];
    as_metrics_class(report, &metrics.problems[1], narrow, sizeof narrow);
    cr_assert_str_eq(narrow, "attention 9");
    done();
}

/* C52: nothing recorded gives no number at all. */
Test(metrics, nothing)
{
    close_spool(new_spool(in_scratch("w"), AS_SPOOL_PARENT));
    compute(in_scratch("w"));
    cr_assert_eq(metrics.run_count, 0);
    cr_assert_eq(metrics.strategy_count, 0);
    done();
}

Test(metrics, run_without_requests)
{
    struct as_spool *spool = new_child(0);
    put_run_row(spool, 0, "naive", AS_REPORT_PASS_TIMING, 10, 20);
    close_spool(spool);
    compute(in_scratch("w"));
    const struct as_run_metrics *run = &metrics.runs[0];
    const struct as_quantile ttft = {AS_LATENCY_TTFT, AS_P50};
    cr_assert(isnan(as_statistic_quantile(run, &ttft)));
    cr_assert(isnan(as_statistic_decode_rate(run, NULL)));
    cr_assert(isnan(as_statistic_step_ns(run, NULL)));
    cr_assert(isnan(run->parts.ttft));
    cr_assert(isnan(as_statistic_output_rate(run, NULL)), "no token, no rate of tokens");
    cr_assert(isnan(as_statistic_request_rate(run, NULL)));
    done();
}
