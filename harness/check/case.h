/* A problem with data: seeded inputs in the tested dtypes, and what must come out, in double. */
#ifndef AS_CASE_H
#define AS_CASE_H

#include "check/batch.h"
#include "kernel.h"

struct as_case_options {
    uint64_t seed;
    bool oddities;  /* batches with padding rows, empty sequences and the like */
    bool anomalies; /* NaN in one row, and all over the padding rows */
    /* Multiply-adds that truth may cost, roughly; 0 = no limit. Over it, linear gets fewer
     * output columns (the same remainder mod 32), other ops fewer rows, attention shorter histories
     * for all but its longest sequence, and truth is computed for a sample of rows. */
    double work;
};

enum as_case_role { AS_CASE_INPUT, AS_CASE_WEIGHT, AS_CASE_OUTPUT };

/* An operand of the launch, in the launch's order. */
struct as_case_operand {
    char name[48]; /* "x", "weight of rms_norm" */
    enum as_case_role role;
    int32_t node; /* first reader of an input, owner of a weight, producer of an output */
    enum assay_dtype dtype;
    int64_t rows, columns;
    void *stored;     /* inputs and weights: dense rows */
    double *expected; /* outputs: (samples, numbers); NULL in a part */
    int64_t numbers;  /* a row's: its columns, or the 5 fields of struct assay_top */
};

/* The cache before the launch, and the rows that kv_write must put into it. */
struct as_case_cache {
    enum assay_dtype dtype;
    int32_t block_size, kv_heads, head_dim;
    int64_t blocks;
    size_t bytes;          /* of k, and of v */
    uint8_t *k, *v;        /* poison wherever no live row is */
    double *new_k, *new_v; /* (tokens, kv_heads, head_dim), rounded to the dtype; or NULL */
    uint64_t seed_k, seed_v;
};

struct as_case {
    struct assay_problem problem; /* sizes as the batch has them */
    struct as_check_batch batch;
    struct as_case_operand operand[ASSAY_MAX_OPERANDS];
    int32_t operands;
    bool uses_metadata, uses_cache, writes_cache, anomalies;
    bool padding_unjudged; /* what attention leaves in rows of nobody is its own business */
    struct as_case_cache cache;
    int32_t *sample; /* rows whose truth is known, ascending */
    int64_t samples;
    bool truth; /* expected, sample and the cache's new rows are there */
    bool borrows_inputs, borrows_weights, borrows_cache; /* of the case it was derived from */
};

/* Builds the data and computes the truth. `problem` needs its op, dtypes, fixed dimensions, tokens
 * and context; what follows from the batch is filled in. A context of 0 is meant (attention). */
int as_case_make(struct as_case *made, const struct assay_problem *problem,
                 const struct as_case_options *options, struct as_error *error);
void as_case_free(struct as_case *made);

/* The case of one sequence of `whole` alone, without truth: to be compared with the whole. */
int as_case_part(struct as_case *part, const struct as_case *whole, int32_t sequence,
                 struct as_error *error);

/* Another step of the same sequences: as many queries and the same inputs, but fewer rows of
 * history in the cache, as far as there were any. With its own truth. */
int as_case_shorter(struct as_case *shorter, const struct as_case *whole, struct as_error *error);

/* Allocates and fills the cache for the case's batch, from the seeds in made->cache. */
int as_case_fill_cache(struct as_case *made, struct as_error *error);

/* What the problem says of a step follows from the batch. */
void as_case_set_sizes(struct as_case *made);

/* Computes `expected` of every output and the cache's new rows (expect.c). */
int as_case_expect(struct as_case *made, struct as_error *error);

/* The operand that is the first output, or -1. */
int32_t as_case_first_output(const struct as_case *made);

/* What a kernel may deviate by in the output of pattern node `node`. */
struct assay_tolerance as_case_tolerance(const struct as_case *made, int32_t node);

/* Columns of input `slot` of an op, and of its output. */
int64_t as_case_input_columns(const struct assay_shape *shape, int32_t slot);
int64_t as_case_output_columns(const struct assay_shape *shape);

#endif
