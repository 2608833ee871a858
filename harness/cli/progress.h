/* Progress of long work: a bar on a terminal, a line a phase elsewhere, nothing when quiet. */
#ifndef AS_PROGRESS_H
#define AS_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct as_progress {
    bool quiet, terminal;
    char what[192];   /* the phase that was shown last */
    uint64_t started; /* of the phase, ns */
};

void as_progress_begin(struct as_progress *progress, bool quiet);

/* `what` is being done; `done` of `total` so far (total 0: no count). Goes to standard error. A
 * `struct as_progress *` as context, so that it can be passed as a callback. */
void as_progress_show(void *progress, const char *what, size_t done, size_t total);

/* Clears the bar. */
void as_progress_end(struct as_progress *progress);

#endif
