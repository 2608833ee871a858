/* Models whose texts are known without running them (cases.md: fixtures S and M, C18, C30) give
 * exactly those, whatever the strategy, the chunks, the blocks and the company in a batch. */
#include "fixture_run.h"

static const char *const strategies[] = {"naive", "fast"};

#define STRATEGIES (sizeof strategies / sizeof strategies[0])

/* Requests become one batch: text made in place, so that all are there at the first step. */
#define AT_ONCE "preprocess=inline"

static void expect_alone(const char *model, const char *prompt, int output, const char *text)
{
    for (size_t i = 0; i < STRATEGIES; i++) {
        const char *const set[] = {NULL};
        const struct request request = {prompt, output, 0};
        struct replayed replayed;
        replay(model, strategies[i], set, &request, 1, &replayed);
        expect_text(&replayed, 0, text, strategies[i]);
        drop_texts(&replayed);
    }
}

Test(fixture_texts, successor)
{
    make_scratch();
    const char *model = write_named("S");
    expect_alone(model, "ABC", 4, "DEFG");
    expect_alone(model, "ABC", 20, "DEFGHIJKLMNOPQRSTUVW");
    expect_alone(model, "x", 1, "y");
    drop_scratch();
}

Test(fixture_texts, tied_output)
{
    make_scratch();
    expect_alone(write_named("S-tie"), "ABC", 4, "CCCC");
    drop_scratch();
}

Test(fixture_texts, utf8_and_end)
{
    make_scratch();
    const char *model = write_named("S-utf8");
    const char *const set[] = {NULL};
    const struct request request = {"xa", 20, 0};
    for (size_t i = 0; i < STRATEGIES; i++) {
        struct replayed replayed;
        replay(model, strategies[i], set, &request, 1, &replayed);
        expect_text(&replayed, 0,
                    "\xf0\x9f\xa6\x99"
                    "bc",
                    strategies[i]);
        cr_assert_eq(replayed.answer[0].tokens, 7, "four bytes, b, c, end");
        cr_assert_eq(replayed.answer[0].finish, AS_REPORT_FINISH_STOP);
        drop_texts(&replayed);
    }
    drop_scratch();
}

/* ---- majority: one wrong row of the cache flips the answer --------------------------------- */

static char prompt_text[5][300];
static struct request majority[5];
static const char *const majority_text[] = {"AAA", "bbb", "!!!", "bbb", "AAA"};

/* Counts of two bytes, the more frequent one (or, in a tie, the last) named in majority_text. */
static void make_prompts(void)
{
    static const struct {
        char first;
        size_t count;
        char then;
        size_t times;
    } mixes[] = {{'A', 9, 'b', 8},
                 {'b', 9, '!', 8},
                 {'!', 9, 'A', 8},
                 {'A', 8, 'b', 8},
                 {'A', 129, 'b', 128}};
    for (size_t i = 0; i < 5; i++) {
        prompt_text[i][0] = '\0';
        repeat(prompt_text[i], mixes[i].first, mixes[i].count);
        repeat(prompt_text[i], mixes[i].then, mixes[i].times);
        majority[i] = (struct request){prompt_text[i], 3, 0};
    }
}

/* Every prompt alone and all together, with these overrides. */
static void expect_majority(const char *model, const char *const *set, const char *what)
{
    for (size_t s = 0; s < STRATEGIES; s++) {
        struct replayed replayed;
        char words[128];
        snprintf(words, sizeof words, "%s, %s", strategies[s], what);
        for (size_t i = 0; i < 5; i++) {
            replay(model, strategies[s], set, &majority[i], 1, &replayed);
            expect_text(&replayed, 0, majority_text[i], words);
            drop_texts(&replayed);
        }
        replay(model, strategies[s], set, majority, 5, &replayed);
        for (size_t i = 0; i < 5; i++)
            expect_text(&replayed, i, majority_text[i], words);
        cr_assert_geq(replayed.most_sequences, 2, "%s: nothing ran together", words);
        drop_texts(&replayed);
    }
}

Test(fixture_texts, majority)
{
    make_scratch();
    make_prompts();
    const char *model = write_named("M");
    const char *const set[] = {AT_ONCE, NULL};
    expect_majority(model, set, "as shipped");
    drop_scratch();
}

/* C30: chunks that end before, at and behind blocks and prompts. */
Test(fixture_texts, majority_in_chunks)
{
    static const int chunks[] = {1, 16, 31, 32, 100, 256, 257, 1000};
    make_scratch();
    make_prompts();
    const char *model = write_named("M");
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        char chunk[32];
        snprintf(chunk, sizeof chunk, "chunk_tokens=%d", chunks[i]);
        const char *const set[] = {AT_ONCE, chunk, "max_batch_tokens=1024", NULL};
        expect_majority(model, set, chunk);
    }
    drop_scratch();
}

/* C30: a step's budget cuts prompts too; 256 leaves 1 token of 257 to the next step. */
Test(fixture_texts, majority_in_small_steps)
{
    static const struct {
        uint32_t tokens, sequences;
    } budgets[] = {{1, 1}, {7, 5}, {17, 5}, {51, 5}, {256, 5}};
    make_scratch();
    make_prompts();
    const char *model = write_named("M");
    for (size_t i = 0; i < 2 * sizeof budgets / sizeof budgets[0]; i++) {
        const char *strategy = strategies[i % 2];
        uint32_t tokens = budgets[i / 2].tokens;
        char budget[40], size[40];
        snprintf(budget, sizeof budget, "max_batch_tokens=%u", tokens);
        snprintf(size, sizeof size, "max_batch_size=%u", budgets[i / 2].sequences);
        const char *const set[] = {AT_ONCE, budget, size, NULL};
        struct replayed replayed;
        replay(model, strategy, set, majority, 5, &replayed);
        for (size_t r = 0; r < 5; r++)
            expect_text(&replayed, r, majority_text[r], budget);
        cr_assert_leq(replayed.most_prefill, tokens);
        drop_texts(&replayed);
    }
    drop_scratch();
}

Test(fixture_texts, majority_in_blocks)
{
    static const int blocks[] = {1, 7, 16};
    make_scratch();
    make_prompts();
    const char *model = write_named("M");
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        char block[32];
        snprintf(block, sizeof block, "block_size=%d", blocks[i]);
        const char *const set[] = {AT_ONCE, block, NULL};
        const char *const chunked[] = {AT_ONCE, block, "chunk_tokens=31", NULL};
        expect_majority(model, set, block);
        expect_majority(model, chunked, block);
    }
    drop_scratch();
}

/* C30: the three prompts of 17 tokens are one step of 51. */
Test(fixture_texts, three_prompts_in_one_step)
{
    make_scratch();
    make_prompts();
    const char *model = write_named("M");
    const char *const set[] = {AT_ONCE, NULL};
    for (size_t s = 0; s < STRATEGIES; s++) {
        struct replayed replayed;
        replay(model, strategies[s], set, majority, 3, &replayed);
        for (size_t i = 0; i < 3; i++)
            expect_text(&replayed, i, majority_text[i], strategies[s]);
        cr_assert_eq(replayed.most_prefill, 51);
        cr_assert_eq(replayed.steps, 3);
        drop_texts(&replayed);
    }
    drop_scratch();
}

/* A cache too small for all: the youngest gives way, is computed again, and says the same. */
Test(fixture_texts, majority_after_preemption)
{
    make_scratch();
    make_prompts();
    const char *model = write_named("M");
    const char *const set[] = {AT_ONCE, "block_size=4", "kv_blocks=15", NULL};
    static const char *const texts[] = {"AAAAAAAA", "bbbbbbbb", "!!!!!!!!"};
    struct request requests[3];
    for (size_t i = 0; i < 3; i++)
        requests[i] = (struct request){prompt_text[i], 8, 0};
    for (size_t s = 0; s < STRATEGIES; s++) {
        struct replayed replayed;
        replay(model, strategies[s], set, requests, 3, &replayed);
        for (size_t i = 0; i < 3; i++)
            expect_text(&replayed, i, texts[i], strategies[s]);
        uint32_t preemptions = 0;
        for (size_t i = 0; i < 3; i++) {
            const struct answer *answer = &replayed.answer[i];
            preemptions += answer->preemptions;
            cr_assert_eq(answer->requeue_ns > 0, answer->preemptions > 0);
        }
        cr_assert_gt(preemptions, 0);
        drop_texts(&replayed);
    }
    drop_scratch();
}

/* Less room than the unmeasured steps before a replay would like. */
Test(fixture_texts, a_context_of_two_rows)
{
    make_scratch();
    const char *model = write_named("S");
    const char *const set[] = {"preprocess=inline", "context=2", "block_size=1", NULL};
    static const struct request request = {"A", 2, 0};
    for (size_t s = 0; s < STRATEGIES; s++) {
        struct replayed replayed;
        replay(model, strategies[s], set, &request, 1, &replayed);
        expect_text(&replayed, 0, "BC", strategies[s]);
        drop_texts(&replayed);
    }
    drop_scratch();
}

/* ---- steps without an answer (C30) --------------------------------------------------------- */

/* Runs `count` tokens; returns whether the step had rows of logits, and what it launched. */
static void run_tokens(struct as_engine *engine, int32_t sequence, const int32_t *token,
                       int32_t count, bool wants, struct as_step_result *result)
{
    struct as_error error = {0};
    const struct as_batch_row row = {sequence, token, count, wants};
    const struct as_batch batch = {&row, 1};
    cr_assert(as_kv_reserve(as_engine_pool(engine), sequence,
                            as_kv_length(as_engine_pool(engine), sequence) + count));
    MUST(as_engine_submit(engine, &batch, false, &error));
    MUST(as_engine_collect(engine, result, &error));
}

static int head_launches(const struct as_engine *engine)
{
    int32_t count;
    int found = 0;
    const struct assay_launch *launch = as_engine_launches(engine, &count);
    for (int32_t i = 0; i < count; i++) {
        const struct assay_shape *shape = &launch[i].problem->node[0];
        found += shape->op == ASSAY_ARGMAX || shape->op == ASSAY_SELECT_ROWS ||
                 (shape->op == ASSAY_LINEAR && shape->n == AS_FIXTURE_VOCAB);
    }
    return found;
}

Test(fixture_texts, chunks_that_are_not_final_run_no_head)
{
    make_scratch();
    make_prompts();
    const char *model = write_named("M");
    for (size_t s = 0; s < STRATEGIES; s++) {
        struct as_error error = {0};
        struct as_bench bench;
        struct as_step_result result;
        int32_t token[257];
        for (int32_t i = 0; i < 257; i++)
            token[i] = prompt_text[4][i];
        const struct as_bench_options options = {.model = model, .strategy = strategies[s]};
        MUST(as_bench_open(&options, &bench, &error));
        int32_t sequence = as_kv_open(as_engine_pool(bench.engine));
        run_tokens(bench.engine, sequence, token, 100, false, &result);
        cr_assert_eq(result.logit_rows, 0);
        cr_assert_null(result.top);
        cr_assert_eq(head_launches(bench.engine), 0, "%s", strategies[s]);
        run_tokens(bench.engine, sequence, token + 100, 157, true, &result);
        cr_assert_eq(result.logit_rows, 1);
        cr_assert_eq(head_launches(bench.engine), 3, "%s", strategies[s]);
        cr_assert_eq(result.top[0].id, 'A');
        as_bench_close(&bench);
    }
    drop_scratch();
}
