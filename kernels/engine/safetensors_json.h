/* A pull scanner of JSON text for headers that may be hostile: no tree, no allocation but one for
 * strings with escapes, depth bounded. Strict (RFC 8259, UTF-8), as serde_json is. */
#ifndef AS_SAFETENSORS_JSON_H
#define AS_SAFETENSORS_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "as_error.h"
#include "model.h"

#define AS_SCAN_DEPTH 32u /* of values that are skipped */

/* Where the scanner stands. Messages say "byte <offset + at>". */
struct as_scan {
    const char *text;
    size_t size, at;
    size_t offset; /* of `text` in its file */
    char *decoded; /* strings with escapes, without them; freed by as_scan_end() */
    size_t decoded_length;
    struct as_error *error;
};

/* Stands at the start of the `size` bytes at `text`, which must be UTF-8. */
int as_scan_begin(struct as_scan *scan, const char *text, size_t size, size_t offset,
                  struct as_error *error);
/* Only white space may be left. */
int as_scan_finish(struct as_scan *scan);
/* Ends the life of the strings that had escapes. */
void as_scan_end(struct as_scan *scan);

/* Fails with "byte <place>: expected <what>, found <character>". */
int as_scan_expected(struct as_scan *scan, const char *what);

/* The first byte of the next value, white space passed over; 0 at the end. */
char as_scan_peek(struct as_scan *scan);

/* An object or an array, member by member: enter with '{' or '[', then ask for each member whether
 * there is one, which passes over its comma, or over the closing bracket where there is none. */
int as_scan_enter(struct as_scan *scan, char opening);
int as_scan_next(struct as_scan *scan, char closing, bool *first, bool *more);
/* An object member's name and its colon. */
int as_scan_key(struct as_scan *scan, struct as_bytes *key);

/* The string lives as long as `text` and until as_scan_end(); it may contain NUL. */
int as_scan_string(struct as_scan *scan, struct as_bytes *string);
/* A whole number without sign, fraction or exponent. */
int as_scan_unsigned(struct as_scan *scan, uint64_t *value);
int as_scan_bool(struct as_scan *scan, bool *value);
/* Any value. */
int as_scan_skip(struct as_scan *scan);

#endif
