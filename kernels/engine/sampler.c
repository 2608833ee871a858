#include "engine/sampler.h"

#include <math.h>

#include "as_memory.h"
#include "as_random.h"

#define SAMPLING_STREAM 0x73616d706cu

struct candidate {
    double weight; /* the logit, then exp(logit / temperature) */
    int32_t id;
};

struct as_sampler {
    int64_t vocabulary;
    struct candidate *candidate;
};

int as_sampler_create(int64_t vocabulary, struct as_sampler **sampler, struct as_error *error)
{
    *sampler = as_calloc(error, 1, sizeof **sampler, "the sampler");
    if (*sampler == NULL)
        return AS_ERR_MEMORY;
    (*sampler)->vocabulary = vocabulary;
    (*sampler)->candidate =
        as_calloc(error, (size_t)vocabulary, sizeof(struct candidate), "the sampler");
    if ((*sampler)->candidate == NULL) {
        as_sampler_free(*sampler);
        *sampler = NULL;
        return AS_ERR_MEMORY;
    }
    return 0;
}

void as_sampler_free(struct as_sampler *sampler)
{
    if (sampler == NULL)
        return;
    free(sampler->candidate);
    free(sampler);
}

/* Highest first; the lower id wins a tie, so that the order is total. */
static int by_weight(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;
    if (a->weight != b->weight)
        return a->weight < b->weight ? 1 : -1;
    return a->id < b->id ? -1 : a->id > b->id;
}

static int32_t argmax(const float *logits, int64_t count)
{
    int32_t best = 0;
    for (int64_t i = 1; i < count; i++)
        if (logits[i] > logits[best])
            best = (int32_t)i;
    return best;
}

int32_t as_sample(struct as_sampler *sampler, const float *logits,
                  const struct as_sampling *sampling, uint64_t draw)
{
    if (sampling == NULL || sampling->temperature <= 0)
        return argmax(logits, sampler->vocabulary);
    struct candidate *candidate = sampler->candidate;
    int64_t count = sampler->vocabulary;
    for (int64_t i = 0; i < count; i++)
        candidate[i] = (struct candidate){.weight = logits[i], .id = (int32_t)i};
    qsort(candidate, (size_t)count, sizeof candidate[0], by_weight);
    if (sampling->top_k > 0 && sampling->top_k < count)
        count = sampling->top_k;
    double highest = candidate[0].weight, total = 0;
    for (int64_t i = 0; i < count; i++) {
        candidate[i].weight = exp((candidate[i].weight - highest) / sampling->temperature);
        total += candidate[i].weight;
    }
    if (sampling->top_p < 1) {
        /* The smallest set of the likeliest whose share reaches top_p, one at least. */
        double kept = 0, wanted = total * sampling->top_p;
        int64_t i = 0;
        do
            kept += candidate[i++].weight;
        while (i < count && kept < wanted);
        count = i;
        total = kept;
    }
    double mark = total * as_random_unit(sampling->seed, SAMPLING_STREAM, draw);
    for (int64_t i = 0; i < count - 1; i++) {
        mark -= candidate[i].weight;
        if (mark < 0)
            return candidate[i].id;
    }
    return candidate[count - 1].id;
}
