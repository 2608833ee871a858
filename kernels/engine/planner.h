/* From a program to launches: which variant runs which nodes, and where every value lies.
 *
 * Two stages. Grouping looks at the program alone: covers in the strategy's order, then single
 * ops, then addresses in the arena. Planning adds the sizes of a step and picks, per problem, the
 * first variant of the choice's list that supports it.
 */
#ifndef AS_PLANNER_H
#define AS_PLANNER_H

#include "engine/program.h"
#include "kernel.h"
#include "registry/registry.h"

#define AS_MAX_ALTERNATIVES 8

/* One entry of a strategy's `kernels`: an op or a cover, and variants in order of preference. */
struct as_kernel_choice {
    char name[64];                         /* op or cover */
    char variant[AS_MAX_ALTERNATIVES][64]; /* the first that supports a problem runs it */
    int32_t variants;
    int32_t line; /* in the strategy file, for messages; 0 unknown */
};

/* The nodes that one launch runs. */
struct as_group {
    const struct assay_cover *cover; /* NULL for a single op */
    int32_t choice;                  /* which entry of the choices took it */
    int32_t nodes;
    int32_t node[ASSAY_MAX_COVER]; /* program nodes, in the pattern's order */
    int32_t externals;
    int32_t external[ASSAY_MAX_OPERANDS]; /* values, in operand order */
    int32_t outputs;
    int32_t output[ASSAY_MAX_COVER]; /* values, in operand order; effects left out */
};

/* A program cut into launches, with addresses; shared by the plans of all step sizes. */
struct as_grouping {
    const struct as_program *program;
    struct as_group *group; /* in execution order */
    size_t groups;
    size_t *offset; /* of each value in the arena, SIZE_MAX where it has none */
    size_t arena_bytes;
};

/* Cuts `program`; `rows` gives the largest number of rows for AS_ROWS_TOKENS and AS_ROWS_LOGITS.
 * An op that no choice names is an error. */
int as_group_program(const struct as_program *program, const struct as_registry *registry,
                     const struct as_kernel_choice *choice, size_t choices, const int64_t rows[2],
                     struct as_grouping **grouping, struct as_error *error);
void as_grouping_free(struct as_grouping *grouping);

/* The second half of as_group_program(): places every value in one arena, so that values alive at
 * the same time never overlap. */
int as_assign_addresses(struct as_grouping *grouping, const int64_t rows[2],
                        struct as_error *error);

/* Whether `nodes` program nodes may become one launch of `cover`: every swallowed value has no
 * reader outside, and no path leaves and comes back. If not, the reason is in `why`. */
bool as_cover_legal(const struct as_program *program, const struct assay_cover *cover,
                    const int32_t *node, char *why, size_t why_size);

/* Sizes of a step as problems see them. */
struct as_step_shape {
    int64_t tokens, logit_rows, sequences, context, kv_tokens, kv_rows;
};

/* The problem of `group` in a step of these sizes. Every byte of it is set, padding included, so
 * that problems may be compared and hashed as bytes; copy them with memcpy. */
void as_group_problem(const struct as_grouping *grouping, const struct as_group *group,
                      const struct as_step_shape *shape, struct assay_problem *problem);

/* The first variant of the group's choice that supports `problem`, or NULL with every reason. */
const struct assay_variant *as_select_variant(const struct as_registry *registry,
                                              const struct assay_device *device,
                                              const struct as_kernel_choice *choice,
                                              const struct assay_problem *problem,
                                              struct as_error *error);

#endif
