/* Every variant that is wrong on purpose is caught, and for the reason that is wrong with it. */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check/check.h"
#include "check/stamps.h"
#include "device/cpu/cpu_device.h"

#include "../variants/add_between_rows.c"
#include "../variants/add_deadlock.c"
#include "../variants/add_in_place.c"
#include "../variants/add_into_input.c"
#include "../variants/add_past_end.c"
#include "../variants/add_reads_past_end.c"
#include "../variants/add_stale_output.c"
#include "../variants/argmax_last_tie.c"
#include "../variants/attention_dead_rows.c"
#include "../variants/attention_stale_plan.c"
#include "../variants/attention_wrong_mask.c"
#include "../variants/kv_write_padding.c"
#include "../variants/linear_depth.c"
#include "../variants/linear_packs_past_end.c"
#include "../variants/linear_race.c"
#include "../variants/linear_restless.c"
#include "../variants/linear_tail.c"
#include "../variants/rms_norm_loses_nan.c"
#include "../variants/rms_norm_skips_row.c"
#include "../variants/rope_gives_up.c"
#include "../variants/silu_mul_imprecise.c"
#include "../variants/silu_mul_misaligned.c"

/* The words that the reason must hold. */
struct fault {
    const struct assay_variant *variant;
    const char *words;
};

static const struct fault faults[] = {
    {&assay_wrong_add_between_rows, "between rows"},
    {&assay_wrong_add_deadlock, "did not end within 3 s"},
    {&assay_wrong_add_in_place, "in place): y["},
    {&assay_wrong_add_into_input, "changed its input a"},
    {&assay_wrong_add_past_end, "past the end of y (the first at +"},
    {&assay_wrong_add_reads_past_end, "died of SIGSEGV"},
    {&assay_wrong_add_stale_output, "something dead or unwritten was read"},
    {&assay_wrong_argmax_last_tie, "].id is "},
    {&assay_wrong_attention_dead_rows, "something dead or unwritten was read"},
    {&assay_wrong_attention_dead_entry, "died of SIGSEGV"},
    {&assay_wrong_attention_stale_plan, "then the next step on the same plan"},
    {&assay_wrong_attention_no_mask, "times what is allowed"},
    {&assay_wrong_attention_short_mask, "times what is allowed"},
    {&assay_wrong_kv_write_padding, "that belongs to no token"},
    {&assay_wrong_linear_depth, "times what is allowed"},
    {&assay_wrong_linear_packs_past_end, "pack wrote"},
    {&assay_wrong_linear_race, "something dead or unwritten was read"},
    {&assay_wrong_linear_scratch, "past the end of the scratch memory"},
    {&assay_wrong_linear_restless, "has other bits in a second run, against deterministic"},
    {&assay_wrong_linear_crowd, "alone, against batch_invariant"},
    {&assay_wrong_linear_tail, "did not write y["},
    {&assay_wrong_rms_norm_loses_nan, "a NaN of the inputs was lost"},
    {&assay_wrong_rms_norm_skips_row, "did not write y["},
    {&assay_wrong_rope_gives_up, "run returned -5"},
    {&assay_wrong_silu_mul_imprecise, "at most 2 times is allowed"},
    {&assay_wrong_silu_mul_misaligned, "while wrong/silu_mul_misaligned ran silu_mul 1x576 f32"},
};

#define FAULTS (sizeof faults / sizeof faults[0])

static struct assay_device *device;
static struct as_registry *registry;

static void open_all(void)
{
    struct as_error error = {0};
    setenv("ASSAY_CHECK_SECONDS", "3", 1);
    unsetenv("ASSAY_CHECK_INLINE");
    cr_assert_eq(as_cpu_device_open(&device, 2, NULL, &error), 0, "%s", error.message);
    cr_assert_eq(as_registry_create(&registry, &error), 0, "%s", error.message);
}

static void close_all(void)
{
    as_registry_free(registry);
    device->close(device);
}

TestSuite(check_faults, .init = open_all, .fini = close_all, .timeout = 120);

ParameterizedTestParameters(check_faults, is_caught)
{
    static size_t index[FAULTS];
    for (size_t i = 0; i < FAULTS; i++)
        index[i] = i;
    return cr_make_param_array(size_t, index, FAULTS);
}

ParameterizedTest(size_t *index, check_faults, is_caught)
{
    const struct fault *fault = &faults[*index];
    struct as_check_result result;
    struct as_error error = {0};
    int code = as_check_suite(registry, fault->variant, device, &result, &error);
    cr_assert_eq(code, 0, "%s: %s", fault->variant->name, error.message);
    printf("%s\n", result.reason);
    fflush(stdout);
    cr_assert(!result.passed, "%s was not caught", fault->variant->name);
    cr_assert_not_null(strstr(result.reason, fault->variant->name), "%s", result.reason);
    cr_assert_not_null(strstr(result.reason, fault->words), "%s: expected \"%s\" in: %s",
                       fault->variant->name, fault->words, result.reason);
}
