/* The engine: runs batches of tokens through a model, one step at a time.
 *
 * Who is in a batch is decided above (harness/schedule); the engine owns plans, weights, arena,
 * metadata and the KV cache. One thread drives it; the device's team does the work.
 */
#ifndef AS_ENGINE_H
#define AS_ENGINE_H

#include "engine/counters.h"
#include "engine/kv_pool.h"
#include "engine/metadata.h"
#include "engine/model.h"
#include "engine/planner.h"
#include "kernel.h"
#include "registry/registry.h"

struct as_engine;

struct as_engine_options {
    const struct as_model *model;
    struct assay_device *device;
    const struct as_registry *registry;
    const struct as_kernel_choice *choice;
    size_t choices;
    enum assay_dtype activations; /* class of the linears' inputs: F32, BF16, Q8 */
    enum assay_dtype kv;
    int32_t block_size;                    /* rows of a cache block */
    int64_t kv_blocks;                     /* of the whole cache */
    int32_t max_sequences;                 /* in a step, and open at once */
    int32_t max_tokens;                    /* in a step */
    int32_t context;                       /* most rows of a sequence */
    const struct assay_observer *observer; /* NULL in timing passes */
};

/* Everything that `options` points to must outlive the engine. */
int as_engine_create(const struct as_engine_options *options, struct as_engine **engine,
                     struct as_error *error);
void as_engine_free(struct as_engine *engine);

struct as_kv_pool *as_engine_pool(struct as_engine *engine);

/* Counts so far; memory figures are current. Valid until the engine is freed. */
const struct as_counters *as_engine_counters(struct as_engine *engine);
struct as_counters *as_engine_counters_mutable(struct as_engine *engine);
/* From here on events are counted from 0; what counters say of sizes stays. */
void as_engine_restart_counting(struct as_engine *engine);

struct as_step_result {
    uint64_t start_ns, end_ns; /* of submit's begin and collect's end */
    uint64_t device_start_ns, device_end_ns;
    struct as_metadata_cost metadata;
    int32_t tokens, sequences, logit_rows;
    const struct assay_top *top; /* (logit_rows), in batch order; valid until the next step */
    const float *logits;         /* (logit_rows, vocab) if they were kept, else NULL */
};

/* Starts a step. `keep_logits`: some row is not greedy. A batch without tokens launches nothing. */
int as_engine_submit(struct as_engine *engine, const struct as_batch *batch, bool keep_logits,
                     struct as_error *error);

/* Waits for the step that submit started and moves its sequences on. */
int as_engine_collect(struct as_engine *engine, struct as_step_result *result,
                      struct as_error *error);

/* Problems and variants met so far; launches refer to them by index. Interned only while there is
 * an observer. */
const struct assay_problem *as_engine_problem(const struct as_engine *engine, size_t index);
size_t as_engine_problem_count(const struct as_engine *engine);
const struct assay_variant *as_engine_variant(const struct as_engine *engine, size_t index);
size_t as_engine_variant_count(const struct as_engine *engine);

/* The last step's launches, for `assay plan` and tests. */
const struct assay_launch *as_engine_launches(const struct as_engine *engine, int32_t *count);

/* Calls visit(context, variant, problem) for every launch that a step of `shape` would make, with
 * distinct problems only; nothing runs. Used to check variants before they are timed. */
int as_engine_visit_problems(const struct as_engine_options *options,
                             const struct as_step_shape *shape,
                             int (*visit)(void *context, const struct assay_variant *variant,
                                          const struct assay_problem *problem),
                             void *context, struct as_error *error);

#endif
