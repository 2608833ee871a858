/* The tokenizer and the chat template that an opened model file carries. */
#ifndef AS_FROM_MODEL_H
#define AS_FROM_MODEL_H

#include "as_error.h"
#include "engine/model.h"
#include "preprocess/template.h"
#include "preprocess/tokenizer.h"

/* Needs the model no longer once it returns. */
int as_tokenizer_from_model(const struct as_model *model, struct as_tokenizer **tokenizer,
                            struct as_error *error);

/* As as_template_find(), with the model's own source; `name` NULL: recognised by digest. */
int as_template_from_model(const struct as_model *model, const char *name,
                           const struct as_template **chat, struct as_error *error);

#endif
