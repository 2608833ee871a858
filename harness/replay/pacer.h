/* Sending requests when they are due, whatever the engine is doing: a thread with a clock.
 *
 * Times are absolute, so that being late once makes nothing after it late. The thread sleeps until
 * shortly before a request is due and spins the rest, since a sleeping thread wakes 50 us late and
 * more. What is due at the same time is sent in the order it was added.
 */
#ifndef AS_PACER_H
#define AS_PACER_H

#include <stddef.h>
#include <stdint.h>

#include "as_error.h"

struct as_pacer;

/* `send(context, item)` is called on the pacer's thread, once for each item, not before its time.
 * `capacity`: most items that may wait at once. */
int as_pacer_create(void (*send)(void *context, size_t item), void *context, size_t capacity,
                    struct as_pacer **pacer, struct as_error *error);

/* Adds an item due at `due_ns` (CLOCK_MONOTONIC); any thread, also from within `send`. Items past
 * due are sent at once. AS_ERR_MEMORY when `capacity` items wait. */
int as_pacer_add(struct as_pacer *pacer, size_t item, uint64_t due_ns);

/* Drops what waits and joins the thread; not from within `send`. NULL is fine. */
void as_pacer_free(struct as_pacer *pacer);

#endif
