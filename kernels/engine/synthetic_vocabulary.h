/* A tokenizer of single bytes, for synthetic models and test fixtures (cases.md, "Byte
 * vocabulary"): ids 0..255 are the bytes in GPT-2's byte-to-character mapping, 256 is the merge of
 * FE and FF (which no UTF-8 text holds), then come control tokens, then words that no merge
 * reaches but that decode to text, until the vocabulary is full. */
#ifndef AS_SYNTHETIC_VOCABULARY_H
#define AS_SYNTHETIC_VOCABULARY_H

#include <stddef.h>
#include <stdint.h>

#include "as_error.h"
#include "as_text.h"
#include "gguf_writer.h"
#include "model.h"

#define AS_BYTE_VOCABULARY_FIRST 257 /* id of the first control token */

struct as_byte_vocabulary {
    size_t count;
    struct as_bytes *pieces; /* into pool */
    int32_t *types;
    struct as_text pool;
};

/* `controls` are `control_count` texts; `count` is at least 257 + control_count. */
int as_byte_vocabulary_make(struct as_byte_vocabulary *vocabulary, size_t count,
                            const char *const *controls, size_t control_count,
                            struct as_error *error);
void as_byte_vocabulary_free(struct as_byte_vocabulary *vocabulary);

/* Writes tokenizer.ggml.* but for the special ids. */
void as_byte_vocabulary_put(const struct as_byte_vocabulary *vocabulary,
                            struct as_gguf_writer *writer, const char *pre);

#endif
