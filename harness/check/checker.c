#include "check/checker.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "as_memory.h"
#include "as_random.h"
#include "check/judge.h"
#include "check/stamps.h"
#include "device/cpu/team.h"

/* Truth's price limit for a class, in multiply-adds. */
#define CLASS_WORK 2e5

/* A team that is always the same size still has this many threads at most. */
#define SMALL_TEAMS 3

void as_checker_open(struct as_checker *checker, struct assay_device *device,
                     struct as_isolated *isolated)
{
    *checker =
        (struct as_checker){.device = device, .isolated = isolated, .error = &isolated->error};
}

void as_checker_close(struct as_checker *checker)
{
    for (int i = 0; i <= AS_CHECK_MOST_THREADS; i++)
        as_team_free(checker->team[i]);
    *checker = (struct as_checker){0};
}

void as_check_begin(struct as_check_result *result)
{
    *result = (struct as_check_result){.passed = true};
}

void as_check_end(struct as_check_result *result)
{
    const struct as_ref_comparison *total = &result->total;
    double size = total->finite > 0 ? sqrt(total->sum_ref2 / (double)total->finite) : 0;
    result->rms = total->rms;
    result->rms_ulp = size > 0 ? total->rms / size * 0x1p23 : 0;
    result->naive_rms_ulp = size > 0 ? result->naive_rms / size * 0x1p23 : 0;
}

/* ---- one run ------------------------------------------------------------------------------ */

/* A variant on a case, as far as it has come. */
struct trial {
    struct as_checker *checker;
    const struct assay_variant *variant;
    const struct as_case *made;
    const struct as_check_depth *depth;
    struct as_check_result *result;
    struct as_complaint complaint;
    char how[120]; /* the layout and the team, in words */
};

static const char *layout_words(const struct as_layout *layout)
{
    return layout->in_place ? "in place"
           : layout->fenced ? "at the end of memory"
           : layout->apart  ? "rows apart"
                            : "rows dense";
}

static void doing(struct trial *trial, const struct as_layout *layout, int32_t threads,
                  const char *what)
{
    char words[200];
    as_problem_words(&trial->made->problem, words, sizeof words);
    snprintf(trial->how, sizeof trial->how, "%d thread%s, %s%s", (int)threads,
             threads == 1 ? "" : "s", layout_words(layout), what);
    as_isolated_doing(trial->checker->isolated, "%s ran %s (%s)", trial->variant->name, words,
                      trial->how);
}

/* Turns a complaint into the result's reason. Returns whether there was one. */
static bool failed(struct trial *trial)
{
    char words[200];
    if (trial->complaint.words[0] == '\0')
        return false;
    as_problem_words(&trial->made->problem, words, sizeof words);
    trial->result->passed = false;
    snprintf(trial->result->reason, sizeof trial->result->reason, "%s on %s (%s%s): %s",
             trial->variant->name, words, trial->how, trial->made->anomalies ? ", NaN in" : "",
             trial->complaint.words);
    return true;
}

static struct as_team *team_of(struct as_checker *checker, int32_t threads, int *code)
{
    if (checker->device->backend != ASSAY_CPU)
        return NULL;
    if (checker->team[threads] == NULL)
        *code = as_team_create(&checker->team[threads], threads, NULL, checker->error);
    return checker->team[threads];
}

/* Runs once; looks at guards and, where there is one, at the truth. */
static int run_once(struct trial *trial, struct as_setup *setup, int32_t threads, int32_t late,
                    bool counted)
{
    struct as_checker *checker = trial->checker;
    struct as_ref_comparison seen = {0};
    int code = 0;
    struct as_team *team = team_of(checker, threads, &code);
    if (code == 0)
        code = as_setup_run(setup, team, late, &trial->complaint, checker->error);
    if (code != 0)
        return code;
    trial->result->runs++;
    as_setup_intact(setup, &trial->complaint);
    if (!setup->made->truth || trial->complaint.words[0] != '\0')
        return 0;
    code = as_judge_truth(setup, &seen, &trial->complaint, checker->error);
    if (code == 0 && (seen.worst_ratio > trial->result->ratio || trial->result->worst[0] == '\0')) {
        trial->result->ratio = seen.worst_ratio;
        as_problem_words(&trial->made->problem, trial->result->worst, sizeof trial->result->worst);
    }
    if (counted)
        as_ref_compare_add(&trial->result->total, &seen);
    return code;
}

/* ---- layouts and teams -------------------------------------------------------------------- */

/* Twice by one team; the first thread is late in the first run, the last one in the second. */
static int run_twice(struct trial *trial, struct as_setup *setup, int32_t threads, bool counted)
{
    struct as_outcome first = {0};
    int code = run_once(trial, setup, threads, 0, counted);
    if (code == 0 && trial->complaint.words[0] == '\0' && !trial->depth->once &&
        !setup->layout.fenced)
        code = as_outcome_keep(&first, setup, trial->checker->error);
    if (first.bytes == NULL)
        return code;
    code = run_once(trial, setup, threads, threads - 1, false);
    if (code == 0 && (trial->variant->flags & ASSAY_DETERMINISTIC) != 0)
        as_judge_same(setup, &first, "has other bits in a second run, against deterministic",
                      &trial->complaint);
    free(first.bytes);
    return code;
}

static int check_layout(struct trial *trial, const struct as_layout *layout)
{
    struct as_setup setup;
    bool counted = trial->depth->counted && !layout->apart && !layout->fenced && !layout->in_place;
    bool cpu = trial->checker->device->backend == ASSAY_CPU;
    int32_t fixed = cpu && !layout->fenced ? trial->depth->threads : 1;
    int32_t most = fixed > 0 ? fixed : SMALL_TEAMS;
    doing(trial, layout, most, ", planning");
    int code = as_setup_open(&setup, trial->made, trial->variant, trial->checker->device, layout,
                             most, &trial->complaint, trial->checker->error);
    if (code != 0)
        return code;
    for (int32_t threads = fixed > 0 ? fixed : 1;
         code == 0 && threads <= most && trial->complaint.words[0] == '\0'; threads++) {
        doing(trial, layout, threads, "");
        code = run_twice(trial, &setup, threads, counted && threads == most);
    }
    as_setup_intact(&setup, &trial->complaint);
    as_setup_close(&setup);
    failed(trial);
    return code;
}

/* ---- promises ----------------------------------------------------------------------------- */

/* The sequence with most queries that is not the whole batch, or -1. */
static int32_t choose_part(const struct as_case *made)
{
    const struct as_check_batch *batch = &made->batch;
    int32_t chosen = -1, most = 0;
    for (int32_t s = 0; s < batch->sequences; s++) {
        int32_t queries = batch->cu_query[s + 1] - batch->cu_query[s];
        int32_t wanted = 0;
        for (int32_t i = 0; i < batch->logit_rows; i++)
            wanted += batch->token_sequence[batch->logit_row[i]] == s;
        if (queries > most && (batch->logit_rows == 0 || wanted > 0)) {
            most = queries;
            chosen = s;
        }
    }
    return most < batch->tokens ? chosen : -1;
}

static int check_in_place(struct trial *trial)
{
    const struct as_case *made = trial->made;
    int32_t output = as_case_first_output(made);
    if (output < 1 || (trial->variant->flags & ASSAY_IN_PLACE) == 0)
        return 0;
    const struct as_case_operand *from = &made->operand[0], *to = &made->operand[output];
    if (from->role != AS_CASE_INPUT || from->dtype != to->dtype || from->rows != to->rows ||
        from->columns != to->columns)
        return 0;
    return check_layout(trial, &(struct as_layout){.in_place = true});
}

/* One sequence alone gives the bits that it gave among others. */
static int check_part(struct trial *trial, const struct as_case *part, int32_t sequence)
{
    struct as_checker *checker = trial->checker;
    const struct as_layout layout = {0};
    struct as_outcome outcome = {0};
    struct as_setup setup;
    doing(trial, &layout, 2, "");
    int code = as_setup_open(&setup, trial->made, trial->variant, checker->device, &layout, 2,
                             &trial->complaint, checker->error);
    if (code != 0)
        return code;
    code = run_once(trial, &setup, 2, 0, false);
    if (code == 0)
        code = as_outcome_keep(&outcome, &setup, checker->error);
    as_setup_close(&setup);
    doing(trial, &layout, 2, ", one sequence of them alone");
    if (code == 0)
        code = as_setup_open(&setup, part, trial->variant, checker->device, &layout, 2,
                             &trial->complaint, checker->error);
    if (code == 0)
        code = run_once(trial, &setup, 2, 0, false);
    if (code == 0)
        as_judge_part(&setup, trial->made, &outcome, sequence, &trial->complaint);
    as_setup_close(&setup);
    free(outcome.bytes);
    failed(trial);
    return code;
}

static int check_invariance(struct trial *trial)
{
    int32_t sequence = choose_part(trial->made);
    struct as_case part;
    char why[200];
    if (sequence < 0 || (trial->variant->flags & ASSAY_BATCH_INVARIANT) == 0)
        return 0;
    int code = as_case_part(&part, trial->made, sequence, trial->checker->error);
    if (code != 0)
        return code;
    if (as_variant_supports(trial->variant, trial->checker->device, &part.problem, why, sizeof why))
        code = check_part(trial, &part, sequence);
    as_case_free(&part);
    return code;
}

/* The same plan serves the next step of the same size after a refresh. */
static int check_refresh(struct trial *trial)
{
    struct as_checker *checker = trial->checker;
    const struct as_layout layout = {0};
    struct as_case next;
    struct as_setup setup;
    char why[200];
    int code = as_case_shorter(&next, trial->made, checker->error);
    if (code != 0)
        return code;
    if (as_variant_supports(trial->variant, checker->device, &next.problem, why, sizeof why)) {
        doing(trial, &layout, 2, ", then the next step on the same plan");
        code = as_setup_open(&setup, trial->made, trial->variant, checker->device, &layout, 2,
                             &trial->complaint, checker->error);
        if (code == 0)
            code = run_once(trial, &setup, 2, 0, false);
        if (code == 0)
            code = as_setup_refit(&setup, &next, &trial->complaint, checker->error);
        if (code == 0)
            code = run_once(trial, &setup, 2, 0, false);
        as_setup_close(&setup);
        failed(trial);
    }
    as_case_free(&next);
    return code;
}

int as_checker_case(struct as_checker *checker, const struct assay_variant *variant,
                    const struct as_case *made, const struct as_check_depth *depth,
                    struct as_check_result *result)
{
    struct trial trial = {
        .checker = checker, .variant = variant, .made = made, .depth = depth, .result = result};
    int code = 0;
    as_isolate_again(checker->isolated);
    result->problems++;
    if (depth->dense)
        code = check_layout(&trial, &(struct as_layout){0});
    if (code == 0 && result->passed && depth->apart)
        code = check_layout(&trial, &(struct as_layout){.apart = true, .huge = true});
    if (code == 0 && result->passed && depth->fenced)
        code = check_layout(&trial, &(struct as_layout){.fenced = true});
    if (code == 0 && result->passed && depth->promises)
        code = check_in_place(&trial);
    if (code == 0 && result->passed && depth->promises)
        code = check_invariance(&trial);
    if (code == 0 && result->passed && depth->promises)
        code = check_refresh(&trial);
    return code;
}

int as_checker_measure(struct as_checker *checker, const struct assay_variant *variant,
                       const struct as_case *made, struct as_ref_comparison *total)
{
    struct as_check_result result = {.passed = true};
    const struct as_check_depth depth = {.threads = 1};
    struct trial trial = {
        .checker = checker, .variant = variant, .made = made, .depth = &depth, .result = &result};
    struct as_setup setup;
    const struct as_layout layout = {0};
    doing(&trial, &layout, 1, "");
    int code = as_setup_open(&setup, made, variant, checker->device, &layout, 1, &trial.complaint,
                             checker->error);
    if (code != 0)
        return code;
    code = run_once(&trial, &setup, 1, 0, true);
    as_ref_compare_add(total, &result.total);
    as_setup_close(&setup);
    return code;
}

/* ---- problems ----------------------------------------------------------------------------- */

/* An odd number of rows, and a third of the context. */
static struct assay_problem odd_sizes(const struct assay_problem *problem)
{
    struct assay_problem odd = *problem;
    for (int32_t i = 0; i < odd.nodes; i++) {
        struct assay_shape *shape = &odd.node[i];
        shape->tokens = shape->tokens > 3 ? (shape->tokens - shape->tokens / 5) | 1 : shape->tokens;
        if (shape->op == ASSAY_ATTENTION && shape->context > 2)
            shape->context = (shape->context / 3) | 1;
        shape->sequences = 0;
    }
    return odd;
}

/* A problem that the variant does not support counts for nothing where `optional`. */
static int check_sizes(struct as_checker *checker, const struct assay_variant *variant,
                       const struct assay_problem *problem, const struct as_case_options *options,
                       const struct as_check_depth *depth, bool optional,
                       struct as_check_result *result)
{
    struct as_case made;
    char why[200] = "";
    int code = as_case_make(&made, problem, options, checker->error);
    if (code != 0)
        return code;
    if (as_variant_supports(variant, checker->device, &made.problem, why, sizeof why))
        code = as_checker_case(checker, variant, &made, depth, result);
    else if (!optional)
        code = as_fail(checker->error, AS_ERR_UNSUPPORTED, "%s %s", variant->name, why);
    as_case_free(&made);
    return code;
}

int as_checker_problem(struct as_checker *checker, const struct assay_variant *variant,
                       const struct assay_problem *problem, struct as_check_result *result)
{
    struct as_case_options options = {.seed = 1, .work = 80 * CLASS_WORK};
    struct as_check_depth depth = {.dense = true, .apart = true, .promises = true, .counted = true};
    struct assay_problem odd = odd_sizes(problem);
    int code = check_sizes(checker, variant, problem, &options, &depth, false, result);
    options.seed++;
    options.oddities = true;
    if (code == 0 && result->passed)
        code = check_sizes(checker, variant, &odd, &options, &depth, true, result);
    options.seed++;
    options.anomalies = true;
    depth.counted = depth.promises = false;
    if (code == 0 && result->passed)
        code = check_sizes(checker, variant, &odd, &options, &depth, true, result);
    return code;
}

int as_checker_class(struct as_checker *checker, const struct assay_variant *variant,
                     const struct assay_problem *problem, struct as_check_result *result)
{
    int32_t threads = checker->device->threads;
    threads = threads > AS_CHECK_MOST_THREADS ? AS_CHECK_MOST_THREADS : threads;
    struct as_case_options options = {.seed = 1, .work = CLASS_WORK};
    struct as_check_depth depth = {
        .dense = true, .threads = threads < 1 ? 1 : threads, .counted = true};
    struct assay_problem class = as_problem_class(problem), odd = odd_sizes(&class);
    int code = check_sizes(checker, variant, &class, &options, &depth, true, result);
    options.seed++;
    options.oddities = true;
    depth.dense = false;
    depth.apart = depth.once = true;
    if (code == 0 && result->passed)
        code = check_sizes(checker, variant, &odd, &options, &depth, true, result);
    /* A variant may end between the problem's size and the class's. */
    if (code == 0 && result->passed && result->runs == 0)
        code = check_sizes(checker, variant, problem, &options, &depth, false, result);
    return code;
}
