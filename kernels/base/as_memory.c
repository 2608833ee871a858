#include "as_memory.h"

#include <string.h>

void *as_calloc(struct as_error *error, size_t count, size_t size, const char *what)
{
    if (count == 0 || size == 0)
        count = size = 1;
    void *memory = calloc(count, size);
    if (memory == NULL) {
        size_t bytes;
        as_fail_memory(error, as_mul_overflows(count, size, &bytes) ? SIZE_MAX : bytes, what);
    }
    return memory;
}

void *as_calloc_aligned(struct as_error *error, size_t count, size_t size, const char *what)
{
    size_t bytes;
    if (as_mul_overflows(count, size, &bytes) || bytes > SIZE_MAX - 64) {
        as_fail_memory(error, SIZE_MAX, what);
        return NULL;
    }
    bytes = as_align_up(bytes == 0 ? 1 : bytes, 64);
    void *memory = aligned_alloc(64, bytes);
    if (memory == NULL) {
        as_fail_memory(error, bytes, what);
        return NULL;
    }
    return memset(memory, 0, bytes);
}

char *as_strdup(struct as_error *error, const char *text)
{
    if (text == NULL)
        return NULL;
    size_t bytes = strlen(text) + 1;
    char *copy = as_calloc(error, bytes, 1, "a string");
    return copy == NULL ? NULL : memcpy(copy, text, bytes);
}

int as_grow(struct as_error *error, void *array, size_t *capacity, size_t count, size_t size,
            const char *what)
{
    if (count < *capacity)
        return 0;
    void *old;
    memcpy(&old, array, sizeof old);
    size_t wanted = *capacity < 8 ? 8 : *capacity;
    size_t bytes;
    while (wanted <= count)
        if (as_mul_overflows(wanted, 2, &wanted))
            return as_fail_memory(error, SIZE_MAX, what);
    if (as_mul_overflows(wanted, size, &bytes))
        return as_fail_memory(error, SIZE_MAX, what);
    void *grown = realloc(old, bytes);
    if (grown == NULL)
        return as_fail_memory(error, bytes, what);
    memset((char *)grown + *capacity * size, 0, bytes - *capacity * size);
    memcpy(array, &grown, sizeof grown);
    *capacity = wanted;
    return 0;
}
