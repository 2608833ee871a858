/* When requests are sent: all at once, when the workload says, or as earlier ones end.
 *
 * Sending has a thread of its own (pacer.h), so that a long step delays no arrival. Where the text
 * stage is inline the thread only rings; the engine's thread then does the work in
 * as_arrivals_work(), because that is what inline means: text work on the critical path.
 */
#ifndef AS_ARRIVALS_H
#define AS_ARRIVALS_H

#include "preprocess/stage.h"
#include "workload.h"

enum as_mode {
    AS_MODE_OFFLINE, /* every request at the start */
    AS_MODE_OPEN,    /* at `at_ns` after the start, or `delay_ns` after the request it waits for */
    AS_MODE_CLOSED   /* `concurrency` at a time, in order of arrival; chains as in open */
};

/* The mode called `name`, or -1. */
int as_mode_by_name(const char *name);
const char *as_mode_name(enum as_mode mode);

struct as_arrivals_options {
    enum as_mode mode;
    uint32_t concurrency; /* CLOSED: requests in flight, at least 1 */
    const struct as_workload *workload;
    const struct as_tokenizer *tokenizer; /* for prompts given by length; may be NULL without */
    struct as_stage *stage;
    bool inline_text; /* the stage works inside submit */
};

struct as_arrival {
    uint64_t scheduled_ns; /* when it should have been sent; UINT64_MAX = not known yet */
    uint64_t sent_ns;      /* when it was */
};

struct as_arrivals;

/* Prompts given by length are made here, before any clock runs. */
int as_arrivals_create(const struct as_arrivals_options *options, struct as_arrivals **arrivals,
                       struct as_error *error);
void as_arrivals_free(struct as_arrivals *arrivals); /* before the stage; NULL is fine */

/* Begins sending; `start_ns` is time 0 of the workload. */
int as_arrivals_start(struct as_arrivals *arrivals, uint64_t start_ns, struct as_error *error);

/* Request `index` has ended: what waits for it becomes due. */
int as_arrivals_ended(struct as_arrivals *arrivals, size_t index, uint64_t now_ns,
                      struct as_error *error);

/* Inline text only: prepares what is due, on the caller's thread; with `wait` blocks until
 * something is. Otherwise does nothing. */
int as_arrivals_work(struct as_arrivals *arrivals, bool wait, struct as_error *error);

/* Stamps of request `index`. Settled once its result was taken from the stage. */
struct as_arrival as_arrivals_stamp(struct as_arrivals *arrivals, size_t index);

/* A failure on the sending thread, if there was one. */
int as_arrivals_failed(struct as_arrivals *arrivals, struct as_error *error);

#endif
