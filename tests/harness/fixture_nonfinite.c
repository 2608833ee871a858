/* C32: logits that are not numbers end the request, with the op, the step and their count, and
 * nothing else. */
#include "fixture_run.h"

#include <math.h>

static const char *const strategies[] = {"naive", "fast"};

#define STRATEGIES (sizeof strategies / sizeof strategies[0])

/* That every request failed at its first token with `count` bad logits, greedy and drawn. */
static void expect_failure(const char *model, int count)
{
    char words[80];
    snprintf(words, sizeof words, "op linear (logits) gave %d non-finite values in step 0,", count);
    const char *const set[] = {"preprocess=inline", NULL};
    static const struct request requests[] = {{"ABC", 4, 0}, {"xy", 4, 0.8}};
    for (size_t s = 0; s < STRATEGIES; s++) {
        struct replayed replayed;
        replay(model, strategies[s], set, requests, 2, &replayed);
        cr_assert_eq(replayed.summary.failed, 2, "%s", strategies[s]);
        cr_assert_eq(replayed.summary.done, 0);
        cr_assert(strstr(replayed.summary.first_failure, words) != NULL, "%s: \"%s\" lacks \"%s\"",
                  strategies[s], replayed.summary.first_failure, words);
        for (size_t i = 0; i < 2; i++) {
            cr_assert_eq(replayed.answer[i].outcome, AS_REPORT_OUTCOME_FAILED);
            cr_assert_eq(replayed.answer[i].rows, 1, "the step that failed is not in the schedule");
            cr_assert_eq(replayed.answer[i].tokens, 0, "a token of a bad row was kept");
            cr_assert_str_eq(replayed.answer[i].text.data, "");
        }
        drop_texts(&replayed);
    }
}

static void expect_spoiled(int32_t row, float value, bool norm, int count)
{
    struct as_fixture fixture;
    struct as_error error = {0};
    make_scratch();
    const char *path = in_scratch("spoiled.gguf");
    cr_assert(as_fixture_named(&fixture, "S"));
    fixture.bad_row = row;
    fixture.bad_value = value;
    fixture.bad_norm = norm;
    MUST(as_fixture_write(&fixture, path, &error));
    expect_failure(path, count);
    drop_scratch();
}

Test(fixture_nonfinite, a_row_of_output_is_nan)
{
    expect_spoiled(65, NAN, false, 1);
}

Test(fixture_nonfinite, the_first_row_of_output_is_nan)
{
    expect_spoiled(0, NAN, false, 1);
}

/* 0 x inf is NaN: column 0 of the input is 0 for every token but 0. */
Test(fixture_nonfinite, a_row_of_output_is_infinite)
{
    expect_spoiled(65, INFINITY, false, 1);
}

Test(fixture_nonfinite, the_whole_norm_is_nan)
{
    expect_spoiled(-1, NAN, true, AS_FIXTURE_VOCAB);
}

/* M with the embedding of `bad` not a number, and "!" healthy. */
static const char *write_bad_token(unsigned char bad)
{
    struct as_fixture fixture;
    struct as_error error = {0};
    struct as_model *model;
    void *image;
    size_t size;
    const char *path = in_scratch("bad-token.gguf");
    cr_assert(as_fixture_named(&fixture, "M"));
    MUST(as_fixture_image(&fixture, &image, &size, &error));
    MUST(as_model_open_bytes(image, size, path, &model, &error));
    size_t at = (size_t)((const char *)model->token_embd->data - (const char *)image) +
                bad * AS_FIXTURE_HIDDEN * sizeof(float);
    as_model_close(model);
    memset((char *)image + at, 0xff, AS_FIXTURE_HIDDEN * sizeof(float));
    MUST(as_write_file(path, image, size, &error));
    free(image);
    return path;
}

/* NaN in one sequence's rows of every activation and of the cache reaches no other sequence, not
 * even one that later gets the blocks it left. */
Test(fixture_nonfinite, others_in_the_batch_are_unaffected)
{
    make_scratch();
    const char *model = write_bad_token('Z');
    const char *const set[] = {"preprocess=inline", "block_size=7", "max_batch_size=3", NULL};
    static const struct request requests[] = {{"AAAAAAAAAbbbbbbbb", 3, 0},
                                              {"ZZZZZZZZZZZZZZZZZ", 3, 0},
                                              {"bbbbbbbbb!!!!!!!!", 3, 0},
                                              {"!!!!!!!!!AAAAAAAA", 3, 0},
                                              {"ZA", 3, 0.8},
                                              {"AAAAAAAAbbbbbbbb", 3, 0}};
    for (size_t s = 0; s < STRATEGIES; s++) {
        struct replayed replayed;
        replay(model, strategies[s], set, requests, 6, &replayed);
        cr_assert_eq(replayed.summary.failed, 2, "%s: %s", strategies[s],
                     replayed.summary.first_failure);
        expect_text(&replayed, 0, "AAA", strategies[s]);
        expect_text(&replayed, 2, "bbb", strategies[s]);
        expect_text(&replayed, 3, "!!!", strategies[s]);
        expect_text(&replayed, 5, "bbb", strategies[s]);
        cr_assert_eq(replayed.answer[1].outcome, AS_REPORT_OUTCOME_FAILED);
        cr_assert_eq(replayed.answer[4].outcome, AS_REPORT_OUTCOME_FAILED);
        cr_assert(strstr(replayed.summary.first_failure, "258 non-finite") != NULL, "%s",
                  replayed.summary.first_failure);
        drop_texts(&replayed);
    }
    drop_scratch();
}
