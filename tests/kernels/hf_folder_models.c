/* Hugging Face folders: the families, C18, C20, one file and several, and what is refused. */
#include "hf_image.h"

#include <math.h>

static char folder[] = "/tmp/assay-hf-XXXXXX";

static void set_up(void)
{
    cr_assert_not_null(mkdtemp(folder));
}

static void tear_down(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(hf_folder, .init = set_up, .fini = tear_down);

/* Removes what an earlier case left. */
static void clear(void)
{
    DIR *list = opendir(folder);
    cr_assert_not_null(list);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.')
            cr_assert_eq(unlink(path), 0);
    }
    closedir(list);
}

static struct as_model *inspect(void)
{
    struct as_model *model;
    struct as_error error = {0};
    cr_assert_eq(as_model_inspect(folder, &model, &error), 0, "%s", error.message);
    cr_assert_eq(error.code, 0);
    return model;
}

static void expect(int code, const char *first, const char *second)
{
    struct as_model *model;
    struct as_error error = {0};
    int found = as_model_inspect(folder, &model, &error);
    cr_assert_eq(found, code, "'%s': %d instead of %d: %s", first, found, code, error.message);
    cr_assert_null(model);
    cr_assert_eq(strncmp(error.message, "cannot read the model /tmp/assay-hf-", 36), 0, "%s",
                 error.message);
    cr_assert_not_null(strstr(error.message, first), "no '%s' in: %s", first, error.message);
    cr_assert_not_null(strstr(error.message, second), "no '%s' in: %s", second, error.message);
}

static const struct {
    const char *type, *more;
    struct family family;
    enum assay_dtype dtype;
} families[] = {
    {"llama", NULL, {.architecture = "llama"}, ASSAY_F32},
    {"llama", "{\"architectures\":[\"LlamaForCausalLM\"]}", {.tied = true}, ASSAY_BF16},
    {"mistral", NULL, {.tied = false}, ASSAY_F16},
    {"mistral", "{\"sliding_window\":4096}", {.tied = false}, ASSAY_BF16},
    {"qwen2",
     "{\"use_sliding_window\":false,\"sliding_window\":64}",
     {.qkv_bias = true},
     ASSAY_BF16},
    {"qwen2", NULL, {.qkv_bias = true, .tied = true}, ASSAY_F32},
    {"qwen3",
     "{\"layer_types\":[\"full_attention\",\"full_attention\"]}",
     {.qk_norm = true},
     ASSAY_BF16},
    {"qwen3", "{\"attention_bias\":false}", {.qk_norm = true, .tied = true}, ASSAY_F16},
};

static void check_matrix(const struct as_tensor *tensor, enum assay_dtype dtype)
{
    size_t count = tensor->rows * tensor->columns;
    float *values = malloc(count * sizeof *values);
    cr_assert_eq(tensor->dtype, dtype, "%s", tensor->name);
    cr_assert_eq((uintptr_t)tensor->data % (dtype == ASSAY_F32 ? 4 : 2), 0);
    as_dequantize(dtype, tensor->data, values, count);
    for (size_t i = 0; i < count; i++)
        cr_assert_eq(values[i], family_value(tensor->name, i), "%s [%zu]", tensor->name, i);
    free(values);
}

static void check_family(const struct as_model *model, const struct family *family,
                         enum assay_dtype dtype)
{
    if (dtype == ASSAY_F32)
        family_check_model(family, model);
    check_matrix(model->token_embd, dtype);
    check_matrix(model->output, dtype);
    cr_assert_eq(model->config.tied_output, family->tied);
    cr_assert_eq(model->output == model->token_embd, family->tied);
    family_check(model->output_norm, 1, F_HIDDEN);
    for (size_t i = 0; i < F_LAYERS; i++) {
        const struct as_model_layer *layer = &model->layers[i];
        check_matrix(layer->attn_q, dtype);
        check_matrix(layer->attn_k, dtype);
        check_matrix(layer->attn_v, dtype);
        check_matrix(layer->attn_output, dtype);
        check_matrix(layer->ffn_gate, dtype);
        check_matrix(layer->ffn_up, dtype);
        check_matrix(layer->ffn_down, dtype);
        family_check(layer->attn_norm, 1, F_HIDDEN);
        family_check(layer->ffn_norm, 1, F_HIDDEN);
        if (family->qkv_bias)
            family_check(layer->attn_k_bias, 1, F_KV * F_HEAD);
        if (family->qk_norm)
            family_check(layer->attn_k_norm, 1, F_HEAD);
        cr_assert_eq(layer->attn_q_bias != NULL, family->qkv_bias);
        cr_assert_eq(layer->attn_q_norm != NULL, family->qk_norm);
    }
}

Test(hf_folder, families)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        struct hf_tensors tensors = {.count = 0};
        clear();
        hf_add_family(&tensors, &families[i].family, families[i].dtype);
        hf_write_single(&tensors, folder);
        hf_write_config(folder, families[i].type, families[i].family.tied, families[i].more);
        struct as_model *model = inspect();
        cr_assert_str_eq(model->family, families[i].type);
        cr_assert_str_eq(model->format, "safetensors");
        cr_assert_str_eq(model->path, folder);
        cr_assert_str_eq(model->name, strrchr(folder, '/') + 1);
        cr_assert_str_eq(model->folder.path, folder);
        cr_assert_eq(model->config.rope_pairing, ASSAY_ROPE_HALVES);
        cr_assert_eq(model->config.context, 4096);
        cr_assert_eq(model->config.rope_base, 1e6f);
        cr_assert_eq(model->config.rms_epsilon, 1e-6f);
        cr_assert(model->config.rope_divisors == NULL && model->config.rope_magnitude == 1.0f);
        cr_assert_null(model->note);
        cr_assert_eq(model->unused_count, 0);
        check_family(model, &families[i].family, families[i].dtype);
        const struct as_tensor *q = as_model_tensor(model, "blk.1.attn_q.weight");
        cr_assert_eq(q, model->layers[1].attn_q);
        cr_assert_str_eq(q->stored_name, "model.layers.1.self_attn.q_proj.weight");
        if (!families[i].family.qkv_bias && !families[i].family.qk_norm)
            cr_assert_eq(as_model_check_served(model, NULL), 0);
        walk_model(model);
        as_model_close(model);
        hf_free(&tensors);
    }
}

/* A base model's file: names without the prefix "model.". */
Test(hf_folder, names_without_prefix)
{
    const struct family family = {.architecture = "llama", .tied = true};
    struct hf_tensors tensors = {.count = 0};
    hf_add_family(&tensors, &family, ASSAY_F32);
    for (size_t i = 0; i < tensors.count; i++)
        memmove(tensors.list[i].name, tensors.list[i].name + 6, sizeof tensors.list[i].name - 6);
    hf_write_single(&tensors, folder);
    hf_write_config(folder, "llama", true, "{\"architectures\":[\"LlamaModel\"]}");
    struct as_model *model = inspect();
    family_check_model(&family, model);
    cr_assert_str_eq(model->token_embd->stored_name, "embed_tokens.weight");
    as_model_close(model);
    hf_add_values(&tensors, "model.norm.weight", "output_norm.weight", ASSAY_F32, 0, F_HIDDEN);
    hf_write_single(&tensors, folder);
    expect(AS_ERR_DATA, "norm.weight and", "are the same part (output_norm.weight)");
    hf_free(&tensors);
}

/* ---- C18 ---------------------------------------------------------------------------------- */

Test(hf_folder, c18_tied_and_untied)
{
    static const struct {
        bool tied, head;
        const char *more;
        int code;
        bool uses_embeddings, noted;
    } cases[] = {
        {true, false, NULL, 0, true, false},
        {false, true, NULL, 0, false, false},
        {false, false, NULL, AS_ERR_DATA, false, false},
        {true, true, NULL, 0, true, true},
        {false, true, "{\"tie_word_embeddings\":\"(absent)\"}", 0, false, false},
        {false, false, "{\"tie_word_embeddings\":\"(absent)\"}", AS_ERR_DATA, false, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct family family = {.architecture = "llama", .tied = !cases[i].head};
        struct hf_tensors tensors = {.count = 0};
        clear();
        hf_add_family(&tensors, &family, ASSAY_F32);
        hf_write_single(&tensors, folder);
        hf_write_config(folder, "llama", cases[i].tied, cases[i].more);
        hf_free(&tensors);
        if (cases[i].code != 0) {
            expect(cases[i].code, "lm_head.weight is missing", "tie_word_embeddings");
            continue;
        }
        struct as_model *model = inspect();
        cr_assert_eq(model->config.tied_output, cases[i].uses_embeddings);
        cr_assert_eq(model->output == model->token_embd, cases[i].uses_embeddings);
        cr_assert_eq(model->note != NULL, cases[i].noted);
        cr_assert_eq(model->unused_count, cases[i].noted);
        if (cases[i].noted)
            cr_assert_not_null(strstr(model->note, "lm_head.weight is not used"));
        as_model_close(model);
    }
}

/* ---- C20 and RoPE ------------------------------------------------------------------------- */

static void write_rope(const char *type, uint32_t head_dim, const char *more)
{
    struct hf_tensors tensors = {.count = 0};
    struct as_text text = {0};
    char name[128], shape[64];
    static const float zeros[256 * 1024];
    static const char *const parts[] = {"input_layernorm", "post_attention_layernorm"};
    static const char *const squares[] = {
        "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
        "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};
    clear();
    snprintf(shape, sizeof shape, "%u,%u", head_dim, head_dim);
    for (size_t i = 0; i < 7; i++) {
        snprintf(name, sizeof name, "model.layers.0.%s.weight", squares[i]);
        hf_add(&tensors, name, "F32", shape, zeros, (size_t)head_dim * head_dim * 4);
    }
    hf_add(&tensors, "model.embed_tokens.weight", "F32", shape, zeros,
           (size_t)head_dim * head_dim * 4);
    snprintf(shape, sizeof shape, "%u", head_dim);
    for (size_t i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "model.layers.0.%s.weight", parts[i]);
        hf_add(&tensors, name, "F32", shape, zeros, head_dim * 4u);
    }
    hf_add(&tensors, "model.norm.weight", "F32", shape, zeros, head_dim * 4u);
    for (size_t i = 0; i < 3 && strcmp(type, "qwen2") == 0; i++) {
        snprintf(name, sizeof name, "model.layers.0.%s.bias", squares[i]);
        hf_add(&tensors, name, "F32", shape, zeros, head_dim * 4u);
    }
    for (size_t i = 0; i < 2 && strcmp(type, "qwen3") == 0; i++) {
        snprintf(name, sizeof name, "model.layers.0.self_attn.%c_norm.weight", "qk"[i]);
        hf_add(&tensors, name, "F32", shape, zeros, head_dim * 4u);
    }
    hf_write_single(&tensors, folder);
    hf_free(&tensors);
    as_text_addf(&text,
                 "{\"model_type\":\"%s\",\"num_hidden_layers\":1,\"hidden_size\":%u,"
                 "\"num_attention_heads\":1,\"num_key_value_heads\":1,\"head_dim\":%u,"
                 "\"intermediate_size\":%u,\"vocab_size\":%u,\"tie_word_embeddings\":true%s%s}",
                 type, head_dim, head_dim, head_dim, head_dim, more[0] != '\0' ? "," : "", more);
    hf_write_text(folder, "config.json", text.data);
    as_text_free(&text);
}

static bool near(double value, double wanted, double relative)
{
    return fabs(value - wanted) <= relative * fabs(wanted);
}

Test(hf_folder, c20_llama3)
{
    static const char *const spellings[] = {
        "\"rope_theta\":500000.0,\"max_position_embeddings\":131072,\"rope_scaling\":{"
        "\"factor\":%s,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
        "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"}",
        "\"rope_theta\":500000,\"max_position_embeddings\":131072,\"rope_scaling\":{"
        "\"type\":\"llama3\",\"factor\":%s,\"low_freq_factor\":1,\"high_freq_factor\":4,"
        "\"original_max_position_embeddings\":8192}",
        "\"max_position_embeddings\":131072,\"rope_parameters\":{\"rope_theta\":500000.0,"
        "\"factor\":%s,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
        "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"}"};
    for (size_t i = 0; i < 6; i++) {
        char more[512];
        snprintf(more, sizeof more, spellings[i / 2], i % 2 == 0 ? "32.0" : "8.0");
        write_rope("llama", i % 2 == 0 ? 64 : 128, more);
        struct as_model *model = inspect();
        const float *d = model->config.rope_divisors;
        cr_assert(model->config.rope_scaling == AS_ROPE_SCALING_LLAMA3 && d != NULL);
        cr_assert_eq(model->config.rope_base, 500000.0f);
        cr_assert_eq(model->config.rope_magnitude, 1.0f);
        cr_assert_eq(model->config.rope_factor, i % 2 == 0 ? 32.0f : 8.0f);
        if (i % 2 == 0) {
            for (int pair = 0; pair < 32; pair++)
                cr_assert(pair == 15   ? near(d[pair], 1.65132925, 4e-8)
                          : pair == 16 ? near(d[pair], 3.2922621, 4e-8)
                          : pair == 17 ? near(d[pair], 9.66672898, 4e-8)
                                       : d[pair] == (pair < 15 ? 1.0f : 32.0f),
                          "pair %d: %.9g", pair, (double)d[pair]);
        } else {
            for (int pair = 0; pair < 64; pair++)
                cr_assert(pair == 29   ? near(d[pair], 1.20748387, 4e-8)
                          : pair == 30 ? near(d[pair], 1.55341463, 4e-8)
                          : pair == 34 ? near(d[pair], 5.25732659, 4e-8)
                          : pair < 29  ? d[pair] == 1.0f
                          : pair >= 35 ? d[pair] == 8.0f
                                       : d[pair] > 1.0f && d[pair] < 8.0f,
                          "pair %d: %.9g", pair, (double)d[pair]);
        }
        as_model_close(model);
    }
}

/* Every scaling that is served against transformers (tests/golden/families). */
Test(hf_folder, rope_as_transformers)
{
    json_error_t failure;
    size_t index, pair;
    json_t *golden =
        json_load_file(ASSAY_SOURCE_DIR "/tests/golden/families/rope.json", 0, &failure);
    json_t *entry, *value;
    cr_assert_not_null(golden, "%s", failure.text);
    json_array_foreach(json_object_get(golden, "cases"), index, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));
        char *scaling = json_dumps(json_object_get(entry, "scaling"), 0), more[512];
        double magnitude = json_number_value(json_object_get(entry, "magnitude"));
        json_t *divisors = json_object_get(entry, "divisors");
        snprintf(more, sizeof more,
                 "\"max_position_embeddings\":%lld,\"rope_theta\":%.1f,\"rope_scaling\":%s",
                 (long long)json_integer_value(json_object_get(entry, "context")),
                 json_number_value(json_object_get(entry, "theta")), scaling);
        write_rope(json_string_value(json_object_get(entry, "family")),
                   (uint32_t)json_integer_value(json_object_get(entry, "head_dim")), more);
        struct as_model *model = inspect();
        const struct as_model_config *c = &model->config;
        cr_assert_eq(json_array_size(divisors), c->rope_dims / 2);
        cr_assert(near(c->rope_magnitude, magnitude, 1e-6), "%s: %.9g, want %.9g", name,
                  (double)c->rope_magnitude, magnitude);
        json_array_foreach(divisors, pair, value)
        {
            double found = c->rope_divisors != NULL ? (double)c->rope_divisors[pair] : 1.0;
            cr_assert(near(found, json_number_value(value), 1e-6), "%s, pair %zu: %.9g, want %.9g",
                      name, pair, found, json_number_value(value));
        }
        as_model_close(model);
        free(scaling);
    }
    json_decref(golden);
}

Test(hf_folder, rope_refused)
{
    static const struct {
        const char *more;
        int code;
        const char *first, *second;
    } cases[] = {
        {"\"rope_scaling\":{\"rope_type\":\"dynamic\",\"factor\":2.0}", AS_ERR_UNSUPPORTED,
         "config.json: rope_scaling", "'dynamic'"},
        {"\"rope_scaling\":{\"type\":\"longrope\",\"short_factor\":[1.0],\"long_factor\":[1.0]}",
         AS_ERR_UNSUPPORTED, "config.json: rope_scaling", "'longrope'"},
        {"\"rope_scaling\":{\"type\":\"su\",\"factor\":2.0}", AS_ERR_UNSUPPORTED, "'su'",
         "served: default, linear, llama3, yarn"},
        {"\"rope_scaling\":{\"type\":\"mrope\",\"mrope_section\":[1,2]}", AS_ERR_UNSUPPORTED,
         "'mrope'", "served"},
        {"\"rope_scaling\":{\"type\":\"linear\"}", AS_ERR_DATA, "rope_scaling: key factor",
         "missing"},
        {"\"rope_scaling\":{\"type\":\"linear\",\"factor\":\"4\"}", AS_ERR_DATA,
         "rope_scaling: key factor", "a string, must be a number"},
        {"\"rope_scaling\":{\"type\":\"linear\",\"factor\":0}", AS_ERR_DATA,
         "rope_scaling: key factor", "it is 0"},
        {"\"rope_scaling\":{\"type\":7,\"factor\":2}", AS_ERR_DATA, "rope_scaling: key type",
         "an integer, must be a string"},
        {"\"rope_scaling\":\"linear\"", AS_ERR_DATA, "key rope_scaling",
         "a string, must be an object"},
        {"\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0}",
         AS_ERR_DATA, "high_freq_factor", "missing"},
        {"\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":4.0,"
         "\"high_freq_factor\":4.0}",
         AS_ERR_DATA, "'llama3'", "below the high one"},
        {"\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,\"beta_fast\":1,\"beta_slow\":2}",
         AS_ERR_DATA, "'yarn'", "at most beta_fast"},
        {"\"rope_theta\":1,\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0}", AS_ERR_DATA,
         "'yarn'", "the base over 1"},
        {"\"rope_theta\":0", AS_ERR_DATA, "rope_theta", "from 1"},
        {"\"partial_rotary_factor\":0.5", AS_ERR_UNSUPPORTED, "partial_rotary_factor", "0.5"},
        {"\"rope_parameters\":{\"rope_type\":\"default\",\"partial_rotary_factor\":0.25}",
         AS_ERR_UNSUPPORTED, "partial_rotary_factor", "0.25"},
        {"\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"default\"}}", AS_ERR_UNSUPPORTED,
         "rope_parameters", "'full_attention'"},
        {"\"rope_scaling\":null", 0, "", ""},
        {"\"rope_scaling\":{\"rope_type\":\"default\",\"factor\":9.0}", 0, "", ""},
        {"\"rope_scaling\":{}", 0, "", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_rope("llama", 16, cases[i].more);
        if (cases[i].code != 0) {
            expect(cases[i].code, cases[i].first, cases[i].second);
            continue;
        }
        struct as_model *model = inspect();
        cr_assert(model->config.rope_divisors == NULL &&
                  model->config.rope_scaling == AS_ROPE_SCALING_NONE);
        as_model_close(model);
    }
}

/* Short prompts would look fine, so a model that needs it must not be opened for running. */
Test(hf_folder, scaled_rope_is_not_run_unserved)
{
    struct as_model *model;
    struct as_error error = {0};
    write_rope("llama", 16, "\"rope_scaling\":{\"type\":\"linear\",\"factor\":4.0}");
    model = inspect();
    int served = as_model_check_served(model, &error);
    as_model_close(model);
    as_error_clear(&error);
    int code = as_model_open(folder, &model, &error);
    cr_assert_eq(code, served);
    if (code != 0)
        cr_assert_not_null(
            strstr(error.message, "RoPE scaling of type 'linear' by 4 is not served"), "%s",
            error.message);
    as_model_close(model);
}
