/* assay kernels: the table of variants, whether each runs here, and whether it is right. */
#include <argp.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "as_memory.h"
#include "as_text.h"
#include "check/check.h"
#include "cli/commands.h"
#include "cli/option_names.h"
#include "cli/progress.h"
#include "device/cpu/cpu_device.h"

enum { EXIT_YES = 0, EXIT_NO = 1, EXIT_WRONG = 2 };

struct arguments {
    const char *op;       /* op or cover, NULL: all */
    const char *backend;  /* NULL: all */
    const char **variant; /* names; none: all */
    size_t variants;
    bool check, json, quiet;
};

static const struct argp_option options[] = {
    {"op", 'o', "OP", 0, "only variants of this op or cover", 0},
    {"backend", 'b', "NAME", 0, "only variants of this backend: cpu or cuda", 0},
    {"check", 'c', NULL, 0, "run each one's suite against the reference", 0},
    {"json", 'j', NULL, 0, "print one JSON object instead of a table", 0},
    {"quiet", 'q', NULL, 0, "no progress", 0},
    {0}};

static const char purpose[] =
    "Lists the kernel variants: what each computes, its rung on the ladder and the idea it adds, "
    "the dtypes it serves, and whether it runs on this machine. --check holds each one against the "
    "reference in double precision over its op's whole suite of shapes, with poisoned memory.\v"
    "Examples:\n"
    "  assay kernels\n"
    "  assay kernels --op linear --check\n"
    "  assay kernels --check linear/cpu_avx2 attention/cpu_naive\n"
    "  assay kernels --json | jq '.variants[].name'\n\n"
    "Dtypes are those of weights / activations / KV cache. Flags: default (may be taken by "
    "`auto`), deterministic (same inputs, same bits), batch-invariant (a row's bits do not depend "
    "on the other rows), in-place.\n\n"
    "Exit codes: 0; 1 when a check failed; 2 when the command is wrong.";

static error_t parse(int key, char *argument, struct argp_state *state)
{
    struct arguments *a = state->input;
    switch (key) {
    case 'o': a->op = argument; return 0;
    case 'b':
        if (strcmp(argument, "cpu") != 0 && strcmp(argument, "cuda") != 0)
            argp_error(state, "there is no backend %s; known: cpu, cuda", argument);
        a->backend = argument;
        return 0;
    case 'c': a->check = true; return 0;
    case 'j': a->json = true; return 0;
    case 'q': a->quiet = true; return 0;
    case ARGP_KEY_ARG: a->variant[a->variants++] = argument; return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

/* ---- what is listed ----------------------------------------------------------------------- */

static const char *name_of_op(const struct assay_variant *variant)
{
    return variant->cover != NULL ? variant->cover->name : assay_op(variant->op)->name;
}

/* A variant with what this run found out about it. */
struct row {
    const struct assay_variant *variant;
    const char *plugin;
    bool runs_here;
    char why[200];
    bool checked;
    struct as_check_result result;
};

static bool wanted(const struct arguments *a, const struct assay_variant *variant)
{
    const char *backend = variant->backend == ASSAY_CPU ? "cpu" : "cuda";
    if (a->op != NULL && strcmp(a->op, name_of_op(variant)) != 0)
        return false;
    if (a->backend != NULL && strcmp(a->backend, backend) != 0)
        return false;
    for (size_t i = 0; i < a->variants; i++)
        if (strcmp(a->variant[i], variant->name) == 0)
            return true;
    return a->variants == 0;
}

/* Ops in the order of kernel.h, covers behind them; then by rung, then by name. */
static int by_place(const void *left, const void *right)
{
    const struct assay_variant *a = ((const struct row *)left)->variant;
    const struct assay_variant *b = ((const struct row *)right)->variant;
    if ((a->cover != NULL) != (b->cover != NULL))
        return a->cover != NULL ? 1 : -1;
    int order = a->cover != NULL ? strcmp(a->cover->name, b->cover->name) : (int)a->op - (int)b->op;
    if (order == 0)
        order = a->rung - b->rung;
    return order != 0 ? order : strcmp(a->name, b->name);
}

static int check_op(const struct arguments *a, const struct as_registry *registry,
                    struct as_error *error)
{
    if (a->op == NULL || as_op_by_name(a->op) != ASSAY_OPS ||
        as_registry_cover(registry, a->op) != NULL)
        return 0;
    size_t count = 0, names = 0;
    const struct as_registry_entry *entries = as_registry_entries(registry, &count);
    const char **name = as_calloc(error, count, sizeof *name, "names of ops");
    if (name == NULL)
        return AS_ERR_MEMORY;
    for (size_t i = 0; i < count; i++)
        name[names++] = name_of_op(entries[i].variant);
    const char *nearest = as_nearest(a->op, name, names);
    free(name);
    return as_fail(error, AS_ERR_USAGE,
                   "there is no op or cover %s%s%s%s; `assay kernels` without --op lists them",
                   a->op, nearest == NULL ? "" : " (did you mean ", nearest == NULL ? "" : nearest,
                   nearest == NULL ? "" : "?)");
}

static int collect(const struct arguments *a, const struct as_registry *registry,
                   const struct assay_device *device, struct row **rows, size_t *count,
                   struct as_error *error)
{
    size_t entries = 0;
    const struct as_registry_entry *entry = as_registry_entries(registry, &entries);
    *count = 0;
    for (size_t i = 0; i < a->variants; i++)
        if (as_registry_find(registry, a->variant[i], error) == NULL)
            return AS_ERR_USAGE;
    int code = check_op(a, registry, error);
    if (code != 0)
        return code;
    *rows = as_calloc(error, entries, sizeof **rows, "the table of variants");
    if (*rows == NULL)
        return AS_ERR_MEMORY;
    for (size_t i = 0; i < entries; i++) {
        struct row *row = &(*rows)[*count];
        if (!wanted(a, entry[i].variant))
            continue;
        row->variant = entry[i].variant;
        row->plugin = entry[i].plugin;
        row->runs_here = as_variant_runs_here(row->variant, device, row->why, sizeof row->why);
        ++*count;
    }
    qsort(*rows, *count, sizeof **rows, by_place);
    return 0;
}

static int check_rows(const struct arguments *a, const struct as_registry *registry,
                      struct assay_device *device, struct row *rows, size_t count,
                      struct as_error *error)
{
    struct as_progress progress;
    int code = 0;
    as_progress_begin(&progress, a->quiet);
    for (size_t i = 0; code == 0 && i < count; i++) {
        struct as_error refused = {0};
        char what[128];
        if (!rows[i].runs_here)
            continue;
        snprintf(what, sizeof what, "checking %s", rows[i].variant->name);
        as_progress_show(&progress, what, i, count);
        code = as_check_suite(registry, rows[i].variant, device, &rows[i].result, &refused);
        rows[i].checked = code == 0;
        if (code == AS_ERR_UNSUPPORTED) { /* the reason is what there is to know */
            snprintf(rows[i].why, sizeof rows[i].why, "%.199s", refused.message);
            rows[i].runs_here = false;
            code = 0;
        } else if (code != 0) {
            as_fail(error, code, "%s", refused.message);
        }
    }
    as_progress_end(&progress);
    return code;
}

/* ---- for people --------------------------------------------------------------------------- */

static const struct {
    uint32_t bit;
    const char *name;
} flags[] = {{ASSAY_DEFAULT, "default"},
             {ASSAY_DETERMINISTIC, "deterministic"},
             {ASSAY_BATCH_INVARIANT, "batch-invariant"},
             {ASSAY_IN_PLACE, "in-place"}};

#define FLAGS (sizeof flags / sizeof flags[0])

static void print_dtypes(uint32_t mask)
{
    const char *separator = "";
    if (mask == 0)
        printf("-");
    for (int dtype = 0; dtype < ASSAY_DTYPES; dtype++) {
        if ((mask & ASSAY_BIT(dtype)) == 0)
            continue;
        printf("%s%s", separator, assay_dtype((enum assay_dtype)dtype)->name);
        separator = ",";
    }
}

static void print_check(const struct row *row)
{
    const struct as_check_result *r = &row->result;
    if (!r->passed) {
        printf("        FAILS: %s\n", r->reason);
        return;
    }
    printf("        passes: at worst %.3f of the allowed error, RMS error %.3g = %.2f ulp",
           r->ratio, r->rms, r->rms_ulp);
    if (r->naive[0] != '\0' && strcmp(r->naive, row->variant->name) != 0)
        printf(" (%s: %.2f ulp)", r->naive, r->naive_rms_ulp);
    printf("; %d cases, %d runs, %.1f s\n", (int)r->problems, (int)r->runs, r->seconds);
}

static void print_row(const struct row *row)
{
    const struct assay_variant *v = row->variant;
    const char *separator = "";
    printf("  %2d  %-32s ", (int)v->rung, v->name);
    print_dtypes(v->weights);
    printf(" / ");
    print_dtypes(v->activations);
    printf(" / ");
    print_dtypes(v->kv);
    printf("\n        %s%s%s%s\n        ", v->idea, v->improves != NULL ? " (improves " : "",
           v->improves != NULL ? v->improves : "", v->improves != NULL ? ")" : "");
    for (size_t i = 0; i < FLAGS; i++) {
        if ((v->flags & flags[i].bit) == 0)
            continue;
        printf("%s%s", separator, flags[i].name);
        separator = ", ";
    }
    if (row->plugin != NULL)
        printf("%sfrom %s", separator, row->plugin);
    printf("%s\n", v->flags == 0 && row->plugin == NULL ? "no flags" : "");
    if (!row->runs_here)
        printf("        does not run here: %s\n", row->why);
    if (row->checked)
        print_check(row);
}

static void print_rows(const struct row *rows, size_t count)
{
    size_t here = 0, checked = 0, passed = 0;
    if (count > 0)
        printf("rung  %-32s weights / activations / KV cache\n\n", "variant");
    for (size_t i = 0; i < count; i++) {
        const char *op = name_of_op(rows[i].variant);
        if (i == 0 || strcmp(op, name_of_op(rows[i - 1].variant)) != 0)
            printf("%s%s%s\n", i == 0 ? "" : "\n", op,
                   rows[i].variant->cover != NULL ? " (a cover)" : "");
        print_row(&rows[i]);
        here += rows[i].runs_here;
        checked += rows[i].checked;
        passed += rows[i].checked && rows[i].result.passed;
    }
    printf("%s%zu variant%s, %zu run%s here", count > 0 ? "\n" : "", count, count == 1 ? "" : "s",
           here, here == 1 ? "s" : "");
    if (checked > 0)
        printf(", %zu of %zu passed", passed, checked);
    printf("\n");
}

/* ---- for programs ------------------------------------------------------------------------- */

static json_t *describe_dtypes(uint32_t mask)
{
    json_t *list = json_array();
    for (int dtype = 0; dtype < ASSAY_DTYPES; dtype++)
        if ((mask & ASSAY_BIT(dtype)) != 0)
            json_array_append_new(list, json_string(assay_dtype((enum assay_dtype)dtype)->name));
    return list;
}

static json_t *describe_check(const struct as_check_result *r)
{
    json_t *naive = r->naive[0] == '\0' ? json_null()
                                        : json_pack("{s:s, s:f, s:f}", "name", r->naive, "rms",
                                                    r->naive_rms, "rms_ulp", r->naive_rms_ulp);
    return json_pack("{s:b, s:s, s:f, s:s, s:f, s:f, s:o, s:i, s:i, s:f}", "passed", (int)r->passed,
                     "reason", r->reason, "max_to_threshold", r->ratio, "worst_problem", r->worst,
                     "rms", r->rms, "rms_ulp", r->rms_ulp, "naive", naive, "cases",
                     (int)r->problems, "runs", (int)r->runs, "seconds", r->seconds);
}

static json_t *describe_row(const struct row *row)
{
    static const char *const graphs[] = {"never", "uniform", "any"};
    const struct assay_variant *v = row->variant;
    json_t *list = json_array();
    for (size_t i = 0; i < FLAGS; i++)
        if ((v->flags & flags[i].bit) != 0)
            json_array_append_new(list, json_string(flags[i].name));
    return json_pack(
        "{s:s, s:s, s:b, s:s, s:i, s:s, s:s?, s:s?, s:o, s:o, s:o, s:o, s:s, s:b, s:s?, s:o}",
        "name", v->name, "op", name_of_op(v), "cover", v->cover != NULL, "backend",
        v->backend == ASSAY_CPU ? "cpu" : "cuda", "rung", (int)v->rung, "idea", v->idea, "improves",
        v->improves, "plugin", row->plugin, "weights", describe_dtypes(v->weights), "activations",
        describe_dtypes(v->activations), "kv", describe_dtypes(v->kv), "flags", list, "graph",
        graphs[v->graph], "runs_here", (int)row->runs_here, "reason",
        row->runs_here ? NULL : row->why, "check",
        row->checked ? describe_check(&row->result) : json_null());
}

static int print_json(const struct assay_device *device, const struct row *rows, size_t count,
                      bool ok)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, describe_row(&rows[i]));
    json_t *answer = json_pack("{s:b, s:{s:s, s:i}, s:o}", "ok", (int)ok, "device", "name",
                               device->name, "threads", (int)device->threads, "variants", list);
    bool written =
        answer != NULL && json_dumpf(answer, stdout, JSON_INDENT(2)) == 0 && putchar('\n') != EOF;
    json_decref(answer);
    if (!written)
        fprintf(stderr, "assay kernels: the answer cannot be written as JSON\n");
    return written ? 0 : AS_ERR_IO;
}

/* ---- the command -------------------------------------------------------------------------- */

static int list(const struct arguments *a, const struct as_registry *registry,
                struct assay_device *device, struct as_error *error)
{
    struct row *rows = NULL;
    size_t count = 0;
    bool ok = true;
    int code = collect(a, registry, device, &rows, &count, error);
    if (code == 0 && a->check)
        code = check_rows(a, registry, device, rows, count, error);
    for (size_t i = 0; i < count; i++)
        ok &= !rows[i].checked || rows[i].result.passed;
    if (code == 0 && a->json)
        code = print_json(device, rows, count, ok);
    else if (code == 0)
        print_rows(rows, count);
    free(rows);
    if (code != 0)
        return EXIT_WRONG;
    return ok ? EXIT_YES : EXIT_NO;
}

int as_command_kernels(int argc, char **argv)
{
    static const struct argp argp = {options, parse, "[VARIANT...]", purpose, NULL, NULL, NULL};
    struct as_error error = {0};
    struct assay_device *device = NULL;
    struct as_registry *registry = NULL;
    int status = EXIT_WRONG;
    if (!as_option_names_known(argc, argv, options))
        return EXIT_WRONG;
    struct arguments a = {.variant = as_calloc(&error, (size_t)argc, sizeof *a.variant, "names")};
    if (a.variant != NULL && argp_parse(&argp, argc, argv, 0, NULL, &a) == 0 &&
        as_cpu_device_open(&device, 0, NULL, &error) == 0 &&
        as_registry_create(&registry, &error) == 0)
        status = list(&a, registry, device, &error);
    if (error.code != 0)
        fprintf(stderr, "assay kernels: %s\n", error.message);
    as_registry_free(registry);
    if (device != NULL)
        device->close(device);
    free(a.variant);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("assay kernels: cannot write the answer");
        status = EXIT_WRONG;
    }
    return status;
}
