/* Numbers for people: three significant digits with their unit, "n/a" for what is not known; and
 * aligned columns. Texts from files are made safe for a terminal. */
#ifndef AS_WORDS_H
#define AS_WORDS_H

#include <stddef.h>
#include <stdio.h>

#include "as_error.h"

/* Each returns one of 64 buffers of this thread, used in turn. */
const char *as_words_ns(double ns);         /* "12.3 ms" */
const char *as_words_number(double value);  /* "1234", "12.3", "0.00123" */
const char *as_words_count(double value);   /* whole: "1,234,567" */
const char *as_words_percent(double share); /* "12.3 %", "0.029 %" of a share of 1 */
const char *as_words_bytes(double bytes);   /* "1.50 GB" (powers of ten) */
const char *as_words_ratio(double ratio);   /* "1.23x" */
const char *as_words_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* `text` without control characters and broken UTF-8 ("?" in their place), "n/a" for NULL. */
const char *as_words_safe(const char *text);

/* Rows of cells, printed in columns as wide as their widest cell. */
struct as_columns {
    const char *alignment; /* a letter a column: 'l' or 'r' */
    char **cells;
    size_t count, capacity;
    int failed; /* an addition found no memory */
};

/* Adds the next cell, row by row; NULL is "n/a", "" stays empty. */
void as_columns_add(struct as_columns *columns, const char *text);

/* Prints all rows, two spaces between columns, each row behind `indent`; the first row between
 * `heading` and `plain` (escape sequences or ""). Frees the cells. */
int as_columns_print(struct as_columns *columns, FILE *stream, const char *indent,
                     const char *heading, const char *plain, struct as_error *error);

#endif
