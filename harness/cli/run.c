#include <argp.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "as_text.h"
#include "cli/commands.h"
#include "cli/option_names.h"
#include "cli/progress.h"
#include "replay/arrivals.h"
#include "replay/parent.h"

#define MAX_STRATEGIES 32

enum {
    OPTION_LIMIT = 256,
    OPTION_MODE,
    OPTION_CONCURRENCY,
    OPTION_REPEAT,
    OPTION_TRACED,
    OPTION_SET,
    OPTION_TEMPLATE
};

static const struct argp_option options[] = {
    {"model", 'm', "MODEL", 0, "a GGUF file, or synthetic:SHAPE", 0},
    {"workload", 'w', "FILE", 0, "the requests, an .awl.jsonl file", 0},
    {"strategy", 's', "NAME", 0,
     "a shipped strategy or a YAML file; give it again for each one to compare", 0},
    {"set", OPTION_SET, "FIELD=VALUE", 0, "override a field of every strategy", 0},
    {"output", 'o', "REPORT", 0, "the HDF5 report to write (default report.h5)", 0},
    {"limit", OPTION_LIMIT, "N", 0, "replay the first N requests only", 0},
    {"mode", OPTION_MODE, "MODE", 0,
     "offline: every request at the start (default); open: at the workload's times; closed: "
     "--concurrency of them in flight",
     0},
    {"concurrency", OPTION_CONCURRENCY, "N", 0, "requests in flight in closed mode (default 1)", 0},
    {"repeat", OPTION_REPEAT, "N", 0, "timing passes of each strategy (default 1)", 0},
    {"traced", OPTION_TRACED, "N", 0, "passes that record every launch, at the end (default 1)", 0},
    {"chat-template", OPTION_TEMPLATE, "NAME", 0,
     "the chat template, where the model's own is unknown", 0},
    {"quiet", 'q', NULL, 0, "no progress", 0},
    {0}};

static const char purpose[] =
    "Replays a workload under one or more strategies, each in fresh processes, one at a time, and "
    "writes an HDF5 report."
    "\vExamples:\n"
    "  assay run --model models/SmolLM2-135M-Instruct.Q4_1.gguf \\\n"
    "      --workload workloads/chat.awl.jsonl --limit 16 \\\n"
    "      --strategy naive --strategy fast --repeat 2 -o report.h5\n"
    "  assay run -m synthetic:tiny -w workloads/lengths.awl.jsonl -s fast --set threads=1\n\n"
    "Exit codes: 0 every run is valid; 1 a kernel failed its check; 2 wrong use, bad data, or a "
    "run that failed.";

struct arguments {
    struct as_run_options run;
    const char *strategy[MAX_STRATEGIES];
    const char *set[AS_JOB_SETS];
    bool quiet;
};

static uint64_t number(struct argp_state *state, const char *option, const char *text, uint64_t low,
                       uint64_t high)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || text[0] == '-' || value < low || value > high)
        argp_error(state, "%s takes a whole number from %llu to %llu, not \"%s\"", option,
                   (unsigned long long)low, (unsigned long long)high, text);
    return value;
}

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct arguments *a = state->input;
    switch (key) {
    case 'm': a->run.model = argument; return 0;
    case 'w': a->run.workload = argument; return 0;
    case 'o': a->run.output = argument; return 0;
    case 'q': a->quiet = true; return 0;
    case 's':
        if (a->run.strategies == MAX_STRATEGIES)
            argp_error(state, "at most %d strategies in one run", MAX_STRATEGIES);
        else
            a->strategy[a->run.strategies++] = argument;
        return 0;
    case OPTION_SET:
        if (a->run.sets == AS_JOB_SETS)
            argp_error(state, "--set at most %d times", AS_JOB_SETS);
        else
            a->set[a->run.sets++] = argument;
        return 0;
    case OPTION_LIMIT: a->run.limit = number(state, "--limit", argument, 1, INT64_MAX); return 0;
    case OPTION_REPEAT:
        a->run.repeat = (uint32_t)number(state, "--repeat", argument, 1, 1000);
        return 0;
    case OPTION_TRACED:
        a->run.traced = (uint32_t)number(state, "--traced", argument, 0, 1000);
        return 0;
    case OPTION_CONCURRENCY:
        a->run.concurrency = (uint32_t)number(state, "--concurrency", argument, 1, 65536);
        return 0;
    case OPTION_TEMPLATE: a->run.chat_template = argument; return 0;
    case OPTION_MODE:
        if (as_mode_by_name(argument) < 0)
            argp_error(state, "--mode is offline, open or closed, not \"%s\"", argument);
        a->run.mode = argument;
        return 0;
    case ARGP_KEY_ARG: argp_error(state, "\"%s\" belongs to no option", argument); return 0;
    case ARGP_KEY_END:
        if (a->run.concurrency > 0 && strcmp(a->run.mode, "closed") != 0)
            argp_error(state, "--concurrency belongs to --mode closed");
        if (a->run.concurrency == 0)
            a->run.concurrency = 1;
        if (a->run.model == NULL || a->run.workload == NULL || a->run.strategies == 0)
            argp_error(state, "--model, --workload and at least one --strategy are needed");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static void on_signal(int number_)
{
    (void)number_;
    as_parent_interrupt();
}

static char *join(int argc, char **argv)
{
    struct as_text text = {0};
    for (int i = 0; i < argc; i++)
        as_text_addf(&text, "%s%s", i == 0 ? "" : " ", argv[i]);
    return text.data;
}

static int report(const struct arguments *a, const struct as_run_summary *summary, int code,
                  const struct as_error *error)
{
    if (code != 0) {
        fprintf(stderr, "assay run: %s\n", error->message);
        if (summary->work[0] != '\0' && strstr(error->message, summary->work) == NULL)
            fprintf(stderr, "what was recorded is in %s; `assay recover %s` makes a report of it\n",
                    summary->work, summary->work);
        return code == AS_ERR_WRONG ? 1 : 2;
    }
    if (summary->invalid > 0)
        fprintf(stderr, "assay run: %u of %u runs failed or are not valid; the first: %s\n",
                summary->invalid, summary->runs, summary->first_failure);
    if (!a->quiet)
        fprintf(stderr, "%u runs written to %s; `assay show %s` prints them\n", summary->runs,
                a->run.output, a->run.output);
    return summary->invalid > 0 ? 2 : 0;
}

int as_command_run(int argc, char **argv)
{
    struct arguments a = {
        .run = {.output = "report.h5", .repeat = 1, .traced = 1, .mode = "offline"}};
    const struct argp argp = {options, parse, NULL, purpose, NULL, NULL, NULL};
    char *command_line = join(argc, argv);
    if (!as_option_names_known(argc, argv, options) ||
        argp_parse(&argp, argc, argv, 0, NULL, &a) != 0) {
        free(command_line);
        return 2;
    }
    struct as_progress progress;
    struct as_run_summary summary;
    struct as_error error = {0};
    /* The first asks to end, the second ends at once; neither cuts a write of the parent's short. */
    const struct sigaction action = {.sa_handler = on_signal,
                                     .sa_flags = (int)(SA_RESTART | SA_RESETHAND)};
    as_progress_begin(&progress, a.quiet);
    a.run.strategy = a.strategy;
    a.run.set = a.set;
    a.run.command_line = command_line == NULL ? "" : command_line;
    a.run.progress = as_progress_show;
    a.run.progress_context = &progress;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    int code = as_parent_run(&a.run, &summary, &error);
    as_progress_end(&progress);
    free(command_line);
    return report(&a, &summary, code, &error);
}
