/* `assay show` and `assay recover`, run as a user runs them. Skipped (77) while the program is not
 * built. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <jansson.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <time.h>

#include <criterion/options.h>

#include "as_clock.h"
#include "helpers.h"

extern char **environ;

#define PROGRAM ASSAY_BINARY_DIR "/assay"
#define OUTPUT_MAX (1 << 20)

static char *output, *errors; /* of the last run */

static void set_up(void)
{
    make_scratch();
    setenv("XDG_CACHE_HOME", in_scratch("cache"), 1);
}

static void tear_down(void)
{
    free(output);
    free(errors);
    drop_scratch();
}

TestSuite(show, .init = set_up, .fini = tear_down);

static char *take_file(const char *path)
{
    struct as_error error = {0};
    char *text;
    size_t size;
    must(as_read_file(&text, &size, path, OUTPUT_MAX, &error), path, &error);
    return text;
}

/* Runs the program with the given arguments and returns its exit code; -1 for a signal. */
static int run_arguments(char *const *arguments)
{
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, in_scratch("stdout"),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    posix_spawn_file_actions_addopen(&actions, 2, in_scratch("stderr"),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert_eq(posix_spawn(&child, PROGRAM, &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    waitpid(child, &status, 0);
    free(output);
    free(errors);
    output = take_file(in_scratch("stdout"));
    errors = take_file(in_scratch("stderr"));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define RUN(...) run_arguments((char *const[]){(char *)"assay", __VA_ARGS__, NULL})

static char *path_of(const char *name)
{
    return (char *)in_scratch(name);
}

static void expect_text(const char *where, const char *words)
{
    cr_assert_not_null(strstr(where, words), "no \"%s\" in:\n%s", words, where);
}

static void expect_no(const char *where, const char *words)
{
    cr_assert_null(strstr(where, words), "\"%s\" in:\n%s", words, where);
}

/* Two strategies, a traced run of each, and timing runs of which `fast` takes half the time. */
static void make_two_strategies(const char *name)
{
    struct as_error error = {0};
    struct as_spool *spool = new_spool(in_scratch("w"), AS_SPOOL_PARENT);
    as_spool_attribute(spool, "producer", "assay");
    as_spool_attribute(spool, "command_line", "assay run with \x1b[31mcolours\x07");
    as_spool_attribute_u64(spool, "checks_needed naive", 12);
    as_spool_attribute_u64(spool, "checks_passed naive", 12);
    as_spool_attribute_u64(spool, "checks_needed fast", 14);
    as_spool_attribute_u64(spool, "checks_passed fast", 13);
    for (uint32_t r = 0; r < 6; r++) {
        struct as_row_run row;
        as_row_unknown(AS_TABLE_RUNS, &row);
        row.run = r;
        row.pass = r < 4 ? AS_REPORT_PASS_TIMING : AS_REPORT_PASS_TRACED;
        row.end = 1000000 + (r % 2 == 0 ? 100000 : 50000) + 10 * r;
        put(spool, AS_TABLE_RUNS, &row);
    }
    close_spool(spool);
    for (uint32_t r = 0; r < 6; r++) {
        const struct child_options options = {
            .run = r, .threads = 2, .launches = 40, .base = 1000000};
        make_child(in_scratch("w"), &options);
    }
    MUST(as_merge(in_scratch("w"), in_scratch(name), NULL, &error));
}

Test(show, says_which_was_faster)
{
    make_two_strategies("r.h5");
    cr_assert_eq(RUN("show", path_of("r.h5")), 0, "%s", errors);
    expect_text(output, "fast was 2.00x as fast as naive: ");
    expect_text(output, "medians of 2 and 2 runs, every one faster");
    expect_text(output, "naive and fast made the same tokens in 1 of 1 requests");
    expect_text(output, "naive: 12 of 12 kernel checks passed");
    expect_text(output, "fast: 13 of 14 kernel checks passed");
    expect_text(output, "not verified");
    expect_text(output, "Where the time of fast went: 1 traced run");
    expect_text(output, "linear/cpu_naive");
    expect_text(output, "metadata_builds");
    expect_text(output, "colours");
    expect_no(output, "\x1b");
    expect_no(output, "\x07");
    expect_no(output, "nan");
    expect_no(output, "inf");
    cr_assert_str_eq(errors, "");
    cr_assert_eq(RUN("show", "--runs", "--all", "--colour=always", path_of("r.h5")), 0);
    expect_text(output, "\x1b[1m");
    expect_text(output, "peak memory");
}

static json_t *json_of_output(void)
{
    json_error_t problem;
    json_t *root = json_loads(output, JSON_REJECT_DUPLICATES, &problem);
    cr_assert_not_null(root, "%s in:\n%s", problem.text, output);
    return root;
}

Test(show, json)
{
    make_two_strategies("r.h5");
    cr_assert_eq(RUN("show", "--json", path_of("r.h5")), 0, "%s", errors);
    json_t *root = json_of_output();
    cr_assert_eq(json_integer_value(json_object_get(root, "assay_show")), 1);
    json_t *fastest = json_array_get(json_object_get(root, "fastest_first"), 0);
    cr_assert_str_eq(json_string_value(fastest), "fast");
    json_t *strategy = json_array_get(json_object_get(root, "strategies"), 1);
    json_t *rate = json_object_get(strategy, "output_tokens_per_s");
    cr_assert_float_eq(json_real_value(json_object_get(rate, "high")), 10 / 50010e-9, 1e-6);
    cr_assert_eq(json_array_size(json_object_get(rate, "values")), 2);
    json_t *run = json_array_get(json_object_get(root, "runs"), 0);
    cr_assert(json_is_true(json_object_get(run, "valid")));
    cr_assert(json_is_null(json_object_get(run, "invalid_reason")));
    json_t *latency = json_object_get(json_object_get(run, "latency"), "ttft");
    cr_assert_eq(json_real_value(json_object_get(latency, "p50")), 3900);
    cr_assert(json_is_null(json_object_get(latency, "p99")), "one request has no p99");
    json_decref(root);
}

/* C52: an empty report, and runs in which nothing was finished. */
Test(show, c52_nothing_recorded)
{
    struct as_error error = {0};
    close_spool(new_spool(in_scratch("none"), AS_SPOOL_PARENT));
    MUST(as_merge(in_scratch("none"), in_scratch("none.h5"), NULL, &error));
    cr_assert_eq(RUN("show", path_of("none.h5")), 0, "%s", errors);
    expect_text(output, "no data");
    cr_assert_eq(RUN("show", "--json", path_of("none.h5")), 0);
    json_decref(json_of_output());

    /* Every request was cancelled before its first token. */
    struct as_spool *spool = new_spool(in_scratch("w/run-0000"), AS_SPOOL_ENGINE);
    const struct child_options options = {.run = 0, .threads = 1, .base = 1000};
    struct as_row_request row;
    put_run(spool, &options);
    as_row_unknown(AS_TABLE_REQUESTS, &row);
    row.run = row.request = 0;
    row.scheduled = row.sent = 1000;
    row.outcome = AS_REPORT_OUTCOME_CANCELLED;
    put(spool, AS_TABLE_REQUESTS, &row);
    struct as_row_run run;
    as_row_unknown(AS_TABLE_RUNS, &run);
    run.run = 0;
    run.pass = AS_REPORT_PASS_TIMING;
    put(spool, AS_TABLE_RUNS, &run);
    close_spool(spool);
    MUST(as_merge(in_scratch("w"), in_scratch("w.h5"), NULL, &error));
    for (int json = 0; json < 2; json++) {
        cr_assert_eq(json ? RUN("show", "--json", path_of("w.h5")) : RUN("show", path_of("w.h5")),
                     0, "%s", errors);
        expect_no(output, "nan");
        expect_no(output, "NaN");
        expect_no(output, "0 ns");
        expect_no(output, " 0 ms");
        expect_no(output, "inf");
    }
    cr_assert_eq(RUN("show", path_of("w.h5")), 0);
    expect_text(output, "no data: no valid timing run finished a request");
    expect_text(output, "0 of 1 requests done, 1 cancelled");
}

/* An encoder makes no tokens: requests/s rank, TPOT and ITL have no data. */
Test(show, c52_encoder)
{
    struct as_error error = {0};
    for (uint32_t r = 0; r < 2; r++) {
        const struct child_options options = {.run = r, .threads = 1, .base = 1000};
        char name[32];
        snprintf(name, sizeof name, "w/run-%04u", r);
        struct as_spool *spool = new_spool(in_scratch(name), AS_SPOOL_ENGINE);
        struct as_row_run run;
        put_run(spool, &options);
        as_row_unknown(AS_TABLE_RUNS, &run);
        run.run = r;
        run.pass = AS_REPORT_PASS_TIMING;
        run.end = 1000 + 1000000 * (r + 1);
        put(spool, AS_TABLE_RUNS, &run);
        struct as_row_request row;
        as_row_unknown(AS_TABLE_REQUESTS, &row);
        row.run = r;
        row.request = 0;
        row.scheduled = row.sent = 1000;
        row.done = 5000;
        row.output_tokens = 0;
        row.outcome = AS_REPORT_OUTCOME_DONE;
        put(spool, AS_TABLE_REQUESTS, &row);
        close_spool(spool);
    }
    MUST(as_merge(in_scratch("w"), in_scratch("r.h5"), NULL, &error));
    cr_assert_eq(RUN("show", path_of("r.h5")), 0, "%s", errors);
    expect_text(output, "naive was 2.00x as fast as fast: 1000 requests/s against 500");
    expect_text(output, "no data");
    expect_no(output, "nan");
}

Test(show, invalid_runs_are_named)
{
    const struct child_options killed = {
        .run = 0, .threads = 1, .launches = 8, .base = 1000, .no_end = true};
    struct as_error error = {0};
    make_child(in_scratch("w"), &killed);
    MUST(as_merge(in_scratch("w"), in_scratch("r.h5"), NULL, &error));
    cr_assert_eq(RUN("show", path_of("r.h5")), 0);
    expect_text(output, "run 0 of naive (traced) is not valid: no end recorded");
}

/* The last verify of the plan on the model, from the cache folder. */
Test(show, last_verify)
{
    struct as_error error = {0};
    const struct child_options options = {.run = 0, .threads = 1, .launches = 8, .base = 1000};
    static const char passed[] = "{\"passed\": true, \"time\": 1700000000, \"words\": \"\"}";
    static const char failed[] =
        "{\"passed\": false, \"time\": 1700000000, \"words\": \"3 top-1 flips\"}";
    struct as_spool *spool = new_spool(in_scratch("w"), AS_SPOOL_PARENT);
    as_spool_attribute(spool, "model_digest", "00ff00ff00ff00ff");
    struct as_row_run run;
    as_row_unknown(AS_TABLE_RUNS, &run);
    run.run = 0;
    run.plan_digest = as_spool_string(spool, "abcdef");
    put(spool, AS_TABLE_RUNS, &run);
    close_spool(spool);
    make_child(in_scratch("w"), &options);
    MUST(as_merge(in_scratch("w"), in_scratch("r.h5"), NULL, &error));
    MUST(as_make_folders(in_scratch("cache/assay/verify"), &error));
    const char *entry = in_scratch("cache/assay/verify/00ff00ff00ff00ff-abcdef.json");
    MUST(as_write_file(entry, passed, sizeof passed - 1, &error));
    cr_assert_eq(RUN("show", path_of("r.h5")), 0);
    expect_text(output, "the last verify of 2023-11-14 22:13 UTC passed");
    MUST(as_write_file(entry, failed, sizeof failed - 1, &error));
    cr_assert_eq(RUN("show", path_of("r.h5")), 0);
    expect_text(output, "the last verify of 2023-11-14 22:13 UTC failed: 3 top-1 flips");
    MUST(as_write_file(entry, "[", 1, &error));
    cr_assert_eq(RUN("show", path_of("r.h5")), 0);
    expect_text(output, "not verified");
}

/* C54, through the program: a report that somebody else holds a lock on. */
Test(show, c54_locked)
{
    make_two_strategies("r.h5");
    int fd = open(in_scratch("r.h5"), O_RDWR | O_CLOEXEC);
    cr_assert_eq(flock(fd, LOCK_EX), 0);
    uint64_t start = as_clock_ns();
    cr_assert_eq(RUN("show", path_of("r.h5")), 0, "%s", errors);
    cr_assert_lt(as_clock_ns() - start, 10000000000u, "no waiting for the lock");
    expect_text(output, "fast was 2.00x");
    close(fd);
}

Test(show, wrong_use)
{
    struct as_error error = {0};
    cr_assert_eq(RUN("show"), 2);
    expect_text(errors, "name a report");
    cr_assert_eq(RUN("show", path_of("a"), path_of("b")), 2);
    cr_assert_eq(RUN("show", "--jsn", path_of("a")), 2);
    expect_text(errors, "did you mean --json?");
    cr_assert_eq(RUN("show", "--colour=pink", path_of("a")), 2);
    cr_assert_eq(RUN("show", path_of("missing.h5")), 2);
    expect_text(errors, "missing.h5");
    cr_assert_str_eq(output, "");
    MUST(as_write_file(in_scratch("text.h5"), "text", 4, &error));
    cr_assert_eq(RUN("show", path_of("text.h5")), 2);
    expect_text(errors, "not an HDF5 file");
    cr_assert_eq(RUN("show", "--help"), 0);
    expect_text(output, "assay show --json report.h5");
}

/* A report on a full disk's standard output: an error, not silence. */
Test(show, full_output)
{
    make_two_strategies("r.h5");
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status;
    char *const arguments[] = {(char *)"assay", (char *)"show", path_of("r.h5"), NULL};
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/full", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, in_scratch("stderr"),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert_eq(posix_spawn(&child, PROGRAM, &actions, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    waitpid(child, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 2, "status %x", (unsigned)status);
}

Test(show, recover)
{
    const struct child_options options = {
        .run = 0, .threads = 2, .launches = 8, .base = 1000, .no_end = true};
    make_child(in_scratch("r.h5.work"), &options);
    cr_assert_eq(RUN("recover", path_of("r.h5.work/")), 0, "%s", errors);
    expect_text(output, "1 runs, 1 requests, 2 steps, 8 launches");
    expect_text(output, "1 of the runs did not end well");
    cr_assert_eq(RUN("show", path_of("r.h5")), 0, "%s", errors);
    expect_text(output, "no end recorded");
    cr_assert_eq(access(in_scratch("r.h5.work/run-0000/engine.spool"), F_OK), 0, "kept");

    cr_assert_eq(RUN("recover", path_of("r.h5.work")), 2, "a report is there already");
    expect_text(errors, "is there already");
    cr_assert_eq(RUN("recover", path_of("r.h5.work"), "-o", path_of("r.h5")), 0, "asked for");
    cr_assert_eq(RUN("recover", path_of("r.h5.work"), "-q", "-o", path_of("other")), 0);
    cr_assert_str_eq(output, "");
    struct as_error error = {0};
    MUST(as_write_file(in_scratch("notes.txt"), "precious", 8, &error));
    cr_assert_eq(RUN("recover", path_of("r.h5.work"), "-o", path_of("notes.txt")), 2);
    expect_text(errors, "is not a report");
    cr_assert_eq(RUN("recover", path_of("missing.work")), 2);
    expect_text(errors, "missing.work");
    cr_assert_eq(RUN("recover", path_of("cache")), 2);
    expect_text(errors, "does not end in \".work\"");
    cr_assert_eq(RUN("recover"), 2);
    cr_assert_eq(RUN("recover", "--help"), 0);
}

int main(int argc, char **argv)
{
    if (access(PROGRAM, X_OK) != 0) {
        printf("skipped: %s is not built\n", PROGRAM);
        return 77;
    }
    struct criterion_test_set *tests = criterion_initialize();
    int result = 0;
    if (criterion_handle_args(argc, argv, true))
        result = !criterion_run_all_tests(tests);
    criterion_finalize(tests);
    return result;
}
