#include "statistics.h"

#include <math.h>
#include <stdlib.h>

#define MILLION 1000000u

static int by_f64(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int by_u64(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

size_t as_sort_f64(double *values, size_t count)
{
    size_t numbers = 0;
    for (size_t i = 0; i < count; i++) {
        if (!isnan(values[i])) {
            double value = values[i];
            values[i] = values[numbers];
            values[numbers++] = value;
        }
    }
    if (numbers > 1)
        qsort(values, numbers, sizeof *values, by_f64);
    return numbers;
}

void as_sort_u64(uint64_t *values, size_t count)
{
    if (count > 1)
        qsort(values, count, sizeof *values, by_u64);
}

size_t as_percentile_rank(size_t count, uint32_t millionths)
{
    /* In two parts, so that no count overflows: count = q * million + r. */
    size_t whole = count / MILLION * millionths;
    size_t rest = (count % MILLION * millionths + MILLION - 1) / MILLION;
    size_t rank = whole + rest;
    return rank == 0 && count > 0 ? 1 : rank > count ? count : rank;
}

bool as_percentile_shown(size_t count, uint32_t millionths)
{
    if (millionths == AS_P50)
        return count > 0;
    uint32_t beyond = millionths > AS_P50 ? MILLION - millionths : millionths;
    return (double)count * beyond >= 10.0 * MILLION;
}

double as_percentile(const double *sorted, size_t count, uint32_t millionths)
{
    return count == 0 ? NAN : sorted[as_percentile_rank(count, millionths) - 1];
}

double as_percentile_linear(const double *sorted, size_t count, uint32_t millionths)
{
    if (count == 0)
        return NAN;
    double place = (double)(count - 1) * millionths / MILLION;
    size_t below = (size_t)place;
    if (below + 1 >= count)
        return sorted[count - 1];
    double part = place - (double)below, step = sorted[below + 1] - sorted[below];
    return part < 0.5 ? sorted[below] + step * part : sorted[below + 1] - step * (1 - part);
}

/* Binomial(n, p) around its mode, each term relative to the mode's, so that nothing underflows
 * where it matters. */
struct binomial {
    double n, odds; /* odds: p / (1 - p) */
    double mode, total;
};

static double next_up(const struct binomial *b, double term, double k)
{
    return term * (b->n - k) / (k + 1) * b->odds; /* from k to k + 1 */
}

static double next_down(const struct binomial *b, double term, double k)
{
    return term * k / (b->n - k + 1) / b->odds; /* from k to k - 1 */
}

#define NEGLIGIBLE 1e-20

static struct binomial make_binomial(size_t count, double p)
{
    struct binomial b = {.n = (double)count, .odds = p / (1 - p)};
    b.mode = floor((b.n + 1) * p);
    b.mode = b.mode > b.n ? b.n : b.mode;
    b.total = 1;
    double term = 1;
    for (double k = b.mode; k < b.n && term > NEGLIGIBLE; k++)
        b.total += term = next_up(&b, term, k);
    term = 1;
    for (double k = b.mode; k > 0 && term > NEGLIGIBLE; k--)
        b.total += term = next_down(&b, term, k);
    return b;
}

/* The largest k with P(X <= k) <= tail, or -1; *sum becomes that probability. */
static double below_tail(const struct binomial *b, double tail, double *sum)
{
    double k = b->mode, term = 1;
    *sum = 0;
    while (k > 0 && term > NEGLIGIBLE) {
        term = next_down(b, term, k);
        k--;
    }
    for (; k <= b->n; k++) {
        double with = *sum + term / b->total;
        if (with > tail)
            return k - 1;
        *sum = with;
        term = next_up(b, term, k);
    }
    return b->n;
}

/* The smallest k with P(X > k) <= tail; *sum becomes that probability. */
static double above_tail(const struct binomial *b, double tail, double *sum)
{
    double k = b->mode, term = 1;
    *sum = 0;
    while (k < b->n && term > NEGLIGIBLE) {
        term = next_up(b, term, k);
        k++;
    }
    for (; k >= 0; k--) {
        double with = *sum + term / b->total;
        if (with > tail)
            return k;
        *sum = with;
        term = next_down(b, term, k);
    }
    return 0;
}

struct as_interval as_percentile_interval(size_t count, uint32_t millionths, double confidence)
{
    struct as_interval interval = {0, count + 1, NAN};
    if (count == 0 || millionths == 0 || millionths >= MILLION)
        return interval;
    struct binomial b = make_binomial(count, (double)millionths / MILLION);
    double low, high, tail = (1 - confidence) / 2;
    interval.low = (size_t)(below_tail(&b, tail, &low) + 1);
    interval.high = (size_t)(above_tail(&b, tail, &high) + 1);
    if (interval.low > 0 && interval.high <= count)
        interval.coverage = 1 - low - high;
    return interval;
}

double as_mean(const double *values, size_t count)
{
    long double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += values[i];
    return count == 0 ? NAN : (double)(sum / count);
}

double as_deviation(const double *values, size_t count)
{
    if (count < 2)
        return NAN;
    long double mean = 0, squares = 0;
    for (size_t i = 0; i < count; i++)
        mean += values[i];
    mean /= count;
    for (size_t i = 0; i < count; i++)
        squares += (values[i] - mean) * (values[i] - mean);
    return (double)sqrtl(squares / (count - 1));
}
