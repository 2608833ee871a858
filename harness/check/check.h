/* Is a variant right? Poisoned runs against the reference in double.
 *
 * Every run starts with outputs and scratch full of NaN, guard bytes around every buffer, dead
 * rows of the cache NaN, dead entries of block tables pointing at a dead block or far outside.
 * Each case is run dense and with gaps between misaligned rows, by teams of one, two and three
 * threads, twice each, one thread of the team late at every barrier; and once more with all that
 * is only read lying at the end of accessible memory. What comes out is compared in three parts
 * (reference/compare.h), exactly where the op only moves data.
 *
 * Beyond that a variant keeps its word: DETERMINISTIC (the second run gives the same bits),
 * BATCH_INVARIANT (a sequence alone gives the bits it gave in company), IN_PLACE (the output may
 * be the first input), and refresh() (a plan serves the next step of its size).
 *
 * The device must be idle meanwhile. On the CPU all of it runs in a forked process, so that a
 * variant that crashes or never ends is a failed check with a name and not the end of assay. In
 * the environment ASSAY_CHECK_INLINE=1 stays in the process, for debuggers;
 * ASSAY_CHECK_SECONDS=n is how long one case may take (60).
 */
#ifndef AS_CHECK_H
#define AS_CHECK_H

#include "compare.h"
#include "registry/registry.h"

struct as_check_result {
    bool passed;
    char reason[1024];              /* why not: variant, shape, operand, place, what was found */
    int32_t problems;               /* cases that were built */
    int32_t runs;                   /* launches that were judged */
    double ratio;                   /* the largest error as a share of what is allowed */
    char worst[160];                /* the problem that had it, in words */
    struct as_ref_comparison total; /* sums over all outputs */
    double rms, rms_ulp; /* root mean square error; in ulps of the outputs' root mean square */
    char naive[64];      /* of a suite: what the RMS was held against, "" where nothing was */
    double naive_rms, naive_rms_ulp;
    double seconds;
};

/* Checks one problem in full: its size, an odd smaller size, and its rows with NaN among them.
 * Returns 0 when the check could be made; result->passed then says how it ended. A problem that
 * the variant does not support is AS_ERR_UNSUPPORTED with the variant's reason. `problem` needs
 * its ops, dtypes, fixed dimensions, tokens and context. */
int as_check_variant(const struct assay_variant *variant, const struct assay_problem *problem,
                     struct assay_device *device, struct as_check_result *result,
                     struct as_error *error);

/* Checks one class of problems (stamps.h) at a bounded price, some milliseconds, by the device's
 * own number of threads: its size dense, twice, and an odd size with rows apart, once. Where truth
 * would cost more than some 200,000 multiply-adds, linear is checked on fewer output columns (all
 * of k, the same remainder mod 32), attention with a long history for its longest sequence alone,
 * other ops on fewer rows, and truth is computed for a sample of rows that holds the first, the
 * last and the dearest one; of the other rows it is only asked that they were written and are
 * finite. */
int as_check_class(const struct assay_variant *variant, const struct assay_problem *problem,
                   struct assay_device *device, struct as_check_result *result,
                   struct as_error *error);

/* Checks the op's whole suite in all dtypes that the variant serves (of a cover: shapes made from
 * the suite of its weightiest op), and holds the RMS error of each activation class against that
 * of the class's naive rung on the same problems: at most twice as much, where 2 ulp count as
 * nothing. A variant that has no naive rung beside it is held to its tolerance alone, and
 * result->naive stays empty. */
int as_check_suite(const struct as_registry *registry, const struct assay_variant *variant,
                   struct assay_device *device, struct as_check_result *result,
                   struct as_error *error);

/* The problems of that suite that `variant` supports on `device`; freed with free(). `skipped`
 * (may be NULL) counts those it refused. */
int as_check_suite_problems(const struct assay_variant *variant, const struct assay_device *device,
                            struct assay_problem **problems, size_t *count, size_t *skipped,
                            struct as_error *error);

#endif
