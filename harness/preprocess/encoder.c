/* Text to token ids. */
#include <stdlib.h>
#include <string.h>

#include "as_memory.h"
#include "preprocess/tokenizer_parts.h"
#include "preprocess/utf8.h"

struct as_encoder {
    const struct as_tokenizer *tokenizer;
    struct as_splitter *splitter;
    struct as_bpe_scratch scratch;
    struct as_ids ids;
};

int as_encoder_create(const struct as_tokenizer *tokenizer, struct as_encoder **encoder,
                      struct as_error *error)
{
    *encoder = NULL;
    struct as_encoder *made = as_calloc(error, 1, sizeof *made, "an encoder");
    if (made == NULL)
        return AS_ERR_MEMORY;
    made->tokenizer = tokenizer;
    int code = as_splitter_create(tokenizer->pretokenizer, &made->splitter, error);
    if (code != 0) {
        as_encoder_free(made);
        return code;
    }
    *encoder = made;
    return 0;
}

void as_encoder_free(struct as_encoder *encoder)
{
    if (encoder == NULL)
        return;
    as_splitter_free(encoder->splitter);
    as_bpe_scratch_free(&encoder->scratch);
    free(encoder->ids.data);
    free(encoder);
}

static int encode_word(void *context, const char *word, size_t length, struct as_error *error)
{
    struct as_encoder *encoder = context;
    const struct as_tokenizer *tokenizer = encoder->tokenizer;
    if (as_pretokenizer_whole_words(tokenizer->pretokenizer)) {
        int32_t id = as_tokenizer_find(tokenizer, word, length);
        if (id >= 0 && tokenizer->types[id] == AS_TOKEN_NORMAL)
            return as_ids_add(&encoder->ids, id, error);
    }
    return as_bpe_word(&tokenizer->bpe, &encoder->scratch, word, length, &encoder->ids, error);
}

/* Text with the added tokens in it. One that stays ordinary text does not even cut it. */
static int encode_text(struct as_encoder *encoder, const char *text, size_t length, unsigned flags,
                       struct as_error *error)
{
    const struct as_tokenizer *tokenizer = encoder->tokenizer;
    size_t done = 0, from = 0;
    while (done < length) {
        size_t start, end;
        int32_t id = as_special_find(tokenizer->special, text, length, from, &start, &end);
        from = end;
        if (id >= 0 && (flags & AS_ENCODE_PARSE_SPECIAL) == 0 &&
            as_tokenizer_is_special(tokenizer, id))
            continue;
        int code = 0;
        if (start > done)
            code = as_splitter_run(encoder->splitter, text + done, start - done, encode_word,
                                   encoder, error);
        if (code == 0 && id >= 0)
            code = as_ids_add(&encoder->ids, id, error);
        if (code != 0)
            return code;
        done = end;
    }
    return 0;
}

int as_encoder_encode(struct as_encoder *encoder, const char *text, size_t length, unsigned flags,
                      const int32_t **ids, size_t *count, struct as_error *error)
{
    const struct as_tokenizer *tokenizer = encoder->tokenizer;
    *ids = NULL;
    *count = 0;
    encoder->ids.count = 0;
    if (length > INT32_MAX)
        return as_fail(error, AS_ERR_DATA, "a text of %zu bytes is longer than %d can be encoded",
                       length, INT32_MAX);
    size_t bad = as_utf8_check(text, length);
    if (bad < length)
        return as_fail(error, AS_ERR_DATA,
                       "the text is not UTF-8: the byte 0x%02x at offset %zu starts no character",
                       (unsigned char)text[bad], bad);
    bool bos = tokenizer->add_bos && (flags & AS_ENCODE_ADD_BOS) != 0;
    int code = bos ? as_ids_add(&encoder->ids, tokenizer->bos, error) : 0;
    if (code == 0)
        code = encode_text(encoder, text, length, flags, error);
    if (code == 0 && tokenizer->add_eos && (flags & AS_ENCODE_ADD_EOS) != 0)
        code = as_ids_add(&encoder->ids, tokenizer->eos, error);
    if (code != 0)
        return code;
    bool twice = bos && (flags & AS_ENCODE_BOS_ONCE) != 0 && encoder->ids.count > 1 &&
                 encoder->ids.data[1] == tokenizer->bos;
    *ids = encoder->ids.data + (twice ? 1 : 0);
    *count = encoder->ids.count - (twice ? 1 : 0);
    return 0;
}

int as_tokenizer_encode(const struct as_tokenizer *tokenizer, const char *text, size_t length,
                        unsigned flags, int32_t **ids, size_t *count, struct as_error *error)
{
    *ids = NULL;
    *count = 0;
    struct as_encoder *encoder;
    int code = as_encoder_create(tokenizer, &encoder, error);
    if (code != 0)
        return code;
    const int32_t *found;
    size_t found_count;
    code = as_encoder_encode(encoder, text, length, flags, &found, &found_count, error);
    if (code == 0) {
        int32_t *copy = as_calloc(error, found_count, sizeof *copy, "token ids");
        if (copy == NULL) {
            code = AS_ERR_MEMORY;
        } else {
            if (found_count > 0)
                memcpy(copy, found, found_count * sizeof *copy);
            *ids = copy;
            *count = found_count;
        }
    }
    as_encoder_free(encoder);
    return code;
}
