/* The byte vocabulary of the field cases: id = byte, then merges from id 256 on, then added
 * tokens. */
#ifndef PREPROCESS_FIXTURE_H
#define PREPROCESS_FIXTURE_H

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "as_memory.h"
#include "preprocess/tokenizer.h"

struct fixture_merge {
    struct as_piece left, right;
};

struct fixture_added {
    const char *text;
    int32_t type;
};

struct fixture {
    const char *pre;
    const struct fixture_merge *merges;
    size_t merge_count;
    const struct fixture_added *added;
    size_t added_count;
    int32_t bos;
    bool add_bos, add_eos;
};

#define PIECE(text) ((struct as_piece){(text), sizeof(text) - 1})

/* GPT-2's character for a byte. */
static inline void fixture_map_byte(struct as_text *out, unsigned char byte)
{
    unsigned c = byte;
    if (byte <= 32)
        c = 256u + byte;
    else if (byte >= 127 && byte <= 160)
        c = 256u + 33 + (byte - 127u);
    else if (byte == 173)
        c = 256u + 67;
    const char utf8[2] = {(char)(0xc0 | c >> 6), (char)(0x80 | (c & 0x3f))};
    if (c < 128)
        as_text_add(out, (const char[]){(char)c}, 1);
    else
        as_text_add(out, utf8, 2);
}

static inline struct as_piece fixture_map(struct as_piece left, const char *between,
                                          struct as_piece right)
{
    struct as_text text = {0};
    for (size_t i = 0; i < left.length; i++)
        fixture_map_byte(&text, (unsigned char)left.bytes[i]);
    as_text_add(&text, between, strlen(between));
    for (size_t i = 0; i < right.length; i++)
        fixture_map_byte(&text, (unsigned char)right.bytes[i]);
    return (struct as_piece){text.data, text.length};
}

static inline struct as_vocabulary fixture_vocabulary(const struct fixture *fixture)
{
    size_t count = 256 + fixture->merge_count + fixture->added_count;
    struct as_piece *pieces = calloc(count, sizeof *pieces);
    struct as_piece *merges = calloc(fixture->merge_count + 1, sizeof *merges);
    int32_t *types = calloc(count, sizeof *types);
    cr_assert(pieces != NULL && merges != NULL && types != NULL);
    for (size_t i = 0; i < count; i++)
        types[i] = AS_TOKEN_NORMAL;
    for (size_t i = 0; i < 256; i++) {
        const char byte = (char)i;
        pieces[i] = fixture_map((struct as_piece){&byte, 1}, "", PIECE(""));
    }
    for (size_t i = 0; i < fixture->merge_count; i++) {
        const struct fixture_merge *merge = &fixture->merges[i];
        pieces[256 + i] = fixture_map(merge->left, "", merge->right);
        merges[i] = fixture_map(merge->left, " ", merge->right);
    }
    for (size_t i = 0; i < fixture->added_count; i++) {
        const struct fixture_added *added = &fixture->added[i];
        pieces[256 + fixture->merge_count + i] =
            (struct as_piece){added->text, strlen(added->text)};
        types[256 + fixture->merge_count + i] = added->type;
    }
    return (struct as_vocabulary){
        .model = "gpt2",
        .pre = fixture->pre,
        .count = count,
        .pieces = pieces,
        .types = types,
        .merge_count = fixture->merge_count,
        .merges = merges,
        .bos = fixture->bos > 0 ? fixture->bos : -1,
        .eos = fixture->add_eos ? (int32_t)count - 1 : -1,
        .unknown = -1,
        .pad = -1,
        .add_bos = fixture->add_bos,
        .add_eos = fixture->add_eos,
    };
}

static inline void fixture_free(struct as_vocabulary *vocabulary)
{
    for (size_t i = 0; i < 256 + vocabulary->merge_count; i++)
        free((void *)(uintptr_t)vocabulary->pieces[i].bytes);
    for (size_t i = 0; i < vocabulary->merge_count; i++)
        free((void *)(uintptr_t)vocabulary->merges[i].bytes);
    free((void *)(uintptr_t)vocabulary->pieces);
    free((void *)(uintptr_t)vocabulary->merges);
    free((void *)(uintptr_t)vocabulary->types);
}

static inline struct as_tokenizer *fixture_tokenizer(const struct fixture *fixture)
{
    struct as_vocabulary vocabulary = fixture_vocabulary(fixture);
    struct as_tokenizer *tokenizer = NULL;
    struct as_error error = {0};
    int code = as_tokenizer_create(&vocabulary, &tokenizer, &error);
    fixture_free(&vocabulary);
    cr_assert_eq(code, 0, "%s", error.message);
    return tokenizer;
}

static inline void expect_ids(const int32_t *ids, size_t count, const int32_t *expected,
                              size_t expected_count, const char *what)
{
    struct as_text found = {0};
    bool equal = count == expected_count;
    for (size_t i = 0; i < count; i++) {
        if (i < 60)
            as_text_addf(&found, " %d", (int)ids[i]);
        equal = equal && ids[i] == expected[i];
    }
    cr_expect(equal, "%s: %zu ids, expected %zu; found%s", what, count, expected_count,
              found.data == NULL ? " none" : found.data);
    as_text_free(&found);
}

static inline void expect_encoded(const struct as_tokenizer *tokenizer, const char *text,
                                  size_t length, unsigned flags, const int32_t *expected,
                                  size_t expected_count)
{
    int32_t *ids = NULL;
    size_t count = 0;
    struct as_error error = {0};
    int code = as_tokenizer_encode(tokenizer, text, length, flags, &ids, &count, &error);
    cr_expect_eq(code, 0, "%s", error.message);
    expect_ids(ids, count, expected, expected_count, text);
    free(ids);
}

/* Ids of a text that ends in NUL. */
#define EXPECT_IDS(tokenizer, text, flags, ...)                      \
    do {                                                             \
        const int32_t wanted[] = {__VA_ARGS__};                      \
        expect_encoded(tokenizer, text, strlen(text), flags, wanted, \
                       sizeof wanted / sizeof wanted[0]);            \
    } while (0)

#endif
