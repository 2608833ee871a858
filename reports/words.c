#include "words.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "as_memory.h"

#define BUFFERS 64
#define BUFFER_SIZE 512

static char *next_buffer(void)
{
    static _Thread_local char buffers[BUFFERS][BUFFER_SIZE];
    static _Thread_local unsigned next;
    return buffers[next++ % BUFFERS];
}

const char *as_words_printf(const char *format, ...)
{
    char *text = next_buffer();
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, BUFFER_SIZE, format, arguments);
    va_end(arguments);
    return text;
}

/* Digits behind the point so that three are significant after rounding. */
static int decimals(double value)
{
    double size = fabs(value);
    return size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
}

static const char *scaled(double value, const double *factors, const char *const *units,
                          size_t count)
{
    if (isnan(value))
        return "n/a";
    size_t i = 0;
    while (i + 1 < count && fabs(value) < factors[i] * 0.9995)
        i++;
    double part = value / factors[i];
    return as_words_printf("%.*f %s", factors[i] == 1 && part == floor(part) ? 0 : decimals(part),
                           part, units[i]);
}

const char *as_words_ns(double ns)
{
    static const double factors[] = {1e9, 1e6, 1e3, 1};
    static const char *const units[] = {"s", "ms", "us", "ns"};
    return scaled(ns, factors, units, 4);
}

const char *as_words_bytes(double bytes)
{
    static const double factors[] = {1e12, 1e9, 1e6, 1e3, 1};
    static const char *const units[] = {"TB", "GB", "MB", "kB", "B"};
    return scaled(bytes, factors, units, 5);
}

const char *as_words_number(double value)
{
    if (isnan(value))
        return "n/a";
    if (value == 0)
        return "0";
    if (fabs(value) < 0.995)
        return as_words_printf("%.3g", value);
    return as_words_printf("%.*f", decimals(value), value);
}

const char *as_words_count(double value)
{
    if (isnan(value))
        return "n/a";
    char digits[64], *text = next_buffer();
    int length = snprintf(digits, sizeof digits, "%.0f", value);
    size_t used = 0;
    for (int i = 0; i < length && used + 2 < BUFFER_SIZE; i++) {
        text[used++] = digits[i];
        if ((length - 1 - i) % 3 == 0 && i + 1 < length && digits[i] != '-')
            text[used++] = ',';
    }
    text[used] = '\0';
    return text;
}

const char *as_words_percent(double share)
{
    double percent = 100 * share;
    if (isnan(share))
        return "n/a";
    if (percent == 0)
        return "0 %";
    return as_words_printf(fabs(percent) < 0.995   ? "%.2g %%"
                           : fabs(percent) < 99.95 ? "%.1f %%"
                                                   : "%.0f %%",
                           percent);
}

const char *as_words_ratio(double ratio)
{
    return isnan(ratio) ? "n/a" : as_words_printf("%sx", as_words_number(ratio));
}

/* The length of the UTF-8 character at `text`, or 0 where there is none that may be printed. */
static size_t printable(const unsigned char *text)
{
    static const unsigned least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t length = text[0] < 0x80             ? 1
                    : (text[0] & 0xe0) == 0xc0 ? 2
                    : (text[0] & 0xf0) == 0xe0 ? 3
                    : (text[0] & 0xf8) == 0xf0 ? 4
                                               : 0;
    if (length <= 1)
        return length == 1 && text[0] >= 0x20 && text[0] != 0x7f;
    unsigned code = text[0] & (0x7fu >> length);
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (text[i] & 0x3f);
    }
    /* C1 controls, surrogates, the marks that turn the direction of writing, beyond Unicode. */
    if (code < least[length] || code < 0xa0 || (code >= 0xd800 && code < 0xe000) ||
        (code >= 0x202a && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) || code > 0x10ffff)
        return 0;
    return length;
}

const char *as_words_safe(const char *text)
{
    if (text == NULL)
        return "n/a";
    char *safe = next_buffer();
    size_t used = 0;
    while (*text != '\0' && used + 5 < BUFFER_SIZE) {
        size_t length = printable((const unsigned char *)text);
        if (length == 0) {
            safe[used++] = '?';
            text++;
            continue;
        }
        memcpy(safe + used, text, length);
        used += length;
        text += length;
    }
    safe[used] = '\0';
    return safe;
}

/* --- columns --- */

void as_columns_add(struct as_columns *columns, const char *text)
{
    struct as_error error = {0};
    if (columns->failed != AS_OK)
        return;
    columns->failed = as_grow(&error, &columns->cells, &columns->capacity, columns->count,
                              sizeof *columns->cells, "columns");
    if (columns->failed != AS_OK)
        return;
    char *copy = as_strdup(&error, text == NULL ? "n/a" : text);
    if (copy == NULL)
        columns->failed = AS_ERR_MEMORY;
    else
        columns->cells[columns->count++] = copy;
}

/* Places that a text takes on a terminal, one a character. */
static size_t width_of(const char *text)
{
    size_t width = 0;
    for (; *text != '\0'; text++)
        width += ((unsigned char)*text & 0xc0) != 0x80;
    return width;
}

static void print_cell(FILE *stream, const char *text, size_t width, char alignment, bool last)
{
    size_t blanks = width - width_of(text);
    if (alignment == 'r')
        fprintf(stream, "%*s%s", (int)blanks, "", text);
    else
        fprintf(stream, "%s%*s", text, last ? 0 : (int)blanks, "");
}

int as_columns_print(struct as_columns *columns, FILE *stream, const char *indent,
                     const char *heading, const char *plain, struct as_error *error)
{
    size_t widths[32] = {0}, count = strlen(columns->alignment);
    count = count < 32 ? count : 32;
    for (size_t i = 0; i < columns->count; i++) {
        size_t width = width_of(columns->cells[i]);
        if (width > widths[i % count])
            widths[i % count] = width;
    }
    for (size_t i = 0; i < columns->count; i++) {
        size_t column = i % count;
        if (column == 0)
            fprintf(stream, "%s%s", indent, i == 0 ? heading : "");
        print_cell(stream, columns->cells[i], widths[column], columns->alignment[column],
                   column + 1 == count);
        if (column + 1 == count)
            fprintf(stream, "%s\n", i < count ? plain : "");
        else
            fprintf(stream, "  ");
    }
    for (size_t i = 0; i < columns->count; i++)
        free(columns->cells[i]);
    free(columns->cells);
    int failed = columns->failed;
    *columns = (struct as_columns){.alignment = columns->alignment};
    return failed == AS_OK ? AS_OK : as_fail_memory(error, 0, "a table of results");
}
