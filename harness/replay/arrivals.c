#include "replay/arrivals.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "as_clock.h"
#include "as_memory.h"
#include "replay/pacer.h"

#define NONE SIZE_MAX

struct as_arrivals {
    struct as_arrivals_options options;
    struct as_pacer *pacer;
    int32_t **prompt;            /* of the requests given by length, else NULL */
    struct as_message **message; /* of those with messages */
    size_t *order;               /* requests with a time, by it */
    size_t timed, next;          /* CLOSED: the next of `order` to send */
    size_t in_flight;            /* due or sent, and not ended */
    uint64_t start_ns;
    size_t *first_child; /* requests that wait for this one: a list through next_child */
    size_t *next_child;
    pthread_mutex_t lock; /* over all below */
    pthread_cond_t rung;
    struct as_arrival *stamp;
    size_t *due; /* INLINE: a ring of what the pacer announced */
    size_t due_begin, due_count;
    struct as_error failure;
};

static const char *const mode_names[] = {
    [AS_MODE_OFFLINE] = "offline", [AS_MODE_OPEN] = "open", [AS_MODE_CLOSED] = "closed"};

int as_mode_by_name(const char *name)
{
    for (int i = 0; i < 3; i++)
        if (strcmp(mode_names[i], name) == 0)
            return i;
    return -1;
}

const char *as_mode_name(enum as_mode mode)
{
    return mode_names[mode];
}

static size_t total(const struct as_arrivals *a)
{
    return a->options.workload->count;
}

/* ---- sending ------------------------------------------------------------------------------ */

static void stamp_sent(struct as_arrivals *a, size_t index)
{
    pthread_mutex_lock(&a->lock);
    a->stamp[index].sent_ns = as_clock_ns();
    pthread_mutex_unlock(&a->lock);
}

static int submit(struct as_arrivals *a, size_t index, struct as_error *error)
{
    const struct as_workload_request *request = &a->options.workload->requests[index];
    struct as_stage_request stage = {.id = index};
    if (request->form == AS_WORKLOAD_TEXT) {
        stage.kind = AS_INPUT_TEXT;
        stage.text = (struct as_piece){request->text, strlen(request->text)};
    } else if (request->form == AS_WORKLOAD_MESSAGES) {
        stage.kind = AS_INPUT_MESSAGES;
        stage.messages = a->message[index];
        stage.message_count = request->message_count;
    } else {
        stage.kind = AS_INPUT_TOKENS;
        stage.tokens = a->prompt[index] != NULL ? a->prompt[index] : request->tokens;
        stage.token_count = request->length;
    }
    return as_stage_submit(a->options.stage, &stage, error);
}

static void ring(struct as_arrivals *a, size_t index)
{
    pthread_mutex_lock(&a->lock);
    a->due[(a->due_begin + a->due_count++) % total(a)] = index;
    pthread_cond_signal(&a->rung);
    pthread_mutex_unlock(&a->lock);
}

/* On the pacer's thread. */
static void send_due(void *context, size_t index)
{
    struct as_arrivals *a = context;
    struct as_error error = {0};
    stamp_sent(a, index);
    if (a->options.inline_text) {
        ring(a, index);
    } else if (submit(a, index, &error) != 0) {
        pthread_mutex_lock(&a->lock);
        if (a->failure.code == 0)
            a->failure = error;
        pthread_mutex_unlock(&a->lock);
    }
}

int as_arrivals_work(struct as_arrivals *a, bool wait, struct as_error *error)
{
    if (!a->options.inline_text)
        return 0;
    for (;;) {
        pthread_mutex_lock(&a->lock);
        while (wait && a->due_count == 0)
            pthread_cond_wait(&a->rung, &a->lock);
        bool any = a->due_count > 0;
        size_t index = any ? a->due[a->due_begin] : NONE;
        if (any) {
            a->due_begin = (a->due_begin + 1) % total(a);
            a->due_count--;
        }
        pthread_mutex_unlock(&a->lock);
        if (!any)
            return 0;
        int code = submit(a, index, error);
        if (code != 0)
            return code;
        wait = false;
    }
}

static int schedule(struct as_arrivals *a, size_t index, uint64_t due_ns, struct as_error *error)
{
    pthread_mutex_lock(&a->lock);
    a->stamp[index].scheduled_ns = due_ns;
    pthread_mutex_unlock(&a->lock);
    a->in_flight++;
    /* What is due at the start needs no clock: all of it is there before the first step, which
     * makes an inline offline replay the same every time. */
    if (a->options.inline_text && due_ns == a->start_ns) {
        stamp_sent(a, index);
        ring(a, index);
        return 0;
    }
    if (as_pacer_add(a->pacer, index, due_ns) != 0)
        return as_fail(error, AS_ERR_INTERNAL, "more requests are due than the workload has");
    return 0;
}

/* CLOSED: sends until as many are in flight as may be. */
static int fill_closed(struct as_arrivals *a, uint64_t now_ns, struct as_error *error)
{
    int code = 0;
    while (code == 0 && a->in_flight < a->options.concurrency && a->next < a->timed)
        code = schedule(a, a->order[a->next++], now_ns, error);
    return code;
}

int as_arrivals_start(struct as_arrivals *a, uint64_t start_ns, struct as_error *error)
{
    int code = 0;
    a->start_ns = start_ns;
    if (a->options.mode == AS_MODE_CLOSED)
        return fill_closed(a, start_ns, error);
    for (size_t i = 0; code == 0 && i < a->timed; i++) {
        uint64_t at = a->options.workload->requests[a->order[i]].at_ns;
        code =
            schedule(a, a->order[i], start_ns + (a->options.mode == AS_MODE_OPEN ? at : 0), error);
    }
    return code;
}

int as_arrivals_ended(struct as_arrivals *a, size_t index, uint64_t now_ns, struct as_error *error)
{
    int code = 0;
    a->in_flight--;
    for (size_t i = a->first_child[index]; code == 0 && i != NONE; i = a->next_child[i])
        code = schedule(a, i, now_ns + a->options.workload->requests[i].delay_ns, error);
    /* Turns that follow come first: a conversation keeps its place until its last one. */
    return code == 0 && a->options.mode == AS_MODE_CLOSED ? fill_closed(a, now_ns, error) : code;
}

struct as_arrival as_arrivals_stamp(struct as_arrivals *a, size_t index)
{
    pthread_mutex_lock(&a->lock);
    struct as_arrival stamp = a->stamp[index];
    pthread_mutex_unlock(&a->lock);
    return stamp;
}

int as_arrivals_failed(struct as_arrivals *a, struct as_error *error)
{
    pthread_mutex_lock(&a->lock);
    struct as_error failure = a->failure;
    pthread_mutex_unlock(&a->lock);
    return failure.code == 0 ? 0 : as_fail(error, failure.code, "%s", failure.message);
}

/* ---- preparing ---------------------------------------------------------------------------- */

static int synthesize(struct as_arrivals *a, struct as_error *error)
{
    const struct as_workload *workload = a->options.workload;
    int32_t *candidates = NULL;
    size_t count = 0;
    int code = 0;
    for (size_t i = 0; code == 0 && i < total(a); i++) {
        const struct as_workload_request *request = &workload->requests[i];
        if (request->form != AS_WORKLOAD_LENGTH)
            continue;
        if (candidates == NULL)
            code = as_tokenizer_round_trip(a->options.tokenizer, &candidates, &count, error);
        if (code != 0)
            break;
        a->prompt[i] = as_calloc(error, request->length, sizeof(int32_t), "a prompt");
        code = a->prompt[i] == NULL ? AS_ERR_MEMORY
                                    : as_workload_synthesize(workload, request, candidates, count,
                                                             a->prompt[i], error);
    }
    free(candidates);
    return code;
}

/* The stage wants pieces; the workload has strings. */
static int copy_messages(struct as_arrivals *a, struct as_error *error)
{
    for (size_t i = 0; i < total(a); i++) {
        const struct as_workload_request *request = &a->options.workload->requests[i];
        if (request->form != AS_WORKLOAD_MESSAGES)
            continue;
        a->message[i] =
            as_calloc(error, request->message_count, sizeof a->message[i][0], "messages");
        if (a->message[i] == NULL)
            return AS_ERR_MEMORY;
        for (size_t m = 0; m < request->message_count; m++) {
            const struct as_workload_message *from = &request->messages[m];
            a->message[i][m] =
                (struct as_message){.role = {from->role, strlen(from->role)},
                                    .content = {from->content, strlen(from->content)}};
        }
    }
    return 0;
}

struct timed {
    uint64_t at_ns;
    size_t index;
};

static int by_time(const void *left, const void *right)
{
    const struct timed *a = left, *b = right;
    if (a->at_ns != b->at_ns)
        return a->at_ns < b->at_ns ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

static int order_arrivals(struct as_arrivals *a, struct as_error *error)
{
    const struct as_workload *workload = a->options.workload;
    struct timed *timed = as_calloc(error, total(a), sizeof *timed, "arrivals");
    if (timed == NULL)
        return AS_ERR_MEMORY;
    for (size_t i = 0; i < total(a); i++)
        a->first_child[i] = a->next_child[i] = NONE;
    for (size_t i = total(a); i-- > 0;) {
        const struct as_workload_request *request = &workload->requests[i];
        a->stamp[i] = (struct as_arrival){UINT64_MAX, UINT64_MAX};
        if (request->after == AS_WORKLOAD_NO_REQUEST) {
            timed[a->timed++] = (struct timed){request->at_ns, i};
        } else {
            a->next_child[i] = a->first_child[request->after];
            a->first_child[request->after] = i;
        }
    }
    qsort(timed, a->timed, sizeof *timed, by_time);
    for (size_t i = 0; i < a->timed; i++)
        a->order[i] = timed[i].index;
    free(timed);
    return 0;
}

static int allocate(struct as_arrivals *a, struct as_error *error)
{
    size_t count = total(a);
    a->prompt = as_calloc(error, count, sizeof a->prompt[0], "arrivals");
    a->message = as_calloc(error, count, sizeof a->message[0], "arrivals");
    a->order = as_calloc(error, count, sizeof a->order[0], "arrivals");
    a->first_child = as_calloc(error, count, sizeof a->first_child[0], "arrivals");
    a->next_child = as_calloc(error, count, sizeof a->next_child[0], "arrivals");
    a->stamp = as_calloc(error, count, sizeof a->stamp[0], "arrivals");
    a->due = as_calloc(error, count, sizeof a->due[0], "arrivals");
    return a->prompt == NULL || a->message == NULL || a->order == NULL || a->first_child == NULL ||
                   a->next_child == NULL || a->stamp == NULL || a->due == NULL
               ? AS_ERR_MEMORY
               : 0;
}

int as_arrivals_create(const struct as_arrivals_options *options, struct as_arrivals **arrivals,
                       struct as_error *error)
{
    *arrivals = NULL;
    struct as_arrivals *a = as_calloc(error, 1, sizeof *a, "arrivals");
    if (a == NULL)
        return AS_ERR_MEMORY;
    a->options = *options;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->rung, NULL);
    int code = allocate(a, error);
    if (code == 0)
        code = order_arrivals(a, error);
    if (code == 0)
        code = copy_messages(a, error);
    if (code == 0)
        code = synthesize(a, error);
    if (code == 0)
        code = as_pacer_create(send_due, a, total(a), &a->pacer, error);
    if (code != 0) {
        as_arrivals_free(a);
        return code;
    }
    *arrivals = a;
    return 0;
}

void as_arrivals_free(struct as_arrivals *a)
{
    if (a == NULL)
        return;
    as_pacer_free(a->pacer);
    for (size_t i = 0; i < total(a); i++) {
        if (a->prompt != NULL)
            free(a->prompt[i]);
        if (a->message != NULL)
            free(a->message[i]);
    }
    free(a->prompt);
    free(a->message);
    free(a->order);
    free(a->first_child);
    free(a->next_child);
    free(a->stamp);
    free(a->due);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->rung);
    free(a);
}
