#include "as_error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static int record(struct as_error *error, int code, const char *format, va_list arguments)
{
    if (error == NULL || error->code != 0)
        return code;
    error->code = code;
    vsnprintf(error->message, sizeof error->message, format, arguments);
    return code;
}

int as_fail(struct as_error *error, int code, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    record(error, code, format, arguments);
    va_end(arguments);
    return code;
}

int as_fail_errno(struct as_error *error, int code, const char *format, ...)
{
    int saved = errno;
    if (error == NULL || error->code != 0)
        return code;
    va_list arguments;
    va_start(arguments, format);
    record(error, code, format, arguments);
    va_end(arguments);
    size_t length = strlen(error->message);
    snprintf(error->message + length, sizeof error->message - length, ": %s", strerror(saved));
    return code;
}

int as_error_prefix(struct as_error *error, const char *format, ...)
{
    if (error == NULL)
        return AS_ERR_INTERNAL;
    if (error->code == 0)
        return 0;
    char old[sizeof error->message];
    memcpy(old, error->message, sizeof old);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    size_t length = strlen(error->message);
    snprintf(error->message + length, sizeof error->message - length, ": %s", old);
    return error->code;
}

void as_error_clear(struct as_error *error)
{
    if (error != NULL) {
        error->code = 0;
        error->message[0] = '\0';
    }
}

int as_fail_memory(struct as_error *error, size_t bytes, const char *what)
{
    return as_fail(error, AS_ERR_MEMORY,
                   "out of memory: %zu bytes for %s could not be had; free memory or lower the "
                   "limits of the run",
                   bytes, what);
}
