/* Builds safetensors images, valid or not, and checks how they are refused. */
#ifndef SAFETENSORS_IMAGE_H
#define SAFETENSORS_IMAGE_H

#include "gguf_image.h"

#include "engine/safetensors.h"

/* 8 bytes of size, then the header; `size` of UINT64_MAX states what is there. */
static inline void put_json(struct as_text *image, uint64_t size, const char *json)
{
    put_u64(image, size == UINT64_MAX ? strlen(json) : size);
    as_text_add(image, json, strlen(json));
}

/* An image of `json` and `bytes` of data that count up from 0. */
static inline struct as_text image_of(const char *json, size_t bytes)
{
    struct as_text image = {0};
    put_json(&image, UINT64_MAX, json);
    for (size_t i = 0; i < bytes; i++) {
        char byte = (char)(i & 0xff);
        as_text_add(&image, &byte, 1);
    }
    return image;
}

/* Parses the image, which must be fine; `copy` is freed by the caller after as_safetensors_free. */
static inline struct as_safetensors parse_image(struct as_text *image, void **copy)
{
    struct as_safetensors file;
    struct as_error error = {0};
    *copy = exact_copy(image->data, image->length);
    cr_assert_eq(as_safetensors_parse(&file, *copy, image->length, &error), 0, "%s", error.message);
    cr_assert_eq(error.code, 0);
    as_text_free(image);
    return file;
}

/* Parses the image, which must be refused with `code` and messages that hold both texts. */
static inline void expect_no_safetensors(struct as_text *image, int code, const char *first,
                                         const char *second)
{
    struct as_safetensors file;
    struct as_error error = {0};
    void *copy = exact_copy(image->data, image->length);
    int found = as_safetensors_parse(&file, copy, image->length, &error);
    cr_assert_eq(found, code, "%d instead of %d: '%s' for %s", found, code, error.message,
                 image->length > 8 ? image->data + 8 : "");
    cr_assert_eq(error.code, code);
    cr_assert_eq(file.tensor_count + file.entry_count, 0);
    cr_assert_not_null(strstr(error.message, first), "no '%s' in: %s", first, error.message);
    cr_assert_not_null(strstr(error.message, second), "no '%s' in: %s", second, error.message);
    free(copy);
    as_text_free(image);
}

#endif
