/* The checks themselves, without the isolation around them. */
#ifndef AS_CHECKER_H
#define AS_CHECKER_H

#include "check/case.h"
#include "check/check.h"
#include "check/isolate.h"

#define AS_CHECK_MOST_THREADS 64

struct as_team;

struct as_checker {
    struct assay_device *device;
    struct as_isolated *isolated;
    struct as_team *team[AS_CHECK_MOST_THREADS + 1]; /* by size, made when first asked for */
    struct as_error *error;
};

void as_checker_open(struct as_checker *checker, struct assay_device *device,
                     struct as_isolated *isolated);
void as_checker_close(struct as_checker *checker);

/* How much of the ritual a case gets. */
struct as_check_depth {
    bool dense, apart, fenced; /* layouts; the fenced one is run by one thread, once */
    bool promises;             /* flags and refresh too */
    bool once;                 /* no second run */
    int32_t threads;           /* a team of that size; 0 = teams of one, two and three */
    bool counted;              /* errors enter result->total */
};

/* Runs `variant` on a case and adds to `result`; the first fault ends it with passed = false. */
int as_checker_case(struct as_checker *checker, const struct assay_variant *variant,
                    const struct as_case *made, const struct as_check_depth *depth,
                    struct as_check_result *result);

/* One dense run by one thread, its errors added to `total`; what the RMS rule needs of a naive
 * rung. Faults are not reported. */
int as_checker_measure(struct as_checker *checker, const struct assay_variant *variant,
                       const struct as_case *made, struct as_ref_comparison *total);

/* as_check_variant and as_check_class without isolation. */
int as_checker_problem(struct as_checker *checker, const struct assay_variant *variant,
                       const struct assay_problem *problem, struct as_check_result *result);
int as_checker_class(struct as_checker *checker, const struct assay_variant *variant,
                     const struct assay_problem *problem, struct as_check_result *result);

/* Readies a result, and fills in what follows from its sums. */
void as_check_begin(struct as_check_result *result);
void as_check_end(struct as_check_result *result);

#endif
