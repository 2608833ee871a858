/* Builds GGUF images byte by byte, valid or not, and checks how they are refused. */
#ifndef GGUF_IMAGE_H
#define GGUF_IMAGE_H

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "as_text.h"
#include "engine/gguf.h"
#include "engine/model.h"

static inline void put_u32(struct as_text *image, uint32_t value)
{
    as_text_add(image, (const char *)&value, sizeof value);
}

static inline void put_u64(struct as_text *image, uint64_t value)
{
    as_text_add(image, (const char *)&value, sizeof value);
}

static inline void put_string(struct as_text *image, const char *text)
{
    put_u64(image, strlen(text));
    as_text_add(image, text, strlen(text));
}

static inline void put_zeros(struct as_text *image, size_t count)
{
    for (; count > 0; count--)
        as_text_add(image, "", 1);
}

static inline void put_header(struct as_text *image, uint32_t version, uint64_t tensors,
                              uint64_t entries)
{
    as_text_add(image, "GGUF", 4);
    put_u32(image, version);
    put_u64(image, tensors);
    put_u64(image, entries);
}

static inline void put_key(struct as_text *image, const char *key, uint32_t type)
{
    put_string(image, key);
    put_u32(image, type);
}

static inline void put_key_u32(struct as_text *image, const char *key, uint32_t value)
{
    put_key(image, key, AS_GGUF_U32);
    put_u32(image, value);
}

/* An entry of a tensor with `dimensions` of the given sizes. */
static inline void put_tensor(struct as_text *image, const char *name, uint32_t type,
                              uint64_t offset, uint32_t dimensions, ...)
{
    va_list sizes;
    put_string(image, name);
    put_u32(image, dimensions);
    va_start(sizes, dimensions);
    for (uint32_t i = 0; i < dimensions; i++)
        put_u64(image, va_arg(sizes, uint64_t));
    va_end(sizes);
    put_u32(image, type);
    put_u64(image, offset);
}

/* Fills up to a multiple of `alignment`. */
static inline void put_padding(struct as_text *image, size_t alignment)
{
    while (image->length % alignment != 0)
        put_zeros(image, 1);
}

/* Bytes written as hexadecimal digits, spaces ignored. */
static inline void put_hex(struct as_text *image, const char *hex)
{
    unsigned byte = 0, digits = 0;
    for (; *hex != '\0'; hex++) {
        if (*hex == ' ')
            continue;
        byte = byte << 4 | (unsigned)(*hex <= '9' ? *hex - '0' : (*hex | 32) - 'a' + 10);
        if (++digits % 2 == 0) {
            char value = (char)(byte & 0xff);
            as_text_add(image, &value, 1);
        }
    }
}

/* Copies the image to a block of exactly its size, so that a sanitizer sees any byte beyond. */
static inline void *exact_copy(const void *bytes, size_t size)
{
    void *copy = malloc(size > 0 ? size : 1);
    cr_assert_not_null(copy);
    if (size > 0)
        memcpy(copy, bytes, size);
    return copy;
}

/* Parses `image`, which must be refused with `code` and a message that holds each of the texts up
 * to NULL; frees the image. */
static inline void expect_refused(struct as_text *image, int code, ...)
{
    struct as_gguf gguf;
    struct as_error error = {0};
    void *copy = exact_copy(image->data, image->length);
    int found = as_gguf_parse(&gguf, copy, image->length, &error);
    cr_assert_eq(found, code, "code %d instead of %d: %s", found, code, error.message);
    cr_assert_eq(error.code, code);
    cr_assert_eq(gguf.entry_count + gguf.tensor_count, 0);
    va_list texts;
    va_start(texts, code);
    for (const char *text; (text = va_arg(texts, const char *)) != NULL;)
        cr_assert_not_null(strstr(error.message, text), "no '%s' in: %s", text, error.message);
    va_end(texts);
    free(copy);
    as_text_free(image);
}

/* Reads every byte that a loaded model promises, so that a sanitizer sees a wrong promise. */
static inline uint64_t walk_model(const struct as_model *model)
{
    uint64_t sum = 0;
    const struct as_model_vocabulary *v = &model->vocabulary;
    for (size_t i = 0; i < v->count; i++)
        for (size_t j = 0; j < v->pieces[i].length; j++)
            sum += (uint8_t)v->pieces[i].bytes[j];
    for (size_t i = 0; i < v->merge_count; i++)
        for (size_t j = 0; j < v->merges[i].length; j++)
            sum += (uint8_t)v->merges[i].bytes[j];
    for (size_t i = 0; i < v->count; i++)
        sum += (v->types != NULL ? (uint64_t)v->types[i] : 0) +
               (v->scores != NULL && v->scores[i] > 0.0f);
    for (size_t i = 0; i < v->chat_template.length; i++)
        sum += (uint8_t)v->chat_template.bytes[i];
    for (size_t i = 0; i < model->tensor_count; i++) {
        const uint8_t *data = model->tensors[i].data;
        sum += strlen(model->tensors[i].name) + data[0] + data[model->tensors[i].bytes - 1];
    }
    for (size_t i = 0; i < model->metadata_count; i++) {
        const struct as_metadata *item = &model->metadata[i];
        sum += item->key.length + strlen(item->type);
        for (size_t j = 0; item->kind == AS_METADATA_STRING && j < item->value.text.length; j++)
            sum += (uint8_t)item->value.text.bytes[j];
    }
    return sum + strlen(model->name) + strlen(v->model);
}

#endif
