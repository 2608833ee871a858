/* tokenizer.* of a GGUF file into plain arrays. */
#include "model_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "as_memory.h"

/* The array entry `key` of the given element type, or NULL where it is absent. `count` of
 * UINT64_MAX accepts any count up to `limit`. */
static int find_array(const struct as_gguf *gguf, const char *key, uint32_t element, uint64_t count,
                      uint64_t limit, const struct as_gguf_entry **found, struct as_error *error)
{
    const struct as_gguf_entry *entry = as_gguf_find(gguf, key);
    *found = entry;
    if (entry == NULL)
        return 0;
    if (entry->type != AS_GGUF_ARRAY || entry->element != element)
        return as_model_refuse_key(
            entry, AS_ERR_DATA, error, "it is %s%s, must be an array of %s",
            entry->type == AS_GGUF_ARRAY ? "an array of " : "of type ",
            as_gguf_value_name(entry->type == AS_GGUF_ARRAY ? entry->element : entry->type),
            as_gguf_value_name(element));
    if (entry->count > limit)
        return as_model_refuse_key(entry, AS_ERR_DATA, error,
                                   "it has %llu elements, more than the limit of %llu",
                                   (unsigned long long)entry->count, (unsigned long long)limit);
    if (count != UINT64_MAX && entry->count != count)
        return as_model_refuse_key(entry, AS_ERR_DATA, error,
                                   "it has %llu elements for %llu tokens; convert the model again",
                                   (unsigned long long)entry->count, (unsigned long long)count);
    return 0;
}

static int read_strings(const struct as_gguf_entry *entry, struct as_bytes **strings,
                        const char *what, struct as_error *error)
{
    *strings = as_calloc(error, (size_t)entry->count, sizeof **strings, what);
    if (*strings == NULL)
        return AS_ERR_MEMORY;
    as_gguf_strings(entry, *strings);
    return 0;
}

/* Types and scores are copied: in the file they need not be aligned. */
static int read_numbers(const struct as_gguf_entry *entry, void *array, const char *what,
                        struct as_error *error)
{
    void *copy = as_calloc(error, (size_t)entry->count, 4, what);
    if (copy == NULL)
        return AS_ERR_MEMORY;
    memcpy(copy, entry->data, (size_t)entry->count * 4);
    memcpy(array, &copy, sizeof copy);
    return 0;
}

static int read_pieces(struct as_model_storage *storage, struct as_error *error)
{
    struct as_model_vocabulary *vocabulary = &storage->model->vocabulary;
    const struct as_gguf *gguf = &storage->gguf;
    const struct as_gguf_entry *entry;
    int code = find_array(gguf, "tokenizer.ggml.tokens", AS_GGUF_STRING, UINT64_MAX,
                          AS_MODEL_PIECE_LIMIT, &entry, error);
    if (code != 0)
        return code;
    if (entry == NULL || entry->count == 0)
        return as_fail(error, AS_ERR_DATA,
                       "metadata: the key tokenizer.ggml.tokens is missing or empty, so text "
                       "cannot become tokens; convert the model again with its tokenizer");
    if ((code = read_strings(entry, &storage->pieces, "the vocabulary", error)) != 0)
        return code;
    vocabulary->count = (size_t)entry->count;
    vocabulary->pieces = storage->pieces;

    if ((code = find_array(gguf, "tokenizer.ggml.merges", AS_GGUF_STRING, UINT64_MAX,
                           AS_MODEL_MERGE_LIMIT, &entry, error)) != 0)
        return code;
    if (entry != NULL && (code = read_strings(entry, &storage->merges, "the merges", error)) != 0)
        return code;
    vocabulary->merges = storage->merges;
    vocabulary->merge_count = entry != NULL ? (size_t)entry->count : 0;
    return 0;
}

static int read_types(struct as_model_storage *storage, struct as_error *error)
{
    struct as_model_vocabulary *vocabulary = &storage->model->vocabulary;
    const struct as_gguf_entry *entry;
    int code = find_array(&storage->gguf, "tokenizer.ggml.token_type", AS_GGUF_I32,
                          vocabulary->count, UINT64_MAX, &entry, error);
    if (code == 0 && entry != NULL)
        code = read_numbers(entry, &storage->types, "the token types", error);
    vocabulary->types = storage->types;
    for (size_t i = 0; code == 0 && entry != NULL && i < vocabulary->count; i++)
        if (storage->types[i] < AS_PIECE_NORMAL || storage->types[i] > AS_PIECE_BYTE)
            code = as_model_refuse_key(entry, AS_ERR_DATA, error,
                                       "token %zu has type %d, must be from 1 to 6", i,
                                       storage->types[i]);
    if (code == 0)
        code = find_array(&storage->gguf, "tokenizer.ggml.scores", AS_GGUF_F32, vocabulary->count,
                          UINT64_MAX, &entry, error);
    if (code == 0 && entry != NULL)
        code = read_numbers(entry, &storage->scores, "the token scores", error);
    vocabulary->scores = storage->scores;
    for (size_t i = 0; code == 0 && entry != NULL && i < vocabulary->count; i++)
        if (!isfinite(storage->scores[i]))
            code = as_model_refuse_key(entry, AS_ERR_DATA, error,
                                       "the score of token %zu is not finite", i);
    return code;
}

/* A token id, -1 where the key is absent. All ones, as some converters write, means none too. */
static int read_id(const struct as_model_storage *storage, const char *key, int32_t *id,
                   struct as_error *error)
{
    const struct as_gguf_entry *entry = as_gguf_find(&storage->gguf, key);
    size_t count = storage->model->vocabulary.count;
    int64_t value;
    *id = -1;
    if (entry == NULL)
        return 0;
    if (!as_gguf_signed(entry, &value))
        return as_model_refuse_key(entry, AS_ERR_DATA, error,
                                   "it is of type %s, must be an integer",
                                   as_gguf_value_name(entry->type));
    if (value == -1 || value == UINT32_MAX)
        return 0;
    if (value < 0 || (uint64_t)value >= count)
        return as_model_refuse_key(entry, AS_ERR_DATA, error,
                                   "it is %lld, outside the vocabulary of %zu tokens",
                                   (long long)value, count);
    *id = (int32_t)value;
    return 0;
}

static int read_ids(struct as_model_storage *storage, struct as_error *error)
{
    struct as_model_vocabulary *vocabulary = &storage->model->vocabulary;
    const struct {
        const char *key;
        int32_t *id;
    } ids[] = {
        {"tokenizer.ggml.bos_token_id", &vocabulary->bos},
        {"tokenizer.ggml.eos_token_id", &vocabulary->eos},
        {"tokenizer.ggml.eot_token_id", &vocabulary->eot},
        {"tokenizer.ggml.unknown_token_id", &vocabulary->unknown},
        {"tokenizer.ggml.padding_token_id", &vocabulary->pad},
    };
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        int code = read_id(storage, ids[i].key, ids[i].id, error);
        if (code != 0)
            return code;
    }
    const int32_t ends[] = {vocabulary->eos, vocabulary->eot};
    for (size_t i = 0; i < 2; i++)
        if (ends[i] >= 0 && (i == 0 || ends[i] != ends[0]))
            vocabulary->ends[vocabulary->end_count++] = ends[i];
    return 0;
}

/* What holds where the file does not say whether BOS is added: llama.cpp's rule, true for the
 * `llama` vocabularies and for Llama 3's pre-tokenizer. */
static bool adds_bos_by_default(const struct as_model_vocabulary *vocabulary)
{
    static const char *const kinds[] = {"llama-bpe", "llama3", "llama-v3"};
    if (strcmp(vocabulary->model, "llama") == 0)
        return true;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (vocabulary->pre != NULL && strcmp(vocabulary->pre, kinds[i]) == 0)
            return true;
    return false;
}

static int read_flags(struct as_model_storage *storage, struct as_error *error)
{
    struct as_model_vocabulary *vocabulary = &storage->model->vocabulary;
    const struct as_gguf *gguf = &storage->gguf;
    vocabulary->add_bos = adds_bos_by_default(vocabulary);
    vocabulary->add_space_prefix = strcmp(vocabulary->model, "llama") == 0;
    int code = as_model_key_bool(gguf, "tokenizer.ggml.add_bos_token", &vocabulary->add_bos, error);
    if (code == 0)
        code = as_model_key_bool(gguf, "tokenizer.ggml.add_eos_token", &vocabulary->add_eos, error);
    if (code == 0)
        code = as_model_key_bool(gguf, "tokenizer.ggml.add_space_prefix",
                                 &vocabulary->add_space_prefix, error);
    const struct as_gguf_entry *entry = as_gguf_find(gguf, "tokenizer.chat_template");
    if (code == 0 && entry != NULL && !as_gguf_string(entry, &vocabulary->chat_template))
        code = as_model_refuse_key(entry, AS_ERR_DATA, error, "it is of type %s, must be a string",
                                   as_gguf_value_name(entry->type));
    return code;
}

int as_model_read_vocabulary(struct as_model_storage *storage, struct as_error *error)
{
    struct as_model_vocabulary *vocabulary = &storage->model->vocabulary;
    const struct as_gguf *gguf = &storage->gguf;
    if (as_gguf_find(gguf, "tokenizer.ggml.model") == NULL)
        return as_fail(error, AS_ERR_DATA,
                       "metadata: the key tokenizer.ggml.model is missing, so the file carries no "
                       "tokenizer; convert the model again with its tokenizer");
    int code = as_model_key_text(gguf, "tokenizer.ggml.model", true, &storage->tokenizer, error);
    if (code == 0)
        code = as_model_key_text(gguf, "tokenizer.ggml.pre", false, &storage->pre, error);
    if (code != 0)
        return code;
    vocabulary->model = storage->tokenizer;
    vocabulary->pre = storage->pre;
    if ((code = read_pieces(storage, error)) != 0 || (code = read_types(storage, error)) != 0 ||
        (code = read_ids(storage, error)) != 0)
        return code;
    return read_flags(storage, error);
}
