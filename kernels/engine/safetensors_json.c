#include "safetensors_json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "as_memory.h"

int as_scan_expected(struct as_scan *scan, const char *what)
{
    char found[32];
    if (scan->at >= scan->size)
        snprintf(found, sizeof found, "the end");
    else if (scan->text[scan->at] > ' ' && scan->text[scan->at] <= '~')
        snprintf(found, sizeof found, "'%c'", scan->text[scan->at]);
    else
        snprintf(found, sizeof found, "byte 0x%02x", (uint8_t)scan->text[scan->at]);
    return as_fail(scan->error, AS_ERR_DATA, "byte %zu: expected %s, found %s",
                   scan->offset + scan->at, what, found);
}

/* Length of the UTF-8 sequence at `text` (of `left` bytes), 0 where it is none. Overlong forms,
 * surrogates and what is beyond U+10FFFF are none (Unicode 15, table 3-7). */
static size_t utf8_length(const uint8_t *text, size_t left)
{
    static const struct {
        uint8_t first, last, second_least, second_most;
        size_t length;
    } forms[] = {
        {0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (text[0] < forms[i].first || text[0] > forms[i].last)
            continue;
        bool valid = left >= forms[i].length &&
                     (forms[i].length < 2 ||
                      (text[1] >= forms[i].second_least && text[1] <= forms[i].second_most));
        for (size_t j = 2; valid && j < forms[i].length; j++)
            valid = (text[j] & 0xc0) == 0x80;
        return valid ? forms[i].length : 0;
    }
    return 0;
}

int as_scan_begin(struct as_scan *scan, const char *text, size_t size, size_t offset,
                  struct as_error *error)
{
    *scan = (struct as_scan){.text = text, .size = size, .offset = offset, .error = error};
    for (size_t at = 0, length; at < size; at += length) {
        length = (uint8_t)text[at] < 0x80 ? 1 : utf8_length((const uint8_t *)text + at, size - at);
        if (length == 0)
            return as_fail(error, AS_ERR_DATA, "byte %zu: 0x%02x is not UTF-8", offset + at,
                           (uint8_t)text[at]);
    }
    return 0;
}

void as_scan_end(struct as_scan *scan)
{
    free(scan->decoded);
    scan->decoded = NULL;
}

char as_scan_peek(struct as_scan *scan)
{
    while (scan->at < scan->size && strchr(" \t\r\n", scan->text[scan->at]) != NULL &&
           scan->text[scan->at] != '\0')
        scan->at++;
    return scan->at < scan->size ? scan->text[scan->at] : '\0';
}

int as_scan_finish(struct as_scan *scan)
{
    as_scan_peek(scan);
    return scan->at < scan->size ? as_scan_expected(scan, "nothing more") : 0;
}

/* Passes over one byte that must come next. */
static int take(struct as_scan *scan, char wanted)
{
    const char what[] = {'\'', wanted, '\'', '\0'};
    if (as_scan_peek(scan) != wanted)
        return as_scan_expected(scan, what);
    scan->at++;
    return 0;
}

int as_scan_enter(struct as_scan *scan, char opening)
{
    return take(scan, opening);
}

int as_scan_next(struct as_scan *scan, char closing, bool *first, bool *more)
{
    int code = 0;
    *more = as_scan_peek(scan) != closing;
    if (!*more)
        scan->at++;
    else if (!*first)
        code = take(scan, ',');
    *first = false;
    return code;
}

int as_scan_key(struct as_scan *scan, struct as_bytes *key)
{
    int code = as_scan_string(scan, key);
    return code != 0 ? code : take(scan, ':');
}

/* ---- strings ------------------------------------------------------------------------------ */

/* Four hexadecimal digits at `at`, or -1. */
static int32_t hex4(const struct as_scan *scan, size_t at)
{
    int32_t value = 0;
    for (size_t i = 0; i < 4; i++) {
        char c = at + i < scan->size ? scan->text[at + i] : '\0';
        int32_t digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
        if (digit < 0)
            return -1;
        value = value * 16 + digit;
    }
    return value;
}

static size_t put_utf8(char *out, uint32_t point)
{
    if (point < 0x80) {
        out[0] = (char)point;
        return 1;
    }
    size_t length = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    static const uint8_t marks[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = length; i-- > 1; point >>= 6)
        out[i] = (char)(0x80 | (point & 63));
    out[0] = (char)(marks[length] | point);
    return length;
}

/* The escape at the scanner, which stands at its backslash, into `out` (at most 4 bytes, fewer
 * than the escape has). */
static int take_escape(struct as_scan *scan, char *out, size_t *length)
{
    static const char names[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    char name = scan->at + 1 < scan->size ? scan->text[scan->at + 1] : '\0';
    const char *plain = name != '\0' ? strchr(names, name) : NULL;
    if (plain != NULL) {
        out[0] = meanings[plain - names];
        *length = 1;
        scan->at += 2;
        return 0;
    }
    int32_t point = name == 'u' ? hex4(scan, scan->at + 2) : -1;
    size_t used = 6;
    if (point >= 0xd800 && point < 0xdc00 && scan->at + 7 < scan->size &&
        scan->text[scan->at + 6] == '\\' && scan->text[scan->at + 7] == 'u') {
        int32_t low = hex4(scan, scan->at + 8);
        if (low >= 0xdc00 && low < 0xe000)
            point = 0x10000 + (point - 0xd800) * 0x400 + (low - 0xdc00);
        used = 12;
    }
    if (point < 0 || (point >= 0xd800 && point < 0xe000))
        return as_scan_expected(scan, "an escape of JSON that stands for a character");
    *length = put_utf8(out, (uint32_t)point);
    scan->at += used;
    return 0;
}

/* The rest of a string from its first backslash on; what came before lies at `start`. */
static int take_escaped(struct as_scan *scan, size_t start, struct as_bytes *string)
{
    if (scan->decoded == NULL) /* no string decodes to more than it takes */
        scan->decoded = as_calloc(scan->error, scan->size, 1, "strings of JSON");
    if (scan->decoded == NULL)
        return AS_ERR_MEMORY;
    char *out = scan->decoded + scan->decoded_length;
    size_t length = scan->at - start;
    memcpy(out, scan->text + start, length);
    while (scan->at < scan->size && scan->text[scan->at] != '"') {
        size_t more = 1;
        if (scan->text[scan->at] == '\\') {
            int code = take_escape(scan, out + length, &more);
            if (code != 0)
                return code;
        } else if ((uint8_t)scan->text[scan->at] < ' ') {
            return as_scan_expected(scan, "a character of the string");
        } else {
            out[length] = scan->text[scan->at++];
        }
        length += more;
    }
    scan->decoded_length += length;
    *string = (struct as_bytes){out, length};
    return take(scan, '"');
}

int as_scan_string(struct as_scan *scan, struct as_bytes *string)
{
    if (as_scan_peek(scan) != '"')
        return as_scan_expected(scan, "a string");
    size_t start = ++scan->at;
    while (scan->at < scan->size && scan->text[scan->at] != '"') {
        if (scan->text[scan->at] == '\\')
            return take_escaped(scan, start, string);
        if ((uint8_t)scan->text[scan->at] < ' ')
            return as_scan_expected(scan, "a character of the string");
        scan->at++;
    }
    *string = (struct as_bytes){scan->text + start, scan->at - start};
    if (scan->at >= scan->size)
        return as_scan_expected(scan, "the string's end");
    scan->at++;
    return 0;
}

/* ---- other values ------------------------------------------------------------------------- */

static bool digit_next(const struct as_scan *scan)
{
    return scan->at < scan->size && scan->text[scan->at] >= '0' && scan->text[scan->at] <= '9';
}

int as_scan_unsigned(struct as_scan *scan, uint64_t *value)
{
    as_scan_peek(scan);
    size_t start = scan->at;
    *value = 0;
    while (digit_next(scan)) {
        uint64_t digit = (uint64_t)(scan->text[scan->at] - '0');
        if (__builtin_mul_overflow(*value, (uint64_t)10, value) ||
            __builtin_add_overflow(*value, digit, value))
            return as_fail(scan->error, AS_ERR_DATA, "byte %zu: the number is 2^64 or more",
                           scan->offset + start);
        scan->at++;
    }
    bool zeros = scan->at > start + 1 && scan->text[start] == '0';
    bool other = scan->at < scan->size && strchr(".eE+-", scan->text[scan->at]) != NULL &&
                 scan->text[scan->at] != '\0';
    if (scan->at == start || zeros || other) {
        scan->at = start;
        return as_scan_expected(scan, "a whole number");
    }
    return 0;
}

static int take_word(struct as_scan *scan, const char *word)
{
    size_t length = strlen(word);
    if (scan->size - scan->at < length || memcmp(scan->text + scan->at, word, length) != 0)
        return as_scan_expected(scan, word);
    scan->at += length;
    return 0;
}

int as_scan_bool(struct as_scan *scan, bool *value)
{
    *value = as_scan_peek(scan) == 't';
    return take_word(scan, *value ? "true" : "false");
}

static int skip_digits(struct as_scan *scan)
{
    if (!digit_next(scan))
        return as_scan_expected(scan, "a digit");
    while (digit_next(scan))
        scan->at++;
    return 0;
}

static int skip_number(struct as_scan *scan)
{
    scan->at += scan->text[scan->at] == '-';
    bool zero = digit_next(scan) && scan->text[scan->at] == '0';
    size_t start = scan->at;
    int code = skip_digits(scan);
    if (code == 0 && zero && scan->at > start + 1) {
        scan->at = start + 1;
        return as_scan_expected(scan, "no digit after a leading 0");
    }
    if (code == 0 && scan->at < scan->size && scan->text[scan->at] == '.') {
        scan->at++;
        code = skip_digits(scan);
    }
    if (code == 0 && scan->at < scan->size && (scan->text[scan->at] | 32) == 'e') {
        scan->at++;
        if (scan->at < scan->size && (scan->text[scan->at] == '+' || scan->text[scan->at] == '-'))
            scan->at++;
        code = skip_digits(scan);
    }
    return code;
}

static int skip(struct as_scan *scan, uint32_t depth);

static int skip_members(struct as_scan *scan, char opening, uint32_t depth)
{
    bool first = true, more = true;
    if (depth >= AS_SCAN_DEPTH)
        return as_fail(scan->error, AS_ERR_DATA, "byte %zu: values are nested deeper than %u",
                       scan->offset + scan->at, AS_SCAN_DEPTH);
    int code = as_scan_enter(scan, opening);
    while (code == 0) {
        struct as_bytes key;
        code = as_scan_next(scan, opening == '{' ? '}' : ']', &first, &more);
        if (code != 0 || !more)
            break;
        if (opening == '{')
            code = as_scan_key(scan, &key);
        if (code == 0)
            code = skip(scan, depth + 1);
    }
    return code;
}

static int skip(struct as_scan *scan, uint32_t depth)
{
    struct as_bytes string;
    char first = as_scan_peek(scan);
    switch (first) {
    case '{':
    case '[': return skip_members(scan, first, depth);
    case '"': return as_scan_string(scan, &string);
    case 't': return take_word(scan, "true");
    case 'f': return take_word(scan, "false");
    case 'n': return take_word(scan, "null");
    default:
        if (first == '-' || (first >= '0' && first <= '9'))
            return skip_number(scan);
        return as_scan_expected(scan, "a value");
    }
}

int as_scan_skip(struct as_scan *scan)
{
    return skip(scan, 0);
}
