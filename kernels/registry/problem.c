#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "as_text.h"
#include "registry/registry.h"

const char *as_problem_name(const struct assay_problem *problem)
{
    return problem->cover != NULL ? problem->cover->name : assay_op(problem->node[0].op)->name;
}

static bool leaves_cover(const struct assay_cover *cover, int32_t node)
{
    for (int32_t i = 0; i < cover->outputs; i++)
        if (cover->output[i] == node)
            return true;
    return false;
}

/* Times that pattern node `node`'s value is read inside the cover. */
static int32_t inner_reads(const struct assay_cover *cover, int32_t node)
{
    int32_t reads = 0;
    for (int32_t i = node + 1; i < cover->nodes; i++)
        for (int32_t j = 0; j < assay_op(cover->node[i].op)->inputs; j++)
            reads += cover->node[i].input[j] == node;
    return reads;
}

void as_problem_cost(const struct assay_problem *problem, double *flops, double *bytes)
{
    *flops = *bytes = 0;
    for (int32_t i = 0; i < problem->nodes; i++) {
        const struct assay_shape *shape = &problem->node[i];
        double node_flops = 0, node_bytes = 0;
        assay_op(shape->op)->cost(shape, &node_flops, &node_bytes);
        *flops += node_flops;
        *bytes += node_bytes;
        if (problem->cover != NULL) {
            /* Values stay in registers or caches: their reads vanish, and the write too unless
             * the value leaves. All values between ops are float32. */
            double value = (double)shape->tokens * (double)shape->n * 4;
            *bytes -= value * inner_reads(problem->cover, i);
            if (!leaves_cover(problem->cover, i))
                *bytes -= value;
        }
    }
}

/* Appends to `words`, cutting silently at `size`: shapes in words are for people. */
static void append(char *words, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void append(char *words, size_t size, const char *format, ...)
{
    size_t length = strlen(words);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(words + length, size - length, format, arguments);
    va_end(arguments);
}

static void append_dtypes(char *words, size_t size, const struct assay_shape *shape)
{
    const char *separator = " ";
    const enum assay_dtype dtypes[] = {shape->weights, shape->activations, shape->kv};
    for (int i = 0; i < 3; i++) {
        if (dtypes[i] == ASSAY_NONE)
            continue;
        append(words, size, "%s%s", separator, assay_dtype(dtypes[i])->name);
        separator = "/";
    }
}

void as_problem_words(const struct assay_problem *problem, char *words, size_t size)
{
    snprintf(words, size, "%s", as_problem_name(problem));
    for (int32_t i = 0; i < problem->nodes; i++) {
        const struct assay_shape *shape = &problem->node[i];
        append(words, size, i == 0 ? " %lld" : " + %lld", (long long)shape->tokens);
        if (shape->op == ASSAY_ATTENTION || shape->op == ASSAY_ROPE || shape->op == ASSAY_KV_WRITE)
            append(words, size, "x%dx%d", (int)shape->heads, (int)shape->head_dim);
        else
            append(words, size, "x%lld", (long long)shape->n);
        if (shape->op == ASSAY_LINEAR)
            append(words, size, "x%lld", (long long)shape->k);
        if (shape->op == ASSAY_ATTENTION)
            append(words, size, " on %d kv heads, %lld sequences to %lld", (int)shape->kv_heads,
                   (long long)shape->sequences, (long long)shape->context);
        append_dtypes(words, size, shape);
    }
}
