#include "check/check.h"

#include <stdio.h>
#include <stdlib.h>

#include "as_clock.h"
#include "check/checker.h"
#include "check/suite.h"

/* Far more than any one case takes; a deadlock is what it ends. */
#define CASE_SECONDS 60

struct order {
    int (*check)(struct as_checker *, const struct assay_variant *, const struct assay_problem *,
                 struct as_check_result *);
    const struct as_registry *registry; /* of a suite */
    const struct assay_variant *variant;
    const struct assay_problem *problem;
    struct assay_device *device;
};

static int work(void *context, struct as_isolated *isolated, void *result)
{
    const struct order *order = context;
    struct as_checker checker;
    as_checker_open(&checker, order->device, isolated);
    int code = order->problem == NULL
                   ? as_checker_suite(&checker, order->registry, order->variant, result)
                   : order->check(&checker, order->variant, order->problem, result);
    as_checker_close(&checker);
    return code;
}

static int carry_out(struct order *order, struct as_check_result *result, struct as_error *error)
{
    bool stay = order->device->backend != ASSAY_CPU || as_isolated_inline();
    bool died;
    char how[600];
    uint64_t start = as_clock_ns();
    as_check_begin(result);
    as_isolate_rest(order->device);
    struct as_isolation isolation;
    as_isolate_start(&isolation, work, order, result, sizeof *result,
                     as_isolated_seconds(CASE_SECONDS), stay, error);
    int code = as_isolate_end(&isolation, &died, how, sizeof how, error);
    if (died) {
        result->passed = false;
        snprintf(result->reason, sizeof result->reason, "%s %s", order->variant->name, how);
    }
    as_check_end(result);
    result->seconds = (double)(as_clock_ns() - start) * 1e-9;
    return code;
}

int as_check_variant(const struct assay_variant *variant, const struct assay_problem *problem,
                     struct assay_device *device, struct as_check_result *result,
                     struct as_error *error)
{
    struct order order = {
        .check = as_checker_problem, .variant = variant, .problem = problem, .device = device};
    return carry_out(&order, result, error);
}

int as_check_class(const struct assay_variant *variant, const struct assay_problem *problem,
                   struct assay_device *device, struct as_check_result *result,
                   struct as_error *error)
{
    struct order order = {
        .check = as_checker_class, .variant = variant, .problem = problem, .device = device};
    return carry_out(&order, result, error);
}

int as_check_suite(const struct as_registry *registry, const struct assay_variant *variant,
                   struct assay_device *device, struct as_check_result *result,
                   struct as_error *error)
{
    struct order order = {.registry = registry, .variant = variant, .device = device};
    return carry_out(&order, result, error);
}
