/* Text to token ids and back.
 *
 * A tokenizer is made from a vocabulary that the caller read from a model file, and never changes
 * afterwards: any number of threads may use one. What an encoding needs to write into lives in an
 * encoder, one a thread. Ids agree with the Hugging Face `tokenizers` library (Rust).
 */
#ifndef AS_TOKENIZER_H
#define AS_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "as_error.h"
#include "as_text.h"

/* Bytes that need not end in NUL. */
struct as_piece {
    const char *bytes;
    size_t length;
};

/* Meanings of struct as_vocabulary.types, as in GGUF's `tokenizer.ggml.token_type`. */
enum as_token_type {
    AS_TOKEN_NORMAL = 1,
    AS_TOKEN_UNKNOWN = 2,
    AS_TOKEN_CONTROL = 3,      /* special: found in text only with AS_ENCODE_PARSE_SPECIAL */
    AS_TOKEN_USER_DEFINED = 4, /* added, not special: always found in text */
    AS_TOKEN_UNUSED = 5,
    AS_TOKEN_BYTE = 6
};

/* What a model file says of its tokenizer, as it stands there. Nothing here is kept: all of it may
 * be freed or unmapped after as_tokenizer_create(). */
struct as_vocabulary {
    const char *model; /* `tokenizer.ggml.model`: "gpt2" (byte-level BPE) */
    const char *pre;   /* `tokenizer.ggml.pre`: kind of pre-tokenizer; NULL reads as "default" */
    size_t count;
    const struct as_piece *pieces; /* [count]; for "gpt2" in GPT-2's byte-to-character mapping,
                                      control and user-defined ones as plain text */
    const int32_t *types;          /* [count] enum as_token_type; NULL: all normal */
    const float *scores;           /* [count], or NULL; unused by "gpt2" */
    size_t merge_count;
    const struct as_piece *merges;  /* [merge_count] "left right", the best first */
    int32_t bos, eos, unknown, pad; /* token ids, -1 where there is none */
    bool add_bos, add_eos;          /* AS_ENCODE_ADD_SPECIAL puts them around a text */
};

struct as_tokenizer;
struct as_encoder;

/* Refused, with the place named: an unknown model or kind, pieces or merges that contradict each
 * other, ids outside the vocabulary. On failure *tokenizer is NULL. */
int as_tokenizer_create(const struct as_vocabulary *vocabulary, struct as_tokenizer **tokenizer,
                        struct as_error *error);
void as_tokenizer_free(struct as_tokenizer *tokenizer);

/* The kinds of pre-tokenizer that as_tokenizer_create() knows: `index` 0 upward, NULL past them. */
const char *as_tokenizer_kind(size_t index);

size_t as_tokenizer_count(const struct as_tokenizer *tokenizer);
int32_t as_tokenizer_bos(const struct as_tokenizer *tokenizer); /* -1: none */
int32_t as_tokenizer_eos(const struct as_tokenizer *tokenizer); /* -1: none */

/* The bytes that `id` stands for (not always whole UTF-8 characters), owned by the tokenizer; a
 * control token's are its name. {NULL, 0} when `id` is outside the vocabulary. */
struct as_piece as_tokenizer_piece(const struct as_tokenizer *tokenizer, int32_t id);

/* True for control and unknown tokens: those that a decoder leaves out of text. */
bool as_tokenizer_is_special(const struct as_tokenizer *tokenizer, int32_t id);

/* The id of the token whose piece (decoded, as by as_tokenizer_piece) is `text`, or -1. */
int32_t as_tokenizer_find(const struct as_tokenizer *tokenizer, const char *text, size_t length);

/* Flags of an encoding; 0 is none. */
enum as_encode_flags {
    AS_ENCODE_ADD_BOS = 1, /* where the vocabulary says so */
    AS_ENCODE_ADD_EOS = 2,
    AS_ENCODE_ADD_SPECIAL = AS_ENCODE_ADD_BOS | AS_ENCODE_ADD_EOS,
    AS_ENCODE_PARSE_SPECIAL = 4, /* "<|im_start|>" in the text becomes that token */
    AS_ENCODE_BOS_ONCE = 8,      /* no BOS is added to a text that starts with its own */
    /* A rendered chat: the template or the vocabulary supplies the BOS, and the turn stays open. */
    AS_ENCODE_CHAT = AS_ENCODE_ADD_BOS | AS_ENCODE_PARSE_SPECIAL | AS_ENCODE_BOS_ONCE
};

/* Ids of `text` (UTF-8; need not end in NUL, may hold NULs). Bytes that are not UTF-8 are refused
 * with their offset. *ids is freed by the caller. Makes an encoder for the one call: whoever
 * encodes often keeps one. */
int as_tokenizer_encode(const struct as_tokenizer *tokenizer, const char *text, size_t length,
                        unsigned flags, int32_t **ids, size_t *count, struct as_error *error);

/* The scratch memory of one thread; its tokenizer must outlive it. */
int as_encoder_create(const struct as_tokenizer *tokenizer, struct as_encoder **encoder,
                      struct as_error *error);
void as_encoder_free(struct as_encoder *encoder);

/* As as_tokenizer_encode(), but *ids belongs to the encoder and stands until its next call. */
int as_encoder_encode(struct as_encoder *encoder, const char *text, size_t length, unsigned flags,
                      const int32_t **ids, size_t *count, struct as_error *error);

/* Token by token back to text. A plain value: copy it to fork a stream, no freeing. */
struct as_decoder {
    const struct as_tokenizer *tokenizer;
    bool keep_special;     /* write the names of control tokens instead of nothing */
    unsigned char held[4]; /* the start of a character whose rest has not come yet */
    size_t held_length;
};

void as_decoder_init(struct as_decoder *decoder, const struct as_tokenizer *tokenizer,
                     bool keep_special);

/* Adds to `out` what `id` makes ready to send: always whole UTF-8 characters. The start of a
 * character is held back; bytes that can be none become U+FFFD, one a maximal prefix. */
int as_decoder_push(struct as_decoder *decoder, int32_t id, struct as_text *out,
                    struct as_error *error);

/* The end of the stream: a held start of a character becomes one U+FFFD. */
int as_decoder_flush(struct as_decoder *decoder, struct as_text *out, struct as_error *error);

/* Ids of which every sequence survives decoding and encoding again, one to one: what prompts that
 * are given by length alone are made of. Words with a space in front where the vocabulary has at
 * least 64 of them, else single printable bytes that never merge. Ascending; *ids is freed by the
 * caller. An empty set is AS_ERR_UNSUPPORTED. */
int as_tokenizer_round_trip(const struct as_tokenizer *tokenizer, int32_t **ids, size_t *count,
                            struct as_error *error);

#endif
