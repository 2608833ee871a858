/* assay workload: look into workload files before they are replayed. */
#define _GNU_SOURCE
#include <argp.h>
#include <inttypes.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "as_file.h"
#include "as_text.h"
#include "workload.h"

/* The entry that main's table of commands names. */
int as_command_workload(int argc, char **argv);

enum { EXIT_YES = 0, EXIT_WRONG = 2 };

/* --- one file --- */

/* The header may carry the digest of what follows it, so that an edit by hand is noticed. */
static int check_body(const struct as_workload *workload, const char *bytes, size_t size,
                      const char *path, struct as_error *error)
{
    const char *wanted = workload->header.body_sha256;
    if (wanted == NULL)
        return 0;
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int length = 0;
    if (EVP_Digest(bytes + workload->body_offset, size - workload->body_offset, digest, &length,
                   EVP_sha256(), NULL) != 1 ||
        length != 32)
        return as_fail(error, AS_ERR_INTERNAL, "%s: SHA-256 cannot be computed", path);
    char found[65];
    for (size_t i = 0; i < 32; i++)
        snprintf(found + 2 * i, 3, "%02x", digest[i]);
    if (strcasecmp(found, wanted) == 0)
        return 0;
    return as_fail(error, AS_ERR_DATA,
                   "%s: line 1: field \"body_sha256\": the bytes below the header have %s; the "
                   "file was changed: fetch it anew, or correct or leave out the field",
                   path, found);
}

static int read_one(struct as_workload **workload, const char *path, struct as_error *error)
{
    char *bytes;
    size_t size;
    *workload = NULL;
    int code = as_read_file(&bytes, &size, path, AS_WORKLOAD_FILE_LIMIT, error);
    if (code != 0)
        return code;
    code = as_workload_parse(workload, bytes, size, path, error);
    if (code == 0)
        code = check_body(*workload, bytes, size, path, error);
    free(bytes);
    if (code != 0) {
        as_workload_free(*workload);
        *workload = NULL;
    }
    return code;
}

/* --- for people --- */

static void print_prompts(const struct as_workload_totals *totals)
{
    const struct {
        uint64_t rows;
        const char *form;
    } parts[] = {{totals->messages, "messages"},
                 {totals->text, "text"},
                 {totals->tokens, "tokens"},
                 {totals->length, "len"}};
    const char *comma = "";
    printf("  %-14s ", "prompts");
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].rows == 0)
            continue;
        printf("%s%" PRIu64 " %s", comma, parts[i].rows, parts[i].form);
        comma = ", ";
    }
    if (totals->with_blocks > 0)
        printf(" (%" PRIu64 " with blocks)", totals->with_blocks);
    if (totals->prompt_tokens > 0)
        printf("%s%" PRIu64 " tokens", comma, totals->prompt_tokens);
    if (totals->prompt_bytes > 0)
        printf("%s%" PRIu64 " bytes of text", comma, totals->prompt_bytes);
    printf("%s\n", comma[0] == '\0' ? "none" : "");
}

static void print_one(const char *path, const struct as_workload *workload)
{
    struct as_workload_totals totals;
    as_workload_sum(workload, &totals);
    printf("%s: ok\n", path);
    printf("  %-14s %s\n", "name", workload->header.name);
    printf("  %-14s %zu", "rows", workload->count);
    if (workload->count == 0)
        printf(" (valid, but there is nothing to run)");
    else if (totals.chained > 0)
        printf(" (%" PRIu64 " at set times, %" PRIu64 " after another request)", totals.timed,
               totals.chained);
    printf("\n");
    if (totals.timed > 0)
        printf("  %-14s %.6f s\n", "span", (double)(totals.last_ns - totals.first_ns) * 1e-9);
    else
        printf("  %-14s n/a\n", "span");
    print_prompts(&totals);
    printf("  %-14s %" PRIu64, "output tokens", totals.output_tokens);
    if (totals.exact < workload->count)
        printf(" at most");
    if (totals.exact > 0)
        printf(" (exact in %" PRIu64 " of %zu rows)", totals.exact, workload->count);
    printf("\n");
    if (totals.sampled > 0)
        printf("  %-14s %" PRIu64 " rows, the rest is greedy\n", "sampled", totals.sampled);
    if (totals.cancelled > 0)
        printf("  %-14s %" PRIu64 " rows, by the client\n", "cancelled", totals.cancelled);
    printf("  %-14s %s\n", "digest", workload->digest_hex);
}

/* --- for programs --- */

/* Paths and messages may hold bytes that are not UTF-8, which JSON cannot. */
static json_t *safe_string(const char *text)
{
    json_t *json = json_string(text);
    if (json != NULL)
        return json;
    char *copy = strdup(text);
    if (copy == NULL)
        return NULL;
    for (char *byte = copy; *byte != '\0'; byte++)
        if ((unsigned char)*byte >= 0x80)
            *byte = '?';
    json = json_string(copy);
    free(copy);
    return json;
}

static json_t *describe_one(const char *path, const struct as_workload *workload,
                            const struct as_error *error)
{
    if (workload == NULL)
        return json_pack("{s:o, s:b, s:o}", "path", safe_string(path), "ok", 0, "error",
                         safe_string(error->message));
    struct as_workload_totals totals;
    as_workload_sum(workload, &totals);
    json_t *span = totals.timed > 0 ? json_integer((json_int_t)(totals.last_ns - totals.first_ns))
                                    : json_null();
    json_t *forms = json_pack("{s:I, s:I, s:I, s:I}", "messages", (json_int_t)totals.messages,
                              "text", (json_int_t)totals.text, "tokens", (json_int_t)totals.tokens,
                              "len", (json_int_t)totals.length);
    return json_pack(
        "{s:o, s:b, s:o, s:s, s:I, s:I, s:I, s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "path",
        safe_string(path), "ok", 1, "name", safe_string(workload->header.name), "digest",
        workload->digest_hex, "rows", (json_int_t)workload->count, "rows_timed",
        (json_int_t)totals.timed, "rows_chained", (json_int_t)totals.chained, "span_ns", span,
        "prompt_forms", forms, "rows_with_blocks", (json_int_t)totals.with_blocks, "prompt_tokens",
        (json_int_t)totals.prompt_tokens, "prompt_bytes", (json_int_t)totals.prompt_bytes,
        "output_tokens", (json_int_t)totals.output_tokens, "rows_exact", (json_int_t)totals.exact,
        "rows_sampled", (json_int_t)totals.sampled, "rows_cancelled", (json_int_t)totals.cancelled);
}

/* --- the command --- */

struct check_options {
    bool json, help;
    char **files;
    int count;
};

static const char check_doc[] =
    "Reads workload files as a replay would and says what they hold, or which line and field is "
    "wrong.\v"
    "Examples:\n"
    "  assay workload check workloads/chat.awl.jsonl\n"
    "  assay workload check --json mine/*.awl.jsonl\n\n"
    "Exit status: 0 when every file is valid, 2 when one is not or the command is wrong. The "
    "format is described in workloads/workload.h.";

static error_t parse_check(int key, char *argument, struct argp_state *state)
{
    struct check_options *options = state->input;
    (void)argument;
    switch (key) {
    case 'j': options->json = true; return 0;
    case '?':
        options->help = true;
        argp_state_help(state, stdout,
                        ARGP_HELP_USAGE | ARGP_HELP_PRE_DOC | ARGP_HELP_LONG | ARGP_HELP_POST_DOC);
        state->next = state->argc;
        return 0;
    case ARGP_KEY_ARGS:
        options->files = state->argv + state->next;
        options->count = state->argc - state->next;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static int check_files(const struct check_options *options)
{
    int status = EXIT_YES;
    json_t *files = json_array();
    for (int i = 0; i < options->count; i++) {
        const char *path = options->files[i];
        struct as_workload *workload;
        struct as_error error = {0};
        if (read_one(&workload, path, &error) != 0)
            status = EXIT_WRONG;
        if (options->json)
            json_array_append_new(files, describe_one(path, workload, &error));
        else if (workload != NULL)
            print_one(path, workload);
        else
            fprintf(stderr, "assay workload check: %s\n", error.message);
        as_workload_free(workload);
    }
    json_t *answer = json_pack("{s:b, s:o}", "ok", status == EXIT_YES, "files", files);
    if (options->json && (answer == NULL || json_dumpf(answer, stdout, JSON_INDENT(2)) != 0 ||
                          putchar('\n') == EOF)) {
        fprintf(stderr, "assay workload check: the answer cannot be written as JSON\n");
        status = EXIT_WRONG;
    }
    json_decref(answer);
    return status;
}

static int check(int argc, char **argv)
{
    static const struct argp_option accepted[] = {
        {"json", 'j', NULL, 0, "Print one JSON object instead of text", 0},
        {"help", '?', NULL, 0, "Print this help", -1},
        {"usage", '?', NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, -1},
        {0}};
    static const struct argp parser = {accepted, parse_check, "FILE...", check_doc,
                                       NULL,     NULL,        NULL};
    static char name[] = "assay workload check";
    struct check_options options = {0};
    argv[0] = name;
    if (argp_parse(&parser, argc, argv, ARGP_NO_EXIT | ARGP_NO_HELP, NULL, &options) != 0)
        return EXIT_WRONG;
    if (options.help)
        return EXIT_YES;
    if (options.count == 0) {
        fprintf(stderr, "assay workload check: no file given; name one or more, such as "
                        "workloads/chat.awl.jsonl\n");
        return EXIT_WRONG;
    }
    return check_files(&options);
}

static const char usage[] =
    "Usage: assay workload check [--json] FILE...\n"
    "\n"
    "Workloads are the requests that a replay sends, one JSON object a line (.awl.jsonl).\n"
    "\n"
    "  check   read files as a replay would; print what they hold, or the line and field at fault\n"
    "\n"
    "Examples:\n"
    "  assay workload check workloads/chat.awl.jsonl\n"
    "  assay workload check --json workloads/chat.awl.jsonl workloads/lengths.awl.jsonl\n"
    "\n"
    "`assay workload check --help` lists its options.\n";

int as_command_workload(int argc, char **argv)
{
    static const char *const commands[] = {"check"};
    int status = EXIT_WRONG;
    if (argc < 2) {
        fprintf(stderr, "assay workload: no command given\n%s", usage);
    } else if (strcmp(argv[1], "check") == 0) {
        status = check(argc - 1, argv + 1);
    } else if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        fputs(usage, stdout);
        status = EXIT_YES;
    } else {
        const char *near = as_nearest(argv[1], commands, 1);
        fprintf(stderr, "assay workload: unknown %s \"%s\"; %s \"%s\"\n",
                argv[1][0] == '-' ? "option" : "command", argv[1],
                near != NULL ? "did you mean" : "known:", near != NULL ? near : commands[0]);
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("assay workload: cannot write the answer");
        status = EXIT_WRONG;
    }
    return status;
}
