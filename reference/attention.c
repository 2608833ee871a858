/* Attention, one query and one head at a time: scores, softmax, weighted sum. */
#include "reference.h"

#include <math.h>

#include "as_memory.h"

/* One head of one query over the `visible` first keys. q, out (head_dim); keys and values begin
 * at the head's first row, rows `stride` apart; weights (visible) is scratch. Without a visible
 * key, keys and values are not read and out is zeros. */
static void attend(const double *q, const double *keys, const double *values, int64_t visible,
                   int64_t stride, int64_t head_dim, double scale, double *weights, double *out)
{
    for (int64_t j = 0; j < visible; j++) {
        double dot = 0;
        for (int64_t i = 0; i < head_dim; i++)
            dot += q[i] * keys[j * stride + i];
        weights[j] = scale * dot;
    }
    as_ref_softmax(weights, 1, visible, weights);
    for (int64_t i = 0; i < head_dim; i++)
        out[i] = 0;
    for (int64_t j = 0; j < visible; j++)
        for (int64_t i = 0; i < head_dim; i++)
            out[i] += weights[j] * values[j * stride + i];
}

int as_ref_attention(const struct as_ref_attention *attention, const double *q, double *out,
                     struct as_error *error)
{
    const int64_t head_dim = attention->head_dim, stride = attention->kv_heads * head_dim;
    int64_t longest = 0, query = 0; /* query counts through the sequences */
    for (int64_t s = 0; s < attention->sequences; s++)
        if (attention->kv_lengths[s] > longest)
            longest = attention->kv_lengths[s];
    double *weights = as_calloc(error, (size_t)longest, sizeof *weights, "attention weights");
    if (weights == NULL)
        return AS_ERR_MEMORY;
    for (int64_t s = 0; s < attention->sequences; s++) {
        int64_t queries = attention->query_lengths[s], rows = attention->kv_lengths[s];
        for (int64_t i = 0; i < queries; i++, query++) {
            int64_t position =
                attention->positions != NULL ? attention->positions[query] : rows - queries + i;
            int64_t visible = rows;
            if (attention->causal && position + 1 < rows)
                visible = position + 1 > 0 ? position + 1 : 0;
            for (int64_t h = 0; h < attention->heads; h++) {
                int64_t row = (query * attention->heads + h) * head_dim;
                int64_t kv = h / (attention->heads / attention->kv_heads) * head_dim;
                const double *keys = visible == 0 ? NULL : attention->keys[s] + kv;
                const double *values = visible == 0 ? NULL : attention->values[s] + kv;
                attend(q + row, keys, values, visible, stride, head_dim, attention->scale, weights,
                       out + row);
            }
        }
    }
    free(weights);
    return AS_OK;
}
