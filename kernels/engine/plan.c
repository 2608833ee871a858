#include "engine/plan.h"

#include <string.h>

#include "as_memory.h"

static bool has_attention(const struct assay_problem *problem)
{
    for (int32_t i = 0; i < problem->nodes; i++)
        if (problem->node[i].op == ASSAY_ATTENTION)
            return true;
    return false;
}

bool as_plan_skips(const struct as_grouping *grouping, const struct as_group *group,
                   const struct as_plan_key *key)
{
    const struct as_program *program = grouping->program;
    return key->logit_rows == 0 &&
           program->value[program->node[group->node[0]].output].rows == AS_ROWS_LOGITS;
}

/* The plan's own copy of a problem equal to `problem`, made at need. Room for one a group is
 * there from the start, so pointers to earlier ones stay right. */
static int32_t own_problem(struct as_plan *plan, const struct assay_problem *problem, int32_t group)
{
    for (int32_t p = plan->problems - 1; p >= 0; p--)
        if (memcmp(&plan->problem[p], problem, sizeof *problem) == 0)
            return p;
    memcpy(&plan->problem[plan->problems], problem, sizeof *problem);
    plan->problem_group[plan->problems] = group;
    return plan->problems++;
}

static struct assay_operand value_operand(const struct as_plan_source *source, int32_t value,
                                          const struct as_step_shape *shape)
{
    const struct as_value *v = &source->grouping->program->value[value];
    return (struct assay_operand){
        .data = value == 0 ? (void *)source->token_ids
                           : source->arena + source->grouping->offset[value],
        .dtype = v->dtype,
        .rows = v->rows == AS_ROWS_LOGITS ? shape->logit_rows : shape->tokens,
        .columns = v->columns,
        .stride = v->columns};
}

static int set_operands(const struct as_plan_source *source, const struct as_group *group,
                        const struct as_step_shape *shape, struct assay_launch *launch,
                        struct as_error *error)
{
    for (int32_t i = 0; i < group->externals; i++)
        launch->operand[launch->operands++] = value_operand(source, group->external[i], shape);
    for (int32_t i = 0; i < group->nodes; i++) {
        const struct as_node *node = &source->grouping->program->node[group->node[i]];
        if (node->weight == NULL)
            continue;
        int code =
            as_weights_operand(source->weights, node->weight, launch->variant, launch->problem, i,
                               &launch->operand[launch->operands++], error);
        if (code != 0)
            return code;
    }
    for (int32_t i = 0; i < group->outputs; i++)
        launch->operand[launch->operands++] = value_operand(source, group->output[i], shape);
    return 0;
}

static int make_launch(const struct as_plan_source *source, struct as_plan *plan, int32_t g,
                       const struct as_step_shape *shape, struct as_error *error)
{
    const struct as_engine_options *options = source->options;
    const struct as_group *group = &source->grouping->group[g];
    const struct as_node *first = &source->grouping->program->node[group->node[0]];
    struct assay_launch *launch = &plan->launch[plan->launches];
    struct assay_problem problem;
    as_group_problem(source->grouping, group, shape, &problem);
    launch->problem = &plan->problem[own_problem(plan, &problem, g)];
    launch->variant = as_select_variant(options->registry, options->device,
                                        &options->choice[group->choice], launch->problem, error);
    if (launch->variant == NULL)
        return error->code;
    launch->index = plan->launches++;
    launch->layer = first->layer;
    launch->metadata = source->metadata;
    launch->cache = first->layer < 0 ? NULL : as_kv_pool_layer(source->pool, first->layer);
    int code = as_tables_variant(source->tables, launch->variant, &launch->variant_index, error);
    return code != 0 ? code : set_operands(source, group, shape, launch, error);
}

/* Gives each launch its plan memory, and returns the largest scratch any of them wants. */
static int place_memory(const struct as_plan_source *source, struct as_plan *plan,
                        size_t *scratch_bytes, struct as_error *error)
{
    size_t total = 0, scratch = 0;
    for (int32_t i = 0; i < plan->launches; i++) {
        const struct assay_launch *launch = &plan->launch[i];
        const struct assay_variant *variant = launch->variant;
        if (variant->plan_size != NULL)
            total += as_align_up(variant->plan_size(launch->problem), 64);
        if (variant->scratch_size != NULL) {
            size_t wanted =
                variant->scratch_size(launch->problem, source->options->device->threads);
            scratch = wanted > scratch ? wanted : scratch;
        }
    }
    *scratch_bytes = scratch;
    plan->memory = as_calloc_aligned(error, total, 1, "a plan");
    if (plan->memory == NULL)
        return AS_ERR_MEMORY;
    char *next = plan->memory;
    for (int32_t i = 0; i < plan->launches; i++) {
        struct assay_launch *launch = &plan->launch[i];
        if (launch->variant->plan_size == NULL)
            continue;
        launch->plan = next;
        next += as_align_up(launch->variant->plan_size(launch->problem), 64);
    }
    return 0;
}

int as_plan_create(const struct as_plan_source *source, const struct as_plan_key *key,
                   const struct as_step_shape *shape, struct as_plan **result,
                   size_t *scratch_bytes, struct as_error *error)
{
    size_t groups = source->grouping->groups;
    struct as_plan *plan = *result = as_calloc(error, 1, sizeof *plan, "a plan");
    if (plan == NULL)
        return AS_ERR_MEMORY;
    plan->key = *key;
    plan->launch = as_calloc(error, groups, sizeof plan->launch[0], "a plan");
    plan->problem = as_calloc(error, groups, sizeof plan->problem[0], "a plan");
    plan->problem_group = as_calloc(error, groups, sizeof plan->problem_group[0], "a plan");
    int code = plan->launch == NULL || plan->problem == NULL || plan->problem_group == NULL
                   ? AS_ERR_MEMORY
                   : 0;
    for (size_t g = 0; code == 0 && g < groups; g++)
        if (!as_plan_skips(source->grouping, &source->grouping->group[g], key))
            code = make_launch(source, plan, (int32_t)g, shape, error);
    if (code == 0)
        code = place_memory(source, plan, scratch_bytes, error);
    for (int32_t i = 0; code == 0 && i < plan->launches; i++)
        if (plan->launch[i].variant->plan != NULL)
            code = plan->launch[i].variant->plan(&plan->launch[i], error);
    if (code != 0) {
        as_plan_free(plan);
        *result = NULL;
    }
    return code;
}

void as_plan_free(struct as_plan *plan)
{
    if (plan == NULL)
        return;
    for (int32_t i = 0; plan->memory != NULL && i < plan->launches; i++)
        if (plan->launch[i].variant != NULL && plan->launch[i].variant->fini != NULL)
            plan->launch[i].variant->fini(&plan->launch[i]);
    free(plan->launch);
    free(plan->problem);
    free(plan->problem_group);
    free(plan->memory);
    free(plan);
}

int as_plan_refresh(const struct as_plan_source *source, struct as_plan *plan,
                    const struct as_step_shape *shape, bool intern, struct as_error *error)
{
    for (int32_t p = 0; p < plan->problems; p++)
        if (has_attention(&plan->problem[p]))
            as_group_problem(source->grouping, &source->grouping->group[plan->problem_group[p]],
                             shape, &plan->problem[p]);
    for (int32_t i = 0; i < plan->launches; i++) {
        struct assay_launch *launch = &plan->launch[i];
        launch->scratch = *source->scratch;
        if (launch->variant->refresh == NULL)
            continue;
        int code = launch->variant->refresh(launch, error);
        if (code != 0)
            return code;
    }
    for (int32_t p = 0; intern && p < plan->problems; p++) {
        int32_t index;
        int code = as_tables_problem(source->tables, &plan->problem[p], &index, error);
        if (code != 0)
            return code;
        for (int32_t i = 0; i < plan->launches; i++)
            if (plan->launch[i].problem == &plan->problem[p])
                plan->launch[i].problem_index = index;
    }
    return 0;
}
