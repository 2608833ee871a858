/* Ranks, percentiles and intervals. Case C58 exactly; expected intervals are from
 * scipy.stats.binom 1.17.1, means, deviations and linear percentiles from numpy 2.4.6. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "as_random.h"
#include "statistics.h"

static double count_up[1000]; /* 1..1000 ms in ns */

static void fill(void)
{
    for (int i = 0; i < 1000; i++)
        count_up[i] = (i + 1) * 1e6;
}

TestSuite(statistics, .init = fill);

Test(statistics, c58_one_to_a_thousand)
{
    cr_assert_eq(as_percentile(count_up, 1000, AS_P50), 500e6);
    cr_assert_eq(as_percentile(count_up, 1000, AS_P95), 950e6);
    cr_assert_eq(as_percentile(count_up, 1000, AS_P99), 990e6, "991 is the fault");
    cr_assert(as_percentile_shown(1000, AS_P99), "exactly ten lie beyond it");
    cr_assert_not(as_percentile_shown(1000, AS_P999));
    cr_assert_not(as_percentile_shown(999, AS_P99));
}

Test(statistics, c58_small_samples)
{
    double twenty[20], three[] = {10, 20, 30}, one[] = {5}, two[] = {1, 2};
    for (int i = 0; i < 20; i++)
        twenty[i] = i;
    cr_assert_eq(as_percentile(twenty, 20, AS_P95), 18, "19, the maximum, is the fault");
    cr_assert_not(as_percentile_shown(20, AS_P95), "one value lies beyond it");
    cr_assert_eq(as_percentile(three, 3, AS_P50), 20);
    cr_assert_eq(as_percentile(three, 3, AS_P99), 30, "20, the median, is the fault");
    cr_assert_eq(as_percentile(one, 1, AS_P50), 5);
    cr_assert_eq(as_percentile(two, 2, AS_P50), 1);
    cr_assert(as_percentile_shown(1, AS_P50));
    cr_assert_not(as_percentile_shown(0, AS_P50));
    cr_assert(isnan(as_percentile(one, 0, AS_P50)));
    cr_assert(isnan(as_percentile_linear(one, 0, AS_P50)));
}

Test(statistics, c58_nan_is_never_sorted_in)
{
    double values[1002];
    for (int i = 0; i < 1000; i++)
        values[i < 3 ? i : i < 500 ? i + 1 : i + 2] = count_up[999 - i];
    values[3] = values[501] = NAN;
    size_t numbers = as_sort_f64(values, 1002);
    cr_assert_eq(numbers, 1000);
    cr_assert_eq(as_percentile(values, numbers, AS_P50), 500e6);
    cr_assert_eq(as_percentile(values, numbers, AS_P99), 990e6);
    cr_assert(isnan(values[1000]) && isnan(values[1001]));
    double none[] = {NAN, NAN};
    cr_assert_eq(as_sort_f64(none, 2), 0);
}

Test(statistics, c58_beyond_two_to_53)
{
    uint64_t values[] = {(1ull << 53) + 3, (1ull << 53) + 1, (1ull << 53) + 2, (1ull << 53)};
    as_sort_u64(values, 4);
    cr_assert_eq(values[as_percentile_rank(4, AS_P50) - 1], (1ull << 53) + 1);
    cr_assert_eq(values[3], (1ull << 53) + 3);
}

Test(statistics, c58_linear_form)
{
    cr_assert_float_eq(as_percentile_linear(count_up, 1000, AS_P99), 990.01e6, 1e-3);
    cr_assert_float_eq(as_percentile_linear(count_up, 1000, AS_P50), 500.5e6, 1e-3);
    cr_assert_float_eq(as_percentile_linear(count_up, 1000, 10000), 10.99e6, 1e-3);
    double values[] = {3.5, -1, 8.25, 0.125, 1e9, 2, 2, 7};
    as_sort_f64(values, 8);
    cr_assert_float_eq(as_percentile_linear(values, 8, 10000), -0.92125, 1e-12);
    cr_assert_float_eq(as_percentile_linear(values, 8, 250000), 1.53125, 1e-12);
    cr_assert_float_eq(as_percentile_linear(values, 8, AS_P50), 2.75, 1e-12);
    cr_assert_float_eq(as_percentile_linear(values, 8, AS_P90), 300000005.7749998, 1e-6);
    cr_assert_float_eq(as_percentile_linear(values, 8, AS_P99), 930000000.5774997, 1e-6);
    cr_assert_eq(as_percentile_linear(values, 8, 1000000), 1e9);
    cr_assert_eq(as_percentile_linear(values, 8, 0), -1);
}

/* rank = ceil(n p) in exact arithmetic: 0.07 x 100 is 7, whatever a double says. */
Test(statistics, ranks_are_exact)
{
    cr_assert_eq(as_percentile_rank(100, 70000), 7);
    cr_assert_eq(as_percentile_rank(100, 290000), 29);
    cr_assert_eq(as_percentile_rank(1000000000000, AS_P999), 999000000000);
    cr_assert_eq(as_percentile_rank(1000000000001, AS_P999), 999000000001);
    cr_assert_eq(as_percentile_rank(10, 0), 1);
    cr_assert_eq(as_percentile_rank(10, 1000000), 10);
    cr_assert_eq(as_percentile_rank(0, AS_P50), 0);
    for (size_t n = 1; n < 300; n++) {
        for (uint32_t p = 0; p <= 1000000; p += 12500) {
            size_t rank = as_percentile_rank(n, p);
            cr_assert(rank >= 1 && rank <= n);
            cr_assert_geq((uint64_t)rank * 1000000, (uint64_t)n * p);
            cr_assert(rank == 1 || (uint64_t)(rank - 1) * 1000000 < (uint64_t)n * p);
        }
    }
}

Test(statistics, intervals_agree_with_scipy)
{
    static const struct {
        size_t count;
        uint32_t millionths;
        size_t low, high;
        double coverage;
    } cases[] = {
        {1, 500000, 0, 2, NAN},
        {5, 500000, 0, 6, NAN},
        {6, 500000, 1, 6, 0.96875},
        {9, 500000, 2, 8, 0.9609375},
        {10, 500000, 2, 9, 0.978515625},
        {16, 500000, 4, 13, 0.978729248046875},
        {17, 500000, 5, 13, 0.950958251953125},
        {64, 500000, 24, 41, 0.967234240901177},
        {100, 500000, 40, 61, 0.964799799782295},
        {1000, 500000, 469, 532, 0.953708802639502},
        {100, 900000, 84, 96, 0.955690107191223},
        {200, 950000, 184, 197, 0.967152163856726},
        {1000, 950000, 936, 964, 0.958095268222654},
        {1000, 990000, 983, 997, 0.976094763497977},
        {5000, 999000, 4990, 5000, 0.979628935515952},
        {20000, 999000, 19971, 19989, 0.95689884175887},
        {100000, 500000, 49690, 50311, 0.950444285330478},
        {10000000, 500000, 4996901, 5003100, 0.95003879296739},
        {300, 100000, 20, 42, 0.966242664274603},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct as_interval found =
            as_percentile_interval(cases[i].count, cases[i].millionths, 0.95);
        cr_expect_eq(found.low, cases[i].low, "case %zu: low %zu", i, found.low);
        cr_expect_eq(found.high, cases[i].high, "case %zu: high %zu", i, found.high);
        if (isnan(cases[i].coverage))
            cr_expect(isnan(found.coverage));
        else
            cr_expect_float_eq(found.coverage, cases[i].coverage, 2e-9, "case %zu: %.12g", i,
                               found.coverage);
    }
    struct as_interval none = as_percentile_interval(0, AS_P50, 0.95);
    cr_assert(none.low == 0 && none.high == 1 && isnan(none.coverage));
}

/* Coverage by trial: the median of uniform values lies between the bounds as often as said. */
Test(statistics, intervals_cover)
{
    const int trials = 4000, n = 25;
    int covered = 0;
    struct as_interval interval = as_percentile_interval((size_t)n, AS_P50, 0.95);
    for (int t = 0; t < trials; t++) {
        double values[25];
        for (int i = 0; i < n; i++)
            values[i] = as_random_unit(17, (uint64_t)t, (uint64_t)i);
        as_sort_f64(values, (size_t)n);
        covered += values[interval.low - 1] <= 0.5 && 0.5 <= values[interval.high - 1];
    }
    cr_assert_float_eq((double)covered / trials, interval.coverage, 0.012);
    cr_assert_geq(interval.coverage, 0.95);
}

Test(statistics, mean_and_deviation)
{
    double values[] = {3.5, -1, 8.25, 0.125, 1e9, 2, 2, 7};
    cr_assert_float_eq(as_mean(values, 8), 125000002.734375, 1e-6);
    cr_assert_float_eq(as_deviation(values, 8), 353553389.4884194, 1e-4);
    cr_assert(isnan(as_mean(values, 0)));
    cr_assert(isnan(as_deviation(values, 1)));
    double same[] = {7, 7, 7};
    cr_assert_eq(as_deviation(same, 3), 0);
}
