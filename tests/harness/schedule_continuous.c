/* The scheduler against a model of itself: whatever the load, every request gets its tokens in
 * order, exactly once, within the limits of a step, and the cache ends empty. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "as_random.h"
#include "device/cpu/cpu_device.h"
#include "schedule/schedule.h"

#define MAX_REQUESTS 64

struct world {
    struct assay_device *device;
    struct as_kv_pool *pool;
    struct as_scheduler *scheduler;
    struct as_schedule_options options;
    int32_t prompt[MAX_REQUESTS], output[MAX_REQUESTS]; /* asked for */
    int32_t got[MAX_REQUESTS];                          /* output tokens so far */
    bool ended[MAX_REQUESTS];
    int32_t requests, steps, preemptions;
};

static void open_world(struct world *w, struct as_schedule_options options, int64_t blocks,
                       int32_t block_size)
{
    *w = (struct world){.options = options};
    const struct as_kv_options kv = {.layers = 1,
                                     .kv_heads = 1,
                                     .head_dim = 1,
                                     .block_size = block_size,
                                     .blocks = blocks,
                                     .dtype = ASSAY_F32,
                                     .max_sequences = options.max_batch_size};
    cr_assert_eq(as_cpu_device_open(&w->device, 1, NULL, NULL), 0);
    cr_assert_eq(as_kv_pool_create(w->device, &kv, &w->pool, NULL), 0);
    cr_assert_eq(as_scheduler_create(&options, w->pool, &w->scheduler, NULL), 0);
}

static void close_world(struct world *w)
{
    as_scheduler_free(w->scheduler);
    as_kv_pool_free(w->pool);
    w->device->close(w->device);
}

/* Token `i` of request `r` is 1000 r + i, prompt and output alike, so that a step's tokens tell
 * where they belong. */
static void add(struct world *w, int32_t prompt, int32_t output)
{
    int32_t token[4096], r = w->requests++;
    struct as_error error = {0};
    for (int32_t i = 0; i < prompt; i++)
        token[i] = 1000 * r + i;
    const struct as_schedule_request request = {.request = (uint32_t)r,
                                                .prompt = token,
                                                .prompt_tokens = prompt,
                                                .max_output = output,
                                                .exact = true,
                                                .end = {-1, -1}};
    w->prompt[r] = prompt;
    w->output[r] = output;
    cr_assert_eq(as_scheduler_add(w->scheduler, &request, &error), 0, "%s", error.message);
}

static void check_part(struct world *w, const struct as_step_part *part,
                       const struct as_batch_row *row)
{
    int32_t r = (int32_t)part->request;
    int32_t known = w->prompt[r] + w->got[r];
    cr_assert_not(w->ended[r]);
    cr_assert_eq(part->position, as_kv_length(w->pool, row->sequence));
    cr_assert_leq(part->position + row->count, known);
    for (int32_t i = 0; i < row->count; i++)
        cr_assert_eq(row->tokens[i], 1000 * r + part->position + i);
    cr_assert_eq(row->wants_logits, part->position + row->count == known);
    cr_assert_eq(part->logit_row >= 0, row->wants_logits);
    cr_assert(row->count <= w->options.chunk_tokens || part->phase == AS_PHASE_DECODE);
}

/* Runs one step as an engine would. False when there was nothing to do. */
static bool step(struct world *w)
{
    struct as_formed_step formed;
    int32_t preempted, tokens = 0;
    cr_assert_eq(as_scheduler_form(w->scheduler, &formed, &preempted, NULL), 0);
    w->preemptions += preempted;
    for (int32_t i = 0; i < formed.batch.rows; i++) {
        tokens += formed.batch.row[i].count;
        check_part(w, &formed.part[i], &formed.batch.row[i]);
        for (int32_t j = 0; j < i; j++)
            cr_assert_neq(formed.part[i].request, formed.part[j].request);
    }
    cr_assert_leq(tokens, w->options.max_batch_tokens);
    cr_assert_leq(formed.batch.rows, w->options.max_batch_size);
    cr_assert_eq(tokens, formed.prefill_tokens + formed.decode_tokens);
    for (int32_t i = 0; i < formed.batch.rows; i++) {
        const struct as_step_part *part = &formed.part[i];
        int32_t r = (int32_t)part->request;
        int32_t sequence = formed.batch.row[i].sequence;
        as_kv_set_length(w->pool, sequence,
                         as_kv_length(w->pool, sequence) + formed.batch.row[i].count);
        int32_t token = 1000 * r + w->prompt[r] + w->got[r];
        w->got[r] += part->logit_row >= 0;
        enum as_finish finish = as_scheduler_apply(w->scheduler, part, token);
        w->ended[r] = finish != AS_RUNNING;
        cr_assert_eq(w->ended[r], w->got[r] == w->output[r]);
    }
    w->steps++;
    return formed.batch.rows > 0;
}

static void run_to_the_end(struct world *w)
{
    while (as_scheduler_waiting(w->scheduler) + as_scheduler_running(w->scheduler) > 0) {
        cr_assert_lt(w->steps, 200000, "no end in sight");
        int32_t before = w->preemptions;
        cr_assert(step(w) || w->preemptions > before, "a step did nothing, with work to do");
    }
    for (int32_t r = 0; r < w->requests; r++)
        cr_assert_eq(w->got[r], w->output[r], "request %d got %d of %d tokens", r, w->got[r],
                     w->output[r]);
    cr_assert_eq(as_kv_free_blocks(w->pool), as_kv_total_blocks(w->pool), "blocks leaked");
}

Test(schedule_continuous, any_load_ends_with_every_token_given_once)
{
    for (uint64_t trial = 0; trial < 150; trial++) {
#define DRAW(i, n) ((int32_t)(as_random_u64(trial, 7, (i)) % (uint64_t)(n)))
        struct world w;
        int32_t size = 1 + DRAW(0, 8), block = 1 + DRAW(1, 7);
        const struct as_schedule_options options = {.max_batch_size = size,
                                                    .max_batch_tokens = size + DRAW(2, 40),
                                                    .chunk_tokens = 1 + DRAW(3, 30),
                                                    .context = 100};
        /* From just enough for one request (60 + 30 - 1 rows) to plenty. */
        int64_t blocks = (89 + block - 1) / block + DRAW(4, 60);
        open_world(&w, options, blocks, block);
        int32_t requests = 1 + DRAW(5, 20);
        for (int32_t r = 0; r < requests; r++) {
            add(&w, 1 + DRAW(100 + 2 * r, 60), 1 + DRAW(101 + 2 * r, 30));
            if (DRAW(200 + r, 3) == 0)
                step(&w);
        }
        run_to_the_end(&w);
        close_world(&w);
#undef DRAW
    }
}

/* Two prompts that each want the whole cache: one gives way instead of both waiting for ever. */
Test(schedule_continuous, a_full_cache_preempts_the_youngest)
{
    struct world w;
    const struct as_schedule_options options = {
        .max_batch_size = 4, .max_batch_tokens = 8, .chunk_tokens = 4, .context = 64};
    open_world(&w, options, 8, 4);
    for (int i = 0; i < 4; i++)
        add(&w, 20, 10);
    run_to_the_end(&w);
    cr_assert_gt(w.preemptions, 0);
    close_world(&w);
}

/* C30: chunks that do not end a prompt sample nothing; a 1-token last chunk is no decode. */
Test(schedule_continuous, only_a_prompts_last_chunk_wants_logits)
{
    struct world w;
    struct as_formed_step formed;
    int32_t preempted;
    const struct as_schedule_options options = {
        .max_batch_size = 2, .max_batch_tokens = 8, .chunk_tokens = 8, .context = 64};
    open_world(&w, options, 20, 4);
    add(&w, 17, 1);
    const int32_t counts[] = {8, 8, 1};
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(as_scheduler_form(w.scheduler, &formed, &preempted, NULL), 0);
        cr_assert_eq(formed.batch.rows, 1);
        cr_assert_eq(formed.batch.row[0].count, counts[i]);
        cr_assert_eq(formed.part[0].logit_row, i == 2 ? 0 : -1);
        cr_assert_eq(formed.part[0].phase, i == 2 ? AS_PHASE_PREFILL_END : AS_PHASE_PREFILL);
        cr_assert_eq(formed.prefill_tokens, counts[i]);
        as_kv_set_length(w.pool, formed.batch.row[0].sequence, formed.part[0].position + counts[i]);
        as_scheduler_apply(w.scheduler, &formed.part[0], 5);
    }
    cr_assert_eq(as_scheduler_running(w.scheduler), 0);
    close_world(&w);
}

Test(schedule_continuous, what_can_never_run_is_refused_at_once)
{
    struct world w;
    struct as_error error = {0};
    int32_t token[64] = {0};
    const struct as_schedule_options options = {
        .max_batch_size = 2, .max_batch_tokens = 8, .chunk_tokens = 8, .context = 40};
    open_world(&w, options, 5, 4);
    struct as_schedule_request request = {
        .prompt = token, .prompt_tokens = 40, .max_output = 1, .end = {-1, -1}};
    cr_assert_eq(as_scheduler_add(w.scheduler, &request, &error), AS_ERR_USAGE);
    cr_assert_not_null(strstr(error.message, "context of 40"), "%s", error.message);
    as_error_clear(&error);
    request.prompt_tokens = 15;
    request.max_output = 7;
    cr_assert_eq(as_scheduler_add(w.scheduler, &request, &error), AS_ERR_USAGE);
    cr_assert_not_null(strstr(error.message, "6 cache blocks"), "%s", error.message);
    as_error_clear(&error);
    request.max_output = 6;
    cr_assert_eq(as_scheduler_add(w.scheduler, &request, &error), 0, "20 rows fit in 5 blocks");
    request.prompt_tokens = 0;
    cr_assert_eq(as_scheduler_add(w.scheduler, &request, &error), AS_ERR_USAGE);
    close_world(&w);
}

Test(schedule_continuous, end_tokens_end_unless_the_length_is_exact)
{
    const struct {
        bool exact;
        int32_t min, expected;
    } cases[] = {{false, 0, 1}, {false, 3, 3}, {true, 0, 5}};
    for (int i = 0; i < 3; i++) {
        struct world w;
        struct as_formed_step formed;
        int32_t preempted, token = 3, output = 0;
        const struct as_schedule_options options = {
            .max_batch_size = 1, .max_batch_tokens = 4, .chunk_tokens = 4, .context = 40};
        open_world(&w, options, 10, 4);
        const struct as_schedule_request request = {.prompt = &token,
                                                    .prompt_tokens = 1,
                                                    .max_output = 5,
                                                    .min_output = cases[i].min,
                                                    .exact = cases[i].exact,
                                                    .end = {7, -1}};
        cr_assert_eq(as_scheduler_add(w.scheduler, &request, NULL), 0);
        enum as_finish finish;
        do {
            cr_assert_eq(as_scheduler_form(w.scheduler, &formed, &preempted, NULL), 0);
            as_kv_set_length(w.pool, formed.batch.row[0].sequence, formed.part[0].position + 1);
            finish = as_scheduler_apply(w.scheduler, &formed.part[0], 7);
            output++;
        } while (finish == AS_RUNNING);
        cr_assert_eq(output, cases[i].expected);
        cr_assert_eq(finish, cases[i].exact ? AS_FINISH_LENGTH : AS_FINISH_END);
        close_world(&w);
    }
}

/* A claim of 2^31 tokens costs no memory: the context ends the request. */
Test(schedule_continuous, an_output_beyond_the_context_ends_at_it)
{
    struct world w;
    struct as_formed_step formed;
    int32_t preempted, token = 3, output = 0;
    const struct as_schedule_options options = {
        .max_batch_size = 1, .max_batch_tokens = 4, .chunk_tokens = 4, .context = 40};
    open_world(&w, options, 10, 4);
    const struct as_schedule_request request = {
        .prompt = &token, .prompt_tokens = 1, .max_output = INT32_MAX, .end = {-1, -1}};
    const struct rlimit little = {.rlim_cur = 1 << 30, .rlim_max = 1 << 30};
    cr_assert_eq(setrlimit(RLIMIT_DATA, &little), 0);
    cr_assert_eq(as_scheduler_add(w.scheduler, &request, NULL), 0);
    enum as_finish finish;
    do {
        cr_assert_eq(as_scheduler_form(w.scheduler, &formed, &preempted, NULL), 0);
        as_kv_set_length(w.pool, formed.batch.row[0].sequence, formed.part[0].position + 1);
        finish = as_scheduler_apply(w.scheduler, &formed.part[0], 7);
        output++;
    } while (finish == AS_RUNNING);
    cr_assert_eq(finish, AS_FINISH_CONTEXT);
    cr_assert_eq(output, 40, "the last token needs no row");
    close_world(&w);
}
