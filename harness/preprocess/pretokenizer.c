#define PCRE2_CODE_UNIT_WIDTH 8
#include "preprocess/pretokenizer.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "as_memory.h"
#include "as_text.h"

#define MOST_PATTERNS 4

/* The characters of Unicode's White_Space, which is what `\s` means to Hugging Face's engine.
 * PCRE2's own `\s` under UCP also takes U+180E, which lost that property in Unicode 6.3. */
#define SPACE                                                                                \
    "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}" \
    "\\x{3000}"
#define LAST_SPACES "[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"

/* ByteLevel(use_regex = true) of Hugging Face. */
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^" SPACE "\\p{L}\\p{N}]+|" LAST_SPACES

#define LLAMA3                                                                \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" \
    " ?[^" SPACE "\\p{L}\\p{N}]+[\\r\\n]*|[" SPACE "]*[\\r\\n]+|" LAST_SPACES

/* Letters and numbers are what PCRE2's tables say, with 10.42 those of Unicode 14. */
struct kind {
    const char *name;
    bool whole_words;
    const char *patterns[MOST_PATTERNS]; /* up to the first NULL */
};

static const struct kind kinds[] = {
    {"smollm", false, {"\\p{N}", GPT2}}, /* Digits(individual_digits), then ByteLevel */
    {"gpt-2", false, {GPT2}},
    {"gpt2", false, {GPT2}},
    {"llama-bpe", true, {LLAMA3}},
    /* What llama.cpp, whose file format this is, does for files that name no kind. */
    {"default", false, {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
};

struct as_pretokenizer {
    const struct kind *kind;
    size_t count;
    pcre2_code *codes[MOST_PATTERNS];
};

struct as_splitter {
    const struct as_pretokenizer *pretokenizer;
    pcre2_match_context *context;
    pcre2_match_data *match;
    pcre2_jit_stack *stack;
    as_word_sink sink;
    void *sink_context;
};

const char *as_pretokenizer_name(size_t index)
{
    return index < sizeof kinds / sizeof kinds[0] ? kinds[index].name : NULL;
}

bool as_pretokenizer_whole_words(const struct as_pretokenizer *pretokenizer)
{
    return pretokenizer->kind->whole_words;
}

static int refuse_kind(const char *name, struct as_error *error)
{
    struct as_text known = {0};
    for (size_t i = 0; as_pretokenizer_name(i) != NULL; i++)
        as_text_addf(&known, "%s%s", i == 0 ? "" : ", ", as_pretokenizer_name(i));
    int code = as_fail(error, AS_ERR_UNSUPPORTED,
                       "the pre-tokenizer kind \"%.100s\" (tokenizer.ggml.pre) is not known; known "
                       "are %s",
                       name, known.failed ? "others" : known.data);
    as_text_free(&known);
    return code;
}

static int compile(const char *pattern, pcre2_code **code, struct as_error *error)
{
    int number;
    PCRE2_SIZE offset;
    *code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_UTF | PCRE2_UCP,
                          &number, &offset, NULL);
    if (*code == NULL) {
        char reason[256];
        pcre2_get_error_message(number, (PCRE2_UCHAR *)reason, sizeof reason);
        return as_fail(error, AS_ERR_INTERNAL,
                       "a pre-tokenizer pattern does not compile at its character %zu: %s",
                       (size_t)offset, reason);
    }
    /* Where the system forbids executable memory this fails and the interpreter does the work. */
    pcre2_jit_compile(*code, PCRE2_JIT_COMPLETE);
    return 0;
}

int as_pretokenizer_create(const char *kind, struct as_pretokenizer **pretokenizer,
                           struct as_error *error)
{
    *pretokenizer = NULL;
    const struct kind *row = NULL;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && row == NULL; i++)
        row = strcmp(kinds[i].name, kind) == 0 ? &kinds[i] : NULL;
    if (row == NULL)
        return refuse_kind(kind, error);
    struct as_pretokenizer *made = as_calloc(error, 1, sizeof *made, "a pre-tokenizer");
    if (made == NULL)
        return AS_ERR_MEMORY;
    made->kind = row;
    while (made->count < MOST_PATTERNS && row->patterns[made->count] != NULL) {
        int code = compile(row->patterns[made->count], &made->codes[made->count], error);
        if (code != 0) {
            as_pretokenizer_free(made);
            return code;
        }
        made->count++;
    }
    *pretokenizer = made;
    return 0;
}

void as_pretokenizer_free(struct as_pretokenizer *pretokenizer)
{
    if (pretokenizer == NULL)
        return;
    for (size_t i = 0; i < pretokenizer->count; i++)
        pcre2_code_free(pretokenizer->codes[i]);
    free(pretokenizer);
}

int as_splitter_create(const struct as_pretokenizer *pretokenizer, struct as_splitter **splitter,
                       struct as_error *error)
{
    *splitter = NULL;
    struct as_splitter *made = as_calloc(error, 1, sizeof *made, "a text splitter");
    if (made == NULL)
        return AS_ERR_MEMORY;
    made->pretokenizer = pretokenizer;
    made->context = pcre2_match_context_create(NULL);
    made->match = pcre2_match_data_create(1, NULL);
    made->stack = pcre2_jit_stack_create(32 * 1024, 8 * 1024 * 1024, NULL);
    if (made->context == NULL || made->match == NULL) {
        as_splitter_free(made);
        return as_fail_memory(error, 4096, "a text splitter");
    }
    if (made->stack != NULL)
        pcre2_jit_stack_assign(made->context, NULL, made->stack);
    /* No pattern of the table backtracks more than once over a character, so that limits, which
     * count characters, would only refuse long texts. */
    pcre2_set_match_limit(made->context, UINT32_MAX);
    pcre2_set_depth_limit(made->context, UINT32_MAX);
    pcre2_set_heap_limit(made->context, UINT32_MAX);
    *splitter = made;
    return 0;
}

void as_splitter_free(struct as_splitter *splitter)
{
    if (splitter == NULL)
        return;
    pcre2_match_data_free(splitter->match);
    pcre2_match_context_free(splitter->context);
    pcre2_jit_stack_free(splitter->stack);
    free(splitter);
}

static int split(struct as_splitter *splitter, size_t level, const char *text, size_t length,
                 struct as_error *error)
{
    if (level == splitter->pretokenizer->count)
        return splitter->sink(splitter->sink_context, text, length, error);
    const pcre2_code *pattern = splitter->pretokenizer->codes[level];
    while (length > 0) {
        /* The subject is this part alone: as for Hugging Face, lookahead does not see what an
         * earlier pattern cut off. No pattern looks behind, so it may start at the last match. */
        int found =
            pcre2_match(pattern, (PCRE2_SPTR)text, length, 0, PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY,
                        splitter->match, splitter->context);
        if (found == PCRE2_ERROR_NOMATCH)
            return split(splitter, level + 1, text, length, error);
        if (found < 0) {
            char reason[256];
            pcre2_get_error_message(found, (PCRE2_UCHAR *)reason, sizeof reason);
            return as_fail(error, AS_ERR_INTERNAL,
                           "the pre-tokenizer \"%s\" failed on a text of %zu bytes: %s",
                           splitter->pretokenizer->kind->name, length, reason);
        }
        const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(splitter->match);
        size_t start = bounds[0], end = bounds[1];
        int code = start > 0 ? split(splitter, level + 1, text, start, error) : 0;
        if (code == 0)
            code = split(splitter, level + 1, text + start, end - start, error);
        if (code != 0)
            return code;
        text += end;
        length -= end;
    }
    return 0;
}

int as_splitter_run(struct as_splitter *splitter, const char *text, size_t length,
                    as_word_sink sink, void *context, struct as_error *error)
{
    splitter->sink = sink;
    splitter->sink_context = context;
    return split(splitter, 0, text, length, error);
}
