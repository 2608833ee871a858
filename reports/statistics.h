/* Order statistics and their intervals. A percentile is given in millionths (p50 = 500000,
 * p99.9 = 999000), so that ranks are exact; samples are sorted first, without their NaNs. */
#ifndef AS_STATISTICS_H
#define AS_STATISTICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AS_P50 500000u
#define AS_P90 900000u
#define AS_P95 950000u
#define AS_P99 990000u
#define AS_P999 999000u

/* Sorts ascending with NaNs moved behind the end; returns how many values are numbers. */
size_t as_sort_f64(double *values, size_t count);
void as_sort_u64(uint64_t *values, size_t count);

/* The nearest rank of a percentile among `count` sorted values, from 1: the smallest rank that at
 * least that share of the values does not exceed. 0 when there is no value. */
size_t as_percentile_rank(size_t count, uint32_t millionths);

/* Whether a percentile of `count` values may be shown: the median of anything, others only with at
 * least ten values expected beyond them. */
bool as_percentile_shown(size_t count, uint32_t millionths);

/* The value at the nearest rank; NaN when there is none. */
double as_percentile(const double *sorted, size_t count, uint32_t millionths);

/* Linear interpolation between ranks, as NumPy's default and vLLM's reports; NaN when empty. */
double as_percentile_linear(const double *sorted, size_t count, uint32_t millionths);

/* Ranks (from 1) of the two values that enclose the percentile of the population with at least
 * `confidence`, by the binomial distribution alone, with at most half of the rest on either side.
 * `low` is 0 and `high` is count + 1 where the sample is too small for a bound on that side. */
struct as_interval {
    size_t low, high;
    double coverage; /* reached, where both bounds exist */
};
struct as_interval as_percentile_interval(size_t count, uint32_t millionths, double confidence);

/* NaN when empty; the deviation of a sample (n - 1) is NaN below two values. */
double as_mean(const double *values, size_t count);
double as_deviation(const double *values, size_t count);

#endif
