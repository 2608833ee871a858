#include "engine/program.h"

#include <math.h>
#include <string.h>

#include "as_memory.h"

struct builder {
    struct as_program *program;
    const struct as_model *model;
    const struct as_program_options *options;
    struct as_error *error;
    int32_t layer;
    int code;
};

static int32_t add_value(struct builder *b, const char *name, enum as_rows rows, int64_t columns,
                         enum assay_dtype dtype, int32_t producer)
{
    struct as_program *program = b->program;
    if (b->code != 0 ||
        (b->code = as_grow(b->error, &program->value, &program->value_capacity, program->values,
                           sizeof program->value[0], "a program's values")) != 0)
        return AS_NO_VALUE;
    program->value[program->values] = (struct as_value){
        .name = name, .rows = rows, .columns = columns, .dtype = dtype, .producer = producer};
    return (int32_t)program->values++;
}

/* Field by field into zeroed memory: problems made from shapes are hashed as bytes, so padding must
 * not carry what happened to lie on the stack. */
static void copy_shape(struct assay_shape *to, const struct assay_shape *from)
{
    memset(to, 0, sizeof *to);
    to->op = from->op;
    to->weights = from->weights;
    to->activations = from->activations;
    to->kv = from->kv;
    to->n = from->n;
    to->k = from->k;
    to->heads = from->heads;
    to->kv_heads = from->kv_heads;
    to->head_dim = from->head_dim;
    to->block_size = from->block_size;
    to->pairing = from->pairing;
    to->rotary = from->rotary;
    to->causal = from->causal;
    to->epsilon = from->epsilon;
    to->theta = from->theta;
    to->scale = from->scale;
}

/* Appends a node; its output has shape.n columns for each row of `rows`. */
static int32_t add_node(struct builder *b, const char *name, struct assay_shape shape,
                        enum as_rows rows, int32_t input0, int32_t input1,
                        const struct as_tensor *weight)
{
    struct as_program *program = b->program;
    enum assay_dtype dtype = shape.op == ASSAY_ARGMAX ? ASSAY_TOP : ASSAY_F32;
    int32_t output = add_value(b, name, rows, shape.op == ASSAY_ARGMAX ? 1 : shape.n, dtype,
                               (int32_t)program->nodes);
    if (b->code != 0 ||
        (b->code = as_grow(b->error, &program->node, &program->node_capacity, program->nodes,
                           sizeof program->node[0], "a program's nodes")) != 0)
        return AS_NO_VALUE;
    if (weight == NULL)
        shape.weights = ASSAY_NONE;
    else
        shape.weights = weight->dtype;
    struct as_node *node = &program->node[program->nodes++];
    *node = (struct as_node){.input = {input0, input1, AS_NO_VALUE, AS_NO_VALUE},
                             .effect = AS_NO_VALUE,
                             .output = output,
                             .weight = weight,
                             .layer = b->layer};
    copy_shape(&node->shape, &shape);
    int32_t inputs[] = {input0, input1};
    for (int i = 0; i < 2; i++)
        if (inputs[i] != AS_NO_VALUE)
            program->value[inputs[i]].readers++;
    return output;
}

static struct assay_shape shape_of(enum assay_op op, int64_t n)
{
    return (struct assay_shape){
        .op = op, .n = n, .activations = ASSAY_F32, .kv = ASSAY_NONE, .weights = ASSAY_NONE};
}

static int32_t add_linear(struct builder *b, const char *name, enum as_rows rows, int32_t x,
                          const struct as_tensor *weight)
{
    struct assay_shape shape = shape_of(ASSAY_LINEAR, (int64_t)weight->rows);
    shape.k = (int64_t)weight->columns;
    shape.activations = b->options->activations;
    return add_node(b, name, shape, rows, x, AS_NO_VALUE, weight);
}

static int32_t add_norm(struct builder *b, const char *name, enum as_rows rows, int32_t x,
                        const struct as_tensor *weight)
{
    struct assay_shape shape = shape_of(ASSAY_RMS_NORM, b->model->config.hidden);
    shape.epsilon = b->model->config.rms_epsilon;
    return add_node(b, name, shape, rows, x, AS_NO_VALUE, weight);
}

static struct assay_shape head_shape(struct builder *b, enum assay_op op, uint32_t heads)
{
    const struct as_model_config *config = &b->model->config;
    struct assay_shape shape = shape_of(op, (int64_t)heads * config->head_dim);
    shape.heads = (int32_t)heads;
    shape.kv_heads = (int32_t)config->kv_heads;
    shape.head_dim = (int32_t)config->head_dim;
    shape.block_size = b->options->block_size;
    return shape;
}

static int32_t add_rope(struct builder *b, const char *name, int32_t x, uint32_t heads)
{
    const struct as_model_config *config = &b->model->config;
    struct assay_shape shape = head_shape(b, ASSAY_ROPE, heads);
    shape.pairing = config->rope_pairing;
    shape.rotary = (int32_t)config->rope_dims;
    shape.theta = config->rope_base;
    return add_node(b, name, shape, AS_ROWS_TOKENS, x, AS_NO_VALUE, NULL);
}

static int32_t add_attention(struct builder *b, int32_t x, const struct as_model_layer *layer)
{
    const struct as_model_config *config = &b->model->config;
    int32_t q = add_linear(b, "q", AS_ROWS_TOKENS, x, layer->attn_q);
    int32_t k = add_linear(b, "k", AS_ROWS_TOKENS, x, layer->attn_k);
    int32_t v = add_linear(b, "v", AS_ROWS_TOKENS, x, layer->attn_v);
    q = add_rope(b, "q rotated", q, config->heads);
    k = add_rope(b, "k rotated", k, config->kv_heads);

    struct assay_shape shape = head_shape(b, ASSAY_KV_WRITE, config->kv_heads);
    shape.kv = b->options->kv;
    int32_t cache = add_node(b, "cache", shape, AS_ROWS_EFFECT, k, v, NULL);

    shape = head_shape(b, ASSAY_ATTENTION, config->heads);
    shape.kv = b->options->kv;
    shape.causal = true;
    shape.scale = 1.0f / sqrtf((float)config->head_dim);
    int32_t mixed = add_node(b, "attention", shape, AS_ROWS_TOKENS, q, AS_NO_VALUE, NULL);
    if (b->code == 0) {
        b->program->node[b->program->nodes - 1].effect = cache;
        b->program->value[cache].readers++;
    }
    return add_linear(b, "attention output", AS_ROWS_TOKENS, mixed, layer->attn_output);
}

static int32_t add_feed_forward(struct builder *b, int32_t x, const struct as_model_layer *layer)
{
    int32_t gate = add_linear(b, "gate", AS_ROWS_TOKENS, x, layer->ffn_gate);
    int32_t up = add_linear(b, "up", AS_ROWS_TOKENS, x, layer->ffn_up);
    int32_t product = add_node(b, "silu(gate) up", shape_of(ASSAY_SILU_MUL, b->model->config.ffn),
                               AS_ROWS_TOKENS, gate, up, NULL);
    return add_linear(b, "down", AS_ROWS_TOKENS, product, layer->ffn_down);
}

static void build(struct builder *b)
{
    const struct as_model *model = b->model;
    const struct as_model_config *config = &model->config;
    struct assay_shape add = shape_of(ASSAY_ADD, config->hidden);
    int32_t ids = add_value(b, "token ids", AS_ROWS_TOKENS, 1, ASSAY_I32, -1);
    b->layer = -1;
    int32_t x = add_node(b, "embedding", shape_of(ASSAY_EMBEDDING, config->hidden), AS_ROWS_TOKENS,
                         ids, AS_NO_VALUE, model->token_embd);
    for (uint32_t i = 0; b->code == 0 && i < config->layers; i++) {
        const struct as_model_layer *layer = &model->layers[i];
        b->layer = (int32_t)i;
        int32_t normed = add_norm(b, "attention norm", AS_ROWS_TOKENS, x, layer->attn_norm);
        int32_t attended = add_attention(b, normed, layer);
        x = add_node(b, "residual", add, AS_ROWS_TOKENS, x, attended, NULL);
        normed = add_norm(b, "ffn norm", AS_ROWS_TOKENS, x, layer->ffn_norm);
        int32_t fed = add_feed_forward(b, normed, layer);
        x = add_node(b, "residual", add, AS_ROWS_TOKENS, x, fed, NULL);
    }
    b->layer = -1;
    /* Only rows whose logits are wanted go through the head. */
    x = add_node(b, "selected", shape_of(ASSAY_SELECT_ROWS, config->hidden), AS_ROWS_LOGITS, x,
                 AS_NO_VALUE, NULL);
    x = add_norm(b, "output norm", AS_ROWS_LOGITS, x, model->output_norm);
    int32_t logits = add_linear(b, "logits", AS_ROWS_LOGITS, x, model->output);
    int32_t top = add_node(b, "top", shape_of(ASSAY_ARGMAX, config->vocab), AS_ROWS_LOGITS, logits,
                           AS_NO_VALUE, NULL);
    if (b->code != 0)
        return;
    b->program->logits = logits;
    b->program->top = top;
    b->program->value[logits].kept = b->options->keep_logits;
    b->program->value[top].kept = true;
}

int as_program_llama(const struct as_model *model, const struct as_program_options *options,
                     struct as_program **program, struct as_error *error)
{
    *program = as_calloc(error, 1, sizeof **program, "a program");
    if (*program == NULL)
        return AS_ERR_MEMORY;
    struct builder b = {.program = *program, .model = model, .options = options, .error = error};
    build(&b);
    if (b.code != 0) {
        as_program_free(*program);
        *program = NULL;
    }
    return b.code;
}

void as_program_free(struct as_program *program)
{
    if (program == NULL)
        return;
    free(program->node);
    free(program->value);
    free(program);
}
