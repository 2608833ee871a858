/* A growing string, and the nearest name for "did you mean". */
#ifndef AS_TEXT_H
#define AS_TEXT_H

#include <stdbool.h>
#include <stddef.h>

/* Always NUL-terminated once something was added. After a failed allocation `failed` is set and
 * further additions do nothing, so that only the end needs a check. Free with as_text_free(). */
struct as_text {
    char *data;
    size_t length, capacity;
    bool failed;
};

void as_text_add(struct as_text *text, const char *bytes, size_t length);
void as_text_addf(struct as_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void as_text_free(struct as_text *text);

/* The entry of `names` (count of them, NULLs skipped) nearest to `wanted` by edit distance, or
 * NULL when none is near enough to be worth offering (more than a third of its length away). */
const char *as_nearest(const char *wanted, const char *const *names, size_t count);

#endif
