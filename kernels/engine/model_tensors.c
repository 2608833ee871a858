/* The tensors of the `llama` architecture and its variants: found, checked, made ready. */
#include "model_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "as_memory.h"
#include "quantize.h"

/* The parts that a file of this architecture may carry and whose neglect would change the
 * results, by how their names end. */
static int check_unserved(const struct as_model *model, struct as_error *error)
{
    static const struct {
        const char *suffix, *meaning;
    } unserved[] = {
        {".bias", "biases are"},
        {"rope_freqs.weight", "RoPE scaling (type llama3) is"},
        {"rope_factors_long.weight", "RoPE scaling (type longrope) is"},
        {"rope_factors_short.weight", "RoPE scaling (type longrope) is"},
        {"attn_q_norm.weight", "norms of queries are"},
        {"attn_k_norm.weight", "norms of keys are"},
        {"attn_qkv.weight", "q, k and v in one matrix are"},
        {"attn_sub_norm.weight", "sub-norms are"},
        {"ffn_sub_norm.weight", "sub-norms are"},
        {"ffn_gate_inp.weight", "mixtures of experts are"},
        {"_exps.weight", "mixtures of experts are"},
        {".scale", "scales of whole tensors are"},
    };
    for (size_t i = 0; i < model->tensor_count; i++) {
        const char *name = model->tensors[i].name;
        size_t length = strlen(name);
        for (size_t j = 0; j < sizeof unserved / sizeof unserved[0]; j++) {
            size_t suffix = strlen(unserved[j].suffix);
            if (!model->tensors[i].used && length >= suffix &&
                strcmp(name + length - suffix, unserved[j].suffix) == 0)
                return as_fail(error, AS_ERR_UNSUPPORTED, "tensor %.200s: %s not served yet",
                               model->tensors[i].stored_name, unserved[j].meaning);
        }
    }
    return 0;
}

/* ---- one tensor ---------------------------------------------------------------------------- */

static int refuse_shape(const struct as_tensor *tensor, size_t rows, size_t columns,
                        struct as_error *error)
{
    return as_fail(error, AS_ERR_DATA,
                   "tensor %s: expected %zu row%s of %zu elements by the metadata, found %zu of "
                   "%zu; the file is damaged or of another architecture",
                   tensor->stored_name, rows, rows == 1 ? "" : "s", columns, tensor->rows,
                   tensor->columns);
}

static int refuse_missing(const struct as_model_storage *storage, const char *name, size_t rows,
                          size_t columns, struct as_error *error)
{
    char stored[128];
    snprintf(stored, sizeof stored, "%s", name);
    if (storage->stored_name != NULL)
        storage->stored_name(name, stored, sizeof stored);
    return as_fail(error, AS_ERR_DATA,
                   "tensor %s: expected %zu row%s of %zu elements by the metadata, but it is "
                   "missing (the file has %zu tensors); fetch or convert the model again",
                   stored, rows, rows == 1 ? "" : "s", columns, storage->model->tensor_count);
}

static int refuse_type(const struct as_model_storage *storage, const struct as_tensor *tensor,
                       struct as_error *error)
{
    char served[128] = "F32, F16, BF16";
    if (storage->folder == NULL)
        as_gguf_served(served, sizeof served);
    return as_fail(error, AS_ERR_UNSUPPORTED, "type %s of tensor %s is not served yet; served: %s",
                   tensor->type, tensor->stored_name, served);
}

/* Replaces the tensor's data by an aligned copy of dtype `to`, F32 or its own. */
static int copy_data(struct as_model_storage *storage, struct as_tensor *tensor,
                     enum assay_dtype to, struct as_error *error)
{
    size_t count = tensor->rows * tensor->columns;
    size_t bytes = to == tensor->dtype ? tensor->bytes : count * sizeof(float);
    if (bytes > AS_MODEL_COPY_LIMIT - storage->copy_bytes)
        return as_fail(error, AS_ERR_UNSUPPORTED,
                       "tensor %s: it must be copied since %s, but such copies may take %zu bytes "
                       "in all; save the file again with a current safetensors",
                       tensor->stored_name,
                       to == tensor->dtype ? "its data is not aligned to its elements"
                                           : "vectors are computed with as F32",
                       AS_MODEL_COPY_LIMIT);
    int code = as_grow(error, &storage->copies, &storage->copy_capacity, storage->copy_count,
                       sizeof *storage->copies, "copies of tensors");
    if (code != 0)
        return code;
    void *copy = as_calloc_aligned(error, bytes, 1, tensor->name);
    if (copy == NULL)
        return AS_ERR_MEMORY;
    storage->copies[storage->copy_count++] = copy;
    storage->copy_bytes += bytes;
    if (to == tensor->dtype) {
        memcpy(copy, tensor->data, bytes);
    } else {
        const uint8_t *stored = tensor->data;
        float *values = copy;
        for (size_t i = 0; i < count; i++) { /* the halves need not be aligned */
            uint16_t half;
            memcpy(&half, stored + 2 * i, sizeof half);
            values[i] = tensor->dtype == ASSAY_F16 ? as_f16_decode(half) : as_bf16_decode(half);
        }
    }
    tensor->data = copy;
    tensor->dtype = to;
    tensor->bytes = bytes;
    return 0;
}

static int ready_data(struct as_model_storage *storage, struct as_tensor *tensor, bool vector,
                      struct as_error *error)
{
    size_t alignment = tensor->dtype == ASSAY_F32 ? 4 : 2;
    if (vector && tensor->dtype != ASSAY_F32 && tensor->dtype != ASSAY_F16 &&
        tensor->dtype != ASSAY_BF16)
        return as_fail(error, AS_ERR_UNSUPPORTED,
                       "type %s of tensor %s is not served: %s must be F32, F16 or BF16",
                       tensor->type, tensor->stored_name,
                       strstr(tensor->name, "norm") != NULL ? "norm weights" : "vectors");
    if (vector && tensor->dtype != ASSAY_F32)
        return copy_data(storage, tensor, ASSAY_F32, error);
    if ((uintptr_t)tensor->data % alignment != 0)
        return copy_data(storage, tensor, tensor->dtype, error);
    return 0;
}

/* Finds a tensor of exactly this shape and of a served type; rows 0 = a vector, which becomes F32.
 * An optional one that is absent leaves *found NULL. */
static int bind(struct as_model_storage *storage, const char *name, bool required, size_t rows,
                size_t columns, const struct as_tensor **found, struct as_error *error)
{
    bool vector = rows == 0;
    rows += vector;
    const struct as_tensor *known = as_model_tensor(storage->model, name);
    *found = known;
    if (known == NULL)
        return required ? refuse_missing(storage, name, rows, columns, error) : 0;
    struct as_tensor *tensor = &storage->tensors[known - storage->tensors];
    if (tensor->rows != rows || tensor->columns != columns || tensor->dimensions > 2)
        return refuse_shape(tensor, rows, columns, error);
    if (!as_dequantize_serves(tensor->dtype))
        return refuse_type(storage, tensor, error);
    tensor->used = true;
    return ready_data(storage, tensor, vector, error);
}

/* ---- layers -------------------------------------------------------------------------------- */

struct layer_part {
    const char *name; /* with its ".weight" or ".bias" */
    size_t rows, columns;
    const struct as_tensor **tensor;
};

static int bind_parts(struct as_model_storage *storage, uint32_t index, bool required,
                      const struct layer_part *parts, size_t count, struct as_error *error)
{
    for (size_t i = 0; i < count; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.%s", index, parts[i].name);
        int code =
            bind(storage, name, required, parts[i].rows, parts[i].columns, parts[i].tensor, error);
        if (code != 0)
            return code;
    }
    return 0;
}

static int bind_layer(struct as_model_storage *storage, uint32_t index, struct as_error *error)
{
    const struct as_model_config *config = &storage->model->config;
    struct as_model_layer *layer = &storage->layers[index];
    size_t hidden = config->hidden, ffn = config->ffn, head = config->head_dim;
    size_t q = config->heads * head, kv = config->kv_heads * head;
    const struct layer_part plain[] = {
        {"attn_norm.weight", 0, hidden, &layer->attn_norm},
        {"attn_q.weight", q, hidden, &layer->attn_q},
        {"attn_k.weight", kv, hidden, &layer->attn_k},
        {"attn_v.weight", kv, hidden, &layer->attn_v},
        {"attn_output.weight", hidden, q, &layer->attn_output},
        {"ffn_norm.weight", 0, hidden, &layer->ffn_norm},
        {"ffn_gate.weight", ffn, hidden, &layer->ffn_gate},
        {"ffn_up.weight", ffn, hidden, &layer->ffn_up},
        {"ffn_down.weight", hidden, ffn, &layer->ffn_down},
    };
    const struct layer_part biases[] = {
        {"attn_q.bias", 0, q, &layer->attn_q_bias},
        {"attn_k.bias", 0, kv, &layer->attn_k_bias},
        {"attn_v.bias", 0, kv, &layer->attn_v_bias},
    };
    const struct layer_part norms[] = {
        {"attn_q_norm.weight", 0, head, &layer->attn_q_norm},
        {"attn_k_norm.weight", 0, head, &layer->attn_k_norm},
    };
    int code = bind_parts(storage, index, true, plain, sizeof plain / sizeof plain[0], error);
    if (code == 0 && config->qkv_bias)
        code = bind_parts(storage, index, true, biases, 3, error);
    if (code == 0 && config->qk_norm)
        code = bind_parts(storage, index, true, norms, 2, error);
    return code;
}

/* An optional part that the first layer has is required of every layer. */
static bool has_part(const struct as_model *model, int presence, const char *const *names)
{
    bool any = presence == AS_PART_REQUIRED;
    for (; presence == AS_PART_OPTIONAL && *names != NULL; names++)
        any = any || as_model_tensor(model, *names) != NULL;
    return any;
}

static int bind_output(struct as_model_storage *storage, int presence, struct as_error *error)
{
    struct as_model *model = storage->model;
    struct as_model_config *config = &model->config;
    int code = 0;
    if (presence != AS_PART_ABSENT)
        code = bind(storage, "output.weight", presence == AS_PART_REQUIRED, config->vocab,
                    config->hidden, &model->output, error);
    config->tied_output = model->output == NULL;
    if (config->tied_output)
        model->output = model->token_embd;
    return code;
}

int as_model_bind_tensors(struct as_model_storage *storage, const struct as_model_parts *parts,
                          struct as_error *error)
{
    static const char *const biases[] = {"blk.0.attn_q.bias", "blk.0.attn_k.bias",
                                         "blk.0.attn_v.bias", NULL};
    static const char *const norms[] = {"blk.0.attn_q_norm.weight", "blk.0.attn_k_norm.weight",
                                        NULL};
    struct as_model *model = storage->model;
    struct as_model_config *config = &model->config;
    config->qkv_bias = has_part(model, parts->qkv_bias, biases);
    config->qk_norm = has_part(model, parts->qk_norm, norms);
    int code = bind(storage, "token_embd.weight", true, config->vocab, config->hidden,
                    &model->token_embd, error);
    if (code != 0)
        return code;
    storage->layers = as_calloc(error, config->layers, sizeof *storage->layers, "the layers");
    if (storage->layers == NULL)
        return AS_ERR_MEMORY;
    model->layers = storage->layers;
    for (uint32_t i = 0; i < config->layers; i++)
        if ((code = bind_layer(storage, i, error)) != 0)
            return code;
    code = bind(storage, "output_norm.weight", true, 0, config->hidden, &model->output_norm, error);
    if (code == 0)
        code = bind_output(storage, parts->output, error);
    return code != 0 ? code : check_unserved(model, error);
}

int as_model_bind_rope_freqs(struct as_model_storage *storage, const struct as_tensor **found,
                             struct as_error *error)
{
    return bind(storage, "rope_freqs.weight", false, 0, storage->model->config.rope_dims / 2, found,
                error);
}
