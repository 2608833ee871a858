/* Strings to dense ids, in order of first use. */
#ifndef AS_INTERN_H
#define AS_INTERN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "as_error.h"

struct as_interned {
    uint64_t hash;
    char *text; /* owned, NUL-terminated */
    uint32_t size;
};

struct as_intern {
    struct as_interned *entries; /* by id */
    size_t count, capacity;
    uint32_t *slots; /* id + 1; 0 = free; a power of two of them, at most half in use */
    size_t slot_count;
};

/* The id of the `size` bytes at `text`; `*added` says whether they are new. AS_UNKNOWN_U32 with
 * the message in `error` when memory ends. */
uint32_t as_intern(struct as_intern *table, const char *text, size_t size, bool *added,
                   struct as_error *error);
void as_intern_free(struct as_intern *table);

/* `size`, or if that is over `max` the largest size up to it that does not cut a UTF-8
 * character in two. */
size_t as_utf8_cut(const char *text, size_t size, size_t max);

#endif
