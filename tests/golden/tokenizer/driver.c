/* For fuzz.py: a tokenizer from a JSON vocabulary, driven over pipes.
 *
 * In:  command (1 byte), flags (u32), length (u32), then that many bytes.
 *      'e': text to encode with enum as_encode_flags; 'd': i32 ids to decode, flags 1 keeps
 *      special tokens.
 * Out: status (i32), length (u32), then i32 ids, decoded text, or an error text.
 * All little-endian.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "as_memory.h"
#include "preprocess/tokenizer.h"

static struct as_piece *read_pieces(const json_t *array, size_t *count)
{
    *count = json_array_size(array);
    struct as_piece *pieces = calloc(*count + 1, sizeof *pieces);
    for (size_t i = 0; i < *count && pieces != NULL; i++) {
        const json_t *text = json_array_get(array, i);
        pieces[i] = (struct as_piece){json_string_value(text), json_string_length(text)};
    }
    return pieces;
}

static int load(const char *path, struct as_tokenizer **tokenizer, struct as_error *error)
{
    json_error_t place;
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &place);
    if (root == NULL)
        return as_fail(error, AS_ERR_DATA, "%s:%d: %s", path, place.line, place.text);
    struct as_vocabulary vocabulary = {
        .model = "gpt2",
        .pre = json_string_value(json_object_get(root, "pre")),
        .bos = (int32_t)json_integer_value(json_object_get(root, "bos")),
        .eos = -1,
        .unknown = -1,
        .pad = -1,
        .add_bos = json_is_true(json_object_get(root, "add_bos")),
    };
    struct as_piece *pieces = read_pieces(json_object_get(root, "pieces"), &vocabulary.count);
    struct as_piece *merges = read_pieces(json_object_get(root, "merges"), &vocabulary.merge_count);
    int32_t *types = calloc(vocabulary.count + 1, sizeof *types);
    int code = AS_ERR_MEMORY;
    if (pieces != NULL && merges != NULL && types != NULL) {
        for (size_t i = 0; i < vocabulary.count; i++)
            types[i] =
                (int32_t)json_integer_value(json_array_get(json_object_get(root, "types"), i));
        vocabulary.pieces = pieces;
        vocabulary.merges = merges;
        vocabulary.types = types;
        code = as_tokenizer_create(&vocabulary, tokenizer, error);
    }
    free(pieces);
    free(merges);
    free(types);
    json_decref(root);
    return code;
}

static bool answer(int code, const void *data, size_t length)
{
    int32_t status = code;
    uint32_t bytes = (uint32_t)length;
    return fwrite(&status, 4, 1, stdout) == 1 && fwrite(&bytes, 4, 1, stdout) == 1 &&
           (length == 0 || fwrite(data, length, 1, stdout) == 1) && fflush(stdout) == 0;
}

static int decode(const struct as_tokenizer *tokenizer, const int32_t *ids, size_t count,
                  bool keep_special, struct as_text *text, struct as_error *error)
{
    struct as_decoder decoder;
    as_decoder_init(&decoder, tokenizer, keep_special);
    int code = 0;
    for (size_t i = 0; i < count && code == 0; i++)
        code = as_decoder_push(&decoder, ids[i], text, error);
    return code == 0 ? as_decoder_flush(&decoder, text, error) : code;
}

static bool serve_one(const struct as_tokenizer *tokenizer, struct as_encoder *encoder)
{
    char command;
    uint32_t flags, length;
    if (fread(&command, 1, 1, stdin) != 1 || fread(&flags, 4, 1, stdin) != 1 ||
        fread(&length, 4, 1, stdin) != 1)
        return false;
    char *input = malloc((size_t)length + 4);
    if (input == NULL || (length > 0 && fread(input, length, 1, stdin) != 1)) {
        free(input);
        return false;
    }
    struct as_error error = {0};
    struct as_text text = {0};
    const int32_t *ids = NULL;
    size_t count = 0;
    int code = command == 'e'
                   ? as_encoder_encode(encoder, input, length, flags, &ids, &count, &error)
                   : decode(tokenizer, (const int32_t *)(void *)input, length / 4, flags & 1, &text,
                            &error);
    bool good = code != 0        ? answer(code, error.message, strlen(error.message))
                : command == 'e' ? answer(0, ids, count * sizeof *ids)
                                 : answer(0, text.data, text.length);
    as_text_free(&text);
    free(input);
    return good;
}

int main(int argc, char **argv)
{
    struct as_error error = {0};
    struct as_tokenizer *tokenizer = NULL;
    struct as_encoder *encoder = NULL;
    if (argc != 2 || load(argv[1], &tokenizer, &error) != 0 ||
        as_encoder_create(tokenizer, &encoder, &error) != 0) {
        fprintf(stderr, "%s\n", argc != 2 ? "usage: driver VOCABULARY.json" : error.message);
        as_tokenizer_free(tokenizer);
        return 2;
    }
    while (serve_one(tokenizer, encoder))
        continue;
    as_encoder_free(encoder);
    as_tokenizer_free(tokenizer);
    return 0;
}
