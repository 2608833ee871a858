/* Plans: a grouping's launches for steps of one size, kept and found again. Private to engine/. */
#ifndef AS_PLAN_H
#define AS_PLAN_H

#include "engine/engine.h"
#include "engine/weights.h"

/* Problems and variants by index, so that launches can name them in a few bytes. */
struct as_tables {
    struct assay_problem *problem;
    size_t problems, problem_capacity;
    const struct assay_variant **variant;
    size_t variants, variant_capacity;
    uint32_t *slot; /* open addressing over problems: index + 1, 0 free */
    size_t slots;
};

int as_tables_problem(struct as_tables *tables, const struct assay_problem *problem, int32_t *index,
                      struct as_error *error);
int as_tables_variant(struct as_tables *tables, const struct assay_variant *variant, int32_t *index,
                      struct as_error *error);
void as_tables_free(struct as_tables *tables);

/* Steps of the same key share a plan: context is rounded up to a power of two. */
struct as_plan_key {
    int32_t kind, tokens, logit_rows, context_class;
};

struct as_plan {
    struct as_plan_key key;
    uint64_t last_used;
    struct assay_launch *launch;
    int32_t launches;
    struct assay_problem *problem; /* distinct ones; launches point here */
    int32_t *problem_group;        /* a group of each, to make it again for other sizes */
    int32_t problems;
    void *memory; /* the variants' plan_size bytes */
};

/* What plans are made from; owned by the engine. */
struct as_plan_source {
    const struct as_engine_options *options;
    const struct as_grouping *grouping;
    struct as_weights *weights;
    struct as_tables *tables;
    const struct assay_metadata *metadata;
    const struct as_kv_pool *pool;
    char *arena;
    int32_t *token_ids;
    void **scratch; /* grown by the engine; plans are told after it moved */
};

/* Groups that a step of this key does not run: the head, when no row wants logits. */
bool as_plan_skips(const struct as_grouping *grouping, const struct as_group *group,
                   const struct as_plan_key *key);

int as_plan_create(const struct as_plan_source *source, const struct as_plan_key *key,
                   const struct as_step_shape *shape, struct as_plan **plan, size_t *scratch_bytes,
                   struct as_error *error);
void as_plan_free(struct as_plan *plan);

/* Fits the plan to a step of its key: sizes, scratch, refresh, and problem indices if `intern`. */
int as_plan_refresh(const struct as_plan_source *source, struct as_plan *plan,
                    const struct as_step_shape *shape, bool intern, struct as_error *error);

#endif
