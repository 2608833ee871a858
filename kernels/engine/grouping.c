/* Cutting a program into launches: cover matching, legality, order. */
#include <stdio.h>
#include <string.h>

#include "as_memory.h"
#include "as_text.h"
#include "engine/planner.h"

static bool in_group(const int32_t *node, int32_t nodes, int32_t wanted)
{
    for (int32_t i = 0; i < nodes; i++)
        if (node[i] == wanted)
            return true;
    return false;
}

/* Once for each input, as `readers` counts. */
static int32_t reads_of(const struct as_node *node, int32_t value)
{
    int32_t reads = node->effect == value;
    for (int32_t i = 0; i < 4; i++)
        reads += node->input[i] == value;
    return reads;
}

static bool declared_output(const struct assay_cover *cover, int32_t pattern_node)
{
    for (int32_t i = 0; i < cover->outputs; i++)
        if (cover->output[i] == pattern_node)
            return true;
    return false;
}

/* A swallowed value is one that the cover neither declares nor writes as an effect. */
static bool swallows_safely(const struct as_program *program, const struct assay_cover *cover,
                            const int32_t *node, char *why, size_t why_size)
{
    for (int32_t i = 0; i < cover->nodes; i++) {
        const struct as_value *value = &program->value[program->node[node[i]].output];
        if (declared_output(cover, i) || value->rows == AS_ROWS_EFFECT)
            continue;
        int32_t inside = 0;
        for (int32_t j = 0; j < cover->nodes; j++)
            inside += reads_of(&program->node[node[j]], program->node[node[i]].output);
        if (value->kept || inside < value->readers) {
            snprintf(why, why_size, "it swallows \"%s\", which %s reads", value->name,
                     value->kept ? "the step's caller" : "a node outside");
            return false;
        }
    }
    return true;
}

/* Convex: no node outside both depends on the group and is depended on by it. Nodes are in
 * topological order, so one sweep from the group's first node to its last sees every such path. */
static bool convex(const struct as_program *program, const int32_t *node, int32_t nodes, char *why,
                   size_t why_size)
{
    int32_t first = node[0], last = node[0];
    for (int32_t i = 1; i < nodes; i++) {
        first = node[i] < first ? node[i] : first;
        last = node[i] > last ? node[i] : last;
    }
    bool *after = calloc((size_t)(last - first + 1), sizeof *after);
    if (after == NULL) {
        snprintf(why, why_size, "out of memory while checking it");
        return false;
    }
    bool legal = true;
    for (int32_t n = first; legal && n <= last; n++) {
        const struct as_node *candidate = &program->node[n];
        bool member = in_group(node, nodes, n), tainted = false;
        for (int32_t i = 0; i < 5; i++) {
            int32_t value = i < 4 ? candidate->input[i] : candidate->effect;
            int32_t producer = value == AS_NO_VALUE ? -1 : program->value[value].producer;
            if (producer < first)
                continue;
            bool from_member = in_group(node, nodes, producer);
            tainted = tainted || after[producer - first] || (from_member && !member);
        }
        after[n - first] = !member && tainted;
        if (member && tainted) {
            snprintf(why, why_size, "a path leaves it and comes back at \"%s\"",
                     program->value[candidate->output].name);
            legal = false;
        }
    }
    free(after);
    return legal;
}

bool as_cover_legal(const struct as_program *program, const struct assay_cover *cover,
                    const int32_t *node, char *why, size_t why_size)
{
    return swallows_safely(program, cover, node, why, why_size) &&
           convex(program, node, cover->nodes, why, why_size);
}

/* ---- matching ----------------------------------------------------------------------------- */

/* Nodes of a cover stand close together; a wider window only costs time. */
#define MATCH_WINDOW 32

struct match {
    const struct as_program *program;
    const struct assay_cover *cover;
    const int32_t *owner; /* group of each node, -1 while free */
    int32_t node[ASSAY_MAX_COVER];
    int32_t bound[ASSAY_MAX_OPERANDS]; /* value of each external, AS_NO_VALUE while free */
};

static bool inputs_fit(struct match *match, int32_t pattern_index, const struct as_node *node)
{
    const struct assay_cover_node *pattern = &match->cover->node[pattern_index];
    for (int32_t i = 0; i < assay_op(pattern->op)->inputs; i++) {
        int32_t wanted = pattern->input[i];
        if (wanted >= ASSAY_EXTERNAL(0)) {
            int32_t *bound = &match->bound[wanted - ASSAY_EXTERNAL(0)];
            if (*bound != AS_NO_VALUE && *bound != node->input[i])
                return false;
            *bound = node->input[i];
        } else if (match->program->node[match->node[wanted]].output != node->input[i]) {
            return false;
        }
    }
    return true;
}

static bool match_from(struct match *match, int32_t pattern_index)
{
    if (pattern_index >= match->cover->nodes || pattern_index >= ASSAY_MAX_COVER) {
        char why[128];
        return as_cover_legal(match->program, match->cover, match->node, why, sizeof why);
    }
    int32_t begin = match->node[0], end = begin + MATCH_WINDOW;
    for (int32_t n = begin; n < end && n < (int32_t)match->program->nodes; n++) {
        const struct as_node *node = &match->program->node[n];
        if (node->shape.op != match->cover->node[pattern_index].op || match->owner[n] >= 0 ||
            in_group(match->node, pattern_index, n))
            continue;
        struct match saved = *match;
        match->node[pattern_index] = n;
        if (inputs_fit(match, pattern_index, node) && match_from(match, pattern_index + 1))
            return true;
        *match = saved;
    }
    return false;
}

static bool match_cover(struct match *match, int32_t anchor)
{
    const struct as_node *node = &match->program->node[anchor];
    if (match->owner[anchor] >= 0 || node->shape.op != match->cover->node[0].op)
        return false;
    for (int32_t i = 0; i < ASSAY_MAX_OPERANDS; i++)
        match->bound[i] = AS_NO_VALUE;
    match->node[0] = anchor;
    return inputs_fit(match, 0, node) && match_from(match, 1);
}

/* ---- groups ------------------------------------------------------------------------------- */

struct cut {
    struct as_grouping *grouping;
    int32_t *owner; /* group of each node */
    size_t capacity;
    struct as_error *error;
};

static int add_group(struct cut *cut, struct as_group group)
{
    struct as_grouping *grouping = cut->grouping;
    int code = as_grow(cut->error, &grouping->group, &cut->capacity, grouping->groups,
                       sizeof grouping->group[0], "a plan's groups");
    if (code != 0)
        return code;
    for (int32_t i = 0; i < group.nodes; i++)
        cut->owner[group.node[i]] = (int32_t)grouping->groups;
    grouping->group[grouping->groups++] = group;
    return 0;
}

static int take_covers(struct cut *cut, const struct assay_cover *cover, int32_t choice)
{
    const struct as_program *program = cut->grouping->program;
    struct match match = {.program = program, .cover = cover, .owner = cut->owner};
    for (int32_t anchor = 0; anchor < (int32_t)program->nodes; anchor++) {
        if (!match_cover(&match, anchor))
            continue;
        struct as_group group = {
            .cover = cover, .choice = choice, .nodes = cover->nodes, .externals = cover->externals};
        memcpy(group.node, match.node, sizeof group.node);
        memcpy(group.external, match.bound, sizeof group.external);
        for (int32_t i = 0; i < cover->outputs; i++) {
            int32_t value = program->node[match.node[cover->output[i]]].output;
            if (program->value[value].rows != AS_ROWS_EFFECT)
                group.output[group.outputs++] = value;
        }
        int code = add_group(cut, group);
        if (code != 0)
            return code;
    }
    return 0;
}

static int take_single(struct cut *cut, int32_t n, const struct as_kernel_choice *choice,
                       size_t choices)
{
    const struct as_program *program = cut->grouping->program;
    const struct as_node *node = &program->node[n];
    const struct assay_op_info *info = assay_op(node->shape.op);
    for (size_t c = 0; c < choices; c++) {
        if (strcmp(choice[c].name, info->name) != 0)
            continue;
        struct as_group group = {
            .choice = (int32_t)c, .nodes = 1, .node = {n}, .externals = info->inputs};
        memcpy(group.external, node->input, sizeof node->input);
        if (program->value[node->output].rows != AS_ROWS_EFFECT)
            group.output[group.outputs++] = node->output;
        return add_group(cut, group);
    }
    return as_fail(cut->error, AS_ERR_USAGE,
                   "the strategy names no variant for the op %s, which the model needs; add "
                   "`%s: %s/...` to its kernels (`assay kernels --op %s` lists the variants)",
                   info->name, info->name, info->name, info->name);
}

/* ---- order and addresses ------------------------------------------------------------------ */

static bool ready(const struct cut *cut, const struct as_group *group, const bool *done)
{
    const struct as_program *program = cut->grouping->program;
    int32_t self = cut->owner[group->node[0]];
    for (int32_t i = 0; i < group->nodes; i++) {
        const struct as_node *node = &program->node[group->node[i]];
        for (int32_t j = 0; j < 5; j++) {
            int32_t value = j < 4 ? node->input[j] : node->effect;
            int32_t producer = value == AS_NO_VALUE ? -1 : program->value[value].producer;
            if (producer >= 0 && cut->owner[producer] != self && !done[cut->owner[producer]])
                return false;
        }
    }
    return true;
}

/* Execution order: of the groups whose inputs are there, the one that begins first. Groups lie
 * close to their place already, so looking ahead from the first unfinished one is short. */
static int order_groups(struct cut *cut)
{
    struct as_grouping *grouping = cut->grouping;
    size_t count = grouping->groups, placed = 0;
    struct as_group *ordered = as_calloc(cut->error, count, sizeof *ordered, "a plan's groups");
    bool *done = as_calloc(cut->error, count, sizeof *done, "a plan's groups");
    int32_t *by_first =
        as_calloc(cut->error, grouping->program->nodes, sizeof *by_first, "a plan's groups");
    int code = ordered == NULL || done == NULL || by_first == NULL ? AS_ERR_MEMORY : 0;
    size_t candidates = 0;
    for (size_t n = 0; code == 0 && n < grouping->program->nodes; n++) {
        int32_t owner = cut->owner[n];
        bool first = true;
        for (int32_t i = 0; i < grouping->group[owner].nodes; i++)
            first = first && grouping->group[owner].node[i] >= (int32_t)n;
        if (first)
            by_first[candidates++] = owner;
    }
    size_t low = 0;
    while (code == 0 && placed < count) {
        size_t pick = low;
        while (pick < candidates &&
               (done[by_first[pick]] || !ready(cut, &grouping->group[by_first[pick]], done)))
            pick++;
        if (pick == candidates) {
            code = as_fail(cut->error, AS_ERR_INTERNAL, "the plan's groups depend on each other");
            break;
        }
        done[by_first[pick]] = true;
        ordered[placed++] = grouping->group[by_first[pick]];
        while (low < candidates && done[by_first[low]])
            low++;
    }
    if (code == 0) {
        free(grouping->group);
        grouping->group = ordered;
        ordered = NULL;
    }
    free(ordered);
    free(done);
    free(by_first);
    return code;
}

/* Every name in the list, not only the first that serves: a misspelt one would go unnoticed until
 * the day it is needed. */
static int check_variants(const struct as_registry *registry, const struct as_kernel_choice *choice,
                          struct as_error *error)
{
    for (int32_t i = 0; i < choice->variants; i++)
        if (as_registry_find(registry, choice->variant[i], error) == NULL)
            return as_error_prefix(error, "the strategy's kernels for %s", choice->name);
    return 0;
}

/* Fails over a name that is neither an op nor a cover, offering the nearest that is one. */
static int refuse_name(const struct as_registry *registry, const char *name, struct as_error *error)
{
    const char *known[256];
    size_t count = 0, entries;
    const struct as_registry_entry *entry = as_registry_entries(registry, &entries);
    for (size_t i = 0; as_builtin_ops[i] != NULL && count < 128; i++)
        known[count++] = as_builtin_ops[i]->name;
    for (size_t i = 0; i < entries && count < 256; i++)
        if (entry[i].variant->cover != NULL)
            known[count++] = entry[i].variant->cover->name;
    const char *nearest = as_nearest(name, known, count);
    return as_fail(error, AS_ERR_USAGE,
                   "the strategy's kernels name %s, which is neither an op nor a cover%s%s%s", name,
                   nearest == NULL ? "" : " (did you mean ", nearest == NULL ? "" : nearest,
                   nearest == NULL ? "" : "?)");
}

int as_group_program(const struct as_program *program, const struct as_registry *registry,
                     const struct as_kernel_choice *choice, size_t choices, const int64_t rows[2],
                     struct as_grouping **grouping, struct as_error *error)
{
    *grouping = as_calloc(error, 1, sizeof **grouping, "a grouping");
    if (*grouping == NULL)
        return AS_ERR_MEMORY;
    (*grouping)->program = program;
    struct cut cut = {.grouping = *grouping, .error = error};
    cut.owner = as_calloc(error, program->nodes, sizeof *cut.owner, "a grouping");
    int code = cut.owner == NULL ? AS_ERR_MEMORY : 0;
    for (size_t n = 0; code == 0 && n < program->nodes; n++)
        cut.owner[n] = -1;
    for (size_t c = 0; code == 0 && c < choices; c++) {
        const struct assay_cover *cover = as_registry_cover(registry, choice[c].name);
        if (cover != NULL)
            code = take_covers(&cut, cover, (int32_t)c);
        else if (as_op_by_name(choice[c].name) == ASSAY_OPS)
            code = refuse_name(registry, choice[c].name, error);
        if (code == 0)
            code = check_variants(registry, &choice[c], error);
    }
    for (size_t n = 0; code == 0 && n < program->nodes; n++)
        if (cut.owner[n] < 0)
            code = take_single(&cut, (int32_t)n, choice, choices);
    if (code == 0)
        code = order_groups(&cut);
    free(cut.owner);
    if (code == 0)
        code = as_assign_addresses(*grouping, rows, error);
    if (code != 0) {
        as_grouping_free(*grouping);
        *grouping = NULL;
    }
    return code;
}

void as_grouping_free(struct as_grouping *grouping)
{
    if (grouping == NULL)
        return;
    free(grouping->group);
    free(grouping->offset);
    free(grouping);
}
