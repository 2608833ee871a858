/* Every built-in variant passes its op's suite; those that cannot run here are named. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>

#include "check/check.h"
#include "device/cpu/cpu_device.h"

static size_t count_variants(void)
{
    size_t count = 0;
    while (as_builtin_variants[count] != NULL)
        count++;
    return count;
}

ParameterizedTestParameters(check_variants, passes_its_suite)
{
    static size_t index[512];
    size_t count = count_variants();
    for (size_t i = 0; i < count && i < 512; i++)
        index[i] = i;
    return cr_make_param_array(size_t, index, count);
}

ParameterizedTest(size_t *index, check_variants, passes_its_suite, .timeout = 250)
{
    const struct assay_variant *variant = as_builtin_variants[*index];
    struct as_error error = {0};
    struct assay_device *device;
    struct as_registry *registry;
    char why[200];
    cr_assert_eq(as_cpu_device_open(&device, 2, NULL, &error), 0, "%s", error.message);
    cr_assert_eq(as_registry_create(&registry, &error), 0, "%s", error.message);
    if (!as_variant_runs_here(variant, device, why, sizeof why)) {
        printf("%s: skipped, %s\n", variant->name, why);
        fflush(stdout);
        as_registry_free(registry);
        device->close(device);
        cr_skip_test("%s: %s", variant->name, why);
    }
    struct as_check_result result;
    int code = as_check_suite(registry, variant, device, &result, &error);
    cr_assert_eq(code, 0, "%s: %s", variant->name, error.message);
    printf("%s: %d problems, %d runs, at worst %.3f of what is allowed, RMS %.3g ulp "
           "(%s: %.3g), %.2f s\n",
           variant->name, result.problems, result.runs, result.ratio, result.rms_ulp, result.naive,
           result.naive_rms_ulp, result.seconds);
    fflush(stdout);
    cr_assert(result.passed, "%s", result.reason);
    cr_assert(result.runs > 0);
    as_registry_free(registry);
    device->close(device);
}
