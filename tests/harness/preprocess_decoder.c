/* Decoding token by token: only whole characters leave, nothing is lost. */
#include "preprocess_fixture.h"

#include "as_random.h"
#include "preprocess/utf8.h"

#define REPLACEMENT "\xef\xbf\xbd"

static struct as_tokenizer *bytes_and_end(void)
{
    static const struct fixture_added added[] = {{"<|end|>", AS_TOKEN_CONTROL},
                                                 {"\xc3\xa9 <b>", AS_TOKEN_USER_DEFINED}};
    const struct fixture fixture = {.pre = "gpt2", .added = added, .added_count = 2};
    return fixture_tokenizer(&fixture);
}

static void expect_stream(const int32_t *ids, size_t count, const char *const *steps,
                          const char *flushed)
{
    struct as_tokenizer *tokenizer = bytes_and_end();
    struct as_decoder decoder;
    as_decoder_init(&decoder, tokenizer, false);
    for (size_t i = 0; i <= count; i++) {
        struct as_text text = {0};
        const char *wanted = i < count ? steps[i] : flushed;
        cr_assert_eq(i < count ? as_decoder_push(&decoder, ids[i], &text, NULL)
                               : as_decoder_flush(&decoder, &text, NULL),
                     0);
        cr_expect_str_eq(text.data == NULL ? "" : text.data, wanted, "step %zu", i);
        as_text_free(&text);
    }
    as_tokenizer_free(tokenizer);
}

Test(preprocess_decoder, holds_back_what_is_not_whole)
{
    const int32_t ids[] = {'x', 0xf0, 0x9f, 0xa6, 0x99, 'b', 256, 'c', 0xc3, 256, 0xa9};
    const char *const steps[] = {"x", "",  "", "", "\xf0\x9f\xa6\x99", "b",
                                 "",  "c", "", "", "\xc3\xa9"};
    expect_stream(ids, sizeof ids / sizeof ids[0], steps, "");
}

Test(preprocess_decoder, replaces_what_can_be_none)
{
    const int32_t ids[] = {0xff, 0x80, 0xe2, 0x82, 'a', 0xe0, 0x80, 0xed, 0xa0, 0xf0, 0x9f};
    const char *const steps[] = {REPLACEMENT,
                                 REPLACEMENT,
                                 "",
                                 "",
                                 REPLACEMENT "a",
                                 "",
                                 REPLACEMENT REPLACEMENT,
                                 "",
                                 REPLACEMENT REPLACEMENT,
                                 "",
                                 ""};
    expect_stream(ids, sizeof ids / sizeof ids[0], steps, REPLACEMENT);
}

Test(preprocess_decoder, a_piece_may_end_a_character_and_go_on)
{
    const int32_t ids[] = {0xc3, 257};
    const char *const steps[] = {"", REPLACEMENT "\xc3\xa9 <b>"};
    expect_stream(ids, 2, steps, "");
}

Test(preprocess_decoder, special_tokens_by_choice)
{
    struct as_tokenizer *tokenizer = bytes_and_end();
    struct as_decoder decoder;
    struct as_text text = {0};
    struct as_error error = {0};
    as_decoder_init(&decoder, tokenizer, true);
    cr_expect_eq(as_decoder_push(&decoder, 256, &text, &error), 0);
    cr_expect_str_eq(text.data, "<|end|>");
    cr_expect_eq(as_decoder_push(&decoder, 258, &text, &error), AS_ERR_DATA);
    cr_expect_not_null(strstr(error.message, "258"));
    cr_expect_eq(as_decoder_push(&decoder, -1, &text, NULL), AS_ERR_DATA);
    as_text_free(&text);
    as_tokenizer_free(tokenizer);
}

/* Whatever comes in, each step adds whole characters; and valid text passes unchanged. */
Test(preprocess_decoder, random_bytes)
{
    struct as_tokenizer *tokenizer = bytes_and_end();
    for (uint64_t round = 0; round < 2000; round++) {
        struct as_decoder decoder;
        struct as_text text = {0};
        as_decoder_init(&decoder, tokenizer, false);
        for (uint64_t i = 0; i < 30; i++) {
            uint64_t draw = as_random_u64(5, round, i);
            int32_t byte = (int32_t)(draw % 3 == 0 ? draw >> 8 & 0x7f : draw >> 8 & 0xff);
            cr_assert_eq(as_decoder_push(&decoder, byte, &text, NULL), 0);
            cr_assert_eq(as_utf8_check(text.data, text.length), text.length);
            cr_assert_lt(decoder.held_length, 4);
        }
        cr_assert_eq(as_decoder_flush(&decoder, &text, NULL), 0);
        cr_assert_eq(as_utf8_check(text.data, text.length), text.length);
        struct as_text again = {0};
        for (size_t i = 0; i < text.length; i++)
            as_decoder_push(&decoder, (unsigned char)text.data[i], &again, NULL);
        cr_assert_eq(as_decoder_flush(&decoder, &again, NULL), 0);
        cr_assert(again.length == text.length && memcmp(again.data, text.data, text.length) == 0);
        as_text_free(&text);
        as_text_free(&again);
    }
    as_tokenizer_free(tokenizer);
}
