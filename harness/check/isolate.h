/* Work done in a forked process, so that its crash or its endless loop is an answer. */
#ifndef AS_ISOLATE_H
#define AS_ISOLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "as_error.h"
#include "kernel.h"

/* Shared with the process that does the work. */
struct as_isolated {
    char doing[400]; /* what it is at, for the message if it dies */
    int code;        /* what the work returned, and its message */
    struct as_error error;
    bool finished;
    bool forked;      /* work is done in a child */
    unsigned seconds; /* that it may take for one thing */
};

/* A child at work. */
struct as_isolation {
    pid_t child; /* -1: the work was done here, by as_isolate_start */
    void *shared;
    size_t bytes;
    void *result;
    size_t result_size;
    unsigned seconds;
    int code; /* of work done here */
};

/* Runs work(context, isolated, result) in a child with `seconds` of time for one thing, `result`
 * (result_size bytes, copied in before and out by as_isolate_end) shared. With `inline_only`, or
 * where nothing can be forked, the work is done here and now. */
void as_isolate_start(struct as_isolation *isolation,
                      int (*work)(void *context, struct as_isolated *isolated, void *result),
                      void *context, void *result, size_t result_size, unsigned seconds,
                      bool inline_only, struct as_error *error);

/* Waits for the child. Returns what the work returned. Where the child died, `*died` is true,
 * `how` says of what ("died of SIGSEGV while ..."), the result is as far as it got, and 0 is
 * returned; a child ended by SIGINT or SIGTERM was interrupted: AS_ERR_IO. */
int as_isolate_end(struct as_isolation *isolation, bool *died, char *how, size_t how_size,
                   struct as_error *error);

/* Waits until the device's threads have come to rest, by giving them nothing to do. Before a fork:
 * a thread that is just starting may hold locks (AddressSanitizer's are not undone in the child),
 * and the child's first own thread would wait for them for ever. The device must be idle. */
void as_isolate_rest(struct assay_device *device);

/* ASSAY_CHECK_SECONDS of the environment where it is a positive number, else `usual`. */
unsigned as_isolated_seconds(unsigned usual);

/* Whether work must stay in the process: ASSAY_CHECK_INLINE is set. */
bool as_isolated_inline(void);

/* The child has come on: it gets as long again. */
void as_isolate_again(const struct as_isolated *isolated);

/* Says what comes next. */
void as_isolated_doing(struct as_isolated *isolated, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
