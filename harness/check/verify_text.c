#include "check/verify_text.h"

#include <string.h>

#include "as_hash.h"
#include "as_memory.h"
#include "as_random.h"
#include "preprocess/from_model.h"

#define SEED 20240229u
#define SMALL_VOCABULARY 512 /* of bytes and little else: text would use few of its ids */

/* Short pieces, the kinds in turn, so that the first 64 tokens already meet prose, code, digits
 * and other scripts. */
static const char builtin[] =
    "The ferry leaves at 07:45, and whoever misses it walks around the lake.\n"
    "for (int i = 0; i < n; i++) sum += price[i] * 1.19;\n"
    "Der alte Leuchtturmwärter zählte jede Nacht die Schiffe und vergaß dabei nie eines.\n"
    "图书馆在河的北边，星期三下午关门。\n"
    "def median(xs):\n    ys = sorted(xs)\n    return ys[len(ys) // 2]\n"
    "Le boulanger a promis trois pains, mais il n'en reste que deux.\n"
    "SELECT city, COUNT(*) FROM trips WHERE km > 250 GROUP BY city;\n"
    "Старый мост закрыли на ремонт до конца октября.\n"
    "Mi abuela guardaba las llaves en una caja de galletas vacía.\n"
    "وصل القطار متأخرا عشر دقائق بسبب المطر.\n"
    "雨がやんだら、庭のトマトを見に行きましょう。\n"
    "नदी के किनारे एक छोटी नाव बँधी थी।\n"
    "{\"order\": 3172, \"items\": [\"lamp\", \"rope\"], \"paid\": true, \"note\": null}\n"
    "To boil an egg well: cover it with cold water, bring it to a boil, take it off the heat and "
    "wait eight minutes. Then cool it quickly, or the yolk turns grey at the rim. A fresh egg "
    "sinks; an old one stands on its tip or floats, because air has crept in through the shell.\n";

uint64_t as_verify_text_digest(void)
{
    return as_hash64(builtin, sizeof builtin - 1, SEED);
}

static int seeded(const struct as_model *model, struct as_verify_text *text)
{
    for (int32_t i = 0; i < text->count; i++)
        text->token[i] = (int32_t)(as_random_u64(SEED, 0, (uint64_t)i) % model->config.vocab);
    text->origin = "seeded ids";
    return 0;
}

int as_verify_text_standard(const struct as_model *model, int32_t count,
                            struct as_verify_text *text, struct as_error *error)
{
    struct as_tokenizer *tokenizer = NULL;
    int32_t *ids = NULL;
    size_t tokens = 0;
    *text = (struct as_verify_text){.count = count, .origin = "the built-in text"};
    text->token = as_calloc(error, (size_t)count, sizeof *text->token, "tokens to verify");
    if (text->token == NULL)
        return AS_ERR_MEMORY;
    if (model->config.vocab < SMALL_VOCABULARY)
        return seeded(model, text);
    /* Why the tokenizer cannot be used is of no interest here. */
    if (as_tokenizer_from_model(model, &tokenizer, NULL) == 0)
        as_tokenizer_encode(tokenizer, builtin, sizeof builtin - 1, AS_ENCODE_ADD_BOS, &ids,
                            &tokens, NULL);
    as_tokenizer_free(tokenizer);
    if (tokens == 0)
        seeded(model, text);
    for (int32_t i = 0; tokens > 0 && i < count; i++)
        text->token[i] = ids[(size_t)i % tokens];
    free(ids);
    return 0;
}

int as_verify_text_prompt(const struct as_model *model, const char *prompt, size_t length,
                          int32_t count, struct as_verify_text *text, struct as_error *error)
{
    struct as_tokenizer *tokenizer = NULL;
    size_t tokens = 0;
    *text = (struct as_verify_text){.origin = "the prompt"};
    int code = as_tokenizer_from_model(model, &tokenizer, error);
    if (code == 0)
        code = as_tokenizer_encode(tokenizer, prompt, length, AS_ENCODE_CHAT, &text->token, &tokens,
                                   error);
    as_tokenizer_free(tokenizer);
    if (code != 0)
        return as_error_prefix(error, "the prompt");
    text->count = tokens < (size_t)count ? (int32_t)tokens : count;
    if (text->count > 0)
        return 0;
    free(text->token);
    *text = (struct as_verify_text){0};
    return as_fail(error, AS_ERR_USAGE, "the prompt has no tokens; give some text");
}
