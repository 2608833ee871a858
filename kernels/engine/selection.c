/* Problems of a step, and the variant that runs each. */
#include <stdio.h>
#include <string.h>

#include "as_text.h"
#include "engine/planner.h"

void as_group_problem(const struct as_grouping *grouping, const struct as_group *group,
                      const struct as_step_shape *shape, struct assay_problem *problem)
{
    memset(problem, 0, sizeof *problem);
    problem->cover = group->cover;
    problem->nodes = group->nodes;
    for (int32_t i = 0; i < group->nodes; i++) {
        const struct as_node *node = &grouping->program->node[group->node[i]];
        enum as_rows rows = grouping->program->value[node->output].rows;
        struct assay_shape *to = &problem->node[i];
        memcpy(to, &node->shape, sizeof *to);
        to->tokens = rows == AS_ROWS_LOGITS ? shape->logit_rows : shape->tokens;
        if (to->op == ASSAY_ATTENTION) {
            to->sequences = shape->sequences;
            to->context = shape->context;
            to->kv_tokens = shape->kv_tokens;
            to->kv_rows = shape->kv_rows;
        }
    }
}

const struct assay_variant *as_select_variant(const struct as_registry *registry,
                                              const struct assay_device *device,
                                              const struct as_kernel_choice *choice,
                                              const struct assay_problem *problem,
                                              struct as_error *error)
{
    char words[160];
    struct as_text reasons = {0};
    for (int32_t i = 0; i < choice->variants; i++) {
        const struct assay_variant *variant = as_registry_find(registry, choice->variant[i], error);
        char why[160] = "gives no reason";
        if (variant == NULL) {
            as_text_free(&reasons);
            return NULL;
        }
        if (as_variant_supports(variant, device, problem, why, sizeof why)) {
            as_text_free(&reasons);
            return variant;
        }
        as_text_addf(&reasons, "; %s %s", variant->name, why);
    }
    as_problem_words(problem, words, sizeof words);
    as_fail(error, AS_ERR_UNSUPPORTED, "no variant of the strategy runs %s%s", words,
            reasons.data == NULL ? "" : reasons.data);
    as_text_free(&reasons);
    return NULL;
}
