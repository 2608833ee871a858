/* assay show: what a report says. */
#include "cli/show.h"

#include <argp.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "as_file.h"
#include "as_memory.h"
#include "cli/commands.h"
#include "cli/option_names.h"

enum { EXIT_YES = 0, EXIT_WRONG = 2 };

enum { OPTION_RUNS = 256, OPTION_ALL, OPTION_COLOUR };

struct arguments {
    const char *report;
    bool json, runs, all;
    int colour; /* -1: on a terminal */
};

static const struct argp_option options[] = {
    {"json", 'j', NULL, 0, "print one JSON object (versioned, for programs) instead of text", 0},
    {"runs", OPTION_RUNS, NULL, 0, "also list every run", 0},
    {"all", OPTION_ALL, NULL, 0,
     "print every class of problem and every counter, not only the first of them", 0},
    {"colour", OPTION_COLOUR, "WHEN", 0, "auto (default: on a terminal), always or never", 0},
    {0}};

static const char purpose[] =
    "Prints what a report says: which strategy was faster, latencies with their intervals, where "
    "the time went, counters, checks, and what is not valid."
    "\vExamples:\n"
    "  assay show report.h5\n"
    "  assay show --runs --all report.h5 | less\n"
    "  assay show --json report.h5 | jq '.strategies[].latency.ttft'\n\n"
    "Latencies count from the scheduled arrival; the service form, from sending, stands beside\n"
    "them. Percentiles are nearest ranks; one is shown only where ten values lie beyond it, the\n"
    "median always. Intervals hold the population's percentile with at least 95 %, whatever the\n"
    "distribution. Repetitions are not pooled: each value is of one run, and the one shown is the\n"
    "median over the runs. \"n/a\" is what was not recorded or does not exist.\n\n"
    "Exit codes: 0 shown; 2 the command or the report is wrong.";

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct arguments *a = state->input;
    switch (key) {
    case 'j': a->json = true; return 0;
    case OPTION_RUNS: a->runs = true; return 0;
    case OPTION_ALL: a->all = true; return 0;
    case OPTION_COLOUR:
        if (strcmp(argument, "auto") != 0 && strcmp(argument, "always") != 0 &&
            strcmp(argument, "never") != 0)
            argp_error(state, "--colour is auto, always or never, not %s", argument);
        a->colour = strcmp(argument, "auto") == 0 ? -1 : strcmp(argument, "always") == 0;
        return 0;
    case ARGP_KEY_ARG:
        if (a->report != NULL)
            argp_error(state, "give one report, not both %s and %s", a->report, argument);
        a->report = argument;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "name a report"); return EINVAL;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* --- which was faster --- */

static int rank_by(const struct as_metrics *metrics, struct as_show_ranking *ranking,
                   as_run_statistic *statistic, const void *argument, struct as_error *error)
{
    ranking->count = 0;
    for (size_t i = 0; i < metrics->strategy_count; i++) {
        free(ranking->over[i].values);
        int rc = as_over_runs(metrics, &metrics->strategies[i], statistic, argument,
                              &ranking->over[i], error);
        if (rc != AS_OK)
            return rc;
        if (!isnan(ranking->over[i].median))
            ranking->order[ranking->count++] = i;
    }
    /* Few enough for the plain way; equals stay in their order. */
    for (size_t i = 1; i < ranking->count; i++) {
        size_t moving = ranking->order[i], j = i;
        double value = ranking->over[moving].median;
        for (; j > 0; j--) {
            double before = ranking->over[ranking->order[j - 1]].median;
            if (ranking->by_latency ? before <= value : before >= value)
                break;
            ranking->order[j] = ranking->order[j - 1];
        }
        ranking->order[j] = moving;
    }
    return AS_OK;
}

int as_show_rank(const struct as_metrics *metrics, struct as_show_ranking *ranking,
                 struct as_error *error)
{
    static const struct as_quantile e2e = {AS_LATENCY_E2E, AS_P50};
    const char *mode = as_report_attribute(metrics->report, "mode");
    *ranking = (struct as_show_ranking){.by_latency = mode != NULL && strcmp(mode, "open") == 0};
    ranking->order =
        as_calloc(error, metrics->strategy_count, sizeof *ranking->order, "strategies");
    ranking->over = as_calloc(error, metrics->strategy_count, sizeof *ranking->over, "strategies");
    if (ranking->order == NULL || ranking->over == NULL)
        return AS_ERR_MEMORY;
    int rc = ranking->by_latency ? rank_by(metrics, ranking, as_statistic_quantile, &e2e, error)
                                 : rank_by(metrics, ranking, as_statistic_output_rate, NULL, error);
    if (rc == AS_OK && ranking->count == 0) {
        ranking->by_latency = false;
        ranking->by_requests = true;
        rc = rank_by(metrics, ranking, as_statistic_request_rate, NULL, error);
    }
    return rc;
}

void as_show_ranking_free(const struct as_metrics *metrics, struct as_show_ranking *ranking)
{
    for (size_t i = 0; ranking->over != NULL && i < metrics->strategy_count; i++)
        free(ranking->over[i].values);
    free(ranking->over);
    free(ranking->order);
}

/* --- whether it was right --- */

void as_show_find_verify(const struct as_show *show, const struct as_strategy_metrics *strategy,
                         struct as_show_verify *verify)
{
    char name[256], path[4096], *text;
    size_t size;
    *verify = (struct as_show_verify){0};
    const char *model = as_report_attribute(show->report, "model_digest");
    const char *plan = NULL;
    for (size_t i = 0; plan == NULL && i < show->metrics.run_count; i++) {
        const struct as_row_run *row = &show->metrics.runs[i].row;
        const char *of = as_report_string(show->report, row->strategy);
        if (of != NULL && strcmp(of, strategy->name) == 0)
            plan = as_report_string(show->report, row->plan_digest);
    }
    /* Digests are file names here: nothing but hexadecimal digits is one. */
    if (model == NULL || plan == NULL || strspn(model, "0123456789abcdef") != strlen(model) ||
        strspn(plan, "0123456789abcdef") != strlen(plan))
        return;
    snprintf(name, sizeof name, "verify/%.64s-%.64s.json", model, plan);
    if (as_cache_path(path, sizeof path, name, NULL) != AS_OK ||
        as_read_file(&text, &size, path, 1 << 16, NULL) != AS_OK)
        return;
    json_t *root = json_loadb(text, size, 0, NULL);
    free(text);
    const json_t *passed = json_object_get(root, "passed");
    const char *words = json_string_value(json_object_get(root, "words"));
    verify->found = json_is_boolean(passed);
    verify->passed = json_is_true(passed);
    verify->time = (long long)json_integer_value(json_object_get(root, "time"));
    snprintf(verify->words, sizeof verify->words, "%s", words != NULL ? words : "");
    json_decref(root);
}

/* --- the command --- */

static bool wants_colour(const struct arguments *a)
{
    const char *none = getenv("NO_COLOR"), *terminal = getenv("TERM");
    if (a->colour >= 0)
        return a->colour > 0;
    return isatty(STDOUT_FILENO) && (none == NULL || none[0] == '\0') &&
           (terminal == NULL || strcmp(terminal, "dumb") != 0);
}

static int run(const struct arguments *a, struct as_error *error)
{
    struct as_show show = {
        .stream = stdout, .colour = wants_colour(a), .runs = a->runs, .all = a->all};
    show.report = as_report_open(a->report, error);
    if (show.report == NULL)
        return AS_ERR_DATA;
    int rc = as_metrics_compute(&show.metrics, show.report, error);
    if (rc == AS_OK) {
        rc = a->json ? as_show_json(&show, error) : as_show_text(&show, error);
        as_metrics_free(&show.metrics);
    }
    as_report_close(show.report);
    if (rc == AS_OK && (fflush(stdout) != 0 || ferror(stdout)))
        rc = as_fail_errno(error, AS_ERR_IO, "writing to standard output");
    return rc;
}

int as_command_show(int argc, char **argv)
{
    const struct argp argp = {options, parse, "REPORT", purpose, NULL, NULL, NULL};
    struct arguments arguments = {.colour = -1};
    struct as_error error = {0};
    if (!as_option_names_known(argc, argv, options) ||
        argp_parse(&argp, argc, argv, 0, NULL, &arguments) != 0)
        return EXIT_WRONG;
    if (run(&arguments, &error) == AS_OK)
        return EXIT_YES;
    fprintf(stderr, "assay show: %s\n", error.message);
    return EXIT_WRONG;
}
