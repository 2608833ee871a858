/* Is a whole model right under a strategy? Teacher-forced: the same tokens go through the engine
 * and through the reference in double, and the logits are compared position by position.
 *
 * Each position is compared after a decode step of its own token. In the same steps two more
 * sequences of the same tokens prefill, one in chunks of many sizes and one in the largest chunks
 * that the strategy allows; the last position of every chunk is compared. A fourth pass runs
 * without keeping logits, as all-greedy steps do, and its top-1 ids are compared. Dead rows of the
 * cache are NaN throughout.
 *
 * The rule (design.md, section 6): no non-finite logit; no top-1 flip where the reference's margin
 * exceeds the noise; RMS |d| at most twice the naive rung's, over all rows and over those of decode
 * and of prefill alone; few enough positions below the noise (noise.h).
 */
#ifndef AS_VERIFY_H
#define AS_VERIFY_H

#include "check/noise.h"
#include "check/verify_text.h"
#include "check/verify_truth.h"
#include "compare.h"
#include "replay/bench.h"

#define AS_VERIFY_POSITIONS 64
#define AS_VERIFY_MOST_POSITIONS 256

struct as_verify_options {
    const char *model;      /* path or synthetic:... */
    const char *const *set; /* of every strategy */
    size_t sets;
    int32_t positions;  /* 0 = AS_VERIFY_POSITIONS, or the model's context where that is shorter */
    const char *prompt; /* NULL = the built-in text */
    size_t prompt_length;
    struct as_verify_progress progress;
    /* Called with a bench before its engine is made, so that tests can add variants to the
     * registry. May be NULL. */
    int (*prepare)(void *context, struct as_bench *bench, struct as_error *error);
    void *prepare_context;
};

/* Faults beyond enum as_ref_logits_fault. */
enum as_verify_fault {
    AS_VERIFY_COLUMNS = 32, /* top-1 id, logit or count of non-finite ones is not the logits' */
};

struct as_verify_result {
    char strategy[64];
    char plan_digest[17];
    struct as_noise_key key;
    struct as_noise noise;
    struct as_ref_logits decode, prefill;                /* rows of each way */
    struct as_ref_logits all;                            /* both */
    int32_t greedy_rows, greedy_flips, greedy_anomalies; /* of the pass without logits */
    int64_t column_faults;
    double naive_rms; /* the noise's, or what rounding logits to float32 costs if that is more */
    double below, below_limit; /* share of positions below the noise */
    unsigned faults;           /* 0 = pass */
    double seconds;
};

/* A model, what it is fed, and the truth about it. */
struct as_verify {
    struct as_verify_options options;
    struct as_model *model;
    uint64_t digest;
    struct as_verify_text text, standard;  /* standard: what noise is measured on */
    struct as_truth truth, standard_truth; /* computed when first needed */
    int32_t positions;
};

/* Opens the model and picks the tokens; nothing is computed yet. What `options` points to must
 * outlive it. On failure nothing is left open. */
int as_verify_open(const struct as_verify_options *options, struct as_verify *verify,
                   struct as_error *error);
void as_verify_close(struct as_verify *verify);

/* What is fed: "the built-in text", "seeded ids" or "the prompt". */
const char *as_verify_origin(const struct as_verify *verify);

/* Whether `strategy` could run here, without running it. */
int as_verify_check(struct as_verify *verify, const char *strategy, struct as_error *error);

/* Runs `strategy` and judges it. Returns 0 when it could be judged, whatever the verdict. */
int as_verify_strategy(struct as_verify *verify, const char *strategy,
                       struct as_verify_result *result, struct as_error *error);

/* The rule alone: result->faults, from everything else in it. Sets `all` too. */
void as_verify_judge(struct as_verify_result *result);

/* Runs the naive rung with the key's weights, activations and cache over the standard text. An
 * error that is too large to be rounding is AS_ERR_WRONG. */
int as_verify_measure(struct as_verify *verify, const struct as_noise_key *key,
                      struct as_noise *noise, struct as_error *error);

/* What failed, in words, one clause a fault; "" when nothing did. */
void as_verify_words(const struct as_verify_result *result, char *words, size_t size);

/* ---- the last result of a (model, plan digest) --------------------------------------------- */

/* Kept as JSON in "<cache folder>/verify/<model digest, 16 hex digits>-<plan digest>.json", written
 * by `assay verify`; <cache folder> is $XDG_CACHE_HOME/assay or $HOME/.cache/assay. */
struct as_verify_last {
    bool passed;
    int32_t positions;
    char text[32]; /* "the built-in text" */
    double rms, naive_rms, max_error, kl, agreement, below;
    int64_t flips;
    int64_t time;    /* seconds since 1970, UTC */
    char build[64];  /* as_build_id() of the assay that judged */
    char words[512]; /* what failed */
};

int as_verify_keep(const struct as_verify *verify, const struct as_verify_result *result,
                   struct as_error *error);

/* 0 = found. AS_ERR_IO without a message = never verified; AS_ERR_DATA: an entry that this build
 * cannot read. */
int as_verify_last(uint64_t model_digest, const char *plan_digest, struct as_verify_last *last,
                   struct as_error *error);

#endif
