/* Added tokens found in text: the leftmost, and of those that start there the longest
 * (Aho and Corasick, 1975). */
#ifndef AS_SPECIAL_H
#define AS_SPECIAL_H

#include <stddef.h>
#include <stdint.h>

#include "as_error.h"

struct as_special; /* immutable once complete */

int as_special_create(struct as_special **special, struct as_error *error);
void as_special_free(struct as_special *special);

/* Adds the token `id` >= 0 with its text; an empty text is never found, a repeated one keeps its
 * first id. */
int as_special_add(struct as_special *special, const char *text, size_t length, int32_t id,
                   struct as_error *error);

/* Must follow the last as_special_add(), before the first as_special_find(). */
int as_special_complete(struct as_special *special, struct as_error *error);

/* The id of the first token in text[from, length), its bounds in *start and *end; -1: none. */
int32_t as_special_find(const struct as_special *special, const char *text, size_t length,
                        size_t from, size_t *start, size_t *end);

#endif
