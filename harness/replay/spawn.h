/* Starting one child and following it to its end. Private to replay/. */
#ifndef AS_SPAWN_H
#define AS_SPAWN_H

#include <signal.h>
#include <stddef.h>

#include "as_error.h"

struct as_child_end {
    int exit;   /* status, -1 when a signal ended it */
    int signal; /* 0 = none */
};

/* Starts `program child folder` and returns when it has ended. Progress lines of its standard
 * output call `progress`. When *interrupted is no longer 0 the child is killed. */
int as_spawn_child(const char *program, const char *folder,
                   void (*progress)(void *context, size_t done, size_t total), void *context,
                   const volatile sig_atomic_t *interrupted, struct as_child_end *end,
                   struct as_error *error);

#endif
