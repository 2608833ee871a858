/* Added tokens in text against a search that tries every place and every token. */
#include <criterion/criterion.h>
#include <string.h>

#include "as_random.h"
#include "preprocess/special.h"

#define MOST 12

static int32_t search(char tokens[MOST][8], size_t count, const char *text, size_t length,
                      size_t from, size_t *start, size_t *end)
{
    for (size_t at = from; at < length; at++) {
        int32_t best = -1;
        for (size_t i = 0; i < count; i++) {
            size_t size = strlen(tokens[i]);
            if (size > 0 && size <= length - at && memcmp(text + at, tokens[i], size) == 0 &&
                (best < 0 || size > strlen(tokens[best])))
                best = (int32_t)i;
        }
        if (best >= 0) {
            *start = at;
            *end = at + strlen(tokens[best]);
            return best;
        }
    }
    *start = *end = length;
    return -1;
}

/* Two or three letters, so that tokens overlap, repeat and contain each other. */
static void draw(char *text, size_t length, uint64_t round, uint64_t stream, unsigned letters)
{
    for (size_t i = 0; i < length; i++)
        text[i] = (char)('a' + as_random_u64(round, stream, i) % letters);
}

Test(preprocess_special, leftmost_longest)
{
    for (uint64_t round = 0; round < 3000; round++) {
        char tokens[MOST][8] = {{0}}, text[64];
        unsigned letters = 2 + (unsigned)(round % 2);
        size_t count = as_random_u64(round, 1, 0) % (MOST + 1);
        size_t length = as_random_u64(round, 1, 1) % sizeof text;
        struct as_special *special;
        cr_assert_eq(as_special_create(&special, NULL), 0);
        for (size_t i = 0; i < count; i++) {
            size_t size = as_random_u64(round, 2, i) % 8;
            draw(tokens[i], size, round, 100 + i, letters);
            cr_assert_eq(as_special_add(special, tokens[i], size, (int32_t)i, NULL), 0);
        }
        cr_assert_eq(as_special_complete(special, NULL), 0);
        draw(text, length, round, 3, letters);
        for (size_t from = 0; from <= length; from++) {
            size_t start, end, wanted_start, wanted_end;
            int32_t wanted = search(tokens, count, text, length, from, &wanted_start, &wanted_end);
            cr_assert_eq(as_special_find(special, text, length, from, &start, &end), wanted);
            cr_assert(start == wanted_start && end == wanted_end, "round %u", (unsigned)round);
        }
        as_special_free(special);
    }
}

Test(preprocess_special, long_tokens_and_texts)
{
    static char text[200000], token[60000];
    struct as_special *special;
    cr_assert_eq(as_special_create(&special, NULL), 0);
    memset(text, 'a', sizeof text);
    memset(token, 'a', sizeof token);
    token[sizeof token - 1] = 'b';
    cr_assert_eq(as_special_add(special, token, sizeof token, 7, NULL), 0);
    cr_assert_eq(as_special_complete(special, NULL), 0);
    size_t start, end;
    cr_expect_eq(as_special_find(special, text, sizeof text, 0, &start, &end), -1);
    text[sizeof text - 1] = 'b';
    cr_expect_eq(as_special_find(special, text, sizeof text, 0, &start, &end), 7);
    cr_expect_eq(start, sizeof text - sizeof token);
    cr_expect_eq(end, sizeof text);
    as_special_free(special);
}
