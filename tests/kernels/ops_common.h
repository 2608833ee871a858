/* Running single launches in tests: every built-in variant of an op, on teams of any size, with
 * exactly the memory that the variant asks for. */
#ifndef OPS_COMMON_H
#define OPS_COMMON_H

#include <criterion/criterion.h>
#include <string.h>

#include "as_memory.h"
#include "as_random.h"
#include "device/cpu/team.h"
#include "registry/registry.h"

static inline bool ops_runs_here(const struct assay_variant *variant)
{
    uint32_t have = 0;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        have |= ASSAY_CPU_AVX2;
    return variant->backend == ASSAY_CPU && (variant->features & ~have) == 0;
}

/* Whether `variant` implements `problem` here: the same op or cover, dtypes, features. */
static inline bool ops_serves(const struct assay_variant *variant,
                              const struct assay_problem *problem)
{
    char why[200];
    const struct assay_shape *shape = &problem->node[0];
    if (!ops_runs_here(variant) || (variant->cover == NULL) != (problem->cover == NULL))
        return false;
    if (problem->cover != NULL)
        return strcmp(variant->cover->name, problem->cover->name) == 0;
    return variant->op == shape->op &&
           (variant->weights == 0 || (variant->weights & ASSAY_BIT(shape->weights)) != 0) &&
           (variant->activations == 0 ||
            (variant->activations & ASSAY_BIT(shape->activations)) != 0) &&
           (variant->kv == 0 || (variant->kv & ASSAY_BIT(shape->kv)) != 0) &&
           (variant->supports == NULL || variant->supports(NULL, problem, why, sizeof why));
}

/* Visits the built-in variants that serve `problem`. */
#define OPS_EACH(variant, problem)                                                 \
    for (const struct assay_variant *const *each_ = as_builtin_variants, *variant; \
         (variant = *each_) != NULL; each_++)                                      \
        if (ops_serves(variant, problem))

struct ops_work {
    const struct assay_launch *launch;
    int code[64];
};

static inline void ops_enter(void *context, const struct assay_exec *exec)
{
    struct ops_work *work = context;
    work->code[exec->thread] = work->launch->variant->run(work->launch, exec);
}

/* Runs `launch` as `variant` on `threads` threads; a weight operand is packed first where the
 * variant wants that. `weight` is the operand's index, or -1. */
static inline void ops_run(struct assay_launch launch, const struct assay_variant *variant,
                           int32_t weight, int32_t threads)
{
    struct as_error error = {0};
    struct as_team *team;
    void *packed = NULL;
    launch.variant = variant;
    if (weight >= 0 && variant->weight_layout != NULL) {
        struct assay_operand *w = &launch.operand[weight];
        size_t bytes = variant->packed_size(w->dtype, w->rows, w->columns);
        packed = as_calloc_aligned(&error, bytes, 1, "a packed weight");
        for (int64_t row = 0; row < w->rows; row += 64)
            variant->pack(packed, w->data, w->dtype, w->rows, w->columns, row,
                          row + 64 < w->rows ? row + 64 : w->rows);
        w->data = packed;
    }
    if (variant->plan_size != NULL)
        launch.plan = as_calloc_aligned(&error, variant->plan_size(launch.problem), 1, "a plan");
    if (variant->scratch_size != NULL) {
        size_t bytes = variant->scratch_size(launch.problem, threads);
        launch.scratch = as_calloc_aligned(&error, bytes, 1, "scratch");
        memset(launch.scratch, 0xff, bytes); /* NaN */
    }
    if (variant->plan != NULL)
        cr_assert_eq(variant->plan(&launch, &error), 0, "%s", error.message);
    cr_assert_eq(as_team_create(&team, threads, NULL, &error), 0, "%s", error.message);
    struct ops_work work = {.launch = &launch};
    as_team_run(team, ops_enter, &work);
    for (int32_t i = 0; i < threads; i++)
        cr_assert_eq(work.code[i], 0, "%s: thread %d returned %d", variant->name, i, work.code[i]);
    as_team_free(team);
    free(packed);
    free(launch.plan);
    free(launch.scratch);
}

static inline struct assay_operand ops_f32(float *data, int64_t rows, int64_t columns)
{
    return (struct assay_operand){data, ASSAY_F32, rows, columns, columns};
}

/* `count` standard normal numbers, to be freed; count 0 is fine. */
static inline float *ops_normal(uint64_t stream, int64_t count)
{
    struct as_error error = {0};
    float *values = as_calloc(&error, (size_t)count, sizeof *values, "values");
    for (int64_t i = 0; i < count; i++)
        values[i] = (float)as_random_normal(20, stream, (uint64_t)i);
    return values;
}

#endif
