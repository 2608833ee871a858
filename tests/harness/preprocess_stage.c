/* The text stage: nothing lost, nothing mixed up, bounded, and shut down cleanly. */
#include "preprocess_fixture.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>

#include "as_clock.h"
#include "preprocess/stage.h"

#define LONG_TIME (60ull * 1000000000u)

static struct as_tokenizer *tokenizer;
static const struct as_template *chat;

static void set_up(void)
{
    static const struct fixture_merge merges[] = {{PIECE("a"), PIECE("b")}};
    static const struct fixture_added added[] = {{"<|im_start|>", AS_TOKEN_CONTROL},
                                                 {"<|im_end|>", AS_TOKEN_CONTROL}};
    const struct fixture fixture = {
        .pre = "smollm", .merges = merges, .merge_count = 1, .added = added, .added_count = 2};
    tokenizer = fixture_tokenizer(&fixture);
    cr_assert_eq(as_template_find(&chat, NULL, 0, "chatml", NULL), 0);
}

static void tear_down(void)
{
    as_tokenizer_free(tokenizer);
}

TestSuite(preprocess_stage, .init = set_up, .fini = tear_down, .timeout = 120);

static struct as_stage *make_stage(unsigned threads, size_t queue)
{
    const struct as_stage_options options = {.tokenizer = tokenizer,
                                             .chat = chat,
                                             .threads = threads,
                                             .queue = queue,
                                             .max_bytes = 4 << 20,
                                             .max_tokens = 2 << 20};
    struct as_stage *stage;
    struct as_error error = {0};
    cr_assert_eq(as_stage_create(&options, &stage, &error), 0, "%s", error.message);
    return stage;
}

static struct as_stage_request text_request(uint64_t id, const char *text)
{
    return (struct as_stage_request){.id = id, .kind = AS_INPUT_TEXT, .text = {text, strlen(text)}};
}

static struct as_stage_result *take(struct as_stage *stage)
{
    struct as_stage_result *result = as_stage_take(stage, as_clock_ns() + LONG_TIME);
    cr_assert_not_null(result);
    cr_assert(result->queued_ns <= result->start_ns && result->start_ns <= result->end_ns);
    return result;
}

static void expect_result(const struct as_stage_result *result, const int32_t *ids, size_t count)
{
    cr_expect_eq(result->status, 0, "%s", as_stage_result_error(result));
    cr_expect_str_eq(as_stage_result_error(result), "");
    expect_ids(result->tokens, result->token_count, ids, count, "result");
}

/* Each kind of request, and each kind of failure, in turn. */
static void submit_kinds(struct as_stage *stage)
{
    static const struct as_message messages[] = {{PIECE("user"), PIECE("ab<|im_end|>")},
                                                 {PIECE(""), PIECE("")}};
    static const int32_t good[] = {0, 258}, bad[] = {5, 259};
    static char large[(4 << 20) + 1];
    memset(large, 'x', sizeof large);
    struct as_stage_request requests[] = {
        text_request(0, "ab<|im_end|>"),
        text_request(1, "ab<|im_end|>"),
        {.id = 2, .kind = AS_INPUT_MESSAGES, .messages = messages, .message_count = 2},
        {.id = 3,
         .kind = AS_INPUT_MESSAGES,
         .messages = messages,
         .message_count = 1,
         .no_generation = true},
        {.id = 4, .kind = AS_INPUT_TOKENS, .tokens = good, .token_count = 2},
        {.id = 5, .kind = AS_INPUT_TOKENS, .tokens = bad, .token_count = 2},
        text_request(6, "a\xff"),
        {.id = 7, .kind = AS_INPUT_TEXT, .text = {large, sizeof large}},
        {.id = 8, .kind = AS_INPUT_TEXT, .text = {large, (2 << 20) + 1}},
        text_request(9, ""),
    };
    requests[1].plain = true;
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++)
        cr_assert_eq(as_stage_submit(stage, &requests[i], NULL), 0);
}

static void expect_kinds(struct as_stage_result *const results[10])
{
    expect_result(results[0], (const int32_t[]){256, 258}, 2);
    expect_result(results[1],
                  (const int32_t[]){256, '<', '|', 'i', 'm', '_', 'e', 'n', 'd', '|', '>'}, 11);
    const int32_t chat_ids[] = {257,  'u', 's', 'e', 'r', '\n', 256, 258, 258, '\n', 257, '\n', 258,
                                '\n', 257, 'a', 's', 's', 'i',  's', 't', 'a', 'n',  't', '\n'};
    expect_result(results[2], chat_ids, sizeof chat_ids / sizeof chat_ids[0]);
    expect_result(results[3], chat_ids, 10);
    expect_result(results[4], (const int32_t[]){0, 258}, 2);
    expect_result(results[9], NULL, 0);
    cr_expect_eq(results[0]->text_bytes, 12);
    cr_expect_eq(results[3]->text_bytes, 12 + 5 + 12 + 11);
    const char *const says[] = {"token 1 of the prompt is 259", "offset 1",
                                "4194305 bytes of text, more than 4194304",
                                "2097153 tokens, more than 2097152"};
    for (size_t i = 0; i < 4; i++) {
        cr_expect_eq(results[5 + i]->status, AS_ERR_DATA);
        cr_expect_eq(results[5 + i]->token_count, 0);
        cr_expect_not_null(strstr(as_stage_result_error(results[5 + i]), says[i]), "%s",
                           as_stage_result_error(results[5 + i]));
    }
}

Test(preprocess_stage, every_kind_of_request)
{
    for (unsigned threads = 0; threads < 4; threads++) {
        struct as_stage *stage = make_stage(threads, 16);
        struct as_stage_result *results[10] = {NULL};
        submit_kinds(stage);
        cr_expect_eq(as_stage_pending(stage), 10);
        for (int i = 0; i < 10; i++) {
            struct as_stage_result *result = take(stage);
            cr_assert(result->id < 10 && results[result->id] == NULL);
            cr_expect_lt(result->thread, threads == 0 ? 1 : threads);
            /* A copy of the bytes is as good as the block itself. */
            results[result->id] = malloc(result->size);
            cr_assert_not_null(results[result->id]);
            memcpy(results[result->id], result, result->size);
            memset(result, 0xff, result->size);
            free(result);
        }
        cr_expect_eq(as_stage_pending(stage), 0);
        cr_expect_null(as_stage_take(stage, 0));
        expect_kinds(results);
        for (int i = 0; i < 10; i++)
            free(results[i]);
        as_stage_free(stage);
    }
}

Test(preprocess_stage, without_a_template_or_a_tokenizer)
{
    const struct as_stage_options options = {.threads = 1};
    struct as_stage *stage;
    cr_assert_eq(as_stage_create(&options, &stage, NULL), 0);
    const struct as_message message = {PIECE("user"), PIECE("Hi")};
    const int32_t token = 1000000;
    const struct as_stage_request requests[] = {
        text_request(0, "x"),
        {.id = 1, .kind = AS_INPUT_MESSAGES, .messages = &message, .message_count = 1},
        {.id = 2, .kind = AS_INPUT_TOKENS, .tokens = &token, .token_count = 1}};
    for (uint64_t i = 0; i < 3; i++) {
        cr_assert_eq(as_stage_submit(stage, &requests[i], NULL), 0);
        struct as_stage_result *result = take(stage);
        cr_expect_eq(result->status, i == 2 ? 0 : AS_ERR_USAGE);
        free(result);
    }
    as_stage_free(stage);
}

/* A text that keeps a thread busy for a while. */
static char *slow_text(void)
{
    char *text = malloc((1 << 20) + 1);
    cr_assert_not_null(text);
    for (size_t i = 0; i < 1 << 20; i++)
        text[i] = "ab"[i % 2];
    text[1 << 20] = '\0';
    return text;
}

/* How many of 20 short requests came out before the slow one that went in first. */
static size_t overtaking(struct as_stage *stage, const char *slow)
{
    const struct as_stage_request first = text_request(1000, slow);
    cr_assert_eq(as_stage_submit(stage, &first, NULL), 0);
    for (uint64_t i = 0; i < 20; i++) {
        const struct as_stage_request request = text_request(i, "ab");
        cr_assert_eq(as_stage_submit(stage, &request, NULL), 0);
    }
    bool slow_done = false;
    size_t before = 0;
    for (int i = 0; i < 21; i++) {
        struct as_stage_result *result = take(stage);
        cr_expect_eq(result->status, 0);
        cr_expect_eq(result->token_count, result->id == 1000 ? 1 << 19 : 1);
        slow_done = slow_done || result->id == 1000;
        before += !slow_done;
        free(result);
    }
    return before;
}

/* Tried again where this thread was held up so long that the slow one was done before the others
 * went in; if they had to wait for it, no try would help. */
Test(preprocess_stage, c04_the_others_flow_past_a_slow_one)
{
    struct as_stage *stage = make_stage(2, 64);
    char *slow = slow_text();
    size_t before = 0;
    for (int i = 0; i < 20 && before == 0; i++)
        before = overtaking(stage, slow);
    cr_expect_geq(before, 1);
    free(slow);
    as_stage_free(stage);
}

Test(preprocess_stage, a_full_queue_pushes_back)
{
    struct as_stage *stage = make_stage(1, 2);
    char *slow = slow_text();
    size_t accepted = 0;
    int code = 0;
    /* At most one is being done and two wait, unless this thread is slower than the stage. */
    while (accepted < 1000 && code == 0) {
        const struct as_stage_request request = text_request(accepted, slow);
        code = as_stage_try_submit(stage, &request, NULL);
        accepted += code == 0;
        cr_assert_leq(as_stage_waiting(stage), 2);
    }
    cr_expect_eq(code, AS_STAGE_FULL);
    const struct as_stage_request request = text_request(accepted++, "ab");
    cr_expect_eq(as_stage_submit(stage, &request, NULL), 0);
    for (size_t i = 0; i < accepted; i++) {
        struct as_stage_result *result = take(stage);
        cr_expect_eq(result->id, i);
        free(result);
    }
    free(slow);
    as_stage_free(stage);
}

Test(preprocess_stage, close_finishes_what_was_queued)
{
    for (unsigned threads = 0; threads < 3; threads++) {
        struct as_stage *stage = make_stage(threads, 64);
        const struct as_stage_request request = text_request(1, "ab");
        for (int i = 0; i < 30; i++)
            cr_assert_eq(as_stage_submit(stage, &request, NULL), 0);
        as_stage_close(stage);
        struct as_error error = {0};
        cr_expect_eq(as_stage_submit(stage, &request, &error), AS_ERR_USAGE);
        cr_expect_eq(as_stage_try_submit(stage, &request, NULL), AS_ERR_USAGE);
        for (int i = 0; i < 30; i++)
            free(take(stage));
        cr_expect_null(as_stage_take(stage, UINT64_MAX));
        as_stage_free(stage);
    }
}

Test(preprocess_stage, free_drops_what_is_left)
{
    char *slow = slow_text();
    for (unsigned threads = 0; threads < 3; threads++) {
        struct as_stage *stage = make_stage(threads, 64);
        for (uint64_t i = 0; i < 5; i++) {
            const struct as_stage_request request = text_request(i, slow);
            cr_assert_eq(as_stage_submit(stage, &request, NULL), 0);
        }
        as_stage_free(stage);
    }
    as_stage_free(NULL);
    free(slow);
}

struct crowd {
    struct as_stage *stage;
    uint64_t first;
};

#define EACH 500

static void *submit_many(void *argument)
{
    const struct crowd *crowd = argument;
    for (uint64_t i = crowd->first; i < crowd->first + EACH; i++) {
        char text[32];
        snprintf(text, sizeof text, "ab%u", (unsigned)i);
        const struct as_stage_request request = text_request(i, text);
        cr_assert_eq(as_stage_submit(crowd->stage, &request, NULL), 0);
    }
    return NULL;
}

/* Three submitters and a queue of four: each request answered once and as its own. */
Test(preprocess_stage, many_threads)
{
    for (unsigned threads = 0; threads < 4; threads += 3) {
        struct as_stage *stage = make_stage(threads, 4);
        struct crowd crowds[3];
        pthread_t submitters[3];
        bool seen[3 * EACH] = {false};
        for (uint64_t i = 0; i < 3; i++) {
            crowds[i] = (struct crowd){stage, i * EACH};
            cr_assert_eq(pthread_create(&submitters[i], NULL, submit_many, &crowds[i]), 0);
        }
        for (size_t i = 0; i < 3 * EACH; i++) {
            struct as_stage_result *result = take(stage);
            char digits[16];
            size_t length = (size_t)snprintf(digits, sizeof digits, "%u", (unsigned)result->id);
            cr_assert(result->id < 3 * EACH && !seen[result->id]);
            seen[result->id] = true;
            cr_assert_eq(result->token_count, 1 + length);
            for (size_t j = 0; j < length; j++)
                cr_assert_eq(result->tokens[1 + j], digits[j]);
            free(result);
        }
        for (int i = 0; i < 3; i++)
            pthread_join(submitters[i], NULL);
        as_stage_free(stage);
    }
}

static void *wait_for_room(void *argument)
{
    struct as_error error = {0};
    char *slow = slow_text();
    const struct as_stage_request request = text_request(9, slow);
    int code = 0;
    while (code == 0)
        code = as_stage_submit(argument, &request, &error);
    cr_expect_eq(code, AS_ERR_USAGE, "%s", error.message);
    free(slow);
    return NULL;
}

Test(preprocess_stage, close_wakes_a_waiting_submitter)
{
    struct as_stage *stage = make_stage(1, 1);
    pthread_t submitter;
    cr_assert_eq(pthread_create(&submitter, NULL, wait_for_room, stage), 0);
    while (as_stage_waiting(stage) == 0)
        sched_yield();
    as_stage_close(stage);
    pthread_join(submitter, NULL);
    as_stage_free(stage);
}

Test(preprocess_stage, take_waits_until_its_deadline)
{
    struct as_stage *stage = make_stage(1, 1);
    uint64_t start = as_clock_ns();
    cr_expect_null(as_stage_take(stage, start + 20000000));
    cr_expect_geq(as_clock_ns() - start, 20000000u);
    as_stage_free(stage);
}
