/* The reference's logits of one model over one text: computed once, shared by all strategies. */
#ifndef AS_VERIFY_TRUTH_H
#define AS_VERIFY_TRUTH_H

#include "engine/model.h"

struct as_truth {
    int64_t vocabulary;
    int32_t positions;
    const int32_t *token; /* (positions); the caller's, must stay */
    double *logits;       /* (positions, vocabulary) */
    double *margin;       /* (positions): top-1 minus top-2 */
    double rms;           /* root mean square of all logits */
    double seconds;       /* that it took */
};

/* How far a long piece of work has come; called from any thread. */
struct as_verify_progress {
    void (*show)(void *context, const char *what, uint64_t done, uint64_t total); /* may be NULL */
    void *context;
};

/* In double, from the file's dequantised weights; keys and values stay in double whatever a
 * strategy's cache keeps. On failure nothing is left to free. */
int as_truth_compute(const struct as_model *model, const int32_t *token, int32_t positions,
                     const struct as_verify_progress *progress, struct as_truth *truth,
                     struct as_error *error);
void as_truth_free(struct as_truth *truth);

/* The share of the first `positions` positions whose margin is at most `noise`. */
double as_truth_below(const struct as_truth *truth, int32_t positions, double noise);

#endif
