/* Every number of `assay show --json` against the same computed independently with h5py and NumPy,
 * over runs of seeded random contents. Skipped (77) without the program or the project's Python. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include "as_random.h"
#include "helpers.h"

extern char **environ;

#define REQUESTS 60
#define STEPS 300
#define LAUNCHES 2000

static uint64_t draw(uint32_t run, uint64_t counter, uint64_t below)
{
    return as_random_u64(29, run, counter) % below;
}

static void put_requests(struct as_spool *spool, uint32_t run, uint64_t base)
{
    for (uint32_t i = 0; i < REQUESTS; i++) {
        struct as_row_request row;
        uint64_t at = base + draw(run, 10000 + 20 * i, 1000000), n = 20 * i + 10000;
        as_row_unknown(AS_TABLE_REQUESTS, &row);
        row.run = run;
        row.request = i;
        row.scheduled = at;
        row.sent = at += draw(run, n + 1, 1000);
        row.preprocess_start = at += draw(run, n + 2, 1000);
        row.preprocess_end = at += draw(run, n + 3, 10000);
        row.queued = at += draw(run, n + 4, 1000);
        row.first_scheduled = at += draw(run, n + 5, 100000);
        row.prefill_end = at += draw(run, n + 6, 100000);
        row.first_token = at += draw(run, n + 7, 100);
        row.output_tokens = 1 + (uint32_t)draw(run, n + 8, 12);
        row.last_token = row.output_tokens == 1 ? at : (at += draw(run, n + 9, 1000000));
        row.done = at + 10;
        row.prompt_tokens = (uint32_t)draw(run, n + 10, 500);
        row.outcome = (uint8_t)(draw(run, n + 11, 10) == 0 ? 1 + draw(run, n + 12, 4) : 0);
        if (draw(run, n + 13, 9) == 0)
            row.queued = AS_UNKNOWN_U64;
        put(spool, AS_TABLE_REQUESTS, &row);
    }
}

static void put_steps(struct as_spool *spool, uint32_t run, uint64_t base)
{
    uint64_t at = base;
    for (uint32_t i = 0; i < STEPS; i++) {
        struct as_row_step row;
        uint64_t n = 100000 + 50 * i;
        as_row_unknown(AS_TABLE_STEPS, &row);
        row.run = run;
        row.step = i;
        row.start = at += draw(run, n, 500);
        row.end = at += 1000 + draw(run, n + 1, 9000);
        row.prefill_tokens = draw(run, n + 2, 3) == 0 ? (uint32_t)draw(run, n + 3, 100) : 0;
        row.decode_tokens = draw(run, n + 4, 3) > 0 ? (uint32_t)draw(run, n + 5, 8) : 0;
        row.padded_tokens = (uint32_t)draw(run, n + 6, 4);
        row.metadata_build_ns = draw(run, n + 7, 100);
        if (draw(run, n + 8, 2) == 0)
            row.metadata_upload_ns = draw(run, n + 9, 50);
        put(spool, AS_TABLE_STEPS, &row);
        for (uint32_t p = 0; p < 4; p++) {
            struct as_row_step_row part;
            as_row_unknown(AS_TABLE_STEP_ROWS, &part);
            part.run = run;
            part.step = i;
            part.request = (uint32_t)draw(run, n + 10 + 3 * p, REQUESTS);
            part.tokens = 1;
            part.phase = AS_REPORT_PHASE_DECODE;
            if (draw(run, n + 11 + 3 * p, 4) > 0)
                part.token = (uint32_t)draw(0, n + 12 + 3 * p, 50000);
            put(spool, AS_TABLE_STEP_ROWS, &part);
        }
    }
}

static void put_tables(struct as_spool *spool)
{
    static const char *const ops[] = {"linear", "attention", "rms_norm"};
    for (uint32_t i = 0; i < 12; i++) {
        struct as_row_problem row;
        as_row_unknown(AS_TABLE_PROBLEMS, &row);
        row.problem = i;
        row.op = as_spool_string(spool, ops[i % 3]);
        row.tokens = i + 1;
        row.activations = as_spool_string(spool, i % 2 == 0 ? "q8" : "f32");
        row.flops = 1000 * (i + 1) * (i + 1);
        row.bytes = 300 + 100 * i;
        put(spool, AS_TABLE_PROBLEMS, &row);
    }
    for (uint32_t i = 0; i < 4; i++) {
        struct as_row_variant row;
        char name[32];
        as_row_unknown(AS_TABLE_VARIANTS, &row);
        snprintf(name, sizeof name, "any/cpu_%u", i);
        row.variant = i;
        row.name = as_spool_string(spool, name);
        put(spool, AS_TABLE_VARIANTS, &row);
    }
}

static void put_traced(const char *folder, struct as_spool *spool, uint32_t run, uint64_t base)
{
    struct as_spool *other = new_spool(folder, "thread-1.spool");
    uint64_t at = base;
    put_tables(spool);
    for (uint32_t i = 0; i < LAUNCHES; i++) {
        uint64_t n = 900000 + 10 * i;
        struct as_row_launch row;
        as_row_unknown(AS_TABLE_LAUNCHES, &row);
        row.launch = i;
        row.run = run;
        row.step = i * STEPS / LAUNCHES;
        row.variant = (uint32_t)draw(run, n, 4);
        row.problem = (uint32_t)draw(run, n + 1, 12);
        row.start = at += draw(run, n + 2, 300);
        row.work_ns = draw(run, n + 3, 700);
        row.wait_ns = draw(run, n + 4, 100);
        put(spool, AS_TABLE_LAUNCHES, &row);
        const struct as_row_launch_thread part = {i, 1, at + draw(run, n + 5, 50),
                                                  draw(run, n + 6, 700), draw(run, n + 7, 90)};
        put(other, AS_TABLE_LAUNCH_THREADS, &part);
    }
    close_spool(other);
}

static void make_run(uint32_t number)
{
    struct as_error error = {0};
    struct as_row_run run;
    char folder[400];
    uint64_t base = 1000000000ull * (number + 1);
    MUST(as_spool_child_folder(folder, sizeof folder, in_scratch("w"), number, &error));
    struct as_spool *spool = new_spool(folder, AS_SPOOL_ENGINE);
    as_row_unknown(AS_TABLE_RUNS, &run);
    run.run = number;
    run.strategy = as_spool_string(spool, number % 2 == 0 ? "one" : "two");
    run.pass = number < 6 ? AS_REPORT_PASS_TIMING : AS_REPORT_PASS_TRACED;
    run.threads = 2;
    run.start = base;
    run.end = base + 2000000 + draw(number, 1, 1000000);
    if (number == 3)
        run.window_start = base + 300000;
    run.exit = number == 4 ? 1 : 0; /* one run that does not count */
    run.signal = 0;
    put(spool, AS_TABLE_RUNS, &run);
    put_requests(spool, number, base);
    put_steps(spool, number, base);
    if (number >= 6)
        put_traced(folder, spool, number, base);
    close_spool(spool);
}

static void make_parent_spool(void)
{
    struct as_spool *spool = new_spool(in_scratch("w"), AS_SPOOL_PARENT);
    static const struct {
        const char *name, *units;
        double value;
    } list[] = {{"bandwidth_read", "B/s", 3e9},
                {"compute_f32", "FLOP/s", 4e10},
                {"compute_q8", "FLOP/s", 9e10}};
    for (int i = 0; i < 3; i++) {
        struct as_row_ceiling row;
        as_row_unknown(AS_TABLE_CEILINGS, &row);
        row.name = as_spool_string(spool, list[i].name);
        row.units = as_spool_string(spool, list[i].units);
        row.threads = 2;
        row.value = list[i].value;
        put(spool, AS_TABLE_CEILINGS, &row);
    }
    close_spool(spool);
}

static int run_to(char *const *arguments, const char *path)
{
    posix_spawn_file_actions_t actions;
    pid_t child;
    int status;
    posix_spawn_file_actions_init(&actions);
    if (path != NULL)
        posix_spawn_file_actions_addopen(&actions, 1, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    int rc = posix_spawn(&child, arguments[0], &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (rc != 0)
        return -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(void)
{
    static char program[] = ASSAY_BINARY_DIR "/assay";
    static char python[] = ASSAY_SOURCE_DIR "/.venv/bin/python";
    static char script[] = ASSAY_SOURCE_DIR "/tests/reports/recompute_with_h5py.py";
    if (access(program, X_OK) != 0 || access(python, X_OK) != 0) {
        printf("skipped: %s or %s is not there\n", program, python);
        return 77;
    }
    struct as_error error = {0};
    make_scratch();
    make_parent_spool();
    for (uint32_t run = 0; run < 8; run++)
        make_run(run);
    char *report = (char *)in_scratch("r.h5"), *json = (char *)in_scratch("r.json");
    int rc = as_merge(in_scratch("w"), report, NULL, &error);
    char *const show[] = {program, (char *)"show", (char *)"--json", report, NULL};
    char *const check[] = {python, script, report, json, NULL};
    if (rc == AS_OK)
        rc = run_to(show, json);
    if (rc == AS_OK)
        rc = run_to(check, NULL);
    drop_scratch();
    if (rc != 0)
        printf("%d %s\n", rc, error.message);
    return rc == 0 || rc == 77 ? rc : 1;
}
