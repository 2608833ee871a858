#include "check/suite.h"

#include <stdio.h>
#include <string.h>

#include "as_memory.h"

/* ---- shapes of covers --------------------------------------------------------------------- */

/* The op whose suite decides a cover's sizes: the one with most to say. */
static int32_t weightiest(const struct assay_cover *cover)
{
    static const enum assay_op order[] = {ASSAY_ATTENTION, ASSAY_KV_WRITE, ASSAY_ROPE, ASSAY_LINEAR,
                                          ASSAY_EMBEDDING};
    for (size_t o = 0; o < sizeof order / sizeof order[0]; o++)
        for (int32_t i = 0; i < cover->nodes; i++)
            if (cover->node[i].op == order[o])
                return i;
    return 0;
}

/* Columns of the values of a cover: externals after nodes; 0 while unknown. */
struct widths {
    int64_t value[ASSAY_MAX_COVER + ASSAY_MAX_OPERANDS];
    bool changed;
};

static int64_t *width_of(struct widths *widths, int32_t input)
{
    return &widths->value[input >= ASSAY_EXTERNAL(0) ? ASSAY_MAX_COVER + input - ASSAY_EXTERNAL(0)
                                                     : input];
}

static void set_width(struct widths *widths, int64_t *width, int64_t columns)
{
    if (*width == 0 && columns > 0) {
        *width = columns;
        widths->changed = true;
    }
}

/* Linear alone changes the width of what passes through; everything else keeps it. */
static void spread_width(struct widths *widths, const struct assay_cover *cover, int32_t node)
{
    enum assay_op op = cover->node[node].op;
    int32_t inputs = assay_op(op)->inputs;
    int64_t known = op == ASSAY_LINEAR ? 0 : widths->value[node];
    for (int32_t j = 0; op != ASSAY_LINEAR && op != ASSAY_EMBEDDING && j < inputs; j++)
        known = known > 0 ? known : *width_of(widths, cover->node[node].input[j]);
    if (op == ASSAY_LINEAR || op == ASSAY_EMBEDDING)
        return;
    set_width(widths, &widths->value[node], known);
    for (int32_t j = 0; j < inputs; j++)
        set_width(widths, width_of(widths, cover->node[node].input[j]), known);
}

static bool has_heads(enum assay_op op)
{
    return op == ASSAY_ATTENTION || op == ASSAY_KV_WRITE || op == ASSAY_ROPE;
}

/* Shape `index` of a cover: each node as in its own op's suite, then all of one size. */
static void cover_shape(struct assay_problem *problem, int32_t anchor, int32_t index)
{
    const struct assay_cover *cover = problem->cover;
    struct widths widths = {{0}, false};
    for (int32_t i = 0; i < cover->nodes; i++) {
        const struct assay_op_info *info = assay_op(cover->node[i].op);
        problem->node[i] = info->suite[index % info->suite_count];
    }
    const struct assay_shape lead = problem->node[anchor];
    widths.value[anchor] = lead.n;
    if (lead.op == ASSAY_LINEAR)
        set_width(&widths, width_of(&widths, cover->node[anchor].input[0]), lead.k);
    do {
        widths.changed = false;
        for (int32_t i = 0; i < cover->nodes; i++)
            spread_width(&widths, cover, i);
    } while (widths.changed);
    for (int32_t i = 0; i < cover->nodes; i++) {
        struct assay_shape *shape = &problem->node[i];
        shape->tokens = lead.tokens;
        if (has_heads(shape->op) && has_heads(lead.op) && i != anchor) {
            shape->head_dim = lead.head_dim;
            shape->heads = shape->op == ASSAY_KV_WRITE ? lead.kv_heads : lead.heads;
            shape->kv_heads = lead.kv_heads;
            shape->block_size = lead.block_size;
            shape->n = (int64_t)shape->heads * shape->head_dim;
            shape->rotary = shape->op == ASSAY_ROPE ? lead.head_dim : 0;
        } else if (i != anchor) {
            shape->n = widths.value[i] > 0 ? widths.value[i] : lead.n;
        }
        if (shape->op != ASSAY_LINEAR || i == anchor)
            continue;
        int64_t input = *width_of(&widths, cover->node[i].input[0]);
        shape->k = input > 0 ? input : lead.k > 0 ? lead.k : 96;
    }
}

/* ---- dtypes ------------------------------------------------------------------------------- */

struct dtypes {
    enum assay_dtype weights, activations, kv;
};

/* Entry `index` of the set bits of `mask`; `fallback` where the mask is empty and index is 0.
 * ASSAY_NONE ends the list. */
static enum assay_dtype nth_dtype(uint32_t mask, int32_t index, enum assay_dtype fallback)
{
    if (mask == 0)
        return index == 0 ? fallback : ASSAY_NONE;
    for (int32_t dtype = 0; dtype < ASSAY_DTYPES; dtype++)
        if ((mask & ASSAY_BIT(dtype)) != 0 && index-- == 0)
            return (enum assay_dtype)dtype;
    return ASSAY_NONE;
}

static int64_t round_up(int64_t columns, enum assay_dtype dtype)
{
    int64_t block = assay_dtype(dtype)->block;
    return (columns + block - 1) / block * block;
}

/* Fills dtypes in as the engine does, and widens rows to whole blocks. */
static void set_dtypes(struct assay_problem *problem, const struct dtypes *dtypes)
{
    for (int32_t i = 0; i < problem->nodes; i++) {
        struct assay_shape *shape = &problem->node[i];
        const struct assay_op_info *info = assay_op(shape->op);
        bool linear = shape->op == ASSAY_LINEAR, table = shape->op == ASSAY_EMBEDDING;
        shape->weights = info->weights == 0 ? ASSAY_NONE
                         : linear || table  ? dtypes->weights
                                            : ASSAY_F32;
        shape->activations = linear ? dtypes->activations : ASSAY_F32;
        shape->kv = info->uses_cache ? dtypes->kv : ASSAY_NONE;
        if (linear) {
            shape->k = round_up(shape->k, shape->weights);
            shape->k = round_up(shape->k, shape->activations);
        } else if (table) {
            shape->n = round_up(shape->n, shape->weights);
        } else if (info->uses_cache && shape->head_dim % assay_dtype(shape->kv)->block != 0) {
            shape->head_dim = (int32_t)round_up(shape->head_dim, shape->kv);
            shape->n = (int64_t)(shape->op == ASSAY_KV_WRITE ? shape->kv_heads : shape->heads) *
                       shape->head_dim;
        }
    }
}

/* Whether the values that flow inside a cover fit after the widening. */
static bool consistent(const struct assay_problem *problem)
{
    const struct assay_cover *cover = problem->cover;
    for (int32_t i = 0; cover != NULL && i < cover->nodes; i++)
        for (int32_t j = 0; j < assay_op(cover->node[i].op)->inputs; j++) {
            int32_t input = cover->node[i].input[j];
            if (input < i && assay_op(problem->node[input].op)->outputs > 0 &&
                as_case_output_columns(&problem->node[input]) !=
                    as_case_input_columns(&problem->node[i], j))
                return false;
        }
    return true;
}

/* ---- the suite ---------------------------------------------------------------------------- */

struct listing {
    const struct assay_variant *variant;
    const struct assay_device *device;
    struct assay_problem *list;
    size_t count, capacity, skipped;
    struct as_error *error;
};

static int add_problem(struct listing *l, const struct assay_problem *shape,
                       const struct dtypes *dtypes)
{
    struct assay_problem problem = *shape;
    char why[160];
    set_dtypes(&problem, dtypes);
    if (!consistent(&problem) ||
        !as_variant_supports(l->variant, l->device, &problem, why, sizeof why)) {
        l->skipped++;
        return 0;
    }
    int code = as_grow(l->error, &l->list, &l->capacity, l->count, sizeof l->list[0],
                       "the problems of a suite");
    if (code == 0)
        l->list[l->count++] = problem;
    return code;
}

static int add_shape(struct listing *l, const struct assay_problem *shape)
{
    const struct assay_variant *v = l->variant;
    struct dtypes d;
    int code = 0;
    for (int32_t a = 0;
         code == 0 && (d.activations = nth_dtype(v->activations, a, ASSAY_F32)) != ASSAY_NONE; a++)
        for (int32_t w = 0;
             code == 0 && (d.weights = nth_dtype(v->weights, w, ASSAY_F32)) != ASSAY_NONE; w++)
            for (int32_t k = 0; code == 0 && (d.kv = nth_dtype(v->kv, k, ASSAY_F32)) != ASSAY_NONE;
                 k++)
                code = add_problem(l, shape, &d);
    return code;
}

int as_check_suite_problems(const struct assay_variant *variant, const struct assay_device *device,
                            struct assay_problem **problems, size_t *count, size_t *skipped,
                            struct as_error *error)
{
    struct listing l = {.variant = variant, .device = device, .error = error};
    struct assay_problem problem;
    memset(&problem, 0, sizeof problem);
    problem.cover = variant->cover;
    problem.nodes = variant->cover != NULL ? variant->cover->nodes : 1;
    int32_t anchor = variant->cover != NULL ? weightiest(variant->cover) : 0;
    enum assay_op op = variant->cover != NULL ? variant->cover->node[anchor].op : variant->op;
    const struct assay_op_info *info = assay_op(op);
    int code = 0;
    for (int32_t i = 0; code == 0 && i < info->suite_count; i++) {
        if (variant->cover != NULL)
            cover_shape(&problem, anchor, i);
        else
            problem.node[0] = info->suite[i];
        code = add_shape(&l, &problem);
    }
    if (code != 0) {
        free(l.list);
        return code;
    }
    *problems = l.list;
    *count = l.count;
    if (skipped != NULL)
        *skipped = l.skipped;
    return 0;
}

/* ---- against the naive rung --------------------------------------------------------------- */

static enum assay_dtype class_of(const struct assay_problem *problem)
{
    for (int32_t i = 0; i < problem->nodes; i++)
        if (problem->node[i].op == ASSAY_LINEAR)
            return problem->node[i].activations;
    return ASSAY_F32;
}

static const struct assay_variant *naive_rung(const struct as_registry *registry,
                                              const struct assay_variant *variant,
                                              const struct assay_device *device,
                                              const struct assay_problem *problem)
{
    size_t count = 0;
    char why[160];
    const struct as_registry_entry *entries = as_registry_entries(registry, &count);
    for (size_t i = 0; i < count; i++) {
        const struct assay_variant *candidate = entries[i].variant;
        if (candidate->rung == 0 && candidate->cover == variant->cover &&
            (candidate->cover != NULL || candidate->op == variant->op) &&
            candidate->backend == variant->backend &&
            as_variant_supports(candidate, device, problem, why, sizeof why))
            return candidate;
    }
    return NULL;
}

/* Errors of one activation class: the rung's, and the naive rung's where it serves too. */
struct rungs {
    const struct assay_variant *naive;
    struct as_ref_comparison own, theirs;
    bool used;
};

struct suite {
    struct as_checker *checker;
    const struct as_registry *registry;
    const struct assay_variant *variant;
    struct as_check_result *result;
    struct rungs rungs[ASSAY_DTYPES];
};

/* The case through the variant in full, then through the naive rung for its errors. */
static int check_case(struct suite *s, const struct as_case *made,
                      const struct as_check_depth *depth)
{
    struct as_check_result *result = s->result;
    struct as_ref_comparison before = result->total;
    char why[160];
    if (!as_variant_supports(s->variant, s->checker->device, &made->problem, why, sizeof why))
        return 0;
    result->total = (struct as_ref_comparison){0};
    int code = as_checker_case(s->checker, s->variant, made, depth, result);
    struct as_ref_comparison own = result->total;
    as_ref_compare_add(&before, &own);
    result->total = before;
    struct rungs *rungs = &s->rungs[class_of(&made->problem)];
    const struct assay_variant *naive =
        naive_rung(s->registry, s->variant, s->checker->device, &made->problem);
    if (code != 0 || !result->passed || !depth->counted || naive == NULL)
        return code;
    rungs->used = true;
    rungs->naive = naive;
    as_ref_compare_add(&rungs->own, &own);
    if (naive == s->variant)
        as_ref_compare_add(&rungs->theirs, &own);
    else
        code = as_checker_measure(s->checker, naive, made, &rungs->theirs);
    return code;
}

static int check_problem(struct suite *s, const struct assay_problem *problem, uint64_t seed)
{
    bool batch = false;
    for (int32_t i = 0; i < problem->nodes; i++)
        batch |= assay_op(problem->node[i].op)->uses_metadata;
    /* Plain, then (where there is a batch) with all its oddities, then with NaN in it. */
    for (int round = 0; round < 3 && s->result->passed; round++) {
        struct as_case_options options = {
            .seed = seed * 3 + (uint64_t)round, .oddities = round > 0, .anomalies = round == 2};
        struct as_check_depth depth = {

            .dense = true,
            .apart = true,
            .fenced = round < 2,
            .promises = round == 1,
            .counted = round < 2};
        if (round == 1 && !batch)
            options.oddities = false;
        if (round == 2 && problem->node[0].tokens == 0)
            continue;
        struct as_case made;
        int code = as_case_make(&made, problem, &options, s->checker->error);
        if (code != 0)
            return code;
        code = check_case(s, &made, &depth);
        as_case_free(&made);
        if (code != 0)
            return code;
    }
    return 0;
}

/* At most twice the naive rung's error. The class that comes nearest stays in the result. */
static void judge_rungs(struct suite *s)
{
    struct as_check_result *result = s->result;
    double nearest = -1;
    for (int32_t class = 0; class < ASSAY_DTYPES && result->passed; class ++) {
        const struct rungs *rungs = &s->rungs[class];
        if (!rungs->used)
            continue;
        double share = rungs->theirs.rms > 0 ? rungs->own.rms / rungs->theirs.rms : 0;
        if (share > nearest) {
            nearest = share;
            snprintf(result->naive, sizeof result->naive, "%s", rungs->naive->name);
            result->naive_rms = rungs->theirs.rms;
            result->total = rungs->own;
        }
        if (as_ref_compare_rungs(&rungs->theirs, &rungs->own, 0x1p-23))
            continue;
        result->passed = false;
        snprintf(result->reason, sizeof result->reason,
                 "%s over its whole suite in class %s: the RMS error %.3g is %.2f times that of %s "
                 "(%.3g), at most 2 times is allowed",
                 s->variant->name, assay_dtype((enum assay_dtype) class)->name, rungs->own.rms,
                 share, rungs->naive->name, rungs->theirs.rms);
    }
}

int as_checker_suite(struct as_checker *checker, const struct as_registry *registry,
                     const struct assay_variant *variant, struct as_check_result *result)
{
    struct suite *s = as_calloc(checker->error, 1, sizeof *s, "a suite");
    struct assay_problem *problems = NULL;
    size_t count = 0, skipped = 0;
    if (s == NULL)
        return AS_ERR_MEMORY;
    *s = (struct suite){
        .checker = checker, .registry = registry, .variant = variant, .result = result};
    int code = as_check_suite_problems(variant, checker->device, &problems, &count, &skipped,
                                       checker->error);
    if (code == 0 && count == 0)
        code = as_fail(checker->error, AS_ERR_UNSUPPORTED,
                       "%s supports none of the %zu problems of its suite here", variant->name,
                       skipped);
    for (size_t i = 0; code == 0 && i < count && result->passed; i++)
        code = check_problem(s, &problems[i], i + 1);
    if (code == 0 && result->passed)
        judge_rungs(s);
    free(problems);
    free(s);
    return code;
}
