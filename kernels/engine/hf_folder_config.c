/* config.json and generation_config.json of the families that share Llama's architecture. Meanings
 * and defaults: transformers, models/<family>/configuration_<family>.py and
 * modeling_rope_utils.py (versions 4 and 5 spell RoPE's settings differently). */
#include "hf_folder.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "as_memory.h"

/* What a family's configuration class has for keys that the file leaves out; 0: heads, or hidden /
 * heads. */
static const struct family {
    const char *name, *model;
    uint32_t kv_heads, head_dim, context, window;
} families[] = {
    {"llama", "Llama", 0, 0, 2048, 0},
    {"mistral", "Mistral", 8, 0, 131072, 4096},
    {"qwen2", "Qwen2", 32, 0, 32768, 4096},
    {"qwen3", "Qwen3", 32, 128, 32768, 4096},
};

#define FAMILY_COUNT (sizeof families / sizeof families[0])

struct reader {
    const json_t *object;
    const char *place; /* "config.json", "config.json: rope_scaling" */
    struct as_error *error;
};

/* ---- members ------------------------------------------------------------------------------ */

/* Fails with "<file>: key <key>: <message>". */
static int refuse(const struct reader *r, int code, const char *key, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static int refuse(const struct reader *r, int code, const char *key, const char *format, ...)
{
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return as_fail(r->error, code, "%s: key %s: %s", r->place, key, message);
}

/* The member, NULL where it is absent or null. */
static const json_t *member(const struct reader *r, const char *key)
{
    const json_t *value = json_object_get(r->object, key);
    return json_is_null(value) ? NULL : value;
}

static const char *kind_of(const json_t *value)
{
    static const char *const kinds[] = {"an object", "an array", "a string", "an integer",
                                        "a number",  "true",     "false",    "null"};
    return kinds[json_typeof(value)];
}

static int refuse_kind(const struct reader *r, const char *key, const json_t *value,
                       const char *wanted)
{
    return refuse(r, AS_ERR_DATA, key, "it is %s, must be %s", kind_of(value), wanted);
}

static int refuse_missing(const struct reader *r, const char *key)
{
    return refuse(r, AS_ERR_DATA, key, "it is missing; fetch or convert the model again");
}

/* Keeps *value where the key is absent or null and not required. */
static int read_u32(const struct reader *r, const char *key, bool required, uint32_t least,
                    uint32_t most, uint32_t *value)
{
    const json_t *found = member(r, key);
    if (found == NULL)
        return required ? refuse_missing(r, key) : 0;
    if (!json_is_integer(found))
        return refuse_kind(r, key, found, "an integer");
    json_int_t number = json_integer_value(found);
    if (number < (json_int_t)least || number > (json_int_t)most)
        return refuse(r, AS_ERR_DATA, key, "it is %lld, must be from %u to %u", (long long)number,
                      least, most);
    *value = (uint32_t)number;
    return 0;
}

static int read_number(const struct reader *r, const char *key, bool required, double least,
                       double most, double *value)
{
    const json_t *found = member(r, key);
    if (found == NULL)
        return required ? refuse_missing(r, key) : 0;
    if (!json_is_number(found))
        return refuse_kind(r, key, found, "a number");
    double number = json_number_value(found);
    if (!(number >= least && number <= most))
        return refuse(r, AS_ERR_DATA, key, "it is %g, must be from %g to %g", number, least, most);
    *value = number;
    return 0;
}

static int read_bool(const struct reader *r, const char *key, bool *value)
{
    const json_t *found = member(r, key);
    if (found == NULL)
        return 0;
    if (!json_is_boolean(found))
        return refuse_kind(r, key, found, "true or false");
    *value = json_is_true(found);
    return 0;
}

/* The text lives as long as the object; NULL where it is absent. */
static int read_text(const struct reader *r, const char *key, const char **text)
{
    const json_t *found = member(r, key);
    *text = NULL;
    if (found == NULL)
        return 0;
    if (!json_is_string(found))
        return refuse_kind(r, key, found, "a string");
    *text = json_string_value(found);
    return 0;
}

/* ---- sizes -------------------------------------------------------------------------------- */

static int read_family(const struct reader *r, const struct family **family)
{
    const char *type;
    int code = read_text(r, "model_type", &type);
    if (code != 0)
        return code;
    if (type == NULL)
        return refuse_missing(r, "model_type");
    for (size_t i = 0; i < FAMILY_COUNT; i++)
        if (strcmp(families[i].name, type) == 0) {
            *family = &families[i];
            return 0;
        }
    return refuse(r, AS_ERR_UNSUPPORTED, "model_type",
                  "'%.40s' is not served yet; served: llama, mistral, qwen2, qwen3", type);
}

/* The ranges are those of GGUF's keys (model_llama.c). */
static int read_sizes(const struct reader *r, const struct family *family,
                      struct as_model_config *config)
{
    const struct {
        const char *key;
        bool required;
        uint32_t least, most;
        uint32_t *value;
    } sizes[] = {
        {"num_hidden_layers", true, 1, 4096, &config->layers},
        {"hidden_size", true, 1, 1 << 20, &config->hidden},
        {"num_attention_heads", true, 1, 4096, &config->heads},
        {"num_key_value_heads", false, 1, 4096, &config->kv_heads},
        {"head_dim", false, 1, 1 << 16, &config->head_dim},
        {"intermediate_size", true, 1, 1 << 24, &config->ffn},
        {"max_position_embeddings", false, 1, INT32_MAX, &config->context},
        {"vocab_size", true, 1, (uint32_t)AS_MODEL_PIECE_LIMIT, &config->vocab},
    };
    bool stated = json_object_get(r->object, "num_key_value_heads") != NULL;
    config->kv_heads = stated ? 0 : family->kv_heads;
    config->head_dim = family->head_dim;
    config->context = family->context;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        int code = read_u32(r, sizes[i].key, sizes[i].required, sizes[i].least, sizes[i].most,
                            sizes[i].value);
        if (code != 0)
            return code;
    }
    if (config->kv_heads == 0)
        config->kv_heads = config->heads;
    if (config->heads % config->kv_heads != 0)
        return refuse(r, AS_ERR_DATA, "num_attention_heads",
                      "it is %u, not a multiple of num_key_value_heads %u", config->heads,
                      config->kv_heads);
    if (config->head_dim == 0 && config->hidden % config->heads != 0)
        return refuse(r, AS_ERR_DATA, "hidden_size",
                      "it is %u, not a multiple of num_attention_heads %u, and head_dim is missing",
                      config->hidden, config->heads);
    if (config->head_dim == 0)
        config->head_dim = config->hidden / config->heads;
    if (config->head_dim % 2 != 0)
        return refuse(r, AS_ERR_DATA, "head_dim", "a head of %u dimensions has no pairs for RoPE",
                      config->head_dim);
    double epsilon = 1e-6;
    int code = read_number(r, "rms_norm_eps", false, 0.0, 1.0, &epsilon);
    config->rms_epsilon = (float)epsilon;
    config->rope_dims = config->head_dim;
    config->rope_pairing = ASSAY_ROPE_HALVES;
    return code;
}

/* ---- RoPE --------------------------------------------------------------------------------- */

/* yarn's own settings. mscale and mscale_all_dim give the magnitude where both are there. */
static int read_yarn(const struct reader *r, struct as_rope_rule *rule)
{
    double mscale = 0.0, mscale_all = 0.0, fast = 0.0, slow = 0.0;
    int code = read_number(r, "attention_factor", false, 1e-6, 1e6, &rule->magnitude);
    if (code == 0)
        code = read_number(r, "beta_fast", false, 0.0, 1e9, &fast);
    if (code == 0)
        code = read_number(r, "beta_slow", false, 0.0, 1e9, &slow);
    if (code == 0)
        code = read_number(r, "mscale", false, 0.0, 1e6, &mscale);
    if (code == 0)
        code = read_number(r, "mscale_all_dim", false, 0.0, 1e6, &mscale_all);
    if (code == 0)
        code = read_bool(r, "truncate", &rule->truncate);
    rule->beta_fast = fast != 0.0 ? fast : rule->beta_fast;
    rule->beta_slow = slow != 0.0 ? slow : rule->beta_slow;
    if (rule->magnitude == 0.0 && mscale != 0.0 && mscale_all != 0.0 && rule->factor > 1.0)
        rule->magnitude =
            (0.1 * mscale * log(rule->factor) + 1.0) / (0.1 * mscale_all * log(rule->factor) + 1.0);
    return code;
}

/* The object `rope_scaling` or `rope_parameters`. */
static int read_scaling(const struct reader *r, const struct reader *root, double context,
                        struct as_rope_rule *rule)
{
    const char *type, *older;
    bool yarn, llama3;
    int code = read_text(r, "type", &older);
    if (code == 0)
        code = read_text(r, "rope_type", &type);
    if (code != 0)
        return code;
    type = type != NULL ? type : older != NULL ? older : "default";
    if (strcmp(type, "default") == 0)
        return 0;
    yarn = strcmp(type, "yarn") == 0;
    llama3 = strcmp(type, "llama3") == 0;
    if (!yarn && !llama3 && strcmp(type, "linear") != 0)
        return as_fail(r->error, AS_ERR_UNSUPPORTED,
                       "%s: RoPE scaling of type '%.40s' is not served; served: default, linear, "
                       "llama3, yarn",
                       r->place, type);
    rule->scaling = yarn     ? AS_ROPE_SCALING_YARN
                    : llama3 ? AS_ROPE_SCALING_LLAMA3
                             : AS_ROPE_SCALING_LINEAR;
    rule->original_context = context;
    rule->factor = 0.0;
    if ((code = read_number(r, "original_max_position_embeddings", false, 1.0, 1e12,
                            &rule->original_context)) != 0 ||
        (code = read_number(root, "original_max_position_embeddings", false, 1.0, 1e12,
                            &rule->original_context)) != 0 ||
        (code = read_number(r, "factor", !yarn, 1e-6, 1e9, &rule->factor)) != 0)
        return code;
    if (rule->factor == 0.0)
        rule->factor = context / rule->original_context;
    if (llama3 &&
        ((code = read_number(r, "low_freq_factor", true, 1e-6, 1e9, &rule->low_frequency)) != 0 ||
         (code = read_number(r, "high_freq_factor", true, 1e-6, 1e9, &rule->high_frequency)) != 0))
        return code;
    return yarn ? read_yarn(r, rule) : 0;
}

static int read_rope(const struct reader *root, struct as_model_config *config,
                     struct as_rope_rule *rule)
{
    const char *key = member(root, "rope_parameters") != NULL ? "rope_parameters" : "rope_scaling";
    const json_t *object = member(root, key), *value;
    const char *name;
    char place[64];
    double base = 10000.0, partial = 1.0;
    *rule = as_rope_rule();
    snprintf(place, sizeof place, "%s: %s", root->place, key);
    const struct reader r = {object, place, root->error};
    if (object != NULL && !json_is_object(object))
        return refuse_kind(root, key, object, "an object");
    json_object_foreach((json_t *)(uintptr_t)object, name, value)
    {
        if (json_is_object(value))
            return refuse(root, AS_ERR_UNSUPPORTED, key,
                          "settings that differ by kind of layer ('%.40s') are not served", name);
    }
    int code = read_number(root, "rope_theta", false, 1.0, 1e12, &base);
    if (code == 0)
        code = read_number(root, "partial_rotary_factor", false, 0.0, 1.0, &partial);
    if (code == 0 && object != NULL)
        code = read_number(&r, "rope_theta", false, 1.0, 1e12, &base);
    if (code == 0 && object != NULL)
        code = read_number(&r, "partial_rotary_factor", false, 0.0, 1.0, &partial);
    if (code == 0 && partial != 1.0)
        return refuse(root, AS_ERR_UNSUPPORTED, "partial_rotary_factor",
                      "RoPE over a part of a head (%g) is not served", partial);
    config->rope_base = (float)base;
    if (code == 0 && object != NULL)
        code = read_scaling(&r, root, config->context, rule);
    return code;
}

/* ---- what is refused ---------------------------------------------------------------------- */

static int check_architecture(const struct reader *r, const struct family *family)
{
    const json_t *list = member(r, "architectures");
    char causal[32], base[32];
    snprintf(causal, sizeof causal, "%sForCausalLM", family->model);
    snprintf(base, sizeof base, "%sModel", family->model);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name == NULL || (strcmp(name, causal) != 0 && strcmp(name, base) != 0))
            return refuse(r, AS_ERR_UNSUPPORTED, "architectures",
                          "'%.60s' is not served; served: %s", name != NULL ? name : "?", causal);
    }
    return 0;
}

static int check_window(const struct reader *r, const struct family *family, uint32_t context)
{
    const json_t *layers = member(r, "layer_types");
    bool stated = json_object_get(r->object, "sliding_window") != NULL;
    bool used = strcmp(family->name, "mistral") == 0;
    uint32_t window = stated ? 0 : family->window;
    int code =
        strncmp(family->name, "qwen", 4) == 0 ? read_bool(r, "use_sliding_window", &used) : 0;
    if (code == 0)
        code = read_u32(r, "sliding_window", false, 0, UINT32_MAX, &window);
    if (code != 0)
        return code;
    if (used && window > 0 && window < context)
        return refuse(r, AS_ERR_UNSUPPORTED, "sliding_window",
                      "attention over a sliding window of %u positions is not served%s", window,
                      stated ? "" : " (the family's default where the key is missing)");
    for (size_t i = 0; i < json_array_size(layers); i++) {
        const char *kind = json_string_value(json_array_get(layers, i));
        if (kind == NULL || strcmp(kind, "full_attention") != 0)
            return refuse(r, AS_ERR_UNSUPPORTED, "layer_types",
                          "layers of kind '%.40s' are not served", kind != NULL ? kind : "?");
    }
    return 0;
}

/* Settings whose neglect would change the results. */
static int check_features(const struct reader *r, const struct family *family, uint32_t context)
{
    const json_t *quantised = member(r, "quantization_config");
    const char *activation, *method;
    bool mlp_bias = false;
    int code = check_architecture(r, family);
    if (code == 0 && quantised != NULL) {
        method = json_string_value(json_object_get(quantised, "quant_method"));
        return refuse(r, AS_ERR_UNSUPPORTED, "quantization_config",
                      "weights quantised by '%.40s' are not served", method != NULL ? method : "?");
    }
    if (code == 0)
        code = read_text(r, "hidden_act", &activation);
    if (code == 0)
        code = read_bool(r, "mlp_bias", &mlp_bias);
    if (code != 0)
        return code;
    if (activation != NULL && strcmp(activation, "silu") != 0 && strcmp(activation, "swish") != 0)
        return refuse(r, AS_ERR_UNSUPPORTED, "hidden_act",
                      "the activation '%.40s' is not served; served: silu", activation);
    if (mlp_bias)
        return refuse(r, AS_ERR_UNSUPPORTED, "mlp_bias",
                      "biases of the feed-forward part are not served");
    return check_window(r, family, context);
}

/* ---- special ids -------------------------------------------------------------------------- */

/* Appends the ids of an integer or an array of them. Below 0 means none, as some files write it. */
static int read_ends(const struct reader *r, struct as_model_vocabulary *vocabulary, uint32_t vocab)
{
    static const char key[] = "eos_token_id";
    const json_t *found = member(r, key);
    size_t count = json_is_array(found) ? json_array_size(found) : found != NULL;
    for (size_t i = 0; i < count; i++) {
        const json_t *item = json_is_array(found) ? json_array_get(found, i) : found;
        if (!json_is_integer(item))
            return refuse_kind(r, key, item, "an integer or an array of integers");
        json_int_t id = json_integer_value(item);
        bool known = id < 0;
        if (id >= (json_int_t)vocab)
            return refuse(r, AS_ERR_DATA, key, "it is %lld, outside the vocabulary of %u tokens",
                          (long long)id, vocab);
        for (size_t j = 0; j < vocabulary->end_count; j++)
            known = known || vocabulary->ends[j] == (int32_t)id;
        if (known)
            continue;
        if (vocabulary->end_count == AS_MODEL_ENDS)
            return refuse(r, AS_ERR_UNSUPPORTED, key, "more than %d ids end a text", AS_MODEL_ENDS);
        vocabulary->ends[vocabulary->end_count++] = (int32_t)id;
    }
    return 0;
}

/* Of several ids, or of one outside the vocabulary (padding that was never added), none. */
static int32_t id_of(const struct reader *r, const char *key, uint32_t vocab)
{
    const json_t *found = member(r, key);
    json_int_t id = json_is_integer(found) ? json_integer_value(found) : -1;
    return id >= 0 && id < (json_int_t)vocab ? (int32_t)id : -1;
}

static int read_ids(const struct reader *config, const json_t *generation, struct as_model *model)
{
    struct as_model_vocabulary *vocabulary = &model->vocabulary;
    uint32_t vocab = model->config.vocab;
    const struct reader more = {generation, "generation_config.json", config->error};
    int code = generation != NULL ? read_ends(&more, vocabulary, vocab) : 0;
    if (code == 0)
        code = read_ends(config, vocabulary, vocab);
    vocabulary->model = "tokenizer.json";
    vocabulary->bos = id_of(config, "bos_token_id", vocab);
    vocabulary->pad = id_of(config, "pad_token_id", vocab);
    vocabulary->unknown = -1;
    vocabulary->eos = vocabulary->end_count > 0 ? vocabulary->ends[0] : -1;
    vocabulary->eot = vocabulary->end_count > 1 ? vocabulary->ends[1] : -1;
    return code;
}

/* ---- together ----------------------------------------------------------------------------- */

static int read_parts(const struct reader *r, const struct family *family,
                      struct as_hf_settings *settings)
{
    bool bias = strcmp(family->name, "qwen2") == 0;
    bool may_state = strcmp(family->name, "llama") == 0 || strcmp(family->name, "qwen3") == 0;
    int code = may_state ? read_bool(r, "attention_bias", &bias) : 0;
    settings->parts.qkv_bias = bias ? AS_PART_REQUIRED : AS_PART_ABSENT;
    settings->parts.qk_norm =
        strcmp(family->name, "qwen3") == 0 ? AS_PART_REQUIRED : AS_PART_ABSENT;
    settings->tied = false; /* all four classes' default */
    return code != 0 ? code : read_bool(r, "tie_word_embeddings", &settings->tied);
}

int as_hf_read_config(struct as_model_storage *storage, struct as_hf_settings *settings,
                      struct as_error *error)
{
    struct as_model *model = storage->model;
    const struct reader r = {storage->folder->config, "config.json", error};
    const struct family *family = NULL;
    int code = read_family(&r, &family);
    if (code != 0)
        return code;
    model->family = family->name;
    if ((code = read_sizes(&r, family, &model->config)) != 0 ||
        (code = check_features(&r, family, model->config.context)) != 0 ||
        (code = read_rope(&r, &model->config, &settings->rope)) != 0 ||
        (code = read_parts(&r, family, settings)) != 0)
        return code;
    return read_ids(&r, storage->folder->generation, model);
}

static struct as_metadata describe(const char *key, const json_t *value)
{
    struct as_metadata item = {.key = {key, strlen(key)}};
    switch (json_typeof(value)) {
    case JSON_STRING:
        item.kind = AS_METADATA_STRING;
        item.type = "string";
        item.value.text = (struct as_bytes){json_string_value(value), json_string_length(value)};
        break;
    case JSON_INTEGER:
        item.kind = AS_METADATA_SIGNED;
        item.type = "integer";
        item.value.i = json_integer_value(value);
        break;
    case JSON_REAL:
        item.kind = AS_METADATA_FLOAT;
        item.type = "number";
        item.value.f = json_real_value(value);
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        item.kind = AS_METADATA_BOOL;
        item.type = "bool";
        item.value.u = json_is_true(value);
        break;
    default:
        item.kind = AS_METADATA_ARRAY;
        item.type = json_is_array(value) ? "array" : json_is_object(value) ? "object" : "null";
        item.value.count = json_is_array(value) ? json_array_size(value) : json_object_size(value);
        break;
    }
    return item;
}

int as_hf_list_metadata(struct as_model_storage *storage, struct as_error *error)
{
    json_t *config = storage->folder->config, *value;
    const char *key;
    size_t count = 0;
    storage->metadata =
        as_calloc(error, json_object_size(config), sizeof *storage->metadata, "the metadata");
    if (storage->metadata == NULL)
        return AS_ERR_MEMORY;
    json_object_foreach(config, key, value)
    {
        storage->metadata[count++] = describe(key, value);
    }
    storage->model->metadata = storage->metadata;
    storage->model->metadata_count = count;
    return 0;
}
