/* The child protocol: `assay child DIR` reads DIR/job.json, writes spools, and last, by rename,
 * DIR/done.json. Both are versioned; a job's unknown keys are refused, so that a misspelt one is not
 * silently a default. */
#ifndef AS_JOB_H
#define AS_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "as_error.h"

#define AS_PROTOCOL 1
#define AS_JOB_SETS 64

enum as_pass { AS_PASS_TIMING, AS_PASS_TRACED };

struct as_job {
    uint32_t run, repetition, order;
    enum as_pass pass;
    uint64_t limit;            /* first rows of the workload; 0 = all */
    const char *model;         /* path or synthetic:... */
    const char *workload;      /* path */
    const char *strategy;      /* name or path */
    const char *chat_template; /* NULL = by digest */
    const char *mode;          /* "offline", "open" or "closed" */
    uint32_t concurrency;      /* closed: requests in flight */
    const char *set[AS_JOB_SETS];
    uint32_t sets;
    void *storage; /* what the strings point into after as_job_read() */
};

/* Writes DIR/job.json. */
int as_job_write(const struct as_job *job, const char *folder, struct as_error *error);

/* Reads and checks DIR/job.json; release with as_job_free(). */
int as_job_read(struct as_job *job, const char *folder, struct as_error *error);
void as_job_free(struct as_job *job);

/* What a child says at its end. */
struct as_done {
    int32_t exit;
    char build_id[64];
    char plan_digest[17];
    char message[1024]; /* why it failed, or why its run is not valid, or "" */
    char *strategy;     /* resolved, as YAML; the reader frees it */
};

int as_done_write(const struct as_done *done, const char *folder, struct as_error *error);

/* AS_ERR_IO without a message when there is no done.json: the child did not finish. */
int as_done_read(struct as_done *done, const char *folder, struct as_error *error);

#endif
