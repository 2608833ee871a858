/* What a run left in outputs and cache, against the truth and against other runs. */
#ifndef AS_JUDGE_H
#define AS_JUDGE_H

#include "check/setup.h"
#include "compare.h"

/* Compares outputs and the cache's new rows with the truth and adds to `total`. The first fault
 * goes into `complaint`. */
int as_judge_truth(const struct as_setup *setup, struct as_ref_comparison *total,
                   struct as_complaint *complaint, struct as_error *error);

/* All output rows and, where the case writes it, the cache, dense; freed with free(). */
struct as_outcome {
    uint8_t *bytes;
    size_t size;
};

int as_outcome_keep(struct as_outcome *outcome, const struct as_setup *setup,
                    struct as_error *error);

/* Whether `setup` holds the same bits as `outcome` of the same case. If not, `complaint` says
 * where, then `what`: "differs between two runs". Padding rows that are not judged are skipped. */
void as_judge_same(const struct as_setup *setup, const struct as_outcome *outcome, const char *what,
                   struct as_complaint *complaint);

/* Whether the outputs of `part`, sequence `sequence` of the case that `outcome` was kept from, are
 * the bits that they were there. */
void as_judge_part(const struct as_setup *part, const struct as_case *whole,
                   const struct as_outcome *outcome, int32_t sequence,
                   struct as_complaint *complaint);

#endif
