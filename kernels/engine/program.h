/* A model's program: a list of ops in SSA form, planned later into launches.
 *
 * Side effects are values too: kv_write returns a version of the layer's cache that attention
 * reads, so that order follows from the values alone.
 */
#ifndef AS_PROGRAM_H
#define AS_PROGRAM_H

#include "engine/model.h"
#include "kernel.h"

/* What a value has a row for. */
enum as_rows { AS_ROWS_TOKENS, AS_ROWS_LOGITS, AS_ROWS_EFFECT };

struct as_value {
    const char *name;
    enum as_rows rows;
    int64_t columns;
    enum assay_dtype dtype;
    int32_t producer; /* node, -1 for the program's input */
    int32_t readers;  /* nodes that read it, once for each input */
    bool kept;        /* read after the step: must stay in memory */
};

#define AS_NO_VALUE (-1)

struct as_node {
    struct assay_shape shape; /* tokens, sequences and context are filled in for each step */
    int32_t input[4];         /* as many as the op has */
    int32_t effect;           /* the cache version that it must come after, or AS_NO_VALUE */
    int32_t output;
    const struct as_tensor *weight; /* NULL where the op has none */
    int32_t layer;                  /* -1 outside the layers */
};

/* Value 0 is the token ids (tokens) i32. */
struct as_program {
    struct as_node *node;
    size_t nodes, node_capacity;
    struct as_value *value;
    size_t values, value_capacity;
    int32_t logits; /* (logit rows, vocab) */
    int32_t top;    /* (logit rows) struct assay_top */
};

struct as_program_options {
    enum assay_dtype activations; /* class of the linears' inputs */
    enum assay_dtype kv;
    int32_t block_size;
    bool keep_logits; /* some row is sampled from its logits, not greedily */
};

/* The program of a model of family `llama`. Free with as_program_free(). */
int as_program_llama(const struct as_model *model, const struct as_program_options *options,
                     struct as_program **program, struct as_error *error);
void as_program_free(struct as_program *program);

#endif
