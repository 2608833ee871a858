/* Chat templates: messages to one prompt text.
 *
 * A model file carries its template as Jinja source. assay runs no Jinja: it recognises a source
 * by its SHA-256 digest and renders its family in C, byte for byte what Jinja renders.
 */
#ifndef AS_TEMPLATE_H
#define AS_TEMPLATE_H

#include <stdbool.h>
#include <stddef.h>

#include "as_error.h"
#include "as_text.h"
#include "preprocess/tokenizer.h"

struct as_message {
    struct as_piece role, content; /* UTF-8 */
};

/* One rendering; static, never freed. */
struct as_template;

/* The template with this Jinja source. With `name` not NULL (--chat-template) the source is not
 * looked at and may be NULL. An unknown source or name is refused, the message offers the names. */
int as_template_find(const struct as_template **found, const char *source, size_t length,
                     const char *name, struct as_error *error);

/* "chatml", "smollm2", ... */
const char *as_template_name(const struct as_template *chat);

/* The names that as_template_find() knows: `index` 0 upward, NULL at the end. */
const char *as_template_known(size_t index);

/* Adds the rendering of `count` messages to `out`. `tokenizer` supplies the texts of BOS and EOS
 * for templates that write them; NULL: none. With `generation` the prompt ends where the
 * assistant's answer starts. */
int as_template_render(const struct as_template *chat, const struct as_tokenizer *tokenizer,
                       const struct as_message *messages, size_t count, bool generation,
                       struct as_text *out, struct as_error *error);

/* Renders and encodes: special tokens found, BOS exactly once where the template writes it or the
 * vocabulary adds it, and never an EOS. Ids as of as_encoder_encode(). */
int as_template_encode(const struct as_template *chat, const struct as_tokenizer *tokenizer,
                       struct as_encoder *encoder, const struct as_message *messages, size_t count,
                       bool generation, const int32_t **ids, size_t *id_count,
                       struct as_error *error);

#endif
