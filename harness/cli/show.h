/* Parts of assay show. */
#ifndef AS_SHOW_H
#define AS_SHOW_H

#include <stdbool.h>
#include <stdio.h>

#include "metrics.h"

struct as_show {
    struct as_report *report;
    struct as_metrics metrics;
    FILE *stream;
    bool colour;
    bool runs; /* list every run */
    bool all;  /* print every row of every table */
};

/* How the strategies are ranked: by what, and how far apart. */
struct as_show_ranking {
    bool by_latency;           /* by E2E p50 (open mode, where arrivals set the rate) */
    bool by_requests;          /* by requests/s (nothing made tokens) */
    size_t count;              /* strategies with a value */
    size_t *order;             /* indices of strategies, the fastest first; freed by the caller */
    struct as_over_runs *over; /* by index of the strategy; values freed by the caller */
};
int as_show_rank(const struct as_metrics *metrics, struct as_show_ranking *ranking,
                 struct as_error *error);
void as_show_ranking_free(const struct as_metrics *metrics, struct as_show_ranking *ranking);

/* What the last `assay verify` of a strategy's plan on the report's model said. */
struct as_show_verify {
    bool found, passed;
    long long time; /* seconds since 1970, UTC */
    char words[512];
};
void as_show_find_verify(const struct as_show *show, const struct as_strategy_metrics *strategy,
                         struct as_show_verify *verify);

int as_show_text(const struct as_show *show, struct as_error *error);
int as_show_json(const struct as_show *show, struct as_error *error);

#endif
