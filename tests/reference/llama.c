/* Whole models: tiny random ones against Hugging Face transformers, the fixtures S and M whose
 * texts are known, and what a faulty source does. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "as_random.h"
#include "reference.h"

/* --- tiny models: weights by the formula of tests/golden/logits/make.py --- */

static const char *const global_names[] = {"token_embd.weight", "output_norm.weight",
                                           "output.weight"};
static const char *const layer_names[] = {
    "attn_norm.weight",   "attn_q.weight",      "attn_k.weight",      "attn_v.weight",
    "attn_output.weight", "ffn_norm.weight",    "ffn_gate.weight",    "ffn_up.weight",
    "ffn_down.weight",    "attn_q_norm.weight", "attn_k_norm.weight", "attn_q.bias",
    "attn_k.bias",        "attn_v.bias"};

struct tiny {
    struct as_ref_llama model;
    uint64_t seed;
};

static int find_name(const char *const *names, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return (int)i;
    return -1;
}

/* The tensor's number in the formula, and its name without the layer; -1 where there is none. */
static int stream_of(const char *tensor, const char **name)
{
    int layer, used = 0;
    *name = tensor;
    if (sscanf(tensor, "blk.%d.%n", &layer, &used) == 1 && used > 0) {
        *name = tensor + used;
        int index = find_name(layer_names, sizeof layer_names / sizeof *layer_names, *name);
        return index < 0 ? -1 : 16 * (layer + 1) + index;
    }
    return find_name(global_names, 3, tensor);
}

static int64_t columns_of(const struct as_ref_llama *m, const char *name)
{
    if (strcmp(name, "attn_output.weight") == 0 || strcmp(name, "attn_q.bias") == 0)
        return m->heads * m->head_dim;
    if (strcmp(name, "attn_k.bias") == 0 || strcmp(name, "attn_v.bias") == 0)
        return m->kv_heads * m->head_dim;
    if (strcmp(name, "attn_q_norm.weight") == 0 || strcmp(name, "attn_k_norm.weight") == 0)
        return m->head_dim;
    return strcmp(name, "ffn_down.weight") == 0 ? m->ffn : m->hidden;
}

static int tiny_row(void *context, const char *tensor, int64_t row, const void **bytes, int *dtype,
                    int64_t *columns)
{
    static _Thread_local float values[256];
    const struct tiny *tiny = context;
    const char *name;
    int stream = stream_of(tensor, &name);
    if (stream < 0)
        return AS_ERR_DATA;
    *columns = columns_of(&tiny->model, name);
    *dtype = AS_REF_F32;
    *bytes = values;
    bool norm = strstr(name, "norm") != NULL, bias = strstr(name, "bias") != NULL;
    for (int64_t i = 0; i < *columns; i++) {
        double u = as_random_unit(tiny->seed, (uint64_t)stream, (uint64_t)(row * *columns + i));
        double amplitude = bias ? 1 : 2 / sqrt((double)*columns);
        values[i] = (float)(norm ? 0.5 + u : (2 * u - 1) * amplitude);
    }
    return 0;
}

static int64_t integer(const json_t *entry, const char *member)
{
    return json_integer_value(json_object_get(entry, member));
}

static bool flag(const json_t *entry, const char *member)
{
    return json_is_true(json_object_get(entry, member));
}

static struct tiny read_tiny(const json_t *entry)
{
    struct tiny tiny = {.seed = (uint64_t)integer(entry, "seed")};
    const char *pairing = json_string_value(json_object_get(entry, "pairing"));
    tiny.model = (struct as_ref_llama){
        .vocabulary = integer(entry, "vocabulary"),
        .layers = integer(entry, "layers"),
        .hidden = integer(entry, "hidden"),
        .heads = integer(entry, "heads"),
        .kv_heads = integer(entry, "kv_heads"),
        .head_dim = integer(entry, "head_dim"),
        .ffn = integer(entry, "ffn"),
        .rms_epsilon = json_number_value(json_object_get(entry, "rms_epsilon")),
        .rope = {.pairing = strcmp(pairing, "adjacent") == 0 ? AS_REF_ADJACENT : AS_REF_HALVES,
                 .theta = json_number_value(json_object_get(entry, "rope_theta")),
                 .dims = integer(entry, "head_dim")},
        .tied_output = flag(entry, "tied_output"),
        .qkv_bias = flag(entry, "qkv_bias"),
        .qk_norm = flag(entry, "qk_norm"),
    };
    return tiny;
}

static void check_tiny(const json_t *entry, int threads)
{
    struct tiny tiny = read_tiny(entry);
    tiny.model.threads = threads;
    const json_t *list = json_object_get(entry, "tokens");
    const json_t *wanted = json_object_get(entry, "logits");
    int64_t count = (int64_t)json_array_size(list), vocabulary = tiny.model.vocabulary;
    int32_t tokens[32];
    for (int64_t t = 0; t < count; t++)
        tokens[t] = (int32_t)json_integer_value(json_array_get(list, (size_t)t));
    struct as_ref_source source = {.row = tiny_row, .context = &tiny};
    struct as_error error = {0};
    double *logits = calloc((size_t)(count * vocabulary), sizeof *logits), worst = 0;
    cr_assert_eq(as_ref_llama_logits(&tiny.model, &source, tokens, count, 0, logits, &error), 0,
                 "%s", error.message);
    for (int64_t i = 0; i < count * vocabulary; i++)
        worst = fmax(worst, fabs(logits[i] - json_number_value(json_array_get(wanted, (size_t)i))));
    cr_assert_lt(worst, 1e-10, "%s: %g away from transformers",
                 json_string_value(json_object_get(entry, "name")), worst);

    double *last = calloc((size_t)(2 * vocabulary), sizeof *last);
    cr_assert_eq(as_ref_llama_logits(&tiny.model, &source, tokens, count, count - 2, last, &error),
                 0);
    cr_assert_eq(
        memcmp(last, logits + (count - 2) * vocabulary, (size_t)(2 * vocabulary) * sizeof *last),
        0);
    free(last);
    free(logits);
}

Test(llama, tiny_models_agree_with_transformers)
{
    json_error_t error;
    json_t *golden = json_load_file(ASSAY_SOURCE_DIR "/tests/golden/logits/tiny.json", 0, &error);
    cr_assert(golden != NULL, "tiny.json: %s", error.text);
    const json_t *models = json_object_get(golden, "models");
    cr_assert_eq(json_array_size(models), 4);
    size_t index;
    json_t *entry;
    json_array_foreach(models, index, entry)
    {
        check_tiny(entry, 1);
        check_tiny(entry, 3);
    }
    json_decref(golden);
}

/* --- fixtures S (successor) and M (majority) of the field cases --- */

enum fixture_kind { SUCCESSOR, SUCCESSOR_TIED, MAJORITY };

struct fixture {
    enum fixture_kind kind;
    struct as_ref_llama model;
};

/* Where a row of a matrix is not zero: at most one place. */
static void fixture_entry(const struct fixture *fixture, const char *tensor, int64_t row,
                          int64_t *place, float *value)
{
    bool majority = fixture->kind == MAJORITY;
    *place = -1;
    *value = 1;
    if (strcmp(tensor, "token_embd.weight") == 0 ||
        (majority && strcmp(tensor, "output.weight") == 0)) {
        *place = row;
    } else if (strcmp(tensor, "output.weight") == 0 && row < 256) {
        *place = (row + 255) % 256; /* the token before this one */
    } else if (majority && strcmp(tensor, "blk.0.attn_v.weight") == 0 && row < 96) {
        *place = 32 + row;
    } else if (majority && strcmp(tensor, "blk.0.attn_output.weight") == 0 && row >= 32 &&
               row < 128) {
        *place = 96 * ((row - 32) / 32) + (row - 32) % 32;
        *value = 1000;
    }
}

static int fixture_row(void *context, const char *tensor, int64_t row, const void **bytes,
                       int *dtype, int64_t *columns)
{
    static float values[288];
    const struct fixture *fixture = context;
    bool norm = strstr(tensor, "norm") != NULL;
    *columns = strstr(tensor, "ffn_down") != NULL ? 32 : 288;
    *dtype = AS_REF_F32;
    *bytes = values;
    for (int64_t i = 0; i < *columns; i++)
        values[i] = norm ? 1 : 0;
    int64_t place;
    float value;
    fixture_entry(fixture, tensor, row, &place, &value);
    if (!norm && place >= 0)
        values[place] = value;
    return 0;
}

/* Greedy continuation of `prompt`, whole context anew for each token. */
static void expect_text(enum fixture_kind kind, const char *prompt, const char *wanted)
{
    struct fixture fixture = {
        .kind = kind,
        .model = {.vocabulary = 258,
                  .layers = 1,
                  .hidden = 288,
                  .heads = 9,
                  .kv_heads = 3,
                  .head_dim = 32,
                  .ffn = 32,
                  .rms_epsilon = 1e-5,
                  .rope = {.pairing = AS_REF_ADJACENT, .theta = 10000, .dims = 32},
                  .tied_output = kind == SUCCESSOR_TIED}};
    struct as_ref_source source = {.row = fixture_row, .context = &fixture};
    struct as_error error = {0};
    int32_t tokens[300];
    int64_t count = 0;
    for (const char *c = prompt; *c != 0; c++)
        tokens[count++] = (unsigned char)*c;
    for (const char *c = wanted; *c != 0; c++) {
        double logits[258];
        int status =
            as_ref_llama_logits(&fixture.model, &source, tokens, count, count - 1, logits, &error);
        cr_assert_eq(status, 0, "%s", error.message);
        struct as_ref_top top = as_ref_argmax(logits, 258);
        cr_assert_eq(top.id, (unsigned char)*c, "%.8s...: %d, want %c", prompt, (int)top.id, *c);
        if (kind == SUCCESSOR) /* 1 / sqrt(1/288 + 1e-5) */
            cr_assert(fabs(top.logit - 1 / sqrt(1.0 / 288 + 1e-5)) < 1e-12 &&
                      top.margin == top.logit);
        tokens[count++] = (int32_t)top.id;
    }
}

/* `a` times c, then `b` times d. */
static const char *runs(int a, char c, int b, char d)
{
    static char text[300];
    memset(text, c, (size_t)a);
    memset(text + a, d, (size_t)b);
    text[a + b] = 0;
    return text;
}

Test(llama, successor_gives_its_chain)
{
    expect_text(SUCCESSOR, "ABC", "DEFGH");
    expect_text(SUCCESSOR_TIED, "ABC", "CCCC");
}

Test(llama, majority_gives_the_most_frequent_byte)
{
    expect_text(MAJORITY, runs(9, 'A', 8, 'b'), "AAA");
    expect_text(MAJORITY, runs(9, 'b', 8, '!'), "bbb");
    expect_text(MAJORITY, runs(9, '!', 8, 'A'), "!!!");
    expect_text(MAJORITY, runs(8, 'A', 8, 'b'), "bbb");
    expect_text(MAJORITY, runs(129, 'A', 128, 'b'), "AAA");
}

/* --- wrong use and faulty sources --- */

static int short_row(void *context, const char *tensor, int64_t row, const void **bytes, int *dtype,
                     int64_t *columns)
{
    int status = fixture_row(context, tensor, row, bytes, dtype, columns);
    if (strcmp(tensor, "blk.0.ffn_up.weight") == 0 && row == 31)
        *columns = 64;
    return status;
}

static int missing_row(void *context, const char *tensor, int64_t row, const void **bytes,
                       int *dtype, int64_t *columns)
{
    int status = fixture_row(context, tensor, row, bytes, dtype, columns);
    return strcmp(tensor, "blk.0.attn_k.weight") == 0 ? AS_ERR_IO : status;
}

static int unknown_dtype_row(void *context, const char *tensor, int64_t row, const void **bytes,
                             int *dtype, int64_t *columns)
{
    int status = fixture_row(context, tensor, row, bytes, dtype, columns);
    *dtype = 99;
    return status;
}

Test(llama, faults_are_told_and_not_computed)
{
    struct fixture fixture = {.kind = SUCCESSOR,
                              .model = {.vocabulary = 258,
                                        .layers = 1,
                                        .hidden = 288,
                                        .heads = 9,
                                        .kv_heads = 3,
                                        .head_dim = 32,
                                        .ffn = 32,
                                        .rms_epsilon = 1e-5,
                                        .rope = {.theta = 10000, .dims = 32}}};
    const struct as_ref_llama good = fixture.model;
    struct as_ref_llama *model = &fixture.model;
    struct as_ref_source source = {.row = short_row, .context = &fixture};
    int32_t tokens[] = {65, 66};
    static double logits[2 * 258];
    struct as_error error = {0};
    cr_assert_eq(as_ref_llama_logits(model, &source, tokens, 2, 0, logits, &error), AS_ERR_DATA);
    cr_assert(strstr(error.message, "row 31 of tensor \"blk.0.ffn_up.weight\" has 64"), "%s",
              error.message);
    as_error_clear(&error);
    model->threads = 2;
    cr_assert_eq(as_ref_llama_logits(model, &source, tokens, 2, 0, logits, &error), AS_ERR_DATA);
    as_error_clear(&error);
    model->threads = 1;
    source.row = missing_row;
    cr_assert_eq(as_ref_llama_logits(model, &source, tokens, 2, 0, logits, &error), AS_ERR_IO);
    as_error_clear(&error);
    source.row = unknown_dtype_row;
    cr_assert_eq(as_ref_llama_logits(model, &source, tokens, 2, 0, logits, &error),
                 AS_ERR_UNSUPPORTED);
    as_error_clear(&error);

    source.row = fixture_row;
    tokens[1] = 258;
    cr_assert_eq(as_ref_llama_logits(model, &source, tokens, 2, 0, logits, &error), AS_ERR_DATA);
    cr_assert(strstr(error.message, "token 258 at position 1"), "%s", error.message);
    as_error_clear(&error);
    tokens[1] = 66;
    cr_assert_eq(as_ref_llama_logits(model, &source, tokens, 2, 3, logits, &error), AS_ERR_USAGE);
    cr_assert_eq(as_ref_llama_logits(model, &source, tokens, 2, 2, logits, NULL), 0);
    cr_assert_eq(as_ref_llama_logits(model, &source, tokens, 0, 0, logits, NULL), 0);
    model->kv_heads = 4;
    cr_assert_eq(as_ref_llama_logits(model, &source, tokens, 2, 0, logits, NULL), AS_ERR_USAGE);
    *model = good;
    model->rope.dims = 33;
    cr_assert_eq(as_ref_llama_logits(model, &source, tokens, 2, 0, logits, NULL), AS_ERR_USAGE);
    *model = good;
    model->kv_dtype = AS_REF_Q4_1;
    cr_assert_eq(as_ref_llama_logits(model, &source, tokens, 2, 0, logits, NULL),
                 AS_ERR_UNSUPPORTED);
}

/* A coarser cache changes the logits, by about its step. With a single token attention gives the
 * value's row whatever the key, so values alone are then seen. */
Test(llama, the_cache_keeps_what_its_dtype_keeps)
{
    struct tiny tiny = {.seed = 9,
                        .model = {.vocabulary = 96,
                                  .layers = 2,
                                  .hidden = 64,
                                  .heads = 4,
                                  .kv_heads = 2,
                                  .head_dim = 32,
                                  .ffn = 112,
                                  .rms_epsilon = 1e-5,
                                  .rope = {.pairing = AS_REF_HALVES, .theta = 10000, .dims = 32}}};
    struct as_ref_source source = {.row = tiny_row, .context = &tiny};
    const int32_t tokens[] = {5, 17, 80, 3, 41, 41, 9, 60};
    static double exact[96], rounded[96], single[96];
    cr_assert_eq(as_ref_llama_logits(&tiny.model, &source, tokens, 8, 7, exact, NULL), 0);
    const int dtypes[] = {AS_REF_F16, AS_REF_BF16, AS_REF_Q8_0};
    double least[] = {1e-6, 1e-4, 1e-4}, most[] = {1e-2, 1e-1, 1e-1};
    for (int i = 0; i < 3; i++) {
        tiny.model.kv_dtype = dtypes[i];
        cr_assert_eq(as_ref_llama_logits(&tiny.model, &source, tokens, 8, 7, rounded, NULL), 0);
        double worst = 0;
        for (int t = 0; t < 96; t++)
            worst = fmax(worst, fabs(rounded[t] - exact[t]));
        cr_assert(worst > least[i] && worst < most[i], "%s: %g", as_ref_dtype_name(dtypes[i]),
                  worst);
        cr_assert_eq(as_ref_llama_logits(&tiny.model, &source, tokens, 1, 0, rounded, NULL), 0);
        tiny.model.kv_dtype = AS_REF_F32;
        cr_assert_eq(as_ref_llama_logits(&tiny.model, &source, tokens, 1, 0, single, NULL), 0);
        cr_assert_gt(fabs(rounded[0] - single[0]), least[i] / 100);
    }
}
