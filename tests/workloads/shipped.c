/* The workloads of the repository are what the README and the design say of them. */
#include "helpers.h"

#include <math.h>

static struct as_workload *load(const char *name)
{
    char path[512];
    struct as_error error = {0};
    struct as_workload *workload = NULL;
    snprintf(path, sizeof path, "%s/workloads/%s", ASSAY_SOURCE_DIR, name);
    cr_assert(eq(int, as_workload_read(&workload, path, &error), 0), "%s", error.message);
    return workload;
}

/* Standard deviation of the gaps between arrivals over their mean: 0 for a metronome, 1 for a
 * Poisson process, more for bursts. Rows stand in order of arrival. */
static double gap_variation(const struct as_workload *workload)
{
    double sum = 0, squares = 0, n = (double)workload->count - 1;
    for (size_t i = 1; i < workload->count; i++) {
        const struct as_workload_request *request = &workload->requests[i];
        cr_assert(request->at_ns != AS_WORKLOAD_NO_TIME && request->at_ns >= request[-1].at_ns);
        double gap = (double)(request->at_ns - request[-1].at_ns);
        sum += gap;
        squares += gap * gap;
    }
    double mean = sum / n;
    return sqrt(squares / n - mean * mean) / mean;
}

Test(shipped, chat)
{
    struct as_workload *workload = load("chat.awl.jsonl");
    struct as_workload_totals totals;
    as_workload_sum(workload, &totals);
    cr_expect_str_eq(workload->header.name, "chat");
    cr_expect(eq(sz, workload->count, 64));
    cr_expect(eq(u64, workload->header.rows, 64));
    cr_expect(eq(u64, totals.messages + totals.text, 64));
    cr_expect(eq(u64, workload->requests[0].at_ns, 0));
    cr_expect(gap_variation(workload) > 1.2, "bursty arrivals");
    as_workload_free(workload);
}

/* The first sixteen are what the quickstart runs under the naive strategy. Their token count
 * needs a tokenizer, which this room has not; bytes and overhead bound it: SmolLM2's template
 * adds 5 tokens a message, 3 for the answer's opening, and no token is shorter than a byte. Text
 * of these rows was counted at 552 with the model's own tokenizer. */
Test(shipped, first_sixteen_are_short_and_exact)
{
    struct as_workload *workload = load("chat.awl.jsonl");
    size_t outputs = 0, bytes = 0;
    for (size_t i = 0; i < 16; i++) {
        const struct as_workload_request *request = &workload->requests[i];
        cr_assert(request->form == AS_WORKLOAD_MESSAGES);
        cr_expect(request->output.exact && request->output.n >= 8 && request->output.n <= 16);
        cr_expect(request->sampling.present == false);
        cr_expect_str_eq(request->messages[0].role, "system");
        outputs += request->output.n;
        for (size_t j = 0; j < request->message_count; j++)
            bytes += strlen(request->messages[j].content);
    }
    cr_expect(outputs < 160, "%zu output tokens", outputs);
    cr_expect(bytes < 600, "%zu bytes", bytes);
    struct as_error error = {0};
    cr_expect(eq(int, as_workload_limit(workload, 16, &error), 0), "%s", error.message);
    as_workload_free(workload);
}

Test(shipped, lengths)
{
    struct as_workload *workload = load("lengths.awl.jsonl");
    struct as_workload_totals totals;
    as_workload_sum(workload, &totals);
    cr_expect_str_eq(workload->header.name, "lengths");
    cr_expect(eq(sz, workload->count, 48));
    cr_expect(eq(u64, totals.length, 48));
    cr_expect(totals.with_blocks >= 8);
    cr_expect(gap_variation(workload) > 0.6 && gap_variation(workload) < 1.6);
    size_t below_64 = 0, above_512 = 0, shared = 0;
    for (size_t i = 0; i < workload->count; i++) {
        const struct as_workload_request *request = &workload->requests[i];
        cr_expect(request->length >= 16 && request->length <= 1024);
        below_64 += request->length <= 64;
        above_512 += request->length >= 512;
        shared += request->block_count > 0 && request->blocks[0] == 1;
    }
    cr_expect(below_64 >= 12 && above_512 >= 4 && shared >= 4);
    as_workload_free(workload);
}
