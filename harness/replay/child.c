#include "replay/child.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "as_clock.h"
#include "check/stamps.h"
#include "preprocess/from_model.h"
#include "replay/job.h"
#include "replay/session.h"

struct child {
    struct as_job job;
    struct as_workload *workload;
    struct as_bench bench;
    struct as_tokenizer *tokenizer;
    const struct as_template *chat;
    struct as_recorder *recorder;
    const char *folder;
    char remark[256]; /* why a run that ended well is not valid, or "" */
    uint64_t started;
    struct as_error *error;
};

static void print_progress(void *context, size_t done, size_t total)
{
    (void)context;
    printf("progress %zu %zu\n", done, total);
    fflush(stdout);
}

static uint64_t peak_rss(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss * 1024 : AS_UNKNOWN_U64;
}

/* The run's own row: first with what is known at the start, so that a killed child leaves one. */
static int put_run(struct child *child, const struct as_session_summary *summary)
{
    struct as_spool *spool = as_recorder_spool(child->recorder);
    struct as_row_run row;
    char digest[17];
    as_row_unknown(AS_TABLE_RUNS, &row);
    as_strategy_digest(&child->bench.strategy, digest);
    row.run = child->job.run;
    row.strategy = as_spool_string(spool, child->bench.strategy.name);
    row.repetition = child->job.repetition;
    row.order = child->job.order;
    row.pass = child->job.pass == AS_PASS_TRACED ? AS_REPORT_PASS_TRACED : AS_REPORT_PASS_TIMING;
    row.threads = (uint32_t)child->bench.threads;
    row.plan_digest = as_spool_string(spool, digest);
    row.build = as_spool_string(spool, as_build_id());
    row.start = summary == NULL ? as_clock_ns() : summary->start_ns;
    if (summary != NULL) {
        row.end = summary->end_ns;
        row.peak_rss = peak_rss();
        row.recording_ns = as_recorder_cost(child->folder);
        row.exit = summary->failed > 0 ? 2 : 0;
        row.valid = summary->failed == 0 && summary->not_the_load[0] == '\0';
        if (!row.valid)
            row.invalid_reason = as_spool_string(
                spool, summary->failed > 0 ? summary->first_failure : summary->not_the_load);
    }
    return as_spool_put(spool, AS_TABLE_RUNS, &row);
}

static bool has_form(const struct as_workload *workload, enum as_workload_form form)
{
    for (size_t i = 0; i < workload->count; i++)
        if (workload->requests[i].form == form)
            return true;
    return false;
}

static int open_text(struct child *child)
{
    const struct as_workload *workload = child->workload;
    int code = 0;
    if (!has_form(workload, AS_WORKLOAD_TEXT) && !has_form(workload, AS_WORKLOAD_MESSAGES) &&
        !has_form(workload, AS_WORKLOAD_LENGTH))
        return 0;
    code = as_tokenizer_from_model(child->bench.model, &child->tokenizer, child->error);
    if (code == 0 && has_form(workload, AS_WORKLOAD_MESSAGES))
        code = as_template_from_model(child->bench.model, child->job.chat_template, &child->chat,
                                      child->error);
    return code;
}

static int open_child(struct child *child)
{
    int code = as_job_read(&child->job, child->folder, child->error);
    if (code == 0)
        code = as_workload_read(&child->workload, child->job.workload, child->error);
    if (code == 0 && child->job.limit > 0)
        code = as_workload_limit(child->workload, child->job.limit, child->error);
    if (code == 0) {
        const struct as_bench_options options = {.model = child->job.model,
                                                 .strategy = child->job.strategy,
                                                 .set = child->job.set,
                                                 .sets = child->job.sets,
                                                 .context = as_session_context(child->workload),
                                                 .spare_cpu = strcmp(child->job.mode, "open") == 0,
                                                 .plans_only = true};
        code = as_bench_open(&options, &child->bench, child->error);
    }
    if (code == 0)
        code = open_text(child);
    if (code == 0) {
        const struct as_recorder_options options = {.folder = child->folder,
                                                    .run = child->job.run,
                                                    .threads = child->bench.threads,
                                                    .traced = child->job.pass == AS_PASS_TRACED};
        code = as_recorder_create(&options, &child->recorder, child->error);
    }
    if (code == 0)
        code = put_run(child, NULL);
    if (code == 0)
        code = as_bench_start(&child->bench, as_recorder_observer(child->recorder), child->error);
    return code;
}

static int replay(struct child *child)
{
    const struct as_session_options options = {.bench = &child->bench,
                                               .workload = child->workload,
                                               .tokenizer = child->tokenizer,
                                               .chat = child->chat,
                                               .recorder = child->recorder,
                                               .run = child->job.run,
                                               .mode =
                                                   (enum as_mode)as_mode_by_name(child->job.mode),
                                               .concurrency = child->job.concurrency,
                                               .progress = print_progress};
    struct as_session_summary summary;
    struct as_spool *spool = as_recorder_spool(child->recorder);
    int code = as_session_run(&options, &summary, child->error);
    if (code == 0)
        code = as_recorder_tables(child->recorder, child->bench.engine, child->error);
    if (code == 0)
        code = as_recorder_counters(child->recorder, child->bench.engine);
    if (code == 0)
        code = put_run(child, &summary);
    if (code == 0 && child->job.repetition == 0 && child->job.pass == AS_PASS_TIMING) {
        char key[96];
        snprintf(key, sizeof key, "child_start_ns %s", child->bench.strategy.name);
        code = as_spool_attribute_u64(spool, key, summary.first_step_ns - child->started);
    }
    if (code != 0 && child->error->code == 0)
        as_recorder_failed(child->recorder, child->error);
    snprintf(child->remark, sizeof child->remark, "%s", summary.not_the_load);
    if (code == 0 && summary.failed > 0)
        code = as_fail(child->error, AS_ERR_WRONG, "%zu of %zu requests failed; %s", summary.failed,
                       child->workload->count, summary.first_failure);
    return code;
}

static void close_child(struct child *child)
{
    as_bench_close(&child->bench);
    as_tokenizer_free(child->tokenizer);
    as_workload_free(child->workload);
    as_job_free(&child->job);
}

/* When this process was started, on CLOCK_MONOTONIC: field 22 of /proc/self/stat counts clock
 * ticks since boot, which CLOCK_MONOTONIC also starts at on a machine that never slept. */
static uint64_t process_start_ns(void)
{
    uint64_t now = as_clock_ns();
    char line[1024];
    FILE *file = fopen("/proc/self/stat", "re");
    if (file == NULL)
        return now;
    char *read = fgets(line, sizeof line, file);
    fclose(file);
    char *after = read == NULL ? NULL : strrchr(line, ')');
    unsigned long long ticks = 0;
    if (after == NULL ||
        sscanf(after + 1,
               " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
               &ticks) != 1)
        return now;
    uint64_t start = ticks * (1000000000u / (uint64_t)sysconf(_SC_CLK_TCK));
    return start < now ? start : now;
}

int as_child_run(const char *folder)
{
    struct as_error error = {0};
    struct child child = {.folder = folder, .started = process_start_ns(), .error = &error};
    struct as_done done = {0};
    /* A parent that dies takes its children along; a full disk is an error, not a death. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGXFSZ, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    int code = open_child(&child);
    if (code == 0)
        code = replay(&child);
    if (child.bench.strategy.name[0] != '\0') { /* else there is none to speak of */
        as_strategy_digest(&child.bench.strategy, done.plan_digest);
        done.strategy = as_strategy_resolved(&child.bench.strategy);
    }
    int closed = as_recorder_close(child.recorder, code == 0 ? &error : NULL);
    code = code == 0 ? closed : code;
    /* The parent says what failed, from done.json; who gave no job is not the parent. */
    if (child.job.storage == NULL)
        fprintf(stderr, "assay child: %s\n", error.message);
    close_child(&child);
    done.exit = code == 0 ? 0 : 2;
    snprintf(done.build_id, sizeof done.build_id, "%s", as_build_id());
    snprintf(done.message, sizeof done.message, "%s",
             error.message[0] != '\0' ? error.message : child.remark);
    struct as_error unwritten = {0};
    if (as_done_write(&done, folder, &unwritten) != 0) {
        fprintf(stderr, "assay child: %s\n", unwritten.message);
        done.exit = 2;
    }
    free(done.strategy);
    return done.exit;
}
