/* Building a tokenizer from a vocabulary, and looking things up in it. */
#include "preprocess/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "as_clock.h"
#include "as_hash.h"
#include "as_memory.h"
#include "preprocess/tokenizer_parts.h"
#include "preprocess/utf8.h"

int as_byte_of_code_point(uint32_t code_point)
{
    if (code_point < 256) {
        bool visible =
            (code_point >= 33 && code_point <= 126) || (code_point >= 161 && code_point != 173);
        return visible ? (int)code_point : -1;
    }
    /* The rest have the characters from U+0100 on, in the order of their values. */
    uint32_t index = code_point - 256;
    if (index < 33)
        return (int)index;
    if (index < 67)
        return (int)(index - 33 + 127);
    return index == 67 ? 173 : -1;
}

/* Writes the bytes that `piece` stands for to `out` (piece.length of room) and returns how many;
 * a piece with a character outside the mapping stands for itself. */
static size_t decode_piece(struct as_piece piece, char *out)
{
    const unsigned char *bytes = (const unsigned char *)piece.bytes;
    size_t written = 0;
    for (size_t at = 0, used; at < piece.length; at += used) {
        int byte = -1;
        if (as_utf8_next(bytes + at, piece.length - at, &used) == AS_UTF8_WHOLE)
            byte = as_byte_of_code_point(as_utf8_code_point(bytes + at, used));
        if (byte < 0) {
            memcpy(out, piece.bytes, piece.length);
            return piece.length;
        }
        out[written++] = (char)byte;
    }
    return written;
}

static size_t table_slot(const struct as_tokenizer *tokenizer, const char *text, size_t length)
{
    size_t slot = (size_t)as_hash64(text, length, tokenizer->seed) & (tokenizer->slots - 1);
    for (; tokenizer->table[slot] >= 0; slot = (slot + 1) & (tokenizer->slots - 1)) {
        struct as_piece piece = as_tokenizer_piece(tokenizer, tokenizer->table[slot]);
        if (piece.length == length && memcmp(piece.bytes, text, length) == 0)
            break;
    }
    return slot;
}

/* True for tokens that are found in text as a whole, before words are cut. */
static bool is_added(uint8_t type)
{
    return type == AS_TOKEN_CONTROL || type == AS_TOKEN_UNKNOWN || type == AS_TOKEN_USER_DEFINED;
}

static int load_pieces(struct as_tokenizer *tokenizer, const struct as_vocabulary *vocabulary,
                       struct as_error *error)
{
    size_t total = 0;
    for (size_t i = 0; i < vocabulary->count; i++)
        if (as_add_overflows(total, vocabulary->pieces[i].length, &total))
            return as_fail(error, AS_ERR_DATA, "the vocabulary's pieces are too long");
    tokenizer->pool = as_calloc(error, total, 1, "the vocabulary's pieces");
    tokenizer->offsets =
        as_calloc(error, vocabulary->count + 1, sizeof *tokenizer->offsets, "the vocabulary");
    tokenizer->types = as_calloc(error, vocabulary->count, 1, "the vocabulary's types");
    if (tokenizer->pool == NULL || tokenizer->offsets == NULL || tokenizer->types == NULL)
        return AS_ERR_MEMORY;
    tokenizer->count = vocabulary->count;
    size_t at = 0;
    for (size_t i = 0; i < vocabulary->count; i++) {
        struct as_piece piece = vocabulary->pieces[i];
        int32_t type = vocabulary->types == NULL ? AS_TOKEN_NORMAL : vocabulary->types[i];
        if (type < AS_TOKEN_NORMAL || type > AS_TOKEN_BYTE)
            return as_fail(error, AS_ERR_DATA,
                           "token %zu has the type %d; tokenizer.ggml.token_type knows 1 to 6", i,
                           (int)type);
        tokenizer->types[i] = (uint8_t)type;
        if (!is_added((uint8_t)type))
            piece.length = decode_piece(piece, tokenizer->pool + at);
        else if (piece.length > 0)
            memcpy(tokenizer->pool + at, piece.bytes, piece.length);
        at += piece.length;
        tokenizer->offsets[i + 1] = at;
    }
    return 0;
}

/* Ordinary pieces go in first: of two tokens with one text, merges mean the ordinary one. */
static int load_table(struct as_tokenizer *tokenizer, struct as_error *error)
{
    size_t slots = 64;
    while (slots < tokenizer->count * 2)
        slots *= 2;
    tokenizer->table = as_calloc(error, slots, sizeof *tokenizer->table, "the vocabulary");
    if (tokenizer->table == NULL)
        return AS_ERR_MEMORY;
    memset(tokenizer->table, 0xff, slots * sizeof *tokenizer->table);
    tokenizer->slots = slots;
    for (int added = 0; added < 2; added++) {
        for (size_t i = 0; i < tokenizer->count; i++) {
            if (is_added(tokenizer->types[i]) != (added == 1))
                continue;
            struct as_piece piece = as_tokenizer_piece(tokenizer, (int32_t)i);
            size_t slot = table_slot(tokenizer, piece.bytes, piece.length);
            if (tokenizer->table[slot] < 0)
                tokenizer->table[slot] = (int32_t)i;
        }
    }
    return 0;
}

static int load_special(struct as_tokenizer *tokenizer, struct as_error *error)
{
    int code = as_special_create(&tokenizer->special, error);
    for (size_t i = 0; i < tokenizer->count && code == 0; i++) {
        struct as_piece piece = as_tokenizer_piece(tokenizer, (int32_t)i);
        if (is_added(tokenizer->types[i]))
            code = as_special_add(tokenizer->special, piece.bytes, piece.length, (int32_t)i, error);
    }
    return code == 0 ? as_special_complete(tokenizer->special, error) : code;
}

/* The ids of "left", "right" and "leftright" of merge number `rank`. */
static int resolve_merge(const struct as_tokenizer *tokenizer, struct as_piece merge, size_t rank,
                         struct as_text *joined, int32_t ids[3], struct as_error *error)
{
    const char *space = merge.length > 0 ? memchr(merge.bytes, ' ', merge.length) : NULL;
    size_t left = space == NULL ? 0 : (size_t)(space - merge.bytes);
    if (left == 0 || left + 1 == merge.length ||
        memchr(space + 1, ' ', merge.length - left - 1) != NULL)
        return as_fail(error, AS_ERR_DATA,
                       "merge %zu (\"%.*s\") is not two pieces with one space between", rank,
                       (int)(merge.length < 60 ? merge.length : 60), merge.bytes);
    joined->length = 0;
    as_text_add(joined, merge.bytes, merge.length); /* room for both sides */
    if (joined->failed)
        return as_fail_memory(error, merge.length, "a merge");
    size_t middle = decode_piece((struct as_piece){merge.bytes, left}, joined->data);
    size_t end = middle + decode_piece((struct as_piece){space + 1, merge.length - left - 1},
                                       joined->data + middle);
    ids[0] = as_tokenizer_find(tokenizer, joined->data, middle);
    ids[1] = as_tokenizer_find(tokenizer, joined->data + middle, end - middle);
    ids[2] = as_tokenizer_find(tokenizer, joined->data, end);
    if (ids[0] < 0 || ids[1] < 0 || ids[2] < 0)
        return as_fail(error, AS_ERR_DATA, "merge %zu (\"%.*s\") %s is not in the vocabulary", rank,
                       (int)(merge.length < 60 ? merge.length : 60), merge.bytes,
                       ids[0] < 0 || ids[1] < 0 ? "joins a piece that" : "makes a piece that");
    return 0;
}

static int load_merges(struct as_tokenizer *tokenizer, const struct as_vocabulary *vocabulary,
                       struct as_error *error)
{
    int code = as_bpe_init(&tokenizer->bpe, vocabulary->merge_count, error);
    for (int byte = 0; byte < 256 && code == 0; byte++) {
        char text = (char)byte;
        int32_t id = as_tokenizer_find(tokenizer, &text, 1);
        if (id >= 0 && !is_added(tokenizer->types[id]))
            tokenizer->bpe.bytes[byte] = id;
    }
    struct as_text joined = {0};
    for (size_t i = 0; i < vocabulary->merge_count && code == 0; i++) {
        int32_t ids[3] = {-1, -1, -1};
        code = resolve_merge(tokenizer, vocabulary->merges[i], i, &joined, ids, error);
        if (code == 0)
            as_bpe_add(&tokenizer->bpe, ids[0], ids[1], (uint32_t)i, ids[2]);
    }
    as_text_free(&joined);
    return code;
}

static int check_id(const struct as_vocabulary *vocabulary, int32_t id, const char *name,
                    struct as_error *error)
{
    if (id >= -1 && (id < 0 || (size_t)id < vocabulary->count))
        return 0;
    return as_fail(error, AS_ERR_DATA, "the %s token is %d, but the vocabulary has %zu tokens",
                   name, (int)id, vocabulary->count);
}

static int check(const struct as_vocabulary *vocabulary, struct as_error *error)
{
    if (vocabulary->model == NULL)
        return as_fail(error, AS_ERR_DATA, "the model file carries no tokenizer");
    if (strcmp(vocabulary->model, "gpt2") != 0)
        return as_fail(error, AS_ERR_UNSUPPORTED,
                       "the tokenizer model \"%.100s\" (tokenizer.ggml.model) is not served; known "
                       "is gpt2 (byte-level BPE)",
                       vocabulary->model);
    if (vocabulary->count == 0 || vocabulary->count > INT32_MAX)
        return as_fail(error, AS_ERR_DATA, "a vocabulary of %zu tokens cannot be used",
                       vocabulary->count);
    const struct {
        const char *name;
        int32_t id;
    } ids[] = {{"BOS", vocabulary->bos},
               {"EOS", vocabulary->eos},
               {"unknown", vocabulary->unknown},
               {"padding", vocabulary->pad}};
    int code = 0;
    for (size_t i = 0; i < sizeof ids / sizeof ids[0] && code == 0; i++)
        code = check_id(vocabulary, ids[i].id, ids[i].name, error);
    return code;
}

int as_tokenizer_create(const struct as_vocabulary *vocabulary, struct as_tokenizer **tokenizer,
                        struct as_error *error)
{
    *tokenizer = NULL;
    int code = check(vocabulary, error);
    if (code != 0)
        return code;
    struct as_tokenizer *made = as_calloc(error, 1, sizeof *made, "a tokenizer");
    if (made == NULL)
        return AS_ERR_MEMORY;
    made->seed = as_clock_ns();
    made->bos = vocabulary->bos;
    made->eos = vocabulary->eos;
    made->add_bos = vocabulary->add_bos && vocabulary->bos >= 0;
    made->add_eos = vocabulary->add_eos && vocabulary->eos >= 0;
    code = as_pretokenizer_create(vocabulary->pre == NULL ? "default" : vocabulary->pre,
                                  &made->pretokenizer, error);
    if (code == 0)
        code = load_pieces(made, vocabulary, error);
    if (code == 0)
        code = load_table(made, error);
    if (code == 0)
        code = load_special(made, error);
    if (code == 0)
        code = load_merges(made, vocabulary, error);
    if (code != 0) {
        as_tokenizer_free(made);
        return code;
    }
    *tokenizer = made;
    return 0;
}

void as_tokenizer_free(struct as_tokenizer *tokenizer)
{
    if (tokenizer == NULL)
        return;
    as_pretokenizer_free(tokenizer->pretokenizer);
    as_special_free(tokenizer->special);
    as_bpe_free(&tokenizer->bpe);
    free(tokenizer->pool);
    free(tokenizer->offsets);
    free(tokenizer->types);
    free(tokenizer->table);
    free(tokenizer);
}

const char *as_tokenizer_kind(size_t index)
{
    return as_pretokenizer_name(index);
}

size_t as_tokenizer_count(const struct as_tokenizer *tokenizer)
{
    return tokenizer->count;
}

int32_t as_tokenizer_bos(const struct as_tokenizer *tokenizer)
{
    return tokenizer->bos;
}

int32_t as_tokenizer_eos(const struct as_tokenizer *tokenizer)
{
    return tokenizer->eos;
}

struct as_piece as_tokenizer_piece(const struct as_tokenizer *tokenizer, int32_t id)
{
    if (id < 0 || (size_t)id >= tokenizer->count)
        return (struct as_piece){NULL, 0};
    size_t start = tokenizer->offsets[id];
    return (struct as_piece){tokenizer->pool + start, tokenizer->offsets[id + 1] - start};
}

bool as_tokenizer_is_special(const struct as_tokenizer *tokenizer, int32_t id)
{
    if (id < 0 || (size_t)id >= tokenizer->count)
        return false;
    return tokenizer->types[id] == AS_TOKEN_CONTROL || tokenizer->types[id] == AS_TOKEN_UNKNOWN;
}

int32_t as_tokenizer_find(const struct as_tokenizer *tokenizer, const char *text, size_t length)
{
    return tokenizer->table[table_slot(tokenizer, text, length)];
}
