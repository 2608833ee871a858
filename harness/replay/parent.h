/* `run`: one fresh child a (strategy, repetition, pass), one at a time, then one report. */
#ifndef AS_PARENT_H
#define AS_PARENT_H

#include "replay/job.h"
#include "workload.h"

struct as_run_options {
    const char *model, *workload, *output;
    const char *const *strategy; /* names or paths */
    size_t strategies;
    const char *const *set; /* applied to every strategy */
    size_t sets;
    uint64_t limit;            /* first rows of the workload; 0 = all */
    uint32_t repeat;           /* timing passes of each strategy, at least 1 */
    uint32_t traced;           /* traced passes of each strategy, at the end */
    const char *chat_template; /* NULL = recognised by digest */
    const char *mode;          /* "offline", "open" or "closed" */
    uint32_t concurrency;      /* closed: requests in flight, at least 1 */
    const char *command_line;  /* for the report */
    /* Called as a run goes on: `what` is "naive, timing 1 of 2"; done and total count requests
     * (total 0: a phase without a count). May be NULL. */
    void (*progress)(void *context, const char *what, size_t done, size_t total);
    void *progress_context;
};

struct as_run_summary {
    uint32_t runs, invalid;
    char first_failure[1024]; /* of a child, or "" */
    char work[4096];          /* the work folder, where it was kept; else "" */
};

/* Runs it all and writes options->output. Returns 0 also when some children failed: they are in
 * the report as invalid runs, and counted. An error means that there is no report; what was
 * recorded stays in summary->work for `assay recover`. */
int as_parent_run(const struct as_run_options *options, struct as_run_summary *summary,
                  struct as_error *error);

/* Asks a run in progress to end after killing its child; safe in a signal handler. */
void as_parent_interrupt(void);

#endif
