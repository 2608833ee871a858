/* A fixed team of threads that all enter one function at a time.
 *
 * Thread 0 is the caller. Waiting spins for up to 20 us, which is about the time a futex wake
 * takes on a virtual machine, and sleeps after that, so that an idle team costs nothing.
 */
#ifndef AS_TEAM_H
#define AS_TEAM_H

#include "kernel.h"

struct as_team;

/* Starts `threads` - 1 threads (1 to 256 in all). `cpus` pins thread i to cpus[i]; NULL pins
 * nothing. as_team_free() joins them and lets the caller run where it could before, so it belongs
 * on the thread that created the team; NULL is fine. */
int as_team_create(struct as_team **team, int32_t threads, const int32_t *cpus,
                   struct as_error *error);
void as_team_free(struct as_team *team);

int32_t as_team_threads(const struct as_team *team);

/* Runs work(context, exec) on every thread and returns when all have finished. */
void as_team_run(struct as_team *team, void (*work)(void *context, const struct assay_exec *exec),
                 void *context);

/* Runs work(context) on the caller alone, not pinned meanwhile: threads inherit the pin of the one
 * that starts them, and those that are not the team's would crowd thread 0's CPU. */
void as_team_unpinned(struct as_team *team, void (*work)(void *context), void *context);

/* The team's barrier, for inside as_team_run(). While timing is on, the time spent here is added
 * to the thread's account. */
void as_team_barrier(const struct assay_exec *exec);

/* The same, uncounted: for whoever runs launches, so that recording them changes no counter. */
void as_team_meet(const struct assay_exec *exec);

void as_team_set_timing(struct as_team *team, bool on);

/* Nanoseconds that exec->thread has spent in barriers since the last call; resets to 0. */
uint64_t as_team_take_wait(const struct assay_exec *exec);

/* Region entries and barriers since the team was created. */
void as_team_counts(const struct as_team *team, uint64_t *regions, uint64_t *barriers);

#endif
