/* Chat templates against Jinja's renderings (tests/golden/tokenizer/template.json), and the
 * field case C10. */
#include "preprocess_fixture.h"

#include <jansson.h>

#include "preprocess/template.h"

#define MOST_MESSAGES 16

static json_t *load_golden(void)
{
    json_error_t place;
    json_t *golden = json_load_file(ASSAY_SOURCE_DIR "/tests/golden/tokenizer/template.json",
                                    JSON_ALLOW_NUL, &place);
    cr_assert_not_null(golden, "%s", place.text);
    return golden;
}

static struct as_piece piece_of(const json_t *object, const char *key)
{
    const json_t *text = json_object_get(object, key);
    return (struct as_piece){json_string_value(text), json_string_length(text)};
}

/* A vocabulary that only has BOS to give. */
static struct as_tokenizer *tokenizer_with_bos(const char *bos)
{
    const struct fixture_added added[] = {{bos, AS_TOKEN_CONTROL}};
    const struct fixture fixture = {.pre = "gpt2", .added = added, .added_count = 1, .bos = 256};
    return fixture_tokenizer(&fixture);
}

static void expect_rendering(const json_t *test, const json_t *templates)
{
    const json_t *from =
        json_array_get(templates, (size_t)json_integer_value(json_object_get(test, "template")));
    const json_t *list = json_object_get(test, "messages");
    struct as_message messages[MOST_MESSAGES];
    size_t count = json_array_size(list);
    cr_assert_leq(count, MOST_MESSAGES);
    for (size_t i = 0; i < count; i++)
        messages[i] = (struct as_message){piece_of(json_array_get(list, i), "role"),
                                          piece_of(json_array_get(list, i), "content")};
    struct as_tokenizer *tokenizer = tokenizer_with_bos(piece_of(from, "bos").bytes);
    const struct as_template *chat;
    struct as_error error = {0};
    struct as_text text = {0};
    struct as_piece source = piece_of(from, "source"), wanted = piece_of(test, "text");
    cr_assert_eq(as_template_find(&chat, source.bytes, source.length, NULL, &error), 0, "%s",
                 error.message);
    cr_expect_str_eq(as_template_name(chat), piece_of(from, "name").bytes);
    cr_assert_eq(as_template_render(chat, tokenizer, messages, count,
                                    json_is_true(json_object_get(test, "generation")), &text,
                                    &error),
                 0, "%s", error.message);
    cr_expect(text.length == wanted.length &&
                  (text.length == 0 || memcmp(text.data, wanted.bytes, text.length) == 0),
              "%s, %s: %s", as_template_name(chat), piece_of(test, "title").bytes, text.data);
    as_text_free(&text);
    as_tokenizer_free(tokenizer);
}

Test(preprocess_template, equal_to_jinja)
{
    json_t *golden = load_golden();
    const json_t *cases = json_object_get(golden, "cases");
    cr_assert_geq(json_array_size(cases), 200);
    for (size_t i = 0; i < json_array_size(cases); i++)
        expect_rendering(json_array_get(cases, i), json_object_get(golden, "templates"));
    json_decref(golden);
}

Test(preprocess_template, names)
{
    const struct as_template *chat;
    for (size_t i = 0; as_template_known(i) != NULL; i++) {
        cr_expect_eq(as_template_find(&chat, "ignored", 7, as_template_known(i), NULL), 0);
        cr_expect_str_eq(as_template_name(chat), as_template_known(i));
    }
}

static void expect_refused(const char *source, const char *name, int code, const char *says)
{
    const struct as_template *chat;
    struct as_error error = {0};
    size_t length = source == NULL ? 0 : strlen(source);
    cr_expect_eq(as_template_find(&chat, source, length, name, &error), code);
    cr_expect_null(chat);
    cr_expect_not_null(strstr(error.message, says), "%s", error.message);
}

Test(preprocess_template, unknown_ones_are_refused)
{
    expect_refused("{{ messages }}", NULL, AS_ERR_UNSUPPORTED, "--chat-template: smollm2, chatml");
    expect_refused("", NULL, AS_ERR_UNSUPPORTED,
                   "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    expect_refused(NULL, NULL, AS_ERR_UNSUPPORTED, "carries no chat template");
    expect_refused(NULL, "chatlm", AS_ERR_USAGE, "did you mean chatml?");
    expect_refused(NULL, "something else", AS_ERR_UNSUPPORTED, "smollm2, chatml");
}

Test(preprocess_template, text_that_is_not_utf8_is_refused)
{
    const struct as_template *chat;
    cr_assert_eq(as_template_find(&chat, NULL, 0, "chatml", NULL), 0);
    const struct as_message messages[] = {{PIECE("user"), PIECE("fine")},
                                          {PIECE("user"), PIECE("ab\xc3(")}};
    struct as_text text = {0};
    struct as_error error = {0};
    cr_expect_eq(as_template_render(chat, NULL, messages, 2, true, &text, &error), AS_ERR_DATA);
    cr_expect_not_null(strstr(error.message, "content of message 1"), "%s", error.message);
    cr_expect_not_null(strstr(error.message, "offset 2"), "%s", error.message);
    as_text_free(&text);
}

/* The template starts with BOS; the vocabulary adds one, or not. */
Test(preprocess_template, c10_bos_exactly_once)
{
    const struct fixture_added added[] = {{"<|begin_of_text|>", AS_TOKEN_CONTROL},
                                          {"<|start_header_id|>", AS_TOKEN_CONTROL},
                                          {"<|end_header_id|>", AS_TOKEN_CONTROL},
                                          {"<|eot_id|>", AS_TOKEN_CONTROL}};
    const int32_t expected[] = {256, 257, 'u', 's', 'e', 'r', 258, '\n', '\n', 'H', 'i',  259, 257,
                                'a', 's', 's', 'i', 's', 't', 'a', 'n',  't',  258, '\n', '\n'};
    const struct as_message message = {PIECE("user"), PIECE("Hi")};
    const struct as_template *chat;
    cr_assert_eq(as_template_find(&chat, NULL, 0, "llama-3", NULL), 0);
    for (int add_bos = 0; add_bos < 2; add_bos++) {
        const struct fixture fixture = {.pre = "llama-bpe",
                                        .added = added,
                                        .added_count = 4,
                                        .bos = 256,
                                        .add_bos = add_bos == 1,
                                        .add_eos = true};
        struct as_tokenizer *tokenizer = fixture_tokenizer(&fixture);
        struct as_encoder *encoder;
        struct as_error error = {0};
        const int32_t *ids;
        size_t count;
        cr_assert_eq(as_encoder_create(tokenizer, &encoder, NULL), 0);
        cr_assert_eq(
            as_template_encode(chat, tokenizer, encoder, &message, 1, true, &ids, &count, &error),
            0, "%s", error.message);
        expect_ids(ids, count, expected, sizeof expected / sizeof expected[0], "chat");
        as_encoder_free(encoder);
        as_tokenizer_free(tokenizer);
    }
}
