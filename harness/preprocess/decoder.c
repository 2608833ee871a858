/* Token ids to text. */
#include <string.h>

#include "preprocess/tokenizer.h"
#include "preprocess/utf8.h"

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

void as_decoder_init(struct as_decoder *decoder, const struct as_tokenizer *tokenizer,
                     bool keep_special)
{
    *decoder = (struct as_decoder){.tokenizer = tokenizer, .keep_special = keep_special};
}

/* Adds the whole characters at the front of `bytes` and the replacements of bad ones; returns how
 * many bytes that took. What is left, less than a character, may still become one. */
static size_t add_whole(const unsigned char *bytes, size_t length, struct as_text *out)
{
    size_t at = 0, used;
    while (at < length) {
        enum as_utf8 kind = as_utf8_next(bytes + at, length - at, &used);
        if (kind == AS_UTF8_PARTIAL)
            break;
        if (kind == AS_UTF8_WHOLE)
            as_text_add(out, (const char *)bytes + at, used);
        else
            as_text_add(out, replacement, sizeof replacement - 1);
        at += used;
    }
    return at;
}

static int check_text(const struct as_text *out, struct as_error *error)
{
    return out->failed ? as_fail_memory(error, out->capacity, "decoded text") : 0;
}

int as_decoder_push(struct as_decoder *decoder, int32_t id, struct as_text *out,
                    struct as_error *error)
{
    struct as_piece piece = as_tokenizer_piece(decoder->tokenizer, id);
    if (piece.bytes == NULL)
        return as_fail(error, AS_ERR_DATA,
                       "cannot decode the token %d: the vocabulary has %zu tokens", (int)id,
                       as_tokenizer_count(decoder->tokenizer));
    if (!decoder->keep_special && as_tokenizer_is_special(decoder->tokenizer, id))
        return check_text(out, error);
    const unsigned char *bytes = (const unsigned char *)piece.bytes;
    size_t at = 0;
    /* A held start is completed byte by byte: at most three of them come from this piece. */
    while (decoder->held_length > 0 && at < piece.length) {
        decoder->held[decoder->held_length++] = bytes[at++];
        size_t taken = add_whole(decoder->held, decoder->held_length, out);
        decoder->held_length -= taken;
        memmove(decoder->held, decoder->held + taken, decoder->held_length);
    }
    at += add_whole(bytes + at, piece.length - at, out);
    if (at < piece.length) {
        decoder->held_length = piece.length - at;
        memcpy(decoder->held, bytes + at, decoder->held_length);
    }
    return check_text(out, error);
}

int as_decoder_flush(struct as_decoder *decoder, struct as_text *out, struct as_error *error)
{
    if (decoder->held_length > 0)
        as_text_add(out, replacement, sizeof replacement - 1);
    decoder->held_length = 0;
    return check_text(out, error);
}
