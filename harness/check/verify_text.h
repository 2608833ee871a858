/* What `verify` feeds a model: token ids, the same for every strategy. */
#ifndef AS_VERIFY_TEXT_H
#define AS_VERIFY_TEXT_H

#include "engine/model.h"

struct as_verify_text {
    int32_t *token; /* (count); freed with free() */
    int32_t count;
    const char *origin; /* "the built-in text", "seeded ids", "the prompt" */
};

/* `count` tokens of the built-in text (eight languages and three programming languages), repeated
 * where it is too short; ids drawn from a fixed seed where the model has no tokenizer that assay
 * can use, or fewer than 512 tokens. */
int as_verify_text_standard(const struct as_model *model, int32_t count,
                            struct as_verify_text *text, struct as_error *error);

/* At most `count` tokens of a prompt (UTF-8), special tokens recognised, BOS in front where the
 * vocabulary says so. No token at all is AS_ERR_USAGE. */
int as_verify_text_prompt(const struct as_model *model, const char *prompt, size_t length,
                          int32_t count, struct as_verify_text *text, struct as_error *error);

/* A number that changes with the built-in text and the seed: part of what noise depends on. */
uint64_t as_verify_text_digest(void);

#endif
