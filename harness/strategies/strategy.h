/* Strategies: one point of the compared space, read from YAML and resolved completely.
 *
 * Shipped strategies are embedded in the binary, so a name means what this build means by it.
 * Every field can be overridden by `field=value`; what came out is written back as YAML, which
 * goes into the report, and its digest with it.
 */
#ifndef AS_STRATEGY_H
#define AS_STRATEGY_H

#include <stdbool.h>

#include "engine/planner.h"
#include "kernel.h"

#define AS_MAX_CHOICES 32

enum as_execution { AS_EAGER, AS_CAPTURED };
enum as_metadata_mode { AS_METADATA_PER_LAYER, AS_METADATA_PER_STEP, AS_METADATA_CACHED };
enum as_layout { AS_LAYOUT_PADDED, AS_LAYOUT_PACKED };
enum as_batching { AS_BATCH_STATIC, AS_BATCH_DYNAMIC, AS_BATCH_CONTINUOUS };
enum as_preprocess { AS_PREPROCESS_INLINE, AS_PREPROCESS_ASYNC };

struct as_strategy {
    char name[64];
    char question[256]; /* what comparing it answers */

    int32_t backend;   /* enum assay_backend */
    int32_t execution; /* enum as_execution */
    int32_t metadata;  /* enum as_metadata_mode */
    int32_t layout;    /* enum as_layout */

    int32_t batching;         /* enum as_batching */
    int32_t max_batch_size;   /* sequences in a step */
    int32_t max_batch_tokens; /* tokens in a step */
    int32_t chunk_tokens;     /* most prompt tokens of one sequence in a step */

    int32_t weights;     /* enum assay_dtype, ASSAY_NONE = as stored in the file */
    int32_t activations; /* enum assay_dtype: F32, BF16, Q8 */
    int32_t kv;          /* enum assay_dtype */

    int32_t block_size; /* rows of a cache block */
    int32_t kv_blocks;  /* of the cache; 0 = as many as max_batch_size contexts need */
    int32_t context;    /* most rows of a sequence; 0 = the model's */

    int32_t preprocess;         /* enum as_preprocess */
    int32_t preprocess_threads; /* of the text stage, when async */
    int32_t preprocess_queue;   /* requests that may wait for it */

    int32_t threads; /* of the team; 0 = one a CPU */
    int32_t affinity_count;
    int32_t affinity[256]; /* CPU of each thread; count 0 = not pinned */

    struct as_kernel_choice choice[AS_MAX_CHOICES];
    int32_t choices;
};

/* Loads the shipped strategy `name`, or the YAML file when `name` holds a '/' or ends in .yaml,
 * then applies `sets` ("field=value", count of them). Errors name file, line and field. */
int as_strategy_load(struct as_strategy *strategy, const char *name, const char *const *set,
                     size_t sets, struct as_error *error);

/* The same from text; `origin` names it in messages. */
int as_strategy_parse(struct as_strategy *strategy, const char *origin, const char *text,
                      size_t size, const char *const *set, size_t sets, struct as_error *error);

/* The strategy as YAML, every field resolved, in a fixed order; the caller frees it. NULL when
 * memory is short. */
char *as_strategy_resolved(const struct as_strategy *strategy);

/* Hash of the resolved form without its name and question, as 16 hex digits. */
void as_strategy_digest(const struct as_strategy *strategy, char digest[17]);

/* Shipped strategies, by name; generated. */
struct as_shipped_strategy {
    const char *name, *text;
};
extern const struct as_shipped_strategy as_shipped_strategies[];
extern const size_t as_shipped_strategy_count;

#endif
