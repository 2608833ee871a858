/* verify on whole models: shipped strategies pass, variants that are wrong on purpose do not. */
#include "../../harness/cli/verify.c"
#include "../fixtures/fixtures.c"
#include "../reports/helpers.h"

#include "../variants/argmax_last_tie.c"
#include "../variants/attention_dead_rows.c"
#include "../variants/attention_wrong_mask.c"
#include "../variants/linear_depth.c"
#include "../variants/linear_tail.c"
#include "../variants/rms_norm_skips_row.c"

#define SMOLLM2 ASSAY_SOURCE_DIR "/models/SmolLM2-135M-Instruct.Q4_1.gguf"

static char tiny[] = "synthetic:tiny";

/* Runs `assay verify` with these words; the last is NULL. */
static int command(as_prepare *prepare, char **words)
{
    char *argv[32] = {NULL};
    static char name[] = "assay verify";
    int argc = 1;
    argv[0] = name;
    for (; words[argc - 1] != NULL; argc++)
        argv[argc] = words[argc - 1];
    argp_err_exit_status = 2;
    return verify_prepared(argc, argv, prepare);
}

#define COMMAND(prepare, ...) command(prepare, (char *[]){__VA_ARGS__, NULL})

static void fresh_cache(void)
{
    make_scratch();
    setenv("XDG_CACHE_HOME", scratch, 1);
}

static void open_tiny(struct as_verify *verify, int32_t positions)
{
    static struct as_verify_options options;
    struct as_error error = {0};
    options = (struct as_verify_options){.model = tiny, .positions = positions};
    MUST(as_verify_open(&options, verify, &error));
}

Test(verify_models, naive_and_fast_pass_on_tiny)
{
    struct as_error error = {0};
    struct as_verify verify;
    struct as_verify_result naive, fast, again;
    fresh_cache();
    open_tiny(&verify, 0);
    cr_assert_eq(verify.positions, 64);
    cr_assert_str_eq(as_verify_origin(&verify), "the built-in text");
    MUST(as_verify_strategy(&verify, "naive", &naive, &error));
    MUST(as_verify_strategy(&verify, "fast", &fast, &error));
    cr_assert_eq(naive.faults, 0);
    cr_assert_eq(fast.faults, 0);
    cr_assert_eq(naive.decode.rows, 64);
    cr_assert_geq(naive.prefill.rows, 16);
    cr_assert_geq(naive.greedy_rows, 6);
    cr_assert_eq(naive.all.agreement, 1);
    cr_assert_eq(naive.noise.source, AS_NOISE_MEASURED);
    cr_assert_lt(naive.all.rms, 1e-4 * fast.all.rms, "f32 and q8 have noise of their own");
    MUST(as_verify_strategy(&verify, "fast", &again, &error));
    cr_assert_eq(again.noise.source, AS_NOISE_CACHED);
    cr_assert_eq(again.noise.naive_rms, fast.noise.naive_rms);
    cr_assert_eq(again.all.sum_error2, fast.all.sum_error2);
    as_verify_close(&verify);
    drop_scratch();
}

Test(verify_models, the_command_passes_and_is_remembered)
{
    struct as_error error = {0};
    struct as_verify verify;
    struct as_strategy strategy;
    struct as_verify_last last;
    char digest[17];
    fresh_cache();
    cr_assert_eq(COMMAND(NULL, "-m", tiny, "-s", "naive", "-s", "fast", "--positions=20"), 0);
    cr_assert_eq(COMMAND(NULL, "-m", tiny, "-s", "fast", "--prompt=Once upon a time", "--json"), 0);
    cr_assert_eq(COMMAND(NULL, "-m", tiny, "--measure-noise"), 0);
    open_tiny(&verify, 20);
    MUST(as_strategy_load(&strategy, "naive", NULL, 0, &error));
    as_strategy_digest(&strategy, digest);
    MUST(as_verify_last(verify.digest, digest, &last, &error));
    cr_assert(last.passed);
    cr_assert_eq(last.positions, 20);
    cr_assert_str_eq(last.text, "the built-in text");
    as_verify_close(&verify);
    drop_scratch();
}

/* Few rows of cache, small steps, one sequence at a time: the ways then follow each other. */
Test(verify_models, strategies_with_little_room)
{
    fresh_cache();
    cr_assert_eq(COMMAND(NULL, "-m", tiny, "-s", "naive", "-s", "fast", "--positions=40", "--set",
                         "max_batch_size=1", "--set", "max_batch_tokens=3", "--set", "block_size=7",
                         "--set", "kv_blocks=6", "--set", "threads=1"),
                 0);
    cr_assert_eq(COMMAND(NULL, "-m", tiny, "-s", "naive", "--positions=40", "--set", "kv_blocks=1"),
                 2);
    cr_assert_eq(COMMAND(NULL, "-m", tiny, "-s", "naive", "--positions=40", "--set", "context=39"),
                 2);
    drop_scratch();
}

/* ---- wrong on purpose --------------------------------------------------------------------- */

static int add_wrong(void *context, struct as_bench *bench, struct as_error *error)
{
    static const struct assay_variant *const wrong[] = {
        &assay_wrong_argmax_last_tie,      &assay_wrong_attention_dead_rows,
        &assay_wrong_attention_dead_entry, &assay_wrong_attention_no_mask,
        &assay_wrong_attention_short_mask, &assay_wrong_linear_depth,
        &assay_wrong_linear_tail,          &assay_wrong_rms_norm_skips_row};
    int code = 0;
    (void)context;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0] && code == 0; i++)
        code = as_registry_add(bench->registry, wrong[i], "test", error);
    return code;
}

static int with_variant(char *choice)
{
    return COMMAND(add_wrong, "-m", tiny, "-s", "naive", "--positions=40", "--set", choice);
}

Test(verify_models, a_wrong_variant_fails)
{
    static char choices[][64] = {
        "kernels.linear=wrong/linear_depth", "kernels.attention=wrong/attention_dead_rows",
        "kernels.attention=wrong/attention_no_mask", "kernels.attention=wrong/attention_short_mask",
        "kernels.rms_norm=wrong/rms_norm_skips_row"};
    fresh_cache();
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++)
        cr_assert_eq(with_variant(choices[i]), 1, "%s", choices[i]);
    /* Wrong in nothing that a step of this model can show. */
    static char harmless[] = "kernels.linear=wrong/linear_tail";
    cr_assert_eq(with_variant(harmless), 0);
    drop_scratch();
}

Test(verify_models, a_wrong_variant_is_remembered_as_such)
{
    struct as_error error = {0};
    struct as_verify verify;
    struct as_verify_result result;
    struct as_verify_last last;
    static const char *const set[] = {"kernels.attention=wrong/attention_dead_rows"};
    struct as_verify_options options = {
        .model = tiny, .set = set, .sets = 1, .positions = 20, .prepare = add_wrong};
    fresh_cache();
    MUST(as_verify_open(&options, &verify, &error));
    MUST(as_verify_strategy(&verify, "naive", &result, &error));
    cr_assert(result.faults & AS_REF_LOGITS_ANOMALY, "dead rows of the cache are NaN");
    MUST(as_verify_keep(&verify, &result, &error));
    MUST(as_verify_last(verify.digest, result.plan_digest, &last, &error));
    cr_assert_not(last.passed);
    cr_assert(strstr(last.words, "non-finite") != NULL);
    as_verify_close(&verify);
    drop_scratch();
}

/* The last of equals: the one byte without a successor gives logits that are all 0. */
Test(verify_models, wrong_columns_fail)
{
    struct as_fixture fixture;
    struct as_error error = {0};
    static char path[400];
    static char choice[] = "kernels.argmax=wrong/argmax_last_tie";
    static char prompt[] =
        "--prompt=abcdefghijklmnopqrstuvwabcdefghijklmnopqrstuvwxabcdefghijklmnopqrs";
    fresh_cache();
    snprintf(path, sizeof path, "%s/S.gguf", scratch);
    cr_assert(as_fixture_named(&fixture, "S"));
    fixture.successor['x'] = -1;
    MUST(as_fixture_write(&fixture, path, &error));
    cr_assert_eq(COMMAND(NULL, "-m", path, "-s", "naive", "-s", "fast", prompt), 0);
    cr_assert_eq(COMMAND(add_wrong, "-m", path, "-s", "naive", "--set", choice, prompt), 1);
    drop_scratch();
}

/* A naive rung that is broken must not become the noise that excuses it. */
static int break_naive(void *context, struct as_bench *bench, struct as_error *error)
{
    int code = add_wrong(context, bench, error);
    for (int32_t i = 0; i < bench->strategy.choices; i++)
        if (strcmp(bench->strategy.choice[i].name, "attention") == 0)
            strcpy(bench->strategy.choice[i].variant[0], "wrong/attention_short_mask");
    return code;
}

Test(verify_models, a_broken_naive_rung_is_no_noise)
{
    fresh_cache();
    cr_assert_eq(COMMAND(break_naive, "-m", tiny, "-s", "naive"), 2);
    cr_assert_eq(COMMAND(break_naive, "-m", tiny, "--measure-noise"), 2);
    drop_scratch();
}

/* In a decode step every row of the cache may be seen: only prefill shows a missing mask. */
Test(verify_models, what_only_prefill_shows)
{
    struct as_error error = {0};
    struct as_verify verify;
    struct as_verify_result result;
    static const char *const set[] = {"kernels.attention=wrong/attention_no_mask"};
    struct as_verify_options options = {.model = tiny, .set = set, .sets = 1, .prepare = add_wrong};
    fresh_cache();
    MUST(as_verify_open(&options, &verify, &error));
    MUST(as_verify_strategy(&verify, "naive", &result, &error));
    cr_assert(result.faults & AS_REF_LOGITS_FLIP);
    cr_assert_gt(result.prefill.flips, 0);
    cr_assert_eq(result.decode.flips, 0);
    as_verify_close(&verify);
    drop_scratch();
}

/* ---- models ------------------------------------------------------------------------------- */

Test(verify_models, fixtures_pass_on_seeded_ids)
{
    static const char *const names[] = {"S", "S-tie", "S-utf8"};
    fresh_cache();
    for (size_t i = 0; i < 3; i++) {
        struct as_fixture fixture;
        struct as_error error = {0};
        struct as_verify verify;
        char path[400];
        snprintf(path, sizeof path, "%s/%s.gguf", scratch, names[i]);
        cr_assert(as_fixture_named(&fixture, names[i]));
        MUST(as_fixture_write(&fixture, path, &error));
        const struct as_verify_options options = {.model = path};
        MUST(as_verify_open(&options, &verify, &error));
        cr_assert_str_eq(as_verify_origin(&verify), "seeded ids");
        as_verify_close(&verify);
        cr_assert_eq(COMMAND(NULL, "-m", path, "-s", "naive"), 0, "%s", names[i]);
    }
    drop_scratch();
}

/* M's top two are often equal: seeded ids leave too little to judge by. */
Test(verify_models, too_many_ties_are_no_pass)
{
    struct as_fixture fixture;
    struct as_error error = {0};
    static char path[400], prompt[] = "--prompt=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAbAbAb";
    fresh_cache();
    snprintf(path, sizeof path, "%s/M.gguf", scratch);
    cr_assert(as_fixture_named(&fixture, "M"));
    MUST(as_fixture_write(&fixture, path, &error));
    cr_assert_eq(COMMAND(NULL, "-m", path, "-s", "naive"), 1);
    cr_assert_eq(COMMAND(NULL, "-m", path, "-s", "naive", "-s", "fast", prompt), 0);
    drop_scratch();
}

Test(verify_models, weights_that_are_not_numbers_are_bad_data)
{
    struct as_fixture fixture;
    struct as_error error = {0};
    static char path[400];
    fresh_cache();
    snprintf(path, sizeof path, "%s/S.gguf", scratch);
    cr_assert(as_fixture_named(&fixture, "S"));
    fixture.bad_row = 65;
    fixture.bad_value = NAN;
    MUST(as_fixture_write(&fixture, path, &error));
    cr_assert_eq(COMMAND(NULL, "-m", path, "-s", "naive"), 2);
    drop_scratch();
}

static void expect_smollm2(char *strategy, char *positions)
{
    static char model[] = SMOLLM2;
    if (access(SMOLLM2, R_OK) != 0)
        cr_skip_test("no models/SmolLM2-135M-Instruct.Q4_1.gguf; ci/fetch-model.sh brings it");
    fresh_cache();
    cr_assert_eq(COMMAND(NULL, "-m", model, "-s", strategy, positions), 0);
    drop_scratch();
}

Test(verify_models, fast_passes_on_smollm2)
{
    expect_smollm2("fast", "--positions=64");
}

Test(verify_models, naive_passes_on_smollm2)
{
    expect_smollm2("naive", "--positions=12");
}

/* ---- wrong use ---------------------------------------------------------------------------- */

Test(verify_models, an_unknown_option_is_wrong_use, .exit_code = 2)
{
    exit(COMMAND(NULL, "-m", tiny, "-s", "naive", "--bogus"));
}

Test(verify_models, too_many_positions_are_wrong_use, .exit_code = 2)
{
    exit(COMMAND(NULL, "-m", tiny, "-s", "naive", "--positions=257"));
}

Test(verify_models, a_strategy_is_needed, .exit_code = 2)
{
    exit(COMMAND(NULL, "-m", tiny));
}

Test(verify_models, help_is_no_mistake, .exit_code = 0)
{
    exit(COMMAND(NULL, "--help"));
}

Test(verify_models, unknown_names_and_files)
{
    fresh_cache();
    cr_assert_eq(COMMAND(NULL, "-m", tiny, "-s", "fats"), 2);
    cr_assert_eq(COMMAND(NULL, "-m", "/nowhere.gguf", "-s", "fast"), 2);
    cr_assert_eq(COMMAND(NULL, "-m", tiny, "-s", "fast", "--prompt="), 2);
    cr_assert_eq(COMMAND(NULL, "-m", tiny, "-s", "fast", "--prompt=\xff"), 2);
    cr_assert_eq(COMMAND(NULL, "-m", tiny, "-s", "fast", "--prompt-file=/nowhere"), 2);
    cr_assert_eq(COMMAND(NULL, "-m", tiny, "-s", "fast", "--set", "kernels.add=add/nosuch"), 2);
    drop_scratch();
}
