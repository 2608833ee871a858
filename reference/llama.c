/* The Llama family as a composition of the ops; tensor names are GGUF's. */
#include "reference.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "as_memory.h"
#include "weights.h"

/* Everything of one pass. n = count of tokens. */
struct pass {
    const struct as_ref_llama *model;
    const struct as_ref_source *source;
    struct as_error *error;
    int64_t n, layer;
    char name[64], bias_name[64];
    int64_t *positions; /* (n): 0, 1, 2, ... */
    double *x, *norm;   /* (n, hidden) */
    double *q, *mixed;  /* (n, heads, head_dim) */
    double *k, *v;      /* (n, kv_heads, head_dim) */
    double *gate, *up;  /* (n, ffn) */
    double *weight;     /* of a norm: (hidden) or (head_dim) */
};

static const char *layer_tensor(struct pass *p, const char *what)
{
    snprintf(p->name, sizeof p->name, "blk.%lld.%s.weight", (long long)p->layer, what);
    return p->name;
}

/* out = rms_norm(x) by the vector `tensor` (columns). */
static int norm_by(struct pass *p, const char *tensor, const double *x, int64_t rows,
                   int64_t columns, double *out)
{
    int status = as_ref_load_row(p->source, tensor, 0, columns, p->weight, p->error);
    if (status == AS_OK)
        as_ref_rms_norm(x, p->weight, p->model->rms_epsilon, rows, columns, out);
    return status;
}

/* y = x times the transpose of this layer's matrix `what`, plus its bias. */
static int linear(struct pass *p, const char *what, bool bias, const double *x, int64_t rows,
                  int64_t columns, double *y)
{
    snprintf(p->bias_name, sizeof p->bias_name, "blk.%lld.%s.bias", (long long)p->layer, what);
    return as_ref_linear_tensor(p->source, layer_tensor(p, what), bias ? p->bias_name : NULL,
                                p->model->threads, x, p->n, rows, columns, y, p->error);
}

static int attend_to_all(struct pass *p)
{
    const struct as_ref_llama *m = p->model;
    const double *keys = p->k, *values = p->v;
    struct as_ref_attention attention = {.heads = m->heads,
                                         .kv_heads = m->kv_heads,
                                         .head_dim = m->head_dim,
                                         .scale = 1 / sqrt((double)m->head_dim),
                                         .causal = true,
                                         .sequences = 1,
                                         .query_lengths = &p->n,
                                         .kv_lengths = &p->n,
                                         .positions = p->positions,
                                         .keys = &keys,
                                         .values = &values};
    return as_ref_attention(&attention, p->q, p->mixed, p->error);
}

/* x += O attention(...) */
static int attention_block(struct pass *p)
{
    const struct as_ref_llama *m = p->model;
    const int64_t dim = m->head_dim, hidden = m->hidden;
    const int64_t q_rows = m->heads * dim, kv_rows = m->kv_heads * dim;
    int status = norm_by(p, layer_tensor(p, "attn_norm"), p->x, p->n, hidden, p->norm);
    if (status == AS_OK)
        status = linear(p, "attn_q", m->qkv_bias, p->norm, q_rows, hidden, p->q);
    if (status == AS_OK)
        status = linear(p, "attn_k", m->qkv_bias, p->norm, kv_rows, hidden, p->k);
    if (status == AS_OK)
        status = linear(p, "attn_v", m->qkv_bias, p->norm, kv_rows, hidden, p->v);
    if (status == AS_OK && m->qk_norm)
        status = norm_by(p, layer_tensor(p, "attn_q_norm"), p->q, p->n * m->heads, dim, p->q);
    if (status == AS_OK && m->qk_norm)
        status = norm_by(p, layer_tensor(p, "attn_k_norm"), p->k, p->n * m->kv_heads, dim, p->k);
    if (status != AS_OK)
        return status;
    as_ref_rope(&m->rope, p->positions, p->n, m->heads, dim, p->q);
    as_ref_rope(&m->rope, p->positions, p->n, m->kv_heads, dim, p->k);
    if (m->kv_dtype != AS_REF_F32) {
        as_ref_round(m->kv_dtype, p->k, p->n * m->kv_heads, dim);
        as_ref_round(m->kv_dtype, p->v, p->n * m->kv_heads, dim);
    }
    status = attend_to_all(p);
    if (status == AS_OK)
        status = linear(p, "attn_output", false, p->mixed, hidden, q_rows, p->norm);
    if (status == AS_OK)
        as_ref_add(p->x, p->norm, p->n * hidden, p->x);
    return status;
}

/* x += down (silu(gate m) * up m) */
static int ffn_block(struct pass *p)
{
    const int64_t hidden = p->model->hidden, ffn = p->model->ffn;
    int status = norm_by(p, layer_tensor(p, "ffn_norm"), p->x, p->n, hidden, p->norm);
    if (status == AS_OK)
        status = linear(p, "ffn_gate", false, p->norm, ffn, hidden, p->gate);
    if (status == AS_OK)
        status = linear(p, "ffn_up", false, p->norm, ffn, hidden, p->up);
    if (status != AS_OK)
        return status;
    as_ref_silu_mul(p->gate, p->up, p->n * ffn, p->gate);
    status = linear(p, "ffn_down", false, p->gate, hidden, ffn, p->norm);
    if (status == AS_OK)
        as_ref_add(p->x, p->norm, p->n * hidden, p->x);
    return status;
}

static int forward(struct pass *p, const int32_t *tokens, int64_t first_row, double *logits)
{
    const struct as_ref_llama *m = p->model;
    int status = AS_OK;
    for (int64_t t = 0; t < p->n && status == AS_OK; t++) {
        p->positions[t] = t;
        status = as_ref_load_row(p->source, "token_embd.weight", tokens[t], m->hidden,
                                 p->x + t * m->hidden, p->error);
    }
    for (p->layer = 0; p->layer < m->layers && status == AS_OK; p->layer++) {
        status = attention_block(p);
        if (status == AS_OK)
            status = ffn_block(p);
    }
    if (status == AS_OK)
        status = norm_by(p, "output_norm.weight", p->x, p->n, m->hidden, p->norm);
    if (status == AS_OK)
        status =
            as_ref_linear_tensor(p->source, m->tied_output ? "token_embd.weight" : "output.weight",
                                 NULL, m->threads, p->norm + first_row * m->hidden,
                                 p->n - first_row, m->vocabulary, m->hidden, logits, p->error);
    return status;
}

/* Sizes stay under 2^31 each, so that products of two fit an int64_t and a size_t. */
static bool plausible(int64_t size)
{
    return size >= 1 && size <= INT32_MAX;
}

static int check(const struct as_ref_llama *m, const int32_t *tokens, int64_t count,
                 int64_t first_row, struct as_error *error)
{
    if (!plausible(m->vocabulary) || !plausible(m->hidden) || !plausible(m->heads) ||
        !plausible(m->kv_heads) || !plausible(m->head_dim) || !plausible(m->ffn) || m->layers < 0 ||
        m->heads % m->kv_heads != 0 || m->heads * m->head_dim > INT32_MAX)
        return as_fail(error, AS_ERR_USAGE,
                       "reference: no such Llama model: vocabulary %lld, hidden %lld, %lld heads "
                       "on %lld KV heads of %lld, ffn %lld, %lld layers",
                       (long long)m->vocabulary, (long long)m->hidden, (long long)m->heads,
                       (long long)m->kv_heads, (long long)m->head_dim, (long long)m->ffn,
                       (long long)m->layers);
    if (m->rope.dims < 0 || m->rope.dims % 2 != 0 || m->rope.dims > m->head_dim)
        return as_fail(error, AS_ERR_USAGE, "reference: RoPE over %lld of %lld dimensions",
                       (long long)m->rope.dims, (long long)m->head_dim);
    if (m->kv_dtype != AS_REF_F32 && m->kv_dtype != AS_REF_F16 && m->kv_dtype != AS_REF_BF16 &&
        m->kv_dtype != AS_REF_Q8_0)
        return as_fail(error, AS_ERR_UNSUPPORTED, "reference: no KV cache of type %s",
                       as_ref_dtype_name(m->kv_dtype));
    if (count < 0 || count > INT32_MAX || first_row < 0 || first_row > count)
        return as_fail(error, AS_ERR_USAGE, "reference: rows from %lld of %lld positions",
                       (long long)first_row, (long long)count);
    for (int64_t t = 0; t < count; t++)
        if (tokens[t] < 0 || tokens[t] >= m->vocabulary)
            return as_fail(error, AS_ERR_DATA,
                           "reference: token %d at position %lld is outside the vocabulary of "
                           "%lld",
                           (int)tokens[t], (long long)t, (long long)m->vocabulary);
    return AS_OK;
}

static double *rows_of(struct pass *p, int64_t columns)
{
    return as_calloc(p->error, (size_t)(p->n * columns), sizeof(double), "reference activations");
}

int as_ref_llama_logits(const struct as_ref_llama *model, const struct as_ref_source *source,
                        const int32_t *tokens, int64_t count, int64_t first_row, double *logits,
                        struct as_error *error)
{
    int status = check(model, tokens, count, first_row, error);
    if (status != AS_OK || first_row == count)
        return status;
    struct pass p = {.model = model, .source = source, .error = error, .n = count};
    int64_t q_columns = model->heads * model->head_dim,
            kv_columns = model->kv_heads * model->head_dim;
    p.positions = as_calloc(error, (size_t)count, sizeof *p.positions, "positions");
    p.x = rows_of(&p, model->hidden);
    p.norm = rows_of(&p, model->hidden);
    p.q = rows_of(&p, q_columns);
    p.mixed = rows_of(&p, q_columns);
    p.k = rows_of(&p, kv_columns);
    p.v = rows_of(&p, kv_columns);
    p.gate = rows_of(&p, model->ffn);
    p.up = rows_of(&p, model->ffn);
    int64_t longest = model->hidden > model->head_dim ? model->hidden : model->head_dim;
    p.weight = as_calloc(error, (size_t)longest, sizeof *p.weight, "a norm's weights");
    bool complete =
        p.positions && p.x && p.norm && p.q && p.mixed && p.k && p.v && p.gate && p.up && p.weight;
    status = complete ? forward(&p, tokens, first_row, logits) : AS_ERR_MEMORY;
    void *owned[] = {p.positions, p.x, p.norm, p.q, p.mixed, p.k, p.v, p.gate, p.up, p.weight};
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free(owned[i]);
    return status;
}
