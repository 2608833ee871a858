/* Small helpers of the report tests: scratch folders, work folders with known contents. */
#ifndef HELPERS_H
#define HELPERS_H

#include <criterion/criterion.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "as_error.h"
#include "as_file.h"
#include "merge.h"
#include "report.h"
#include "schema.h"
#include "spool.h"

#define UNUSED __attribute__((unused))

/* The scratch folder of the running test; removed by drop_scratch(). */
static char scratch[256];

static UNUSED void make_scratch(void)
{
    const char *base = getenv("TMPDIR");
    snprintf(scratch, sizeof scratch, "%s/assay-test-XXXXXX", base != NULL ? base : "/tmp");
    cr_assert_not_null(mkdtemp(scratch));
}

static UNUSED void remove_tree(const char *path)
{
    struct stat status;
    if (lstat(path, &status) != 0)
        return;
    if (S_ISDIR(status.st_mode)) {
        chmod(path, 0755);
        DIR *listing = opendir(path);
        for (struct dirent *entry; listing != NULL && (entry = readdir(listing)) != NULL;) {
            char inner[1024];
            if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                continue;
            snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
            remove_tree(inner);
        }
        if (listing != NULL)
            closedir(listing);
        rmdir(path);
    } else {
        unlink(path);
    }
}

static UNUSED void drop_scratch(void)
{
    remove_tree(scratch);
}

/* "<scratch>/<name>" in one of 64 buffers that are used in turn. */
static UNUSED const char *in_scratch(const char *name)
{
    static char paths[64][512];
    static int next;
    char *path = paths[next++ % 64];
    snprintf(path, 512, "%s/%s", scratch, name);
    return path;
}

#define MUST(call) must((call), #call, &error)

static UNUSED void must(int rc, const char *call, const struct as_error *error)
{
    cr_assert(rc >= 0, "%s: %s", call, error->message);
}

static UNUSED struct as_spool *new_spool(const char *folder, const char *name)
{
    struct as_error error = {0};
    char path[512];
    must(as_make_folders(folder, &error), "as_make_folders", &error);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    struct as_spool *spool = as_spool_create(path, 0, &error);
    cr_assert_not_null(spool, "%s", error.message);
    return spool;
}

static UNUSED void close_spool(struct as_spool *spool)
{
    struct as_error error = {0};
    must(as_spool_close(spool, &error), "as_spool_close", &error);
}

static UNUSED struct as_report *open_report(const char *path)
{
    struct as_error error = {0};
    struct as_report *report = as_report_open(path, &error);
    cr_assert_not_null(report, "%s", error.message);
    return report;
}

static UNUSED void *read_table(struct as_report *report, enum as_table table, size_t *count)
{
    struct as_error error = {0};
    void *rows;
    must(as_report_read(report, table, &rows, count, &error), "as_report_read", &error);
    return rows;
}

/* What a child of `run` records: two problems, two variants, `launches` launches in steps of 4 on
 * `threads` threads, one request of which each step makes one token. Times start at `base` ns. A
 * launch i begins at base + 1000 i on thread 0 and 10 t later on thread t; it works 100 + t and
 * waits 50 - t. */
struct child_options {
    uint32_t run, threads, launches;
    uint64_t base;
    const char *variant; /* of problem 1; NULL = "linear/cpu_naive" */
    bool no_end;         /* the child's run row has no end: what a killed child leaves */
};

static UNUSED void put(struct as_spool *spool, enum as_table table, const void *row)
{
    cr_assert_eq(as_spool_put(spool, table, row), 0, "%s", as_spool_error(spool)->message);
}

static UNUSED void put_definitions(struct as_spool *spool, const struct child_options *options)
{
    struct as_row_problem problem;
    struct as_row_variant variant;
    as_row_unknown(AS_TABLE_PROBLEMS, &problem);
    problem.problem = 0;
    problem.op = as_spool_string(spool, "rms_norm");
    problem.shape = as_spool_string(spool, "1 token, 576 wide");
    problem.tokens = 1;
    problem.activations = as_spool_string(spool, "f32");
    problem.flops = 1728;
    problem.bytes = 6912;
    put(spool, AS_TABLE_PROBLEMS, &problem);
    problem.problem = 1;
    problem.op = as_spool_string(spool, "linear");
    problem.shape = as_spool_string(spool, "1 token, 576 to 1536");
    problem.m = 1;
    problem.n = 1536;
    problem.k = 576;
    problem.weights = as_spool_string(spool, "q4_1");
    problem.flops = 2u * 1536 * 576;
    problem.bytes = 1536u * 576 * 20 / 32;
    put(spool, AS_TABLE_PROBLEMS, &problem);
    as_row_unknown(AS_TABLE_VARIANTS, &variant);
    variant.variant = 0;
    variant.name = as_spool_string(spool, "rms_norm/cpu_naive");
    variant.backend = as_spool_string(spool, "cpu");
    variant.rung = 0;
    put(spool, AS_TABLE_VARIANTS, &variant);
    variant.variant = 1;
    variant.name =
        as_spool_string(spool, options->variant != NULL ? options->variant : "linear/cpu_naive");
    put(spool, AS_TABLE_VARIANTS, &variant);
}

static UNUSED void put_run(struct as_spool *spool, const struct child_options *options)
{
    struct as_row_run run;
    as_row_unknown(AS_TABLE_RUNS, &run);
    run.run = options->run;
    run.strategy = as_spool_string(spool, options->run % 2 == 0 ? "naive" : "fast");
    run.repetition = options->run / 2;
    run.pass = AS_REPORT_PASS_TRACED;
    run.order = options->run;
    run.threads = options->threads;
    run.start = options->base;
    if (!options->no_end) {
        run.end = options->base + 1000u * options->launches + 1000;
        run.exit = 0;
        run.signal = 0;
    }
    put(spool, AS_TABLE_RUNS, &run);
}

static UNUSED void put_step(struct as_spool *spool, const struct child_options *options,
                            uint32_t step)
{
    struct as_row_step row;
    struct as_row_step_row part;
    as_row_unknown(AS_TABLE_STEPS, &row);
    row.run = options->run;
    row.step = step;
    row.start = options->base + 4000u * step;
    row.end = row.start + 3900;
    row.prefill_tokens = step == 0 ? 5 : 0;
    row.decode_tokens = step == 0 ? 0 : 1;
    row.padded_tokens = 0;
    row.sequences = 1;
    row.kv_blocks = 1;
    row.queue_depth = 0;
    row.metadata_build_ns = 39;
    put(spool, AS_TABLE_STEPS, &row);
    as_row_unknown(AS_TABLE_STEP_ROWS, &part);
    part.run = options->run;
    part.step = step;
    part.request = 0;
    part.tokens = step == 0 ? 5 : 1;
    part.position = step == 0 ? 0 : step + 4;
    part.phase = step == 0 ? AS_REPORT_PHASE_PREFILL_END : AS_REPORT_PHASE_DECODE;
    part.token = part.top1 = 65 + step;
    part.top1_logit = 16.95;
    part.margin = 16.95;
    part.projection = -3.5;
    put(spool, AS_TABLE_STEP_ROWS, &part);
}

static UNUSED void put_request(struct as_spool *spool, const struct child_options *options)
{
    const uint32_t steps = (options->launches + 3) / 4;
    struct as_row_request row;
    as_row_unknown(AS_TABLE_REQUESTS, &row);
    row.run = options->run;
    row.request = 0;
    row.name = as_spool_string(spool, "r0");
    row.class_name = as_spool_string(spool, "chat");
    row.prompt_tokens = 5;
    row.cached_tokens = 0;
    row.output_tokens = steps;
    row.preemptions = 0;
    row.scheduled = options->base;
    row.sent = options->base + 5;
    row.preprocess_start = options->base + 6;
    row.preprocess_end = options->base + 8;
    row.queued = options->base + 9;
    row.first_scheduled = options->base;
    row.prefill_end = row.first_token = options->base + 3900;
    row.last_token = row.done = options->base + 4000u * (steps - 1) + 3900;
    row.outcome = AS_REPORT_OUTCOME_DONE;
    row.finish = AS_REPORT_FINISH_LENGTH;
    put(spool, AS_TABLE_REQUESTS, &row);
}

/* Launch rows of thread 0; returns with rows [first, last) written. */
static UNUSED void put_launches(struct as_spool *spool, const struct child_options *options,
                                uint32_t first, uint32_t last)
{
    for (uint32_t i = first; i < last; i++) {
        struct as_row_launch row;
        as_row_unknown(AS_TABLE_LAUNCHES, &row);
        row.launch = i;
        row.run = options->run;
        row.step = i / 4;
        row.layer = i % 4 / 2;
        row.variant = row.problem = i % 2;
        row.start = options->base + 1000u * i;
        row.work_ns = 100;
        row.wait_ns = 50;
        put(spool, AS_TABLE_LAUNCHES, &row);
        if (i % 4 == 3)
            put_step(spool, options, i / 4);
    }
}

static UNUSED void put_thread(struct as_spool *spool, const struct child_options *options,
                              uint32_t thread, uint32_t first, uint32_t last)
{
    for (uint32_t i = first; i < last; i++) {
        const struct as_row_launch_thread row = {i, thread, options->base + 1000u * i + 10 * thread,
                                                 100 + thread, 50 - thread};
        put(spool, AS_TABLE_LAUNCH_THREADS, &row);
    }
}

/* A whole, finished child. */
static UNUSED void make_child(const char *work, const struct child_options *options)
{
    struct as_error error = {0};
    char folder[400], name[32];
    MUST(as_spool_child_folder(folder, sizeof folder, work, options->run, &error));
    struct as_spool *spool = new_spool(folder, AS_SPOOL_ENGINE);
    put_definitions(spool, options);
    put_run(spool, options);
    put_launches(spool, options, 0, options->launches);
    put_request(spool, options);
    const struct as_row_counter counter = {options->run, as_spool_string(spool, "metadata_builds"),
                                           AS_UNKNOWN_U32, 7};
    put(spool, AS_TABLE_COUNTERS, &counter);
    close_spool(spool);
    for (uint32_t t = 1; t < options->threads; t++) {
        snprintf(name, sizeof name, "thread-%u.spool", t);
        spool = new_spool(folder, name);
        put_thread(spool, options, t, 0, options->launches);
        close_spool(spool);
    }
}

#endif
