#include "as_text.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool reserve(struct as_text *text, size_t more)
{
    if (text->failed || more > SIZE_MAX / 2 - text->length) {
        text->failed = true;
        return false;
    }
    size_t needed = text->length + more + 1;
    if (needed <= text->capacity)
        return true;
    size_t capacity = text->capacity < 64 ? 64 : text->capacity;
    while (capacity < needed)
        capacity *= 2;
    char *grown = realloc(text->data, capacity);
    if (grown == NULL) {
        text->failed = true;
        return false;
    }
    text->data = grown;
    text->capacity = capacity;
    return true;
}

void as_text_add(struct as_text *text, const char *bytes, size_t length)
{
    if (!reserve(text, length))
        return;
    if (length > 0)
        memcpy(text->data + text->length, bytes, length);
    text->length += length;
    text->data[text->length] = '\0';
}

void as_text_addf(struct as_text *text, const char *format, ...)
{
    va_list arguments, again;
    va_start(arguments, format);
    va_copy(again, arguments);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length >= 0 && reserve(text, (size_t)length)) {
        vsnprintf(text->data + text->length, (size_t)length + 1, format, again);
        text->length += (size_t)length;
    } else {
        text->failed = true;
    }
    va_end(again);
}

void as_text_free(struct as_text *text)
{
    if (text == NULL)
        return;
    free(text->data);
    *text = (struct as_text){0};
}

/* Levenshtein distance over at most 63 characters a side; longer names are cut. */
static size_t edit_distance(const char *a, const char *b)
{
    size_t previous[64], current[64];
    size_t columns = strnlen(b, 63);
    for (size_t j = 0; j <= columns; j++)
        previous[j] = j;
    for (size_t i = 0; a[i] != '\0' && i < 63; i++) {
        current[0] = i + 1;
        for (size_t j = 0; j < columns; j++) {
            size_t change = previous[j] + (a[i] != b[j]);
            size_t drop = previous[j + 1] + 1, insert = current[j] + 1;
            size_t best = change < drop ? change : drop;
            current[j + 1] = best < insert ? best : insert;
        }
        memcpy(previous, current, (columns + 1) * sizeof previous[0]);
    }
    return previous[columns];
}

const char *as_nearest(const char *wanted, const char *const *names, size_t count)
{
    const char *nearest = NULL;
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < count; i++) {
        if (names[i] == NULL)
            continue;
        size_t distance = edit_distance(wanted, names[i]);
        if (distance < best) {
            best = distance;
            nearest = names[i];
        }
    }
    return nearest != NULL && best <= 1 + strlen(nearest) / 3 ? nearest : NULL;
}
