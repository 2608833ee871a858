#include "compare.h"

#include <math.h>

#include "reference.h"

/* 0 finite, 1 NaN, 2 +inf, 3 -inf. */
static int kind(double value)
{
    return isfinite(value) ? 0 : isnan(value) ? 1 : value > 0 ? 2 : 3;
}

/* The distances that follow from the sums. With r = |ref| and g = |got|,
 * |d|^2 = (r - g)^2 + 2 r g (1 - cos), which is exact where cos itself would cancel. */
static void derive(struct as_ref_comparison *c)
{
    double r = sqrt(c->sum_ref2), g = sqrt(c->sum_got2);
    bool zeros = r == 0 && g == 0;
    c->nmse = zeros ? 0 : c->sum_error2 / c->sum_ref2;
    c->cosine = zeros ? 0 : r * g == 0 ? 1 : (c->sum_error2 - (r - g) * (r - g)) / (2 * r * g);
    c->cosine = fmax(0, c->cosine);
    c->rms = c->finite == 0 ? 0 : sqrt(c->sum_error2 / (double)c->finite);
}

struct as_ref_comparison as_ref_compare(const double *ref, const double *got, int64_t count,
                                        const struct as_ref_limits *limits)
{
    struct as_ref_comparison c = {.count = count, .worst = -1};
    double a = limits->absolute * (limits->depth > 1 ? sqrt((double)limits->depth) : 1);
    for (int64_t i = 0; i < count; i++) {
        if (kind(ref[i]) != kind(got[i])) {
            if (c.anomalies == 0)
                c.worst = i, c.worst_ref = ref[i], c.worst_got = got[i];
            c.anomalies++;
        }
        if (kind(ref[i]) != 0 || kind(got[i]) != 0)
            continue;
        c.finite++;
        double error = fabs(got[i] - ref[i]), limit = a + limits->relative * fabs(ref[i]);
        double ratio = error == 0 ? 0 : error / limit;
        c.over += ratio > 1;
        c.max_error = fmax(c.max_error, error);
        if (c.worst < 0 || (c.anomalies == 0 && ratio > c.worst_ratio))
            c.worst = i, c.worst_ref = ref[i], c.worst_got = got[i];
        c.worst_ratio = fmax(c.worst_ratio, ratio);
        c.sum_error2 += error * error;
        c.sum_ref2 += ref[i] * ref[i];
        c.sum_got2 += got[i] * got[i];
    }
    derive(&c);
    c.pass =
        c.anomalies == 0 && c.over == 0 && c.nmse <= limits->nmse && c.cosine <= limits->cosine;
    return c;
}

void as_ref_compare_add(struct as_ref_comparison *total, const struct as_ref_comparison *part)
{
    bool first = total->count == 0;
    bool worse =
        total->anomalies == 0 && (part->anomalies > 0 || part->worst_ratio > total->worst_ratio);
    total->pass = (first || total->pass) && part->pass;
    if (first || (worse && part->worst >= 0)) {
        total->worst = part->worst;
        total->worst_ref = part->worst_ref;
        total->worst_got = part->worst_got;
    }
    total->count += part->count;
    total->finite += part->finite;
    total->anomalies += part->anomalies;
    total->over += part->over;
    total->worst_ratio = fmax(total->worst_ratio, part->worst_ratio);
    total->max_error = fmax(total->max_error, part->max_error);
    total->sum_error2 += part->sum_error2;
    total->sum_ref2 += part->sum_ref2;
    total->sum_got2 += part->sum_got2;
    derive(total);
}

bool as_ref_compare_rungs(const struct as_ref_comparison *naive,
                          const struct as_ref_comparison *rung, double ulp)
{
    double size = rung->finite == 0 ? 0 : sqrt(rung->sum_ref2 / (double)rung->finite);
    return rung->anomalies == 0 && rung->rms <= 2 * fmax(naive->rms, 2 * ulp * size);
}

/* KL(softmax ref || softmax got) = sum p (ref - got) + log Z_got - log Z_ref, shifted by the
 * largest of each. The terms cancel to rounding, so a tiny negative sum is 0. */
static double divergence(const double *ref, const float *got, int64_t vocabulary)
{
    double ref_largest = -INFINITY, got_largest = -INFINITY;
    for (int64_t t = 0; t < vocabulary; t++) {
        ref_largest = fmax(ref_largest, ref[t]);
        got_largest = fmax(got_largest, (double)got[t]);
    }
    double ref_sum = 0, got_sum = 0, difference = 0;
    for (int64_t t = 0; t < vocabulary; t++) {
        double p = exp(ref[t] - ref_largest);
        ref_sum += p;
        got_sum += exp((double)got[t] - got_largest);
        difference += p * ((ref[t] - ref_largest) - ((double)got[t] - got_largest));
    }
    return fmax(0, difference / ref_sum + log(got_sum) - log(ref_sum));
}

/* The id of the largest, the lowest among equals. */
static int64_t largest_of(const float *logits, int64_t vocabulary)
{
    int64_t id = 0;
    for (int64_t t = 1; t < vocabulary; t++)
        if (logits[t] > logits[id])
            id = t;
    return id;
}

/* The elementwise part of a row. Returns its anomalies. */
static int64_t add_elements(struct as_ref_logits *sum, const double *ref, const float *got,
                            int64_t vocabulary)
{
    int64_t anomalies = 0;
    for (int64_t t = 0; t < vocabulary; t++) {
        if (!isfinite(ref[t]) || !isfinite(got[t])) {
            anomalies++;
            continue;
        }
        double error = fabs((double)got[t] - ref[t]);
        if (error > sum->max_error) {
            sum->max_error = error;
            sum->worst_row = sum->rows;
            sum->worst_id = t;
        }
        sum->sum_error2 += error * error;
        sum->count++;
    }
    return anomalies;
}

void as_ref_logits_add(struct as_ref_logits *sum, const double *ref, const float *got,
                       int64_t vocabulary, double noise)
{
    int64_t anomalies = add_elements(sum, ref, got, vocabulary);
    sum->anomalies += anomalies;
    if (anomalies == 0 && vocabulary > 0) {
        struct as_ref_top wanted = as_ref_argmax(ref, vocabulary);
        bool agree = wanted.id == largest_of(got, vocabulary);
        bool below = wanted.margin <= noise;
        sum->agreements += agree;
        sum->below += below;
        if (!agree && !below && sum->flips++ == 0)
            sum->first_flip = sum->rows;
        double kl = divergence(ref, got, vocabulary);
        sum->sum_kl += kl;
        sum->kl_max = fmax(sum->kl_max, kl);
        sum->judged++;
    }
    sum->rows++;
    sum->rms = sum->count == 0 ? 0 : sqrt(sum->sum_error2 / (double)sum->count);
    sum->kl = sum->judged == 0 ? 0 : sum->sum_kl / (double)sum->judged;
    sum->agreement = (double)sum->agreements / (double)sum->rows;
    sum->below_share = (double)sum->below / (double)sum->rows;
}

unsigned as_ref_logits_judge(const struct as_ref_logits *sum, double naive_rms, double below_limit)
{
    return (sum->anomalies > 0 ? AS_REF_LOGITS_ANOMALY : 0u) |
           (sum->flips > 0 ? AS_REF_LOGITS_FLIP : 0u) |
           (sum->rms > 2 * naive_rms ? AS_REF_LOGITS_RMS : 0u) |
           (sum->below_share > below_limit ? AS_REF_LOGITS_BELOW : 0u) |
           (sum->count == 0 ? AS_REF_LOGITS_EMPTY : 0u);
}
