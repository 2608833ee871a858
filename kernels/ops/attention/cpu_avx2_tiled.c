/* attention/cpu_avx2_tiled: 32 keys at a time, shared by query heads and rows, in one pass.
 *
 * The keys of a tile are transposed into scratch, so that the lanes of a vector are keys: scores
 * then need no sums over lanes, and three queries (the heads of a group, or rows of a prompt) use
 * each loaded vector. Softmax is online (Milakov and Gimelshein, 2018; Dao et al., 2022): a tile
 * that brings a larger score rescales what was summed before, so no row of scores is kept.
 *
 * A context is cut into chunks of 128 positions, each with a softmax of its own; chunks are merged
 * in order. A few queries over a long context are shared out by chunk and merged after a barrier,
 * many are shared out by query and merged as they come: the same arithmetic, so bits depend
 * neither on the number of threads nor on the other queries. */
#include <math.h>
#include <stdio.h>

#include "device/cpu/avx2.h"
#include "device/cpu/paged.h"
#include "device/cpu/rows.h"

#define KEYS 32   /* positions a tile */
#define CHUNK 128 /* positions a chunk */
#define ROWS 8    /* query rows that share a transposed tile */
#define QUERIES 3 /* queries in registers at once: 3 x 4 vectors of scores */

/* A state is the sum of weight * v (head_dim), then the largest score and the sum of weights. */
static int64_t state_length(const struct assay_shape *shape)
{
    return shape->head_dim + 8;
}

struct query {
    const float *q; /* (head_dim) */
    float *state;
    int32_t visible;
};

struct tile {
    const float *keys;          /* (head_dim, KEYS) */
    const float *const *values; /* (KEYS) rows of v */
    float *weights;             /* (KEYS), scratch */
    int32_t position, head_dim; /* of the tile's first key */
    float scale;
};

CPU_AVX2_INLINE float exp_of(float x)
{
    return _mm256_cvtss_f32(avx2_exp(_mm256_set1_ps(x)));
}

/* out (8, KEYS) = eight elements of each of eight rows, transposed. */
CPU_AVX2_INLINE void transpose_eight(const float *const rows[8], int32_t column, float *out)
{
    __m256 r[8], u[8];
    for (int i = 0; i < 8; i++) {
        r[i] = _mm256_loadu_ps(rows[i] + column);
    }
    for (int i = 0; i < 8; i += 2) {
        u[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        u[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(u[i], u[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(u[i], u[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(u[i + 1], u[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(u[i + 1], u[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(out + i * KEYS, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(out + (i + 4) * KEYS, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}

CPU_AVX2 static void transpose(const float *const rows[KEYS], int32_t head_dim, float *keys)
{
    for (int first = 0; first < KEYS; first += 8) {
        for (int32_t column = 0; column < head_dim; column += 8) {
            transpose_eight(rows + first, column, keys + column * KEYS + first);
        }
    }
}

/* sum (8 * vectors) = sum * correction + weights . values, over `count` keys. */
CPU_AVX2_INLINE void add_values(float *sum, const struct tile *tile, const float *weights,
                                int32_t column, int32_t count, float correction, int vectors)
{
    __m256 part[8];
    CPU_UNROLL
    for (int i = 0; i < vectors; i++) {
        part[i] = _mm256_mul_ps(_mm256_loadu_ps(sum + 8 * i), _mm256_set1_ps(correction));
    }
    for (int32_t p = 0; p < count; p++) {
        __m256 weight = _mm256_broadcast_ss(weights + p);
        const float *v = tile->values[p] + column;
        CPU_UNROLL
        for (int i = 0; i < vectors; i++) {
            part[i] = _mm256_fmadd_ps(weight, _mm256_loadu_ps(v + 8 * i), part[i]);
        }
    }
    CPU_UNROLL
    for (int i = 0; i < vectors; i++) {
        _mm256_storeu_ps(sum + 8 * i, part[i]);
    }
}

/* Takes one query's scores on the tile into its state; they become weights. */
CPU_AVX2 static void update(const struct tile *tile, const struct query *query, float *weights)
{
    int32_t head_dim = tile->head_dim, count = query->visible - tile->position;
    float *state = query->state;
    if (count <= 0) {
        return;
    }
    __m256 x[4], largest = _mm256_set1_ps(state[head_dim]);
    for (int i = 0; i < 4; i++) {
        __m256 seen = _mm256_castsi256_ps(avx2_mask(count - 8 * i));
        x[i] = _mm256_mul_ps(_mm256_loadu_ps(weights + 8 * i), _mm256_set1_ps(tile->scale));
        x[i] = _mm256_blendv_ps(_mm256_set1_ps(-INFINITY), x[i], seen);
        largest = _mm256_max_ps(largest, x[i]);
    }
    float top = avx2_max(largest);
    __m256 sum = _mm256_setzero_ps();
    for (int i = 0; i < 4; i++) {
        x[i] = avx2_exp(_mm256_sub_ps(x[i], _mm256_set1_ps(top)));
        sum = _mm256_add_ps(sum, x[i]);
        _mm256_storeu_ps(weights + 8 * i, x[i]);
    }
    float correction = exp_of(state[head_dim] - top);
    state[head_dim] = top;
    state[head_dim + 1] = state[head_dim + 1] * correction + avx2_sum(sum);
    count = count < KEYS ? count : KEYS;
    int32_t column = 0;
    for (; column + 64 <= head_dim; column += 64) {
        add_values(state + column, tile, weights, column, count, correction, 8);
    }
    for (; column + 16 <= head_dim; column += 16) {
        add_values(state + column, tile, weights, column, count, correction, 2);
    }
    for (; column < head_dim; column += 8) {
        add_values(state + column, tile, weights, column, count, correction, 1);
    }
}

/* `count` queries (a constant) on one tile. */
CPU_AVX2_INLINE void attend(const struct tile *tile, const struct query *query, int count)
{
    __m256 scores[4][QUERIES];
    CPU_UNROLL
    for (int i = 0; i < 4; i++) {
        CPU_UNROLL
        for (int c = 0; c < count; c++) {
            scores[i][c] = _mm256_setzero_ps();
        }
    }
    for (int32_t column = 0; column < tile->head_dim; column++) {
        __m256 q[QUERIES];
        CPU_UNROLL
        for (int c = 0; c < count; c++) {
            q[c] = _mm256_broadcast_ss(query[c].q + column);
        }
        CPU_UNROLL
        for (int i = 0; i < 4; i++) {
            __m256 k = _mm256_loadu_ps(tile->keys + column * KEYS + 8 * i);
            CPU_UNROLL
            for (int c = 0; c < count; c++) {
                scores[i][c] = _mm256_fmadd_ps(q[c], k, scores[i][c]);
            }
        }
    }
    CPU_UNROLL
    for (int i = 0; i < 4; i++) {
        CPU_UNROLL
        for (int c = 0; c < count; c++) {
            _mm256_storeu_ps(tile->weights + c * KEYS + 8 * i, scores[i][c]);
        }
    }
    CPU_UNROLL
    for (int c = 0; c < count; c++) {
        update(tile, &query[c], tile->weights + c * KEYS);
    }
}

CPU_AVX2 static void attend_three(const struct tile *tile, const struct query *query)
{
    attend(tile, query, 3);
}

CPU_AVX2 static void attend_one(const struct tile *tile, const struct query *query)
{
    attend(tile, query, 1);
}

static void clear(float *state, int32_t head_dim)
{
    memset(state, 0, (size_t)(head_dim + 2) * sizeof *state);
    state[head_dim] = -INFINITY;
}

/* Takes the state of a chunk into `total`. */
CPU_AVX2 static void merge(float *total, const float *chunk, int32_t head_dim)
{
    if (chunk[head_dim + 1] == 0) { /* no key of the chunk was seen */
        return;
    }
    float top = fmaxf(total[head_dim], chunk[head_dim]);
    float old = exp_of(total[head_dim] - top), new = exp_of(chunk[head_dim] - top);
    for (int32_t i = 0; i < head_dim; i += 8) {
        __m256 part = _mm256_mul_ps(_mm256_loadu_ps(chunk + i), _mm256_set1_ps(new));
        __m256 sum = _mm256_loadu_ps(total + i);
        _mm256_storeu_ps(total + i, _mm256_fmadd_ps(sum, _mm256_set1_ps(old), part));
    }
    total[head_dim] = top;
    total[head_dim + 1] = total[head_dim + 1] * old + chunk[head_dim + 1] * new;
}

/* y (head_dim) = the mean, or zeros where nothing was seen. */
CPU_AVX2 static void finish(const float *total, float *y, int32_t head_dim)
{
    float sum = total[head_dim + 1];
    __m256 share = _mm256_set1_ps(sum == 0 ? 0 : 1 / sum);
    for (int32_t i = 0; i < head_dim; i += 8) {
        _mm256_storeu_ps(y + i, _mm256_mul_ps(_mm256_loadu_ps(total + i), share));
    }
}

/* ---- sharing the work --------------------------------------------------------------------- */

/* Query rows [row, row + rows) of one sequence under one kv head. The state of row r, head g of
 * the group lies at states + r * row_stride + g * head_stride. */
struct item {
    int64_t row;
    int32_t rows, sequence, kv_head, group;
    int32_t visible; /* the most that any of its rows sees */
    float *states;
    int64_t row_stride, head_stride;
};

/* A thread's scratch. */
struct workspace {
    float *keys, *weights;
    float *chunk, *total; /* (ROWS * group) states */
};

static void visit_tile(const struct assay_launch *launch, const struct item *item,
                       const struct workspace *workspace, int32_t position)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    const float *k[KEYS], *v[KEYS];
    int32_t left = item->visible - position, filled = left < KEYS ? left : KEYS;
    cpu_cached_rows(launch, item->sequence, item->kv_head, position, filled, k, v);
    for (int32_t i = filled; i < KEYS; i++) { /* repeats a row, which no query sees */
        k[i] = k[0];
        v[i] = v[0];
    }
    transpose(k, shape->head_dim, workspace->keys);
    struct tile tile = {.keys = workspace->keys,
                        .values = v,
                        .weights = workspace->weights,
                        .position = position,
                        .head_dim = shape->head_dim,
                        .scale = shape->scale};
    int32_t count = 0;
    struct query query[QUERIES];
    for (int32_t r = 0; r < item->rows; r++) {
        int32_t visible = cpu_visible(launch, item->row + r);
        const float *q = cpu_row(&launch->operand[0], item->row + r) +
                         (int64_t)item->kv_head * item->group * shape->head_dim;
        for (int32_t g = 0; visible > position && g < item->group; g++) {
            query[count++] =
                (struct query){.q = q + (int64_t)g * shape->head_dim,
                               .state = item->states + r * item->row_stride + g * item->head_stride,
                               .visible = visible};
            if (count == QUERIES) {
                attend_three(&tile, query);
                count = 0;
            }
        }
    }
    for (int32_t c = 0; c < count; c++) {
        attend_one(&tile, &query[c]);
    }
}

/* Fills the item's states with the chunk that begins at `position`. */
static void visit_chunk(const struct assay_launch *launch, const struct item *item,
                        const struct workspace *workspace, int32_t position)
{
    int32_t head_dim = launch->problem->node[0].head_dim;
    for (int32_t r = 0; r < item->rows; r++) {
        for (int32_t g = 0; g < item->group; g++) {
            clear(item->states + r * item->row_stride + g * item->head_stride, head_dim);
        }
    }
    int32_t end = position + CHUNK < item->visible ? position + CHUNK : item->visible;
    for (; position < end; position += KEYS) {
        visit_tile(launch, item, workspace, position);
    }
}

/* All chunks of an item, merged as they come. */
static void visit_whole(const struct assay_launch *launch, struct item item,
                        const struct workspace *workspace)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    int64_t length = state_length(shape);
    int32_t queries = item.rows * item.group;
    item.states = workspace->chunk;
    item.row_stride = item.group * length;
    item.head_stride = length;
    for (int32_t i = 0; i < queries; i++) {
        clear(workspace->total + i * length, shape->head_dim);
    }
    for (int32_t position = 0; position < item.visible; position += CHUNK) {
        visit_chunk(launch, &item, workspace, position);
        for (int32_t i = 0; i < queries; i++) {
            merge(workspace->total + i * length, workspace->chunk + i * length, shape->head_dim);
        }
    }
    for (int32_t i = 0; i < queries; i++) {
        int64_t head = item.kv_head * item.group + i % item.group;
        float *y = cpu_row(&launch->operand[1], item.row + i / item.group);
        finish(workspace->total + i * length, y + head * shape->head_dim, shape->head_dim);
    }
}

/* Few queries over a long context: chunks are shared out, not queries. */
static int64_t few_tokens(const struct assay_shape *shape, int32_t threads)
{
    return 8 * threads / shape->kv_heads;
}

static bool by_chunk(const struct assay_shape *shape, int32_t threads)
{
    return shape->tokens <= few_tokens(shape, threads) && shape->context > CHUNK;
}

static int64_t chunks_of(const struct assay_shape *shape)
{
    return (shape->context + CHUNK - 1) / CHUNK;
}

/* Walks the items of the batch and takes every threads-th: rows of a prompt grow dearer towards
 * its end, so neighbours must go to different threads. `partial` (tokens, heads, chunks) is NULL
 * unless the work is shared out by chunk. */
static void visit_batch(const struct assay_launch *launch, const struct assay_exec *exec,
                        const struct workspace *workspace, float *partial)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    const struct assay_metadata *metadata = launch->metadata;
    int64_t turn = 0, chunks = chunks_of(shape), length = state_length(shape);
    struct item item = {.group = shape->heads / shape->kv_heads};
    item.head_stride = chunks * length;
    item.row_stride = shape->heads * item.head_stride;
    for (item.sequence = 0; item.sequence < metadata->sequences; item.sequence++) {
        int64_t end = metadata->cu_query[item.sequence + 1];
        for (item.row = metadata->cu_query[item.sequence]; item.row < end; item.row += ROWS) {
            item.rows = (int32_t)(end - item.row < ROWS ? end - item.row : ROWS);
            item.visible = 0;
            for (int32_t r = 0; r < item.rows; r++) {
                int32_t visible = cpu_visible(launch, item.row + r);
                item.visible = visible > item.visible ? visible : item.visible;
            }
            for (item.kv_head = 0; item.kv_head < shape->kv_heads; item.kv_head++) {
                if (partial == NULL) {
                    if (turn++ % exec->threads == exec->thread) {
                        visit_whole(launch, item, workspace);
                    }
                    continue;
                }
                for (int32_t c = 0; c * CHUNK < item.visible; c++) {
                    item.states = partial + item.row * item.row_stride +
                                  item.kv_head * item.group * item.head_stride + c * length;
                    if (turn++ % exec->threads == exec->thread) {
                        visit_chunk(launch, &item, workspace, c * CHUNK);
                    }
                }
            }
        }
    }
}

/* Merges the chunks of query rows and heads, in order. */
static void merge_partial(const struct assay_launch *launch, const struct assay_exec *exec,
                          float *total, const float *partial)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    int64_t chunks = chunks_of(shape), length = state_length(shape), begin, end;
    assay_share(exec, shape->tokens * shape->heads, 1, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t t = i / shape->heads, head = i % shape->heads;
        int32_t visible = cpu_visible(launch, t);
        clear(total, shape->head_dim);
        for (int64_t c = 0; c * CHUNK < visible; c++) {
            merge(total, partial + (i * chunks + c) * length, shape->head_dim);
        }
        finish(total, cpu_row(&launch->operand[1], t) + head * shape->head_dim, shape->head_dim);
    }
}

/* Floats of one thread's workspace. */
static int64_t workspace_length(const struct assay_shape *shape)
{
    int64_t states = (int64_t)ROWS * (shape->heads / shape->kv_heads);
    return (int64_t)(shape->head_dim + QUERIES) * KEYS + 2 * states * state_length(shape);
}

static int run(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    const struct assay_metadata *metadata = launch->metadata;
    int64_t states = (int64_t)ROWS * (shape->heads / shape->kv_heads);
    float *mine = (float *)launch->scratch + exec->thread * workspace_length(shape);
    struct workspace workspace = {.keys = mine, .weights = mine + shape->head_dim * KEYS};
    workspace.chunk = workspace.weights + QUERIES * KEYS;
    workspace.total = workspace.chunk + states * state_length(shape);
    if (shape->tokens > 0 && by_chunk(shape, exec->threads)) {
        float *partial = (float *)launch->scratch + exec->threads * workspace_length(shape);
        visit_batch(launch, exec, &workspace, partial);
        cpu_barrier(exec);
        merge_partial(launch, exec, workspace.total, partial);
        return 0;
    }
    int64_t owned =
        shape->tokens > 0 && metadata->sequences > 0 ? metadata->cu_query[metadata->sequences] : 0;
    if (owned > 0) {
        visit_batch(launch, exec, &workspace, NULL);
    }
    for (int64_t t = owned + exec->thread; t < shape->tokens; t += exec->threads) { /* padding */
        memset(cpu_row(&launch->operand[1], t), 0,
               (size_t)shape->heads * (size_t)shape->head_dim * sizeof(float));
    }
    return 0;
}

static bool supports(const struct assay_device *device, const struct assay_problem *problem,
                     char *why, size_t why_size)
{
    (void)device;
    if (problem->node[0].head_dim % 8 != 0) {
        snprintf(why, why_size, "head_dim = %d is not a multiple of 8", problem->node[0].head_dim);
        return false;
    }
    return true;
}

/* Enough for fewer tokens or a shorter context too. */
static size_t scratch_size(const struct assay_problem *problem, int32_t threads)
{
    const struct assay_shape *shape = &problem->node[0];
    int64_t few = few_tokens(shape, threads);
    int64_t states = (shape->tokens < few ? shape->tokens : few) * shape->heads * chunks_of(shape);
    int64_t floats = threads * workspace_length(shape) + states * state_length(shape);
    return (size_t)floats * sizeof(float);
}

const struct assay_variant assay_variant_attention_cpu_avx2_tiled = {
    .name = "attention/cpu_avx2_tiled",
    .idea = "online softmax over transposed tiles of keys that heads and rows share",
    .improves = "attention/cpu_avx2",
    .op = ASSAY_ATTENTION,
    .backend = ASSAY_CPU,
    .rung = 2,
    .flags = ASSAY_DEFAULT | ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT,
    .graph = ASSAY_GRAPH_ANY,
    .kv = ASSAY_BIT(ASSAY_F32),
    .features = ASSAY_CPU_AVX2,
    .supports = supports,
    .scratch_size = scratch_size,
    .run = run,
};
