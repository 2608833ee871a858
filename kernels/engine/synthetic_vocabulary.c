#include "synthetic_vocabulary.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "as_memory.h"

/* A code point below U+0800 as UTF-8. */
static void add_character(struct as_text *text, uint32_t code)
{
    char bytes[2] = {(char)(0xc0 | code >> 6), (char)(0x80 | (code & 0x3f))};
    char ascii = (char)code;
    if (code < 0x80)
        as_text_add(text, &ascii, 1);
    else
        as_text_add(text, bytes, 2);
}

/* GPT-2's bytes_to_unicode(): printable Latin-1 stands for itself, the other bytes for U+0100
 * upward in order. */
static uint32_t byte_character(uint32_t byte)
{
    uint32_t others = 0;
    for (uint32_t i = 0; i <= byte; i++) {
        bool printable = (i >= '!' && i <= '~') || (i >= 0xa1 && i <= 0xac) || i >= 0xae;
        if (i == byte)
            return printable ? byte : 256 + others;
        others += !printable;
    }
    return byte;
}

/* A space (mapped) and syllables that spell `number` in base 100, two at least. */
static void add_word(struct as_text *text, size_t number)
{
    static const char consonants[] = "bcdfghjklmnprstvwxyz", vowels[] = "aeiou";
    char syllables[32];
    size_t digits[8], count = 0, length = 0;
    for (; count < 8 && (number > 0 || count < 2); number /= 100)
        digits[count++] = number % 100;
    while (count > 0) {
        size_t digit = digits[--count];
        syllables[length++] = consonants[digit / 5];
        syllables[length++] = vowels[digit % 5];
    }
    add_character(text, byte_character(' '));
    as_text_add(text, syllables, length);
}

/* Ends the piece of `id` that began at `start`. Offsets stand in for pointers until the pool has
 * its final address. */
static void end_piece(struct as_byte_vocabulary *vocabulary, size_t id, size_t start, int32_t type)
{
    vocabulary->pieces[id].length = vocabulary->pool.length - start;
    vocabulary->types[id] = type;
}

int as_byte_vocabulary_make(struct as_byte_vocabulary *vocabulary, size_t count,
                            const char *const *controls, size_t control_count,
                            struct as_error *error)
{
    *vocabulary = (struct as_byte_vocabulary){.count = count};
    vocabulary->pieces = as_calloc(error, count, sizeof *vocabulary->pieces, "a vocabulary");
    vocabulary->types = as_calloc(error, count, sizeof *vocabulary->types, "a vocabulary");
    if (vocabulary->pieces == NULL || vocabulary->types == NULL) {
        as_byte_vocabulary_free(vocabulary);
        return AS_ERR_MEMORY;
    }
    struct as_text *pool = &vocabulary->pool;
    size_t words = AS_BYTE_VOCABULARY_FIRST + control_count;
    for (size_t id = 0; id < count; id++) {
        size_t start = pool->length;
        int32_t type = AS_PIECE_NORMAL;
        if (id < 256) {
            add_character(pool, byte_character((uint32_t)id));
        } else if (id == 256) {
            add_character(pool, byte_character(0xfe));
            add_character(pool, byte_character(0xff));
        } else if (id < words) {
            const char *control = controls[id - AS_BYTE_VOCABULARY_FIRST];
            as_text_add(pool, control, strlen(control));
            type = AS_PIECE_CONTROL;
        } else {
            add_word(pool, id - words);
        }
        end_piece(vocabulary, id, start, type);
    }
    if (pool->failed) {
        as_byte_vocabulary_free(vocabulary);
        return as_fail_memory(error, count * 8, "a vocabulary");
    }
    const char *at = pool->data;
    for (size_t id = 0; id < count; at += vocabulary->pieces[id++].length)
        vocabulary->pieces[id].bytes = at;
    return 0;
}

void as_byte_vocabulary_free(struct as_byte_vocabulary *vocabulary)
{
    free(vocabulary->pieces);
    free(vocabulary->types);
    as_text_free(&vocabulary->pool);
    *vocabulary = (struct as_byte_vocabulary){0};
}

void as_byte_vocabulary_put(const struct as_byte_vocabulary *vocabulary,
                            struct as_gguf_writer *writer, const char *pre)
{
    static const char merge[] = "\xc3\xbe \xc3\xbf"; /* U+00FE U+00FF */
    struct as_bytes merges = {merge, sizeof merge - 1};
    as_gguf_put_string(writer, "tokenizer.ggml.model", "gpt2");
    as_gguf_put_string(writer, "tokenizer.ggml.pre", pre);
    as_gguf_put_strings(writer, "tokenizer.ggml.tokens", vocabulary->pieces, vocabulary->count);
    as_gguf_put_i32s(writer, "tokenizer.ggml.token_type", vocabulary->types, vocabulary->count);
    as_gguf_put_strings(writer, "tokenizer.ggml.merges", &merges, 1);
    as_gguf_put_bool(writer, "tokenizer.ggml.add_bos_token", false);
    as_gguf_put_bool(writer, "tokenizer.ggml.add_space_prefix", false);
}
