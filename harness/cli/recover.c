/* assay recover: a report of what an interrupted run had recorded. */
#include <argp.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/commands.h"
#include "cli/option_names.h"
#include "merge.h"
#include "words.h"

enum { EXIT_YES = 0, EXIT_WRONG = 2 };

struct arguments {
    const char *work, *output;
    bool quiet;
};

static const struct argp_option options[] = {
    {"output", 'o', "REPORT", 0,
     "the report to write (default: the work folder's name without "
     "\".work\")",
     0},
    {"quiet", 'q', NULL, 0, "say nothing but errors", 0},
    {0}};

static const char purpose[] =
    "Makes a report of what an interrupted or killed `assay run` had recorded. The work folder, "
    "which stays as it is, lies beside the report that was to be written. Runs that did not end "
    "are kept and marked invalid with the reason."
    "\vExamples:\n"
    "  assay recover report.h5.work\n"
    "  assay recover report.h5.work -o rescued.h5 && assay show rescued.h5\n\n"
    "Exit codes: 0 the report was written; 2 it could not be.";

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct arguments *a = state->input;
    switch (key) {
    case 'o': a->output = argument; return 0;
    case 'q': a->quiet = true; return 0;
    case ARGP_KEY_ARG:
        if (a->work != NULL)
            argp_error(state, "give one work folder, not both %s and %s", a->work, argument);
        a->work = argument;
        return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "name the work folder of the run"); return EINVAL;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* "report.h5.work/" gives "report.h5", "report.h5.2.work" gives "report.h5.2.h5": the report that
 * the run was to replace is not touched by guessing. */
static bool default_output(const char *work, char *output, size_t size)
{
    size_t length = strlen(work);
    while (length > 1 && work[length - 1] == '/')
        length--;
    if (length < 6 || strncmp(work + length - 5, ".work", 5) != 0)
        return false;
    length -= 5;
    bool named = length > 3 && strncmp(work + length - 3, ".h5", 3) == 0;
    int used = snprintf(output, size, "%.*s%s", (int)length, work, named ? "" : ".h5");
    return used > 0 && (size_t)used < size;
}

/* A whole report is worth more than what is left of a run: none is replaced unasked, and nothing
 * but a report is replaced at all. */
static bool may_write(const char *output, bool asked)
{
    static const char signature[8] = "\211HDF\r\n\032\n";
    char start[8];
    struct stat info;
    if (stat(output, &info) != 0)
        return true;
    FILE *file = S_ISREG(info.st_mode) ? fopen(output, "rbe") : NULL;
    if (file == NULL) {
        fprintf(stderr,
                "assay recover: %s is there already and cannot be read as a report; name "
                "another file with -o\n",
                output);
        return false;
    }
    bool report = fread(start, 1, sizeof start, file) == sizeof start &&
                  memcmp(start, signature, sizeof start) == 0;
    fclose(file);
    if (asked && report)
        return true;
    fprintf(stderr, "assay recover: %s is there already%s; name %s file with -o\n", output,
            report ? "" : " and is not a report", asked ? "another" : "the");
    return false;
}

static void say(const struct as_merge_summary *s, const char *output)
{
    printf("%s: %u runs, %s requests, %s steps, %s launches\n", as_words_safe(output), s->runs,
           as_words_count((double)s->requests), as_words_count((double)s->steps),
           as_words_count((double)s->launches));
    if (s->invalid_runs > 0)
        printf("%u of the runs did not end well and are marked invalid; `assay show` says why\n",
               s->invalid_runs);
    if (s->dropped_launches > 0)
        printf("%s launches were left out: not every thread had ended them\n",
               as_words_count((double)s->dropped_launches));
    if (s->damaged_spools > 0)
        printf("%u files ended in a broken record or held none; %s were lost with them\n",
               s->damaged_spools, as_words_bytes((double)s->dropped_bytes));
}

int as_command_recover(int argc, char **argv)
{
    const struct argp argp = {options, parse, "WORK_FOLDER", purpose, NULL, NULL, NULL};
    struct arguments arguments = {0};
    struct as_merge_summary summary;
    struct as_error error = {0};
    char output[4096];
    bool asked;
    if (!as_option_names_known(argc, argv, options) ||
        argp_parse(&argp, argc, argv, 0, NULL, &arguments) != 0)
        return EXIT_WRONG;
    asked = arguments.output != NULL;
    if (!asked) {
        if (!default_output(arguments.work, output, sizeof output)) {
            fprintf(stderr,
                    "assay recover: the name %s does not end in \".work\"; say with -o "
                    "where the report shall go\n",
                    arguments.work);
            return EXIT_WRONG;
        }
        arguments.output = output;
    }
    if (!may_write(arguments.output, asked))
        return EXIT_WRONG;
    if (as_merge(arguments.work, arguments.output, &summary, &error) != AS_OK) {
        fprintf(stderr, "assay recover: %s\n", error.message);
        return EXIT_WRONG;
    }
    if (!arguments.quiet)
        say(&summary, arguments.output);
    return EXIT_YES;
}
