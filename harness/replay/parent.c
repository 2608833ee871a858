#define _GNU_SOURCE
#include "replay/parent.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "as_clock.h"
#include "as_file.h"
#include "as_memory.h"
#include "merge.h"
#include "probe/ceilings.h"
#include "probe/provenance.h"
#include "replay/bench.h"
#include "replay/precheck.h"
#include "replay/session.h"
#include "replay/spawn.h"
#include "spool.h"

static volatile sig_atomic_t interrupted;

void as_parent_interrupt(void)
{
    interrupted = 1;
}

struct parent {
    const struct as_run_options *options;
    struct as_run_summary *summary;
    struct as_spool *spool;
    char program[PATH_MAX]; /* this very binary */
    char what[160];         /* being done, for progress */
    char (*name)[64];       /* the strategies' own names, which a file may give them */
    uint32_t next_run;
    struct as_error *error;
};

static void say(struct parent *parent, size_t done, size_t total)
{
    if (parent->options->progress != NULL)
        parent->options->progress(parent->options->progress_context, parent->what, done, total);
}

static void child_progress(void *context, size_t done, size_t total)
{
    say(context, done, total);
}

/* ---- before the first child --------------------------------------------------------------- */

static bool same_file(const struct stat *one, const char *path)
{
    struct stat other;
    return stat(path, &other) == 0 && other.st_dev == one->st_dev && other.st_ino == one->st_ino;
}

static bool begins_as_hdf5(const char *path)
{
    static const char signature[8] = "\x89HDF\r\n\x1a\n";
    char start[8];
    FILE *file = fopen(path, "rbe");
    bool yes = file != NULL && fread(start, 1, sizeof start, file) == sizeof start &&
               memcmp(start, signature, sizeof start) == 0;
    if (file != NULL)
        fclose(file);
    return yes;
}

/* Only a report is replaced by a report: -o given the model's name must not cost the model, nor
 * may a file that cannot be read. Said before the runs, not after them. */
static int check_output(const struct as_run_options *o, struct as_error *error)
{
    struct stat info;
    size_t length = strlen(o->output);
    if (length == 0 || o->output[length - 1] == '/')
        return as_fail(error, AS_ERR_USAGE, "-o \"%s\" names no file; name the report itself",
                       o->output);
    if (stat(o->output, &info) != 0)
        return 0;
    if (!S_ISREG(info.st_mode))
        return as_fail(error, AS_ERR_USAGE,
                       "%s is there and is no regular file; name the report itself with -o",
                       o->output);
    bool input = same_file(&info, o->model) || same_file(&info, o->workload);
    for (size_t i = 0; i < o->strategies; i++)
        input = input || same_file(&info, o->strategy[i]);
    if (input || (info.st_size > 0 && !begins_as_hdf5(o->output)))
        return as_fail(error, AS_ERR_USAGE, "%s %s; name another file with -o", o->output,
                       input ? "is read by this run and would be overwritten"
                             : "is there and is not a report, so it is not overwritten");
    return 0;
}

/* The work folder lies beside the report, so that both meet the same disk. One left behind by an
 * interrupted run is never touched: it may still be recovered. */
static int make_work_folder(struct parent *parent)
{
    const char *output = parent->options->output;
    char *work = parent->summary->work;
    for (int attempt = 0; attempt < 1000; attempt++) {
        if (attempt == 0)
            snprintf(work, sizeof parent->summary->work, "%s.work", output);
        else
            snprintf(work, sizeof parent->summary->work, "%s.%d.work", output, attempt);
        if (mkdir(work, 0755) == 0)
            return 0;
        if (errno != EEXIST)
            break;
    }
    as_fail_errno(parent->error, AS_ERR_IO,
                  "cannot create the work folder %s beside the report; choose another place with "
                  "-o",
                  work);
    work[0] = '\0';
    return AS_ERR_IO;
}

static int stopped_early(struct parent *parent)
{
    return as_fail(parent->error, AS_ERR_IO, "interrupted before the first run");
}

static int check_workload(struct parent *parent)
{
    const struct as_run_options *o = parent->options;
    struct as_workload *workload;
    int code = as_workload_read(&workload, o->workload, parent->error);
    if (code != 0)
        return code;
    if (workload->count == 0)
        code = as_fail(parent->error, AS_ERR_DATA, "%s holds no requests: nothing to run",
                       o->workload);
    if (code == 0 && o->limit > 0)
        code = as_workload_limit(workload, o->limit, parent->error);
    if (code == 0) {
        as_spool_attribute(parent->spool, "workload", o->workload);
        as_spool_attribute(parent->spool, "workload_digest", workload->digest_hex);
        as_spool_attribute_u64(parent->spool, "workload_requests", workload->count);
    }
    int32_t context = as_session_context(workload);
    as_workload_free(workload);
    for (size_t i = 0; code == 0 && i < o->strategies; i++) {
        if (interrupted)
            return stopped_early(parent);
        snprintf(parent->what, sizeof parent->what, "checking the kernels of %s", o->strategy[i]);
        say(parent, 0, 0);
        const struct as_bench_options options = {.model = o->model,
                                                 .strategy = o->strategy[i],
                                                 .set = o->set,
                                                 .sets = o->sets,
                                                 .context = context,
                                                 .plans_only = true};
        code = as_precheck(&options, parent->spool, i == 0, parent->name[i], parent->error);
        for (size_t j = 0; code == 0 && j < i; j++)
            if (strcmp(parent->name[i], parent->name[j]) == 0)
                code = as_fail(parent->error, AS_ERR_USAGE,
                               "two strategies are named %s; a report tells them apart by name, so "
                               "write one into a file with a name of its own",
                               parent->name[i]);
    }
    return code;
}

static int prepare(struct parent *parent)
{
    ssize_t length = readlink("/proc/self/exe", parent->program, sizeof parent->program - 1);
    if (length < 0)
        return as_fail_errno(parent->error, AS_ERR_IO, "cannot find this program's own file");
    parent->program[length] = '\0';
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", parent->summary->work, AS_SPOOL_PARENT);
    parent->spool = as_spool_create(path, 0, parent->error);
    if (parent->spool == NULL)
        return parent->error->code;
    as_provenance_write(parent->spool, parent->options->command_line);
    as_spool_attribute(parent->spool, "mode", parent->options->mode);
    int code = check_workload(parent);
    if (code != 0)
        return code;
    snprintf(parent->what, sizeof parent->what, "measuring the machine's ceilings");
    say(parent, 0, 0);
    code = as_ceilings_write(parent->spool, parent->error);
    return code == 0 && interrupted ? stopped_early(parent) : code;
}

/* ---- children ----------------------------------------------------------------------------- */

static void put_end(struct parent *parent, const struct as_job *job, const char *name,
                    const struct as_child_end *end, const struct as_done *done)
{
    struct as_row_run row;
    char reason[1200] = "";
    as_row_unknown(AS_TABLE_RUNS, &row);
    row.run = job->run;
    row.order = job->order;
    row.repetition = job->repetition;
    row.pass = job->pass == AS_PASS_TRACED ? AS_REPORT_PASS_TRACED : AS_REPORT_PASS_TIMING;
    row.strategy = as_spool_string(parent->spool, name);
    row.exit = end->exit < 0 ? AS_UNKNOWN_U32 : (uint32_t)end->exit;
    row.signal = (uint32_t)end->signal;
    if (end->exit != 0 || done->message[0] != '\0')
        row.valid = 0;
    if (end->signal != 0)
        snprintf(reason, sizeof reason, "the child was killed by signal %d (%s)", end->signal,
                 strsignal(end->signal));
    else if (row.valid == 0)
        snprintf(reason, sizeof reason, "%s",
                 done->message[0] != '\0' ? done->message : "the child failed without a word");
    if (reason[0] != '\0')
        row.invalid_reason = as_spool_string(parent->spool, reason);
    as_spool_put(parent->spool, AS_TABLE_RUNS, &row);
    if (row.valid != 0)
        return;
    parent->summary->invalid++;
    if (parent->summary->first_failure[0] == '\0')
        snprintf(parent->summary->first_failure, sizeof parent->summary->first_failure,
                 "%.120s: %.800s", name, reason);
}

static int run_child(struct parent *parent, size_t strategy, enum as_pass pass, uint32_t repetition)
{
    const struct as_run_options *o = parent->options;
    struct as_job job = {.run = parent->next_run,
                         .repetition = repetition,
                         .order = parent->next_run,
                         .pass = pass,
                         .limit = o->limit,
                         .model = o->model,
                         .workload = o->workload,
                         .strategy = o->strategy[strategy],
                         .chat_template = o->chat_template,
                         .mode = o->mode,
                         .concurrency = o->concurrency,
                         .sets = (uint32_t)o->sets};
    for (size_t i = 0; i < o->sets; i++)
        job.set[i] = o->set[i];
    parent->next_run++;
    char folder[PATH_MAX];
    int code =
        as_spool_child_folder(folder, sizeof folder, parent->summary->work, job.run, parent->error);
    if (code == 0)
        code = as_make_folders(folder, parent->error);
    if (code == 0)
        code = as_job_write(&job, folder, parent->error);
    if (code != 0)
        return code;
    snprintf(parent->what, sizeof parent->what, "%.64s, %s %u of %u", parent->name[strategy],
             pass == AS_PASS_TRACED ? "traced" : "timing", repetition + 1,
             pass == AS_PASS_TRACED ? o->traced : o->repeat);
    struct as_child_end end;
    struct as_done done = {0};
    code = as_spawn_child(parent->program, folder, child_progress, parent, &interrupted, &end,
                          parent->error);
    if (code != 0)
        return code;
    int unsaid = as_done_read(&done, folder, NULL);
    if (unsaid != 0 && end.exit == 0)
        snprintf(done.message, sizeof done.message, "the child ended without a whole done.json");
    if (repetition == 0 && done.strategy != NULL && done.strategy[0] != '\0') {
        char key[128];
        snprintf(key, sizeof key, "strategy %.64s", parent->name[strategy]);
        as_spool_attribute(parent->spool, key, done.strategy);
    }
    put_end(parent, &job, parent->name[strategy], &end, &done);
    free(done.strategy);
    parent->summary->runs++;
    if (interrupted)
        return as_fail(parent->error, AS_ERR_IO,
                       "interrupted; `assay recover %s` makes a report of what was recorded",
                       parent->summary->work);
    return 0;
}

/* Forward, reversed, forward, ...: a machine that drifts favours nobody. Traced passes come last,
 * so that what they disturb disturbs no timing pass. */
static int run_children(struct parent *parent)
{
    const struct as_run_options *o = parent->options;
    int code = 0;
    for (uint32_t r = 0; code == 0 && r < o->repeat; r++)
        for (size_t i = 0; code == 0 && i < o->strategies; i++)
            code = run_child(parent, r % 2 == 0 ? i : o->strategies - 1 - i, AS_PASS_TIMING, r);
    for (uint32_t r = 0; code == 0 && r < o->traced; r++)
        for (size_t i = 0; code == 0 && i < o->strategies; i++)
            code = run_child(parent, i, AS_PASS_TRACED, r);
    return code;
}

/* ---- the end ------------------------------------------------------------------------------ */

#define DEPTH 2 /* work, a child's, and the one in it that a killed child may leave */

/* Removes a folder, its files, and so for folders in it, `depth` deep. */
static void remove_folder(const char *folder, int depth)
{
    DIR *stream = opendir(folder);
    if (stream == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(stream)) != NULL;) {
        char path[PATH_MAX];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        int length = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (length < 0 || (size_t)length >= sizeof path)
            continue;
        if (unlink(path) != 0 && depth > 0)
            remove_folder(path, depth - 1);
    }
    closedir(stream);
    rmdir(folder);
}

static int write_report(struct parent *parent)
{
    int code = as_spool_close(parent->spool, parent->error);
    parent->spool = NULL;
    snprintf(parent->what, sizeof parent->what, "writing %.100s", parent->options->output);
    say(parent, 0, 0);
    if (code == 0)
        code = as_merge(parent->summary->work, parent->options->output, NULL, parent->error);
    if (code == 0) {
        remove_folder(parent->summary->work, DEPTH);
        parent->summary->work[0] = '\0';
    }
    return code;
}

static int run_everything(struct parent *parent)
{
    int code = prepare(parent);
    bool started = code == 0;
    if (code == 0)
        code = run_children(parent);
    if (code == 0)
        code = write_report(parent);
    as_spool_close(parent->spool, NULL);
    /* Before the first child there is nothing worth keeping. */
    if (code != 0 && !started) {
        remove_folder(parent->summary->work, DEPTH);
        parent->summary->work[0] = '\0';
    }
    return code;
}

int as_parent_run(const struct as_run_options *options, struct as_run_summary *summary,
                  struct as_error *error)
{
    *summary = (struct as_run_summary){0};
    struct parent parent = {.options = options, .summary = summary, .error = error};
    interrupted = 0;
    signal(SIGXFSZ, SIG_IGN);
    parent.name = as_calloc(error, options->strategies, sizeof parent.name[0], "strategies");
    int code = parent.name == NULL ? AS_ERR_MEMORY : check_output(options, error);
    if (code == 0)
        code = make_work_folder(&parent);
    if (code == 0)
        code = run_everything(&parent);
    free(parent.name);
    return code;
}
