/* The sorted tables that metrics are computed from. */
#ifndef AS_METRICS_INTERNAL_H
#define AS_METRICS_INTERNAL_H

#include "metrics.h"

struct as_loaded {
    struct as_row_request *requests; /* by run, then request */
    size_t request_count;
    struct as_row_step *steps; /* by run, then step */
    size_t step_count;
    size_t *first_request, *first_step; /* by index of the run; one more than runs */
};

/* The index of run `run` among the runs (sorted by number), or -1. */
ptrdiff_t as_metrics_run_index(const struct as_metrics *metrics, uint32_t run);

/* Steps of as_metrics_compute(). */
int as_metrics_add_strategies(struct as_metrics *metrics, struct as_error *error);
int as_metrics_add_launches(struct as_metrics *metrics, struct as_error *error);

#endif
