#include "check/case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "as_memory.h"
#include "as_random.h"
#include "check/guarded.h"
#include "check/values.h"

/* Heights of the tables that embedding is checked on, and where rope's sequences may stand. */
#define VOCABULARY 523
#define FAR_CONTEXT 4096

struct builder {
    struct as_case *made;
    const struct as_case_options *options;
    struct as_error *error;
    uint64_t streams;
};

static uint64_t next_seed(struct builder *b)
{
    return as_random_u64(b->options->seed, 17, b->streams++);
}

int64_t as_case_input_columns(const struct assay_shape *shape, int32_t slot)
{
    (void)slot; /* no op reads inputs of different widths */
    switch (shape->op) {
    case ASSAY_EMBEDDING: return 1;
    case ASSAY_LINEAR: return shape->k;
    case ASSAY_KV_WRITE: return (int64_t)shape->kv_heads * shape->head_dim;
    case ASSAY_ROPE:
    case ASSAY_ATTENTION: return (int64_t)shape->heads * shape->head_dim;
    default: return shape->n;
    }
}

int64_t as_case_output_columns(const struct assay_shape *shape)
{
    switch (shape->op) {
    case ASSAY_ARGMAX: return 1;
    case ASSAY_ROPE:
    case ASSAY_ATTENTION: return (int64_t)shape->heads * shape->head_dim;
    default: return shape->n;
    }
}

int32_t as_case_first_output(const struct as_case *made)
{
    for (int32_t i = 0; i < made->operands; i++)
        if (made->operand[i].role == AS_CASE_OUTPUT)
            return i;
    return -1;
}

struct assay_tolerance as_case_tolerance(const struct as_case *made, int32_t node)
{
    struct assay_tolerance sum = {.bitwise = true};
    for (int32_t i = 0; i <= node; i++) {
        const struct assay_shape *shape = &made->problem.node[i];
        struct assay_tolerance one = assay_op(shape->op)->tolerance(shape);
        if (one.bitwise)
            continue;
        sum.absolute = fmax(sum.absolute, one.absolute);
        sum.relative = fmax(sum.relative, one.relative);
        sum.nmse = fmax(sum.nmse, one.nmse);
        sum.bitwise = false;
    }
    return sum;
}

/* ---- operands ----------------------------------------------------------------------------- */

static const char *const input_names[ASSAY_OPS][2] = {
    [ASSAY_EMBEDDING] = {"ids"}, [ASSAY_RMS_NORM] = {"x"},
    [ASSAY_LINEAR] = {"x"},      [ASSAY_ADD] = {"a", "b"},
    [ASSAY_ROPE] = {"x"},        [ASSAY_KV_WRITE] = {"k", "v"},
    [ASSAY_ATTENTION] = {"q"},   [ASSAY_SILU_MUL] = {"gate", "up"},
    [ASSAY_SELECT_ROWS] = {"x"}, [ASSAY_ARGMAX] = {"logits"},
};

static struct as_case_operand *add_operand(struct builder *b, enum as_case_role role, int32_t node,
                                           const char *name)
{
    struct as_case *made = b->made;
    struct as_case_operand *operand = &made->operand[made->operands++];
    *operand = (struct as_case_operand){.role = role, .node = node, .dtype = ASSAY_F32};
    if (made->problem.cover == NULL)
        snprintf(operand->name, sizeof operand->name, "%s", name);
    else
        snprintf(operand->name, sizeof operand->name, "%s of %s", name,
                 assay_op(made->problem.node[node].op)->name);
    return operand;
}

static int store(struct builder *b, struct as_case_operand *operand, int64_t elements)
{
    size_t bytes = assay_row_bytes(operand->dtype, elements);
    operand->stored = as_calloc_aligned(b->error, bytes, 1, operand->name);
    if (operand->stored == NULL)
        return AS_ERR_MEMORY;
    return 0;
}

/* Rows that are unlike the others: ties, NaN, infinities, nothing but NaN or -inf. */
static void spoil_logits(float *x, int64_t rows, int64_t n)
{
    for (int64_t r = 0; r < rows; r++, x += n) {
        switch (rows < 3 ? 0 : r % 7) {
        case 1: /* two equal maxima */ x[n / 3] = x[n - 1 - n / 4] = 9; break;
        case 2: x[n / 2] = NAN; break;
        case 3: x[n / 5] = INFINITY; break;
        case 4:
            for (int64_t i = 0; i < n; i++)
                x[i] = NAN;
            break;
        case 5:
            for (int64_t i = 0; i < n; i++)
                x[i] = i == n - 1 ? -INFINITY : -4.5f;
            break;
        default: break;
        }
    }
}

/* A row of zeros, and zeros in the first block of another, meet a scale of 0 in class q8. */
static void spoil_activations(struct builder *b, float *x, int64_t rows, int64_t columns)
{
    if (rows >= 3)
        memset(x + (rows - 2) * columns, 0, (size_t)columns * sizeof *x);
    if (rows >= 4)
        memset(x + (rows - 3) * columns, 0, (size_t)(columns < 32 ? columns : 32) * sizeof *x);
    if (!b->options->anomalies || rows == 0)
        return;
    x[rows / 2 * columns + columns / 3] = NAN;
    for (int64_t r = 0; rows == b->made->batch.tokens && r < rows; r++)
        if (b->made->batch.token_sequence[r] < 0)
            for (int64_t i = 0; i < columns; i++)
                x[r * columns + i] = NAN;
}

static int add_input(struct builder *b, int32_t node, int32_t slot)
{
    const struct assay_shape *shape = &b->made->problem.node[node];
    struct as_case_operand *operand =
        add_operand(b, AS_CASE_INPUT, node, input_names[shape->op][slot]);
    operand->columns = as_case_input_columns(shape, slot);
    operand->rows = shape->op == ASSAY_SELECT_ROWS ? b->made->batch.tokens : shape->tokens;
    operand->dtype = shape->op == ASSAY_EMBEDDING ? ASSAY_I32 : ASSAY_F32;
    int64_t count = operand->rows * operand->columns;
    uint64_t seed = next_seed(b);
    if (store(b, operand, count) != 0)
        return AS_ERR_MEMORY;
    if (operand->dtype == ASSAY_I32) {
        int32_t *ids = operand->stored;
        for (int64_t i = 0; i < count; i++)
            ids[i] = (int32_t)(i == 0   ? VOCABULARY - 1
                               : i == 1 ? 0
                                        : as_value_below(seed, (uint64_t)i, VOCABULARY));
        return 0;
    }
    as_values(operand->stored, count, seed);
    if (shape->op == ASSAY_ARGMAX)
        spoil_logits(operand->stored, operand->rows, operand->columns);
    else
        spoil_activations(b, operand->stored, operand->rows, operand->columns);
    return 0;
}

static int add_weight(struct builder *b, int32_t node)
{
    const struct assay_shape *shape = &b->made->problem.node[node];
    bool table = shape->op == ASSAY_EMBEDDING;
    struct as_case_operand *operand =
        add_operand(b, AS_CASE_WEIGHT, node, table ? "table" : "weight");
    operand->dtype = shape->weights == ASSAY_NONE ? ASSAY_F32 : shape->weights;
    operand->rows = table ? VOCABULARY : shape->op == ASSAY_LINEAR ? shape->n : 1;
    operand->columns = shape->op == ASSAY_LINEAR ? shape->k : shape->n;
    if (operand->columns % assay_dtype(operand->dtype)->block != 0)
        return as_fail(
            b->error, AS_ERR_UNSUPPORTED, "%lld columns of %s are no whole number of %s blocks",
            (long long)operand->columns, operand->name, assay_dtype(operand->dtype)->name);
    int64_t count = operand->rows * operand->columns;
    if (store(b, operand, count) != 0)
        return AS_ERR_MEMORY;
    as_values_stored(operand->dtype, operand->stored, count, next_seed(b));
    return 0;
}

static void add_output(struct builder *b, int32_t node)
{
    const struct assay_shape *shape = &b->made->problem.node[node];
    bool top = shape->op == ASSAY_ARGMAX;
    struct as_case_operand *operand = add_operand(b, AS_CASE_OUTPUT, node, top ? "top" : "y");
    operand->dtype = top ? ASSAY_TOP : ASSAY_F32;
    operand->rows = shape->tokens;
    operand->columns = as_case_output_columns(shape);
    operand->numbers = top ? 5 : operand->columns;
}

/* Externals by number: the first node that reads each says what it is. */
static int add_externals(struct builder *b)
{
    const struct assay_problem *problem = &b->made->problem;
    const struct assay_cover *cover = problem->cover;
    int code = 0;
    for (int32_t e = 0; cover != NULL && e < cover->externals; e++) {
        bool found = false;
        for (int32_t i = 0; code == 0 && !found && i < cover->nodes; i++)
            for (int32_t j = 0; !found && j < assay_op(cover->node[i].op)->inputs; j++)
                if ((found = cover->node[i].input[j] == ASSAY_EXTERNAL(e)))
                    code = add_input(b, i, j);
        if (!found)
            return as_fail(b->error, AS_ERR_DATA, "cover %s never reads its external value %d",
                           cover->name, (int)e);
    }
    if (cover == NULL)
        for (int32_t j = 0; code == 0 && j < assay_op(problem->node[0].op)->inputs; j++)
            code = add_input(b, 0, j);
    return code;
}

static int add_operands(struct builder *b)
{
    const struct assay_problem *problem = &b->made->problem;
    const struct assay_cover *cover = problem->cover;
    int code = add_externals(b);
    for (int32_t i = 0; code == 0 && i < problem->nodes; i++)
        for (int32_t j = 0; code == 0 && j < assay_op(problem->node[i].op)->weights; j++)
            code = add_weight(b, i);
    for (int32_t i = 0; code == 0 && cover != NULL && i < cover->outputs; i++)
        if (assay_op(problem->node[cover->output[i]].op)->outputs > 0)
            add_output(b, cover->output[i]);
    if (code == 0 && cover == NULL && assay_op(problem->node[0].op)->outputs > 0)
        add_output(b, 0);
    return code;
}

/* ---- sizes -------------------------------------------------------------------------------- */

static int32_t find_node(const struct assay_problem *problem, enum assay_op op)
{
    for (int32_t i = 0; i < problem->nodes; i++)
        if (problem->node[i].op == op)
            return i;
    return -1;
}

/* Brings a problem's own work down to about 4 `work`, see struct as_case_options. */
static void bound_sizes(struct assay_problem *problem, double work)
{
    if (problem->cover != NULL || work <= 0)
        return;
    struct assay_shape *shape = &problem->node[0];
    double tokens = (double)(shape->tokens > 1 ? shape->tokens : 1);
    if (shape->op == ASSAY_LINEAR) {
        double depth = (double)(shape->k > 1 ? shape->k : 1);
        int64_t most = (int64_t)fmin(4 * work / (tokens * depth), work / 2 / depth);
        most = most < 32 ? 32 : most;
        if (shape->n > most + 64)
            shape->n = most / 32 * 32 + shape->n % 32;
    } else if (shape->op != ASSAY_ATTENTION) {
        int64_t most = (int64_t)(work / (double)(shape->n > 1 ? shape->n : 1));
        most = most < 2 ? 2 : most;
        if (shape->tokens > most)
            shape->tokens = most;
    }
}

static int make_batch(struct builder *b)
{
    struct as_case *made = b->made;
    struct assay_problem *problem = &made->problem;
    int32_t attention = find_node(problem, ASSAY_ATTENTION);
    int32_t write = find_node(problem, ASSAY_KV_WRITE);
    int32_t select = find_node(problem, ASSAY_SELECT_ROWS);
    int64_t rows = problem->node[0].tokens;
    struct as_check_batch_options options = {
        .tokens = rows, .context = -1, .oddities = b->options->oddities, .seed = next_seed(b)};
    if (select >= 0 && rows > 0) {
        options.logit_rows = rows;
        options.tokens = rows + rows / 2 + 1;
    }
    if (made->uses_metadata && attention < 0 && write < 0)
        options.context = options.tokens > FAR_CONTEXT ? options.tokens : FAR_CONTEXT;
    if (attention >= 0) {
        const struct assay_shape *shape = &problem->node[attention];
        options.context = shape->context;
        options.sequences = shape->sequences;
        options.block_size = shape->block_size;
        if (b->options->work > 0)
            options.kv_tokens =
                (int64_t)(2 * b->options->work / shape->head_dim / shape->heads) + 1;
    } else if (write >= 0) {
        options.block_size = problem->node[write].block_size;
    }
    return as_check_batch_make(&made->batch, &options, b->error);
}

void as_case_set_sizes(struct as_case *made)
{
    const struct as_check_batch *batch = &made->batch;
    int64_t kv_rows = 0;
    for (int32_t s = 0; s < batch->sequences; s++)
        kv_rows += batch->context[s];
    for (int32_t i = 0; i < made->problem.nodes; i++) {
        struct assay_shape *shape = &made->problem.node[i];
        if (shape->op != ASSAY_ATTENTION)
            continue;
        shape->sequences = batch->sequences;
        shape->context = batch->max_context;
        shape->kv_rows = kv_rows;
        shape->kv_tokens = 0;
        for (int32_t t = 0; t < batch->tokens; t++)
            shape->kv_tokens += as_check_batch_visible(batch, t, shape->causal);
    }
}

/* ---- the cache ---------------------------------------------------------------------------- */

/* Live rows are random, all others poison. Rows that kv_write is to fill are dead before it. */
static void fill_rows(const struct as_case *made, int32_t sequence)
{
    const struct as_case_cache *cache = &made->cache;
    const struct as_check_batch *batch = &made->batch;
    const struct assay_kv_cache layout = {.dtype = cache->dtype,
                                          .block_size = cache->block_size,
                                          .kv_heads = cache->kv_heads,
                                          .head_dim = cache->head_dim};
    size_t row = assay_row_bytes(cache->dtype, cache->head_dim);
    int32_t queries = batch->cu_query[sequence + 1] - batch->cu_query[sequence];
    int32_t live = batch->context[sequence] - (made->writes_cache ? queries : 0);
    for (int32_t p = 0; p < live; p++) {
        int64_t block =
            batch->block_table[(int64_t)sequence * batch->table_stride + p / cache->block_size];
        for (int32_t h = 0; h < cache->kv_heads; h++) {
            size_t at = assay_kv_offset(&layout, block, h, p % cache->block_size);
            as_values_stored(cache->dtype, cache->k + at, cache->head_dim,
                             cache->seed_k + at / row);
            as_values_stored(cache->dtype, cache->v + at, cache->head_dim,
                             cache->seed_v + at / row);
        }
    }
}

int as_case_fill_cache(struct as_case *made, struct as_error *error)
{
    struct as_case_cache *cache = &made->cache;
    size_t rows = (size_t)cache->blocks * (size_t)cache->kv_heads * (size_t)cache->block_size;
    cache->bytes = rows * assay_row_bytes(cache->dtype, cache->head_dim);
    cache->k = as_calloc_aligned(error, cache->bytes, 1, "a checked cache");
    cache->v = as_calloc_aligned(error, cache->bytes, 1, "a checked cache");
    if (cache->k == NULL || cache->v == NULL)
        return AS_ERR_MEMORY;
    as_poison(cache->k, cache->bytes, 0);
    as_poison(cache->v, cache->bytes, 0);
    for (int32_t s = 0; s < made->batch.sequences; s++)
        fill_rows(made, s);
    return 0;
}

static int make_cache(struct builder *b)
{
    struct as_case *made = b->made;
    int32_t node = find_node(&made->problem, ASSAY_ATTENTION);
    node = node < 0 ? find_node(&made->problem, ASSAY_KV_WRITE) : node;
    const struct assay_shape *shape = &made->problem.node[node];
    made->cache = (struct as_case_cache){.dtype = shape->kv,
                                         .block_size = made->batch.block_size,
                                         .kv_heads = shape->kv_heads,
                                         .head_dim = shape->head_dim,
                                         .blocks = made->batch.blocks};
    made->cache.seed_k = next_seed(b);
    made->cache.seed_v = next_seed(b);
    if (shape->head_dim % assay_dtype(shape->kv)->block != 0)
        return as_fail(b->error, AS_ERR_UNSUPPORTED,
                       "a head of %d elements is no whole number of %s blocks",
                       (int)shape->head_dim, assay_dtype(shape->kv)->name);
    return as_case_fill_cache(made, b->error);
}

/* ---- which rows truth is computed for ------------------------------------------------------ */

static double node_work(const struct assay_shape *shape)
{
    if (shape->op == ASSAY_LINEAR)
        return (double)shape->n * (double)shape->k;
    return 16 * (double)shape->n; /* as much as an exponential or so */
}

/* Multiply-adds of row `t`. */
static double row_work(const struct as_case *made, int64_t t)
{
    double sum = 0;
    for (int32_t i = 0; i < made->problem.nodes; i++) {
        const struct assay_shape *shape = &made->problem.node[i];
        sum += node_work(shape);
        if (shape->op == ASSAY_ATTENTION)
            sum += 2.0 * shape->heads * shape->head_dim *
                   (double)as_check_batch_visible(&made->batch, (int32_t)t, shape->causal);
    }
    return sum;
}

/* The first and the last row, the one that sees most, and others at random while the work lasts. */
static int choose_sample(struct builder *b)
{
    struct as_case *made = b->made;
    int64_t rows = made->problem.node[0].tokens;
    made->sample = as_calloc(b->error, (size_t)rows, sizeof *made->sample, "a sample of rows");
    char *taken = as_calloc(b->error, (size_t)rows, 1, "a sample of rows");
    if (made->sample == NULL || taken == NULL) {
        free(taken);
        return AS_ERR_MEMORY;
    }
    /* Rows of kv_write and select_rows mean each other; both are cheap. */
    bool all = b->options->work <= 0 || made->writes_cache ||
               find_node(&made->problem, ASSAY_SELECT_ROWS) >= 0;
    if (all)
        memset(taken, 1, (size_t)rows);
    double left = b->options->work;
    int64_t heaviest = 0;
    for (int64_t t = 1; !all && t < rows; t++)
        if (row_work(made, t) > row_work(made, heaviest))
            heaviest = t;
    uint64_t seed = next_seed(b);
    for (int64_t i = 0; !all && rows > 0 && i < rows + 3; i++) {
        int64_t t = i == 0   ? heaviest
                    : i == 1 ? 0
                    : i == 2 ? rows - 1
                             : as_value_below(seed, (uint64_t)i, rows);
        double cost = row_work(made, t);
        if (taken[t] || (i > 2 && cost > left))
            continue;
        taken[t] = 1;
        left -= cost;
    }
    for (int64_t t = 0; t < rows; t++)
        if (taken[t])
            made->sample[made->samples++] = (int32_t)t;
    free(taken);
    return 0;
}

int as_case_make(struct as_case *made, const struct assay_problem *problem,
                 const struct as_case_options *options, struct as_error *error)
{
    *made = (struct as_case){.problem = *problem, .anomalies = options->anomalies};
    struct builder b = {.made = made, .options = options, .error = error};
    bound_sizes(&made->problem, options->work);
    for (int32_t i = 0; i < problem->nodes; i++) {
        const struct assay_op_info *info = assay_op(problem->node[i].op);
        made->uses_metadata |= info->uses_metadata;
        made->uses_cache |= info->uses_cache;
        made->writes_cache |= info->op == ASSAY_KV_WRITE;
        made->padding_unjudged |= info->op == ASSAY_ATTENTION;
    }
    int code = make_batch(&b);
    if (code == 0) {
        as_case_set_sizes(made);
        code = made->uses_cache ? make_cache(&b) : 0;
    }
    if (code == 0)
        code = add_operands(&b);
    if (code == 0)
        code = choose_sample(&b);
    if (code == 0)
        code = as_case_expect(made, error);
    made->truth = true;
    if (code != 0)
        as_case_free(made);
    return code;
}

void as_case_free(struct as_case *made)
{
    if (made == NULL)
        return;
    for (int32_t i = 0; i < made->operands; i++) {
        struct as_case_operand *operand = &made->operand[i];
        if (operand->role == AS_CASE_WEIGHT ? !made->borrows_weights : !made->borrows_inputs)
            free(operand->stored);
        free(operand->expected);
    }
    if (!made->borrows_cache) {
        free(made->cache.k);
        free(made->cache.v);
    }
    free(made->cache.new_k);
    free(made->cache.new_v);
    free(made->sample);
    as_check_batch_free(&made->batch);
    *made = (struct as_case){0};
}
