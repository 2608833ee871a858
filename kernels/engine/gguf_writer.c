#include "gguf_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "as_memory.h"
#include "as_text.h"
#include "gguf.h"

struct as_gguf_writer {
    struct as_text metadata, entries;
    struct as_text image; /* of a file in memory */
    uint64_t metadata_count, tensor_count;
    size_t alignment;
    size_t *tensor_bytes; /* of each tensor, without padding */
    size_t tensor_capacity;
    size_t offset; /* of the next tensor in the data section */
    bool failed;   /* a declaration could not be kept */
    int fd;        /* -1: in memory, or nothing begun */
    char path[PATH_MAX], partial[PATH_MAX];
    size_t tensor, done; /* the tensor being appended, and its bytes so far */
};

struct as_gguf_writer *as_gguf_writer_create(size_t alignment, struct as_error *error)
{
    struct as_gguf_writer *writer = as_calloc(error, 1, sizeof *writer, "a GGUF writer");
    if (writer == NULL)
        return NULL;
    writer->fd = -1;
    writer->alignment = alignment;
    if (alignment != 32)
        as_gguf_put_u32(writer, "general.alignment", (uint32_t)alignment);
    return writer;
}

void as_gguf_writer_free(struct as_gguf_writer *writer)
{
    if (writer == NULL)
        return;
    if (writer->fd >= 0) {
        close(writer->fd);
        unlink(writer->partial);
    }
    as_text_free(&writer->metadata);
    as_text_free(&writer->entries);
    as_text_free(&writer->image);
    free(writer->tensor_bytes);
    free(writer);
}

/* ---- declarations ------------------------------------------------------------------------- */

static void add_u32(struct as_text *text, uint32_t value)
{
    as_text_add(text, (const char *)&value, sizeof value);
}

static void add_u64(struct as_text *text, uint64_t value)
{
    as_text_add(text, (const char *)&value, sizeof value);
}

static void add_bytes(struct as_text *text, const char *bytes, size_t length)
{
    add_u64(text, length);
    as_text_add(text, bytes, length);
}

static void add_key(struct as_gguf_writer *writer, const char *key, uint32_t type)
{
    add_bytes(&writer->metadata, key, strlen(key));
    add_u32(&writer->metadata, type);
    writer->metadata_count++;
}

static void add_array(struct as_gguf_writer *writer, const char *key, uint32_t element,
                      size_t count)
{
    add_key(writer, key, AS_GGUF_ARRAY);
    add_u32(&writer->metadata, element);
    add_u64(&writer->metadata, count);
}

void as_gguf_put_u32(struct as_gguf_writer *writer, const char *key, uint32_t value)
{
    add_key(writer, key, AS_GGUF_U32);
    add_u32(&writer->metadata, value);
}

void as_gguf_put_f32(struct as_gguf_writer *writer, const char *key, float value)
{
    add_key(writer, key, AS_GGUF_F32);
    as_text_add(&writer->metadata, (const char *)&value, sizeof value);
}

void as_gguf_put_bool(struct as_gguf_writer *writer, const char *key, bool value)
{
    add_key(writer, key, AS_GGUF_BOOL);
    as_text_add(&writer->metadata, value ? "\1" : "\0", 1);
}

void as_gguf_put_string(struct as_gguf_writer *writer, const char *key, const char *value)
{
    add_key(writer, key, AS_GGUF_STRING);
    add_bytes(&writer->metadata, value, strlen(value));
}

void as_gguf_put_strings(struct as_gguf_writer *writer, const char *key,
                         const struct as_bytes *values, size_t count)
{
    add_array(writer, key, AS_GGUF_STRING, count);
    for (size_t i = 0; i < count; i++)
        add_bytes(&writer->metadata, values[i].bytes, values[i].length);
}

void as_gguf_put_i32s(struct as_gguf_writer *writer, const char *key, const int32_t *values,
                      size_t count)
{
    add_array(writer, key, AS_GGUF_I32, count);
    as_text_add(&writer->metadata, (const char *)values, count * sizeof *values);
}

void as_gguf_put_f32s(struct as_gguf_writer *writer, const char *key, const float *values,
                      size_t count)
{
    add_array(writer, key, AS_GGUF_F32, count);
    as_text_add(&writer->metadata, (const char *)values, count * sizeof *values);
}

void as_gguf_put_tensor(struct as_gguf_writer *writer, const char *name, enum assay_dtype dtype,
                        size_t columns, size_t rows)
{
    const struct as_gguf_type *type = as_gguf_type_of(dtype);
    size_t bytes;
    if (type == NULL || columns % type->block != 0 ||
        as_mul_overflows(columns / type->block * type->bytes, rows == 0 ? 1 : rows, &bytes) ||
        as_grow(NULL, &writer->tensor_bytes, &writer->tensor_capacity, writer->tensor_count,
                sizeof *writer->tensor_bytes, "tensor sizes") != 0) {
        writer->failed = true;
        return;
    }
    writer->tensor_bytes[writer->tensor_count++] = bytes;
    add_bytes(&writer->entries, name, strlen(name));
    add_u32(&writer->entries, rows == 0 ? 1 : 2);
    add_u64(&writer->entries, columns);
    if (rows != 0)
        add_u64(&writer->entries, rows);
    add_u32(&writer->entries, type->id);
    add_u64(&writer->entries, writer->offset);
    writer->offset += as_align_up(bytes, writer->alignment);
}

/* ---- output ------------------------------------------------------------------------------- */

static int emit(struct as_gguf_writer *writer, const void *data, size_t bytes,
                struct as_error *error)
{
    const char *at = data;
    if (writer->fd < 0) {
        as_text_add(&writer->image, at, bytes);
        return writer->image.failed ? as_fail_memory(error, bytes, "a GGUF image") : 0;
    }
    while (bytes > 0) {
        ssize_t put = write(writer->fd, at, bytes);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return as_fail_errno(error, AS_ERR_IO, "cannot write %s", writer->partial);
        at += put;
        bytes -= (size_t)put;
    }
    return 0;
}

static int emit_padding(struct as_gguf_writer *writer, size_t length, struct as_error *error)
{
    static const char zeros[64];
    size_t missing = as_align_up(length, writer->alignment) - length;
    int code = 0;
    for (; missing > 0 && code == 0; missing -= missing < sizeof zeros ? missing : sizeof zeros)
        code = emit(writer, zeros, missing < sizeof zeros ? missing : sizeof zeros, error);
    return code;
}

/* Creates the partial file with its whole size reserved, so that a full disk is found now and is
 * an error, not a signal. Where the file system cannot reserve, writing finds out. */
static int open_partial(struct as_gguf_writer *writer, const char *path, size_t size,
                        struct as_error *error)
{
    int length =
        snprintf(writer->partial, sizeof writer->partial, "%s.%ld.partial", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof writer->partial)
        return as_fail(error, AS_ERR_IO, "the path %.80s... is too long", path);
    memcpy(writer->path, path, strlen(path) + 1);
    writer->fd = open(writer->partial, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (writer->fd < 0)
        return as_fail_errno(error, AS_ERR_IO, "cannot create %s", writer->partial);
    int failure = posix_fallocate(writer->fd, 0, (off_t)size);
    if (failure == ENOSPC || failure == EFBIG || failure == EDQUOT) {
        errno = failure;
        return as_fail_errno(error, AS_ERR_IO, "cannot reserve %zu bytes for %s", size, path);
    }
    return 0;
}

int as_gguf_begin(struct as_gguf_writer *writer, const char *path, struct as_error *error)
{
    struct as_text head = {0};
    if (writer->failed || writer->metadata.failed || writer->entries.failed)
        return as_fail(error, AS_ERR_INTERNAL,
                       "cannot write a GGUF header: a tensor's rows do not fill whole blocks, or "
                       "memory ran out");
    as_text_add(&head, "GGUF", 4);
    add_u32(&head, 3);
    add_u64(&head, writer->tensor_count);
    add_u64(&head, writer->metadata_count);
    as_text_add(&head, writer->metadata.data, writer->metadata.length);
    as_text_add(&head, writer->entries.data, writer->entries.length);
    int code = 0;
    if (head.failed)
        code = as_fail_memory(error, writer->metadata.length, "a GGUF header");
    else if (path != NULL)
        code = open_partial(writer, path,
                            as_align_up(head.length, writer->alignment) + writer->offset, error);
    if (code == 0)
        code = emit(writer, head.data, head.length, error);
    if (code == 0)
        code = emit_padding(writer, head.length, error);
    as_text_free(&head);
    return code;
}

int as_gguf_append(struct as_gguf_writer *writer, const void *data, size_t bytes,
                   struct as_error *error)
{
    if (writer->tensor >= writer->tensor_count ||
        bytes > writer->tensor_bytes[writer->tensor] - writer->done)
        return as_fail(error, AS_ERR_INTERNAL,
                       "cannot write a GGUF file: %zu bytes are too many for tensor %zu", bytes,
                       writer->tensor);
    int code = emit(writer, data, bytes, error);
    if (code != 0)
        return code;
    writer->done += bytes;
    if (writer->done < writer->tensor_bytes[writer->tensor])
        return 0;
    size_t length = writer->done;
    writer->tensor++;
    writer->done = 0;
    return emit_padding(writer, length, error);
}

static int check_complete(const struct as_gguf_writer *writer, struct as_error *error)
{
    if (writer->tensor == writer->tensor_count)
        return 0;
    return as_fail(error, AS_ERR_INTERNAL,
                   "cannot finish a GGUF file: tensor %zu of %llu has %zu of %zu bytes",
                   writer->tensor, (unsigned long long)writer->tensor_count, writer->done,
                   writer->tensor_bytes[writer->tensor]);
}

int as_gguf_finish(struct as_gguf_writer *writer, struct as_error *error)
{
    int code = check_complete(writer, error);
    if (code != 0)
        return code;
    int failed = fsync(writer->fd) != 0;
    int saved = errno;
    if (close(writer->fd) != 0 && !failed) {
        failed = 1;
        saved = errno;
    }
    writer->fd = -1;
    if (!failed && rename(writer->partial, writer->path) == 0)
        return 0;
    if (failed)
        errno = saved;
    code = as_fail_errno(error, AS_ERR_IO, "cannot write %s", writer->path);
    unlink(writer->partial);
    return code;
}

int as_gguf_finish_memory(struct as_gguf_writer *writer, void **image, size_t *size,
                          struct as_error *error)
{
    int code = check_complete(writer, error);
    if (code != 0)
        return code;
    *image = writer->image.data;
    *size = writer->image.length;
    writer->image = (struct as_text){0};
    return 0;
}
