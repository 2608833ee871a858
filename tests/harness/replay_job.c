/* The child protocol: a job reads back as it was written, and one that this build would only half
 * understand is refused. */
#include <criterion/criterion.h>
#include <string.h>

#include "../reports/helpers.h"
#include "as_file.h"
#include "replay/job.h"

static const struct as_job whole = {.run = 7,
                                    .repetition = 1,
                                    .order = 3,
                                    .pass = AS_PASS_TRACED,
                                    .limit = 16,
                                    .model = "synthetic:tiny",
                                    .workload = "chat.awl.jsonl",
                                    .strategy = "fast",
                                    .mode = "closed",
                                    .concurrency = 4,
                                    .set = {"threads=1"},
                                    .sets = 1};

TestSuite(replay_job, .init = make_scratch, .fini = drop_scratch);

Test(replay_job, reads_back_as_written)
{
    struct as_job job;
    struct as_error error = {0};
    MUST(as_job_write(&whole, scratch, &error));
    MUST(as_job_read(&job, scratch, &error));
    cr_assert_eq(job.run, 7);
    cr_assert_eq(job.pass, AS_PASS_TRACED);
    cr_assert_eq(job.concurrency, 4);
    cr_assert_null(job.chat_template);
    cr_assert_eq(job.sets, 1);
    cr_assert_str_eq(job.set[0], "threads=1");
    as_job_free(&job);
}

/* That the job is refused, with `words`, once `old` in it is `new`. */
static void expect_refused(const char *old, const char *new, const char *words)
{
    struct as_job job;
    struct as_error error = {0};
    char *text, changed[4096];
    size_t size;
    MUST(as_job_write(&whole, scratch, &error));
    MUST(as_read_file(&text, &size, in_scratch("job.json"), 4096, &error));
    const char *at = strstr(text, old);
    cr_assert_not_null(at, "no %s in %s", old, text);
    snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, new, at + strlen(old));
    free(text);
    MUST(as_write_file(in_scratch("job.json"), changed, strlen(changed), &error));
    cr_assert_eq(as_job_read(&job, scratch, &error), AS_ERR_DATA, "%s was taken", new);
    cr_assert_not_null(strstr(error.message, words), "\"%s\" lacks \"%s\"", error.message, words);
}

Test(replay_job, what_is_not_understood_is_refused)
{
    expect_refused("\"limit\"", "\"limits\"", "limits");
    expect_refused("\"traced\"", "\"schedule\"", "no pass \"schedule\"");
    expect_refused("\"closed\"", "\"lockstep\"", "no mode \"lockstep\"");
    expect_refused("\"protocol\": 1", "\"protocol\": 99, \"later\": 1", "protocol 99");
    expect_refused("\"concurrency\": 4", "\"concurrency\": 0", "out of range");
    expect_refused("\"run\": 7", "\"run\": 4294967303", "out of range");
    expect_refused("\"threads=1\"", "1", "list of strings");
}
