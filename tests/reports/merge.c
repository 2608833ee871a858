/* Merging: threads joined, ids renumbered, runs judged, killed children kept as far as they got. */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "as_random.h"
#include "helpers.h"
#include "metrics.h"
#include "spool_format.h"

TestSuite(merge, .init = make_scratch, .fini = drop_scratch);

extern int H5close(void);

static struct as_report *merge_and_open(const char *work, struct as_merge_summary *summary)
{
    struct as_error error = {0};
    MUST(as_merge(work, in_scratch("out.h5"), summary, &error));
    return open_report(in_scratch("out.h5"));
}

static void expect_string(struct as_report *report, uint32_t id, const char *text)
{
    const char *found = as_report_string(report, id);
    cr_assert_not_null(found, "no string where '%s' was expected", text);
    cr_assert_str_eq(found, text);
}

/* The parent's spool: two planned runs, both finished well. */
static void make_parent(const char *work, uint32_t runs)
{
    struct as_spool *spool = new_spool(work, AS_SPOOL_PARENT);
    as_spool_attribute(spool, "command", "assay run --strategy naive");
    as_spool_attribute_u64(spool, "seed", 42);
    as_spool_attribute_f64(spool, "margin", 0.5);
    as_spool_attribute(spool, "model_digest", "sha256:aa");
    struct as_row_ceiling ceiling = {as_spool_string(spool, "bandwidth_read"),
                                     as_spool_string(spool, "B/s"),
                                     2,
                                     as_spool_string(spool, "boot-1"),
                                     5,
                                     2.5e10};
    put(spool, AS_TABLE_CEILINGS, &ceiling);
    struct as_row_capability capability = {as_spool_string(spool, "cuda"),
                                           as_spool_string(spool, "no driver"), 0};
    put(spool, AS_TABLE_CAPABILITIES, &capability);
    struct as_row_variant variant;
    as_row_unknown(AS_TABLE_VARIANTS, &variant);
    variant.variant = 0;
    variant.name = as_spool_string(spool, "rms_norm/cpu_naive");
    variant.backend = as_spool_string(spool, "cpu");
    variant.rung = 0;
    variant.checked = 1;
    put(spool, AS_TABLE_VARIANTS, &variant);
    for (uint32_t r = 0; r < runs; r++) {
        struct as_row_run run;
        as_row_unknown(AS_TABLE_RUNS, &run);
        run.run = r;
        run.plan_digest = as_spool_string(spool, "plan-1");
        put(spool, AS_TABLE_RUNS, &run);
        run.exit = 0;
        run.signal = 0;
        run.peak_rss = 1000 + r;
        run.recording_ns = 31.5;
        put(spool, AS_TABLE_RUNS, &run);
    }
    close_spool(spool);
}

static void check_launches(struct as_report *report, const struct child_options *options,
                           uint32_t threads, const struct as_row_launch *rows)
{
    for (uint32_t i = 0; i < options->launches; i++) {
        const struct as_row_launch *row = &rows[i];
        uint32_t last = threads - 1;
        cr_assert_eq(row->run, options->run);
        cr_assert_eq(row->step, i / 4);
        cr_assert_eq(row->layer, i % 4 / 2);
        cr_assert_eq(row->start, options->base + 1000u * i);
        cr_assert_eq(row->end, options->base + 1000u * i + 10 * last + 150, "the last thread's");
        cr_assert_eq(row->work_ns, 100u * threads + threads * last / 2);
        cr_assert_eq(row->wait_ns, 50u * threads - threads * last / 2);
        cr_assert_eq(row->problem, i % 2);
        (void)report;
    }
}

Test(merge, joins_threads_and_renumbers_launches)
{
    const struct child_options first = {.run = 0, .threads = 3, .launches = 40, .base = 1000000};
    const struct child_options second = {
        .run = 1, .threads = 2, .launches = 24, .base = 9000000, .variant = "linear/cpu_avx2"};
    struct as_merge_summary summary;
    const char *work = in_scratch("r.h5.work");
    size_t count;
    make_parent(work, 2);
    make_child(work, &first);
    make_child(work, &second);
    struct as_report *report = merge_and_open(work, &summary);
    cr_assert_eq(summary.runs, 2);
    cr_assert_eq(summary.invalid_runs, 0);
    cr_assert_eq(summary.launches, 64);
    cr_assert_eq(summary.dropped_launches, 0);
    cr_assert_eq(summary.damaged_spools, 0);

    struct as_row_launch *launches = read_table(report, AS_TABLE_LAUNCHES, &count);
    cr_assert_eq(count, 64);
    for (uint32_t i = 0; i < 64; i++)
        cr_assert_eq(launches[i].launch, i, "unique and ascending over both children");
    check_launches(report, &first, 3, launches);
    check_launches(report, &second, 2, launches + 40);
    struct as_row_variant *variants = read_table(report, AS_TABLE_VARIANTS, &count);
    cr_assert_eq(count, 3, "one row a variant over the whole report");
    expect_string(report, variants[launches[41].variant].name, "linear/cpu_avx2");
    expect_string(report, variants[launches[1].variant].name, "linear/cpu_naive");
    cr_assert_eq(launches[0].variant, launches[40].variant);
    cr_assert_eq(variants[launches[0].variant].checked, 1, "from the parent's row");
    cr_assert_eq(variants[launches[1].variant].checked, AS_UNKNOWN_U8);
    free(launches);
    free(variants);

    struct as_row_launch_thread *parts = read_table(report, AS_TABLE_LAUNCH_THREADS, &count);
    cr_assert_eq(count, 40 * 3 + 24 * 2);
    for (uint32_t i = 0; i < 120; i++) {
        cr_assert_eq(parts[i].launch, i / 3);
        cr_assert_eq(parts[i].thread, i % 3);
        cr_assert_eq(parts[i].start, first.base + 1000u * (i / 3) + 10 * (i % 3));
        cr_assert_eq(parts[i].work_ns, 100 + i % 3);
    }
    free(parts);
    struct as_row_problem *problems = read_table(report, AS_TABLE_PROBLEMS, &count);
    cr_assert_eq(count, 2, "one row a content");
    expect_string(report, problems[1].shape, "1 token, 576 to 1536");
    cr_assert_eq(problems[1].flops, 2u * 1536 * 576);
    cr_assert_eq(problems[1].heads, AS_UNKNOWN_U32);
    free(problems);
    as_report_close(report);
}

Test(merge, keeps_the_other_tables)
{
    const struct child_options first = {.run = 0, .threads = 1, .launches = 40, .base = 1000000};
    const char *work = in_scratch("r.h5.work");
    size_t count;
    make_parent(work, 1);
    make_child(work, &first);
    struct as_report *report = merge_and_open(work, NULL);
    struct as_row_run *runs = read_table(report, AS_TABLE_RUNS, &count);
    cr_assert_eq(count, 1);
    expect_string(report, runs[0].strategy, "naive");
    expect_string(report, runs[0].plan_digest, "plan-1");
    cr_assert_eq(runs[0].start, 1000000, "the child's row, below the parent's");
    cr_assert_eq(runs[0].peak_rss, 1000, "the parent's row, over the child's");
    cr_assert_eq(runs[0].recording_ns, 31.5);
    cr_assert_eq(runs[0].valid, 1);
    cr_assert_eq(runs[0].invalid_reason, AS_UNKNOWN_U32);
    free(runs);
    struct as_row_request *requests = read_table(report, AS_TABLE_REQUESTS, &count);
    cr_assert_eq(count, 1);
    expect_string(report, requests[0].name, "r0");
    expect_string(report, requests[0].class_name, "chat");
    cr_assert_eq(requests[0].output_tokens, 10);
    cr_assert_eq(requests[0].requeue_ns, AS_UNKNOWN_U64);
    free(requests);
    struct as_row_step *steps = read_table(report, AS_TABLE_STEPS, &count);
    cr_assert_eq(count, 10);
    cr_assert_eq(steps[9].start, 1036000);
    cr_assert_eq(steps[0].bucket, AS_UNKNOWN_U32);
    free(steps);
    struct as_row_step_row *rows = read_table(report, AS_TABLE_STEP_ROWS, &count);
    cr_assert_eq(count, 10);
    cr_assert_eq(rows[3].token, 68);
    cr_assert_eq(rows[3].projection, -3.5);
    free(rows);
    struct as_row_counter *counters = read_table(report, AS_TABLE_COUNTERS, &count);
    cr_assert_eq(count, 1);
    expect_string(report, counters[0].name, "metadata_builds");
    cr_assert_eq(counters[0].value, 7);
    free(counters);
    struct as_row_ceiling *ceilings = read_table(report, AS_TABLE_CEILINGS, &count);
    cr_assert_eq(count, 1);
    expect_string(report, ceilings[0].units, "B/s");
    cr_assert_eq(ceilings[0].value, 2.5e10);
    free(ceilings);
    struct as_row_capability *capabilities = read_table(report, AS_TABLE_CAPABILITIES, &count);
    cr_assert_eq(count, 1);
    expect_string(report, capabilities[0].reason, "no driver");
    free(capabilities);

    uint64_t u64;
    double f64;
    cr_assert_str_eq(as_report_attribute(report, "schema"), "1.0");
    cr_assert_str_eq(as_report_attribute(report, "command"), "assay run --strategy naive");
    cr_assert(as_report_attribute_u64(report, "seed", &u64) && u64 == 42);
    cr_assert(as_report_attribute_f64(report, "margin", &f64) && f64 == 0.5);
    cr_assert(as_report_attribute_u64(report, "complete", &u64) && u64 == 1);
    as_report_close(report);
}

/* Beyond the 64 KiB that older HDF5 files could hold. */
Test(merge, long_attributes)
{
    const char *work = in_scratch("w");
    char *text = calloc(1, 300001);
    memset(text, 'y', 300000);
    struct as_spool *spool = new_spool(work, AS_SPOOL_PARENT);
    as_spool_attribute(spool, "strategy fast", text);
    as_spool_attribute(spool, "nothing", NULL);
    as_spool_attribute(spool, "empty", "");
    close_spool(spool);
    struct as_report *report = merge_and_open(work, NULL);
    cr_assert_str_eq(as_report_attribute(report, "strategy fast"), text);
    cr_assert_str_eq(as_report_attribute(report, "empty"), "");
    cr_assert_null(as_report_attribute(report, "nothing"));
    as_report_close(report);
    free(text);
}

Test(merge, children_attributes_move_to_the_root)
{
    const char *work = in_scratch("w");
    make_parent(work, 2);
    for (uint32_t r = 0; r < 2; r++) {
        char folder[400];
        struct as_error error = {0};
        MUST(as_spool_child_folder(folder, sizeof folder, work, r, &error));
        struct as_spool *spool = new_spool(folder, AS_SPOOL_ENGINE);
        as_spool_attribute(spool, "model_digest", "sha256:aa");
        as_spool_attribute(spool, "build", "first draft");
        as_spool_attribute(spool, "build", r == 0 ? "b0" : "b1");
        as_spool_attribute_u64(spool, "vocabulary", 258);
        close_spool(spool);
    }
    uint64_t u64;
    struct as_report *report = merge_and_open(work, NULL);
    cr_assert_str_eq(as_report_attribute(report, "model_digest"), "sha256:aa");
    cr_assert_str_eq(as_report_attribute(report, "build"), "b0");
    cr_assert_str_eq(as_report_attribute(report, "run 1 build"), "b1");
    cr_assert_null(as_report_attribute(report, "run 0 build"));
    cr_assert_null(as_report_attribute(report, "run 1 model_digest"));
    cr_assert(as_report_attribute_u64(report, "vocabulary", &u64) && u64 == 258);
    as_report_close(report);
}

/* The common part of unequal threads stays; what has no counterpart is counted. */
Test(merge, unequal_threads)
{
    const struct child_options options = {
        .run = 0, .threads = 3, .launches = 40, .base = 1000, .no_end = true};
    struct as_error error = {0};
    const char *work = in_scratch("w");
    char folder[400];
    struct as_merge_summary summary;
    size_t count;
    MUST(as_spool_child_folder(folder, sizeof folder, work, 0, &error));
    struct as_spool *spool = new_spool(folder, AS_SPOOL_ENGINE);
    put_definitions(spool, &options);
    put_run(spool, &options);
    put_launches(spool, &options, 0, 37);
    close_spool(spool);
    spool = new_spool(folder, "thread-1.spool");
    put_thread(spool, &options, 1, 0, 40);
    close_spool(spool);
    spool = new_spool(folder, "thread-2.spool");
    put_thread(spool, &options, 2, 0, 10);
    put_thread(spool, &options, 2, 12, 35); /* launches 10 and 11 were not for this thread */
    close_spool(spool);
    struct as_report *report = merge_and_open(work, &summary);
    cr_assert_eq(summary.launches, 35);
    cr_assert_eq(summary.dropped_launches, 2 + 3, "35 and 36 of thread 0; 37 to 39 of thread 1");
    struct as_row_launch *launches = read_table(report, AS_TABLE_LAUNCHES, &count);
    cr_assert_eq(count, 35);
    cr_assert_eq(launches[34].launch, 34);
    cr_assert_eq(launches[10].work_ns, 201, "two threads");
    cr_assert_eq(launches[12].work_ns, 303, "three threads");
    free(launches);
    struct as_row_launch_thread *parts = read_table(report, AS_TABLE_LAUNCH_THREADS, &count);
    cr_assert_eq(count, 35 * 3 - 2);
    free(parts);
    uint64_t dropped;
    cr_assert(as_report_attribute_u64(report, "merge_dropped_launches", &dropped));
    cr_assert_eq(dropped, 5);
    as_report_close(report);
}

/* A thread's spool without any row is a thread that took no part. */
Test(merge, idle_thread)
{
    const struct child_options options = {.run = 0, .threads = 2, .launches = 8, .base = 1000};
    struct as_merge_summary summary;
    const char *work = in_scratch("w");
    make_child(work, &options);
    close_spool(new_spool(in_scratch("w/run-0000"), "thread-7.spool"));
    struct as_report *report = merge_and_open(work, &summary);
    cr_assert_eq(summary.launches, 8);
    cr_assert_eq(summary.dropped_launches, 0);
    as_report_close(report);
}

static const char *reason_of(struct as_report *report, const struct as_row_run *run)
{
    cr_assert_eq(run->valid, 0);
    return as_report_string(report, run->invalid_reason);
}

Test(merge, runs_are_judged)
{
    const char *work = in_scratch("w");
    struct as_spool *spool = new_spool(work, AS_SPOOL_PARENT);
    struct as_row_run run;
    static const struct {
        uint32_t exit, signal;
        uint64_t start, end;
        uint8_t valid;
        const char *reason; /* given */
    } cases[] = {
        {0, 0, 5, 9, AS_UNKNOWN_U8, NULL},
        {AS_UNKNOWN_U32, 9, 5, AS_UNKNOWN_U64, AS_UNKNOWN_U8, NULL},
        {3, 0, 5, 9, AS_UNKNOWN_U8, NULL},
        {AS_UNKNOWN_U32, AS_UNKNOWN_U32, 5, AS_UNKNOWN_U64, AS_UNKNOWN_U8, NULL},
        {AS_UNKNOWN_U32, AS_UNKNOWN_U32, AS_UNKNOWN_U64, AS_UNKNOWN_U64, AS_UNKNOWN_U8, NULL},
        {0, 0, 5, 9, 0, "arrivals were late"},
        {0, 0, 5, 9, 0, NULL},
    };
    static const char *const reasons[] = {NULL,
                                          "child killed by signal 9 (SIGKILL)",
                                          "child exited with status 3",
                                          "no end recorded: the run was interrupted",
                                          "never started: the run was interrupted",
                                          "arrivals were late",
                                          "marked invalid without a reason"};
    for (uint32_t i = 7; i-- > 0;) {
        as_row_unknown(AS_TABLE_RUNS, &run);
        run.run = i;
        put(spool, AS_TABLE_RUNS, &run);
        run.exit = cases[i].exit;
        run.signal = cases[i].signal;
        run.start = cases[i].start;
        run.end = cases[i].end;
        run.valid = cases[i].valid;
        run.invalid_reason = as_spool_string(spool, cases[i].reason);
        put(spool, AS_TABLE_RUNS, &run);
    }
    close_spool(spool);
    struct as_merge_summary summary;
    size_t count;
    struct as_report *report = merge_and_open(work, &summary);
    struct as_row_run *runs = read_table(report, AS_TABLE_RUNS, &count);
    cr_assert_eq(count, 7);
    cr_assert_eq(summary.invalid_runs, 6);
    cr_assert_eq(runs[0].valid, 1);
    for (uint32_t i = 1; i < 7; i++) {
        cr_assert_eq(runs[i].run, i, "in order of their numbers");
        cr_assert_str_eq(reason_of(report, &runs[i]), reasons[i]);
    }
    free(runs);
    as_report_close(report);
}

/* A child writes until it is killed at some instant; the merge makes a sound report each time. */
Test(merge, killed_children)
{
    for (unsigned trial = 0; trial < 6; trial++) {
        struct child_options options = {
            .run = 0, .threads = 2, .launches = 1u << 20, .base = 1000, .no_end = true};
        char name[32];
        snprintf(name, sizeof name, "k%u.work", trial);
        const char *work = in_scratch(name);
        make_parent(work, 0);
        pid_t child = fork();
        if (child == 0) {
            char folder[400];
            struct as_error error = {0};
            as_spool_child_folder(folder, sizeof folder, work, 0, &error);
            struct as_spool *engine = new_spool(folder, AS_SPOOL_ENGINE);
            struct as_spool *thread = new_spool(folder, "thread-1.spool");
            put_definitions(engine, &options);
            put_run(engine, &options);
            for (uint32_t i = 0; i < options.launches; i++) {
                put_thread(thread, &options, 1, i, i + 1);
                put_launches(engine, &options, i, i + 1);
            }
            _exit(0);
        }
        struct timespec pause = {.tv_nsec = 20000000 + 7000000 * (long)trial};
        nanosleep(&pause, NULL);
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
        struct as_merge_summary summary;
        struct as_report *report = merge_and_open(work, &summary);
        cr_assert_leq(summary.dropped_launches, 1);
        if (as_report_count(report, AS_TABLE_LAUNCHES) > 0) {
            size_t count;
            struct as_row_launch *launches = read_table(report, AS_TABLE_LAUNCHES, &count);
            for (size_t i = 0; i < count; i++)
                cr_assert_eq(launches[i].work_ns, 201);
            free(launches);
            struct as_row_run *runs = read_table(report, AS_TABLE_RUNS, &count);
            cr_assert_str_eq(reason_of(report, &runs[0]),
                             "no end recorded: the run was interrupted");
            free(runs);
        }
        as_report_close(report);
    }
}

/* A damaged spool gives what it has; one that is no spool is counted; the report stays sound. */
Test(merge, damaged_spools)
{
    const struct child_options options = {.run = 0, .threads = 2, .launches = 40, .base = 1000};
    struct as_error error = {0};
    const char *work = in_scratch("w");
    make_child(work, &options);
    MUST(as_write_file(in_scratch("w/run-0000/gpu.spool"), "not a spool at all", 18, &error));
    MUST(as_write_file(in_scratch("w/run-0000/empty.spool"), "", 0, &error));
    char *bytes;
    size_t size;
    MUST(as_read_file(&bytes, &size, in_scratch("w/run-0000/thread-1.spool"), 1 << 20, &error));
    bytes[size - 10 * 48 + 20] ^= 1;
    MUST(as_write_file(in_scratch("w/run-0000/thread-1.spool"), bytes, size, &error));
    free(bytes);
    struct as_merge_summary summary;
    struct as_report *report = merge_and_open(work, &summary);
    cr_assert_eq(summary.launches, 30);
    cr_assert_eq(summary.dropped_launches, 10);
    cr_assert_eq(summary.damaged_spools, 3);
    cr_assert_gt(summary.dropped_bytes, 9 * 48, "up to the last byte that is not zero");
    cr_assert_leq(summary.dropped_bytes, 10 * 48);
    as_report_close(report);
}

Test(merge, nothing_there)
{
    struct as_error error = {0};
    cr_assert_lt(as_merge(in_scratch("missing"), in_scratch("o.h5"), NULL, &error), 0);
    cr_assert_not_null(strstr(error.message, "missing"));
    as_error_clear(&error);
    MUST(as_make_folders(in_scratch("empty"), &error));
    cr_assert_eq(as_merge(in_scratch("empty"), in_scratch("o.h5"), NULL, &error), AS_ERR_DATA);
    cr_assert_not_null(strstr(error.message, "not the work folder"), "%s", error.message);
    cr_assert_neq(access(in_scratch("o.h5"), F_OK), 0);
    cr_assert_neq(access(in_scratch("o.h5.partial"), F_OK), 0, "nothing half-made is left");
}

Test(merge, unwritable_output)
{
    const struct child_options options = {.run = 0, .threads = 1, .launches = 8, .base = 1000};
    struct as_error error = {0};
    const char *work = in_scratch("w");
    make_child(work, &options);
    cr_assert_eq(as_merge(work, in_scratch("no/folder/o.h5"), NULL, &error), AS_ERR_IO);
    cr_assert_not_null(strstr(error.message, "No such file"), "%s", error.message);
    as_error_clear(&error);
    MUST(as_make_folders(in_scratch("d.h5"), &error));
    cr_assert_eq(as_merge(work, in_scratch("d.h5"), NULL, &error), AS_ERR_IO);
    cr_assert_not_null(strstr(error.message, "d.h5"), "%s", error.message);
    cr_assert_neq(access(in_scratch("d.h5.partial"), F_OK), 0);
}

/* A full disk, wherever it is met, leaves the earlier report as it was and nothing half-made. */
Test(merge, full_disk)
{
    const struct child_options options = {.run = 0, .threads = 2, .launches = 60000, .base = 1000};
    char work[512];
    snprintf(work, sizeof work, "%s", in_scratch("w"));
    make_child(work, &options);
    struct as_report *report = merge_and_open(work, NULL);
    as_report_close(report);
    struct stat before, after;
    cr_assert_eq(stat(in_scratch("out.h5"), &before), 0);
    const rlim_t most = (rlim_t)before.st_size + (1 << 20); /* a little is kept in hand */
    for (rlim_t limit = 0; limit < most; limit += most / 17) {
        pid_t child = fork();
        if (child == 0) {
            struct as_error error = {0};
            const struct rlimit size = {limit, limit};
            setrlimit(RLIMIT_FSIZE, &size);
            int rc = as_merge(work, in_scratch("out.h5"), NULL, &error);
            bool good = rc == AS_ERR_IO && error.code == rc &&
                        strstr(error.message, "File too large") != NULL;
            if (!good)
                printf("limit %llu: %d %s\n", (unsigned long long)limit, rc, error.message);
            H5close(); /* HDF5's own cleaning up at the end must neither hang nor crash */
            fflush(stdout);
            _exit(good ? 0 : 1);
        }
        int status;
        waitpid(child, &status, 0);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
        cr_assert_neq(access(in_scratch("out.h5.partial"), F_OK), 0);
    }
    cr_assert_eq(stat(in_scratch("out.h5"), &after), 0);
    cr_assert_eq(after.st_ino, before.st_ino);
    report = open_report(in_scratch("out.h5"));
    as_report_close(report);
}

Test(merge, two_writers_of_one_report)
{
    const struct child_options options = {.run = 0, .threads = 1, .launches = 8, .base = 1000};
    const char *work = in_scratch("w");
    make_child(work, &options);
    int ready[2], go[2];
    cr_assert_eq(pipe(ready) | pipe(go), 0);
    FILE *held = fopen(in_scratch("out.h5.partial"), "w");
    pid_t child = fork();
    if (child == 0) {
        /* Holds the file as a writer does. */
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        fcntl(fileno(held), F_SETLK, &lock);
        char byte = 'x';
        _exit(write(ready[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1);
    }
    char byte;
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    struct as_error error = {0};
    cr_assert_eq(as_merge(work, in_scratch("out.h5"), NULL, &error), AS_ERR_IO);
    cr_assert_not_null(strstr(error.message, "another process is writing it"), "%s", error.message);
    cr_assert_eq(access(in_scratch("out.h5.partial"), F_OK), 0, "the other's file is left alone");
    cr_assert_eq(write(go[1], &byte, 1), 1);
    waitpid(child, NULL, 0);
    fclose(held);
    as_error_clear(&error);
    MUST(as_merge(work, in_scratch("out.h5"), NULL, &error));
}

/* Busy shares, made from launches: 40 launches of 303 ns work in 39.9 us on three threads. */
Test(merge, time_line)
{
    const struct child_options options = {.run = 0, .threads = 3, .launches = 40, .base = 1000};
    const char *work = in_scratch("w");
    size_t count;
    make_child(work, &options);
    struct as_report *report = merge_and_open(work, NULL);
    struct as_row_utilization *rows = read_table(report, AS_TABLE_UTILIZATION, &count);
    cr_assert_eq(count, 1);
    cr_assert_eq(rows[0].start, 1000);
    cr_assert_eq(rows[0].end, 1000 + 4000 * 9 + 3900, "the end of the last step");
    cr_assert_float_eq(rows[0].busy, 40.0 * 303 / (39900.0 * 3), 1e-12);
    cr_assert_eq(rows[0].sequences, 1);
    free(rows);
    as_report_close(report);
}

Test(merge, long_time_line)
{
    const struct child_options options = {.run = 0, .threads = 1, .launches = 0, .base = 0};
    struct as_error error = {0};
    const char *work = in_scratch("w");
    char folder[400];
    size_t count;
    MUST(as_spool_child_folder(folder, sizeof folder, work, 0, &error));
    struct as_spool *spool = new_spool(folder, AS_SPOOL_ENGINE);
    put_run(spool, &options);
    for (uint32_t i = 0; i < 1000; i++) {
        struct as_row_launch row = {i,         0, i, 0, 0, 0, i * 1000000000ull, AS_UNKNOWN_U64,
                                    500000000, 0};
        put(spool, AS_TABLE_LAUNCHES, &row);
    }
    close_spool(spool);
    struct as_report *report = merge_and_open(work, NULL);
    struct as_row_utilization *rows = read_table(report, AS_TABLE_UTILIZATION, &count);
    cr_assert_leq(count, 4096);
    cr_assert_geq(count, 2048);
    double work_ns = 0;
    for (size_t i = 0; i < count; i++) {
        cr_assert(i == 0 || rows[i].start == rows[i - 1].end);
        cr_assert_leq(rows[i].busy, 1.0 + 1e-9);
        work_ns += rows[i].busy * (double)(rows[i].end - rows[i].start);
    }
    cr_assert_float_eq(work_ns, 500e9, 1.0);
    free(rows);
    as_report_close(report);
}

/* Nothing recorded: every table is there with no row (no chunk dimension of 0). */
Test(merge, empty_tables)
{
    const char *work = in_scratch("w");
    close_spool(new_spool(work, AS_SPOOL_PARENT));
    struct as_report *report = merge_and_open(work, NULL);
    for (int t = 0; t < AS_TABLE_COUNT; t++) {
        size_t count;
        cr_assert_eq(as_report_count(report, (enum as_table)t), 0);
        free(read_table(report, (enum as_table)t, &count));
        cr_assert_eq(count, 0);
    }
    cr_assert_eq(as_report_string_count(report), 0);
    cr_assert_null(as_report_string(report, 0));
    as_report_close(report);
}

/* A value of the kinds that break things: small, unknown, nearly unknown, anything. */
static uint64_t hostile(uint64_t trial, uint64_t counter)
{
    uint64_t any = as_random_u64(31, trial, 2 * counter + 1);
    switch (as_random_u64(31, trial, 2 * counter) % 5) {
    case 0: return UINT64_MAX;
    case 1: return UINT64_MAX - 1 - any % 3;
    case 2: return any;
    default: return any % 4;
    }
}

static void put_hostile_rows(struct as_spool *spool, uint64_t trial, uint64_t stream)
{
    for (uint64_t i = 0; i < 400; i++) {
        uint64_t row[AS_ROW_SIZE_MAX / 8];
        uint64_t counter = stream * 1000000 + i * 64;
        for (int w = 0; w < AS_ROW_SIZE_MAX / 8; w++) {
            uint64_t low = hostile(trial, counter + w), high = hostile(trial + 1000, counter + w);
            row[w] = w % 2 == 0 ? (low & 0xffffffff) | high << 32 : low;
        }
        put(spool, (enum as_table)(as_random_u64(33, trial, counter) % AS_TABLE_COUNT), row);
    }
}

/* Rows of any content, in sound frames: the merge makes a report or says why not, and what it made
 * can be read and computed with. */
Test(merge, hostile_rows)
{
    unsigned made = 0;
    for (uint64_t trial = 0; trial < 40; trial++) {
        static const char *const names[] = {"engine.spool", "thread-1.spool", "gpu.spool"};
        struct as_error error = {0};
        char work[64];
        snprintf(work, sizeof work, "w%u", (unsigned)trial);
        for (uint64_t n = 0; n < 4; n++) {
            char folder[128];
            snprintf(folder, sizeof folder, n < 3 ? "%s/run-0000" : "%s", work);
            struct as_spool *spool =
                new_spool(in_scratch(folder), n < 3 ? names[n] : AS_SPOOL_PARENT);
            as_spool_string(spool, "naive");
            as_spool_string(spool, "linear");
            put_hostile_rows(spool, trial, n);
            close_spool(spool);
        }
        int rc = as_merge(in_scratch(work), in_scratch("h.h5"), NULL, &error);
        cr_assert(rc == AS_OK || error.message[0] != '\0');
        if (rc != AS_OK)
            continue;
        made++;
        struct as_report *report = open_report(in_scratch("h.h5"));
        struct as_metrics metrics;
        MUST(as_metrics_compute(&metrics, report, &error));
        for (size_t i = 0; i < metrics.strategy_count; i++) {
            struct as_usage *rows;
            size_t count;
            MUST(as_metrics_usage(&metrics, &metrics.strategies[i], AS_USAGE_CLASS, &rows, &count,
                                  &error));
            free(rows);
        }
        as_metrics_free(&metrics);
        as_report_close(report);
    }
    printf("%u of 40 hostile folders made a report\n", made);
}
