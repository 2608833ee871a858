/* assay doctor: what this machine has and lacks, in words. */
#include <argp.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "check/stamps.h"
#include "cli/commands.h"
#include "cli/doctor.h"
#include "cli/option_names.h"
#include "probe/provenance.h"

enum { EXIT_YES = 0, EXIT_WRONG = 2 };

static const struct argp_option options[] = {
    {"json", 'j', NULL, 0, "print one JSON object instead of text", 0}, {0}};

static const char purpose[] =
    "Says what this machine has and lacks for measuring kernels: CPU, memory, clocks, counters, "
    "GPU, libraries, disk, and who else is using it.\v"
    "A line begins with + for what is here, - for what is not (something cannot be had, the rest "
    "works), and ! for what is here and disturbs measurements.\n\n"
    "Examples:\n"
    "  assay doctor\n"
    "  assay doctor --json | jq '.findings[] | select(.state != \"found\")'\n\n"
    "Exit codes: 0; 2 when the command is wrong.";

static error_t parse(int key, char *argument, struct argp_state *state)
{
    switch (key) {
    case 'j': *(bool *)state->input = true; return 0;
    case ARGP_KEY_ARG: argp_error(state, "\"%s\" belongs to no option", argument); return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

struct as_finding *as_finding_add(struct as_findings *all, const char *topic, const char *name,
                                  enum as_finding_state state, const char *format, ...)
{
    size_t place = all->count < AS_MOST_FINDINGS ? all->count++ : AS_MOST_FINDINGS - 1;
    struct as_finding *finding = &all->finding[place];
    *finding = (struct as_finding){.topic = topic, .state = state};
    snprintf(finding->name, sizeof finding->name, "%s", name);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(finding->text, sizeof finding->text, format, arguments);
    va_end(arguments);
    return finding;
}

static void look_at_build(struct as_findings *all)
{
    as_finding_add(all, "assay", "version", AS_FOUND, "%s, commit %.12s", as_build_version,
                   as_build_commit);
    as_finding_add(all, "assay", "build", AS_FOUND, "%s", as_build_id());
    as_finding_add(all, "assay", "compiler", AS_FOUND, "%s", as_build_flags);
}

static void print_text(const struct as_findings *all)
{
    static const char marks[] = {[AS_FOUND] = '+', [AS_MISSING] = '-', [AS_DISTURBS] = '!'};
    size_t missing = 0, disturbs = 0;
    for (size_t i = 0; i < all->count; i++) {
        const struct as_finding *f = &all->finding[i];
        if (i == 0 || strcmp(f->topic, all->finding[i - 1].topic) != 0)
            printf("%s%s\n", i == 0 ? "" : "\n", f->topic);
        printf("  %c %-13s %s\n", marks[f->state], f->name, f->text);
        if (f->advice[0] != '\0')
            printf("    %-13s -> %s\n", "", f->advice);
        missing += f->state == AS_MISSING;
        disturbs += f->state == AS_DISTURBS;
    }
    printf("\n%zu missing, %zu that disturb%s measurements\n", missing, disturbs,
           disturbs == 1 ? "s" : "");
}

static int print_json(const struct as_findings *all)
{
    static const char *const states[] = {
        [AS_FOUND] = "found", [AS_MISSING] = "missing", [AS_DISTURBS] = "disturbs"};
    json_t *list = json_array();
    for (size_t i = 0; i < all->count; i++) {
        const struct as_finding *f = &all->finding[i];
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:s, s:s, s:s?}", "topic", f->topic, "name",
                                        f->name, "state", states[f->state], "text", f->text,
                                        "advice", f->advice[0] != '\0' ? f->advice : NULL));
    }
    json_t *answer = json_pack("{s:o}", "findings", list);
    bool written =
        answer != NULL && json_dumpf(answer, stdout, JSON_INDENT(2)) == 0 && putchar('\n') != EOF;
    json_decref(answer);
    if (!written)
        fprintf(stderr, "assay doctor: the answer cannot be written as JSON\n");
    return written ? EXIT_YES : EXIT_WRONG;
}

int as_command_doctor(int argc, char **argv)
{
    static const struct argp argp = {options, parse, NULL, purpose, NULL, NULL, NULL};
    static struct as_findings all;
    bool json = false;
    int status = EXIT_YES;
    if (!as_option_names_known(argc, argv, options) ||
        argp_parse(&argp, argc, argv, 0, NULL, &json) != 0)
        return EXIT_WRONG;
    look_at_build(&all);
    as_doctor_machine(&all);
    as_doctor_libraries(&all);
    if (json)
        status = print_json(&all);
    else
        print_text(&all);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("assay doctor: cannot write the answer");
        status = EXIT_WRONG;
    }
    return status;
}
