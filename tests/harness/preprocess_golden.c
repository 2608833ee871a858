/* SmolLM2's own vocabulary, as the GGUF reader delivers it, against Hugging Face
 * (tests/golden/tokenizer/tokens.json and template.json). Skipped where the model is not there. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "as_random.h"
#include "preprocess/from_model.h"

#define MODEL ASSAY_SOURCE_DIR "/models/SmolLM2-135M-Instruct.Q4_1.gguf"
#define GOLDEN ASSAY_SOURCE_DIR "/tests/golden/tokenizer/"

static struct as_model *model;
static struct as_tokenizer *tokenizer;
static struct as_encoder *encoder;

static void set_up(void)
{
    struct as_error error = {0};
    cr_assert_eq(as_model_open(MODEL, &model, &error), 0, "%s", error.message);
    cr_assert_eq(as_tokenizer_from_model(model, &tokenizer, &error), 0, "%s", error.message);
    cr_assert_eq(as_encoder_create(tokenizer, &encoder, &error), 0, "%s", error.message);
}

static void tear_down(void)
{
    as_encoder_free(encoder);
    as_tokenizer_free(tokenizer);
    as_model_close(model);
}

TestSuite(preprocess_golden, .init = set_up, .fini = tear_down);

static json_t *load(const char *path)
{
    json_error_t place;
    json_t *golden = json_load_file(path, JSON_ALLOW_NUL, &place);
    cr_assert_not_null(golden, "%s", place.text);
    return golden;
}

static struct as_piece piece_of(const json_t *object, const char *key)
{
    const json_t *text = json_object_get(object, key);
    return (struct as_piece){json_string_value(text), json_string_length(text)};
}

static void expect_ids(struct as_piece text, unsigned flags, const json_t *expected)
{
    const int32_t *ids;
    size_t count;
    struct as_error error = {0};
    cr_assert_eq(as_encoder_encode(encoder, text.bytes, text.length, flags, &ids, &count, &error),
                 0, "%s", error.message);
    bool equal = count == json_array_size(expected);
    for (size_t i = 0; i < count && equal; i++)
        equal = ids[i] == json_integer_value(json_array_get(expected, i));
    cr_expect(equal, "\"%s\" differs", text.bytes);
}

static void expect_decoded(const json_t *ids, struct as_piece expected)
{
    struct as_decoder decoder;
    struct as_text text = {0};
    as_decoder_init(&decoder, tokenizer, true);
    for (size_t i = 0; i < json_array_size(ids); i++)
        cr_assert_eq(as_decoder_push(&decoder, (int32_t)json_integer_value(json_array_get(ids, i)),
                                     &text, NULL),
                     0);
    cr_assert_eq(as_decoder_flush(&decoder, &text, NULL), 0);
    cr_expect(text.length == expected.length &&
                  (text.length == 0 || memcmp(text.data, expected.bytes, text.length) == 0),
              "\"%s\" decodes to \"%s\"", expected.bytes, text.data);
    as_text_free(&text);
}

Test(preprocess_golden, tokens)
{
    json_t *golden = load(GOLDEN "tokens.json");
    const json_t *cases = json_object_get(golden, "cases");
    cr_assert_geq(json_array_size(cases), 300);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *test = json_array_get(cases, i), *ids = json_object_get(test, "ids");
        const json_t *plain = json_object_get(test, "plain");
        struct as_piece text = piece_of(test, "text");
        expect_ids(text, AS_ENCODE_PARSE_SPECIAL, ids);
        expect_ids(text, 0, plain == NULL ? ids : plain);
        /* This file adds no BOS. */
        expect_ids(text, AS_ENCODE_PARSE_SPECIAL | AS_ENCODE_ADD_SPECIAL, ids);
        expect_decoded(ids, piece_of(test, "decoded"));
    }
    json_decref(golden);
}

Test(preprocess_golden, chat)
{
    json_t *golden = load(GOLDEN "template.json");
    const json_t *cases = json_object_get(golden, "cases");
    const struct as_template *chat;
    struct as_error error = {0};
    cr_assert_eq(as_template_from_model(model, NULL, &chat, &error), 0, "%s", error.message);
    cr_expect_str_eq(as_template_name(chat), "smollm2");
    size_t checked = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *test = json_array_get(cases, i), *ids = json_object_get(test, "ids");
        if (ids != NULL)
            expect_ids(piece_of(test, "text"), AS_ENCODE_CHAT, ids);
        checked += ids != NULL;
    }
    cr_expect_geq(checked, 40);
    json_decref(golden);
}

Test(preprocess_golden, lookups)
{
    cr_expect_eq(as_tokenizer_count(tokenizer), 49152);
    cr_expect_eq(as_tokenizer_find(tokenizer, "<|im_end|>", 10), 2);
    cr_expect_eq(as_tokenizer_eos(tokenizer), 2);
    cr_expect(as_tokenizer_is_special(tokenizer, 16) && !as_tokenizer_is_special(tokenizer, 17));
}

Test(preprocess_golden, round_trip)
{
    int32_t *ids, drawn[64];
    size_t count;
    struct as_error error = {0};
    cr_assert_eq(as_tokenizer_round_trip(tokenizer, &ids, &count, &error), 0, "%s", error.message);
    cr_expect_geq(count, 10000);
    for (uint64_t list = 0; list < 500; list++) {
        struct as_decoder decoder;
        struct as_text text = {0};
        as_decoder_init(&decoder, tokenizer, true);
        for (uint64_t i = 0; i < 64; i++) {
            drawn[i] = ids[as_random_u64(3, list, i) % count];
            cr_assert_eq(as_decoder_push(&decoder, drawn[i], &text, NULL), 0);
        }
        const int32_t *again;
        size_t again_count;
        cr_assert_eq(as_encoder_encode(encoder, text.data, text.length, AS_ENCODE_PARSE_SPECIAL,
                                       &again, &again_count, NULL),
                     0);
        cr_assert(again_count == 64 && memcmp(again, drawn, sizeof drawn) == 0, "%s", text.data);
        as_text_free(&text);
    }
    free(ids);
}

int main(int argc, char **argv)
{
    if (access(MODEL, R_OK) != 0) {
        printf("skipped: %s is not there; ci/fetch-model.sh gets it\n", MODEL);
        return 77;
    }
    struct criterion_test_set *tests = criterion_initialize();
    int result = 0;
    if (criterion_handle_args(argc, argv, true))
        result = criterion_run_all_tests(tests) == 0;
    criterion_finalize(tests);
    return result;
}
