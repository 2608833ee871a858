/* One replay: a workload's requests go through text stage, scheduler and engine, and everything
 * that happens is written down. */
#ifndef AS_SESSION_H
#define AS_SESSION_H

#include "preprocess/stage.h"
#include "probe/recorder.h"
#include "replay/arrivals.h"
#include "replay/bench.h"
#include "workload.h"

struct as_session_options {
    struct as_bench *bench;
    const struct as_workload *workload;
    const struct as_tokenizer *tokenizer; /* NULL where only token ids come */
    const struct as_template *chat;       /* NULL where no messages come */
    struct as_recorder *recorder;
    uint32_t run;
    enum as_mode mode;
    uint32_t concurrency; /* closed mode: requests in flight */
    /* Called about ten times a second with requests done; may be NULL. */
    void (*progress)(void *context, size_t done, size_t total);
    void *progress_context;
};

struct as_session_summary {
    uint64_t first_step_ns; /* start of the first step, which is of the warm-up */
    uint64_t start_ns, end_ns;
    size_t done, failed;
    char first_failure[1200]; /* of a request that failed: id and reason */
    char not_the_load[256];   /* open mode: why the run does not show the workload's load, or "" */
};

/* Runs the whole workload. A request that fails is recorded as such and the others go on; an error
 * is returned only when the replay itself cannot go on. */
int as_session_run(const struct as_session_options *options, struct as_session_summary *summary,
                   struct as_error *error);

/* Rows of cache that the longest request of `workload` can need, text counted as a token a byte. */
int32_t as_session_context(const struct as_workload *workload);

#endif
