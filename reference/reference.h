/* What the right answers are: every op and every model family in double precision.
 *
 * This room shares no code with kernels/: it has its own types, its own dequantisers and its own
 * idea of each op, so that an error there is not repeated here. It is slow, short and obvious on
 * purpose. Truth is computed from weights and inputs that were rounded to the tested dtype first
 * (as_ref_dequantize, as_ref_round), so that a comparison sees a kernel's arithmetic alone.
 *
 * Matrices are row-major and dense; (a, b, c) beside a pointer is its shape. A packed batch is
 * the sequences' tokens one after the other. Outputs may be the same array as the input of equal
 * shape where a function says "in place", otherwise they must not overlap.
 */
#ifndef AS_REFERENCE_H
#define AS_REFERENCE_H

#include <stdbool.h>
#include <stdint.h>

#include "as_error.h"

/* --- dtypes (dtypes.c) --- */

enum as_ref_dtype {
    AS_REF_F32,
    AS_REF_F16,
    AS_REF_BF16,
    AS_REF_Q8_0, /* 32 elements: fp16 d, 32 int8; x = d q */
    AS_REF_Q4_0, /* 32: fp16 d, 32 nibbles; x = d (q - 8) */
    AS_REF_Q4_1, /* 32: fp16 d, fp16 m, 32 nibbles; x = d q + m */
    AS_REF_Q5_0, /* 32: fp16 d, 32 high bits, 32 nibbles; x = d (q - 16) */
    AS_REF_Q5_1, /* 32: fp16 d, fp16 m, 32 high bits, 32 nibbles; x = d q + m */
    AS_REF_Q4_K, /* 256: fp16 d, dmin, eight 6-bit scales and minima, 256 nibbles */
    AS_REF_Q5_K, /* 256: as Q4_K with 256 high bits */
    AS_REF_Q6_K, /* 256: 6-bit quants, sixteen int8 scales, fp16 d */
    AS_REF_Q8,   /* activations only, never stored: see as_ref_round */
    AS_REF_DTYPES
};

/* "f32", "q4_1", ...; "?" for a number that is no dtype. */
const char *as_ref_dtype_name(int dtype);

/* The bytes of `count` elements, or -1 where the dtype has no stored form or `count` is negative
 * or does not fill whole blocks. */
int64_t as_ref_dtype_bytes(int dtype, int64_t count);

/* Exact values of `count` stored elements. Returns 0, AS_ERR_UNSUPPORTED (no stored form) or
 * AS_ERR_DATA (`count` does not fill whole blocks). `bytes` needs no alignment.
 *
 * d q + m is rounded to float32 once per operation, as the `gguf` package and ggml do, because
 * float32 is what a file's quantised weights are defined to be. */
int as_ref_dequantize(int dtype, const void *bytes, double *out, int64_t count);

/* Rounds `values` (rows, columns), in place, to what the engine sees of them in `dtype`. All go
 * through float32 first (round to nearest even), since the engine's activations are float32.
 *
 * F32   that.
 * F16, BF16   round to nearest even; overflow gives infinity, NaN stays NaN.
 * Q8    the activation class q8: each row in blocks of 32 (the last one may be shorter), all in
 *       float32: d = max|x| / 127, id = d == 0 ? 0 : 1 / d, q = x id rounded to nearest even,
 *       clamped to [-127, 127]; x becomes d q, in double and so exact. d stays float32.
 *       A block that holds NaN or infinity becomes all NaN. A block so small (max|x| < 3.8e-37)
 *       that id is infinite becomes zeros.
 * Q8_0  as Q8 with q rounded half away from zero and d then rounded to fp16, as ggml stores it.
 *
 * Returns 0, or AS_ERR_UNSUPPORTED for the other dtypes. */
int as_ref_round(int dtype, double *values, int64_t rows, int64_t columns);

/* --- ops (ops.c, attention.c, product.c) --- */

/* out (count, columns) = rows `tokens` of table (vocabulary, columns). The caller has checked the
 * tokens. */
void as_ref_embedding(const double *table, const int32_t *tokens, int64_t count, int64_t columns,
                      double *out);

/* x / sqrt(mean(x^2) + epsilon) * weight, per row; in place. x, out (tokens, columns), weight
 * (columns). Zhang and Sennrich, 2019. */
void as_ref_rms_norm(const double *x, const double *weight, double epsilon, int64_t tokens,
                     int64_t columns, double *out);

/* (x - mean) / sqrt(variance + epsilon) * weight + bias, per row, with the biased variance; in
 * place. weight and bias (columns), bias may be NULL. Ba et al., 2016. */
void as_ref_layer_norm(const double *x, const double *weight, const double *bias, double epsilon,
                       int64_t tokens, int64_t columns, double *out);

/* y (tokens, rows) = x (tokens, columns) . transpose of w (rows, columns) + bias (rows) or NULL. */
int as_ref_linear(const double *x, const double *w, const double *bias, int64_t tokens,
                  int64_t rows, int64_t columns, double *y, struct as_error *error);

/* out = a + b; in place with either. */
void as_ref_add(const double *a, const double *b, int64_t count, double *out);

/* out = gate / (1 + exp(-gate)) * up; in place with either. Shazeer, 2020 (SwiGLU). */
void as_ref_silu_mul(const double *gate, const double *up, int64_t count, double *out);

enum as_ref_gelu {
    AS_REF_GELU_ERF, /* x/2 (1 + erf(x / sqrt 2)): BERT */
    AS_REF_GELU_TANH /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): GPT-2 */
};

/* Hendrycks and Gimpel, 2016; in place. */
void as_ref_gelu(enum as_ref_gelu form, const double *x, int64_t count, double *out);

/* exp(x - max) / sum, per row; in place. x, out (rows, columns). -inf has probability 0; a row of
 * only -inf becomes zeros. */
void as_ref_softmax(const double *x, int64_t rows, int64_t columns, double *out);

enum as_ref_pairing {
    AS_REF_ADJACENT, /* elements 2i and 2i + 1 turn together: GGUF `llama` */
    AS_REF_HALVES    /* elements i and i + dims/2: Hugging Face, NeoX */
};

struct as_ref_rope {
    enum as_ref_pairing pairing;
    double theta;
    int64_t dims;           /* leading elements of a head that turn, even; the others stay */
    const double *divisors; /* (dims / 2) frequency divisors, or NULL for all 1 */
    double magnitude;       /* multiplies cos and sin (YaRN); 0 means 1 */
};

/* Turns pair i of the token at position p by p theta^(-2i / dims) / divisors[i], in place.
 * x (tokens, heads, head_dim), positions (tokens). Su et al., 2021. */
void as_ref_rope(const struct as_ref_rope *rope, const int64_t *positions, int64_t tokens,
                 int64_t heads, int64_t head_dim, double *x);

struct as_ref_attention {
    int64_t heads, kv_heads, head_dim; /* query head h reads kv head h / (heads / kv_heads) */
    double scale;                      /* usually 1 / sqrt(head_dim) */
    bool causal;                       /* a query at position p sees keys 0..p */
    int64_t sequences;
    const int64_t *query_lengths; /* (sequences) */
    const int64_t *kv_lengths;    /* (sequences) */
    const int64_t *positions;     /* (queries of all sequences); NULL: the last ones of each, so
                                     query i of a sequence stands at kv - queries + i */
    const double *const *keys;    /* (sequences) pointers to (kv length, kv_heads, head_dim) */
    const double *const *values;
};

/* softmax(scale q . k) v. q, out (queries of all sequences, heads, head_dim). A query that sees
 * no key gets exact zeros. */
int as_ref_attention(const struct as_ref_attention *attention, const double *q, double *out,
                     struct as_error *error);

enum as_ref_pool { AS_REF_POOL_CLS, AS_REF_POOL_MEAN };

/* x (tokens of all sequences, columns) to out (sequences, columns): the first token's row, or the
 * mean over the sequence's tokens. A sequence of length 0 gives zeros. */
void as_ref_pool(enum as_ref_pool form, const double *x, const int64_t *lengths, int64_t sequences,
                 int64_t columns, double *out);

/* x / max(|x|, 1e-12), per row; in place (torch.nn.functional.normalize). */
void as_ref_l2_normalise(const double *x, int64_t rows, int64_t columns, double *out);

/* What /step_rows keeps of a row of logits. */
struct as_ref_top {
    int64_t id;         /* the largest logit, lowest id among equals; -1 where none is a number */
    double logit;       /* of that id */
    double margin;      /* logit minus the second largest; +inf where there is no second */
    double projection;  /* sum of as_ref_sign(t) logit[t] in ascending t */
    int64_t non_finite; /* NaN and infinities in the row */
};

/* The fixed sign of token t in the projection: +1 where bit 0 of as_mix64(t) is 0, else -1. */
double as_ref_sign(int64_t token);

/* NaN is never the largest. */
struct as_ref_top as_ref_argmax(const double *logits, int64_t vocabulary);

/* --- models (llama.c) --- */

/* Where weights come from: the callee points `*bytes` at row `row` of `tensor` (GGUF's names,
 * such as "blk.0.attn_q.weight"; a vector is row 0) and says its dtype and length. The row must
 * live until the same thread asks for the next one. Called by several threads at once where
 * threads > 1. Non-zero = failure, passed on. */
struct as_ref_source {
    int (*row)(void *context, const char *tensor, int64_t row, const void **bytes, int *dtype,
               int64_t *columns);
    void *context;
};

/* A model of the Llama family: per layer
 *   x += O attention(rope(norm(Q n)), rope(norm(K n)), V n)  with n = rms_norm(x)
 *   x += down (silu(gate m) * up m)                          with m = rms_norm(x)
 * Touvron et al., 2023; biases as in Qwen2, norms of q and k per head as in Qwen3. */
struct as_ref_llama {
    int64_t vocabulary, layers, hidden, heads, kv_heads, head_dim, ffn;
    double rms_epsilon;
    struct as_ref_rope rope;
    bool tied_output; /* logits from token_embd.weight; output.weight is not read */
    bool qkv_bias;    /* attn_{q,k,v}.bias are read */
    bool qk_norm;     /* attn_{q,k}_norm.weight (head_dim) are read */
    int kv_dtype;     /* what the cache keeps of keys and values: AS_REF_F16, BF16 or Q8_0;
                         AS_REF_F32 leaves them in double */
    int threads;      /* that share the rows of a matrix; 0 means 1 */
};

/* Teacher-forced: logits (count - first_row, vocabulary) of positions first_row .. count - 1 of
 * one sequence `tokens` (count) that starts at position 0. One row of weights is held at a time
 * and used for all positions, so memory grows with count and not with the model. */
int as_ref_llama_logits(const struct as_ref_llama *model, const struct as_ref_source *source,
                        const int32_t *tokens, int64_t count, int64_t first_row, double *logits,
                        struct as_error *error);

#endif
