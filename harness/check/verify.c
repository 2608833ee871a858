#include "check/verify.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "as_clock.h"
#include "as_memory.h"
#include "as_text.h"
#include "check/verify_feed.h"
#include "probe/digest.h"

#define GREEDY_POSITIONS 24 /* of the pass that keeps no logits */

static const int32_t one_by_one[] = {1};
static const int32_t mixed[] = {2,  1, 3, 1, 5, 2, 1,  7, 1,  4,  2, 1,
                                16, 1, 8, 1, 9, 6, 31, 1, 17, 32, 64};
static const int32_t largest[] = {AS_VERIFY_MOST_POSITIONS};
static const int32_t greedy[] = {5, 1, 1, 9, 2, 1};

#define WAY_ROWS 16 /* of decode or prefill that are judged alone */

#define FEED(pattern, into)                                                                    \
    {                                                                                          \
        .chunk = pattern, .chunks = (int32_t)(sizeof pattern / sizeof pattern[0]), .sum = into \
    }

/* ---- the model and what it is fed ---------------------------------------------------------- */

static int32_t least(int64_t a, int64_t b)
{
    return (int32_t)(a < b ? a : b);
}

static int32_t noise_positions(const struct as_verify *verify)
{
    return least(AS_NOISE_POSITIONS, verify->model->config.context);
}

static int check_positions(struct as_verify *verify, struct as_error *error)
{
    const struct as_verify_options *o = &verify->options;
    int64_t context = verify->model->config.context;
    verify->positions = o->positions == 0 ? least(AS_VERIFY_POSITIONS, context) : o->positions;
    if (verify->positions < 1 || verify->positions > AS_VERIFY_MOST_POSITIONS)
        return as_fail(error, AS_ERR_USAGE, "positions must be from 1 to %d, not %d",
                       AS_VERIFY_MOST_POSITIONS, (int)verify->positions);
    if (verify->positions > context)
        return as_fail(error, AS_ERR_USAGE, "%d positions are more than the context of %lld of %s",
                       (int)verify->positions, (long long)context, verify->model->path);
    return 0;
}

static uint64_t digest_of(const struct as_model *model)
{
    char digest[17];
    as_model_digest_cached(model, digest);
    return strtoull(digest, NULL, 16);
}

int as_verify_open(const struct as_verify_options *options, struct as_verify *verify,
                   struct as_error *error)
{
    *verify = (struct as_verify){.options = *options};
    int code = as_model_open(options->model, &verify->model, error);
    if (code == 0)
        code = check_positions(verify, error);
    if (code == 0)
        code = as_verify_text_standard(verify->model, AS_VERIFY_MOST_POSITIONS, &verify->standard,
                                       error);
    if (code == 0 && options->prompt != NULL)
        code = as_verify_text_prompt(verify->model, options->prompt, options->prompt_length,
                                     verify->positions, &verify->text, error);
    if (code == 0 && options->prompt != NULL)
        verify->positions = verify->text.count;
    if (code == 0)
        verify->digest = digest_of(verify->model);
    else
        as_verify_close(verify);
    return code;
}

void as_verify_close(struct as_verify *verify)
{
    as_truth_free(&verify->truth);
    as_truth_free(&verify->standard_truth);
    free(verify->text.token);
    free(verify->standard.token);
    as_model_close(verify->model);
    *verify = (struct as_verify){0};
}

const char *as_verify_origin(const struct as_verify *verify)
{
    return verify->options.prompt == NULL ? verify->standard.origin : verify->text.origin;
}

/* The truth about the first `positions` tokens of `text`, kept in `truth`. */
static int need_truth(struct as_verify *verify, const struct as_verify_text *text,
                      int32_t positions, struct as_truth *truth, struct as_error *error)
{
    if (truth->positions >= positions)
        return 0;
    as_truth_free(truth);
    return as_truth_compute(verify->model, text->token, positions, &verify->options.progress, truth,
                            error);
}

/* What the verdict needs. The built-in text serves both ends, so it is computed once, long enough
 * for the noise too where that must be measured. */
static int need_compared(struct as_verify *verify, bool with_noise, struct as_error *error)
{
    int32_t positions = verify->positions;
    if (verify->options.prompt != NULL)
        return need_truth(verify, &verify->text, positions, &verify->truth, error);
    if (with_noise && positions < noise_positions(verify))
        positions = noise_positions(verify);
    return need_truth(verify, &verify->standard, positions, &verify->standard_truth, error);
}

static const struct as_truth *compared(const struct as_verify *verify)
{
    return verify->options.prompt != NULL ? &verify->truth : &verify->standard_truth;
}

/* ---- benches ------------------------------------------------------------------------------- */

/* A bench with room for `positions` rows a sequence, its engine not yet made. */
static int open_bench(struct as_verify *verify, const char *strategy, const char *const *set,
                      size_t sets, int32_t positions, struct as_bench *bench,
                      struct as_error *error)
{
    const struct as_bench_options options = {.model = verify->options.model,
                                             .strategy = strategy,
                                             .set = set,
                                             .sets = sets,
                                             .context = positions,
                                             .plans_only = true};
    int code = as_bench_open(&options, bench, error);
    if (code != 0)
        return code;
    if (bench->context < positions)
        code = as_fail(error, AS_ERR_USAGE,
                       "strategy %s has a context of %d, too short for %d positions; compare fewer "
                       "or raise it with --set context=%d",
                       bench->strategy.name, (int)bench->context, (int)positions, (int)positions);
    if (code == 0 && verify->options.prepare != NULL)
        code = verify->options.prepare(verify->options.prepare_context, bench, error);
    if (code != 0)
        as_bench_close(bench);
    return code;
}

static int visit_nothing(void *context, const struct assay_variant *variant,
                         const struct assay_problem *problem)
{
    (void)context;
    (void)variant;
    (void)problem;
    return 0;
}

/* Every op of a small decode step and of a prefill step must have a variant that can run it. */
static int can_run(struct as_bench *bench, int32_t positions, struct as_error *error)
{
    const struct as_engine_options options = as_bench_engine_options(bench, NULL);
    int64_t n = least(positions, options.max_tokens);
    const struct as_step_shape decode = {1, 1, 1, positions, positions, positions};
    const struct as_step_shape prefill = {n, 1, 1, n, n * (n + 1) / 2, n};
    int code = as_engine_visit_problems(&options, &decode, visit_nothing, NULL, error);
    return code != 0 ? code
                     : as_engine_visit_problems(&options, &prefill, visit_nothing, NULL, error);
}

int as_verify_check(struct as_verify *verify, const char *strategy, struct as_error *error)
{
    struct as_bench bench;
    int code = open_bench(verify, strategy, verify->options.set, verify->options.sets,
                          verify->positions, &bench, error);
    if (code != 0)
        return code;
    code = can_run(&bench, verify->positions, error);
    as_bench_close(&bench);
    return code;
}

/* ---- noise --------------------------------------------------------------------------------- */

static int run_naive(struct as_verify *verify, struct as_bench *bench, struct as_ref_logits *sum,
                     struct as_error *error)
{
    struct as_feed feed[] = {FEED(one_by_one, sum)};
    struct as_feeder feeder = {.bench = bench,
                               .truth = &verify->standard_truth,
                               .positions = noise_positions(verify),
                               .what = "noise",
                               .progress = &verify->options.progress};
    int code = as_bench_start(bench, NULL, error);
    return code != 0 ? code : as_feed_run(&feeder, feed, 1, error);
}

/* Whether an error can be rounding at all: a naive rung that is broken must not become noise that
 * excuses the others. */
static int check_naive(const struct as_verify *verify, const struct as_noise_key *key,
                       const struct as_ref_logits *sum, struct as_error *error)
{
    const struct as_truth *truth = &verify->standard_truth;
    double most = (as_noise_exact(key) ? 1e-4 : 0.25) * truth->rms;
    if (sum->anomalies > 0)
        return as_fail(error, AS_ERR_WRONG,
                       "the naive rung gives %lld non-finite logits on %s: there is no noise to "
                       "judge by",
                       (long long)sum->anomalies, verify->model->path);
    if (sum->rms > most)
        return as_fail(error, AS_ERR_WRONG,
                       "the naive rung itself is wrong on %s: its RMS error of %.3g is more than "
                       "%.3g, which rounding cannot explain (logits have RMS %.3g)",
                       verify->model->path, sum->rms, most, truth->rms);
    return 0;
}

int as_verify_measure(struct as_verify *verify, const struct as_noise_key *key,
                      struct as_noise *noise, struct as_error *error)
{
    char words[3][32];
    snprintf(words[0], sizeof words[0], "weights=%s", as_noise_dtype(key->weights));
    snprintf(words[1], sizeof words[1], "activations=%s", as_noise_dtype(key->activations));
    snprintf(words[2], sizeof words[2], "kv=%s", as_noise_dtype(key->kv));
    const char *const set[] = {words[0], words[1], words[2]};
    int32_t positions = noise_positions(verify);
    struct as_ref_logits sum = {0};
    struct as_bench bench;
    int code = open_bench(verify, "naive", set, 3, positions, &bench, error);
    if (code != 0)
        return code;
    code = need_truth(verify, &verify->standard, positions, &verify->standard_truth, error);
    if (code == 0)
        code = run_naive(verify, &bench, &sum, error);
    as_bench_close(&bench);
    if (code == 0)
        code = check_naive(verify, key, &sum, error);
    if (code != 0)
        return code;
    *noise = (struct as_noise){
        .naive_rms = sum.rms, .positions = positions, .source = AS_NOISE_MEASURED};
    noise->below = as_truth_below(&verify->standard_truth, positions, as_noise_level(noise));
    return 0;
}

/* Known, or measured now and kept. A cache that cannot be written costs time, not the verdict. */
static int need_noise(struct as_verify *verify, const struct as_noise_key *key,
                      struct as_noise *noise, struct as_error *error)
{
    if (as_noise_known(key, noise))
        return 0;
    int code = as_verify_measure(verify, key, noise, error);
    if (code == 0)
        as_noise_keep(key, noise, NULL);
    return code;
}

/* ---- one strategy -------------------------------------------------------------------------- */

/* Decode and two kinds of prefill in the same steps, then a pass that keeps no logits. */
static int feed_engine(struct as_verify *verify, struct as_bench *bench,
                       struct as_verify_result *result, struct as_error *error)
{
    struct as_feed kept[] = {FEED(one_by_one, &result->decode), FEED(mixed, &result->prefill),
                             FEED(largest, &result->prefill)};
    struct as_feed columns[] = {FEED(greedy, NULL)};
    struct as_feeder feeder = {.bench = bench,
                               .truth = compared(verify),
                               .positions = verify->positions,
                               .noise = 4 * result->naive_rms,
                               .what = bench->strategy.name,
                               .progress = &verify->options.progress};
    int code = as_feed_run(&feeder, kept, 3, error);
    result->column_faults = feeder.column_faults;
    if (code != 0)
        return code;
    feeder.columns_only = true;
    feeder.progress = NULL;
    feeder.positions = least(GREEDY_POSITIONS, verify->positions);
    code = as_feed_run(&feeder, columns, 1, error);
    result->greedy_rows = feeder.greedy_rows;
    result->greedy_flips = feeder.greedy_flips;
    result->greedy_anomalies = feeder.greedy_anomalies;
    return code;
}

/* What the rule needs besides rows. The naive rung's own share is the one that was measured with
 * its error, where the same positions are compared; margins are the reference's, so on others it
 * is known without running it. */
static void set_limits(const struct as_verify *verify, struct as_verify_result *result)
{
    const struct as_truth *truth = compared(verify);
    result->naive_rms = fmax(result->noise.naive_rms, 0x1p-24 * truth->rms);
    bool standard = verify->options.prompt == NULL &&
                    verify->positions == result->noise.positions &&
                    result->naive_rms == result->noise.naive_rms;
    result->below = as_truth_below(truth, verify->positions, 4 * result->naive_rms);
    result->below_limit =
        as_noise_below_limit(&result->key, standard ? result->noise.below : result->below);
}

static int run_bench(struct as_verify *verify, struct as_bench *bench,
                     struct as_verify_result *result, struct as_error *error)
{
    const struct as_strategy *strategy = &bench->strategy;
    struct as_noise known;
    result->key = (struct as_noise_key){.model = verify->digest,
                                        .weights = (enum assay_dtype)strategy->weights,
                                        .activations = (enum assay_dtype)strategy->activations,
                                        .kv = (enum assay_dtype)strategy->kv};
    int code = as_bench_start(bench, NULL, error);
    if (code == 0)
        code = need_compared(verify, !as_noise_known(&result->key, &known), error);
    if (code == 0)
        code = need_noise(verify, &result->key, &result->noise, error);
    if (code != 0)
        return code;
    set_limits(verify, result);
    uint64_t start = as_clock_ns();
    code = feed_engine(verify, bench, result, error);
    result->seconds = (double)(as_clock_ns() - start) * 1e-9;
    return code;
}

int as_verify_strategy(struct as_verify *verify, const char *strategy,
                       struct as_verify_result *result, struct as_error *error)
{
    struct as_bench bench;
    *result = (struct as_verify_result){0};
    int code = open_bench(verify, strategy, verify->options.set, verify->options.sets,
                          verify->positions, &bench, error);
    if (code != 0)
        return code;
    snprintf(result->strategy, sizeof result->strategy, "%s", bench.strategy.name);
    as_strategy_digest(&bench.strategy, result->plan_digest);
    code = run_bench(verify, &bench, result, error);
    as_bench_close(&bench);
    if (code == 0)
        as_verify_judge(result);
    return code;
}

/* ---- the verdict --------------------------------------------------------------------------- */

/* Sums of two ways; which row was worst is that of the way with the larger error. */
static struct as_ref_logits added(const struct as_ref_logits *a, const struct as_ref_logits *b)
{
    struct as_ref_logits all = b->max_error > a->max_error ? *b : *a;
    all.rows = a->rows + b->rows;
    all.judged = a->judged + b->judged;
    all.count = a->count + b->count;
    all.anomalies = a->anomalies + b->anomalies;
    all.agreements = a->agreements + b->agreements;
    all.flips = a->flips + b->flips;
    all.first_flip = a->flips > 0 ? a->first_flip : b->first_flip;
    all.below = a->below + b->below;
    all.sum_error2 = a->sum_error2 + b->sum_error2;
    all.sum_kl = a->sum_kl + b->sum_kl;
    all.kl_max = fmax(a->kl_max, b->kl_max);
    all.rms = all.count == 0 ? 0 : sqrt(all.sum_error2 / (double)all.count);
    all.kl = all.judged == 0 ? 0 : all.sum_kl / (double)all.judged;
    all.agreement = all.rows == 0 ? 0 : (double)all.agreements / (double)all.rows;
    all.below_share = all.rows == 0 ? 0 : (double)all.below / (double)all.rows;
    return all;
}

/* Either way alone must keep the RMS rule too, so that many rows of one do not hide the other. One
 * row's error is up to 4 x that of many, so few rows are not judged alone. */
static bool way_is_off(const struct as_ref_logits *way, double naive_rms)
{
    return way->rows >= WAY_ROWS && way->rms > 2 * naive_rms;
}

void as_verify_judge(struct as_verify_result *result)
{
    result->all = added(&result->decode, &result->prefill);
    struct as_ref_logits judged = result->all;
    judged.below_share = result->below;
    result->faults = as_ref_logits_judge(&judged, result->naive_rms, result->below_limit) |
                     (way_is_off(&result->decode, result->naive_rms) ? AS_REF_LOGITS_RMS : 0u) |
                     (way_is_off(&result->prefill, result->naive_rms) ? AS_REF_LOGITS_RMS : 0u) |
                     (result->greedy_flips > 0 ? AS_REF_LOGITS_FLIP : 0u) |
                     (result->greedy_anomalies > 0 ? AS_REF_LOGITS_ANOMALY : 0u) |
                     (result->column_faults > 0 ? AS_VERIFY_COLUMNS : 0u);
}

static void words_of_rms(const struct as_verify_result *result, struct as_text *text)
{
    const struct {
        const char *way;
        double rms;
    } ways[] = {{"all rows", result->all.rms},
                {"decode", result->decode.rms},
                {"prefill", result->prefill.rms}};
    for (int i = 0; i < 3; i++)
        if (ways[i].rms > 2 * result->naive_rms)
            as_text_addf(text, "%sRMS error of %s %.3g is %.3g x the naive rung's %.3g (limit 2 x)",
                         text->length > 0 ? "; " : "", ways[i].way, ways[i].rms,
                         ways[i].rms / result->naive_rms, result->naive_rms);
}

void as_verify_words(const struct as_verify_result *result, char *words, size_t size)
{
    struct as_text text = {0};
    int64_t anomalies = result->all.anomalies, flips = result->all.flips + result->greedy_flips;
    if ((result->faults & AS_REF_LOGITS_EMPTY) != 0 && anomalies == 0)
        as_text_addf(&text, "nothing was compared");
    if ((result->faults & AS_REF_LOGITS_ANOMALY) != 0)
        as_text_addf(&text, "%s%lld non-finite logits", text.length > 0 ? "; " : "",
                     (long long)anomalies + result->greedy_anomalies);
    if ((result->faults & AS_REF_LOGITS_FLIP) != 0) {
        as_text_addf(&text, "%s%lld top-1 flips where the margin exceeds the noise %.3g",
                     text.length > 0 ? "; " : "", (long long)flips, 4 * result->naive_rms);
        if (result->decode.flips > 0)
            as_text_addf(&text, ", the first at position %lld",
                         (long long)result->decode.first_flip);
    }
    if ((result->faults & AS_REF_LOGITS_RMS) != 0)
        words_of_rms(result, &text);
    if ((result->faults & AS_REF_LOGITS_BELOW) != 0)
        as_text_addf(&text, "%s%.1f %% of the positions are below the noise (limit %.1f %%)",
                     text.length > 0 ? "; " : "", 100 * result->below, 100 * result->below_limit);
    if ((result->faults & AS_VERIFY_COLUMNS) != 0)
        as_text_addf(&text, "%sargmax disagrees with the logits it read in %lld rows",
                     text.length > 0 ? "; " : "", (long long)result->column_faults);
    snprintf(words, size, "%s", text.data == NULL ? "" : text.data);
    as_text_free(&text);
}
