/* The files of Hugging Face folders: several of weights, what is missing or contradicts, configs
 * of every wrong kind, special ids, and hostile sizes. */
#include "hf_image.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <time.h>

#include "as_memory.h"

static char folder[] = "/tmp/assay-hf-files-XXXXXX";
static const struct family plain = {.architecture = "llama"};

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

TestSuite(hf_files, .init = set_up, .fini = tear_down);

static const char *path_of(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* The plain family as F32 and its config.json. */
static void write_plain(struct hf_tensors *tensors, const char *more)
{
    *tensors = (struct hf_tensors){.count = 0};
    hf_add_family(tensors, &plain, ASSAY_F32);
    hf_write_single(tensors, folder);
    hf_write_config(folder, "llama", false, more);
}

static struct as_model *inspect(void)
{
    struct as_model *model;
    struct as_error error = {0};
    cr_assert_eq(as_model_inspect(folder, &model, &error), 0, "%s", error.message);
    return model;
}

static void expect(int code, const char *first, const char *second)
{
    struct as_model *model;
    struct as_error error = {0};
    int found = as_model_open(folder, &model, &error);
    cr_assert_eq(found, code, "'%s': %d instead of %d: %s", first, found, code, error.message);
    cr_assert_null(model);
    cr_assert_eq(strncmp(error.message, "cannot read the model /tmp/assay-hf-", 36), 0, "%s",
                 error.message);
    cr_assert_not_null(strstr(error.message, first), "no '%s' in: %s", first, error.message);
    cr_assert_not_null(strstr(error.message, second), "no '%s' in: %s", second, error.message);
}

/* ---- several files ------------------------------------------------------------------------ */

/* Two files and their index, which has `changes` to its map (NULL as a value: not there). */
static void write_shards(const struct hf_tensors *tensors, const char *changes)
{
    json_t *map = json_object();
    size_t half = tensors->count / 2;
    hf_write(tensors, 0, half, 0, path_of("model-00001-of-00002.safetensors"));
    hf_write(tensors, half, tensors->count, 0, path_of("model-00002-of-00002.safetensors"));
    for (size_t i = 0; i < tensors->count; i++)
        json_object_set_new(map, tensors->list[i].name,
                            json_string(i < half ? "model-00001-of-00002.safetensors"
                                                 : "model-00002-of-00002.safetensors"));
    json_t *changed = json_loads(changes, 0, NULL), *value;
    const char *key;
    json_object_foreach(changed, key, value)
    {
        if (json_is_null(value))
            json_object_del(map, key);
        else
            json_object_set(map, key, value);
    }
    json_t *index = json_pack("{s:{s:i}, s:o}", "metadata", "total_size", 1, "weight_map", map);
    char *text = json_dumps(index, JSON_INDENT(2));
    hf_write_text(folder, "model.safetensors.index.json", text);
    free(text);
    json_decref(index);
    json_decref(changed);
}

Test(hf_files, shards)
{
    struct hf_tensors tensors = {.count = 0};
    hf_add_family(&tensors, &plain, ASSAY_F32);
    hf_write_config(folder, "llama", false, NULL);
    write_shards(&tensors, "{}");
    struct as_model *model = inspect();
    family_check_model(&plain, model);
    cr_assert_str_eq(as_model_file(model, 0), path_of("config.json"));
    cr_assert_str_eq(as_model_file(model, 1), path_of("model.safetensors.index.json"));
    cr_assert_str_eq(strrchr(as_model_file(model, 2), '/'), "/model-00001-of-00002.safetensors");
    cr_assert_str_eq(strrchr(as_model_file(model, 3), '/'), "/model-00002-of-00002.safetensors");
    cr_assert_null(as_model_file(model, 4));
    struct stat info;
    size_t bytes = 0;
    for (size_t i = 2; i < 4; i++) {
        cr_assert_eq(stat(as_model_file(model, i), &info), 0);
        bytes += (size_t)info.st_size;
    }
    cr_assert_eq(model->file_bytes, bytes);
    as_model_close(model);
    hf_free(&tensors);
}

Test(hf_files, shards_that_disagree)
{
    static const struct {
        const char *changes, *first, *second;
    } cases[] = {
        {"{\"model.norm.weight\":null}", "tensor model.norm.weight lies in model-0000",
         "does not say so"},
        {"{\"model.norm.weight\":\"model-00001-of-00002.safetensors\"}",
         "tensor model.norm.weight lies in model-00002-of-00002.safetensors", "does not say so"},
        {"{\"model.extra.weight\":\"model-00001-of-00002.safetensors\"}",
         "tensor model.extra.weight does not lie in model-00001-of-00002.safetensors",
         "incomplete"},
        {"{\"model.extra.weight\":\"model-00003-of-00002.safetensors\"}", "cannot open",
         "model-00003-of-00002.safetensors"},
        {"{\"model.norm.weight\":\"../x.safetensors\"}", "'../x.safetensors'",
         "not the name of a safetensors file"},
        {"{\"model.norm.weight\":\"/etc/passwd\"}", "'/etc/passwd'", "not the name"},
        {"{\"model.norm.weight\":\"a/b.safetensors\"}", "'a/b.safetensors'", "not the name"},
        {"{\"model.norm.weight\":\"pytorch_model.bin\"}", "'pytorch_model.bin'", "not the name"},
        {"{\"model.norm.weight\":\"\"}", "''", "not the name"},
        {"{\"model.norm.weight\":5}", "model.safetensors.index.json: byte", "expected a string"},
    };
    struct hf_tensors tensors = {.count = 0};
    hf_add_family(&tensors, &plain, ASSAY_F32);
    hf_write_config(folder, "llama", false, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_shards(&tensors, cases[i].changes);
        expect(strcmp(cases[i].first, "cannot open") == 0 ? AS_ERR_IO : AS_ERR_DATA, cases[i].first,
               cases[i].second);
    }
    static const struct {
        const char *text, *found;
    } indexes[] = {
        {"", "expected '{'"},
        {"[]", "expected '{'"},
        {"{}", "weight_map is missing or empty"},
        {"{\"weight_map\":{}}", "weight_map is missing or empty"},
        {"{\"weight_map\":{\"a\":\"x.safetensors\"},\"weight_map\":{}}", "comes twice"},
        {"{\"weight_map\":{\"a\":\"x.safetensors\",\"\\u0061\":\"x.safetensors\"}}",
         "tensor a comes twice"},
        {"{\"weight_map\":{\"a\":\"x.safetensors\"}", "expected"},
        {"{\"weight_map\":{\"a\":\"x.safetensors\"}} x", "nothing more"},
    };
    for (size_t i = 0; i < sizeof indexes / sizeof indexes[0]; i++) {
        hf_write_text(folder, "model.safetensors.index.json", indexes[i].text);
        expect(AS_ERR_DATA, "model.safetensors.index.json: ", indexes[i].found);
    }
    hf_free(&tensors);
}

/* ---- what lies in the folder --------------------------------------------------------------- */

Test(hf_files, not_a_model)
{
    expect(AS_ERR_DATA, "no config.json", "no Hugging Face model");
    hf_write_text(folder, "model.Q4_1.gguf", "GGUF");
    expect(AS_ERR_DATA, "it has the file model.Q4_1.gguf", "give that file's path");
    hf_write_config(folder, "llama", false, NULL);
    expect(AS_ERR_DATA, "neither model.safetensors nor model.safetensors.index.json", "folder");
    hf_write_text(folder, "pytorch_model.bin", "PK");
    expect(AS_ERR_DATA, "it has pytorch_model.bin", "convert");
    hf_write_text(folder, "model.safetensors", "");
    expect(AS_ERR_DATA, "model.safetensors: header", "the file has 0 bytes");
    hf_write_text(folder, "model.safetensors", "version https://git-lfs.github.com/spec/v1\n");
    expect(AS_ERR_DATA, "model.safetensors: header", "no safetensors file");
}

Test(hf_files, damaged_config)
{
    static const struct {
        const char *text, *first;
    } cases[] = {
        {"", "config.json: line"},
        {"{", "config.json: line 1"},
        {"[]", "it is no JSON object"},
        {"{\"model_type\":\"llama\",\n\"model_type\":\"qwen2\"}", "config.json: line 2"},
        {"{\"model_type\":\"\xff\"}", "config.json: line 1"},
        {"{\"model_type\":NaN}", "config.json: line 1"},
    };
    struct hf_tensors tensors;
    write_plain(&tensors, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        hf_write_text(folder, "config.json", cases[i].text);
        expect(AS_ERR_DATA, cases[i].first, "config.json");
    }
    hf_free(&tensors);
}

Test(hf_files, config_refused)
{
    static const struct {
        const char *more;
        int code;
        const char *first, *second;
    } cases[] = {
        {"{\"model_type\":\"(absent)\"}", AS_ERR_DATA, "key model_type", "missing"},
        {"{\"model_type\":5}", AS_ERR_DATA, "key model_type", "an integer, must be a string"},
        {"{\"model_type\":\"mixtral\"}", AS_ERR_UNSUPPORTED, "'mixtral'",
         "served: llama, mistral, qwen2, qwen3"},
        {"{\"model_type\":\"bert\"}", AS_ERR_UNSUPPORTED, "'bert'", "not served yet"},
        {"{\"hidden_size\":\"(absent)\"}", AS_ERR_DATA, "key hidden_size", "missing"},
        {"{\"hidden_size\":null}", AS_ERR_DATA, "key hidden_size", "missing"},
        {"{\"hidden_size\":64.0}", AS_ERR_DATA, "key hidden_size", "a number, must be an integer"},
        {"{\"hidden_size\":0}", AS_ERR_DATA, "key hidden_size", "from 1"},
        {"{\"hidden_size\":-64}", AS_ERR_DATA, "key hidden_size", "it is -64"},
        {"{\"hidden_size\":4611686018427387904}", AS_ERR_DATA, "key hidden_size", "from 1"},
        {"{\"hidden_size\":96}", AS_ERR_DATA, "model.embed_tokens.weight",
         "expected 260 rows of 96"},
        {"{\"vocab_size\":261}", AS_ERR_DATA, "model.embed_tokens.weight",
         "expected 261 rows of 64 elements by the metadata, found 260"},
        {"{\"vocab_size\":1000000}", AS_ERR_DATA, "key vocab_size", "from 1 to 524288"},
        {"{\"num_hidden_layers\":3}", AS_ERR_DATA, "model.layers.2.input_layernorm.weight",
         "missing"},
        {"{\"num_hidden_layers\":100000}", AS_ERR_DATA, "key num_hidden_layers", "from 1 to 4096"},
        {"{\"num_hidden_layers\":true}", AS_ERR_DATA, "key num_hidden_layers", "true"},
        {"{\"num_key_value_heads\":3}", AS_ERR_DATA, "num_attention_heads",
         "not a multiple of num_key_value_heads 3"},
        {"{\"num_key_value_heads\":null}", AS_ERR_DATA, "model.layers.0.self_attn.k_proj.weight",
         "expected 128 rows"},
        {"{\"num_key_value_heads\":\"(absent)\"}", AS_ERR_DATA,
         "model.layers.0.self_attn.k_proj.weight", "expected 128 rows"},
        {"{\"head_dim\":null}", AS_ERR_DATA, "model.layers.0.self_attn.q_proj.weight",
         "expected 64 rows"},
        {"{\"head_dim\":33}", AS_ERR_DATA, "key head_dim", "no pairs"},
        {"{\"num_attention_heads\":7,\"num_key_value_heads\":7,\"head_dim\":null}", AS_ERR_DATA,
         "key hidden_size", "not a multiple of num_attention_heads 7"},
        {"{\"rms_norm_eps\":\"small\"}", AS_ERR_DATA, "key rms_norm_eps", "must be a number"},
        {"{\"rms_norm_eps\":-1}", AS_ERR_DATA, "key rms_norm_eps", "from 0"},
        {"{\"hidden_act\":\"gelu\"}", AS_ERR_UNSUPPORTED, "key hidden_act", "'gelu'"},
        {"{\"mlp_bias\":true}", AS_ERR_UNSUPPORTED, "key mlp_bias", "biases"},
        {"{\"attention_bias\":true}", AS_ERR_DATA, "model.layers.0.self_attn.q_proj.bias",
         "missing"},
        {"{\"attention_bias\":1}", AS_ERR_DATA, "key attention_bias", "must be true or false"},
        {"{\"tie_word_embeddings\":\"yes\"}", AS_ERR_DATA, "key tie_word_embeddings",
         "must be true or false"},
        {"{\"architectures\":[\"LlamaForSequenceClassification\"]}", AS_ERR_UNSUPPORTED,
         "key architectures", "'LlamaForSequenceClassification'"},
        {"{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4}}", AS_ERR_UNSUPPORTED,
         "key quantization_config", "'gptq'"},
        {"{\"model_type\":\"mistral\",\"sliding_window\":1024}", AS_ERR_UNSUPPORTED,
         "key sliding_window", "1024"},
        {"{\"model_type\":\"mistral\",\"sliding_window\":\"(absent)\","
         "\"max_position_embeddings\":32768}",
         AS_ERR_UNSUPPORTED, "key sliding_window", "4096 positions is not served (the family's"},
        {"{\"model_type\":\"qwen2\",\"use_sliding_window\":true,\"sliding_window\":1024}",
         AS_ERR_UNSUPPORTED, "key sliding_window", "1024"},
        {"{\"layer_types\":[\"full_attention\",\"sliding_attention\"]}", AS_ERR_UNSUPPORTED,
         "key layer_types", "'sliding_attention'"},
        {"{\"model_type\":\"qwen2\"}", AS_ERR_DATA, "model.layers.0.self_attn.q_proj.bias",
         "missing"},
        {"{\"model_type\":\"qwen3\"}", AS_ERR_DATA, "model.layers.0.self_attn.q_norm.weight",
         "missing"},
        {"{\"eos_token_id\":260}", AS_ERR_DATA, "key eos_token_id", "outside the vocabulary"},
        {"{\"eos_token_id\":[1,\"2\"]}", AS_ERR_DATA, "key eos_token_id", "a string"},
        {"{\"eos_token_id\":[1,2,3,4,5,6,7,8,9]}", AS_ERR_UNSUPPORTED, "key eos_token_id",
         "more than 8"},
    };
    struct hf_tensors tensors;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_plain(&tensors, cases[i].more);
        expect(cases[i].code, cases[i].first, cases[i].second);
        hf_free(&tensors);
    }
}

/* ---- tensors ------------------------------------------------------------------------------ */

Test(hf_files, tensors)
{
    static const float zeros[64 * 64];
    static const struct {
        const char *remove, *add, *type, *shape;
        size_t bytes;
        int code;
        const char *first, *second;
        size_t unused;
    } cases[] = {
        {"model.layers.1.mlp.up_proj.weight", NULL, NULL, NULL, 0, AS_ERR_DATA,
         "model.layers.1.mlp.up_proj.weight", "missing", 0},
        {"model.norm.weight", "model.norm.weight", "F64", "64", 512, AS_ERR_UNSUPPORTED,
         "type F64 of tensor model.norm.weight", "served: F32, F16, BF16", 0},
        {"model.norm.weight", "model.norm.weight", "I32", "64", 256, AS_ERR_UNSUPPORTED,
         "type I32 of tensor model.norm.weight", "served", 0},
        {"model.norm.weight", "model.norm.weight", "F32", "2,32", 256, AS_ERR_DATA,
         "model.norm.weight", "expected 1 row of 64", 0},
        {"model.norm.weight", "model.norm.weight", "F32", "1,1,64", 256, 0, "", "", 0},
        {"model.norm.weight", "model.norm.weight", "F32", "64,1", 256, AS_ERR_DATA,
         "model.norm.weight", "found 64 of 1", 0},
        {"model.norm.weight", "model.norm.weight", "F32", "0", 0, AS_ERR_DATA, "model.norm.weight",
         "found 1 of 0", 0},
        {NULL, "model.layers.0.self_attn.rotary_emb.inv_freq", "F32", "16", 64, 0, "", "", 1},
        {NULL, "embeddings.position_ids", "I64", "1,4", 32, 0, "", "", 1},
        {NULL, "scalar", "F32", "", 4, 0, "", "", 1},
        {NULL, "empty", "F32", "0,4", 0, 0, "", "", 1},
        {NULL, "model.layers.2.mlp.up_proj.weight", "F32", "2,2", 16, 0, "", "", 1},
        {NULL, "model.layers.00.mlp.up_proj.weight", "F32", "2,2", 16, 0, "", "", 1},
        {NULL, "model.layers.0.self_attn.sinks", "F32", "4", 16, AS_ERR_UNSUPPORTED,
         "model.layers.0.self_attn.sinks", "a part of layer 0", 0},
        {NULL, "model.layers.1.mlp.experts.0.up_proj.weight", "F32", "2,2", 16, AS_ERR_UNSUPPORTED,
         "model.layers.1.mlp.experts.0.up_proj.weight", "a part of layer 1", 0},
        {NULL, "model.layers.1.mlp.up_proj.bias", "F32", "96", 384, AS_ERR_UNSUPPORTED,
         "model.layers.1.mlp.up_proj.bias", "biases are not served", 0},
        {NULL, "model.layers.0.self_attn.q_proj.bias", "F32", "128", 512, AS_ERR_UNSUPPORTED,
         "model.layers.0.self_attn.q_proj.bias", "biases are not served", 0},
        {NULL, "model.layers.0.self_attn.q_norm.weight", "F32", "32", 128, AS_ERR_UNSUPPORTED,
         "model.layers.0.self_attn.q_norm.weight", "norms of queries", 0},
        {NULL, "lm_head.bias", "F32", "260", 1040, AS_ERR_UNSUPPORTED, "lm_head.bias",
         "biases are not served", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hf_tensors tensors;
        write_plain(&tensors, NULL);
        if (cases[i].remove != NULL)
            hf_remove(&tensors, cases[i].remove);
        if (cases[i].add != NULL)
            hf_add(&tensors, cases[i].add, cases[i].type, cases[i].shape, zeros, cases[i].bytes);
        hf_write_single(&tensors, folder);
        hf_free(&tensors);
        if (cases[i].code != 0) {
            expect(cases[i].code, cases[i].first, cases[i].second);
            continue;
        }
        struct as_model *model = inspect();
        cr_assert_eq(model->unused_count, cases[i].unused, "%s", cases[i].add);
        as_model_close(model);
    }
}

/* A header of odd length leaves no tensor aligned: all of a small model is copied. */
Test(hf_files, not_aligned)
{
    for (size_t padding = 1; padding < 8; padding++) {
        struct hf_tensors tensors = {.count = 0};
        hf_add_family(&tensors, &plain, padding % 2 == 0 ? ASSAY_BF16 : ASSAY_F32);
        hf_write(&tensors, 0, tensors.count, padding, path_of("model.safetensors"));
        hf_write_config(folder, "llama", false, NULL);
        struct as_model *model = inspect();
        const struct as_model_layer *layer = &model->layers[1];
        family_check(layer->ffn_norm, 1, F_HIDDEN);
        if (padding % 2 == 1)
            family_check_model(&plain, model);
        cr_assert_eq((uintptr_t)layer->ffn_down->data % 2, 0);
        as_model_close(model);
        hf_free(&tensors);
    }
}

/* ---- ids, files and digest ---------------------------------------------------------------- */

Test(hf_files, ids)
{
    static const struct {
        const char *config, *generation;
        int32_t bos, eos, eot, pad;
        size_t ends;
    } cases[] = {
        {"{}", NULL, -1, -1, -1, -1, 0},
        {"{\"bos_token_id\":1,\"eos_token_id\":2,\"pad_token_id\":0}", NULL, 1, 2, -1, 0, 1},
        {"{\"eos_token_id\":[7,8,7,9]}", NULL, -1, 7, 8, -1, 3},
        {"{\"eos_token_id\":7}", "{\"eos_token_id\":[9,7]}", -1, 9, 7, -1, 2},
        {"{\"eos_token_id\":7}", "{}", -1, 7, -1, -1, 1},
        {"{\"bos_token_id\":null,\"eos_token_id\":null,\"pad_token_id\":-1}", NULL, -1, -1, -1, -1,
         0},
        {"{\"pad_token_id\":260,\"eos_token_id\":-1}", NULL, -1, -1, -1, -1, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct hf_tensors tensors;
        write_plain(&tensors, cases[i].config);
        hf_free(&tensors);
        unlink(path_of("generation_config.json"));
        if (cases[i].generation != NULL)
            hf_write_text(folder, "generation_config.json", cases[i].generation);
        struct as_model *model = inspect();
        const struct as_model_vocabulary *v = &model->vocabulary;
        cr_assert_str_eq(v->model, "tokenizer.json");
        cr_assert(v->count == 0 && v->pieces == NULL && v->merge_count == 0 && v->pre == NULL);
        cr_assert(v->bos == cases[i].bos && v->eos == cases[i].eos && v->eot == cases[i].eot &&
                      v->pad == cases[i].pad && v->end_count == cases[i].ends,
                  "case %zu: %d %d %d %d, %zu ends", i, v->bos, v->eos, v->eot, v->pad,
                  v->end_count);
        as_model_close(model);
    }
}

static uint64_t digest(void)
{
    struct as_model *model = inspect();
    uint64_t value = as_model_digest(model);
    as_model_close(model);
    return value;
}

Test(hf_files, files_for_the_text_stage)
{
    struct hf_tensors tensors;
    write_plain(&tensors, NULL);
    struct as_model *model = inspect();
    cr_assert_null(model->folder.tokenizer.bytes);
    cr_assert_null(model->folder.chat_template.bytes);
    cr_assert_str_eq(as_model_file(model, 0), path_of("config.json"));
    cr_assert_str_eq(as_model_file(model, 1), path_of("model.safetensors"));
    cr_assert_null(as_model_file(model, 2));
    const struct as_metadata *item = as_model_metadata(model, "vocab_size");
    cr_assert(item != NULL && item->kind == AS_METADATA_SIGNED && item->value.i == F_VOCAB);
    item = as_model_metadata(model, "model_type");
    cr_assert(item != NULL && item->kind == AS_METADATA_STRING && item->value.text.length == 5);
    as_model_close(model);

    uint64_t before = digest();
    cr_assert_eq(digest(), before);
    hf_write_text(folder, "tokenizer.json", "{\"x\":1}");
    cr_assert_neq(digest(), before);
    before = digest();
    hf_write_text(folder, "tokenizer.json", "{\"x\":2}");
    cr_assert_neq(digest(), before);
    hf_write_text(folder, "tokenizer_config.json", "");
    hf_write_text(folder, "chat_template.jinja", "{{ messages }}");
    model = inspect();
    cr_assert_eq(model->folder.tokenizer.length, 7);
    cr_assert_eq(memcmp(model->folder.tokenizer.bytes, "{\"x\":2}", 7), 0);
    cr_assert(model->folder.tokenizer_config.bytes != NULL &&
              model->folder.tokenizer_config.length == 0);
    cr_assert_eq(model->folder.chat_template.length, 14);
    as_model_close(model);
    before = digest();
    ((float *)tensors.list[3].data)[5] += 1.0f;
    hf_write_single(&tensors, folder);
    cr_assert_neq(digest(), before);
    before = digest();
    hf_write_config(folder, "llama", false, "{\"rms_norm_eps\":2e-6}");
    cr_assert_neq(digest(), before);
    hf_free(&tensors);
}

/* ---- hostile ------------------------------------------------------------------------------ */

#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
#define SECONDS 1.0
#else
#define SECONDS 10.0
#endif

static size_t peak_bytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (size_t)usage.ru_maxrss * 1024;
}

static double processor_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* The folder must be refused within a second and 64 MB. */
static void expect_cheap(const char *text)
{
    struct as_model *model;
    struct as_error error = {0};
    size_t before = peak_bytes();
    double start = processor_seconds();
    int code = as_model_inspect(folder, &model, &error);
    double spent = processor_seconds() - start;
    size_t used = peak_bytes() - before;
    cr_assert_neq(code, 0);
    cr_assert_not_null(strstr(error.message, text), "no '%s' in: %s", text, error.message);
#if !defined(__SANITIZE_ADDRESS__)
    cr_assert_lt(used, (size_t)64 << 20, "%zu bytes for: %s", used, error.message);
#else
    (void)used;
#endif
    cr_assert_lt(spent, SECONDS, "%g s for: %s", spent, error.message);
}

/* A file of `head`, `count` times `body`, and `tail`, then zeros to `size`. `header` above 0:
 * it is a safetensors header of that length, filled up with spaces. */
static void write_large(const char *name, const char *head, const char *body, size_t count,
                        const char *tail, size_t header, size_t size)
{
    size_t lengths[] = {strlen(head), strlen(body), strlen(tail)};
    size_t start = header > 0 ? 8 : 0;
    size_t length = lengths[0] + count * lengths[1] + lengths[2];
    size_t bytes = start + (header > length ? header : length);
    char *text = malloc(bytes + 1), *at = text + start;
    uint64_t stated = header;
    memcpy(text, &stated, start);
    memset(at, ' ', bytes - start);
    memcpy(at, head, lengths[0]);
    at += lengths[0];
    for (size_t i = 0; i < count; i++, at += lengths[1])
        memcpy(at, body, lengths[1]);
    memcpy(at, tail, lengths[2]);
    hf_write_file(path_of(name), text, bytes);
    free(text);
    if (size > 0)
        cr_assert_eq(truncate(path_of(name), (off_t)size), 0);
}

/* JSON that costs jansson most a byte: arrays of nothing. */
Test(hf_files, hostile_config)
{
    size_t limit = AS_HF_CONFIG_LIMIT;
    write_large("config.json", "{\"a\":[[]", ",[]", (limit - 20) / 3, "]}", 0, 0);
    expect_cheap("key model_type");
    write_large("config.json", "{\"a\":[{}", ",{}", (limit - 20) / 3, "]}", 0, 0);
    expect_cheap("key model_type");
    write_large("config.json", "{\"a\":[0", ",0", (limit - 20) / 2, "]}", 0, 0);
    expect_cheap("key model_type");
    write_large("config.json", "{\"a\":", "[", limit - 20, "", 0, 0);
    expect_cheap("config.json: line");
    write_large("config.json", "{\"a\":", "[", limit, "", 0, 0);
    expect_cheap("more than the limit of 262144");
    write_large("config.json", "", "", 0, "", 0, (size_t)1 << 40);
    expect_cheap("more than the limit of 262144");
}

Test(hf_files, hostile_index)
{
    size_t limit = AS_HF_INDEX_LIMIT;
    struct as_text map = {0};
    hf_write_config(folder, "llama", true, NULL);
    write_large("model.safetensors.index.json", "{\"a\":[[]", ",[]", (limit - 20) / 3, "]}", 0, 0);
    expect_cheap("weight_map is missing or empty");
    write_large("model.safetensors.index.json", "{\"a\":[0", ",\"\\u0041\"", (limit - 20) / 9, "]}",
                0, 0);
    expect_cheap("weight_map is missing or empty");
    write_large("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"b.safetensors\"",
                ",\"a\":\"b.safetensors\"", 100000, "}}", 0, 0);
    expect_cheap("it has more tensors than 16384");
    write_large("model.safetensors.index.json", "", " ", limit, " ", 0, 0);
    expect_cheap("more than the limit of 8388608");
    as_text_addf(&map, "{\"weight_map\":{\"x\":\"0.safetensors\"");
    for (unsigned i = 0; i < 600; i++)
        as_text_addf(&map, ",\"%u\":\"%u.safetensors\"", i, i);
    as_text_addf(&map, "}}");
    hf_write_text(folder, "model.safetensors.index.json", map.data);
    expect_cheap("it names more than 512 files");
    as_text_free(&map);
}

#define HEADER (AS_SAFETENSORS_HEADER_LIMIT)

Test(hf_files, hostile_header)
{
    hf_write_config(folder, "llama", true, NULL);
    size_t size = (size_t)1 << 33;
    write_large("model.safetensors", "{\"a\":{\"x\":[", "[],", (HEADER - 64) / 3, "[]]}}", HEADER,
                size);
    expect_cheap("no dtype");
    write_large("model.safetensors", "{\"a\":{\"x\":[", "\"\\u0041\\n\",", (HEADER - 64) / 11,
                "0]}}", HEADER, size);
    expect_cheap("no dtype");
    write_large("model.safetensors", "{\"__metadata__\":{\"a\":\"b\"", ",\"a\":\"b\"", 100000, "}}",
                HEADER, size);
    expect_cheap("__metadata__ has more entries than the limit");
    write_large("model.safetensors", "{\"a\":", "[", HEADER - 64, "", HEADER, size);
    expect_cheap("expected '{'");
    write_large("model.safetensors", "{\"a\":{\"x\":", "[", HEADER - 64, "", HEADER, size);
    expect_cheap("nested deeper");
    write_large("model.safetensors", "", "{", HEADER, "", HEADER, size);
    expect_cheap("expected a string");
    write_large("model.safetensors", "{\"", "\xc3\xa9", (HEADER - 64) / 2, "\":0}", HEADER, size);
    expect_cheap("1 to 512 bytes");
}

/* As many tensors as there may be, with names that differ at their ends alone. */
Test(hf_files, hostile_tensors)
{
    struct as_text json = {0};
    char name[AS_SAFETENSORS_NAME_LIMIT + 1];
    hf_write_config(folder, "llama", true, NULL);
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    as_text_addf(&json, "{");
    for (unsigned i = 0; i < AS_SAFETENSORS_TENSOR_LIMIT; i++) {
        snprintf(name + sizeof name - 6, 6, "%05u", i);
        as_text_addf(&json, "%s\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%u,%u]}",
                     i > 0 ? "," : "", name, i, i + 1);
    }
    size_t header = json.length + 1;
    write_large("model.safetensors", json.data, "", 0, "}", header,
                8 + header + AS_SAFETENSORS_TENSOR_LIMIT);
    expect_cheap("model.embed_tokens.weight");
    as_text_addf(&json, ",\"z\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}");
    write_large("model.safetensors", json.data, "", 0, "}", json.length + 1,
                8 + json.length + 1 + AS_SAFETENSORS_TENSOR_LIMIT);
    expect_cheap("more tensors than the limit of 16384");
    as_text_free(&json);
}

/* Vectors and crooked data as large as they are claimed, in a file of zeros: copies are bounded. */
Test(hf_files, hostile_copies)
{
    static const char config[] =
        "{\"model_type\":\"llama\",\"num_hidden_layers\":4096,\"hidden_size\":1048576,"
        "\"num_attention_heads\":1,\"intermediate_size\":1,\"vocab_size\":1,"
        "\"head_dim\":2,\"tie_word_embeddings\":true}";
    static const struct {
        const char *name;
        size_t rows, columns;
    } parts[] = {{"input_layernorm", 0, 1 << 20},
                 {"self_attn.q_proj", 2, 1 << 20},
                 {"self_attn.k_proj", 2, 1 << 20},
                 {"self_attn.v_proj", 2, 1 << 20},
                 {"self_attn.o_proj", 1 << 20, 2},
                 {"mlp.gate_proj", 1, 1 << 20},
                 {"mlp.up_proj", 1, 1 << 20},
                 {"mlp.down_proj", 1 << 20, 1},
                 {"post_attention_layernorm", 0, 1 << 20}};
    for (size_t crooked = 0; crooked < 2; crooked++) {
        struct as_text json = {0};
        size_t at = (size_t)2 << 20;
        as_text_addf(&json,
                     "{\"model.embed_tokens.weight\":{\"dtype\":\"BF16\",\"shape\":"
                     "[1,1048576],\"data_offsets\":[0,%zu]}",
                     at);
        for (unsigned layer = 0; layer < 64; layer++)
            for (size_t i = 0; i < 9; i++) {
                size_t bytes = (parts[i].rows == 0 ? 1 : parts[i].rows) * parts[i].columns * 2;
                as_text_addf(&json,
                             ",\"model.layers.%u.%s.weight\":{\"dtype\":\"BF16\",\"shape\":[",
                             layer, parts[i].name);
                if (parts[i].rows > 0)
                    as_text_addf(&json, "%zu,", parts[i].rows);
                as_text_addf(&json, "%zu],\"data_offsets\":[%zu,%zu]}", parts[i].columns, at,
                             at + bytes);
                at += bytes;
            }
        size_t header = as_align_up(json.length + 1, 8) + crooked;
        hf_write_text(folder, "config.json", config);
        write_large("model.safetensors", json.data, "", 0, "}", header, 8 + header + at);
        as_text_free(&json);
        expect_cheap("such copies may take 33554432 bytes in all");
    }
}

/* config.json with bytes changed at random: refused or opened, always clean. */
Test(hf_files, changed_config)
{
    struct hf_tensors tensors;
    char *text;
    size_t size, opened = 0, refused = 0;
    write_plain(&tensors, "{\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,\"beta_fast\":"
                          "32,\"original_max_position_embeddings\":512},\"eos_token_id\":[1,2]}");
    cr_assert_eq(as_read_file(&text, &size, path_of("config.json"), 1 << 16, NULL), 0);
    for (uint64_t i = 0; i < 600; i++) {
        static const char marks[] = "0123456789-+.eE\"{}[],: trufalsn";
        struct as_model *model;
        struct as_error error = {0};
        size_t at[2];
        char saved[2];
        for (size_t j = 0; j < 2; j++) {
            at[j] = as_random_u64(11, j, i) % size;
            saved[j] = text[at[j]];
            text[at[j]] = marks[as_random_u64(12, j, i) % (sizeof marks - 1)];
        }
        int fd = open(path_of("config.json"), O_WRONLY | O_TRUNC);
        cr_assert_eq(write(fd, text, size), (ssize_t)size);
        close(fd);
        int code = as_model_inspect(folder, &model, &error);
        cr_assert_eq(code, error.code);
        if (code == 0)
            walk_model(model);
        opened += code == 0;
        refused += code != 0;
        as_model_close(model);
        for (size_t j = 2; j-- > 0;)
            text[at[j]] = saved[j];
    }
    cr_assert_gt(opened, 10);
    cr_assert_gt(refused, 200);
    free(text);
    hf_free(&tensors);
}
