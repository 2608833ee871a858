/* The one interface between engines and kernels: ops, problems, variants, launches, devices.
 *
 * A kernel variant is one file with one idea: it fills in a `struct assay_variant` and is picked
 * up by the build. Nothing here knows of models, strategies or reports.
 *
 * Words: an op is a node of a model's program; a problem is an op (or a cover of ops) with shapes
 * and dtypes; a variant is one implementation; a launch is one run of one variant.
 */
#ifndef ASSAY_KERNEL_H
#define ASSAY_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "as_error.h"

/* Raised whenever a structure below changes; a plugin built for another number is skipped. */
#define ASSAY_ABI 1

#define ASSAY_MAX_COVER 4     /* ops that one variant may cover */
#define ASSAY_MAX_OPERANDS 12 /* inputs, weights and outputs of one launch */

/* ---- dtypes ------------------------------------------------------------------------------- */

/* How numbers are stored. ASSAY_Q8 is an activation class, not a file format: rows in blocks of
 * 32 with d = max|x| / 127 kept in float32, id = d == 0 ? 0 : 1 / d in float32, and
 * q = x * id rounded to the nearest even int8. */
enum assay_dtype {
    ASSAY_F32,
    ASSAY_F16,
    ASSAY_BF16,
    ASSAY_Q8_0,
    ASSAY_Q4_0,
    ASSAY_Q4_1,
    ASSAY_Q5_0,
    ASSAY_Q5_1,
    ASSAY_Q4_K,
    ASSAY_Q5_K,
    ASSAY_Q6_K,
    ASSAY_Q8,
    ASSAY_I32,
    ASSAY_TOP, /* struct assay_top: the columns of a step row */
    ASSAY_DTYPES,
    ASSAY_NONE = ASSAY_DTYPES /* the op has no such role */
};

#define ASSAY_BIT(dtype) (1u << (dtype))

struct assay_dtype_info {
    const char *name;
    int32_t block; /* elements a block */
    int32_t bytes; /* bytes a block */
};

const struct assay_dtype_info *assay_dtype(enum assay_dtype dtype);

/* Bytes of `columns` elements; columns must be a multiple of the block. */
static inline size_t assay_row_bytes(enum assay_dtype dtype, int64_t columns)
{
    const struct assay_dtype_info *info = assay_dtype(dtype);
    return (size_t)(columns / info->block) * (size_t)info->bytes;
}

/* ---- ops ---------------------------------------------------------------------------------- */

/* Operands of a launch come in this order: inputs, weights, outputs, as listed here.
 * "metadata" and "cache" are reached through the launch, not as operands. */
enum assay_op {
    ASSAY_EMBEDDING,   /* ids (tokens) i32, table (vocab, n) -> y (tokens, n) */
    ASSAY_RMS_NORM,    /* x (tokens, n), weight (n) f32 -> y (tokens, n) */
    ASSAY_LINEAR,      /* x (tokens, k), weight (n, k) -> y (tokens, n): y = x W^T */
    ASSAY_ADD,         /* a, b (tokens, n) -> y (tokens, n) */
    ASSAY_ROPE,        /* x (tokens, heads, head_dim), metadata positions -> y, same shape */
    ASSAY_KV_WRITE,    /* k, v (tokens, kv_heads, head_dim), metadata slots -> cache */
    ASSAY_ATTENTION,   /* q (tokens, heads, head_dim), cache -> y, same shape */
    ASSAY_SILU_MUL,    /* gate, up (tokens, n) -> silu(gate) * up (tokens, n) */
    ASSAY_SELECT_ROWS, /* x (tokens, n), metadata logit_rows -> y (logit rows, n) */
    ASSAY_ARGMAX,      /* logits (rows, n) -> top (rows) struct assay_top */
    ASSAY_OPS
};

enum assay_rope_pairing {
    ASSAY_ROPE_ADJACENT, /* (0,1), (2,3), ...: GGUF `llama`, whose q and k rows are permuted */
    ASSAY_ROPE_HALVES    /* (0, d/2), (1, d/2 + 1), ...: Hugging Face */
};

/* One op with its sizes. Fields that an op does not use are 0 (dtypes: ASSAY_NONE). */
struct assay_shape {
    enum assay_op op;
    enum assay_dtype weights;     /* dtype of the weight operand */
    enum assay_dtype activations; /* class of the products' inputs: F32, BF16 or Q8 */
    enum assay_dtype kv;          /* dtype of the cache */
    int64_t tokens;               /* rows: tokens of the packed batch, or rows with logits */
    int64_t n, k;                 /* output columns, and input columns of linear */
    int32_t heads, kv_heads, head_dim;
    int64_t sequences;  /* attention, kv_write */
    int64_t context;    /* attention: the longest sequence's rows in the cache */
    int64_t kv_tokens;  /* attention: sum over query tokens of the rows each may see */
    int64_t kv_rows;    /* attention: sum over sequences of rows in the cache */
    int32_t block_size; /* rows a cache block, where the cache is used */
    enum assay_rope_pairing pairing;
    int32_t rotary; /* rope: leading dimensions of a head that rotate */
    bool causal;
    float epsilon, theta, scale;
};

struct assay_cover;

struct assay_problem {
    const struct assay_cover *cover; /* NULL for a single op */
    int32_t nodes;                   /* 1, or the cover's */
    struct assay_shape node[ASSAY_MAX_COVER];
};

/* A small pattern of nodes that one variant runs as one launch. Node i's inputs name either the
 * output of an earlier pattern node or an external value; the same external number twice means
 * the same value. Legal only where it is convex and no swallowed value is read outside, unless
 * it is a declared output. Operands: externals by number, weights by node, outputs as declared. */
#define ASSAY_EXTERNAL(i) (100 + (i))

struct assay_cover_node {
    enum assay_op op;
    int32_t input[4]; /* pattern node index, or ASSAY_EXTERNAL(i); unused entries are ignored */
};

struct assay_cover {
    const char *name; /* "add_rms_norm": the strategy file's word, and the variants' folder */
    int32_t nodes, externals, outputs;
    struct assay_cover_node node[ASSAY_MAX_COVER];
    int32_t output[ASSAY_MAX_COVER]; /* pattern nodes whose values leave the cover */
};

struct assay_tolerance {
    double absolute, relative; /* elementwise: |d| <= absolute + relative |ref| */
    double nmse;               /* global: sum d^2 / sum ref^2 */
    bool bitwise;              /* data movement: any difference is wrong */
};

/* What an op is, once for all its variants (kernels/ops/<op>/op.c). */
struct assay_op_info {
    enum assay_op op;
    const char *name;
    int32_t inputs, weights, outputs;
    bool uses_metadata, uses_cache;
    /* Work of one launch: floating-point operations, and bytes that must move at least once. */
    void (*cost)(const struct assay_shape *, double *flops, double *bytes);
    struct assay_tolerance (*tolerance)(const struct assay_shape *);
    /* Awkward sizes that every variant is checked on; dtypes are filled in by the checker. */
    const struct assay_shape *suite;
    int32_t suite_count;
};

const struct assay_op_info *assay_op(enum assay_op op);

/* ---- what a launch reads ------------------------------------------------------------------ */

/* A matrix in device memory, row-major, rows `stride` elements apart. */
struct assay_operand {
    void *data;
    enum assay_dtype dtype;
    int64_t rows, columns, stride;
};

/* The columns of a step row that argmax computes. */
struct assay_top {
    int32_t id;        /* top-1 token; the lowest id wins a tie */
    int32_t nonfinite; /* logits that are NaN or infinite */
    float logit;       /* of the top-1 */
    float margin;      /* top-1 minus top-2; 0 for a tie */
    double projection; /* sum over ids of sign(id) * logit, sign by assay_sign() */
};

/* +1 or -1, fixed for each token id. */
double assay_sign(int64_t id);

/* What attention needs to know of a batch. Rows are packed: sequence s owns query rows
 * cu_query[s] .. cu_query[s+1]-1. All arrays are in device memory, int32 unless noted. */
struct assay_metadata {
    int32_t sequences, tokens, logit_rows;
    int32_t max_query, max_context;
    int32_t table_stride;
    const int32_t *cu_query;       /* (sequences + 1) */
    const int32_t *context;        /* (sequences): rows in the cache, this step's included */
    const int32_t *positions;      /* (tokens): position of each query row in its sequence */
    const int32_t *token_sequence; /* (tokens): sequence of each query row, -1 for padding */
    const int32_t *block_table;    /* (sequences, table_stride): cache block ids in order */
    const int64_t *slots;          /* (tokens): block * block_size + offset; -1 writes nowhere */
    const int32_t *logit_row;      /* (logit_rows): query row whose logits are wanted */
};

/* One layer's paged cache: k and v are (blocks, kv_heads, block_size, head_dim) of `dtype`. */
struct assay_kv_cache {
    void *k, *v;
    enum assay_dtype dtype;
    int32_t block_size, kv_heads, head_dim;
    int64_t blocks;
};

/* Byte offset of the row of (block, head, offset) in k or v; 64-bit throughout, since pools pass
 * 2^31 elements. */
static inline size_t assay_kv_offset(const struct assay_kv_cache *cache, int64_t block,
                                     int32_t head, int32_t offset)
{
    int64_t row = (block * cache->kv_heads + head) * cache->block_size + offset;
    return (size_t)row * assay_row_bytes(cache->dtype, cache->head_dim);
}

struct assay_variant;

struct assay_launch {
    const struct assay_variant *variant;
    struct assay_problem *problem; /* sizes of this step; shared by the layers of a plan */
    struct assay_operand operand[ASSAY_MAX_OPERANDS];
    const struct assay_metadata *metadata;
    const struct assay_kv_cache *cache;
    void *plan;    /* the variant's own, plan_size bytes, filled by plan(), fixed address */
    void *scratch; /* scratch_size bytes shared by all launches, dead between them */
    int32_t operands;
    int32_t layer;         /* -1 outside the layers */
    int32_t index;         /* place in the plan */
    int32_t variant_index; /* place of `variant` and `problem` in the engine's tables */
    int32_t problem_index;
};

/* Who runs: thread `thread` of `threads`, all of which enter run() once a launch. */
struct assay_exec {
    int32_t thread, threads;
    void (*barrier)(const struct assay_exec *exec); /* of the team; counted as waiting */
    void *team;
    void *stream; /* CUDA: the stream to enqueue on */
};

/* This thread's share [*begin, *end) of `count` items, in multiples of `grain`. */
static inline void assay_share(const struct assay_exec *exec, int64_t count, int64_t grain,
                               int64_t *begin, int64_t *end)
{
    int64_t grains = (count + grain - 1) / grain;
    int64_t first = grains * exec->thread / exec->threads * grain;
    int64_t last = grains * (exec->thread + 1) / exec->threads * grain;
    *begin = first < count ? first : count;
    *end = last < count ? last : count;
}

/* ---- devices ------------------------------------------------------------------------------ */

enum assay_backend { ASSAY_CPU, ASSAY_CUDA };

enum assay_cpu_feature {
    ASSAY_CPU_AVX2 = 1 << 0,   /* with FMA and F16C */
    ASSAY_CPU_AVX512 = 1 << 1, /* F, BW, DQ, VL */
    ASSAY_CPU_VNNI = 1 << 2,
    ASSAY_CPU_BF16 = 1 << 3
};

/* Sees every launch of a traced pass; NULL in timing passes. Called by every thread of the team,
 * without locks. `wait_ns` is what the thread spent in barriers between begin and end. */
struct assay_observer {
    void *context;
    void (*begin)(void *context, const struct assay_launch *launch, int32_t thread);
    void (*end)(void *context, const struct assay_launch *launch, int32_t thread, uint64_t wait_ns);
    void (*graph_node)(void *context, const struct assay_launch *launch, uint64_t node);
};

/* A step's launches, in order. */
struct assay_step {
    struct assay_launch *launch;
    int32_t launches;
    bool captured;
    const struct assay_observer *observer;
    uint64_t device_start, device_end; /* set by collect, ns on CLOCK_MONOTONIC */
};

/* The engine calls only these. The CPU completes inside submit. */
struct assay_device {
    enum assay_backend backend;
    const char *name;
    uint32_t features; /* enum assay_cpu_feature */
    int32_t threads;
    void *(*alloc)(struct assay_device *, size_t bytes, struct as_error *);
    void (*free)(struct assay_device *, void *memory);
    int (*upload)(struct assay_device *, void *to, const void *from, size_t bytes,
                  struct as_error *);
    int (*download)(struct assay_device *, void *to, const void *from, size_t bytes,
                    struct as_error *);
    int (*event_record)(struct assay_device *, void **event, struct as_error *);
    int (*event_wait)(struct assay_device *, void *event, struct as_error *);
    int (*submit)(struct assay_device *, struct assay_step *, struct as_error *);
    int (*collect)(struct assay_device *, struct assay_step *, struct as_error *);
    void (*close)(struct assay_device *);
};

/* ---- variants ----------------------------------------------------------------------------- */

enum assay_flag {
    ASSAY_DEFAULT = 1 << 0,         /* strategy `auto` may take it without being tuned */
    ASSAY_DETERMINISTIC = 1 << 1,   /* the same inputs give the same bits, every run */
    ASSAY_BATCH_INVARIANT = 1 << 2, /* a row's bits do not depend on the other rows */
    ASSAY_IN_PLACE = 1 << 3         /* the output may share the first input's memory */
};

/* Whether a captured list may hold it: never, for batches of one shape, or for any. */
enum assay_graph { ASSAY_GRAPH_NEVER, ASSAY_GRAPH_UNIFORM, ASSAY_GRAPH_ANY };

/* A variant sets the names, the dtypes, and run; the rest may stay NULL.
 *
 * A plan serves every step of its tokens and rows of logits whose context rounds up to the same
 * power of two. supports(), the sizes and plan() see that power as the context, and must not go by
 * what changes from step to step: sequences, kv_tokens and kv_rows. */
struct assay_variant {
    const char *name;                /* "linear/cpu_avx2": folder and file */
    const char *idea;                /* one line: what this rung adds */
    const char *improves;            /* the rung below, by name; NULL on the lowest */
    const struct assay_cover *cover; /* NULL: the single op below */
    enum assay_op op;
    enum assay_backend backend;
    int32_t rung; /* 0 = naive */
    uint32_t flags;
    enum assay_graph graph;
    uint32_t weights, activations, kv; /* ASSAY_BIT masks per role; 0 = the role is not used */
    uint32_t features;                 /* device features needed */
    /* More conditions than dtypes and features: true, or false with the reason in `why`. */
    bool (*supports)(const struct assay_device *, const struct assay_problem *, char *why,
                     size_t why_size);
    /* The layout that this variant wants weight `role` packed into; NULL or a NULL return = as
     * stored. Layouts of the same name are shared, one copy per tensor, owned by the engine. */
    const char *(*weight_layout)(const struct assay_problem *, int32_t node);
    size_t (*packed_size)(enum assay_dtype dtype, int64_t rows, int64_t columns);
    /* Packs rows [begin, end) of a (rows, columns) matrix; begin is a multiple of 64. */
    void (*pack)(void *packed, const void *stored, enum assay_dtype dtype, int64_t rows,
                 int64_t columns, int64_t begin, int64_t end);
    size_t (*plan_size)(const struct assay_problem *);
    size_t (*scratch_size)(const struct assay_problem *, int32_t threads);
    int (*plan)(struct assay_launch *, struct as_error *);    /* once, after operands are set */
    int (*refresh)(struct assay_launch *, struct as_error *); /* sizes changed: refill in place */
    /* The work. Every thread of the team enters; allocates nothing, synchronizes only its team.
     * Returns 0, or a negative code that ends the step; a thread that fails must still come to
     * every barrier, where the others wait for it. */
    int (*run)(const struct assay_launch *, const struct assay_exec *);
    void (*fini)(struct assay_launch *);
};

/* ---- plugins ------------------------------------------------------------------------------ */

/* A shared object exports `const struct assay_plugin *assay_plugin(void)`. */
struct assay_plugin {
    uint32_t abi;  /* ASSAY_ABI */
    uint32_t size; /* sizeof(struct assay_plugin) */
    const char *name, *version;
    const struct assay_variant *const *variants;                   /* NULL-terminated */
    int (*open_device)(struct assay_device **, struct as_error *); /* may be NULL */
};

#endif
