#include "preprocess/stage.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "as_clock.h"
#include "as_memory.h"
#include "preprocess/stage_message.h"

#define DEFAULT_QUEUE 64
#define DEFAULT_MAX_BYTES ((size_t)64 << 20)

/* A request in the queue. `fallback` is a result that says "out of memory", or why the request
 * was refused outright; it was allocated by submit, so that no request can go unanswered. */
struct item {
    struct as_stage_block *block; /* NULL: refused */
    struct as_stage_result *fallback;
};

/* A ring of `capacity` slots with `count` in use from `first` on. */
struct results {
    struct as_stage_result **slots;
    size_t capacity, first, count;
};

struct worker {
    struct as_stage *stage;
    uint32_t index;
    struct as_encoder *encoder; /* NULL without a tokenizer */
    struct as_message *messages;
    size_t message_capacity;
    pthread_t thread;
};

struct as_stage {
    struct as_stage_options options;
    pthread_mutex_t lock; /* guards all below except the workers' own scratch */
    pthread_cond_t room, work, done;
    struct item *queue; /* ring of options.queue slots */
    size_t first, waiting;
    size_t pending; /* submitted and not taken */
    struct results results;
    bool closed;
    pthread_mutex_t inline_lock; /* with 0 threads: who holds it uses workers[0] */
    struct worker *workers;
    size_t worker_count, threads; /* threads: those to join */
};

/* ---- the work on one request ---- */

static int check_tokens(const struct as_tokenizer *tokenizer, const int32_t *tokens, size_t count,
                        struct as_error *error)
{
    for (size_t i = 0; i < count && tokenizer != NULL; i++)
        if (tokens[i] < 0 || (size_t)tokens[i] >= as_tokenizer_count(tokenizer))
            return as_fail(error, AS_ERR_DATA,
                           "token %zu of the prompt is %d, but the vocabulary has %zu tokens", i,
                           (int)tokens[i], as_tokenizer_count(tokenizer));
    return 0;
}

static int encode_messages(struct worker *worker, const struct as_stage_block *block,
                           struct as_text *text, struct as_error *error)
{
    const struct as_stage_options *options = &worker->stage->options;
    if (options->chat == NULL)
        return as_fail(error, AS_ERR_USAGE,
                       "the prompt is a list of messages, but no chat template is known for this "
                       "model; name one with --chat-template");
    if (block->count > worker->message_capacity) {
        free(worker->messages);
        worker->message_capacity = 0;
        worker->messages = as_calloc(error, block->count, sizeof *worker->messages, "messages");
        if (worker->messages == NULL)
            return AS_ERR_MEMORY;
        worker->message_capacity = block->count;
    }
    as_stage_unpack_messages(block, worker->messages);
    return as_template_render(options->chat, options->tokenizer, worker->messages, block->count,
                              block->no_generation == 0, text, error);
}

static int prepare(struct worker *worker, const struct as_stage_block *block, struct as_text *text,
                   const int32_t **tokens, size_t *count, size_t *bytes, struct as_error *error)
{
    const struct as_stage_options *options = &worker->stage->options;
    if (block->kind == AS_INPUT_TOKENS) {
        *tokens = (const int32_t *)(const void *)block->data;
        *count = block->count;
        return check_tokens(options->tokenizer, *tokens, *count, error);
    }
    if (worker->encoder == NULL)
        return as_fail(error, AS_ERR_USAGE, "the prompt is text, but there is no tokenizer");
    const char *source = (const char *)block->data;
    *bytes = block->count;
    unsigned flags = AS_ENCODE_ADD_SPECIAL | (block->plain ? 0 : AS_ENCODE_PARSE_SPECIAL);
    if (block->kind == AS_INPUT_MESSAGES) {
        int code = encode_messages(worker, block, text, error);
        if (code != 0)
            return code;
        source = text->data;
        *bytes = text->length;
        flags = AS_ENCODE_CHAT;
    }
    if (*bytes > options->max_bytes)
        return as_fail(error, AS_ERR_DATA, "the prompt has %zu bytes of text, more than %zu",
                       *bytes, options->max_bytes);
    return as_encoder_encode(worker->encoder, source, *bytes, flags, tokens, count, error);
}

/* The result of `item`, which is used up. */
static struct as_stage_result *process(struct worker *worker, struct item item)
{
    uint64_t start = as_clock_ns();
    size_t most = worker->stage->options.max_tokens;
    struct as_stage_result *result = NULL;
    if (item.block != NULL) {
        struct as_error error = {0};
        struct as_text text = {0};
        const int32_t *tokens = NULL;
        size_t count = 0, bytes = 0;
        int code = prepare(worker, item.block, &text, &tokens, &count, &bytes, &error);
        if (code == 0 && most > 0 && count > most)
            code = as_fail(&error, AS_ERR_DATA, "the prompt has %zu tokens, more than %zu", count,
                           most);
        as_stage_result_make(item.block->id, tokens, code == 0 ? count : 0,
                             code == 0 ? NULL : &error, &result, NULL);
        if (result != NULL)
            result->text_bytes = bytes;
        as_text_free(&text);
    }
    if (result == NULL)
        result = item.fallback;
    else
        free(item.fallback);
    if (item.block != NULL)
        result->queued_ns = item.block->queued_ns;
    result->start_ns = start;
    result->thread = worker->index;
    free(item.block);
    result->end_ns = as_clock_ns();
    return result;
}

/* ---- the results; the stage is locked ---- */

/* Room for the result of every pending request, so that finishing one needs no memory. */
static int reserve_result(struct as_stage *stage, struct as_error *error)
{
    struct results *results = &stage->results;
    if (stage->pending < results->capacity)
        return 0;
    size_t capacity = results->capacity == 0 ? 64 : results->capacity * 2;
    struct as_stage_result **slots =
        as_calloc(error, capacity, sizeof(struct as_stage_result *), "the finished requests");
    if (slots == NULL)
        return AS_ERR_MEMORY;
    for (size_t i = 0; i < results->count; i++)
        slots[i] = results->slots[(results->first + i) % results->capacity];
    free(results->slots);
    *results = (struct results){slots, capacity, 0, results->count};
    return 0;
}

static void finish(struct as_stage *stage, struct as_stage_result *result)
{
    struct results *results = &stage->results;
    results->slots[(results->first + results->count++) % results->capacity] = result;
    pthread_cond_signal(&stage->done);
}

/* ---- threads ---- */

static void *work(void *argument)
{
    struct worker *worker = argument;
    struct as_stage *stage = worker->stage;
    pthread_mutex_lock(&stage->lock);
    for (;;) {
        while (stage->waiting == 0 && !stage->closed)
            pthread_cond_wait(&stage->work, &stage->lock);
        if (stage->waiting == 0)
            break;
        struct item item = stage->queue[stage->first];
        stage->first = (stage->first + 1) % stage->options.queue;
        stage->waiting--;
        pthread_cond_signal(&stage->room);
        pthread_mutex_unlock(&stage->lock);
        struct as_stage_result *result = process(worker, item);
        pthread_mutex_lock(&stage->lock);
        finish(stage, result);
    }
    pthread_mutex_unlock(&stage->lock);
    return NULL;
}

/* Signals are the main thread's: the new one inherits a mask that blocks them all. */
static int start_thread(struct worker *worker, struct as_error *error)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&worker->thread, NULL, work, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0)
        return as_fail(error, AS_ERR_IO,
                       "thread %u of the text stage could not be started (error %d)", worker->index,
                       failed);
    return 0;
}

static int init_locks(struct as_stage *stage, struct as_error *error)
{
    pthread_condattr_t monotonic;
    if (pthread_condattr_init(&monotonic) != 0)
        return as_fail_memory(error, sizeof *stage, "a text stage");
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&stage->lock, NULL);
    pthread_mutex_init(&stage->inline_lock, NULL);
    pthread_cond_init(&stage->room, NULL);
    pthread_cond_init(&stage->work, NULL);
    pthread_cond_init(&stage->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return 0;
}

static int fill_stage(struct as_stage *stage, struct as_error *error)
{
    const struct as_stage_options *options = &stage->options;
    size_t workers = options->threads == 0 ? 1 : options->threads;
    stage->queue = as_calloc(error, options->queue, sizeof *stage->queue, "the text stage's queue");
    stage->workers = as_calloc(error, workers, sizeof *stage->workers, "the text stage's threads");
    if (stage->queue == NULL || stage->workers == NULL)
        return AS_ERR_MEMORY;
    stage->worker_count = workers;
    int code = 0;
    for (size_t i = 0; i < workers && code == 0; i++) {
        stage->workers[i].stage = stage;
        stage->workers[i].index = (uint32_t)i;
        if (options->tokenizer != NULL)
            code = as_encoder_create(options->tokenizer, &stage->workers[i].encoder, error);
    }
    while (stage->threads < options->threads && code == 0) {
        code = start_thread(&stage->workers[stage->threads], error);
        stage->threads += code == 0;
    }
    return code;
}

int as_stage_create(const struct as_stage_options *options, struct as_stage **stage,
                    struct as_error *error)
{
    *stage = NULL;
    struct as_stage *made = as_calloc(error, 1, sizeof *made, "a text stage");
    if (made == NULL)
        return AS_ERR_MEMORY;
    made->options = *options;
    if (made->options.queue == 0)
        made->options.queue = DEFAULT_QUEUE;
    if (made->options.max_bytes == 0)
        made->options.max_bytes = DEFAULT_MAX_BYTES;
    int code = init_locks(made, error);
    if (code != 0) {
        free(made);
        return code;
    }
    code = fill_stage(made, error);
    if (code != 0) {
        as_stage_free(made);
        return code;
    }
    *stage = made;
    return 0;
}

/* ---- submit and take ---- */

static void drop(struct item item)
{
    free(item.block);
    free(item.fallback);
}

static int make_item(const struct as_stage *stage, const struct as_stage_request *request,
                     struct item *item, struct as_error *error)
{
    uint64_t now = as_clock_ns();
    struct as_error failure = {0};
    *item = (struct item){0};
    size_t bytes = as_stage_text_bytes(request);
    if (bytes > stage->options.max_bytes)
        as_fail(&failure, AS_ERR_DATA, "the prompt has %zu bytes of text, more than %zu", bytes,
                stage->options.max_bytes);
    else
        as_stage_pack(request, now, &item->block, &failure);
    if (failure.code == 0)
        as_fail(&failure, AS_ERR_MEMORY, "out of memory for the result of a request");
    int code = as_stage_result_make(request->id, NULL, 0, &failure, &item->fallback, error);
    if (code != 0) {
        drop(*item);
        return code;
    }
    item->fallback->queued_ns = now;
    return 0;
}

static int submit_inline(struct as_stage *stage, struct item item, struct as_error *error)
{
    pthread_mutex_lock(&stage->lock);
    int code = stage->closed ? as_fail(error, AS_ERR_USAGE, "the text stage is closed")
                             : reserve_result(stage, error);
    if (code == 0)
        stage->pending++;
    pthread_mutex_unlock(&stage->lock);
    if (code != 0) {
        drop(item);
        return code;
    }
    pthread_mutex_lock(&stage->inline_lock);
    struct as_stage_result *result = process(&stage->workers[0], item);
    pthread_mutex_unlock(&stage->inline_lock);
    pthread_mutex_lock(&stage->lock);
    finish(stage, result);
    pthread_mutex_unlock(&stage->lock);
    return 0;
}

static int submit_queued(struct as_stage *stage, struct item item, bool wait,
                         struct as_error *error)
{
    pthread_mutex_lock(&stage->lock);
    while (wait && stage->waiting == stage->options.queue && !stage->closed)
        pthread_cond_wait(&stage->room, &stage->lock);
    int code = 0;
    if (stage->closed)
        code = as_fail(error, AS_ERR_USAGE, "the text stage is closed");
    else if (stage->waiting == stage->options.queue)
        code = AS_STAGE_FULL;
    else
        code = reserve_result(stage, error);
    if (code == 0) {
        stage->queue[(stage->first + stage->waiting++) % stage->options.queue] = item;
        stage->pending++;
        pthread_cond_signal(&stage->work);
    }
    pthread_mutex_unlock(&stage->lock);
    if (code != 0)
        drop(item);
    return code;
}

int as_stage_submit(struct as_stage *stage, const struct as_stage_request *request,
                    struct as_error *error)
{
    struct item item;
    int code = make_item(stage, request, &item, error);
    if (code != 0)
        return code;
    return stage->threads == 0 ? submit_inline(stage, item, error)
                               : submit_queued(stage, item, true, error);
}

int as_stage_try_submit(struct as_stage *stage, const struct as_stage_request *request,
                        struct as_error *error)
{
    /* Looked at before the request is copied, and again with the copy in hand. */
    if (stage->threads > 0 && as_stage_waiting(stage) == stage->options.queue)
        return AS_STAGE_FULL;
    struct item item;
    int code = make_item(stage, request, &item, error);
    if (code != 0)
        return code;
    return stage->threads == 0 ? submit_inline(stage, item, error)
                               : submit_queued(stage, item, false, error);
}

/* Waits for `done` until the deadline; true when it has passed. */
static bool wait_done(struct as_stage *stage, uint64_t deadline_ns)
{
    if (deadline_ns == UINT64_MAX) {
        pthread_cond_wait(&stage->done, &stage->lock);
        return false;
    }
    if (as_clock_ns() >= deadline_ns)
        return true;
    const struct timespec until = {.tv_sec = (time_t)(deadline_ns / 1000000000u),
                                   .tv_nsec = (long)(deadline_ns % 1000000000u)};
    pthread_cond_timedwait(&stage->done, &stage->lock, &until);
    return false;
}

struct as_stage_result *as_stage_take(struct as_stage *stage, uint64_t deadline_ns)
{
    struct results *results = &stage->results;
    struct as_stage_result *result = NULL;
    pthread_mutex_lock(&stage->lock);
    while (results->count == 0 && !(stage->closed && stage->pending == 0))
        if (wait_done(stage, deadline_ns))
            break;
    if (results->count > 0) {
        result = results->slots[results->first];
        results->first = (results->first + 1) % results->capacity;
        results->count--;
        stage->pending--;
        /* The last one of a closed stage: nobody else has anything to wait for. */
        if (stage->closed && stage->pending == 0)
            pthread_cond_broadcast(&stage->done);
    }
    pthread_mutex_unlock(&stage->lock);
    return result;
}

size_t as_stage_pending(struct as_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    size_t pending = stage->pending;
    pthread_mutex_unlock(&stage->lock);
    return pending;
}

size_t as_stage_waiting(struct as_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    size_t waiting = stage->waiting;
    pthread_mutex_unlock(&stage->lock);
    return waiting;
}

void as_stage_close(struct as_stage *stage)
{
    pthread_mutex_lock(&stage->lock);
    stage->closed = true;
    pthread_cond_broadcast(&stage->room);
    pthread_cond_broadcast(&stage->work);
    pthread_cond_broadcast(&stage->done);
    pthread_mutex_unlock(&stage->lock);
}

void as_stage_free(struct as_stage *stage)
{
    if (stage == NULL)
        return;
    pthread_mutex_lock(&stage->lock);
    while (stage->waiting > 0) {
        drop(stage->queue[stage->first]);
        stage->first = (stage->first + 1) % stage->options.queue;
        stage->waiting--;
    }
    pthread_mutex_unlock(&stage->lock);
    as_stage_close(stage);
    for (size_t i = 0; i < stage->threads; i++)
        pthread_join(stage->workers[i].thread, NULL);
    for (size_t i = 0; i < stage->worker_count; i++) {
        as_encoder_free(stage->workers[i].encoder);
        free(stage->workers[i].messages);
    }
    for (size_t i = 0; i < stage->results.count; i++)
        free(stage->results.slots[(stage->results.first + i) % stage->results.capacity]);
    free(stage->results.slots);
    free(stage->workers);
    free(stage->queue);
    pthread_cond_destroy(&stage->room);
    pthread_cond_destroy(&stage->work);
    pthread_cond_destroy(&stage->done);
    pthread_mutex_destroy(&stage->lock);
    pthread_mutex_destroy(&stage->inline_lock);
    free(stage);
}
