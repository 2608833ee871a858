/* The rule of verify on numbers that are known, and what it keeps between calls. */
#include "../reports/helpers.h"

#include <math.h>

#include "check/stamps.h"
#include "check/verify.h"

/* A way of `rows` rows of 100 logits, all right but for an RMS error of `rms`. */
static struct as_ref_logits way_of(int64_t rows, double rms)
{
    return (struct as_ref_logits){.rows = rows,
                                  .judged = rows,
                                  .count = 100 * rows,
                                  .agreements = rows,
                                  .max_error = 3 * rms,
                                  .sum_error2 = rms * rms * 100 * (double)rows,
                                  .rms = rms,
                                  .agreement = 1};
}

/* A result that passes, as close to the naive rung as can be. */
static struct as_verify_result result_of(double naive_rms)
{
    return (struct as_verify_result){
        .strategy = "s",
        .plan_digest = "0123456789abcdef",
        .key = {1, ASSAY_NONE, ASSAY_F32, ASSAY_F32},
        .noise = {.naive_rms = naive_rms, .positions = 64},
        .decode = way_of(64, naive_rms),
        .prefill = way_of(18, naive_rms),
        .greedy_rows = 7,
        .naive_rms = naive_rms,
        .below_limit = 0.02,
    };
}

static void expect(struct as_verify_result *result, unsigned faults, const char *words)
{
    char text[512];
    as_verify_judge(result);
    as_verify_words(result, text, sizeof text);
    cr_assert_eq(result->faults, faults, "faults %#x, wanted %#x: %s", result->faults, faults,
                 text);
    if (words[0] == '\0')
        cr_assert_str_eq(text, "");
    else
        cr_assert(strstr(text, words) != NULL, "\"%s\" lacks \"%s\"", text, words);
}

Test(verify_rules, the_naive_rung_passes)
{
    struct as_verify_result result = result_of(0.5);
    expect(&result, 0, "");
    cr_assert_eq(result.all.rows, 82);
    cr_assert_float_eq(result.all.rms, 0.5, 1e-12);
    cr_assert_eq(result.all.agreement, 1);
}

Test(verify_rules, rms_up_to_twice_the_naive)
{
    struct as_verify_result result = result_of(0.5);
    result.decode = way_of(64, 1.0);
    result.prefill = way_of(18, 1.0);
    expect(&result, 0, "");
    result.decode = way_of(64, 1.001);
    result.prefill = way_of(18, 1.001);
    expect(&result, AS_REF_LOGITS_RMS, "2 x the naive rung's 0.5");
}

Test(verify_rules, one_way_cannot_hide_behind_the_other)
{
    struct as_verify_result result = result_of(0.5);
    result.prefill = way_of(18, 1.3);
    expect(&result, AS_REF_LOGITS_RMS, "RMS error of prefill 1.3");
    cr_assert_lt(result.all.rms, 1.0);
    result = result_of(0.5);
    result.decode = way_of(16, 1.1);
    result.prefill = way_of(200, 0.1);
    expect(&result, AS_REF_LOGITS_RMS, "RMS error of decode 1.1");
    /* Few rows scatter too much to be judged alone. */
    result = result_of(0.5);
    result.prefill = way_of(15, 1.3);
    expect(&result, 0, "");
}

Test(verify_rules, flips_above_the_noise)
{
    struct as_verify_result result = result_of(0.5);
    result.decode.flips = 1;
    result.decode.first_flip = 17;
    expect(&result, AS_REF_LOGITS_FLIP, "1 top-1 flips");
    expect(&result, AS_REF_LOGITS_FLIP, "position 17");
    result = result_of(0.5);
    result.prefill.flips = 2;
    expect(&result, AS_REF_LOGITS_FLIP, "the noise 2");
    result = result_of(0.5);
    result.greedy_flips = 1;
    expect(&result, AS_REF_LOGITS_FLIP, "1 top-1 flips");
}

/* Disagreement below the noise is counted by as_ref_logits_add() as no flip. */
Test(verify_rules, flips_below_the_noise_mean_nothing)
{
    const double ref[] = {1.0, 0.9, 0.0}, noise = 0.2;
    const float got[] = {0.9f, 1.0f, 0.0f};
    struct as_verify_result result = result_of(0.05);
    result.decode = result.prefill = (struct as_ref_logits){0};
    for (int i = 0; i < 20; i++) {
        as_ref_logits_add(&result.decode, ref, got, 3, noise);
        as_ref_logits_add(&result.prefill, ref, got, 3, noise);
    }
    result.below = 1;
    result.below_limit = 1;
    expect(&result, 0, "");
    cr_assert_eq(result.all.agreement, 0);
    as_ref_logits_add(&result.decode, ref, got, 3, 0.05);
    expect(&result, AS_REF_LOGITS_FLIP, "top-1");
}

Test(verify_rules, non_finite_logits_fail)
{
    struct as_verify_result result = result_of(0.5);
    result.prefill.anomalies = 3;
    expect(&result, AS_REF_LOGITS_ANOMALY, "3 non-finite logits");
    result = result_of(0.5);
    result.greedy_anomalies = 1;
    expect(&result, AS_REF_LOGITS_ANOMALY, "1 non-finite logits");
    const double ref[] = {1, 2};
    const float got[] = {1, NAN};
    result = result_of(0.5);
    result.decode = result.prefill = (struct as_ref_logits){0};
    as_ref_logits_add(&result.decode, ref, got, 2, 1);
    as_verify_judge(&result);
    cr_assert(result.faults & AS_REF_LOGITS_ANOMALY);
}

Test(verify_rules, columns_must_be_those_of_the_logits)
{
    struct as_verify_result result = result_of(0.5);
    result.column_faults = 4;
    expect(&result, AS_VERIFY_COLUMNS, "argmax disagrees with the logits it read in 4 rows");
}

Test(verify_rules, nothing_compared_is_no_pass)
{
    struct as_verify_result result = result_of(0.5);
    result.decode = result.prefill = (struct as_ref_logits){0};
    expect(&result, AS_REF_LOGITS_EMPTY, "nothing was compared");
}

Test(verify_rules, positions_below_the_noise_are_limited)
{
    const struct as_noise_key f32 = {1, ASSAY_NONE, ASSAY_F32, ASSAY_F32};
    const struct as_noise_key q8 = {1, ASSAY_NONE, ASSAY_Q8, ASSAY_F32};
    const struct as_noise_key bf16_cache = {1, ASSAY_NONE, ASSAY_F32, ASSAY_BF16};
    cr_assert_float_eq(as_noise_below_limit(&f32, 0.5), 0.02, 1e-12);
    cr_assert_float_eq(as_noise_below_limit(&q8, 0.5), 0.52, 1e-12);
    cr_assert_float_eq(as_noise_below_limit(&bf16_cache, 0.1), 0.12, 1e-12);
    struct as_verify_result result = result_of(0.5);
    result.below = 0.02;
    expect(&result, 0, "");
    result.below = 0.03;
    expect(&result, AS_REF_LOGITS_BELOW, "3.0 % of the positions are below the noise");
}

Test(verify_rules, share_below_is_of_positions)
{
    double margin[] = {0.1, 0.2, 0.3, 0.4};
    const struct as_truth truth = {.positions = 4, .margin = margin};
    cr_assert_eq(as_truth_below(&truth, 4, 0.2), 0.5);
    cr_assert_eq(as_truth_below(&truth, 4, 0.05), 0);
    cr_assert_eq(as_truth_below(&truth, 2, 0.2), 1);
    cr_assert_eq(as_truth_below(&truth, 0, 1), 0);
}

/* ---- what is kept ------------------------------------------------------------------------- */

Test(verify_rules, noise_is_four_times_the_naive_error)
{
    const struct as_noise noise = {.naive_rms = 0.25};
    cr_assert_eq(as_noise_level(&noise), 1.0);
}

Test(verify_rules, noise_is_frozen_for_the_shipped_model)
{
    static const enum assay_dtype classes[] = {ASSAY_F32, ASSAY_Q8};
    make_scratch();
    setenv("XDG_CACHE_HOME", scratch, 1);
    for (size_t i = 0; i < 2; i++) {
        struct as_error error = {0};
        struct as_noise noise, other = {.naive_rms = 9, .positions = 64};
        const struct as_noise_key key = {0xf4fc6331c130fdbbu, ASSAY_NONE, classes[i], ASSAY_F32};
        cr_assert(as_noise_known(&key, &noise));
        cr_assert_eq(noise.source, AS_NOISE_FROZEN);
        cr_assert(noise.naive_rms > 0 && noise.naive_rms < 1);
        MUST(as_noise_keep(&key, &other, &error));
        cr_assert(as_noise_known(&key, &other));
        cr_assert_eq(other.naive_rms, noise.naive_rms, "a frozen value was replaced");
    }
    drop_scratch();
}

static void put_entry(const char *text)
{
    struct as_error error = {0};
    MUST(as_write_file(in_scratch("assay/noise/000000000000002a-file-q8-f32.json"), text,
                       strlen(text), &error));
}

Test(verify_rules, noise_is_kept_for_other_models)
{
    struct as_error error = {0};
    const struct as_noise_key key = {42, ASSAY_NONE, ASSAY_Q8, ASSAY_F32};
    const struct as_noise_key near[] = {{43, ASSAY_NONE, ASSAY_Q8, ASSAY_F32},
                                        {42, ASSAY_Q8_0, ASSAY_Q8, ASSAY_F32},
                                        {42, ASSAY_NONE, ASSAY_F32, ASSAY_F32},
                                        {42, ASSAY_NONE, ASSAY_Q8, ASSAY_BF16}};
    const struct as_noise measured = {.naive_rms = 1.25e-3, .below = 0.125, .positions = 64};
    struct as_noise noise;
    make_scratch();
    setenv("XDG_CACHE_HOME", scratch, 1);
    cr_assert_not(as_noise_known(&key, &noise));
    MUST(as_noise_keep(&key, &measured, &error));
    cr_assert(as_noise_known(&key, &noise));
    cr_assert_eq(noise.source, AS_NOISE_CACHED);
    cr_assert_eq(noise.naive_rms, 1.25e-3);
    cr_assert_eq(noise.below, 0.125);
    cr_assert_eq(noise.positions, 64);
    for (size_t i = 0; i < sizeof near / sizeof near[0]; i++)
        cr_assert_not(as_noise_known(&near[i], &noise), "key %zu", i);
    drop_scratch();
}

/* An entry that this build cannot have written is measured anew, not believed. */
Test(verify_rules, spoiled_noise_is_not_known)
{
    static const char *const entries[] = {
        "",
        "null",
        "{",
        "{\"naive_rms\": 1, \"below\": 0, \"positions\": 64}",
        "{\"text\": \"0000000000000000\", \"naive_rms\": 1, \"below\": 0, \"positions\": 64}",
        "{\"text\": \"%s\", \"naive_rms\": -1, \"below\": 0, \"positions\": 64}",
        "{\"text\": \"%s\", \"naive_rms\": 1e999, \"below\": 0, \"positions\": 64}",
        "{\"text\": \"%s\", \"naive_rms\": 1, \"below\": 2, \"positions\": 64}",
        "{\"text\": \"%s\", \"naive_rms\": 1, \"below\": 0, \"positions\": 0}",
        "{\"text\": \"%s\", \"naive_rms\": 1, \"below\": 0, \"positions\": 64, \"more\": 1}"};
    struct as_error error = {0};
    const struct as_noise_key key = {42, ASSAY_NONE, ASSAY_Q8, ASSAY_F32};
    struct as_noise noise = {.naive_rms = 1, .positions = 64};
    char text[300], digest[17];
    make_scratch();
    setenv("XDG_CACHE_HOME", scratch, 1);
    MUST(as_noise_keep(&key, &noise, &error));
    snprintf(digest, sizeof digest, "%016llx", (unsigned long long)as_verify_text_digest());
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        const char *hole = strstr(entries[i], "%s");
        size_t before = hole == NULL ? strlen(entries[i]) : (size_t)(hole - entries[i]);
        snprintf(text, sizeof text, "%.*s%s%s", (int)before, entries[i], hole == NULL ? "" : digest,
                 hole == NULL ? "" : hole + 2);
        put_entry(text);
        cr_assert_not(as_noise_known(&key, &noise), "%s", text);
    }
    drop_scratch();
}

Test(verify_rules, the_last_result_is_kept)
{
    struct as_error error = {0};
    struct as_verify_last last;
    struct as_verify_result result = result_of(0.5);
    struct as_verify verify = {.digest = 42, .positions = 64, .options = {.prompt = "x"}};
    verify.text.origin = "the prompt";
    make_scratch();
    setenv("XDG_CACHE_HOME", scratch, 1);
    cr_assert_eq(as_verify_last(42, result.plan_digest, &last, &error), AS_ERR_IO);
    cr_assert_eq(error.code, 0, "no result is no failure");
    result.decode.flips = 3;
    result.below = 0.01;
    as_verify_judge(&result);
    MUST(as_verify_keep(&verify, &result, &error));
    MUST(as_verify_last(42, result.plan_digest, &last, &error));
    cr_assert_not(last.passed);
    cr_assert_eq(last.positions, 64);
    cr_assert_eq(last.flips, 3);
    cr_assert_eq(last.rms, result.all.rms);
    cr_assert_eq(last.naive_rms, 0.5);
    cr_assert_eq(last.below, 0.01);
    cr_assert_str_eq(last.text, "the prompt");
    cr_assert_str_eq(last.build, as_build_id());
    cr_assert(strstr(last.words, "3 top-1 flips") != NULL);
    cr_assert_gt(last.time, 1700000000);
    cr_assert_eq(as_verify_last(43, result.plan_digest, &last, &error), AS_ERR_IO);
    MUST(as_write_file(in_scratch("assay/verify/000000000000002a-0123456789abcdef.json"), "[1]", 3,
                       &error));
    cr_assert_eq(as_verify_last(42, result.plan_digest, &last, &error), AS_ERR_DATA);
    cr_assert(strstr(error.message, "run `assay verify` again") != NULL);
    drop_scratch();
}
