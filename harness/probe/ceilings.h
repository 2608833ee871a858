/* What the machine can do at most, measured by loops that do nothing else: memory read bandwidth,
 * and multiply-adds in the number formats that kernels use. Launches are related to these.
 *
 * Measured once a boot and kept in the cache folder.
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

/* Measures, or takes from the cache what this boot measured before: for 1 thread and for every
 * CPU. Returns how many were written to `ceiling` (AS_MAX_CEILINGS of room), or a negative code. */
int as_ceilings_get(struct as_ceiling *ceiling, struct as_error *error);

/* Puts them into /ceilings. */
int as_ceilings_write(struct as_spool *spool, struct as_error *error);

#endif
