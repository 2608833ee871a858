/* Attention metadata of a step: built on the host, sent to the device, counted in three parts. */
#ifndef AS_METADATA_BUILDER_H
#define AS_METADATA_BUILDER_H

#include "engine/counters.h"
#include "engine/kv_pool.h"
#include "kernel.h"

/* One sequence's part of a step. */
struct as_batch_row {
    int32_t sequence;      /* handle of the KV pool */
    const int32_t *tokens; /* (count) ids to run, at positions length .. length + count - 1 */
    int32_t count;
    bool wants_logits; /* of its last token */
};

struct as_batch {
    const struct as_batch_row *row;
    int32_t rows;
};

struct as_metadata_limits {
    int32_t sequences, tokens, blocks; /* a step's largest; blocks = of one sequence */
};

/* What a step's metadata cost, in nanoseconds. */
struct as_metadata_cost {
    uint64_t build_ns, upload_ns, wait_ns;
};

struct as_metadata_builder;

int as_metadata_create(struct assay_device *device, const struct as_metadata_limits *limits,
                       struct as_metadata_builder **builder, struct as_error *error);
void as_metadata_free(struct as_metadata_builder *builder);

/* Builds and uploads the metadata and the token ids of `batch`; the result stays at the same
 * addresses from step to step. */
int as_metadata_build(struct as_metadata_builder *builder, const struct as_kv_pool *pool,
                      const struct as_batch *batch, struct as_counters *counters,
                      struct as_metadata_cost *cost, struct as_error *error);

/* What launches point to: sizes on the host, arrays on the device. */
const struct assay_metadata *as_metadata_view(const struct as_metadata_builder *builder);

/* The ids of the step's tokens, on the device: (tokens). */
int32_t *as_metadata_token_ids(const struct as_metadata_builder *builder);

#endif
