/* The ops of one row or one element at a time. Sources are named in reference.h. */
#include "reference.h"

#include <math.h>
#include <string.h>

#include "as_random.h"

void as_ref_embedding(const double *table, const int32_t *tokens, int64_t count, int64_t columns,
                      double *out)
{
    for (int64_t i = 0; i < count; i++)
        memcpy(out + i * columns, table + tokens[i] * columns, (size_t)columns * sizeof *out);
}

void as_ref_rms_norm(const double *x, const double *weight, double epsilon, int64_t tokens,
                     int64_t columns, double *out)
{
    for (int64_t t = 0; t < tokens; t++, x += columns, out += columns) {
        double squares = 0;
        for (int64_t i = 0; i < columns; i++)
            squares += x[i] * x[i];
        double scale = 1 / sqrt(squares / (double)columns + epsilon);
        for (int64_t i = 0; i < columns; i++)
            out[i] = x[i] * scale * weight[i];
    }
}

void as_ref_layer_norm(const double *x, const double *weight, const double *bias, double epsilon,
                       int64_t tokens, int64_t columns, double *out)
{
    for (int64_t t = 0; t < tokens; t++, x += columns, out += columns) {
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < columns; i++)
            sum += x[i];
        double mean = sum / (double)columns;
        for (int64_t i = 0; i < columns; i++)
            squares += (x[i] - mean) * (x[i] - mean);
        double scale = 1 / sqrt(squares / (double)columns + epsilon);
        for (int64_t i = 0; i < columns; i++)
            out[i] = (x[i] - mean) * scale * weight[i] + (bias == NULL ? 0 : bias[i]);
    }
}

void as_ref_add(const double *a, const double *b, int64_t count, double *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = a[i] + b[i];
}

void as_ref_silu_mul(const double *gate, const double *up, int64_t count, double *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = gate[i] / (1 + exp(-gate[i])) * up[i];
}

void as_ref_gelu(enum as_ref_gelu form, const double *x, int64_t count, double *out)
{
    const double root_half = 0.70710678118654752440, root_two_over_pi = 0.79788456080286535588;
    for (int64_t i = 0; i < count; i++) {
        double v = x[i];
        if (form == AS_REF_GELU_ERF) /* erfc keeps its digits where 1 + erf would cancel */
            out[i] = 0.5 * v * erfc(-v * root_half);
        else
            out[i] = 0.5 * v * (1 + tanh(root_two_over_pi * (v + 0.044715 * v * v * v)));
    }
}

void as_ref_softmax(const double *x, int64_t rows, int64_t columns, double *out)
{
    for (int64_t r = 0; r < rows; r++, x += columns, out += columns) {
        double largest = -INFINITY, sum = 0;
        for (int64_t i = 0; i < columns; i++)
            largest = fmax(largest, x[i]);
        for (int64_t i = 0; i < columns; i++) {
            out[i] = x[i] == -INFINITY ? 0 : exp(x[i] - largest);
            sum += out[i];
        }
        for (int64_t i = 0; i < columns && sum != 0; i++)
            out[i] /= sum;
    }
}

void as_ref_rope(const struct as_ref_rope *rope, const int64_t *positions, int64_t tokens,
                 int64_t heads, int64_t head_dim, double *x)
{
    double magnitude = rope->magnitude == 0 ? 1 : rope->magnitude;
    int64_t pairs = rope->dims / 2;
    for (int64_t row = 0; row < tokens * heads; row++) {
        double *head = x + row * head_dim;
        for (int64_t i = 0; i < pairs; i++) {
            double frequency = pow(rope->theta, -2.0 * (double)i / (double)rope->dims);
            if (rope->divisors != NULL)
                frequency /= rope->divisors[i];
            double angle = (double)positions[row / heads] * frequency;
            double c = magnitude * cos(angle), s = magnitude * sin(angle);
            double *a = head + (rope->pairing == AS_REF_ADJACENT ? 2 * i : i);
            double *b = rope->pairing == AS_REF_ADJACENT ? a + 1 : a + pairs;
            double first = *a, second = *b;
            *a = first * c - second * s;
            *b = second * c + first * s;
        }
    }
}

void as_ref_pool(enum as_ref_pool form, const double *x, const int64_t *lengths, int64_t sequences,
                 int64_t columns, double *out)
{
    for (int64_t s = 0; s < sequences; s++, out += columns) {
        int64_t used = form == AS_REF_POOL_CLS && lengths[s] > 1 ? 1 : lengths[s];
        for (int64_t i = 0; i < columns; i++) {
            double sum = 0;
            for (int64_t t = 0; t < used; t++)
                sum += x[t * columns + i];
            out[i] = used == 0 ? 0 : sum / (double)used;
        }
        x += lengths[s] * columns;
    }
}

void as_ref_l2_normalise(const double *x, int64_t rows, int64_t columns, double *out)
{
    for (int64_t r = 0; r < rows; r++, x += columns, out += columns) {
        double squares = 0;
        for (int64_t i = 0; i < columns; i++)
            squares += x[i] * x[i];
        double length = fmax(sqrt(squares), 1e-12);
        for (int64_t i = 0; i < columns; i++)
            out[i] = x[i] / length;
    }
}

double as_ref_sign(int64_t token)
{
    return as_mix64((uint64_t)token) & 1 ? -1 : 1;
}

struct as_ref_top as_ref_argmax(const double *logits, int64_t vocabulary)
{
    struct as_ref_top top = {.id = -1, .logit = -INFINITY};
    double second = -INFINITY;
    for (int64_t t = 0; t < vocabulary; t++) {
        double logit = logits[t];
        top.projection += as_ref_sign(t) * logit;
        top.non_finite += !isfinite(logit);
        if (isnan(logit))
            continue;
        if (top.id < 0 || logit > top.logit) {
            second = top.id < 0 ? second : top.logit;
            top.logit = logit;
            top.id = t;
        } else if (logit > second) {
            second = logit;
        }
    }
    top.margin = second == -INFINITY ? INFINITY : top.logit - second;
    return top;
}
