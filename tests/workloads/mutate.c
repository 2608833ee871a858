/* Whatever bytes come: a workload, or a message with a line. Seeds are fixed, so a failure comes
 * again. */
#include "helpers.h"

#include <stdlib.h>

#include "as_random.h"

static const char good[] =
    "{\"assay_workload\":1,\"name\":\"m\",\"source\":{\"licence\":\"MIT\"},\"rows\":5,"
    "\"tokenizer\":{\"vocab\":50},\"block_tokens\":4,\"synth\":{\"algo\":\"counter1\",\"seed\":3},"
    "\"transforms\":[{\"step\":\"slice\",\"of\":{\"a\":[1,2]}}]}\n"
    "{\"id\":\"a\",\"at_ns\":0,\"text\":\"gr\xc3\xbc\xc3\x9f \\ud83d\\ude00\",\"out\":{\"n\":4,"
    "\"exact\":true}}\n"
    "{\"id\":\"b\",\"after\":{\"id\":\"a\",\"delay_ns\":5},\"messages\":[{\"role\":\"system\","
    "\"content\":\"s\"},{\"role\":\"user\",\"content\":\"u\"}],\"session\":\"x\",\"turn\":1}\n"
    "\r\n"
    "{\"id\":\"c\",\"at_ns\":9007199254740993,\"tokens\":[1,2,49],\"sampling\":{\"seed\":1,"
    "\"temperature\":0.5,\"top_p\":0.9,\"top_k\":3}}\r\n"
    "{\"id\":\"d\",\"at_ns\":7,\"len\":9,\"blocks\":[1,2,3],\"class\":\"chat\",\"model\":\"m\"}\n"
    "{\"id\":\"e\",\"after\":{\"id\":\"b\"},\"len\":2,\"cancel_ns\":8,\"src\":{\"row\":4}}\n";

/* What the grammar turns on, so that mutations reach past the first syntax error. */
static const char *const pieces[] = {"{",
                                     "}",
                                     "[",
                                     "]",
                                     "\"",
                                     ":",
                                     ",",
                                     "\n",
                                     "\r",
                                     "\\",
                                     "\\u0000",
                                     "\\ud800",
                                     "null",
                                     "true",
                                     "-1",
                                     "1.5",
                                     "1e9",
                                     "9223372036854775807",
                                     "9223372036854775808",
                                     "0",
                                     "\"id\"",
                                     "\"a\"",
                                     "\"after\":{\"id\":\"e\"},",
                                     "\"len\":1,",
                                     "\xff",
                                     "\xc3",
                                     "\xef\xbb\xbf",
                                     "{\"",
                                     "[[[[[[[[",
                                     "\"out\":{\"n\":",
                                     "\"blocks\":[],"};

struct draw {
    uint64_t seed, counter;
};

static size_t below(struct draw *draw, size_t limit)
{
    return (size_t)(as_random_u64(draw->seed, 1, draw->counter++) % limit);
}

/* Returns whether it loaded. */
static bool try(const char *bytes, size_t size)
{
    /* An exact copy, so that the sanitizer sees a read past the end. */
    char *copy = malloc(size == 0 ? 1 : size);
    cr_assert(copy != NULL);
    memcpy(copy, bytes, size);
    struct as_workload *workload;
    struct as_error error = {0};
    int code = as_workload_parse(&workload, copy, size, "test.jsonl", &error);
    free(copy);
    cr_assert(eq(int, code == 0, workload != NULL));
    if (code != 0) {
        cr_assert(eq(int, code, AS_ERR_DATA), "%s", error.message);
        cr_assert(strncmp(error.message, "test.jsonl: line ", 17) == 0, "%s", error.message);
        cr_assert(is_tame(error.message), "%s", error.message);
    }
    as_workload_free(workload);
    return code == 0;
}

Test(mutate, truncations)
{
    size_t size = sizeof good - 1, loaded = 0;
    cr_assert(try(good, size));
    for (size_t cut = 0; cut < size; cut++)
        loaded += try(good, cut);
    /* The header counts its rows, so only the last newline may go. */
    cr_expect(eq(sz, loaded, 1));
}

static size_t splice(char *bytes, size_t size, size_t at, size_t gone, const char *put, size_t more)
{
    memmove(bytes + at + more, bytes + at + gone, size - at - gone);
    memcpy(bytes + at, put, more);
    return size - gone + more;
}

static size_t mutate(char *bytes, size_t size, struct draw *draw)
{
    size_t at = below(draw, size), gone = 0, more = 0;
    char kept[64];
    const char *put = kept;
    switch (below(draw, 5)) {
    case 0: /* one bit */ bytes[at] ^= (char)(1 << below(draw, 8)); return size;
    case 1: /* a stretch gone */ gone = below(draw, 40); break;
    case 2: /* a stretch doubled somewhere else */
        more = 1 + below(draw, sizeof kept - 1);
        more = more > size - at ? size - at : more;
        memcpy(kept, bytes + at, more);
        at = below(draw, size);
        break;
    case 3: /* a piece put in */
        put = pieces[below(draw, sizeof pieces / sizeof pieces[0])];
        more = strlen(put);
        break;
    default: /* a piece in the place of others */
        put = pieces[below(draw, sizeof pieces / sizeof pieces[0])];
        more = strlen(put);
        gone = 1 + below(draw, 8);
    }
    if (gone > size - at)
        gone = size - at;
    return splice(bytes, size, at, gone, put, more);
}

Test(mutate, random_edits)
{
    enum { ROUNDS = 6000, EDITS = 4 };
    static char bytes[sizeof good + EDITS * 64];
    size_t loaded = 0;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        struct draw draw = {.seed = round};
        size_t size = sizeof good - 1;
        memcpy(bytes, good, size);
        for (size_t edits = 1 + below(&draw, EDITS); edits > 0 && size > 0; edits--)
            size = mutate(bytes, size, &draw);
        loaded += try(bytes, size);
    }
    /* Edits within names and numbers leave a good file; both outcomes must be met. */
    cr_expect(loaded > ROUNDS / 300 && loaded < ROUNDS / 2, "%zu of %d loaded", loaded, ROUNDS);
}
