/* The text stage: requests in, token ids out, on threads of its own.
 *
 *     submit ─► bounded queue ─► threads (template, tokenizer) ─► finished results ─► take
 *
 * Both sides are blocks of bytes without pointers, so that another process could do the work over
 * shared memory. With 0 threads (`preprocess: inline`) the same work is done inside submit.
 * Every function may be called from any thread.
 */
#ifndef AS_STAGE_H
#define AS_STAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "as_error.h"
#include "preprocess/template.h"
#include "preprocess/tokenizer.h"

struct as_stage_options {
    const struct as_tokenizer *tokenizer; /* must outlive the stage; NULL: only tokens pass */
    const struct as_template *chat;       /* NULL: requests with messages fail */
    unsigned threads;                     /* 0: inline */
    size_t queue;                         /* requests that may wait for a thread; 0: 64 */
    size_t max_bytes;                     /* of a request's text or rendering; 0: 64 MiB */
    size_t max_tokens;                    /* most ids of a request; 0: no limit but memory */
};

enum as_input {
    AS_INPUT_TEXT,     /* BOS and EOS as the vocabulary says */
    AS_INPUT_MESSAGES, /* through the chat template */
    AS_INPUT_TOKENS    /* only checked against the vocabulary */
};

/* What to prepare. Copied by submit; nothing of it is kept. */
struct as_stage_request {
    uint64_t id; /* the caller's own; comes back in the result */
    enum as_input kind;
    struct as_piece text;
    const struct as_message *messages;
    size_t message_count;
    const int32_t *tokens;
    size_t token_count;
    bool plain;         /* text: leave "<|im_start|>" and the like as ordinary characters */
    bool no_generation; /* messages: do not open the assistant's turn */
};

/* One finished request: a block of `size` bytes that holds no pointer and may be copied or mapped
 * as it is. Freed by the taker with free(). Times are CLOCK_MONOTONIC nanoseconds. */
struct as_stage_result {
    uint64_t size;
    uint64_t id;
    uint64_t queued_ns;  /* submit was called */
    uint64_t start_ns;   /* a thread took it up */
    uint64_t end_ns;     /* the ids were there */
    int32_t status;      /* 0, or enum as_code: then there are no tokens, but an error text */
    uint32_t thread;     /* 0 upward: which of the stage's threads */
    uint64_t text_bytes; /* of the text, or of the rendered messages */
    uint64_t token_count;
    uint64_t error_bytes; /* of the error text, its NUL included; 0 without one */
    int32_t tokens[];     /* [token_count], then the error text */
};

/* The error text of a result, "" where it has none. */
const char *as_stage_result_error(const struct as_stage_result *result);

struct as_stage;

int as_stage_create(const struct as_stage_options *options, struct as_stage **stage,
                    struct as_error *error);

/* Hands a request over, and waits while the queue is full. What is wrong with a request shows in
 * its result, never here: a negative code is a closed stage or a failed allocation. */
int as_stage_submit(struct as_stage *stage, const struct as_stage_request *request,
                    struct as_error *error);

/* As as_stage_submit(), but returns AS_STAGE_FULL at once instead of waiting. */
#define AS_STAGE_FULL 1
int as_stage_try_submit(struct as_stage *stage, const struct as_stage_request *request,
                        struct as_error *error);

/* The next finished request, in the order of finishing, or NULL: none came until `deadline_ns`
 * (0: do not wait; UINT64_MAX: wait without limit), or none is left to come from a closed stage.
 * The result is the caller's to free(). */
struct as_stage_result *as_stage_take(struct as_stage *stage, uint64_t deadline_ns);

/* Requests submitted and not yet taken, and those of them still waiting for a thread. */
size_t as_stage_pending(struct as_stage *stage);
size_t as_stage_waiting(struct as_stage *stage);

/* No more requests: waiting submitters get an error, what was queued is still done. */
void as_stage_close(struct as_stage *stage);

/* Closes, drops what is still queued, joins the threads, frees results that were not taken.
 * No other thread may be inside the stage any more. NULL is accepted. */
void as_stage_free(struct as_stage *stage);

#endif
