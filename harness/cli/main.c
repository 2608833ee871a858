#include <argp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "as_text.h"
#include "cli/commands.h"
#include "probe/provenance.h"
#include "replay/child.h"

static int command_child(int argc, char **argv)
{
    if (argc == 2)
        return as_child_run(argv[1]);
    fprintf(stderr, "assay child: give the folder that holds job.json; `assay run` does this\n");
    return 2;
}

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *purpose; /* NULL: not for people */
} commands[] = {
    {"run", as_command_run, "replay a workload under strategies and write a report"},
    {"show", as_command_show, "print what a report says"},
    {"verify", as_command_verify, "hold strategies against the reference in double precision"},
    {"kernels", as_command_kernels, "list and check the kernel variants"},
    {"model", as_command_model, "look into a model file, or make a synthetic one"},
    {"workload", as_command_workload, "check a workload file"},
    {"recover", as_command_recover, "make a report of what an interrupted run recorded"},
    {"doctor", as_command_doctor, "say what this machine has and lacks"},
    {"child", command_child, NULL},
};

#define COMMANDS (sizeof commands / sizeof commands[0])

static void print_help(FILE *stream)
{
    fprintf(stream, "Usage: assay COMMAND [OPTION...]\n"
                    "Puts the kernels of an LLM inference engine to the test.\n\n");
    for (size_t i = 0; i < COMMANDS; i++)
        if (commands[i].purpose != NULL)
            fprintf(stream, "  %-10s %s\n", commands[i].name, commands[i].purpose);
    fprintf(stream,
            "\n`assay COMMAND --help` says more, with examples.\n\n"
            "Exit codes: 0 yes; 1 a negative answer (regression, mismatch, failed check); 2 wrong\n"
            "use, bad data or a fault; 3 inconclusive; 4 environment invalid.\n\n"
            "Example:\n"
            "  assay run --model synthetic:tiny --workload workloads/chat.awl.jsonl --limit 4 \\\n"
            "      --strategy naive --strategy fast -o report.h5\n"
            "  assay show report.h5\n");
}

static int unknown_command(const char *name)
{
    const char *names[COMMANDS];
    for (size_t i = 0; i < COMMANDS; i++)
        names[i] = commands[i].purpose == NULL ? NULL : commands[i].name;
    const char *nearest = as_nearest(name, names, COMMANDS);
    fprintf(stderr, "assay: there is no command \"%s\"%s%s%s; `assay --help` lists them\n", name,
            nearest == NULL ? "" : " (did you mean ", nearest == NULL ? "" : nearest,
            nearest == NULL ? "" : "?)");
    return 2;
}

int main(int argc, char **argv)
{
    /* argp's own exit status for wrong use is 64; ours is 2, for every command. */
    argp_err_exit_status = 2;
    /* A file that may not grow is an error of the write, for every command, not a death. */
    signal(SIGXFSZ, SIG_IGN);
    if (argc < 2) {
        print_help(stderr);
        return 2;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("assay %s (%s)\n", as_build_version, as_build_commit);
        return 0;
    }
    for (size_t i = 0; i < COMMANDS; i++) {
        if (strcmp(argv[1], commands[i].name) != 0)
            continue;
        char name[64];
        snprintf(name, sizeof name, "assay %s", commands[i].name);
        argv[1] = name;
        return commands[i].run(argc - 1, argv + 1);
    }
    return unknown_command(argv[1]);
}
