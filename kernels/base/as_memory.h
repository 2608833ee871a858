/* Checked sizes and growing arrays. Everything is freed with free(). */
#ifndef AS_MEMORY_H
#define AS_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "as_error.h"

static inline bool as_mul_overflows(size_t a, size_t b, size_t *product)
{
    return __builtin_mul_overflow(a, b, product);
}

static inline bool as_add_overflows(size_t a, size_t b, size_t *sum)
{
    return __builtin_add_overflow(a, b, sum);
}

static inline size_t as_align_up(size_t value, size_t alignment)
{
    return (value + alignment - 1) / alignment * alignment;
}

/* `count` zeroed elements of `size` bytes, or NULL with the message in `error`.
 * A count of 0 still returns a pointer that can be freed. */
void *as_calloc(struct as_error *error, size_t count, size_t size, const char *what);

/* As as_calloc, aligned to 64 bytes (a cache line, and the widest vector load). */
void *as_calloc_aligned(struct as_error *error, size_t count, size_t size, const char *what);

/* A copy of `text` (NULL stays NULL), or NULL with the message in `error`. */
char *as_strdup(struct as_error *error, const char *text);

/* Makes room for element number `count` in a growing array: `*array` of `*capacity` elements of
 * `size` bytes, of which `count` are in use. Returns 0, or AS_ERR_MEMORY with the array left as it was.
 * New elements are zeroed. */
int as_grow(struct as_error *error, void *array, size_t *capacity, size_t count, size_t size,
            const char *what);

#endif
