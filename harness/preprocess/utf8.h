/* UTF-8 as Unicode defines it: no surrogates, no overlong forms, nothing above U+10FFFF. */
#ifndef AS_UTF8_H
#define AS_UTF8_H

#include <stddef.h>
#include <stdint.h>

enum as_utf8 {
    AS_UTF8_WHOLE,   /* one character */
    AS_UTF8_PARTIAL, /* the bytes end inside one */
    AS_UTF8_BAD      /* no character starts like this */
};

/* Looks at the character at the front of `length` > 0 bytes. *used is its length; for the other
 * two answers that of the longest prefix which a character can start with, at least 1. */
static inline enum as_utf8 as_utf8_next(const unsigned char *bytes, size_t length, size_t *used)
{
    unsigned char first = bytes[0];
    *used = 1;
    if (first < 0x80)
        return AS_UTF8_WHOLE;
    if (first < 0xc2 || first > 0xf4)
        return AS_UTF8_BAD;
    size_t needed = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    while (*used < needed) {
        if (*used == length)
            return AS_UTF8_PARTIAL;
        unsigned char byte = bytes[*used];
        if (byte < low || byte > high)
            return AS_UTF8_BAD;
        low = 0x80;
        high = 0xbf;
        ++*used;
    }
    return AS_UTF8_WHOLE;
}

/* The code point of a whole character of `used` bytes. */
static inline uint32_t as_utf8_code_point(const unsigned char *bytes, size_t used)
{
    if (used == 1)
        return bytes[0];
    uint32_t code_point = bytes[0] & (0x7fu >> used);
    for (size_t i = 1; i < used; i++)
        code_point = code_point << 6 | (bytes[i] & 0x3fu);
    return code_point;
}

/* Offset of the first byte that is not UTF-8, or `length` when all are. */
size_t as_utf8_check(const char *text, size_t length);

#endif
