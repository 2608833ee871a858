/* /utilization rows of a run, made from its steps and launches: stretches of 10 ms, or of a
 * doubling of it when the run is so long that there would be too many. */
#ifndef AS_TIMELINE_H
#define AS_TIMELINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "as_error.h"
#include "schema.h"

#define AS_TIMELINE_BINS 4096

struct as_timeline_bin {
    double work_ns;
    uint32_t queue_depth, sequences, kv_blocks; /* unknown until seen */
};

struct as_timeline {
    struct as_timeline_bin *bins; /* AS_TIMELINE_BINS of them, made with the first event */
    size_t used;
    uint64_t base, width, last; /* start of the first bin; of one bin; end of the last event */
    bool launches;              /* some launch was added: busy shares are known */
};

/* Starts over; `base` (unknown = the first event's start) is where the first stretch begins. */
void as_timeline_start(struct as_timeline *line, uint64_t base);

int as_timeline_step(struct as_timeline *line, const struct as_row_step *step,
                     struct as_error *error);
int as_timeline_launch(struct as_timeline *line, const struct as_row_launch *launch,
                       struct as_error *error);

/* The row of bin `index` (below `used`) for a team of `threads` (0 = not known). */
void as_timeline_row(const struct as_timeline *line, size_t index, uint32_t run, uint32_t threads,
                     struct as_row_utilization *row);

void as_timeline_free(struct as_timeline *line);

#endif
