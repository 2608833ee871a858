/* What the machine can do at most, measured by loops that do nothing else: memory read bandwidth,
 * and multiply-adds in the number formats that kernels use. Launches are related to these.
 *
 * The best of this boot's measurements, which the cache folder keeps, stands.
 */
#ifndef AS_CEILINGS_H
#define AS_CEILINGS_H

#include "spool.h"

struct as_ceiling {
    char name[32];  /* "bandwidth_read", "compute_f32", "compute_q8" */
    char units[16]; /* "B/s", "FLOP/s"; an integer multiply-add counts as two, too */
    int32_t threads;
    double value;
    uint64_t measured; /* ns on CLOCK_MONOTONIC of this boot */
};

#define AS_MAX_CEILINGS 16

/* Measures (a third of a second) for 1 thread and for every CPU. Returns how many were written to
 * `ceiling` (AS_MAX_CEILINGS of room), or a negative code. */
int as_ceilings_get(struct as_ceiling *ceiling, struct as_error *error);

/* Puts them into /ceilings. */
int as_ceilings_write(struct as_spool *spool, struct as_error *error);

#endif
