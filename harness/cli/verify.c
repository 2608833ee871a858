/* assay verify: hold strategies against the reference in double precision. */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "as_file.h"
#include "check/stamps.h"
#include "check/verify.h"
#include "cli/commands.h"
#include "cli/option_names.h"

#define MAX_STRATEGIES 32
#define MAX_SETS 64
#define PROMPT_LIMIT (1 << 20) /* bytes of a prompt file */

enum { EXIT_PASS = 0, EXIT_FAIL = 1, EXIT_WRONG = 2 };

enum {
    OPTION_SET = 256,
    OPTION_POSITIONS,
    OPTION_PROMPT,
    OPTION_PROMPT_FILE,
    OPTION_JSON,
    OPTION_MEASURE
};

static const struct argp_option accepted[] = {
    {"model", 'm', "MODEL", 0, "a GGUF file, or synthetic:SHAPE", 0},
    {"strategy", 's', "NAME", 0,
     "a shipped strategy or a YAML file; give it again for each one to verify", 0},
    {"set", OPTION_SET, "FIELD=VALUE", 0, "override a field of every strategy", 0},
    {"positions", OPTION_POSITIONS, "N", 0, "positions to compare (default 64, at most 256)", 0},
    {"prompt", OPTION_PROMPT, "TEXT", 0, "feed this instead of the built-in text", 0},
    {"prompt-file", OPTION_PROMPT_FILE, "FILE", 0, "feed what is in FILE", 0},
    {"measure-noise", OPTION_MEASURE, NULL, 0,
     "measure the naive rung's error anew, for each class of activations, instead of verifying", 0},
    {"json", OPTION_JSON, NULL, 0, "print one JSON object", 0},
    {"quiet", 'q', NULL, 0, "no progress", 0},
    {0}};

static const char purpose[] =
    "Runs the same tokens through the engine, under each strategy, and through the reference in "
    "double precision, and compares the logits: token by token, in prefill chunks of many sizes, "
    "and without keeping logits."
    "\vA strategy passes when no logit is NaN or infinite, no top-1 token differs where the "
    "reference prefers its own by more than the noise, the RMS error of decode and of prefill is "
    "at most twice that of the naive implementation, and few enough positions lie below the "
    "noise. Noise is 4 x the RMS error of the naive implementation with the same model, "
    "activations and cache.\n\n"
    "Examples:\n"
    "  assay verify --model models/SmolLM2-135M-Instruct.Q4_1.gguf -s naive -s fast\n"
    "  assay verify -m synthetic:tiny -s fast --set threads=1 --positions 200\n"
    "  assay verify -m synthetic:tiny -s ./mine.yaml --prompt 'Once upon' --json\n"
    "  assay verify -m models/SmolLM2-135M-Instruct.Q4_1.gguf --measure-noise\n\n"
    "Exit codes: 0 every strategy passes; 1 one fails, or noise is not what is frozen; 2 wrong "
    "use or bad data.";

struct arguments {
    struct as_verify_options verify;
    const char *strategy[MAX_STRATEGIES];
    size_t strategies;
    const char *set[MAX_SETS];
    const char *prompt_file;
    bool json, quiet, measure;
};

static int32_t positions_of(struct argp_state *state, const char *text)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || value < 1 || value > AS_VERIFY_MOST_POSITIONS)
        argp_error(state, "--positions takes a whole number from 1 to %d, not \"%s\"",
                   AS_VERIFY_MOST_POSITIONS, text);
    return (int32_t)value;
}

static void check_arguments(const struct arguments *a, struct argp_state *state)
{
    if (a->verify.model == NULL || (a->strategies == 0 && !a->measure))
        argp_error(state, "--model and at least one --strategy are needed");
    else if (a->measure && (a->strategies > 0 || a->verify.sets > 0 || a->verify.positions > 0 ||
                            a->verify.prompt != NULL || a->prompt_file != NULL))
        argp_error(state, "--measure-noise runs the naive strategy over the built-in text; it goes "
                          "with --model, --json and --quiet alone");
    else if (a->verify.prompt != NULL && a->prompt_file != NULL)
        argp_error(state, "--prompt and --prompt-file exclude each other");
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct arguments *a = state->input;
    switch (key) {
    case 'm': a->verify.model = argument; return 0;
    case 'q': a->quiet = true; return 0;
    case OPTION_JSON: a->json = true; return 0;
    case OPTION_MEASURE: a->measure = true; return 0;
    case OPTION_POSITIONS: a->verify.positions = positions_of(state, argument); return 0;
    case OPTION_PROMPT_FILE: a->prompt_file = argument; return 0;
    case OPTION_PROMPT:
        a->verify.prompt = argument;
        a->verify.prompt_length = strlen(argument);
        return 0;
    case 's':
        if (a->strategies == MAX_STRATEGIES)
            argp_error(state, "at most %d strategies at once", MAX_STRATEGIES);
        else
            a->strategy[a->strategies++] = argument;
        return 0;
    case OPTION_SET:
        if (a->verify.sets == MAX_SETS)
            argp_error(state, "--set at most %d times", MAX_SETS);
        else
            a->set[a->verify.sets++] = argument;
        return 0;
    case ARGP_KEY_ARG: argp_error(state, "\"%s\" belongs to no option", argument); return 0;
    case ARGP_KEY_END: check_arguments(a, state); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ---- progress ------------------------------------------------------------------------------ */

static void show_progress(void *context, const char *what, uint64_t done, uint64_t total)
{
    (void)context;
    fprintf(stderr, "\r\033[K%s %.0f %%", what,
            total == 0 ? 0.0 : 100 * (double)done / (double)total);
}

static void clear_progress(const struct as_verify *verify)
{
    if (verify->options.progress.show != NULL)
        fprintf(stderr, "\r\033[K");
}

static int complain(const struct as_verify *verify, const char *strategy,
                    const struct as_error *error)
{
    clear_progress(verify);
    fprintf(stderr, "assay verify: %s%s%s\n", strategy == NULL ? "" : strategy,
            strategy == NULL ? "" : ": ", error->message);
    return EXIT_WRONG;
}

/* ---- for people ---------------------------------------------------------------------------- */

static const char *source_word(enum as_noise_source source)
{
    return source == AS_NOISE_FROZEN ? "frozen" : source == AS_NOISE_CACHED ? "cached" : "measured";
}

static void print_header(const struct as_verify *verify)
{
    printf("%s (digest %016" PRIx64 "): %d positions of %s\n\n", verify->model->path,
           verify->digest, (int)verify->positions, as_verify_origin(verify));
    printf("%-16s %-4s %-4s %9s %9s %9s %9s %9s %6s %5s %6s  %s\n", "strategy", "act", "kv",
           "max |d|", "RMS", "naive", "noise", "KL", "top-1", "flips", "below", "verdict");
}

static void print_result(const struct as_verify_result *r)
{
    const struct as_ref_logits *all = &r->all;
    char words[512];
    printf("%-16s %-4s %-4s %9.3g %9.3g %9.3g %9.3g %9.3g %5.1f%% %5lld %5.1f%%  %s\n", r->strategy,
           as_noise_dtype(r->key.activations), as_noise_dtype(r->key.kv), all->max_error, all->rms,
           r->naive_rms, 4 * r->naive_rms, all->kl, 100 * all->agreement,
           (long long)(all->flips + r->greedy_flips), 100 * r->below,
           r->faults == 0 ? "PASS" : "FAIL");
    printf("%-16s %lld decode rows RMS %.3g, %lld prefill rows RMS %.3g, %d rows without logits; "
           "noise %s; %.1f s\n",
           "", (long long)r->decode.rows, r->decode.rms, (long long)r->prefill.rows, r->prefill.rms,
           (int)r->greedy_rows, source_word(r->noise.source), r->seconds);
    as_verify_words(r, words, sizeof words);
    if (r->faults != 0)
        printf("%-16s %s\n", "", words);
}

/* ---- for programs -------------------------------------------------------------------------- */

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *text_of(const char *text)
{
    json_t *json = json_string(text);
    return json != NULL ? json : json_string("(not UTF-8)");
}

static json_t *describe_way(const struct as_ref_logits *way)
{
    return json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:I}", "rows", (json_int_t)way->rows,
                     "max_error", number(way->max_error), "rms", number(way->rms), "kl",
                     number(way->kl), "kl_max", number(way->kl_max), "agreement",
                     number(way->agreement), "flips", (json_int_t)way->flips, "nonfinite",
                     (json_int_t)way->anomalies, "below", (json_int_t)way->below);
}

static json_t *describe(const struct as_verify_result *r)
{
    char words[512];
    as_verify_words(r, words, sizeof words);
    json_t *greedy = json_pack("{s:i, s:i, s:i}", "rows", (int)r->greedy_rows, "flips",
                               (int)r->greedy_flips, "nonfinite", (int)r->greedy_anomalies);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:b, s:s, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, "
                     "s:o, s:I, s:o}",
                     "strategy", r->strategy, "plan_digest", r->plan_digest, "weights",
                     as_noise_dtype(r->key.weights), "activations",
                     as_noise_dtype(r->key.activations), "kv", as_noise_dtype(r->key.kv), "passed",
                     r->faults == 0, "reason", words, "naive_rms", number(r->naive_rms), "noise",
                     number(4 * r->naive_rms), "noise_source", source_word(r->noise.source),
                     "below", number(r->below), "below_limit", number(r->below_limit), "all",
                     describe_way(&r->all), "decode", describe_way(&r->decode), "prefill",
                     describe_way(&r->prefill), "greedy", greedy, "column_faults",
                     (json_int_t)r->column_faults, "seconds", number(r->seconds));
}

static int print_json(json_t *answer)
{
    bool written =
        answer != NULL && json_dumpf(answer, stdout, JSON_INDENT(2)) == 0 && putchar('\n') != EOF;
    json_decref(answer);
    if (!written)
        fprintf(stderr, "assay verify: the answer cannot be written as JSON\n");
    return written ? EXIT_PASS : EXIT_WRONG;
}

static json_t *json_header(const struct as_verify *verify)
{
    char digest[17];
    snprintf(digest, sizeof digest, "%016" PRIx64, verify->digest);
    return json_pack("{s:o, s:s, s:i, s:s, s:s}", "model", text_of(verify->model->path), "digest",
                     digest, "positions", (int)verify->positions, "text", as_verify_origin(verify),
                     "build", as_build_id());
}

/* ---- verifying ----------------------------------------------------------------------------- */

static int worse(int a, int b)
{
    return a > b ? a : b;
}

/* Names and plans first: a misspelt one is said before minutes of work, not after. */
static int check_all(struct as_verify *verify, const struct arguments *a)
{
    int status = EXIT_PASS;
    for (size_t i = 0; i < a->strategies; i++) {
        struct as_error error = {0};
        if (as_verify_check(verify, a->strategy[i], &error) != 0)
            status = complain(verify, a->strategy[i], &error);
    }
    return status;
}

static int verify_one(struct as_verify *verify, const char *strategy, bool json, json_t *results)
{
    struct as_verify_result result;
    struct as_error error = {0};
    if (as_verify_strategy(verify, strategy, &result, &error) != 0) {
        json_array_append_new(results, json_pack("{s:o, s:o}", "strategy", text_of(strategy),
                                                 "error", text_of(error.message)));
        return complain(verify, strategy, &error);
    }
    clear_progress(verify);
    if (json)
        json_array_append_new(results, describe(&result));
    else
        print_result(&result);
    fflush(stdout);
    /* A cache that cannot be written costs `show` a line, not this verdict. */
    as_verify_keep(verify, &result, NULL);
    return result.faults == 0 ? EXIT_PASS : EXIT_FAIL;
}

static int verify_all(struct as_verify *verify, const struct arguments *a)
{
    int status = check_all(verify, a);
    if (status != EXIT_PASS)
        return status;
    json_t *results = json_array();
    if (!a->json)
        print_header(verify);
    for (size_t i = 0; i < a->strategies; i++)
        status = worse(status, verify_one(verify, a->strategy[i], a->json, results));
    if (!a->json) {
        const struct as_truth *truth =
            a->verify.prompt == NULL ? &verify->standard_truth : &verify->truth;
        if (truth->positions > 0)
            printf("\nreference: %d positions in %.1f s\n", (int)truth->positions, truth->seconds);
        json_decref(results);
        return status;
    }
    json_t *answer = json_header(verify);
    json_object_set_new(answer, "passed", json_boolean(status == EXIT_PASS));
    json_object_set_new(answer, "strategies", results);
    return worse(status, print_json(answer));
}

/* ---- measuring noise ----------------------------------------------------------------------- */

static int measure_one(struct as_verify *verify, enum assay_dtype activations, bool json,
                       json_t *results)
{
    const struct as_noise_key key = {verify->digest, ASSAY_NONE, activations, ASSAY_F32};
    struct as_noise known = {0}, noise;
    struct as_error error = {0};
    bool frozen = as_noise_known(&key, &known) && known.source == AS_NOISE_FROZEN;
    if (as_verify_measure(verify, &key, &noise, &error) != 0)
        return complain(verify, as_noise_dtype(activations), &error);
    clear_progress(verify);
    bool holds = !frozen || fabs(noise.naive_rms - known.naive_rms) <= 0.1 * known.naive_rms;
    if (json)
        json_array_append_new(
            results, json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:b}", "activations",
                               as_noise_dtype(activations), "kv", "f32", "naive_rms",
                               number(noise.naive_rms), "noise", number(as_noise_level(&noise)),
                               "below", number(noise.below), "frozen_rms",
                               frozen ? number(known.naive_rms) : json_null(), "holds", holds));
    else
        printf("%-11s %-4s %14.8e %9.3g %8.5f  %s\n", as_noise_dtype(activations), "f32",
               noise.naive_rms, as_noise_level(&noise), noise.below,
               !frozen ? "kept in the cache"
               : holds ? "frozen, holds"
                       : "FROZEN VALUE DIFFERS BY MORE THAN 10 %");
    as_noise_keep(&key, &noise, NULL);
    return holds ? EXIT_PASS : EXIT_FAIL;
}

static int measure(struct as_verify *verify, bool json)
{
    static const enum assay_dtype classes[] = {ASSAY_F32, ASSAY_Q8};
    int status = EXIT_PASS;
    json_t *results = json_array();
    if (!json)
        printf("%s (digest %016" PRIx64 "), text %016" PRIx64 "\n\n%-11s %-4s %14s %9s %8s\n",
               verify->model->path, verify->digest, as_verify_text_digest(), "activations", "kv",
               "naive RMS", "noise", "below");
    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++)
        status = worse(status, measure_one(verify, classes[i], json, results));
    if (!json) {
        json_decref(results);
        return status;
    }
    json_t *answer = json_header(verify);
    json_object_set_new(answer, "noise", results);
    return worse(status, print_json(answer));
}

/* ---- the command --------------------------------------------------------------------------- */

static int run(struct arguments *a)
{
    struct as_verify verify;
    struct as_error error = {0};
    char *prompt = NULL;
    size_t size;
    int code = 0;
    if (a->prompt_file != NULL) {
        code = as_read_file(&prompt, &size, a->prompt_file, PROMPT_LIMIT, &error);
        a->verify.prompt = prompt;
        a->verify.prompt_length = code == 0 ? size : 0;
    }
    if (code == 0)
        code = as_verify_open(&a->verify, &verify, &error);
    if (code != 0) {
        free(prompt);
        fprintf(stderr, "assay verify: %s\n", error.message);
        return EXIT_WRONG;
    }
    int status = a->measure ? measure(&verify, a->json) : verify_all(&verify, a);
    as_verify_close(&verify);
    free(prompt);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("assay verify: cannot write the answer");
        status = EXIT_WRONG;
    }
    return status;
}

typedef int as_prepare(void *context, struct as_bench *bench, struct as_error *error);

/* The command with a hook for tests that add a variant of their own. */
static int verify_prepared(int argc, char **argv, as_prepare *prepare)
{
    struct arguments a = {.verify = {.prepare = prepare}};
    const struct argp argp = {accepted, parse, NULL, purpose, NULL, NULL, NULL};
    if (!as_option_names_known(argc, argv, accepted) ||
        argp_parse(&argp, argc, argv, 0, NULL, &a) != 0)
        return EXIT_WRONG;
    a.verify.set = a.set;
    if (!a.quiet && isatty(STDERR_FILENO) == 1)
        a.verify.progress.show = show_progress;
    return run(&a);
}

int as_command_verify(int argc, char **argv)
{
    return verify_prepared(argc, argv, NULL);
}
