/* When is an answer right? Plain data in, plain data out; nothing allocates and nothing fails.
 *
 * Three things at once, because each is blind to what another sees: anomalies (NaN and infinities
 * stand in the same places), elements (|d| <= a + r |ref|: one wrong value among millions), and a
 * global distance (many values slightly and systematically off).
 */
#ifndef AS_REF_COMPARE_H
#define AS_REF_COMPARE_H

#include <stdbool.h>
#include <stdint.h>

struct as_ref_limits {
    double absolute; /* a */
    double relative; /* r */
    double nmse;     /* limit on sum d^2 / sum ref^2 */
    double cosine;   /* limit on 1 - cos(ref, got) */
    int64_t depth;   /* K of a matrix product: a is multiplied by sqrt(K); 0 or 1 elsewhere */
};

/* Sums are kept so that comparisons can be added up (as_ref_compare_add): a rung is judged by its
 * error over an op's whole suite. Zero it before the first use. */
struct as_ref_comparison {
    int64_t count;      /* elements seen */
    int64_t finite;     /* of these, finite on both sides */
    int64_t anomalies;  /* elements that are NaN, +inf or -inf on one side only */
    int64_t over;       /* finite elements with |d| > a + r |ref| */
    int64_t worst;      /* index of the first anomaly, else of the largest ratio; -1 if none */
    double worst_ratio; /* max |d| / (a + r |ref|): max-to-threshold; inf where a = 0 = ref */
    double worst_ref, worst_got;
    double max_error;  /* max |d| */
    double sum_error2; /* sum d^2 over elements finite on both sides */
    double sum_ref2, sum_got2;
    double nmse;   /* 0 where both are all zeros, inf where only the reference is */
    double cosine; /* 1 - cos; 0 where both are all zeros, 1 where one is */
    double rms;    /* sqrt(mean d^2) */
    bool pass;
};

/* ref, got (count). Equal inputs pass under limits of 0; limits of 0 demand equality. */
struct as_ref_comparison as_ref_compare(const double *ref, const double *got, int64_t count,
                                        const struct as_ref_limits *limits);

/* total += part. `worst` then is an index within the part that had the worst element; `pass` is
 * whether all parts passed (an empty total counts as passed). */
void as_ref_compare_add(struct as_ref_comparison *total, const struct as_ref_comparison *part);

/* The rule between rungs of one activation class over the same suite: the rung's RMS error is at
 * most twice the naive rung's, where errors under 2 ulp of the reference's RMS value count as
 * 2 ulp. `ulp` is relative to 1: 2^-23 for float32 outputs, 2^-7 for bf16. */
bool as_ref_compare_rungs(const struct as_ref_comparison *naive,
                          const struct as_ref_comparison *rung, double ulp);

/* Teacher-forced logits of a whole model, added up row by row. Zero it before the first row.
 * The averages at the end are kept current by every addition. */
struct as_ref_logits {
    int64_t rows, judged; /* positions; of these without an anomaly */
    int64_t count;        /* logits finite on both sides */
    int64_t anomalies;    /* logits non-finite on either side */
    int64_t agreements;   /* rows whose top-1 ids agree */
    int64_t flips;        /* rows whose ids differ where the reference's margin > noise */
    int64_t below;        /* rows whose reference margin <= noise: flips there mean nothing */
    int64_t first_flip;   /* row of the first such flip; means nothing while flips is 0 */
    int64_t worst_row, worst_id;
    double max_error; /* max |d|, at (worst_row, worst_id) */
    double sum_error2, sum_kl;
    double rms; /* sqrt(mean d^2) over finite logits */
    double kl;  /* mean over rows of KL(softmax ref || softmax got), nats */
    double kl_max;
    double agreement, below_share; /* shares of rows */
};

/* ref, got (vocabulary): one more position. A row with an anomaly counts in `rows` and
 * `anomalies` alone: it agrees with nothing and has no KL. */
void as_ref_logits_add(struct as_ref_logits *sum, const double *ref, const float *got,
                       int64_t vocabulary, double noise);

/* Which parts of the rule failed. */
enum as_ref_logits_fault {
    AS_REF_LOGITS_ANOMALY = 1, /* a non-finite logit */
    AS_REF_LOGITS_FLIP = 2,    /* a top-1 flip where the margin exceeds the noise */
    AS_REF_LOGITS_RMS = 4,     /* RMS |d| > 2 x the naive rung's */
    AS_REF_LOGITS_BELOW = 8,   /* too many positions below the noise to judge by */
    AS_REF_LOGITS_EMPTY = 16   /* nothing was compared */
};

/* The rule of `verify`: 0 = pass, else a set of the faults above. naive_rms is the RMS error of
 * the naive rung for the same (model, weights, activations, kv); noise = 4 naive_rms is what the
 * rows were added with. below_limit is a share of rows. */
unsigned as_ref_logits_judge(const struct as_ref_logits *sum, double naive_rms, double below_limit);

#endif
