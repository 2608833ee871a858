/* Who is in the next step: continuous batching with chunked prefill and preemption.
 *
 *     add ─► waiting (in order) ─► running (owns cache blocks) ─► finished
 *                 ▲                     │
 *                 └──── preempted ◄─────┘   (cache full: blocks returned, recomputed later)
 *
 * Each step takes one token of every sequence that decodes, then fills what is left of
 * max_batch_tokens with prompt chunks: running prompts first, then waiting ones in order.
 */
#ifndef AS_SCHEDULE_H
#define AS_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "as_error.h"
#include "engine/engine.h"
#include "engine/sampler.h"

struct as_schedule_options {
    int32_t max_batch_size;   /* sequences that run at once */
    int32_t max_batch_tokens; /* tokens of a step */
    int32_t chunk_tokens;     /* most prompt tokens of a sequence in a step */
    int32_t context;          /* most rows of a sequence */
};

/* A request as the scheduler needs it. */
struct as_schedule_request {
    uint32_t request;            /* the caller's number */
    const int32_t *prompt;       /* copied */
    int32_t prompt_tokens;       /* at least 1 */
    int32_t max_output;          /* at least 1 */
    int32_t min_output;          /* an end token before this is not an end */
    bool exact;                  /* no end token ends it: max_output tokens come */
    int32_t end[2];              /* ids that end generation, -1 = none */
    struct as_sampling sampling; /* temperature 0 = greedy */
};

enum as_phase { AS_PHASE_PREFILL, AS_PHASE_PREFILL_END, AS_PHASE_DECODE };

enum as_finish { AS_RUNNING, AS_FINISH_END, AS_FINISH_LENGTH, AS_FINISH_CONTEXT };

/* One request's part of the step that was formed. */
struct as_step_part {
    uint32_t request;
    int32_t tokens, position;
    enum as_phase phase;
    int32_t logit_row;                  /* its row of the step's results, -1 without one */
    int32_t active;                     /* private */
    const struct as_sampling *sampling; /* NULL = greedy */
    uint64_t draw;                      /* number of the token to be sampled, in its request */
};

struct as_formed_step {
    struct as_batch batch;           /* for the engine */
    const struct as_step_part *part; /* (batch.rows), in the same order */
    bool keep_logits;
    int32_t prefill_tokens, decode_tokens;
};

struct as_scheduler;

int as_scheduler_create(const struct as_schedule_options *options, struct as_kv_pool *pool,
                        struct as_scheduler **scheduler, struct as_error *error);
void as_scheduler_free(struct as_scheduler *scheduler);

/* Queues a request. One that could never run, being longer than the context or the whole cache,
 * is refused with AS_ERR_USAGE and the numbers. */
int as_scheduler_add(struct as_scheduler *scheduler, const struct as_schedule_request *request,
                     struct as_error *error);

/* Forms the next step into `step`, which stays valid until the next call. Zero rows: nothing to do.
 * Blocks are reserved; sequences that had to give way are counted in *preempted and listed by
 * as_scheduler_preempted(). */
int as_scheduler_form(struct as_scheduler *scheduler, struct as_formed_step *step,
                      int32_t *preempted, struct as_error *error);

/* Requests that gave way in the last form(), as many as it said. */
const uint32_t *as_scheduler_preempted(const struct as_scheduler *scheduler);

/* After the engine ran the step: moves `part` on. `token` is what was sampled for it (ignored
 * without a logit row). Returns whether and why the request ended; its blocks are then free. */
enum as_finish as_scheduler_apply(struct as_scheduler *scheduler, const struct as_step_part *part,
                                  int32_t token);

/* Drops the request of `part` (failed or cancelled) and frees its blocks. */
void as_scheduler_drop(struct as_scheduler *scheduler, const struct as_step_part *part);

int32_t as_scheduler_waiting(const struct as_scheduler *scheduler);
int32_t as_scheduler_running(const struct as_scheduler *scheduler);

#endif
