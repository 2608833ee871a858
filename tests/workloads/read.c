/* Good files: every field arrives as written, defaults are as documented. */
#include "helpers.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

static const char full[] =
    "{\"assay_workload\":1,\"name\":\"all\",\"source\":{\"repo\":\"r\",\"commit\":\"c\",\"path\":"
    "\"p\",\"sha256\":\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\","
    "\"licence\":\"MIT\",\"attribution\":\"who\"},\"rows\":4,\"tokenizer\":{\"id\":\"t\",\"sha256\":"
    "\"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff\",\"vocab\":100},"
    "\"block_tokens\":16,\"synth\":{\"algo\":\"counter1\",\"seed\":99},\"transforms\":[{\"step\":"
    "\"slice\",\"n\":4}],\"body_sha256\":"
    "\"ABCDEF6789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"}\n"
    "{\"id\":\"one\",\"at_ns\":0,\"session\":\"s\",\"turn\":0,\"text\":\"caf\\u00e9 \\ud83d\\ude00\","
    "\"out\":{\"n\":5,\"exact\":true},\"class\":\"chat\",\"model\":\"m\",\"cancel_ns\":7,\"src\":{"
    "\"row\":12}}\n"
    "{\"id\":\"two\",\"after\":{\"id\":\"three\",\"delay_ns\":250},\"messages\":[{\"role\":\"system\","
    "\"content\":\"\"},{\"role\":\"user\",\"content\":\"a\\nb\"}],\"out\":{\"n\":9,\"min\":3}}\n"
    "{\"id\":\"three\",\"at_ns\":5,\"tokens\":[0,99,7],\"sampling\":{\"seed\":3,\"temperature\":0,"
    "\"top_p\":0.5,\"top_k\":40}}\n"
    "{\"id\":\"four\",\"at_ns\":4,\"len\":33,\"blocks\":[1,2,9007199254740993],\"sampling\":{}}";

Test(read, header)
{
    struct as_workload *workload = must_parse(full);
    const struct as_workload_header *header = &workload->header;
    cr_expect_str_eq(header->name, "all");
    cr_expect_str_eq(header->source.repo, "r");
    cr_expect_str_eq(header->source.commit, "c");
    cr_expect_str_eq(header->source.path, "p");
    cr_expect(strncmp(header->source.sha256, "0123456789abcdef0", 17) == 0);
    cr_expect_str_eq(header->source.licence, "MIT");
    cr_expect_str_eq(header->source.attribution, "who");
    cr_expect_str_eq(header->tokenizer.id, "t");
    cr_expect(eq(u64, header->tokenizer.vocab, 100));
    cr_expect(eq(u64, header->rows, 4));
    cr_expect(eq(u64, header->block_tokens, 16));
    cr_expect(eq(u64, header->synth_seed, 99));
    cr_expect_str_eq(header->transforms, "[{\"step\":\"slice\",\"n\":4}]");
    cr_expect(strncmp(header->body_sha256, "ABCDEF", 6) == 0);
    cr_expect(eq(sz, workload->body_offset, (size_t)(strchr(full, '\n') - full) + 1));
    cr_expect(eq(sz, strlen(workload->digest_hex), 16));
    as_workload_free(workload);
}

Test(read, rows)
{
    struct as_workload *workload = must_parse(full);
    cr_assert(eq(sz, workload->count, 4));
    cr_expect(eq(sz, workload->total, 4));
    const struct as_workload_request *one = &workload->requests[0], *two = one + 1,
                                     *three = one + 2, *four = one + 3;
    cr_expect_str_eq(one->id, "one");
    cr_expect(eq(u64, one->at_ns, 0));
    cr_expect(eq(sz, one->after, AS_WORKLOAD_NO_REQUEST));
    cr_expect_str_eq(one->session, "s");
    cr_expect(eq(u32, one->turn, 0));
    cr_expect(one->form == AS_WORKLOAD_TEXT);
    cr_expect_str_eq(one->text, "caf\xc3\xa9 \xf0\x9f\x98\x80");
    cr_expect(one->output.exact && one->output.n == 5 && one->output.min == 5);
    cr_expect(one->sampling.present == false && one->sampling.temperature == 0 &&
              one->sampling.top_p == 1);
    cr_expect_str_eq(one->class_name, "chat");
    cr_expect_str_eq(one->model, "m");
    cr_expect(eq(u64, one->cancel_ns, 7));
    cr_expect(eq(u64, one->source_row, 12));
    cr_expect(eq(u64, one->line, 2));

    cr_expect(eq(u64, two->at_ns, AS_WORKLOAD_NO_TIME));
    cr_expect(eq(sz, two->after, 2));
    cr_expect(eq(u64, two->delay_ns, 250));
    cr_expect(eq(u32, two->turn, AS_WORKLOAD_NO_U32));
    cr_expect(two->session == NULL && two->class_name == NULL && two->model == NULL);
    cr_expect(eq(u64, two->cancel_ns, AS_WORKLOAD_NO_TIME));
    cr_expect(eq(u64, two->source_row, AS_WORKLOAD_NO_U64));
    cr_assert(two->form == AS_WORKLOAD_MESSAGES && two->message_count == 2);
    cr_expect_str_eq(two->messages[0].role, "system");
    cr_expect_str_eq(two->messages[0].content, "");
    cr_expect_str_eq(two->messages[1].content, "a\nb");
    cr_expect(two->output.exact == false && two->output.n == 9 && two->output.min == 3);

    cr_assert(three->form == AS_WORKLOAD_TOKENS && three->length == 3);
    cr_expect(three->tokens[0] == 0 && three->tokens[1] == 99 && three->tokens[2] == 7);
    cr_expect(eq(u32, three->output.n, AS_WORKLOAD_DEFAULT_OUTPUT));
    cr_expect(three->sampling.present && three->sampling.seed == 3);
    cr_expect(three->sampling.temperature == 0 && three->sampling.top_p == 0.5);
    cr_expect(eq(u32, three->sampling.top_k, 40));

    cr_assert(four->form == AS_WORKLOAD_LENGTH && four->length == 33 && four->block_count == 3);
    cr_expect(eq(u64, four->blocks[2], 9007199254740993u));
    cr_expect(four->sampling.present && four->sampling.temperature == 1);
    cr_expect(four->sampling.top_p == 1 && four->sampling.top_k == 0);
    cr_expect(four->sampling.seed <= INT64_MAX && four->sampling.seed != 0);
    as_workload_free(workload);
}

Test(read, totals)
{
    struct as_workload *workload = must_parse(full);
    struct as_workload_totals totals;
    as_workload_sum(workload, &totals);
    cr_expect(totals.timed == 3 && totals.chained == 1);
    cr_expect(totals.text == 1 && totals.messages == 1 && totals.tokens == 1 && totals.length == 1);
    cr_expect(totals.with_blocks == 1 && totals.sampled == 2 && totals.cancelled == 1);
    cr_expect(totals.first_ns == 0 && totals.last_ns == 5);
    cr_expect(eq(u64, totals.prompt_tokens, 36));
    cr_expect(eq(u64, totals.prompt_bytes, 13));
    cr_expect(totals.output_tokens == 5 + 9 + 64 + 64 && totals.exact == 1);
    as_workload_free(workload);
}

Test(read, forms_of_line_ends)
{
    static const char *const files[] = {
        "\xef\xbb\xbf" HEADER ROW("\"len\":1"),
        "{\"assay_workload\":1}\r\n{\"id\":\"a\",\"at_ns\":1,\"len\":1}\r\n",
        "\n \t\r\n" HEADER "\n\n" ROW("\"len\":1") "\n",
        HEADER "{\"id\":\"a\",\"at_ns\":1,\"len\":1}",
    };
    static const uint64_t lines[] = {2, 2, 6, 2};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct as_workload *workload = must_parse(files[i]);
        cr_assert(eq(sz, workload->count, 1));
        cr_expect(eq(u64, workload->requests[0].line, lines[i]));
        as_workload_free(workload);
    }
}

/* Case C52: nothing to run is valid to read; who runs it refuses. */
Test(read, header_alone)
{
    static const char *const files[] = {HEADER, "{\"assay_workload\":1}",
                                        "{\"assay_workload\":1,\"rows\":0}\n\n"};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct as_workload *workload = must_parse(files[i]);
        struct as_workload_totals totals;
        as_workload_sum(workload, &totals);
        cr_expect(eq(sz, workload->count, 0));
        cr_expect(eq(u64, totals.first_ns, AS_WORKLOAD_NO_TIME));
        cr_expect_str_eq(workload->header.name, "test");
        cr_expect(eq(u64, workload->header.rows, i < 2 ? AS_WORKLOAD_NO_U64 : 0));
        as_workload_free(workload);
    }
}

/* Case C50: bit for bit, and in order, where a double would merge neighbours. */
Test(read, integers_beyond_doubles)
{
    static const uint64_t times[] = {9007199254740993u, 9007199254740992u, 9223372036854775807u, 0};
    struct as_workload *workload =
        must_parse(HEADER "{\"id\":\"a\",\"at_ns\":9007199254740993,\"len\":1}\n"
                          "{\"id\":\"b\",\"at_ns\":9007199254740992,\"len\":1}\n"
                          "{\"id\":\"c\",\"at_ns\":9223372036854775807,\"len\":1}\n"
                          "{\"id\":\"d\",\"at_ns\":-0,\"len\":1}\n");
    cr_assert(eq(sz, workload->count, 4));
    for (size_t i = 0; i < 4; i++)
        cr_expect(eq(u64, workload->requests[i].at_ns, times[i]));
    as_workload_free(workload);
}

Test(read, digest_is_of_the_bytes)
{
    struct as_workload *a = must_parse(HEADER ROW("\"len\":1"));
    struct as_workload *b = must_parse(HEADER ROW("\"len\":1"));
    struct as_workload *c = must_parse(HEADER ROW("\"len\":2"));
    cr_expect(eq(u64, a->digest, b->digest));
    cr_expect(ne(u64, a->digest, c->digest));
    char hex[17];
    snprintf(hex, sizeof hex, "%016" PRIx64, a->digest);
    cr_expect_str_eq(a->digest_hex, hex);
    as_workload_free(a);
    as_workload_free(b);
    as_workload_free(c);
}

Test(read, limit)
{
    struct as_workload *workload =
        must_parse(HEADER "{\"id\":\"a\",\"at_ns\":0,\"len\":1}\n"
                          "{\"id\":\"b\",\"after\":{\"id\":\"c\"},\"len\":1}\n"
                          "{\"id\":\"c\",\"after\":{\"id\":\"a\"},\"len\":1}\n");
    struct as_error error = {0};
    cr_expect(eq(int, as_workload_limit(workload, 0, &error), AS_ERR_USAGE));
    as_error_clear(&error);
    cr_expect(eq(int, as_workload_limit(workload, 2, &error), AS_ERR_USAGE));
    cr_expect(strstr(error.message, "\"b\" (line 3) waits for \"c\" (line 4)") != NULL, "%s",
              error.message);
    cr_expect(strstr(error.message, "at least 3") != NULL, "%s", error.message);
    cr_expect(eq(sz, workload->count, 3));
    as_error_clear(&error);
    cr_expect(eq(int, as_workload_limit(workload, 900, &error), 0));
    cr_expect(eq(sz, workload->count, 3));
    cr_expect(eq(int, as_workload_limit(workload, 1, &error), 0));
    cr_expect(eq(sz, workload->count, 1));
    cr_expect(eq(sz, workload->total, 3));
    as_workload_free(workload);
}

/* A quadratic search for equal ids, or a walk of each chain from its start, would not end. */
Test(read, many_chained_rows)
{
    enum { ROWS = 100000 };
    char *text = malloc(64 + ROWS * (size_t)80);
    cr_assert(text != NULL);
    size_t at = (size_t)sprintf(text, HEADER);
    for (int i = 0; i < ROWS; i++)
        at +=
            (size_t)sprintf(text + at,
                            i + 1 < ROWS ? "{\"id\":\"r%d\",\"after\":{\"id\":\"r%d\"},\"len\":1}\n"
                                         : "{\"id\":\"r%d\",\"at_ns\":%d,\"len\":1}\n",
                            i, i + 1);
    struct as_workload *workload = must_parse(text);
    cr_expect(eq(sz, workload->count, ROWS));
    cr_expect(eq(sz, workload->requests[5].after, 6));
    as_workload_free(workload);
    free(text);
}

/* Large pieces and small ones share the workload's memory. */
Test(read, long_prompts)
{
    enum { BYTES = 200000 };
    char *text = malloc(3 * BYTES);
    cr_assert(text != NULL);
    size_t at = (size_t)sprintf(text, HEADER);
    for (int row = 0; row < 2; row++) {
        at += (size_t)sprintf(text + at, "{\"id\":\"%d\",\"at_ns\":1,\"text\":\"", row);
        memset(text + at, 'a' + row, BYTES);
        at += BYTES;
        at += (size_t)sprintf(text + at, "\",\"class\":\"c%d\"}\n", row);
    }
    struct as_workload *workload = must_parse(text);
    for (int row = 0; row < 2; row++) {
        const struct as_workload_request *request = &workload->requests[row];
        cr_expect(eq(sz, strlen(request->text), BYTES));
        cr_expect(request->text[BYTES - 1] == 'a' + row);
        cr_expect(request->class_name[1] == '0' + row);
    }
    as_workload_free(workload);
    free(text);
}

Test(read, files)
{
    struct as_error error = {0};
    struct as_workload *workload;
    cr_expect(eq(int, as_workload_read(&workload, "/nowhere/x.awl.jsonl", &error), AS_ERR_IO));
    cr_expect(workload == NULL);
    cr_expect(strstr(error.message, "/nowhere/x.awl.jsonl") != NULL);
    as_error_clear(&error);
    cr_expect(eq(int, as_workload_read(&workload, "/", &error), AS_ERR_IO));

    char path[] = "/tmp/assay-workload-XXXXXX";
    int fd = mkstemp(path);
    cr_assert(fd >= 0);
    static const char text[] = HEADER ROW("\"len\":1");
    cr_assert(write(fd, text, sizeof text - 1) == (ssize_t)sizeof text - 1);
    close(fd);
    as_error_clear(&error);
    cr_assert(eq(int, as_workload_read(&workload, path, &error), 0), "%s", error.message);
    cr_expect(eq(sz, workload->count, 1));
    cr_expect_str_eq(workload->header.name, path + 5);
    as_workload_free(workload);
    unlink(path);
    as_workload_free(NULL);
}

/* Errors may be left out by a caller who does not care. */
Test(read, no_error_wanted)
{
    struct as_workload *workload;
    cr_expect(eq(int, as_workload_parse(&workload, "{}", 2, "x", NULL), AS_ERR_DATA));
    cr_expect(eq(int, as_workload_parse(&workload, "{", 1, "x", NULL), AS_ERR_DATA));
    cr_expect(eq(int, as_workload_parse(&workload, NULL, 0, "x", NULL), AS_ERR_DATA));
    cr_expect(workload == NULL);
}
