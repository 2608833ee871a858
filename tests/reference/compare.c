/* Each of the three parts of a comparison sees what the others miss. */
#include "compare.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "as_random.h"

enum { COUNT = 1000 };

static double ref[COUNT], got[COUNT];
static const struct as_ref_limits f32 = {
    .absolute = 1e-5, .relative = 1.3e-6, .nmse = 1e-10, .cosine = 1e-10};
static const struct as_ref_limits exact;

static void fill(void)
{
    for (uint64_t i = 0; i < COUNT; i++)
        ref[i] = got[i] = as_random_normal(3, 0, i);
}

TestSuite(compare, .init = fill);

Test(compare, equal_passes_even_without_tolerance)
{
    ref[3] = got[3] = NAN;
    ref[4] = got[4] = INFINITY;
    ref[5] = got[5] = 0;
    struct as_ref_comparison c = as_ref_compare(ref, got, COUNT, &exact);
    cr_assert(c.pass && c.count == COUNT && c.finite == COUNT - 2 && c.worst_ratio == 0);
    cr_assert(c.nmse == 0 && c.cosine == 0 && c.rms == 0);
    got[5] = 5e-324;
    c = as_ref_compare(ref, got, COUNT, &exact);
    cr_assert(!c.pass && c.over == 1 && c.worst == 5 && c.worst_ratio == INFINITY);
}

Test(compare, anomalies_must_stand_in_the_same_places)
{
    got[7] = NAN;
    ref[9] = INFINITY;
    got[9] = -INFINITY;
    struct as_ref_comparison c = as_ref_compare(ref, got, COUNT, &f32);
    cr_assert(!c.pass && c.anomalies == 2 && c.over == 0 && c.worst == 7);
    cr_assert(isnan(c.worst_got) && c.worst_ref == ref[7] && c.finite == COUNT - 2);
}

Test(compare, one_wrong_element_is_found)
{
    got[123] += 3e-5;
    struct as_ref_comparison c = as_ref_compare(ref, got, COUNT, &f32);
    cr_assert(!c.pass && c.over == 1 && c.anomalies == 0 && c.worst == 123);
    double limit = 1e-5 + 1.3e-6 * fabs(ref[123]);
    cr_assert_float_eq(c.worst_ratio, 3e-5 / limit, 1e-9);
    cr_assert_float_eq(c.max_error, 3e-5, 1e-12);
    cr_assert_float_eq(c.rms, 3e-5 / sqrt(COUNT), 1e-12);
    cr_assert(c.nmse < f32.nmse && c.cosine < f32.cosine);

    struct as_ref_limits product = f32;
    product.depth = 16; /* 4 x the absolute part */
    c = as_ref_compare(ref, got, COUNT, &product);
    cr_assert(c.pass && c.over == 0);
}

Test(compare, a_common_shift_is_seen_by_the_distance_alone)
{
    struct as_ref_limits loose = {.absolute = 1, .relative = 1, .nmse = 1e-10, .cosine = 1};
    for (int i = 0; i < COUNT; i++)
        got[i] = ref[i] * 1.0001;
    struct as_ref_comparison c = as_ref_compare(ref, got, COUNT, &loose);
    cr_assert(!c.pass && c.over == 0);
    cr_assert_float_eq(c.nmse, 1e-8, 1e-12);
    cr_assert_lt(c.cosine, 1e-14); /* the direction is the same */
}

Test(compare, direction)
{
    const double x[] = {1, 0}, y[] = {1, 1e-4}, zero[] = {0, 0};
    const struct as_ref_limits turned = {.absolute = 1, .nmse = 1, .cosine = 4e-9};
    struct as_ref_comparison c = as_ref_compare(x, y, 2, &f32);
    cr_assert_float_eq(c.cosine, 5e-9, 1e-15);
    c = as_ref_compare(x, y, 2, &turned);
    cr_assert(!c.pass && c.over == 0 && c.nmse < turned.nmse);
    c = as_ref_compare(zero, zero, 2, &exact);
    cr_assert(c.pass && c.nmse == 0 && c.cosine == 0);
    c = as_ref_compare(zero, y, 2, &f32);
    cr_assert(!c.pass && c.nmse == INFINITY && c.cosine == 1);
    c = as_ref_compare(NULL, NULL, 0, &exact);
    cr_assert(c.pass && c.worst == -1);
}

Test(compare, parts_add_up_to_the_whole)
{
    for (uint64_t i = 0; i < COUNT; i++)
        got[i] += 1e-6 * as_random_normal(3, 1, i);
    struct as_ref_comparison whole = as_ref_compare(ref, got, COUNT, &f32), total = {0}, part;
    cr_assert(whole.pass);
    for (int i = 0; i < COUNT; i += 250) {
        part = as_ref_compare(ref + i, got + i, 250, &f32);
        as_ref_compare_add(&total, &part);
    }
    cr_assert(total.pass && total.count == COUNT && total.finite == COUNT);
    cr_assert_float_eq(total.rms, whole.rms, 1e-15);
    cr_assert_float_eq(total.nmse, whole.nmse, 1e-20);
    cr_assert_float_eq(total.cosine, whole.cosine, 1e-20);
    cr_assert_eq(total.worst, whole.worst % 250);
    cr_assert(total.worst_ratio == whole.worst_ratio && total.worst_got == whole.worst_got);
    got[0] = NAN;
    part = as_ref_compare(ref, got, 250, &f32);
    as_ref_compare_add(&total, &part);
    cr_assert(!total.pass && total.anomalies == 1 && total.worst == 0 && isnan(total.worst_got));
}

Test(compare, a_rung_may_be_twice_as_wrong_as_naive)
{
    double ulp = 0x1p-23;
    struct as_ref_comparison naive = {.finite = 100, .sum_ref2 = 100, .rms = 1e-5};
    struct as_ref_comparison rung = naive;
    rung.rms = 1.99e-5;
    cr_assert(as_ref_compare_rungs(&naive, &rung, ulp));
    rung.rms = 2.01e-5;
    cr_assert(!as_ref_compare_rungs(&naive, &rung, ulp));
    naive.rms = 0; /* then 2 ulp of a value of 1 stand in */
    rung.rms = 3.99 * ulp;
    cr_assert(as_ref_compare_rungs(&naive, &rung, ulp));
    rung.rms = 4.01 * ulp;
    cr_assert(!as_ref_compare_rungs(&naive, &rung, ulp));
    rung.rms = 0;
    rung.anomalies = 1;
    cr_assert(!as_ref_compare_rungs(&naive, &rung, ulp));
}

Test(compare, logits_of_a_model)
{
    const double noise = 0.1;
    const double rows[3][4] = {{1, 2, 3, 4}, {5, 4.95, 0, 0}, {0, 3, 0, 0}};
    const float same[4] = {1, 2, 3, 4}, excused[4] = {5, 5.05f, 0, 0}, flipped[4] = {3.5f, 3, 0, 0};
    struct as_ref_logits sum = {0};
    cr_assert_eq(as_ref_logits_judge(&sum, 1, 1), AS_REF_LOGITS_EMPTY);
    as_ref_logits_add(&sum, rows[0], same, 4, noise);
    cr_assert(sum.agreements == 1 && sum.rms == 0 && sum.kl == 0 && sum.below == 0);
    as_ref_logits_add(&sum, rows[1], excused, 4, noise);
    cr_assert(sum.agreements == 1 && sum.flips == 0 && sum.below == 1);
    cr_assert_eq(as_ref_logits_judge(&sum, 0.025, 0.5), 0);
    cr_assert_eq(as_ref_logits_judge(&sum, sum.rms / 1.99, 0.5), 0);
    cr_assert_eq(as_ref_logits_judge(&sum, sum.rms / 2.01, 0.5), AS_REF_LOGITS_RMS);
    cr_assert_eq(as_ref_logits_judge(&sum, 0.01, 0.4), AS_REF_LOGITS_RMS | AS_REF_LOGITS_BELOW);
    as_ref_logits_add(&sum, rows[2], flipped, 4, noise);
    cr_assert(sum.rows == 3 && sum.flips == 1 && sum.first_flip == 2);
    cr_assert(sum.worst_row == 2 && sum.worst_id == 0 && sum.max_error == 3.5);
    cr_assert_float_eq(sum.agreement, 1.0 / 3, 1e-15);
    cr_assert_float_eq(sum.below_share, 1.0 / 3, 1e-15);
    cr_assert_float_eq(sum.rms, sqrt((0.01 + 3.5 * 3.5) / 12), 1e-6);
    cr_assert_eq(as_ref_logits_judge(&sum, 10, 1), AS_REF_LOGITS_FLIP);

    /* KL of the third row, written out. */
    double z = exp(3) + 3, w = exp(3.5) + exp(3) + 2;
    double kl = (1 / z) * (log(1 / z) - log(exp(3.5) / w)) +
                (exp(3) / z) * (log(exp(3) / z) - log(exp(3) / w)) +
                (2 / z) * (log(1 / z) - log(1 / w));
    cr_assert_float_eq(sum.kl_max, kl, 1e-12);
}

Test(compare, a_margin_of_exactly_the_noise_excuses)
{
    const double row[2] = {1.5, 1};
    const float other[2] = {1, 1.5f};
    struct as_ref_logits sum = {0};
    as_ref_logits_add(&sum, row, other, 2, 0.5);
    cr_assert(sum.flips == 0 && sum.below == 1);
    as_ref_logits_add(&sum, row, other, 2, 0.499);
    cr_assert(sum.flips == 1 && sum.below == 1);
}

Test(compare, a_non_finite_logit_is_never_agreement)
{
    const double row[3] = {1, 2, 3};
    const float bad[3] = {1, NAN, 3}, worse[3] = {INFINITY, -INFINITY, NAN};
    struct as_ref_logits sum = {0};
    as_ref_logits_add(&sum, row, bad, 3, 0);
    cr_assert(sum.anomalies == 1 && sum.agreements == 0 && sum.rows == 1 && sum.judged == 0);
    cr_assert(as_ref_logits_judge(&sum, 1, 1) & AS_REF_LOGITS_ANOMALY);
    as_ref_logits_add(&sum, row, worse, 3, 0);
    cr_assert(sum.anomalies == 4 && sum.count == 2);
    cr_assert(sum.rms == 0 && sum.kl == 0 && isfinite(sum.agreement));
}
