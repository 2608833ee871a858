/* Configuration of the architectures `llama`, `qwen2` and `qwen3` from GGUF metadata, refusing what
 * would be computed wrongly. Names and meanings of keys: gguf.md, "Standardized key-value pairs",
 * and llama.cpp's llama-arch.cpp where that page is silent. */
#include "model_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEY_SIZE 96

/* "<architecture>.<name>" */
static const char *key_of(const struct as_model_storage *storage, const char *name,
                          char key[KEY_SIZE])
{
    snprintf(key, KEY_SIZE, "%.16s.%s", storage->family, name);
    return key;
}

static const struct as_gguf_entry *entry_of(const struct as_model_storage *storage,
                                            const char *name)
{
    char key[KEY_SIZE];
    return as_gguf_find(&storage->gguf, key_of(storage, name, key));
}

static int read_u32(const struct as_model_storage *storage, const char *name, bool required,
                    uint32_t least, uint32_t most, uint32_t *value, struct as_error *error)
{
    char key[KEY_SIZE];
    return as_model_key_u32(&storage->gguf, key_of(storage, name, key), required, least, most,
                            value, error);
}

static int read_float(const struct as_model_storage *storage, const char *name, bool required,
                      double least, double most, float *value, struct as_error *error)
{
    char key[KEY_SIZE];
    return as_model_key_float(&storage->gguf, key_of(storage, name, key), required, least, most,
                              value, error);
}

/* Keys that are read, each with its range. Ranges are far above published models; they keep
 * products of two in 64 bits. */
static int read_sizes(const struct as_model_storage *storage, struct as_model_config *config,
                      struct as_error *error)
{
    const struct {
        const char *name;
        bool required;
        uint32_t least, most;
        uint32_t *value;
    } sizes[] = {
        {"block_count", true, 1, 4096, &config->layers},
        {"embedding_length", true, 1, 1 << 20, &config->hidden},
        {"attention.head_count", true, 1, 4096, &config->heads},
        {"attention.head_count_kv", false, 1, 4096, &config->kv_heads},
        {"attention.key_length", false, 1, 1 << 16, &config->head_dim},
        {"feed_forward_length", true, 1, 1 << 24, &config->ffn},
        {"context_length", true, 1, INT32_MAX, &config->context},
        {"rope.dimension_count", false, 2, 1 << 16, &config->rope_dims},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int code = read_u32(storage, sizes[i].name, sizes[i].required, sizes[i].least,
                            sizes[i].most, sizes[i].value, error);
        if (code != 0)
            return code;
    }
    int code = read_float(storage, "attention.layer_norm_rms_epsilon", true, 0.0, 1.0,
                          &config->rms_epsilon, error);
    config->rope_base = 10000.0f;
    if (code == 0)
        code = read_float(storage, "rope.freq_base", false, 1.0, 1e12, &config->rope_base, error);
    return code;
}

static int check_heads(const struct as_model_storage *storage, struct as_model_config *config,
                       struct as_error *error)
{
    const char *family = storage->family;
    if (config->kv_heads == 0)
        config->kv_heads = config->heads;
    if (config->heads % config->kv_heads != 0)
        return as_fail(error, AS_ERR_DATA,
                       "metadata: %s.attention.head_count %u is not a multiple of "
                       "%s.attention.head_count_kv %u",
                       family, config->heads, family, config->kv_heads);
    if (config->head_dim == 0 && config->hidden % config->heads != 0)
        return as_fail(error, AS_ERR_DATA,
                       "metadata: %s.embedding_length %u is not a multiple of "
                       "%s.attention.head_count %u, and %s.attention.key_length is missing",
                       family, config->hidden, family, config->heads, family);
    if (config->head_dim == 0)
        config->head_dim = config->hidden / config->heads;
    uint32_t value_length = config->head_dim;
    int code = read_u32(storage, "attention.value_length", false, 1, 1 << 16, &value_length, error);
    if (code != 0)
        return code;
    if (value_length != config->head_dim)
        return as_fail(error, AS_ERR_UNSUPPORTED,
                       "metadata: %s.attention.value_length %u differs from the length of keys, "
                       "%u; such models are not served",
                       family, value_length, config->head_dim);
    if (config->rope_dims == 0)
        config->rope_dims = config->head_dim;
    if (config->rope_dims > config->head_dim || config->rope_dims % 2 != 0)
        return as_fail(error, AS_ERR_DATA,
                       "metadata: %s.rope.dimension_count is %u, must be even and at most the "
                       "head's %u dimensions",
                       family, config->rope_dims, config->head_dim);
    return 0;
}

/* ---- RoPE scaling ------------------------------------------------------------------------- */

static int read_scaling_type(const struct as_model_storage *storage, struct as_rope_rule *rule,
                             bool *stated, struct as_error *error)
{
    char key[KEY_SIZE], *type = NULL;
    key_of(storage, "rope.scaling.type", key);
    int code = as_model_key_text(&storage->gguf, key, false, &type, error);
    *stated = type != NULL;
    rule->scaling = AS_ROPE_SCALING_LINEAR; /* llama.cpp: a missing type is linear */
    if (type != NULL && strcmp(type, "none") == 0)
        rule->scaling = AS_ROPE_SCALING_NONE;
    else if (type != NULL && strcmp(type, "yarn") == 0)
        rule->scaling = AS_ROPE_SCALING_YARN;
    else if (code == 0 && type != NULL && strcmp(type, "linear") != 0)
        code = as_model_refuse_key(as_gguf_find(&storage->gguf, key), AS_ERR_UNSUPPORTED, error,
                                   "RoPE scaling of type '%.40s' is not served; served: none, "
                                   "linear, yarn, and llama3 by rope_freqs.weight",
                                   type);
    free(type);
    return code;
}

/* What yarn reads beside the factor; other settings of it must have no effect. */
static int read_yarn(const struct as_model_storage *storage, struct as_rope_rule *rule,
                     struct as_error *error)
{
    float magnitude = 1.0f, fast = (float)rule->beta_fast, slow = (float)rule->beta_slow;
    uint32_t context = storage->model->config.context;
    int code = read_float(storage, "rope.scaling.attn_factor", false, 1e-6, 1e6, &magnitude, error);
    if (code == 0)
        code = read_float(storage, "rope.scaling.yarn_beta_fast", false, 0.0, 1e9, &fast, error);
    if (code == 0)
        code = read_float(storage, "rope.scaling.yarn_beta_slow", false, 0.0, 1e9, &slow, error);
    if (code == 0)
        code = read_u32(storage, "rope.scaling.original_context_length", false, 0, INT32_MAX,
                        &context, error);
    rule->more_magnitude = (double)magnitude;
    rule->beta_fast = (double)fast;
    rule->beta_slow = (double)slow;
    rule->original_context = context != 0 ? context : storage->model->config.context;
    static const struct {
        const char *name;
        float neutral;
    } neutral[] = {{"rope.scaling.yarn_ext_factor", 1.0f},
                   {"rope.scaling.yarn_attn_factor", 1.0f},
                   {"rope.scaling.yarn_log_multiplier", 0.0f}};
    for (size_t i = 0; i < sizeof neutral / sizeof neutral[0] && code == 0; i++) {
        float value = neutral[i].neutral;
        code = read_float(storage, neutral[i].name, false, -1e9, 1e9, &value, error);
        if (code == 0 && value != neutral[i].neutral)
            code = as_model_refuse_key(entry_of(storage, neutral[i].name), AS_ERR_UNSUPPORTED,
                                       error, "the value %g is not served; served: %g",
                                       (double)value, (double)neutral[i].neutral);
    }
    return code;
}

/* llama.cpp reads a missing factor as the older scale_linear, and 0 as 1. */
static int read_scaling(const struct as_model_storage *storage, struct as_rope_rule *rule,
                        struct as_error *error)
{
    bool stated;
    float factor = 0.0f;
    *rule = as_rope_rule();
    int code = read_scaling_type(storage, rule, &stated, error);
    if (code != 0 || rule->scaling == AS_ROPE_SCALING_NONE)
        return code;
    code = read_float(storage, "rope.scaling.factor", false, 0.0, 1e9, &factor, error);
    if (code == 0 && entry_of(storage, "rope.scaling.factor") == NULL)
        code = read_float(storage, "rope.scale_linear", false, 0.0, 1e9, &factor, error);
    rule->factor = factor != 0.0f ? (double)factor : 1.0;
    if (code == 0 && rule->scaling == AS_ROPE_SCALING_YARN)
        return read_yarn(storage, rule, error);
    if (rule->factor == 1.0) /* so that rope_freqs.weight alone is llama3 */
        rule->scaling = AS_ROPE_SCALING_NONE;
    return code;
}

static int scale_rope(struct as_model_storage *storage, struct as_error *error)
{
    struct as_rope_rule rule;
    const struct as_tensor *freqs;
    int code = read_scaling(storage, &rule, error);
    if (code == 0)
        code = as_model_bind_rope_freqs(storage, &freqs, error);
    if (code == 0)
        code = as_model_scale_rope(storage, &rule, freqs != NULL ? freqs->data : NULL, error);
    return code;
}

/* ---- what is refused ---------------------------------------------------------------------- */

/* Settings whose neglect would change the results. */
static int check_features(const struct as_model_storage *storage, struct as_error *error)
{
    const struct as_gguf *gguf = &storage->gguf;
    uint32_t experts = 0, parts = 1, window = 0;
    bool causal = true;
    char key[KEY_SIZE];
    int code = as_model_key_bool(gguf, key_of(storage, "attention.causal", key), &causal, error);
    if (code == 0)
        code = read_u32(storage, "expert_count", false, 0, UINT32_MAX, &experts, error);
    if (code == 0)
        code = as_model_key_u32(gguf, "split.count", false, 0, 65535, &parts, error);
    if (code == 0)
        code = read_u32(storage, "attention.sliding_window", false, 0, UINT32_MAX, &window, error);
    if (code != 0)
        return code;
    if (experts > 0)
        return as_model_refuse_key(entry_of(storage, "expert_count"), AS_ERR_UNSUPPORTED, error,
                                   "a mixture of %u experts is not served", experts);
    if (parts > 1)
        return as_model_refuse_key(as_gguf_find(gguf, "split.count"), AS_ERR_UNSUPPORTED, error,
                                   "the model is split into %u files; merge them first "
                                   "(llama-gguf-split --merge)",
                                   parts);
    if (window > 0 && window < storage->model->config.context)
        return as_model_refuse_key(
            entry_of(storage, "attention.sliding_window"), AS_ERR_UNSUPPORTED, error,
            "attention over a sliding window of %u positions is not served", window);
    if (!causal)
        return as_model_refuse_key(entry_of(storage, "attention.causal"), AS_ERR_UNSUPPORTED, error,
                                   "attention to later positions is not served");
    if (entry_of(storage, "attention.scale") != NULL)
        return as_model_refuse_key(entry_of(storage, "attention.scale"), AS_ERR_UNSUPPORTED, error,
                                   "an attention scale other than 1/sqrt(head size) is not "
                                   "served");
    return 0;
}

int as_model_read_llama(struct as_model_storage *storage, struct as_error *error)
{
    struct as_model *model = storage->model;
    struct as_model_config *config = &model->config;
    struct as_model_parts parts = {0}; /* all optional */
    int code = read_sizes(storage, config, error);
    if (code == 0)
        code = check_heads(storage, config, error);
    if (code == 0)
        code = check_features(storage, error);
    if (code != 0)
        return code;
    config->vocab = (uint32_t)model->vocabulary.count;
    /* llama.cpp's llama_model_rope_type(): its converter permutes the rows of q and k for `llama`
     * and leaves those of the others as Hugging Face has them. */
    config->rope_pairing = ASSAY_ROPE_ADJACENT;
    if (strcmp(model->family, "llama") != 0)
        config->rope_pairing = ASSAY_ROPE_HALVES;
    /* In the architecture `llama` these norms mean nothing to llama.cpp, so they are refused. */
    parts.qk_norm = strcmp(model->family, "qwen3") == 0 ? AS_PART_REQUIRED : AS_PART_ABSENT;
    if (strcmp(model->family, "qwen2") == 0)
        parts.qkv_bias = AS_PART_REQUIRED;
    if ((code = scale_rope(storage, error)) != 0)
        return code;
    return as_model_bind_tensors(storage, &parts, error);
}
