/* Each kind of bad file ends in a message with its line, its field, what was found and what to
 * do. */
#include "helpers.h"

#include <stdlib.h>

struct refusal {
    const char *text;
    int line;
    const char *field; /* NULL: no field can be named */
    const char *words; /* a part of the message */
};

static void expect_refusal(const struct refusal *refusal, size_t size)
{
    struct as_error error;
    char place[64], field[64];
    must_refuse(refusal->text, size, &error);
    snprintf(place, sizeof place, "test.jsonl: line %d: ", refusal->line);
    cr_expect(strncmp(error.message, place, strlen(place)) == 0, "wanted %s, got %s", place,
              error.message);
    if (refusal->field != NULL) {
        snprintf(field, sizeof field, "field \"%s\": ", refusal->field);
        cr_expect(strstr(error.message, field) != NULL, "wanted %s, got %s", field, error.message);
    }
    cr_expect(strstr(error.message, refusal->words) != NULL, "wanted %s, got %s", refusal->words,
              error.message);
}

#define EXPECT_ALL(refusals)                                              \
    for (size_t i = 0; i < sizeof(refusals) / sizeof((refusals)[0]); i++) \
    expect_refusal(&(refusals)[i], strlen((refusals)[i].text))

Test(errors, header)
{
    static const struct refusal refusals[] = {
        {"", 1, "assay_workload", "no lines"},
        {"\r\n\n", 1, "assay_workload", "no lines"},
        {"\xef\xbb\xbf", 1, "assay_workload", "no lines"},
        {"{\"timestamp\":0,\"input_length\":5}", 1, "assay_workload", "missing; the first line"},
        {"\n{\"name\":\"x\"}", 2, "assay_workload", "missing"},
        {"{\"assay_workload\":2}", 1, "assay_workload", "version 2, this program reads version 1"},
        {"{\"assay_workload\":\"1\"}", 1, "assay_workload", "found \"1\"; give an integer"},
        {"{\"assay_workload\":1,\"nmae\":\"x\"}", 1, "nmae", "did you mean \"name\""},
        {"{\"assay_workload\":1,\"qqqqqqqqq\":1}", 1, "qqqqqqqqq", "known here: assay_workload, "},
        {"{\"assay_workload\":1,\"name\":\"\"}", 1, "name", "1 to 256"},
        {"{\"assay_workload\":1,\"name\":7}", 1, "name", "found 7; give a string"},
        {"{\"assay_workload\":1,\"source\":[]}", 1, "source",
         "found an array of 0; give an object"},
        {"{\"assay_workload\":1,\"source\":{\"license\":\"\"}}", 1, "source.license",
         "did you mean \"licence\""},
        {"{\"assay_workload\":1,\"source\":{\"sha256\":\"12\"}}", 1, "source.sha256",
         "64 hex digits"},
        {"{\"assay_workload\":1,\"tokenizer\":{\"vocab\":0}}", 1, "tokenizer.vocab",
         "integer from 1 to 2147483647"},
        {"{\"assay_workload\":1,\"block_tokens\":0}", 1, "block_tokens", "found 0"},
        {"{\"assay_workload\":1,\"synth\":{\"algo\":\"mt19937\"}}", 1, "synth.algo", "counter1"},
        {"{\"assay_workload\":1,\"synth\":{\"seed\":-3}}", 1, "synth.seed", "found -3"},
        {"{\"assay_workload\":1,\"transforms\":{}}", 1, "transforms", "give an array"},
        {"{\"assay_workload\":1,\"transforms\":[{},3]}", 1, "transforms[1]", "found 3"},
        {"{\"assay_workload\":1,\"body_sha256\":\"zz\"}", 1, "body_sha256", "64 hex digits"},
        {"{\"assay_workload\":1,\"rows\":2}\n" ROW("\"len\":1"), 1, "rows", "says 2, but 1 follow"},
        {"\n{\"assay_workload\":1,\"rows\":0}\n" ROW("\"len\":1"), 2, "rows",
         "says 0, but 1 follow"},
        {HEADER ROW("\"len\":1") HEADER, 3, "assay_workload", "a second header"},
    };
    EXPECT_ALL(refusals);
}

Test(errors, syntax)
{
    static const struct refusal refusals[] = {
        {HEADER "\n{\"id\":\"a\",\"at_ns\":1,\"text\":\"x", 3, "text", "cut short"},
        {HEADER "{\"id\":\"a\",\"at_ns\":1,\"len\":1} {}", 2, NULL, "nothing behind it"},
        {HEADER "{\"id\":\"a\",\"at_ns\":1,,\"len\":1}", 2, "at_ns", "near ','"},
        {HEADER "{\"id\":\"a\",\"at_ns\":01,\"len\":1}", 2, "at_ns", "not valid JSON"},
        {HEADER "[1,2]", 2, NULL, "found an array of 2; a line is one JSON object"},
        {HEADER "7", 2, NULL, "JSON"},
        {HEADER "id,at_ns,len", 2, NULL, "not valid JSON"},
        {HEADER "{\"id\":\"a\",\"at_ns\":1,\"at_ns\":2,\"len\":1}", 2, "at_ns",
         "give each field once"},
        {HEADER "{\"id\":\"a\",\"at_ns\":1,\"len\":1,\"out\":{\"n\":1,\"n\":1}}", 2, "out.n",
         "give each field once"},
        {HEADER ROW("\"text\":\"a\\u0000b\""), 2, "text", "take the NUL character out"},
        {HEADER "{\"id\":\"a\",\"a\\u0000\":1}", 2, NULL, "take the NUL character out"},
        {HEADER ROW("\"text\":\"\\ud800\""), 2, "text", "invalid Unicode"},
        {HEADER ROW("\"text\":\"\xff\""), 2, "text", "save the file as UTF-8"},
        {HEADER ROW("\"text\":\"\xc0\x80\""), 2, "text", "save the file as UTF-8"},
        {HEADER ROW("\"text\":\"\xed\xa0\x80\""), 2, "text", "save the file as UTF-8"},
        {HEADER ROW("\"text\":\"\xf4\x90\x80\x80\""), 2, "text", "save the file as UTF-8"},
        {HEADER ROW("\"text\":\"a\tb\""), 2, "text", "control character"},
        {HEADER ROW("\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"x\xe9\"}]"), 2,
         "messages[1].role", "UTF-8"},
        {HEADER ROW("\"sampling\":{\"temperature\":1e999}"), 2, "sampling.temperature", "1.8e308"},
        {HEADER ROW("\"sampling\":{\"temperature\":NaN}"), 2, "sampling.temperature",
         "not valid JSON"},
    };
    EXPECT_ALL(refusals);
}

Test(errors, nul_byte)
{
    static const char text[] = HEADER "{\"id\":\"a\",\"at_ns\":1,\"text\":\"x\0y\"}\n";
    const struct refusal refusal = {text, 2, "text", "found a NUL byte"};
    expect_refusal(&refusal, sizeof text - 1);
}

/* Case C50: what does not fit is refused, reals in an integer's place always. */
Test(errors, integers)
{
    static const struct refusal refusals[] = {
        {HEADER "{\"id\":\"a\",\"at_ns\":9223372036854775808,\"len\":1}", 2, "at_ns",
         "'9223372036854775808'; integers go up to 9223372036854775807"},
        {HEADER "{\"id\":\"a\",\"at_ns\":18446744073709551617,\"len\":1}", 2, "at_ns", "too big"},
        {HEADER "{\"id\":\"a\",\"at_ns\":-9223372036854775809,\"len\":1}", 2, "at_ns", "too big"},
        {HEADER "{\"id\":\"a\",\"at_ns\":1e18,\"len\":1}", 2, "at_ns", "in digits alone"},
        {HEADER "{\"id\":\"a\",\"at_ns\":1.5,\"len\":1}", 2, "at_ns", "found the real number 1.5"},
        {HEADER "{\"id\":\"a\",\"at_ns\":2.0,\"len\":1}", 2, "at_ns", "in digits alone"},
        {HEADER "{\"id\":\"a\",\"at_ns\":-0.0,\"len\":1}", 2, "at_ns", "in digits alone"},
        {HEADER "{\"id\":\"a\",\"at_ns\":-1,\"len\":1}", 2, "at_ns",
         "found -1; give an integer from 0 to 9223372036854775807"},
        {HEADER "{\"id\":\"a\",\"at_ns\":\"5\",\"len\":1}", 2, "at_ns", "found \"5\""},
        {HEADER "{\"id\":\"a\",\"at_ns\":null,\"len\":1}", 2, "at_ns", "found null"},
        {HEADER "{\"id\":\"a\",\"at_ns\":true,\"len\":1}", 2, "at_ns", "found true"},
        {HEADER "{\"id\":\"a\",\"at_ns\":[],\"len\":1}", 2, "at_ns", "found an array of 0"},
        {HEADER "{\"id\":\"a\",\"at_ns\":{},\"len\":1}", 2, "at_ns", "found an object"},
    };
    EXPECT_ALL(refusals);
}

Test(errors, rows)
{
    static const struct refusal refusals[] = {
        {HEADER "{\"at_ns\":1,\"len\":1}", 2, "id", "missing"},
        {HEADER "{\"id\":7,\"at_ns\":1,\"len\":1}", 2, "id", "found 7; give a string"},
        {HEADER "{\"id\":\"\",\"at_ns\":1,\"len\":1}", 2, "id", "1 to 256"},
        {HEADER "{\"id\":\"a\\u0007\",\"at_ns\":1,\"len\":1}", 2, "id", "control character 0x07"},
        {HEADER ROW("\"len\":1") "\n" ROW("\"len\":2"), 4, "id",
         "\"a\" is taken by line 2; give each request an id of its own"},
        {HEADER "{\"id\":\"a\",\"len\":1}", 2, "at_ns", "missing, and so is \"after\""},
        {HEADER ROW("\"after\":{\"id\":\"b\"},\"len\":1"), 2, "at_ns", "found beside \"after\""},
        {HEADER "{\"id\":\"a\",\"after\":\"b\",\"len\":1}", 2, "after", "give an object"},
        {HEADER "{\"id\":\"a\",\"after\":{\"delay_ns\":1},\"len\":1}", 2, "after.id", "missing"},
        {HEADER "{\"id\":\"a\",\"after\":{\"id\":\"b\",\"delay\":1},\"len\":1}", 2, "after.delay",
         "unknown"},
        {HEADER "{\"id\":\"a\",\"after\":{\"id\":\"zz\"},\"len\":1}", 2, "after.id",
         "no request has the id \"zz\""},
        {HEADER "{\"id\":\"a\",\"after\":{\"id\":\"a\"},\"len\":1}", 2, "after.id",
         "\"a\" waits for itself"},
        {HEADER "{\"id\":\"z\",\"after\":{\"id\":\"a\"},\"len\":1}\n"
                "{\"id\":\"a\",\"after\":{\"id\":\"b\"},\"len\":1}\n"
                "{\"id\":\"b\",\"after\":{\"id\":\"a\"},\"len\":1}\n",
         3, "after.id", "\"a\" waits for \"b\" (line 4), which waits for it in turn"},
        {HEADER ROW("\"lenn\":1"), 2, "lenn", "did you mean \"len\""},
        {HEADER ROW("\"len\":1,\"turn\":-1"), 2, "turn", "found -1"},
        {HEADER ROW("\"len\":1,\"turn\":2147483648"), 2, "turn", "to 2147483647"},
        {HEADER ROW("\"len\":1,\"session\":5"), 2, "session", "give a string"},
        {HEADER ROW("\"len\":1,\"class\":\"\""), 2, "class", "1 to 256"},
        {HEADER ROW("\"len\":1,\"model\":null"), 2, "model", "found null"},
        {HEADER ROW("\"len\":1,\"cancel_ns\":-1"), 2, "cancel_ns", "found -1"},
        {HEADER ROW("\"len\":1,\"src\":3"), 2, "src", "give an object"},
        {HEADER ROW("\"len\":1,\"src\":{\"row\":\"3\"}"), 2, "src.row", "found \"3\""},
        {HEADER ROW("\"len\":1,\"src\":{\"line\":3}"), 2, "src.line", "unknown"},
    };
    EXPECT_ALL(refusals);
}

Test(errors, prompts)
{
    static const struct refusal refusals[] = {
        {HEADER "{\"id\":\"a\",\"at_ns\":1}", 2, "text", "exactly one of text, messages, tokens"},
        {HEADER ROW("\"text\":\"x\",\"tokens\":[1]"), 2, "tokens", "found beside \"text\""},
        {HEADER ROW("\"len\":1,\"messages\":[]"), 2, "len", "found beside \"messages\""},
        {HEADER ROW("\"text\":\"\""), 2, "text", "at least one byte"},
        {HEADER ROW("\"text\":[\"x\"]"), 2, "text", "found an array of 1; give a string"},
        {HEADER ROW("\"messages\":[]"), 2, "messages", "empty array"},
        {HEADER ROW("\"messages\":{}"), 2, "messages", "give an array"},
        {HEADER ROW("\"messages\":[\"hi\"]"), 2, "messages[0]", "found \"hi\""},
        {HEADER ROW("\"messages\":[{\"content\":\"x\"}]"), 2, "messages[0].role", "missing"},
        {HEADER ROW("\"messages\":[{\"role\":\"user\"}]"), 2, "messages[0].content", "missing"},
        {HEADER ROW("\"messages\":[{\"role\":\"asistant\",\"content\":\"x\"}]"), 2,
         "messages[0].role", "did you mean \"assistant\""},
        {HEADER ROW("\"messages\":[{\"role\":\"q\",\"content\":\"x\"}]"), 2, "messages[0].role",
         "roles are system, user"},
        {HEADER ROW("\"messages\":[{\"role\":\"user\",\"content\":null}]"), 2,
         "messages[0].content", "found null"},
        {HEADER ROW("\"messages\":[{\"role\":\"user\",\"content\":\"x\",\"name\":\"n\"}]"), 2,
         "messages[0].name", "unknown"},
        {HEADER ROW("\"tokens\":[]"), 2, "tokens", "empty array"},
        {HEADER ROW("\"tokens\":5"), 2, "tokens", "give an array"},
        {HEADER ROW("\"tokens\":[1,-1]"), 2, "tokens[1]", "found -1"},
        {HEADER ROW("\"tokens\":[1,2,2147483648]"), 2, "tokens[2]", "to 2147483647"},
        {HEADER ROW("\"tokens\":[1.5]"), 2, "tokens[0]", "in digits alone"},
        {HEADER ROW("\"tokens\":[\"A\"]"), 2, "tokens[0]", "found \"A\""},
        {"{\"assay_workload\":1,\"tokenizer\":{\"vocab\":10}}\n" ROW("\"tokens\":[9,10]"), 2,
         "tokens[1]", "found 10; give an integer from 0 to 9"},
        {HEADER ROW("\"len\":0"), 2, "len", "from 1 to 2147483647"},
        {HEADER ROW("\"len\":2147483648"), 2, "len", "from 1 to 2147483647"},
        {HEADER ROW("\"text\":\"x\",\"blocks\":[1]"), 2, "blocks", "without \"len\""},
        {HEADER ROW("\"len\":5,\"blocks\":[1]"), 2, "blocks", "header has no \"block_tokens\""},
        {"{\"assay_workload\":1,\"block_tokens\":512}\n" ROW("\"len\":655,\"blocks\":[0,1,2]"), 2,
         "blocks", "found 3, but 655 tokens in blocks of 512 make 2"},
        {"{\"assay_workload\":1,\"block_tokens\":512}\n" ROW("\"len\":513,\"blocks\":[0]"), 2,
         "blocks", "found 1, but 513 tokens in blocks of 512 make 2"},
        {"{\"assay_workload\":1,\"block_tokens\":512}\n" ROW("\"len\":20,\"blocks\":[0,1]"), 2,
         "blocks", "found 2, but 20 tokens in blocks of 512 make 1"},
        {"{\"assay_workload\":1,\"block_tokens\":4}\n" ROW("\"len\":4,\"blocks\":[-7]"), 2,
         "blocks[0]", "found -7"},
    };
    EXPECT_ALL(refusals);
}

Test(errors, output_and_sampling)
{
    static const struct refusal refusals[] = {
        {HEADER ROW("\"len\":1,\"out\":8"), 2, "out", "give an object"},
        {HEADER ROW("\"len\":1,\"out\":{\"n\":0}"), 2, "out.n", "from 1 to 2147483647"},
        {HEADER ROW("\"len\":1,\"out\":{\"n\":4,\"min\":5}"), 2, "out.min", "from 0 to 4"},
        {HEADER ROW("\"len\":1,\"out\":{\"exact\":1}"), 2, "out.exact", "give true or false"},
        {HEADER ROW("\"len\":1,\"out\":{\"max\":1}"), 2, "out.max", "did you mean"},
        {HEADER ROW("\"len\":1,\"sampling\":{\"temperature\":-0.5}"), 2, "sampling.temperature",
         "found -0.5"},
        {HEADER ROW("\"len\":1,\"sampling\":{\"temperature\":\"hot\"}"), 2, "sampling.temperature",
         "give a number"},
        {HEADER ROW("\"len\":1,\"sampling\":{\"top_p\":0}"), 2, "sampling.top_p", "above 0"},
        {HEADER ROW("\"len\":1,\"sampling\":{\"top_p\":1.01}"), 2, "sampling.top_p", "at most 1"},
        {HEADER ROW("\"len\":1,\"sampling\":{\"top_k\":-1}"), 2, "sampling.top_k", "found -1"},
        {HEADER ROW("\"len\":1,\"sampling\":{\"seed\":1.0}"), 2, "sampling.seed",
         "in digits alone"},
        {HEADER ROW("\"len\":1,\"sampling\":{\"topp\":1}"), 2, "sampling.topp",
         "did you mean \"top_p\""},
    };
    EXPECT_ALL(refusals);
}

Test(errors, long_line)
{
    size_t size = AS_WORKLOAD_LINE_LIMIT + 100;
    char *text = malloc(size + 1);
    cr_assert(text != NULL);
    memset(text, 'x', size);
    text[size] = '\0';
    memcpy(text, HEADER, strlen(HEADER));
    const struct refusal refusal = {text, 2, NULL, "more than the limit of 16777216"};
    expect_refusal(&refusal, size);
    free(text);
}

/* Depth is bounded before the parser recurses; brackets within strings do not count. */
Test(errors, deep_nesting)
{
    enum { DEEP = 1000000 };
    char *text = malloc(DEEP + 64);
    cr_assert(text != NULL);
    size_t at = (size_t)sprintf(text, HEADER "{\"out\":");
    memset(text + at, '[', DEEP);
    text[at + DEEP] = '\0';
    const struct refusal refusal = {text, 2, NULL, "field \"out[0][0]"};
    expect_refusal(&refusal, at + DEEP);
    at = (size_t)sprintf(text, HEADER "{\"id\":\"a\",\"at_ns\":1,\"text\":\"");
    memset(text + at, '[', 100);
    sprintf(text + at + 100, "\"}");
    as_workload_free(must_parse(text));
    free(text);
}

/* Whatever a file holds, its message is short and safe to print. */
Test(errors, quoted_text_is_tamed)
{
    struct as_error error;
    static const char text[] = HEADER ROW("\"len\":1,\"\\u001b[31m\\n\\u0007 and a very very very "
                                          "long name of a field, longer than any line\":1");
    must_refuse(text, strlen(text), &error);
    cr_expect(is_tame(error.message), "%s", error.message);
    cr_expect(strstr(error.message, "...\": unknown; known here: id, at_ns") != NULL, "%s",
              error.message);
}

/* A long path must not push the reason out of the message. */
Test(errors, long_path)
{
    char path[3000];
    memset(path, 'p', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    struct as_workload *workload;
    struct as_error error = {0};
    cr_expect(eq(int, as_workload_parse(&workload, "{}", 2, path, &error), AS_ERR_DATA));
    cr_expect(strstr(error.message, "line 1: field \"assay_workload\"") != NULL);
}
