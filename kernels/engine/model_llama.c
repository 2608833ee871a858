/* The `llama` architecture: configuration, tensors, and refusing what would be computed wrongly.
 * Names and meanings of keys and tensors: gguf.md, "Standardized key-value pairs". */
#include "model_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "as_memory.h"

/* Keys that are read, each with its range. Ranges are far above published models; they keep
 * products of two in 64 bits. */
static int read_sizes(const struct as_gguf *gguf, struct as_model_config *config,
                      struct as_error *error)
{
    const struct {
        const char *key;
        bool required;
        uint32_t least, most;
        uint32_t *value;
    } sizes[] = {
        {"llama.block_count", true, 1, 4096, &config->layers},
        {"llama.embedding_length", true, 1, 1 << 20, &config->hidden},
        {"llama.attention.head_count", true, 1, 4096, &config->heads},
        {"llama.attention.head_count_kv", false, 1, 4096, &config->kv_heads},
        {"llama.attention.key_length", false, 1, 1 << 16, &config->head_dim},
        {"llama.feed_forward_length", true, 1, 1 << 24, &config->ffn},
        {"llama.context_length", true, 1, INT32_MAX, &config->context},
        {"llama.rope.dimension_count", false, 2, 1 << 16, &config->rope_dims},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int code = as_model_key_u32(gguf, sizes[i].key, sizes[i].required, sizes[i].least,
                                    sizes[i].most, sizes[i].value, error);
        if (code != 0)
            return code;
    }
    int code = as_model_key_float(gguf, "llama.attention.layer_norm_rms_epsilon", true, 0.0, 1.0,
                                  &config->rms_epsilon, error);
    config->rope_base = 10000.0f;
    if (code == 0)
        code = as_model_key_float(gguf, "llama.rope.freq_base", false, 1.0, 1e12,
                                  &config->rope_base, error);
    return code;
}

static int check_heads(const struct as_gguf *gguf, struct as_model_config *config,
                       struct as_error *error)
{
    if (config->kv_heads == 0)
        config->kv_heads = config->heads;
    if (config->heads % config->kv_heads != 0)
        return as_fail(error, AS_ERR_DATA,
                       "metadata: llama.attention.head_count %u is not a multiple of "
                       "llama.attention.head_count_kv %u",
                       config->heads, config->kv_heads);
    if (config->head_dim == 0 && config->hidden % config->heads != 0)
        return as_fail(error, AS_ERR_DATA,
                       "metadata: llama.embedding_length %u is not a multiple of "
                       "llama.attention.head_count %u, and llama.attention.key_length is missing",
                       config->hidden, config->heads);
    if (config->head_dim == 0)
        config->head_dim = config->hidden / config->heads;
    uint32_t value_length = config->head_dim;
    int code = as_model_key_u32(gguf, "llama.attention.value_length", false, 1, 1 << 16,
                                &value_length, error);
    if (code != 0)
        return code;
    if (value_length != config->head_dim)
        return as_fail(error, AS_ERR_UNSUPPORTED,
                       "metadata: llama.attention.value_length %u differs from the length of keys, "
                       "%u; such models are not served",
                       value_length, config->head_dim);
    if (config->rope_dims == 0)
        config->rope_dims = config->head_dim;
    if (config->rope_dims > config->head_dim || config->rope_dims % 2 != 0)
        return as_fail(error, AS_ERR_DATA,
                       "metadata: llama.rope.dimension_count is %u, must be even and at most the "
                       "head's %u dimensions",
                       config->rope_dims, config->head_dim);
    return 0;
}

/* Refuses position scaling of any kind by its name. llama.cpp reads a missing type as linear and
 * a missing factor as 1, which scales nothing. */
static int check_rope_scaling(const struct as_gguf *gguf, struct as_error *error)
{
    static const char *const factors[] = {"llama.rope.scaling.factor", "llama.rope.scale_linear"};
    char *type = NULL;
    int code = as_model_key_text(gguf, "llama.rope.scaling.type", false, &type, error);
    bool none = type != NULL && strcmp(type, "none") == 0;
    if (code == 0 && type != NULL && !none && strcmp(type, "linear") != 0)
        code = as_model_refuse_key(
            as_gguf_find(gguf, "llama.rope.scaling.type"), AS_ERR_UNSUPPORTED, error,
            "RoPE scaling of type '%.40s' is not served; served: none", type);
    for (size_t i = 0; i < 2 && code == 0 && !none; i++) {
        float factor = 1.0f;
        code = as_model_key_float(gguf, factors[i], false, 0.0, 1e9, &factor, error);
        if (code == 0 && factor != 0.0f && factor != 1.0f)
            code = as_model_refuse_key(as_gguf_find(gguf, factors[i]), AS_ERR_UNSUPPORTED, error,
                                       "RoPE scaling of type 'linear' by %g is not served; "
                                       "served: none",
                                       (double)factor);
    }
    free(type);
    return code;
}

/* Settings whose neglect would change the results. */
static int check_features(const struct as_gguf *gguf, const struct as_model_config *config,
                          struct as_error *error)
{
    uint32_t experts = 0, parts = 1, window = 0;
    int code = as_model_key_u32(gguf, "llama.expert_count", false, 0, UINT32_MAX, &experts, error);
    if (code == 0)
        code = as_model_key_u32(gguf, "split.count", false, 0, 65535, &parts, error);
    if (code == 0)
        code = as_model_key_u32(gguf, "llama.attention.sliding_window", false, 0, UINT32_MAX,
                                &window, error);
    if (code != 0)
        return code;
    if (experts > 0)
        return as_model_refuse_key(as_gguf_find(gguf, "llama.expert_count"), AS_ERR_UNSUPPORTED,
                                   error, "a mixture of %u experts is not served", experts);
    if (parts > 1)
        return as_model_refuse_key(as_gguf_find(gguf, "split.count"), AS_ERR_UNSUPPORTED, error,
                                   "the model is split into %u files; merge them first "
                                   "(llama-gguf-split --merge)",
                                   parts);
    if (window > 0 && window < config->context)
        return as_model_refuse_key(
            as_gguf_find(gguf, "llama.attention.sliding_window"), AS_ERR_UNSUPPORTED, error,
            "attention over a sliding window of %u positions is not served", window);
    if (as_gguf_find(gguf, "llama.attention.scale") != NULL)
        return as_model_refuse_key(as_gguf_find(gguf, "llama.attention.scale"), AS_ERR_UNSUPPORTED,
                                   error,
                                   "an attention scale other than 1/sqrt(head size) is not "
                                   "served");
    return check_rope_scaling(gguf, error);
}

/* ---- tensors ------------------------------------------------------------------------------ */

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
                return as_fail(error, AS_ERR_UNSUPPORTED, "tensor %s: %s not served yet", name,
                               unserved[j].meaning);
        }
    }
    return 0;
}

static int refuse_shape(const struct as_tensor *tensor, size_t rows, size_t columns,
                        struct as_error *error)
{
    return as_fail(error, AS_ERR_DATA,
                   "tensor %s: expected %zu row%s of %zu elements by the metadata, found %zu of "
                   "%zu; the file is damaged or of another architecture",
                   tensor->name, rows, rows == 1 ? "" : "s", columns, tensor->rows,
                   tensor->columns);
}

/* Finds a tensor of exactly this shape and of a served type; rows 0 = a vector, which must be
 * F32. An optional one that is absent leaves *found NULL. */
static int bind(struct as_model_storage *storage, const char *name, bool required, size_t rows,
                size_t columns, const struct as_tensor **found, struct as_error *error)
{
    bool vector = rows == 0;
    rows += vector;
    const struct as_tensor *tensor = as_model_tensor(storage->model, name);
    *found = tensor;
    if (tensor == NULL && !required)
        return 0;
    if (tensor == NULL)
        return as_fail(error, AS_ERR_DATA,
                       "tensor %s: expected %zu row%s of %zu elements by the metadata, but it is "
                       "missing (the file has %zu tensors); fetch or convert the model again",
                       name, rows, rows == 1 ? "" : "s", columns, storage->model->tensor_count);
    size_t index = (size_t)(tensor - storage->tensors);
    const struct as_gguf_tensor *stored = &storage->gguf.tensors[index];
    if (tensor->rows != rows || tensor->columns != columns ||
        (stored->dimensions > 1 && stored->dimension[1] != rows))
        return refuse_shape(tensor, rows, columns, error);
    if (!stored->type->served) {
        char served[128];
        as_gguf_served(served, sizeof served);
        return as_fail(error, AS_ERR_UNSUPPORTED,
                       "type %s of tensor %s is not served yet; served: %s", tensor->type, name,
                       served);
    }
    if (vector && tensor->dtype != ASSAY_F32)
        return as_fail(error, AS_ERR_UNSUPPORTED,
                       "type %s of tensor %s is not served: norm weights must be F32", tensor->type,
                       name);
    storage->tensors[index].used = true;
    return 0;
}

static int bind_layer(struct as_model_storage *storage, uint32_t index, struct as_error *error)
{
    const struct as_model_config *config = &storage->model->config;
    struct as_model_layer *layer = &storage->layers[index];
    size_t hidden = config->hidden, ffn = config->ffn;
    size_t q = (size_t)config->heads * config->head_dim;
    size_t kv = (size_t)config->kv_heads * config->head_dim;
    const struct {
        const char *name;
        size_t rows, columns;
        const struct as_tensor **tensor;
    } parts[] = {
        {"attn_norm", 0, hidden, &layer->attn_norm},     {"attn_q", q, hidden, &layer->attn_q},
        {"attn_k", kv, hidden, &layer->attn_k},          {"attn_v", kv, hidden, &layer->attn_v},
        {"attn_output", hidden, q, &layer->attn_output}, {"ffn_norm", 0, hidden, &layer->ffn_norm},
        {"ffn_gate", ffn, hidden, &layer->ffn_gate},     {"ffn_up", ffn, hidden, &layer->ffn_up},
        {"ffn_down", hidden, ffn, &layer->ffn_down},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%u.%s.weight", index, parts[i].name);
        int code =
            bind(storage, name, true, parts[i].rows, parts[i].columns, parts[i].tensor, error);
        if (code != 0)
            return code;
    }
    return 0;
}

static int bind_tensors(struct as_model_storage *storage, struct as_error *error)
{
    struct as_model *model = storage->model;
    struct as_model_config *config = &model->config;
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
    if ((code = bind(storage, "output_norm.weight", true, 0, config->hidden, &model->output_norm,
                     error)) != 0 ||
        (code = bind(storage, "output.weight", false, config->vocab, config->hidden, &model->output,
                     error)) != 0)
        return code;
    config->tied_output = model->output == NULL;
    if (config->tied_output)
        model->output = model->token_embd;
    return 0;
}

int as_model_read_llama(struct as_model_storage *storage, struct as_error *error)
{
    struct as_model *model = storage->model;
    struct as_model_config *config = &model->config;
    int code = read_sizes(&storage->gguf, config, error);
    if (code == 0)
        code = check_heads(&storage->gguf, config, error);
    if (code == 0)
        code = check_features(&storage->gguf, config, error);
    if (code != 0)
        return code;
    config->vocab = (uint32_t)model->vocabulary.count;
    config->rope_pairing = ASSAY_ROPE_ADJACENT;
    if ((code = bind_tensors(storage, error)) != 0)
        return code;
    return check_unserved(model, error);
}
