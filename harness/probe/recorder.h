/* Writing down what a run did: requests, steps, step rows, and in traced passes every launch.
 *
 * One spool a thread of the team, so that recording takes no lock. Thread 0 is the engine's
 * driver and writes everything but the other threads' parts of launches.
 */
#ifndef AS_RECORDER_H
#define AS_RECORDER_H

#include "engine/engine.h"
#include "schema.h"
#include "spool.h"

struct as_recorder;

struct as_recorder_options {
    const char *folder; /* the child's; spools are created there */
    uint32_t run;
    int32_t threads;
    bool traced; /* record launches */
};

int as_recorder_create(const struct as_recorder_options *options, struct as_recorder **recorder,
                       struct as_error *error);

/* Closes the spools. Returns the first failure of any of them. NULL is fine. */
int as_recorder_close(struct as_recorder *recorder, struct as_error *error);

/* The observer for the engine, or NULL in a pass that is not traced. */
const struct assay_observer *as_recorder_observer(const struct as_recorder *recorder);

/* Thread 0's spool, for rows and strings of the replay. */
struct as_spool *as_recorder_spool(struct as_recorder *recorder);

/* Launches are recorded, as part of step `step`, only while recording is on; warm-up is off.
 * Makes room for the step's launches, so that recording them calls no system function. */
int as_recorder_begin_step(struct as_recorder *recorder, uint32_t step);
void as_recorder_end_step(struct as_recorder *recorder);

/* Writes the problems and variants that the engine met since the last call. */
int as_recorder_tables(struct as_recorder *recorder, const struct as_engine *engine,
                       struct as_error *error);

/* Writes every engine counter. */
int as_recorder_counters(struct as_recorder *recorder, struct as_engine *engine);

/* The first failure of any spool so far, 0 without one. */
int as_recorder_failed(const struct as_recorder *recorder, struct as_error *error);

/* Measured cost of recording one launch on one thread, in nanoseconds: the median of many calls
 * of the observer on a spool of its own in `folder`, which is removed again. */
double as_recorder_cost(const char *folder);

#endif
