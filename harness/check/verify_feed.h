/* Forced tokens through an engine, every sequence at its own pace, compared as they come out. */
#ifndef AS_VERIFY_FEED_H
#define AS_VERIFY_FEED_H

#include "check/verify.h"

/* One sequence: all positions, in chunks of these sizes in turn, each cut to what the strategy
 * and the step allow. */
struct as_feed {
    const int32_t *chunk;
    int32_t chunks;
    struct as_ref_logits *sum; /* last positions of its chunks are added here */
    int32_t turn, done;        /* private, 0 */
    int32_t sequence;          /* private, -1 */
};

struct as_feeder {
    struct as_bench *bench;
    const struct as_truth *truth;
    int32_t positions; /* of the truth, from its start */
    double noise;
    const char *what; /* for progress */
    const struct as_verify_progress *progress;
    /* Steps keep logits, or only their top-1 columns: then rows count here, not in a feed's sum. */
    bool columns_only;
    int32_t greedy_rows, greedy_flips, greedy_anomalies;
    int64_t column_faults;
};

/* Runs all feeds to their ends, as many at once as the strategy lets run; blocks that no sequence
 * owns are NaN when one starts. */
int as_feed_run(struct as_feeder *feeder, struct as_feed *feed, int32_t feeds,
                struct as_error *error);

#endif
