/* Prompts made up from lengths and block ids: the same everywhere, shared where ids are. */
#include "helpers.h"

#define BLOCKS "{\"assay_workload\":1,\"block_tokens\":4,\"synth\":{\"seed\":5}}\n"

static const int32_t candidates[] = {100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110};
enum { CANDIDATES = sizeof candidates / sizeof candidates[0] };

static void make(const struct as_workload *workload, size_t row, int32_t *tokens)
{
    struct as_error error = {0};
    int code = as_workload_synthesize(workload, &workload->requests[row], candidates, CANDIDATES,
                                      tokens, &error);
    cr_assert(eq(int, code, 0), "%s", error.message);
}

/* The stream is part of the format ("counter1"): a change makes old workloads other ones. */
Test(synthesize, frozen_values)
{
    static const int32_t blocks[] = {107, 110, 106, 101, 107, 110, 102, 110};
    static const int32_t plain[] = {106, 102, 105, 107, 104, 110, 110, 110};
    struct as_workload *workload =
        must_parse(BLOCKS "{\"id\":\"a\",\"at_ns\":0,\"len\":8,\"blocks\":[0,1]}\n"
                          "{\"id\":\"b\",\"at_ns\":0,\"len\":8}\n");
    int32_t tokens[8];
    make(workload, 0, tokens);
    cr_expect_arr_eq(tokens, blocks, sizeof blocks);
    make(workload, 1, tokens);
    cr_expect_arr_eq(tokens, plain, sizeof plain);
    as_workload_free(workload);
}

Test(synthesize, blocks_share_tokens)
{
    struct as_workload *workload =
        must_parse(BLOCKS "{\"id\":\"a\",\"at_ns\":0,\"len\":11,\"blocks\":[7,8,9]}\n"
                          "{\"id\":\"b\",\"at_ns\":0,\"len\":12,\"blocks\":[7,8,10]}\n"
                          "{\"id\":\"c\",\"at_ns\":0,\"len\":12,\"blocks\":[9,8,7]}\n");
    int32_t a[12], b[12], c[12];
    a[11] = -1;
    make(workload, 0, a);
    make(workload, 1, b);
    make(workload, 2, c);
    cr_expect(a[11] == -1, "only `length` tokens are written");
    cr_expect_arr_eq(a, b, 8 * sizeof a[0], "common prefix");
    cr_expect_arr_neq(a + 8, b + 8, 3 * sizeof a[0]);
    cr_expect_arr_eq(a + 8, c, 3 * sizeof a[0], "a partial block is the head of the full one");
    cr_expect_arr_eq(a, c + 8, 4 * sizeof a[0], "a block is the same at any depth");
    as_workload_free(workload);
}

Test(synthesize, rows_are_keyed_by_id)
{
    struct as_workload *one = must_parse(HEADER "{\"id\":\"a\",\"at_ns\":0,\"len\":64}\n"
                                                "{\"id\":\"b\",\"at_ns\":0,\"len\":64}\n");
    struct as_workload *two = must_parse(HEADER "{\"id\":\"b\",\"at_ns\":0,\"len\":64}\n");
    struct as_workload *three = must_parse("{\"assay_workload\":1,\"synth\":{\"seed\":1}}\n"
                                           "{\"id\":\"b\",\"at_ns\":0,\"len\":64}\n");
    int32_t a[64], b[64], alone[64], reseeded[64];
    make(one, 0, a);
    make(one, 1, b);
    make(two, 0, alone);
    make(three, 0, reseeded);
    cr_expect_arr_eq(b, alone, sizeof b, "the same wherever the row stands");
    cr_expect_arr_neq(a, b, sizeof a);
    cr_expect_arr_neq(b, reseeded, sizeof b);
    as_workload_free(one);
    as_workload_free(two);
    as_workload_free(three);
}

Test(synthesize, covers_the_candidates_evenly)
{
    enum { LENGTH = 11000 };
    static int32_t tokens[LENGTH];
    struct as_workload *workload = must_parse(HEADER "{\"id\":\"a\",\"at_ns\":0,\"len\":11000}\n");
    int counts[CANDIDATES] = {0};
    make(workload, 0, tokens);
    for (size_t i = 0; i < LENGTH; i++) {
        cr_assert(tokens[i] >= 100 && tokens[i] < 100 + CANDIDATES);
        counts[tokens[i] - 100]++;
    }
    for (size_t i = 0; i < CANDIDATES; i++)
        cr_expect(counts[i] > 850 && counts[i] < 1150, "candidate %zu: %d of 1000", i, counts[i]);
    as_workload_free(workload);
}

Test(synthesize, wrong_use)
{
    struct as_workload *workload = must_parse(HEADER "{\"id\":\"a\",\"at_ns\":0,\"text\":\"x\"}\n"
                                                     "{\"id\":\"b\",\"at_ns\":0,\"len\":1}\n");
    int32_t token;
    struct as_error error = {0};
    const struct as_workload_request *text = &workload->requests[0], *length = text + 1;
    cr_expect(eq(int,
                 as_workload_synthesize(workload, text, candidates, CANDIDATES, &token, &error),
                 AS_ERR_USAGE));
    cr_expect(strstr(error.message, "\"a\"") != NULL);
    as_error_clear(&error);
    cr_expect(eq(int, as_workload_synthesize(workload, length, candidates, 0, &token, &error),
                 AS_ERR_USAGE));
    as_error_clear(&error);
    cr_expect(
        eq(int, as_workload_synthesize(workload, length, NULL, 5, &token, &error), AS_ERR_USAGE));
    as_error_clear(&error);
    cr_expect(eq(int, as_workload_synthesize(workload, length, candidates, 1, &token, &error), 0));
    cr_expect(eq(int, token, 100));
    as_workload_free(workload);
}

Test(synthesize, sampling_seeds_differ_by_row)
{
    struct as_workload *workload =
        must_parse(HEADER "{\"id\":\"a\",\"at_ns\":0,\"len\":1,\"sampling\":{}}\n"
                          "{\"id\":\"b\",\"at_ns\":0,\"len\":1,\"sampling\":{}}\n"
                          "{\"id\":\"c\",\"at_ns\":0,\"len\":1,\"sampling\":{\"seed\":0}}\n");
    cr_expect(ne(u64, workload->requests[0].sampling.seed, workload->requests[1].sampling.seed));
    cr_expect(eq(u64, workload->requests[2].sampling.seed, 0));
    as_workload_free(workload);
}
