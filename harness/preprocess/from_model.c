#include "preprocess/from_model.h"

#include <stdlib.h>

#include "as_memory.h"

static struct as_piece *copy_pieces(const struct as_bytes *bytes, size_t count,
                                    struct as_error *error)
{
    struct as_piece *pieces = as_calloc(error, count, sizeof *pieces, "the vocabulary");
    for (size_t i = 0; i < count && pieces != NULL; i++)
        pieces[i] = (struct as_piece){bytes[i].bytes, bytes[i].length};
    return pieces;
}

int as_tokenizer_from_model(const struct as_model *model, struct as_tokenizer **tokenizer,
                            struct as_error *error)
{
    const struct as_model_vocabulary *from = &model->vocabulary;
    struct as_error failure = {0};
    *tokenizer = NULL;
    struct as_piece *pieces = copy_pieces(from->pieces, from->count, &failure);
    struct as_piece *merges = copy_pieces(from->merges, from->merge_count, &failure);
    const struct as_vocabulary vocabulary = {
        .model = from->model,
        .pre = from->pre,
        .count = from->count,
        .pieces = pieces,
        .types = from->types,
        .scores = from->scores,
        .merge_count = from->merge_count,
        .merges = merges,
        .bos = from->bos,
        .eos = from->eos,
        .unknown = from->unknown,
        .pad = from->pad,
        .add_bos = from->add_bos,
        .add_eos = from->add_eos,
    };
    if (failure.code == 0 && as_tokenizer_create(&vocabulary, tokenizer, &failure) != 0)
        as_error_prefix(&failure, "cannot use the tokenizer of %s", model->path);
    free(pieces);
    free(merges);
    return failure.code == 0 ? 0 : as_fail(error, failure.code, "%s", failure.message);
}

int as_template_from_model(const struct as_model *model, const char *name,
                           const struct as_template **chat, struct as_error *error)
{
    struct as_bytes source = model->vocabulary.chat_template;
    return as_template_find(chat, source.bytes, source.length, name, error);
}
