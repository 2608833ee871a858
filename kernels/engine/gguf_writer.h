/* Writes GGUF version 3: metadata and tensor entries first, then the tensors' data in order.
 *
 * The file appears under its name complete or not at all: it is written beside it, its space
 * reserved first, and renamed at the end. An image in memory is made the same way.
 */
#ifndef AS_GGUF_WRITER_H
#define AS_GGUF_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "as_error.h"
#include "kernel.h"
#include "model.h"

struct as_gguf_writer;

/* A writer that places tensors at multiples of `alignment` (a power of two >= 8), which is stated
 * in the metadata unless it is the default, 32. NULL only without memory. */
struct as_gguf_writer *as_gguf_writer_create(size_t alignment, struct as_error *error);

/* Drops what is not finished: a partial file is removed. NULL is fine. */
void as_gguf_writer_free(struct as_gguf_writer *writer);

/* Metadata, in the order of the calls. A failure (memory) is kept until as_gguf_begin. */
void as_gguf_put_u32(struct as_gguf_writer *writer, const char *key, uint32_t value);
void as_gguf_put_f32(struct as_gguf_writer *writer, const char *key, float value);
void as_gguf_put_bool(struct as_gguf_writer *writer, const char *key, bool value);
void as_gguf_put_string(struct as_gguf_writer *writer, const char *key, const char *value);
void as_gguf_put_strings(struct as_gguf_writer *writer, const char *key,
                         const struct as_bytes *values, size_t count);
void as_gguf_put_i32s(struct as_gguf_writer *writer, const char *key, const int32_t *values,
                      size_t count);
void as_gguf_put_f32s(struct as_gguf_writer *writer, const char *key, const float *values,
                      size_t count);

/* Declares the next tensor: `rows` rows of `columns` elements (whole blocks), or a vector where
 * rows is 0. Its data must be appended in this order. */
void as_gguf_put_tensor(struct as_gguf_writer *writer, const char *name, enum assay_dtype dtype,
                        size_t columns, size_t rows);

/* Ends the declarations and writes the header, to a file beside `path`, or into memory where
 * `path` is NULL. */
int as_gguf_begin(struct as_gguf_writer *writer, const char *path, struct as_error *error);

/* Appends `bytes` of data. Where a tensor ends, what is missing to the alignment is filled up with
 * zeros; a piece never spans two tensors. */
int as_gguf_append(struct as_gguf_writer *writer, const void *data, size_t bytes,
                   struct as_error *error);

/* Ends the file: all data must have come; sync and rename. */
int as_gguf_finish(struct as_gguf_writer *writer, struct as_error *error);

/* Ends an image in memory, which the caller frees with free(). */
int as_gguf_finish_memory(struct as_gguf_writer *writer, void **image, size_t *size,
                          struct as_error *error);

#endif
