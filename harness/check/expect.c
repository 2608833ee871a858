/* Truth of a case: the reference's ops, one after the other over the problem's nodes, for the
 * sampled rows. Values between the nodes of a cover stay in double. */
#include <stdlib.h>
#include <string.h>

#include "as_memory.h"
#include "check/case.h"
#include "reference.h"

struct evaluation {
    struct as_case *made;
    struct as_error *error;
    double *value[ASSAY_MAX_COVER]; /* (samples, columns) of each node */
};

static double *numbers(struct evaluation *e, int64_t count)
{
    return as_calloc(e->error, (size_t)count, sizeof(double), "the right answers of a check");
}

static const struct as_case_operand *weight_of(const struct as_case *made, int32_t node)
{
    for (int32_t i = 0; i < made->operands; i++)
        if (made->operand[i].role == AS_CASE_WEIGHT && made->operand[i].node == node)
            return &made->operand[i];
    return NULL;
}

/* The stored value behind input `slot` of `node`, or NULL where a node computes it. */
static const struct as_case_operand *external_of(const struct as_case *made, int32_t node,
                                                 int32_t slot)
{
    const struct assay_cover *cover = made->problem.cover;
    if (cover == NULL)
        return &made->operand[slot];
    int32_t input = cover->node[node].input[slot];
    return input >= ASSAY_EXTERNAL(0) ? &made->operand[input - ASSAY_EXTERNAL(0)] : NULL;
}

/* Input `slot` of `node` for the sampled rows: a fresh array (rows, columns). select_rows reads
 * rows of its own choice, and so gets all of them. */
static double *input_of(struct evaluation *e, int32_t node, int32_t slot)
{
    const struct as_case *made = e->made;
    const struct assay_shape *shape = &made->problem.node[node];
    const struct as_case_operand *external = external_of(made, node, slot);
    int64_t columns = as_case_input_columns(shape, slot);
    bool all = shape->op == ASSAY_SELECT_ROWS;
    if (all && external == NULL) {
        as_fail(e->error, AS_ERR_UNSUPPORTED,
                "the checker knows no cover in which select_rows reads an inner value");
        return NULL;
    }
    int64_t rows = all ? external->rows : made->samples;
    double *out = numbers(e, rows * columns);
    if (out == NULL)
        return NULL;
    if (external == NULL) {
        const double *inner = e->value[made->problem.cover->node[node].input[slot]];
        memcpy(out, inner, (size_t)(rows * columns) * sizeof *out);
        return out;
    }
    for (int64_t i = 0; i < rows; i++) {
        const float *row = (const float *)external->stored + (all ? i : made->sample[i]) * columns;
        for (int64_t c = 0; c < columns; c++)
            out[i * columns + c] = (double)row[c];
    }
    return out;
}

static double *weights_in_double(struct evaluation *e, int32_t node)
{
    const struct as_case_operand *weight = weight_of(e->made, node);
    int64_t count = weight->rows * weight->columns;
    double *out = numbers(e, count);
    if (out != NULL && as_ref_dequantize((int)weight->dtype, weight->stored, out, count) != 0) {
        as_fail(e->error, AS_ERR_UNSUPPORTED, "the reference cannot read weights in %s",
                assay_dtype(weight->dtype)->name);
        free(out);
        out = NULL;
    }
    return out;
}

static int embedding(struct evaluation *e, int32_t node, double *out)
{
    const struct as_case_operand *table = weight_of(e->made, node);
    const int32_t *ids = external_of(e->made, node, 0)->stored;
    size_t row = assay_row_bytes(table->dtype, table->columns);
    for (int64_t i = 0; i < e->made->samples; i++) {
        const char *stored = (const char *)table->stored + (size_t)ids[e->made->sample[i]] * row;
        if (as_ref_dequantize((int)table->dtype, stored, out + i * table->columns,
                              table->columns) != 0)
            return as_fail(e->error, AS_ERR_UNSUPPORTED, "the reference cannot read a table in %s",
                           assay_dtype(table->dtype)->name);
    }
    return 0;
}

static int rope(struct evaluation *e, const struct assay_shape *shape, const double *x, double *out)
{
    const struct as_case *made = e->made;
    struct as_ref_rope ref = {.pairing = shape->pairing == ASSAY_ROPE_ADJACENT ? AS_REF_ADJACENT
                                                                               : AS_REF_HALVES,
                              .theta = (double)shape->theta,
                              .dims = shape->rotary};
    int64_t *positions = as_calloc(e->error, (size_t)made->samples, sizeof *positions, "positions");
    if (positions == NULL)
        return AS_ERR_MEMORY;
    for (int64_t i = 0; i < made->samples; i++)
        positions[i] = made->batch.positions[made->sample[i]];
    int64_t columns = (int64_t)shape->heads * shape->head_dim;
    memcpy(out, x, (size_t)(made->samples * columns) * sizeof *out);
    as_ref_rope(&ref, positions, made->samples, shape->heads, shape->head_dim, out);
    free(positions);
    return 0;
}

/* The cache's new rows; each head's row is rounded by itself. Takes k and v over. */
static int kv_write(struct evaluation *e, const struct assay_shape *shape, double *k, double *v)
{
    struct as_case_cache *cache = &e->made->cache;
    int64_t rows = e->made->samples * shape->kv_heads;
    cache->new_k = k;
    cache->new_v = v;
    if (as_ref_round((int)shape->kv, k, rows, shape->head_dim) != 0 ||
        as_ref_round((int)shape->kv, v, rows, shape->head_dim) != 0)
        return as_fail(e->error, AS_ERR_UNSUPPORTED, "the reference cannot round a cache to %s",
                       assay_dtype(shape->kv)->name);
    return 0;
}

/* Row `position` of a sequence, all kv heads, as attention must see it: (kv_heads, head_dim). */
static int cached_row(const struct as_case *made, const uint8_t *pool, const double *fresh,
                      int32_t sequence, int32_t position, double *out)
{
    const struct as_case_cache *cache = &made->cache;
    const struct as_check_batch *batch = &made->batch;
    int64_t columns = (int64_t)cache->kv_heads * cache->head_dim;
    int32_t end = batch->cu_query[sequence + 1];
    int32_t age = batch->context[sequence] - position; /* 1 for the newest */
    if (fresh != NULL && age <= end - batch->cu_query[sequence]) {
        memcpy(out, fresh + (end - age) * columns, (size_t)columns * sizeof *out);
        return 0;
    }
    struct assay_kv_cache layout = {.dtype = cache->dtype,
                                    .block_size = cache->block_size,
                                    .kv_heads = cache->kv_heads,
                                    .head_dim = cache->head_dim};
    int64_t block =
        batch->block_table[(int64_t)sequence * batch->table_stride + position / cache->block_size];
    for (int32_t h = 0; h < cache->kv_heads; h++) {
        size_t at = assay_kv_offset(&layout, block, h, position % cache->block_size);
        int code = as_ref_dequantize((int)cache->dtype, pool + at, out + h * cache->head_dim,
                                     cache->head_dim);
        if (code != 0)
            return code;
    }
    return 0;
}

/* Keys or values of one sequence, dense: (context, kv_heads, head_dim). */
static double *gather(struct evaluation *e, const uint8_t *pool, const double *fresh,
                      int32_t sequence)
{
    const struct as_case *made = e->made;
    int64_t columns = (int64_t)made->cache.kv_heads * made->cache.head_dim;
    int32_t context = made->batch.context[sequence];
    double *out = numbers(e, context * columns);
    for (int32_t p = 0; out != NULL && p < context; p++) {
        if (cached_row(made, pool, fresh, sequence, p, out + p * columns) == 0)
            continue;
        as_fail(e->error, AS_ERR_UNSUPPORTED, "the reference cannot read a cache in %s",
                assay_dtype(made->cache.dtype)->name);
        free(out);
        return NULL;
    }
    return out;
}

/* One call of the reference for each sequence that has sampled queries; rows of nobody are 0. */
static int attention(struct evaluation *e, const struct assay_shape *shape, const double *q,
                     double *out)
{
    const struct as_case *made = e->made;
    const struct as_case_cache *cache = &made->cache;
    int64_t columns = (int64_t)shape->heads * shape->head_dim;
    int64_t *positions = as_calloc(e->error, (size_t)made->samples, sizeof *positions, "positions");
    int code = positions == NULL ? AS_ERR_MEMORY : 0;
    for (int64_t i = 0, next; code == 0 && i < made->samples; i = next) {
        int32_t s = made->batch.token_sequence[made->sample[i]];
        for (next = i; next < made->samples && made->batch.token_sequence[made->sample[next]] == s;
             next++)
            positions[next] = made->batch.positions[made->sample[next]];
        if (s < 0)
            continue;
        double *keys = gather(e, cache->k, cache->new_k, s);
        double *values = gather(e, cache->v, cache->new_v, s);
        const double *all_keys[] = {keys}, *all_values[] = {values};
        struct as_ref_attention ref = {.heads = shape->heads,
                                       .kv_heads = shape->kv_heads,
                                       .head_dim = shape->head_dim,
                                       .scale = (double)shape->scale,
                                       .causal = shape->causal,
                                       .sequences = 1,
                                       .query_lengths = &(int64_t){next - i},
                                       .kv_lengths = &(int64_t){made->batch.context[s]},
                                       .positions = positions + i,
                                       .keys = all_keys,
                                       .values = all_values};
        code = keys == NULL || values == NULL
                   ? AS_ERR_MEMORY
                   : as_ref_attention(&ref, q + i * columns, out + i * columns, e->error);
        free(keys);
        free(values);
    }
    free(positions);
    return code;
}

static int linear(struct evaluation *e, int32_t node, double *x, double *out)
{
    const struct assay_shape *shape = &e->made->problem.node[node];
    if (as_ref_round((int)shape->activations, x, e->made->samples, shape->k) != 0)
        return as_fail(e->error, AS_ERR_UNSUPPORTED, "the reference has no activation class %s",
                       assay_dtype(shape->activations)->name);
    double *w = weights_in_double(e, node);
    int code = w == NULL
                   ? AS_ERR_MEMORY
                   : as_ref_linear(x, w, NULL, e->made->samples, shape->n, shape->k, out, e->error);
    free(w);
    return code;
}

static int rms_norm(struct evaluation *e, int32_t node, const double *x, double *out)
{
    const struct assay_shape *shape = &e->made->problem.node[node];
    double *w = weights_in_double(e, node);
    if (w == NULL)
        return AS_ERR_MEMORY;
    as_ref_rms_norm(x, w, (double)shape->epsilon, e->made->samples, shape->n, out);
    free(w);
    return 0;
}

/* out (samples, 5): the fields of struct assay_top in their order. */
static void argmax(const struct as_case *made, const double *logits, int64_t n, double *out)
{
    for (int64_t i = 0; i < made->samples; i++) {
        struct as_ref_top top = as_ref_argmax(logits + i * n, n);
        const double fields[] = {(double)top.id, (double)top.non_finite, top.logit, top.margin,
                                 top.projection};
        memcpy(out + 5 * i, fields, sizeof fields);
    }
}

static int apply(struct evaluation *e, int32_t node, double *a, double *b, double *out)
{
    const struct as_case *made = e->made;
    const struct assay_shape *shape = &made->problem.node[node];
    int64_t count = made->samples * shape->n;
    switch (shape->op) {
    case ASSAY_EMBEDDING: return embedding(e, node, out);
    case ASSAY_RMS_NORM: return rms_norm(e, node, a, out);
    case ASSAY_LINEAR: return linear(e, node, a, out);
    case ASSAY_ADD: as_ref_add(a, b, count, out); return 0;
    case ASSAY_ROPE: return rope(e, shape, a, out);
    case ASSAY_KV_WRITE: return kv_write(e, shape, a, b);
    case ASSAY_ATTENTION: return attention(e, shape, a, out);
    case ASSAY_SILU_MUL: as_ref_silu_mul(a, b, count, out); return 0;
    case ASSAY_SELECT_ROWS:
        for (int64_t i = 0; i < made->samples; i++)
            memcpy(out + i * shape->n, a + made->batch.logit_row[i] * shape->n,
                   (size_t)shape->n * sizeof *out);
        return 0;
    case ASSAY_ARGMAX: argmax(made, a, shape->n, out); return 0;
    default:
        return as_fail(e->error, AS_ERR_UNSUPPORTED, "the checker knows no op %d", (int)shape->op);
    }
}

static int evaluate(struct evaluation *e, int32_t node)
{
    const struct assay_shape *shape = &e->made->problem.node[node];
    int64_t columns = shape->op == ASSAY_ARGMAX ? 5 : as_case_output_columns(shape);
    int32_t inputs = assay_op(shape->op)->inputs;
    double *input[2] = {NULL, NULL};
    int code = 0;
    if ((e->value[node] = numbers(e, e->made->samples * columns)) == NULL)
        return AS_ERR_MEMORY;
    for (int32_t j = 0; code == 0 && shape->op != ASSAY_EMBEDDING && j < inputs; j++)
        if ((input[j] = input_of(e, node, j)) == NULL)
            code = AS_ERR_MEMORY;
    if (code == 0)
        code = apply(e, node, input[0], input[1], e->value[node]);
    if (e->made->cache.new_k != input[0] || input[0] == NULL) {
        free(input[0]);
        free(input[1]);
    }
    return code;
}

int as_case_expect(struct as_case *made, struct as_error *error)
{
    struct evaluation e = {.made = made, .error = error};
    int code = 0;
    for (int32_t i = 0; code == 0 && i < made->problem.nodes; i++)
        code = evaluate(&e, i);
    for (int32_t i = 0; code == 0 && i < made->operands; i++) {
        struct as_case_operand *operand = &made->operand[i];
        if (operand->role != AS_CASE_OUTPUT)
            continue;
        operand->expected = e.value[operand->node];
        e.value[operand->node] = NULL;
    }
    for (int32_t i = 0; i < made->problem.nodes; i++)
        free(e.value[i]);
    return code;
}
