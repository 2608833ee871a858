/* Byte-level BPE against the field cases C02, C04, C06 and C10, on vocabularies built here. */
#include "preprocess_fixture.h"

#include "as_random.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

Test(preprocess_tokenizer, c02_white_space_is_unicode)
{
    const struct fixture_merge merges[] = {{PIECE(" "), PIECE("\xe3")},
                                           {PIECE("!"), PIECE("\xc2")}};
    for (size_t i = 0; as_tokenizer_kind(i) != NULL; i++) {
        const struct fixture fixture = {
            .pre = as_tokenizer_kind(i), .merges = merges, .merge_count = COUNT(merges)};
        struct as_tokenizer *tokenizer = fixture_tokenizer(&fixture);
        EXPECT_IDS(tokenizer,
                   "a \xe3\x80\x80"
                   "b",
                   0, 97, 32, 227, 128, 128, 98);
        EXPECT_IDS(tokenizer, "!\xc2\x85", 0, 33, 194, 133);
        as_tokenizer_free(tokenizer);
    }
}

static char *repeat(const char *text, size_t times, const char *tail, size_t *length)
{
    size_t one = strlen(text);
    *length = one * times + strlen(tail);
    char *made = malloc(*length + 1);
    cr_assert_not_null(made);
    for (size_t i = 0; i < times; i++)
        memcpy(made + i * one, text, one);
    memcpy(made + one * times, tail, strlen(tail) + 1);
    return made;
}

static void expect_run(const struct as_tokenizer *tokenizer, const char *text, size_t times,
                       const char *tail, int32_t id, size_t count, int32_t last)
{
    size_t length, found;
    char *input = repeat(text, times, tail, &length);
    int32_t *ids;
    struct as_error error = {0};
    cr_assert_eq(as_tokenizer_encode(tokenizer, input, length, 0, &ids, &found, &error), 0, "%s",
                 error.message);
    cr_assert_eq(found, count, "%s: %zu ids", tokenizer == NULL ? "" : text, found);
    for (size_t i = 0; i + 1 < found; i++)
        cr_assert_eq(ids[i], id, "id %zu is %d", i, (int)ids[i]);
    cr_assert_eq(ids[found - 1], last);
    free(ids);
    free(input);
}

Test(preprocess_tokenizer, c04_very_long_runs)
{
    const struct fixture_merge merges[] = {{PIECE("x"), PIECE("x")}, {PIECE("xx"), PIECE("xx")}};
    for (size_t i = 0; as_tokenizer_kind(i) != NULL; i++) {
        const struct fixture fixture = {
            .pre = as_tokenizer_kind(i), .merges = merges, .merge_count = COUNT(merges)};
        struct as_tokenizer *tokenizer = fixture_tokenizer(&fixture);
        expect_run(tokenizer, "x", 1048576, "", 257, 262144, 257);
        expect_run(tokenizer, "x", 1048577, "", 257, 262145, 'x');
        expect_run(tokenizer, "^", 1000000, "", 94, 1000000, 94);
        expect_run(tokenizer, " ", 1000000, "a", 32, 1000001, 'a');
        expect_run(tokenizer, "\n", 1000000, "a", 10, 1000001, 'a');
        expect_run(tokenizer, " ", 1000000, "\n", 32, 1000001, '\n');
        expect_run(tokenizer, "'", 1000000, "s", '\'', 1000001, 's');
        as_tokenizer_free(tokenizer);
    }
}

/* One line of base64 of 1 MiB: no byte is lost, and what merges are there take place. */
Test(preprocess_tokenizer, c04_base64)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const struct fixture_merge merges[] = {{PIECE("A"), PIECE("B")}, {PIECE("AB"), PIECE("C")}};
    const struct fixture fixture = {
        .pre = "smollm", .merges = merges, .merge_count = COUNT(merges)};
    struct as_tokenizer *tokenizer = fixture_tokenizer(&fixture);
    size_t length = 1 << 20, count, at = 0;
    char *text = malloc(length);
    cr_assert_not_null(text);
    for (size_t i = 0; i < length; i++)
        text[i] = digits[as_random_u64(4, 0, i) % 64];
    int32_t *ids;
    struct as_error error = {0};
    cr_assert_eq(as_tokenizer_encode(tokenizer, text, length, 0, &ids, &count, &error), 0, "%s",
                 error.message);
    for (size_t i = 0; i < count; i++) {
        struct as_piece piece = as_tokenizer_piece(tokenizer, ids[i]);
        cr_assert(at + piece.length <= length && memcmp(text + at, piece.bytes, piece.length) == 0);
        bool mergeable = at + 1 < length && memcmp(text + at, "AB", 2) == 0;
        cr_assert_eq(piece.length > 1, mergeable);
        at += piece.length;
    }
    cr_assert_eq(at, length);
    free(ids);
    free(text);
    as_tokenizer_free(tokenizer);
}

Test(preprocess_tokenizer, c06_leftmost_then_longest)
{
    const struct fixture_merge merges[] = {{PIECE("a"), PIECE("b")}};
    const struct fixture_added orders[2][2] = {
        {{"<image>", AS_TOKEN_USER_DEFINED}, {"<image>tail", AS_TOKEN_USER_DEFINED}},
        {{"<image>tail", AS_TOKEN_USER_DEFINED}, {"<image>", AS_TOKEN_USER_DEFINED}}};
    for (int32_t order = 0; order < 2; order++) {
        const struct fixture fixture = {.pre = "gpt2",
                                        .merges = merges,
                                        .merge_count = 1,
                                        .added = orders[order],
                                        .added_count = 2};
        struct as_tokenizer *tokenizer = fixture_tokenizer(&fixture);
        int32_t plain = 257 + order, tail = 258 - order;
        EXPECT_IDS(tokenizer, "x<image>tail y<image>ta", 0, 120, tail, 32, 121, plain, 116, 97);
        EXPECT_IDS(tokenizer, "x<image>tail y<image>ta", AS_ENCODE_PARSE_SPECIAL, 120, tail, 32,
                   121, plain, 116, 97);
        as_tokenizer_free(tokenizer);
    }
}

Test(preprocess_tokenizer, special_tokens_only_where_asked)
{
    const struct fixture_merge merges[] = {{PIECE("<"), PIECE("|")}};
    const struct fixture_added added[] = {{"<|end|>", AS_TOKEN_CONTROL},
                                          {"|>", AS_TOKEN_USER_DEFINED}};
    const struct fixture fixture = {
        .pre = "gpt2", .merges = merges, .merge_count = 1, .added = added, .added_count = 2};
    struct as_tokenizer *tokenizer = fixture_tokenizer(&fixture);
    EXPECT_IDS(tokenizer, "a<|end|>", AS_ENCODE_PARSE_SPECIAL, 97, 257);
    /* The match stays the special token's, and then counts as text: the |> inside is not looked
     * for again, as in Hugging Face's encode_special_tokens. */
    EXPECT_IDS(tokenizer, "a<|end|>|>", 0, 97, 256, 'e', 'n', 'd', '|', '>', 258);
    cr_expect_eq(as_tokenizer_find(tokenizer, "<|end|>", 7), 257);
    cr_expect(as_tokenizer_is_special(tokenizer, 257));
    cr_expect_not(as_tokenizer_is_special(tokenizer, 258));
    cr_expect_not(as_tokenizer_is_special(tokenizer, -1));
    cr_expect_null(as_tokenizer_piece(tokenizer, 259).bytes);
    as_tokenizer_free(tokenizer);
}

Test(preprocess_tokenizer, c10_completions_get_bos_once_or_never)
{
    const struct fixture_added added[] = {{"<s>", AS_TOKEN_CONTROL}, {"</s>", AS_TOKEN_CONTROL}};
    for (int add_bos = 0; add_bos < 2; add_bos++) {
        const struct fixture fixture = {.pre = "gpt2",
                                        .added = added,
                                        .added_count = 2,
                                        .bos = 256,
                                        .add_bos = add_bos == 1,
                                        .add_eos = true};
        struct as_tokenizer *tokenizer = fixture_tokenizer(&fixture);
        EXPECT_IDS(tokenizer, "Hi", 0, 'H', 'i');
        EXPECT_IDS(tokenizer, "<s>Hi", AS_ENCODE_PARSE_SPECIAL, 256, 'H', 'i');
        if (add_bos) {
            EXPECT_IDS(tokenizer, "Hi", AS_ENCODE_ADD_SPECIAL, 256, 'H', 'i', 257);
            EXPECT_IDS(tokenizer, "<s>Hi", AS_ENCODE_CHAT, 256, 'H', 'i');
            EXPECT_IDS(tokenizer, "Hi", AS_ENCODE_CHAT, 256, 'H', 'i');
            EXPECT_IDS(tokenizer, "", AS_ENCODE_ADD_BOS, 256);
        } else {
            EXPECT_IDS(tokenizer, "Hi", AS_ENCODE_ADD_SPECIAL, 'H', 'i', 257);
            EXPECT_IDS(tokenizer, "<s>Hi", AS_ENCODE_CHAT, 256, 'H', 'i');
            EXPECT_IDS(tokenizer, "Hi", AS_ENCODE_CHAT, 'H', 'i');
        }
        as_tokenizer_free(tokenizer);
    }
}

Test(preprocess_tokenizer, merges_by_rank_then_leftmost)
{
    const struct fixture_merge merges[] = {{PIECE("b"), PIECE("c")},
                                           {PIECE("a"), PIECE("b")},
                                           {PIECE("a"), PIECE("a")},
                                           {PIECE("ab"), PIECE("c")},
                                           {PIECE("a"), PIECE("bc")}};
    const struct fixture fixture = {.pre = "gpt2", .merges = merges, .merge_count = COUNT(merges)};
    struct as_tokenizer *tokenizer = fixture_tokenizer(&fixture);
    /* Ids follow the merges; the piece "abc" stands twice and its first id counts. */
    EXPECT_IDS(tokenizer, "abc", 0, 259);
    EXPECT_IDS(tokenizer, "aaa", 0, 258, 'a');
    EXPECT_IDS(tokenizer, "aab", 0, 'a', 257);
    EXPECT_IDS(tokenizer, "abab bc", 0, 257, 257, ' ', 256);
    as_tokenizer_free(tokenizer);
}

Test(preprocess_tokenizer, a_repeated_merge_takes_its_last_rank)
{
    const struct fixture_merge merges[] = {
        {PIECE("a"), PIECE("b")}, {PIECE("b"), PIECE("c")}, {PIECE("a"), PIECE("b")}};
    const struct fixture fixture = {.pre = "gpt2", .merges = merges, .merge_count = COUNT(merges)};
    struct as_tokenizer *tokenizer = fixture_tokenizer(&fixture);
    EXPECT_IDS(tokenizer, "abc", 0, 'a', 257);
    as_tokenizer_free(tokenizer);
}

Test(preprocess_tokenizer, whole_words_before_merges)
{
    const struct fixture_merge merges[] = {{PIECE("b"), PIECE("c")}, {PIECE("a"), PIECE("b")}};
    const struct fixture fixture = {.pre = "llama-bpe", .merges = merges, .merge_count = 2};
    struct as_vocabulary shorter = fixture_vocabulary(&fixture), vocabulary = shorter;
    struct as_piece pieces[259];
    memcpy(pieces, shorter.pieces, 258 * sizeof *pieces);
    pieces[258] = PIECE("abc");
    vocabulary.pieces = pieces;
    vocabulary.count = 259;
    vocabulary.types = NULL;
    struct as_tokenizer *tokenizer;
    cr_assert_eq(as_tokenizer_create(&vocabulary, &tokenizer, NULL), 0);
    fixture_free(&shorter);
    EXPECT_IDS(tokenizer, "abc", 0, 258);
    EXPECT_IDS(tokenizer, "abcd", 0, 'a', 256, 'd');
    EXPECT_IDS(tokenizer, "1234abc", 0, '1', '2', '3', '4', 258);
    as_tokenizer_free(tokenizer);
}

/* Such bytes vanish in Hugging Face too where the model has no unknown token. */
Test(preprocess_tokenizer, bytes_without_a_piece_are_dropped)
{
    const struct fixture fixture = {.pre = "gpt2"};
    struct as_vocabulary whole = fixture_vocabulary(&fixture), vocabulary = whole;
    struct as_piece pieces[256];
    memcpy(pieces, whole.pieces, sizeof pieces);
    pieces[4] = PIECE("unreachable");
    vocabulary.pieces = pieces;
    struct as_tokenizer *tokenizer;
    cr_assert_eq(as_tokenizer_create(&vocabulary, &tokenizer, NULL), 0);
    fixture_free(&whole);
    EXPECT_IDS(tokenizer,
               "a\x04\x04"
               "b",
               0, 'a', 'b');
    expect_encoded(tokenizer, "\x04", 1, 0, NULL, 0);
    as_tokenizer_free(tokenizer);
}

Test(preprocess_tokenizer, nul_is_a_byte_like_others)
{
    const struct fixture fixture = {.pre = "gpt2"};
    struct as_tokenizer *tokenizer = fixture_tokenizer(&fixture);
    const int32_t expected[] = {'a', 0, 'b'};
    expect_encoded(tokenizer, "a\0b", 3, 0, expected, 3);
    expect_encoded(tokenizer, "", 0, 0, NULL, 0);
    expect_encoded(tokenizer, NULL, 0, 0, NULL, 0);
    as_tokenizer_free(tokenizer);
}

Test(preprocess_tokenizer, invalid_utf8_is_refused_with_its_offset)
{
    const struct {
        const char *text;
        const char *offset;
    } bad[] = {{"abc\xff", "offset 3"},          {"\x80", "offset 0"},
               {"12345678\xc3(", "offset 8"},    {"a\xe2\x82", "offset 1"},
               {"\xc0\x80", "offset 0"},         {"\xe0\x9f\xbf", "offset 0"},
               {"\xed\xa0\x80", "offset 0"},     {"\xf0\x8f\xbf\xbf", "offset 0"},
               {"\xf4\x90\x80\x80", "offset 0"}, {"\xc3\xa9\xf5", "offset 2"}};
    const struct fixture fixture = {.pre = "gpt2"};
    struct as_tokenizer *tokenizer = fixture_tokenizer(&fixture);
    for (size_t i = 0; i < COUNT(bad); i++) {
        int32_t *ids;
        size_t count;
        struct as_error error = {0};
        int code = as_tokenizer_encode(tokenizer, bad[i].text, strlen(bad[i].text), 0, &ids, &count,
                                       &error);
        cr_expect_eq(code, AS_ERR_DATA);
        cr_expect_null(ids);
        cr_expect_not_null(strstr(error.message, bad[i].offset), "%zu: %s", i, error.message);
    }
    as_tokenizer_free(tokenizer);
}

static void expect_refused(const struct as_vocabulary *vocabulary, int code, const char *says)
{
    struct as_tokenizer *tokenizer;
    struct as_error error = {0};
    cr_expect_eq(as_tokenizer_create(vocabulary, &tokenizer, &error), code);
    cr_expect_null(tokenizer);
    cr_expect_not_null(strstr(error.message, says), "%s", error.message);
}

Test(preprocess_tokenizer, broken_vocabularies_are_refused)
{
    const struct fixture fixture = {.pre = "gpt2"};
    struct as_vocabulary good = fixture_vocabulary(&fixture), broken = good;
    broken.pre = "gpt5";
    expect_refused(&broken, AS_ERR_UNSUPPORTED, "smollm");
    broken = good;
    broken.model = "llama";
    expect_refused(&broken, AS_ERR_UNSUPPORTED, "llama");
    broken.model = NULL;
    expect_refused(&broken, AS_ERR_DATA, "no tokenizer");
    broken = good;
    broken.count = 0;
    expect_refused(&broken, AS_ERR_DATA, "0 tokens");
    broken = good;
    broken.bos = 256;
    expect_refused(&broken, AS_ERR_DATA, "BOS");
    broken.bos = -2;
    expect_refused(&broken, AS_ERR_DATA, "BOS");
    broken = good;
    int32_t types[256] = {0};
    broken.types = types;
    expect_refused(&broken, AS_ERR_DATA, "token 0 has the type 0");
    const struct as_piece merges[] = {PIECE("a b"), PIECE("ab"),  PIECE("a b c"), PIECE(" a"),
                                      PIECE("a "),  PIECE(""),    PIECE("aa b"),  PIECE("a bb"),
                                      PIECE(" "),   PIECE("a  b")};
    for (size_t i = 0; i < COUNT(merges); i++) {
        broken = good;
        broken.merges = &merges[i];
        broken.merge_count = 1;
        expect_refused(&broken, AS_ERR_DATA, "merge 0");
    }
    fixture_free(&good);
}

/* Every list of candidates must come back from its text as it was. */
static void expect_round_trip(const struct as_tokenizer *tokenizer, const int32_t *ids,
                              size_t count)
{
    struct as_decoder decoder;
    for (uint64_t list = 0; list < 200; list++) {
        int32_t drawn[40];
        struct as_text text = {0};
        as_decoder_init(&decoder, tokenizer, true);
        for (uint64_t i = 0; i < COUNT(drawn); i++) {
            drawn[i] = ids[as_random_u64(1, list, i) % count];
            cr_assert_eq(as_decoder_push(&decoder, drawn[i], &text, NULL), 0);
        }
        expect_encoded(tokenizer, text.data, text.length, AS_ENCODE_PARSE_SPECIAL, drawn,
                       COUNT(drawn));
        as_text_free(&text);
    }
}

Test(preprocess_tokenizer, round_trip_bytes)
{
    const struct fixture_merge merges[] = {{PIECE("x"), PIECE("x")}, {PIECE("q"), PIECE(" ")}};
    const struct fixture_added added[] = {{"<ab>", AS_TOKEN_CONTROL},
                                          {"zz", AS_TOKEN_USER_DEFINED}};
    for (size_t kind = 0; as_tokenizer_kind(kind) != NULL; kind++) {
        const struct fixture fixture = {.pre = as_tokenizer_kind(kind),
                                        .merges = merges,
                                        .merge_count = 2,
                                        .added = added,
                                        .added_count = 2};
        struct as_tokenizer *tokenizer = fixture_tokenizer(&fixture);
        int32_t *ids;
        size_t count;
        cr_assert_eq(as_tokenizer_round_trip(tokenizer, &ids, &count, NULL), 0);
        cr_expect_geq(count, 90);
        for (size_t i = 0; i < count; i++)
            cr_expect(ids[i] != 'x' && ids[i] != '<' && ids[i] != 'z' && ids[i] != ' ' &&
                      (i == 0 || ids[i] > ids[i - 1]));
        expect_round_trip(tokenizer, ids, count);
        free(ids);
        as_tokenizer_free(tokenizer);
    }
}

Test(preprocess_tokenizer, round_trip_words)
{
    enum { WORDS = 80 };
    struct fixture_merge merges[2 * WORDS];
    char words[WORDS][3];
    for (int i = 0; i < WORDS; i++) {
        words[i][0] = (char)('a' + i / 4);
        words[i][1] = "wxyz"[i % 4];
        merges[i] = (struct fixture_merge){{&words[i][0], 1}, {&words[i][1], 1}};
        merges[WORDS + i] = (struct fixture_merge){PIECE(" "), {words[i], 2}};
    }
    const struct fixture_added across[] = {{"w a", AS_TOKEN_USER_DEFINED}};
    for (size_t added = 0; added < 2; added++) {
        const struct fixture fixture = {.pre = "smollm",
                                        .merges = merges,
                                        .merge_count = 2 * WORDS,
                                        .added = across,
                                        .added_count = added};
        struct as_tokenizer *tokenizer = fixture_tokenizer(&fixture);
        int32_t *ids;
        size_t count;
        cr_assert_eq(as_tokenizer_round_trip(tokenizer, &ids, &count, NULL), 0);
        cr_expect_eq(as_tokenizer_piece(tokenizer, ids[0]).length, added == 0 ? 3 : 1);
        cr_expect(added == 1 || count == WORDS);
        expect_round_trip(tokenizer, ids, count);
        free(ids);
        as_tokenizer_free(tokenizer);
    }
}

Test(preprocess_tokenizer, round_trip_impossible)
{
    struct as_piece pieces[] = {PIECE("\xc3\xa9"), PIECE("<s>")};
    const int32_t types[] = {AS_TOKEN_NORMAL, AS_TOKEN_CONTROL};
    const struct as_vocabulary vocabulary = {.model = "gpt2",
                                             .pre = "gpt2",
                                             .count = 2,
                                             .pieces = pieces,
                                             .types = types,
                                             .bos = -1,
                                             .eos = -1,
                                             .unknown = -1,
                                             .pad = -1};
    struct as_tokenizer *tokenizer;
    cr_assert_eq(as_tokenizer_create(&vocabulary, &tokenizer, NULL), 0);
    int32_t *ids;
    size_t count;
    struct as_error error = {0};
    cr_expect_eq(as_tokenizer_round_trip(tokenizer, &ids, &count, &error), AS_ERR_UNSUPPORTED);
    cr_expect_null(ids);
    as_tokenizer_free(tokenizer);
}
