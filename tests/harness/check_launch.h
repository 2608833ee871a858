/* One launch of a variant on hand-made metadata, for cases that name their numbers. */
#ifndef AS_CHECK_LAUNCH_H
#define AS_CHECK_LAUNCH_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/cpu_device.h"
#include "registry/registry.h"

/* Runs `variant` on `problem` with operands, metadata and cache set in `launch`. */
static inline void launch_once(struct assay_device *device, const struct assay_variant *variant,
                               struct assay_problem *problem, struct assay_launch *launch)
{
    struct as_error error = {0};
    size_t plan = variant->plan_size != NULL ? variant->plan_size(problem) : 0;
    size_t scratch =
        variant->scratch_size != NULL ? variant->scratch_size(problem, device->threads) : 0;
    launch->variant = variant;
    launch->problem = problem;
    launch->plan = device->alloc(device, plan + 1, &error);
    launch->scratch = device->alloc(device, scratch + 1, &error);
    cr_assert(launch->plan != NULL && launch->scratch != NULL, "%s", error.message);
    if (variant->plan != NULL)
        cr_assert_eq(variant->plan(launch, &error), 0, "%s", error.message);
    if (variant->refresh != NULL)
        cr_assert_eq(variant->refresh(launch, &error), 0, "%s", error.message);
    struct assay_step step = {.launch = launch, .launches = 1};
    cr_assert_eq(device->submit(device, &step, &error), 0, "%s", error.message);
    cr_assert_eq(device->collect(device, &step, &error), 0, "%s", error.message);
    if (variant->fini != NULL)
        variant->fini(launch);
    device->free(device, launch->plan);
    device->free(device, launch->scratch);
}

/* A dense float32 operand. */
static inline struct assay_operand dense(float *data, int64_t rows, int64_t columns)
{
    return (struct assay_operand){
        .data = data, .dtype = ASSAY_F32, .rows = rows, .columns = columns, .stride = columns};
}

/* Calls `test` for each built-in variant of `op` (no cover) that can run `problem` here; returns
 * how many there were. */
static inline int each_variant(struct assay_device *device, enum assay_op op,
                               const struct assay_problem *problem,
                               void (*test)(struct assay_device *, const struct assay_variant *))
{
    int count = 0;
    for (size_t i = 0; as_builtin_variants[i] != NULL; i++) {
        const struct assay_variant *variant = as_builtin_variants[i];
        char why[200];
        if (variant->cover != NULL || variant->op != op ||
            !as_variant_supports(variant, device, problem, why, sizeof why))
            continue;
        test(device, variant);
        count++;
    }
    return count;
}

#endif
