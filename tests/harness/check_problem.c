/* Single problems: bounded price, reasons in words, classes. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "check/stamps.h"
#include "device/cpu/cpu_device.h"

#include "../variants/linear_depth.c"
#include "../variants/linear_tail.c"

static struct assay_device *device;
static struct as_registry *registry;

static void open_all(void)
{
    struct as_error error = {0};
    cr_assert_eq(as_cpu_device_open(&device, 2, NULL, &error), 0, "%s", error.message);
    cr_assert_eq(as_registry_create(&registry, &error), 0, "%s", error.message);
}

static void close_all(void)
{
    as_registry_free(registry);
    device->close(device);
}

TestSuite(check_problem, .init = open_all, .fini = close_all, .timeout = 240);

static struct assay_problem linear(int64_t tokens, int64_t n, int64_t k, enum assay_dtype weights)
{
    struct assay_problem problem;
    memset(&problem, 0, sizeof problem);
    problem.nodes = 1;
    problem.node[0] = (struct assay_shape){.op = ASSAY_LINEAR,
                                           .weights = weights,
                                           .activations = ASSAY_F32,
                                           .kv = ASSAY_NONE,
                                           .tokens = tokens,
                                           .n = n,
                                           .k = k};
    return problem;
}

static const struct assay_variant *find(const char *name)
{
    struct as_error error = {0};
    const struct assay_variant *variant = as_registry_find(registry, name, &error);
    cr_assert_not_null(variant, "%s", error.message);
    return variant;
}

Test(check_problem, the_largest_is_cut_to_a_bearable_size)
{
    struct assay_problem problem = linear(512, 49152, 576, ASSAY_Q8_0);
    struct as_check_result result;
    struct as_error error = {0};
    cr_assert_eq(as_check_class(find("linear/cpu_naive"), &problem, device, &result, &error), 0,
                 "%s", error.message);
    cr_assert(result.passed, "%s", result.reason);
    cr_assert_eq(result.runs, 3);
    /* All of k, all of the tokens, few of the rows. */
    cr_assert(strncmp(result.worst, "linear 512x", 11) == 0 || strstr(result.worst, "linear 411x"),
              "%s", result.worst);
    cr_assert_not_null(strstr(result.worst, "x576 q8_0/f32"), "%s", result.worst);
}

Test(check_problem, a_cut_problem_keeps_its_tail)
{
    struct assay_problem problem = linear(64, 49151, 576, ASSAY_F32);
    struct as_check_result result;
    struct as_error error = {0};
    cr_assert_eq(as_check_class(&assay_wrong_linear_tail, &problem, device, &result, &error), 0,
                 "%s", error.message);
    cr_assert_not_null(strstr(result.reason, "did not write y[0]["), "%s", result.reason);
    problem.node[0].n = 49152;
    cr_assert_eq(as_check_class(&assay_wrong_linear_depth, &problem, device, &result, &error), 0,
                 "%s", error.message);
    cr_assert_not_null(strstr(result.reason, "times what is allowed"), "%s", result.reason);
}

Test(check_problem, in_full)
{
    struct assay_problem problem = linear(5, 131, 96, ASSAY_Q4_1);
    struct as_check_result result;
    struct as_error error = {0};
    cr_assert_eq(as_check_variant(find("linear/cpu_naive"), &problem, device, &result, &error), 0,
                 "%s", error.message);
    cr_assert(result.passed, "%s", result.reason);
    cr_assert_eq(result.problems, 3);
    cr_assert(result.runs > 30 && result.ratio > 0 && result.ratio < 1);
    cr_assert(result.rms > 0 && result.rms_ulp > 0 && result.rms_ulp < 10);
}

Test(check_problem, what_is_not_supported_is_an_error_with_its_reason)
{
    struct assay_problem problem = linear(5, 131, 96, ASSAY_Q4_1);
    struct as_check_result result;
    struct as_error error = {0};
    problem.node[0].activations = ASSAY_Q8;
    cr_assert_eq(as_check_variant(find("linear/cpu_naive"), &problem, device, &result, &error),
                 AS_ERR_UNSUPPORTED);
    cr_assert_not_null(strstr(error.message, "does not serve activations in q8"), "%s",
                       error.message);
    as_error_clear(&error);
    problem = linear(5, 131, 95, ASSAY_Q4_1);
    cr_assert_eq(as_check_variant(find("linear/cpu_naive"), &problem, device, &result, &error),
                 AS_ERR_UNSUPPORTED);
    cr_assert_not_null(strstr(error.message, "no whole number of q4_1 blocks"), "%s",
                       error.message);
}

Test(check_problem, the_same_without_a_process_of_its_own)
{
    struct assay_problem problem = linear(5, 131, 96, ASSAY_F32);
    struct as_check_result here, there;
    struct as_error error = {0};
    cr_assert_eq(as_check_variant(find("linear/cpu_naive"), &problem, device, &there, &error), 0);
    setenv("ASSAY_CHECK_INLINE", "1", 1);
    cr_assert_eq(as_check_variant(find("linear/cpu_naive"), &problem, device, &here, &error), 0);
    cr_assert(here.passed && here.runs == there.runs && here.ratio == there.ratio);
    cr_assert(here.rms == there.rms && strcmp(here.worst, there.worst) == 0);
}

Test(check_problem, classes_are_powers_of_two)
{
    struct assay_problem problem = linear(257, 576, 1536, ASSAY_Q4_1);
    char words[1024], same[1024], other[1024];
    struct assay_problem class = as_problem_class(&problem);
    cr_assert_eq(class.node[0].tokens, 512);
    as_problem_class_words(&problem, words, sizeof words);
    as_problem_class_words(&class, same, sizeof same);
    cr_assert_str_eq(words, same);
    problem.node[0].tokens = 256;
    as_problem_class_words(&problem, other, sizeof other);
    cr_assert_str_neq(words, other);
    problem.node[0].tokens = 0;
    cr_assert_eq(as_problem_class(&problem).node[0].tokens, 0);
}
