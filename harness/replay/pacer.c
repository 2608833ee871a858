#define _GNU_SOURCE
#include "replay/pacer.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "as_clock.h"
#include "as_memory.h"

/* Woken this long before the time, to spin the rest. */
#define SPIN_NS 300000u

struct due {
    uint64_t at_ns;
    uint64_t order; /* of adding: ties keep it */
    size_t item;
};

struct as_pacer {
    void (*send)(void *context, size_t item);
    void *context;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* on CLOCK_MONOTONIC */
    pthread_t thread;
    bool closing, started;
    struct due *heap; /* the earliest at 0 */
    size_t count, capacity;
    uint64_t added;
};

static bool earlier(const struct due *a, const struct due *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static void push(struct as_pacer *pacer, struct due due)
{
    size_t i = pacer->count++;
    while (i > 0 && earlier(&due, &pacer->heap[(i - 1) / 2])) {
        pacer->heap[i] = pacer->heap[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    pacer->heap[i] = due;
}

static struct due pop(struct as_pacer *pacer)
{
    struct due first = pacer->heap[0], last = pacer->heap[--pacer->count];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= pacer->count)
            break;
        if (child + 1 < pacer->count && earlier(&pacer->heap[child + 1], &pacer->heap[child]))
            child++;
        if (!earlier(&pacer->heap[child], &last))
            break;
        pacer->heap[i] = pacer->heap[child];
        i = child;
    }
    pacer->heap[i] = last;
    return first;
}

/* Waits, holding the lock, until the earliest item is near or something changed. */
static void wait_for_change(struct as_pacer *pacer, uint64_t now)
{
    if (pacer->count == 0) {
        pthread_cond_wait(&pacer->changed, &pacer->lock);
        return;
    }
    uint64_t wake = pacer->heap[0].at_ns - SPIN_NS;
    if (wake <= now)
        return;
    const struct timespec until = {.tv_sec = (time_t)(wake / 1000000000u),
                                   .tv_nsec = (long)(wake % 1000000000u)};
    pthread_cond_timedwait(&pacer->changed, &pacer->lock, &until);
}

static void *run(void *argument)
{
    struct as_pacer *pacer = argument;
    pthread_mutex_lock(&pacer->lock);
    while (!pacer->closing) {
        uint64_t now = as_clock_ns();
        if (pacer->count == 0 || pacer->heap[0].at_ns > now + SPIN_NS) {
            wait_for_change(pacer, now);
            continue;
        }
        struct due due = pop(pacer);
        pthread_mutex_unlock(&pacer->lock);
        while (as_clock_ns() < due.at_ns) {
        }
        pacer->send(pacer->context, due.item);
        pthread_mutex_lock(&pacer->lock);
    }
    pthread_mutex_unlock(&pacer->lock);
    return NULL;
}

int as_pacer_create(void (*send)(void *context, size_t item), void *context, size_t capacity,
                    struct as_pacer **result, struct as_error *error)
{
    *result = NULL;
    struct as_pacer *pacer = as_calloc(error, 1, sizeof *pacer, "the pacer");
    if (pacer == NULL)
        return AS_ERR_MEMORY;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&pacer->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&pacer->lock, NULL);
    pacer->send = send;
    pacer->context = context;
    pacer->capacity = capacity;
    pacer->heap = as_calloc(error, capacity, sizeof pacer->heap[0], "the pacer");
    if (pacer->heap == NULL) {
        as_pacer_free(pacer);
        return AS_ERR_MEMORY;
    }
    int failed = pthread_create(&pacer->thread, NULL, run, pacer);
    if (failed != 0) {
        as_pacer_free(pacer);
        errno = failed;
        return as_fail_errno(error, AS_ERR_IO, "cannot start the thread that sends requests");
    }
    pthread_setname_np(pacer->thread, "assay-pacer");
    pacer->started = true;
    *result = pacer;
    return 0;
}

int as_pacer_add(struct as_pacer *pacer, size_t item, uint64_t due_ns)
{
    int code = AS_ERR_MEMORY;
    pthread_mutex_lock(&pacer->lock);
    if (pacer->count < pacer->capacity) {
        push(pacer, (struct due){.at_ns = due_ns, .order = pacer->added++, .item = item});
        code = 0;
    }
    pthread_cond_signal(&pacer->changed);
    pthread_mutex_unlock(&pacer->lock);
    return code;
}

void as_pacer_free(struct as_pacer *pacer)
{
    if (pacer == NULL)
        return;
    if (pacer->started) {
        pthread_mutex_lock(&pacer->lock);
        pacer->closing = true;
        pthread_cond_signal(&pacer->changed);
        pthread_mutex_unlock(&pacer->lock);
        pthread_join(pacer->thread, NULL);
    }
    pthread_cond_destroy(&pacer->changed);
    pthread_mutex_destroy(&pacer->lock);
    free(pacer->heap);
    free(pacer);
}
