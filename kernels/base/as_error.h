/* Errors of every room: a negative code is returned, one message is left in the context.
 *
 * The message says what was being done, to which file and place, what was found and what to do.
 * The first message wins: a caller that only passes a failure on adds nothing, one that knows
 * more (the file's name, say) puts it in front with as_error_prefix().
 */
#ifndef AS_ERROR_H
#define AS_ERROR_H

#include <stddef.h>

enum as_code {
    AS_OK = 0,
    AS_ERR_USAGE = -1,       /* wrong use: an option, a name, a combination */
    AS_ERR_DATA = -2,        /* a file or a request that does not mean what it must */
    AS_ERR_IO = -3,          /* the system refused: open, write, space, spawn */
    AS_ERR_MEMORY = -4,      /* an allocation or a limit on one */
    AS_ERR_UNSUPPORTED = -5, /* well-formed, but not served here */
    AS_ERR_WRONG = -6,       /* a computed answer is wrong: non-finite logits, a failed check */
    AS_ERR_INTERNAL = -7     /* a fault of assay itself */
};

struct as_error {
    int code; /* enum as_code, 0 while nothing has failed */
    char message[1024];
};

/* Records `code` and the formatted message unless one is already there; `error` may be NULL.
 * Returns `code`, so that a failing function ends in `return as_fail(error, ...)`. */
int as_fail(struct as_error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* As as_fail() with ": <strerror(errno)>" appended. */
int as_fail_errno(struct as_error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "<formatted>: " in front of a message that is already there. Returns error->code. */
int as_error_prefix(struct as_error *error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

void as_error_clear(struct as_error *error);

/* The one message for a failed allocation of `bytes` for `what`. Returns AS_ERR_MEMORY. */
int as_fail_memory(struct as_error *error, size_t bytes, const char *what);

#endif
