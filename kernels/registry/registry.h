/* All variants that this process knows: the built-in table and what plugins brought. */
#ifndef AS_REGISTRY_H
#define AS_REGISTRY_H

#include "kernel.h"

/* NULL-terminated, in order of path; generated. */
extern const struct assay_op_info *const as_builtin_ops[];
extern const struct assay_variant *const as_builtin_variants[];

struct as_registry;

struct as_registry_entry {
    const struct assay_variant *variant;
    const char *plugin; /* NULL for a built-in */
};

/* A registry holding the built-in variants. A name found twice is an error. */
int as_registry_create(struct as_registry **registry, struct as_error *error);
void as_registry_free(struct as_registry *registry);

/* Adds one more variant, of the plugin of that name; both must outlive the registry. */
int as_registry_add(struct as_registry *registry, const struct assay_variant *variant,
                    const char *plugin, struct as_error *error);

/* The entries, in order: built-ins by path, then plugins as loaded. */
const struct as_registry_entry *as_registry_entries(const struct as_registry *registry,
                                                    size_t *count);

/* The variant of that name, or NULL with a message that offers the nearest name. */
const struct assay_variant *as_registry_find(const struct as_registry *registry, const char *name,
                                             struct as_error *error);

/* The op of that name, or ASSAY_OPS. */
enum assay_op as_op_by_name(const char *name);

/* The cover of that name among the registry's variants, or NULL. */
const struct assay_cover *as_registry_cover(const struct as_registry *registry, const char *name);

/* Whether `variant` can run `problem` on `device`; if not, the reason is in `why`. Checks backend,
 * op or cover, dtypes and features, then asks the variant. */
bool as_variant_supports(const struct assay_variant *variant, const struct assay_device *device,
                         const struct assay_problem *problem, char *why, size_t why_size);

/* Whether `variant` can run on `device` at all: backend and features. */
bool as_variant_runs_here(const struct assay_variant *variant, const struct assay_device *device,
                          char *why, size_t why_size);

/* Work of a problem: the sum over its ops, less the swallowed values that no longer move. */
void as_problem_cost(const struct assay_problem *problem, double *flops, double *bytes);

/* The problem in words, "linear 512x1536x576 q4_1/q8". Always NUL-terminated. */
void as_problem_words(const struct assay_problem *problem, char *words, size_t size);

/* The op's name, or the cover's. */
const char *as_problem_name(const struct assay_problem *problem);

#endif
