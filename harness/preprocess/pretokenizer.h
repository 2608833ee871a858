/* Pre-tokenizers: a text cut into the words inside which byte pairs may merge.
 *
 * A kind is one row of the table in pretokenizer.c: its name in `tokenizer.ggml.pre`, its patterns
 * and its flags. Patterns are applied in turn, each to every part that the one before left; a
 * match is a part of its own, and so is the text between two matches.
 */
#ifndef AS_PRETOKENIZER_H
#define AS_PRETOKENIZER_H

#include <stdbool.h>
#include <stddef.h>

#include "as_error.h"

struct as_pretokenizer; /* compiled patterns; immutable, shared by all threads */
struct as_splitter;     /* what one thread's matching writes into */

int as_pretokenizer_create(const char *kind, struct as_pretokenizer **pretokenizer,
                           struct as_error *error);
void as_pretokenizer_free(struct as_pretokenizer *pretokenizer);

/* True where a word that is a whole piece is taken as it is (`ignore_merges`). */
bool as_pretokenizer_whole_words(const struct as_pretokenizer *pretokenizer);

/* The name of row `index`, NULL past the end. */
const char *as_pretokenizer_name(size_t index);

int as_splitter_create(const struct as_pretokenizer *pretokenizer, struct as_splitter **splitter,
                       struct as_error *error);
void as_splitter_free(struct as_splitter *splitter);

/* Takes one word; a result other than 0 ends the splitting and is passed on. */
typedef int (*as_word_sink)(void *context, const char *word, size_t length, struct as_error *error);

/* Cuts `text`, which must be valid UTF-8, in time linear in its length. */
int as_splitter_run(struct as_splitter *splitter, const char *text, size_t length,
                    as_word_sink sink, void *context, struct as_error *error);

#endif
