/* Token ids that stay themselves through text, whatever their neighbours. */
#include <stdlib.h>

#include "as_memory.h"
#include "preprocess/tokenizer_parts.h"

#define ENOUGH_WORDS 64

static bool is_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

/* A space and ASCII letters. Every kind of pre-tokenizer starts a word at a space that letters
 * follow and ends it where they do, so that such words never touch. */
static bool is_word(struct as_piece piece)
{
    if (piece.length < 2 || piece.bytes[0] != ' ')
        return false;
    for (size_t i = 1; i < piece.length; i++)
        if (!is_letter(piece.bytes[i]))
            return false;
    return true;
}

/* True for an added token that would be found across the border of two such words. */
static bool spans_words(struct as_piece piece)
{
    bool spans = false;
    for (size_t i = 0; i < piece.length; i++) {
        if (piece.bytes[i] != ' ' && !is_letter(piece.bytes[i]))
            return false;
        spans = spans || (i > 0 && piece.bytes[i] == ' ');
    }
    return spans;
}

/* Adds the tokens whose piece is such a word, and which encoding the word gives back. */
static int add_words(const struct as_tokenizer *tokenizer, struct as_ids *ids,
                     struct as_error *error)
{
    for (int32_t id = 0; (size_t)id < tokenizer->count; id++)
        if (tokenizer->types[id] != AS_TOKEN_NORMAL &&
            spans_words(as_tokenizer_piece(tokenizer, id)))
            return 0;
    struct as_encoder *encoder;
    int code = as_encoder_create(tokenizer, &encoder, error);
    if (code != 0)
        return code;
    for (int32_t id = 0; (size_t)id < tokenizer->count && code == 0; id++) {
        struct as_piece piece = as_tokenizer_piece(tokenizer, id);
        const int32_t *found;
        size_t count;
        if (tokenizer->types[id] != AS_TOKEN_NORMAL || !is_word(piece))
            continue;
        code = as_encoder_encode(encoder, piece.bytes, piece.length, AS_ENCODE_PARSE_SPECIAL,
                                 &found, &count, error);
        if (code == 0 && count == 1 && found[0] == id)
            code = as_ids_add(ids, id, error);
    }
    as_encoder_free(encoder);
    return code;
}

/* Adds the printable bytes that merge with no other printable byte. Longer tokens that are found
 * in text without merging lose their first byte from the set, so that none is ever found. */
static int add_bytes(const struct as_tokenizer *tokenizer, struct as_ids *ids,
                     struct as_error *error)
{
    bool usable[256] = {false};
    for (int byte = '!'; byte <= '~'; byte++)
        usable[byte] = tokenizer->bpe.bytes[byte] >= 0;
    for (size_t slot = 0; slot < tokenizer->bpe.slots; slot++) {
        const struct as_bpe_merge *merge = &tokenizer->bpe.merges[slot];
        if (merge->rank == AS_BPE_FREE)
            continue;
        struct as_piece left = as_tokenizer_piece(tokenizer, (int32_t)(merge->pair >> 32));
        struct as_piece right = as_tokenizer_piece(tokenizer, (int32_t)(uint32_t)merge->pair);
        if (left.length == 1 && right.length == 1)
            usable[(unsigned char)left.bytes[0]] = usable[(unsigned char)right.bytes[0]] = false;
    }
    for (int32_t id = 0; (size_t)id < tokenizer->count; id++) {
        struct as_piece piece = as_tokenizer_piece(tokenizer, id);
        bool added = tokenizer->types[id] != AS_TOKEN_NORMAL;
        bool whole = as_pretokenizer_whole_words(tokenizer->pretokenizer);
        if ((added && piece.length > 0) || (whole && piece.length > 1))
            usable[(unsigned char)piece.bytes[0]] = false;
    }
    int code = 0;
    for (int32_t id = 0; (size_t)id < tokenizer->count && code == 0; id++) {
        struct as_piece piece = as_tokenizer_piece(tokenizer, id);
        if (piece.length == 1 && usable[(unsigned char)piece.bytes[0]] &&
            tokenizer->bpe.bytes[(unsigned char)piece.bytes[0]] == id)
            code = as_ids_add(ids, id, error);
    }
    return code;
}

int as_tokenizer_round_trip(const struct as_tokenizer *tokenizer, int32_t **ids, size_t *count,
                            struct as_error *error)
{
    struct as_ids found = {0};
    *ids = NULL;
    *count = 0;
    int code = add_words(tokenizer, &found, error);
    if (code == 0 && found.count < ENOUGH_WORDS) {
        found.count = 0;
        code = add_bytes(tokenizer, &found, error);
    }
    if (code == 0 && found.count == 0)
        code = as_fail(error, AS_ERR_UNSUPPORTED,
                       "the vocabulary has no token that every text gives back as it was, so that "
                       "prompts given by length alone cannot be made; use text or tokens");
    if (code != 0) {
        free(found.data);
        return code;
    }
    *ids = found.data;
    *count = found.count;
    return 0;
}
