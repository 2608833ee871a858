/* What the `llama` architecture must state and carry: each fault named, and C14, C18. */
#include "gguf_image.h"

#include <math.h>

#include "../fixtures/fixtures.c"

/* A change to the base model below: of a key's value, or of a tensor. */
struct change {
    enum { NONE, DROP, U32, F32, STRING, BOOL, I32S, STRINGS, TENSOR } kind;
    const char *name;
    uint32_t u;
    float f;
    const char *text;
    size_t columns, rows; /* rows 0: a vector */
    enum assay_dtype dtype;
};

enum { LAYERS = 2, WIDTH = 64, FFN_WIDTH = 96, VOCAB = 260 };

static const struct {
    const char *key;
    uint32_t value;
} base_numbers[] = {
    {"llama.block_count", LAYERS},     {"llama.context_length", 100},
    {"llama.embedding_length", WIDTH}, {"llama.feed_forward_length", FFN_WIDTH},
    {"llama.attention.head_count", 4}, {"llama.attention.head_count_kv", 2},
};

static const struct {
    const char *name;
    size_t columns, rows;
} base_layer[] = {
    {"attn_norm", WIDTH, 0},        {"attn_q", WIDTH, WIDTH},      {"attn_k", WIDTH, 32},
    {"attn_v", WIDTH, 32},          {"attn_output", WIDTH, WIDTH}, {"ffn_norm", WIDTH, 0},
    {"ffn_gate", WIDTH, FFN_WIDTH}, {"ffn_up", WIDTH, FFN_WIDTH},  {"ffn_down", FFN_WIDTH, WIDTH},
};

static bool changed(const struct change *change, const char *name)
{
    return change != NULL && change->kind != NONE && strcmp(change->name, name) == 0;
}

static void put_change(struct as_gguf_writer *writer, const struct change *change)
{
    static const struct as_bytes texts[] = {{"a", 1}, {"b", 1}, {"c", 1}};
    static const int32_t numbers[] = {1, 1, 9};
    switch (change->kind) {
    case U32: as_gguf_put_u32(writer, change->name, change->u); break;
    case F32: as_gguf_put_f32(writer, change->name, change->f); break;
    case BOOL: as_gguf_put_bool(writer, change->name, change->u != 0); break;
    case STRING: as_gguf_put_string(writer, change->name, change->text); break;
    case I32S: as_gguf_put_i32s(writer, change->name, numbers, change->u); break;
    case STRINGS: as_gguf_put_strings(writer, change->name, texts, change->u); break;
    default: break;
    }
}

static void put_base_metadata(struct as_gguf_writer *writer, const struct change *change)
{
    struct as_byte_vocabulary vocabulary;
    if (!changed(change, "general.architecture"))
        as_gguf_put_string(writer, "general.architecture", "llama");
    for (size_t i = 0; i < sizeof base_numbers / sizeof base_numbers[0]; i++)
        if (!changed(change, base_numbers[i].key))
            as_gguf_put_u32(writer, base_numbers[i].key, base_numbers[i].value);
    if (!changed(change, "llama.attention.layer_norm_rms_epsilon"))
        as_gguf_put_f32(writer, "llama.attention.layer_norm_rms_epsilon", 1e-6f);
    cr_assert_eq(as_byte_vocabulary_make(&vocabulary, VOCAB, NULL, 0, NULL), 0);
    if (!changed(change, "tokenizer.ggml.model"))
        as_gguf_put_string(writer, "tokenizer.ggml.model", "gpt2");
    if (!changed(change, "tokenizer.ggml.tokens"))
        as_gguf_put_strings(writer, "tokenizer.ggml.tokens", vocabulary.pieces, VOCAB);
    if (!changed(change, "tokenizer.ggml.token_type"))
        as_gguf_put_i32s(writer, "tokenizer.ggml.token_type", vocabulary.types, VOCAB);
    as_byte_vocabulary_free(&vocabulary);
    if (change != NULL && change->kind != TENSOR)
        put_change(writer, change);
}

struct tensors {
    size_t bytes[64], count;
};

static void add_tensor(struct as_gguf_writer *writer, struct tensors *tensors,
                       const struct change *change, const char *name, size_t columns, size_t rows)
{
    enum assay_dtype dtype = ASSAY_F32;
    if (changed(change, name)) {
        if (change->kind == DROP)
            return;
        columns = change->columns;
        rows = change->rows;
        dtype = change->dtype;
    }
    as_gguf_put_tensor(writer, name, dtype, columns, rows);
    tensors->bytes[tensors->count++] =
        assay_row_bytes(dtype, (int64_t)columns) * (rows + (rows == 0));
}

static void add_tensors(struct as_gguf_writer *writer, struct tensors *tensors,
                        const struct change *change, bool *found)
{
    char name[64];
    add_tensor(writer, tensors, change, "token_embd.weight", WIDTH, VOCAB);
    *found = changed(change, "token_embd.weight") || changed(change, "output_norm.weight") ||
             changed(change, "output.weight");
    for (int layer = 0; layer < LAYERS; layer++) {
        for (size_t i = 0; i < sizeof base_layer / sizeof base_layer[0]; i++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", layer, base_layer[i].name);
            add_tensor(writer, tensors, change, name, base_layer[i].columns, base_layer[i].rows);
            *found = *found || changed(change, name);
        }
    }
    add_tensor(writer, tensors, change, "output_norm.weight", WIDTH, 0);
    add_tensor(writer, tensors, change, "output.weight", WIDTH, VOCAB);
    if (change != NULL && change->kind == TENSOR && !*found)
        add_tensor(writer, tensors, change, change->name, 0, 0);
}

/* Opens the base model with one change (NULL: none). */
static int open_changed(const struct change *change, struct as_model **model, void **image,
                        struct as_error *error)
{
    size_t size;
    bool found;
    struct tensors tensors = {{0}, 0};
    struct as_gguf_writer *writer = as_gguf_writer_create(32, NULL);
    put_base_metadata(writer, change);
    add_tensors(writer, &tensors, change, &found);
    cr_assert_eq(as_gguf_begin(writer, NULL, error), 0, "%s", error->message);
    for (size_t i = 0; i < tensors.count; i++) {
        void *zeros = calloc(1, tensors.bytes[i]);
        cr_assert_eq(as_gguf_append(writer, zeros, tensors.bytes[i], error), 0);
        free(zeros);
    }
    cr_assert_eq(as_gguf_finish_memory(writer, image, &size, error), 0, "%s", error->message);
    as_gguf_writer_free(writer);
    return as_model_open_bytes(*image, size, "base.gguf", model, error);
}

static void expect(const struct change *change, int code, const char *first, const char *second)
{
    struct as_model *model;
    struct as_error error = {0};
    void *image;
    int found = open_changed(change, &model, &image, &error);
    cr_assert_eq(found, code, "%s: %d instead of %d: %s", change->name, found, code, error.message);
    if (code != 0) {
        cr_assert(strncmp(error.message, "cannot read the model base.gguf: ", 33) == 0, "%s",
                  error.message);
        cr_assert_not_null(strstr(error.message, first), "no '%s' in: %s", first, error.message);
        cr_assert_not_null(strstr(error.message, second), "no '%s' in: %s", second, error.message);
    }
    as_model_close(model);
    free(image);
}

Test(model_llama, base_opens)
{
    struct as_model *model;
    struct as_error error = {0};
    void *image;
    cr_assert_eq(open_changed(NULL, &model, &image, &error), 0, "%s", error.message);
    const struct as_model_config *c = &model->config;
    cr_assert_str_eq(model->family, "llama");
    cr_assert_str_eq(model->name, "base.gguf");
    cr_assert_str_eq(model->format, "GGUF v3");
    cr_assert(c->layers == 2 && c->hidden == 64 && c->heads == 4 && c->kv_heads == 2 &&
              c->head_dim == 16 && c->ffn == 96 && c->vocab == 260 && c->context == 100);
    cr_assert(c->rope_dims == 16 && c->rope_base == 10000.0f && c->rms_epsilon == 1e-6f);
    cr_assert_eq(c->rope_pairing, ASSAY_ROPE_ADJACENT);
    cr_assert(!c->tied_output && model->unused_count == 0);
    cr_assert_eq(model->layers[1].ffn_down, as_model_tensor(model, "blk.1.ffn_down.weight"));
    cr_assert(model->layers[1].ffn_down->rows == 64 && model->layers[1].ffn_down->columns == 96);
    cr_assert_null(as_model_tensor(model, "blk.2.ffn_down.weight"));
    cr_assert_eq(model->vocabulary.bos, -1);
    cr_assert_eq(model->vocabulary.eos, -1);
    cr_assert_null(model->vocabulary.pre);
    cr_assert_null(model->vocabulary.chat_template.bytes);
    cr_assert_not_null(as_model_metadata(model, "llama.block_count"));
    cr_assert_null(as_model_metadata(model, "llama.block"));
    walk_model(model);
    as_model_close(model);
    as_model_close(NULL);
    free(image);
}

Test(model_llama, keys)
{
    static const struct {
        struct change change;
        int code;
        const char *first, *second;
    } cases[] = {
        {{.kind = DROP, .name = "general.architecture"},
         AS_ERR_DATA,
         "general.architecture",
         "missing"},
        {{.kind = U32, .name = "general.architecture", .u = 1},
         AS_ERR_DATA,
         "general.architecture",
         "type u32"},
        {{.kind = STRING, .name = "general.architecture", .text = "gpt-j"},
         AS_ERR_UNSUPPORTED,
         "'gpt-j'",
         "served: llama (also Mistral), qwen2, qwen3"},
        {{.kind = DROP, .name = "llama.block_count"}, AS_ERR_DATA, "llama.block_count", "missing"},
        {{.kind = U32, .name = "llama.block_count", .u = 0},
         AS_ERR_DATA,
         "llama.block_count",
         "from 1 to"},
        {{.kind = U32, .name = "llama.block_count", .u = UINT32_MAX},
         AS_ERR_DATA,
         "llama.block_count",
         "4294967295"},
        {{.kind = F32, .name = "llama.block_count", .f = 2.0f},
         AS_ERR_DATA,
         "llama.block_count",
         "type f32"},
        {{.kind = U32, .name = "llama.block_count", .u = 3},
         AS_ERR_DATA,
         "blk.2.attn_norm.weight",
         "missing"},
        {{.kind = DROP, .name = "llama.context_length"},
         AS_ERR_DATA,
         "llama.context_length",
         "missing"},
        {{.kind = U32, .name = "llama.embedding_length", .u = 0},
         AS_ERR_DATA,
         "llama.embedding_length",
         "from 1"},
        {{.kind = U32, .name = "llama.embedding_length", .u = 65},
         AS_ERR_DATA,
         "llama.embedding_length 65",
         "not a multiple"},
        {{.kind = U32, .name = "llama.embedding_length", .u = 128},
         AS_ERR_DATA,
         "token_embd.weight",
         "expected 260 rows of 128 elements by the metadata, found 260 of 64"},
        {{.kind = U32, .name = "llama.attention.head_count", .u = 0},
         AS_ERR_DATA,
         "head_count",
         "from 1"},
        {{.kind = U32, .name = "llama.attention.head_count_kv", .u = 3},
         AS_ERR_DATA,
         "head_count 4",
         "head_count_kv 3"},
        {{.kind = I32S, .name = "llama.attention.head_count_kv", .u = 2},
         AS_ERR_UNSUPPORTED,
         "head_count_kv",
         "array of i32"},
        {{.kind = DROP, .name = "llama.attention.head_count_kv"},
         AS_ERR_DATA,
         "blk.0.attn_k.weight",
         "expected 64 rows of 64"},
        {{.kind = U32, .name = "llama.attention.key_length", .u = 32},
         AS_ERR_DATA,
         "blk.0.attn_q.weight",
         "expected 128 rows"},
        {{.kind = U32, .name = "llama.attention.value_length", .u = 32},
         AS_ERR_UNSUPPORTED,
         "value_length 32",
         "16"},
        {{.kind = U32, .name = "llama.rope.dimension_count", .u = 17},
         AS_ERR_DATA,
         "dimension_count is 17",
         "even"},
        {{.kind = U32, .name = "llama.rope.dimension_count", .u = 18},
         AS_ERR_DATA,
         "dimension_count is 18",
         "16"},
        {{.kind = U32, .name = "llama.rope.dimension_count", .u = 8}, 0, "", ""},
        {{.kind = F32, .name = "llama.rope.freq_base", .f = 0.0f},
         AS_ERR_DATA,
         "freq_base",
         "from 1"},
        {{.kind = F32, .name = "llama.rope.freq_base", .f = (float)NAN},
         AS_ERR_DATA,
         "freq_base",
         "nan"},
        {{.kind = DROP, .name = "llama.attention.layer_norm_rms_epsilon"},
         AS_ERR_DATA,
         "epsilon",
         "missing"},
        {{.kind = F32, .name = "llama.attention.layer_norm_rms_epsilon", .f = -1.0f},
         AS_ERR_DATA,
         "epsilon",
         "-1"},
        {{.kind = STRING, .name = "llama.rope.scaling.type", .text = "yarn"}, 0, "", ""},
        {{.kind = STRING, .name = "llama.rope.scaling.type", .text = "longrope"},
         AS_ERR_UNSUPPORTED,
         "'longrope'",
         "served: none, linear, yarn"},
        {{.kind = STRING, .name = "llama.rope.scaling.type", .text = "dynamic"},
         AS_ERR_UNSUPPORTED,
         "'dynamic'",
         "metadata key llama.rope.scaling.type"},
        {{.kind = STRING, .name = "llama.rope.scaling.type", .text = "none"}, 0, "", ""},
        {{.kind = F32, .name = "llama.rope.scaling.factor", .f = 1.0f}, 0, "", ""},
        {{.kind = U32, .name = "llama.expert_count", .u = 8},
         AS_ERR_UNSUPPORTED,
         "expert_count",
         "8 experts"},
        {{.kind = U32, .name = "llama.expert_count", .u = 0}, 0, "", ""},
        {{.kind = U32, .name = "split.count", .u = 3},
         AS_ERR_UNSUPPORTED,
         "split.count",
         "3 files"},
        {{.kind = U32, .name = "llama.attention.sliding_window", .u = 50},
         AS_ERR_UNSUPPORTED,
         "sliding_window",
         "50"},
        {{.kind = U32, .name = "llama.attention.sliding_window", .u = 4096}, 0, "", ""},
        {{.kind = BOOL, .name = "llama.attention.causal", .u = 0},
         AS_ERR_UNSUPPORTED,
         "attention.causal",
         "later positions"},
        {{.kind = BOOL, .name = "llama.attention.causal", .u = 1}, 0, "", ""},
        {{.kind = F32, .name = "llama.attention.scale", .f = 0.1f},
         AS_ERR_UNSUPPORTED,
         "attention.scale",
         "not served"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect(&cases[i].change, cases[i].code, cases[i].first, cases[i].second);
}

Test(model_llama, vocabulary)
{
    static const struct {
        struct change change;
        const char *first, *second;
    } cases[] = {
        {{.kind = DROP, .name = "tokenizer.ggml.model"}, "tokenizer.ggml.model", "no tokenizer"},
        {{.kind = DROP, .name = "tokenizer.ggml.tokens"}, "tokenizer.ggml.tokens", "missing"},
        {{.kind = STRINGS, .name = "tokenizer.ggml.tokens", .u = 0},
         "tokenizer.ggml.tokens",
         "empty"},
        {{.kind = I32S, .name = "tokenizer.ggml.tokens", .u = 3},
         "tokenizer.ggml.tokens",
         "array of i32, must be an array of string"},
        {{.kind = STRING, .name = "tokenizer.ggml.tokens", .text = "abc"},
         "tokenizer.ggml.tokens",
         "of type string, must be an array of string"},
        {{.kind = STRINGS, .name = "tokenizer.ggml.tokens", .u = 3},
         "tokenizer.ggml.token_type",
         "260 elements for 3 tokens"},
        {{.kind = I32S, .name = "tokenizer.ggml.token_type", .u = 2},
         "tokenizer.ggml.token_type",
         "2 elements for 260 tokens"},
        {{.kind = STRINGS, .name = "tokenizer.ggml.token_type", .u = 3},
         "tokenizer.ggml.token_type",
         "must be an array of i32"},
        {{.kind = I32S, .name = "tokenizer.ggml.scores", .u = 3},
         "tokenizer.ggml.scores",
         "must be an array of f32"},
        {{.kind = U32, .name = "tokenizer.ggml.merges", .u = 3},
         "tokenizer.ggml.merges",
         "must be an array of string"},
        {{.kind = U32, .name = "tokenizer.ggml.eos_token_id", .u = 260},
         "eos_token_id",
         "it is 260"},
        {{.kind = STRING, .name = "tokenizer.ggml.bos_token_id", .text = "1"},
         "bos_token_id",
         "type string"},
        {{.kind = U32, .name = "tokenizer.ggml.add_bos_token", .u = 1},
         "add_bos_token",
         "must be a bool"},
        {{.kind = U32, .name = "tokenizer.chat_template", .u = 1},
         "tokenizer.chat_template",
         "must be a string"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect(&cases[i].change, AS_ERR_DATA, cases[i].first, cases[i].second);
}

/* Where the file does not say it, llama.cpp's rule holds. */
Test(model_llama, bos_by_default)
{
    static const struct {
        struct change change;
        bool add_bos;
    } cases[] = {
        {{.kind = STRING, .name = "tokenizer.ggml.model", .text = "llama"}, true},
        {{.kind = STRING, .name = "tokenizer.ggml.pre", .text = "llama-bpe"}, true},
        {{.kind = STRING, .name = "tokenizer.ggml.pre", .text = "smollm"}, false},
        {{.kind = BOOL, .name = "tokenizer.ggml.add_bos_token", .u = 1}, true},
        {{.kind = U32, .name = "tokenizer.ggml.bos_token_id", .u = UINT32_MAX}, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct as_model *model;
        struct as_error error = {0};
        void *image;
        cr_assert_eq(open_changed(&cases[i].change, &model, &image, &error), 0, "%s",
                     error.message);
        cr_assert_eq(model->vocabulary.add_bos, cases[i].add_bos, "%s", cases[i].change.name);
        cr_assert_eq(model->vocabulary.bos, -1);
        as_model_close(model);
        free(image);
    }
}

#define TENSOR_CHANGE(name, dtype, columns, rows)      \
    {                                                  \
        TENSOR, name, 0, 0, NULL, columns, rows, dtype \
    }

Test(model_llama, tensors)
{
    static const struct {
        struct change change;
        int code;
        const char *first, *second;
    } cases[] = {
        {{.kind = DROP, .name = "token_embd.weight"}, AS_ERR_DATA, "token_embd.weight", "missing"},
        {{.kind = DROP, .name = "blk.1.ffn_up.weight"},
         AS_ERR_DATA,
         "blk.1.ffn_up.weight",
         "missing"},
        {{.kind = DROP, .name = "output_norm.weight"},
         AS_ERR_DATA,
         "output_norm.weight",
         "missing"},
        {TENSOR_CHANGE("token_embd.weight", ASSAY_F32, 64, 259), AS_ERR_DATA,
         "tensor token_embd.weight", "expected 260 rows of 64 elements by the metadata, found 259"},
        {TENSOR_CHANGE("blk.0.ffn_down.weight", ASSAY_F32, 64, 96), AS_ERR_DATA,
         "tensor blk.0.ffn_down.weight",
         "expected 64 rows of 96 elements by the metadata, found 96 of 64"},
        {TENSOR_CHANGE("blk.0.attn_norm.weight", ASSAY_F32, 32, 2), AS_ERR_DATA,
         "blk.0.attn_norm.weight", "expected 1 row of 64"},
        {TENSOR_CHANGE("blk.0.attn_norm.weight", ASSAY_Q8_0, 64, 0), AS_ERR_UNSUPPORTED,
         "blk.0.attn_norm.weight", "must be F32"},
        {TENSOR_CHANGE("output.weight", ASSAY_F32, 64, 1), AS_ERR_DATA, "output.weight",
         "expected 260 rows"},
        {TENSOR_CHANGE("blk.0.ffn_up.weight", ASSAY_Q8_0, 64, 96), 0, "", ""},
        {TENSOR_CHANGE("blk.0.ffn_up.weight", ASSAY_Q4_1, 64, 96), 0, "", ""},
        {TENSOR_CHANGE("blk.0.attn_norm.weight", ASSAY_F16, 64, 0), 0, "", ""},
        {TENSOR_CHANGE("blk.0.attn_q.bias", ASSAY_F32, 64, 0), AS_ERR_DATA, "blk.0.attn_k.bias",
         "missing"},
        {TENSOR_CHANGE("blk.1.attn_q.bias", ASSAY_F32, 64, 0), AS_ERR_UNSUPPORTED,
         "blk.1.attn_q.bias", "biases are not served"},
        {TENSOR_CHANGE("blk.0.attn_output.bias", ASSAY_F32, 64, 0), AS_ERR_UNSUPPORTED,
         "blk.0.attn_output.bias", "biases are not served"},
        {TENSOR_CHANGE("output.bias", ASSAY_F32, 260, 0), AS_ERR_UNSUPPORTED, "output.bias",
         "biases are not served"},
        {TENSOR_CHANGE("blk.0.attn_q_norm.weight", ASSAY_F32, 16, 0), AS_ERR_UNSUPPORTED,
         "attn_q_norm", "norms of queries"},
        {TENSOR_CHANGE("rope_freqs.weight", ASSAY_F32, 9, 0), AS_ERR_DATA, "rope_freqs.weight",
         "expected 1 row of 8"},
        {TENSOR_CHANGE("rope_freqs.weight", ASSAY_F32, 8, 0), AS_ERR_DATA,
         "divides the angle of pair 0 by 0", "damaged"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect(&cases[i].change, cases[i].code, cases[i].first, cases[i].second);
}

/* A type that GGUF has and assay does not compute with is refused by name where the tensor is
 * needed, and does no harm where it is not. */
Test(model_llama, unserved_types)
{
    const struct change needed = TENSOR_CHANGE("blk.0.ffn_up.weight", ASSAY_I32, 64, 96);
    expect(&needed, AS_ERR_UNSUPPORTED, "type I32 of tensor blk.0.ffn_up.weight",
           "served: F32, F16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, BF16");
    const struct change spare = TENSOR_CHANGE("blk.0.attn_rot_embd.weight", ASSAY_I32, 64, 2);
    expect(&spare, 0, "", "");
}

/* Every served type opens in a matrix where its blocks fit the rows. */
Test(model_llama, served_types)
{
    static const enum assay_dtype dtypes[] = {ASSAY_F32,  ASSAY_F16,  ASSAY_BF16, ASSAY_Q8_0,
                                              ASSAY_Q4_0, ASSAY_Q4_1, ASSAY_Q5_0, ASSAY_Q5_1};
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        const struct change change = TENSOR_CHANGE("blk.1.ffn_down.weight", dtypes[i], 96, 64);
        struct as_model *model;
        struct as_error error = {0};
        void *image;
        cr_assert_eq(open_changed(&change, &model, &image, &error), 0, "%s", error.message);
        cr_assert_eq(model->layers[1].ffn_down->dtype, dtypes[i]);
        cr_assert_eq(model->layers[1].ffn_down->bytes, 64 * assay_row_bytes(dtypes[i], 96));
        as_model_close(model);
        free(image);
    }
}

Test(model_llama, unused_tensors_are_listed)
{
    static const struct change change = TENSOR_CHANGE("something.else", ASSAY_F32, 5, 7);
    struct as_model *model;
    struct as_error error = {0};
    void *image;
    cr_assert_eq(open_changed(&change, &model, &image, &error), 0, "%s", error.message);
    cr_assert_eq(model->unused_count, 1);
    const struct as_tensor *tensor = as_model_tensor(model, "something.else");
    cr_assert(tensor != NULL && !tensor->used && tensor->rows == 7 && tensor->columns == 5);
    as_model_close(model);
    free(image);
}

/* ---- C18 and the other fixtures ----------------------------------------------------------- */

static struct as_model *open_fixture(const char *name, size_t alignment, void **image)
{
    struct as_fixture fixture;
    struct as_model *model;
    struct as_error error = {0};
    size_t size;
    cr_assert(as_fixture_named(&fixture, name));
    fixture.alignment = alignment;
    cr_assert_eq(as_fixture_image(&fixture, image, &size, &error), 0, "%s", error.message);
    cr_assert_eq(as_model_open_bytes(*image, size, name, &model, &error), 0, "%s", error.message);
    return model;
}

Test(model_llama, c18_tied_and_untied)
{
    void *image;
    struct as_model *model = open_fixture("S", 32, &image);
    const float *output = model->output->data;
    cr_assert(!model->config.tied_output && model->output != model->token_embd);
    cr_assert_eq(output[(size_t)'D' * 288 + 'C'], 1.0f);
    as_model_close(model);
    free(image);
    model = open_fixture("S-tie", 32, &image);
    cr_assert(model->config.tied_output);
    cr_assert_eq(model->output, model->token_embd);
    as_model_close(model);
    free(image);
}

Test(model_llama, fixtures_at_any_alignment)
{
    static const char *const names[] = {"S", "S-tie", "S-utf8", "M"};
    for (size_t i = 0; i < 8; i++) {
        void *image;
        struct as_model *model = open_fixture(names[i / 2], i % 2 == 0 ? 8 : 64, &image);
        const float *norm = model->output_norm->data, *embedding = model->token_embd->data;
        const struct as_model_vocabulary *v = &model->vocabulary;
        cr_assert_eq((uintptr_t)model->token_embd->data % 8, 0);
        for (size_t j = 0; j < 288; j++)
            cr_assert_eq(norm[j], 1.0f);
        for (size_t t = 0; t < 258; t++)
            for (size_t j = 0; j < 288; j++)
                cr_assert_eq(embedding[t * 288 + j], t == j ? 1.0f : 0.0f);
        cr_assert(v->eos == 257 && v->bos == -1 && !v->add_bos && v->merge_count == 1);
        cr_assert_eq(v->types[257], AS_PIECE_CONTROL);
        cr_assert_eq(v->pieces['A'].bytes[0], 'A');
        cr_assert_eq(memcmp(v->pieces[' '].bytes, "\xc4\xa0", 2), 0);
        cr_assert_eq(memcmp(v->pieces[256].bytes, "\xc3\xbe\xc3\xbf", 4), 0);
        cr_assert_eq(memcmp(v->pieces[257].bytes, "<|end|>", 7), 0);
        as_model_close(model);
        free(image);
    }
}

Test(model_llama, paths)
{
    struct as_model *model;
    struct as_error error = {0};
    cr_assert_eq(as_model_open("/nonexistent/x.gguf", &model, &error), AS_ERR_IO);
    cr_assert_not_null(strstr(error.message, "/nonexistent/x.gguf"));
    as_error_clear(&error);
    cr_assert_eq(as_model_open("/", &model, &error), AS_ERR_DATA);
    cr_assert_not_null(strstr(error.message, "the folder has no config.json"));
    as_error_clear(&error);
    cr_assert_eq(as_model_open("/dev/null", &model, &error), AS_ERR_IO);
    cr_assert_not_null(strstr(error.message, "not a regular file"));
    cr_assert_null(model);
}
