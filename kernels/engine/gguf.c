#include "gguf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "as_memory.h"

#define DAMAGED "; the file is damaged or incomplete: fetch or convert it again"

/* Where the reader stands. `size` is what may be read: the file, or the header's limit. */
struct reader {
    const uint8_t *base;
    size_t size, file_size, at;
    const char *section;  /* "metadata entry", "tensor entry" */
    size_t index, start;  /* number of the entry, and its first byte */
    struct as_bytes name; /* of the entry, once it is known */
    struct as_error *error;
};

/* Fails with "<section> <index> (<name>) at byte <start>: <message>". */
static int refuse(struct reader *r, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int refuse(struct reader *r, int code, const char *format, ...)
{
    char message[512], quoted[80], place[160];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (r->name.bytes != NULL)
        snprintf(place, sizeof place, "%s %zu (%s) at byte %zu", r->section, r->index,
                 as_gguf_quote(quoted, r->name), r->start);
    else
        snprintf(place, sizeof place, "%s %zu at byte %zu", r->section, r->index, r->start);
    return as_fail(r->error, code, "%s: %s", place, message);
}

/* 0 when `bytes` more can be read. */
static int need(struct reader *r, uint64_t bytes, const char *what)
{
    if (bytes <= r->size - r->at)
        return 0;
    if (r->size < r->file_size)
        return refuse(
            r, AS_ERR_DATA,
            "%s of %llu bytes at byte %zu passes the limit of %zu bytes for a header" DAMAGED, what,
            (unsigned long long)bytes, r->at, r->size);
    return refuse(r, AS_ERR_DATA,
                  "%s needs %llu bytes at byte %zu, where the file has %zu left" DAMAGED, what,
                  (unsigned long long)bytes, r->at, r->size - r->at);
}

static uint32_t take_u32(struct reader *r)
{
    uint32_t value;
    memcpy(&value, r->base + r->at, sizeof value);
    r->at += sizeof value;
    return value;
}

static uint64_t take_u64(struct reader *r)
{
    uint64_t value;
    memcpy(&value, r->base + r->at, sizeof value);
    r->at += sizeof value;
    return value;
}

static int take_string(struct reader *r, const char *what, struct as_bytes *text)
{
    int code = need(r, 8, what);
    if (code != 0)
        return code;
    uint64_t length = take_u64(r);
    if ((code = need(r, length, what)) != 0)
        return code;
    *text = (struct as_bytes){(const char *)r->base + r->at, (size_t)length};
    r->at += (size_t)length;
    return 0;
}

/* ---- metadata ----------------------------------------------------------------------------- */

static int skip_strings(struct reader *r, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        struct as_bytes text;
        int code = take_string(r, "a string of the array", &text);
        if (code != 0)
            return code;
    }
    return 0;
}

/* Passes over `count` elements of type `element`, checking that they are all there. */
static int skip_elements(struct reader *r, uint32_t element, uint64_t count, uint32_t depth)
{
    size_t size = as_gguf_value_size(element);
    if (element == AS_GGUF_STRING)
        return skip_strings(r, count);
    if (element == AS_GGUF_ARRAY) {
        if (depth >= AS_GGUF_DEPTH_LIMIT)
            return refuse(r, AS_ERR_UNSUPPORTED, "arrays are nested deeper than %u" DAMAGED,
                          AS_GGUF_DEPTH_LIMIT);
        for (uint64_t i = 0; i < count; i++) {
            int code = need(r, 12, "an inner array");
            if (code != 0)
                return code;
            uint32_t inner = take_u32(r);
            uint64_t inner_count = take_u64(r);
            if ((code = skip_elements(r, inner, inner_count, depth + 1)) != 0)
                return code;
        }
        return 0;
    }
    if (size == 0)
        return refuse(r, AS_ERR_DATA, "an array has elements of unknown type %u" DAMAGED, element);
    if (count > (r->size - r->at) / size)
        return need(r, count > UINT64_MAX / size ? UINT64_MAX : count * size, "the array");
    r->at += (size_t)count * size;
    return 0;
}

static int read_value(struct reader *r, struct as_gguf_entry *entry)
{
    if (entry->type == AS_GGUF_ARRAY) {
        int code = need(r, 12, "the array's type and count");
        if (code != 0)
            return code;
        entry->element = take_u32(r);
        entry->count = take_u64(r);
        entry->data = r->base + r->at;
        return skip_elements(r, entry->element, entry->count, 1);
    }
    entry->data = r->base + r->at;
    if (entry->type == AS_GGUF_STRING) {
        struct as_bytes text;
        return take_string(r, "the string", &text);
    }
    size_t size = as_gguf_value_size(entry->type);
    if (size == 0)
        return refuse(r, AS_ERR_DATA, "the value has unknown type %u" DAMAGED, entry->type);
    int code = need(r, size, "the value");
    if (code != 0)
        return code;
    r->at += size;
    if (entry->type == AS_GGUF_BOOL && *entry->data > 1)
        return refuse(r, AS_ERR_DATA, "the bool is %u, must be 0 or 1" DAMAGED, *entry->data);
    return 0;
}

static int read_entry(struct reader *r, struct as_gguf_entry *entry)
{
    struct as_bytes key;
    entry->at = r->at;
    int code = take_string(r, "the key", &key);
    if (code != 0)
        return code;
    if (key.length == 0 || key.length > AS_GGUF_KEY_LIMIT)
        return refuse(r, AS_ERR_DATA, "the key has %zu bytes, must have 1 to %u" DAMAGED,
                      key.length, AS_GGUF_KEY_LIMIT);
    r->name = key;
    entry->key = key;
    if ((code = need(r, 4, "the value's type")) != 0)
        return code;
    entry->type = take_u32(r);
    return read_value(r, entry);
}

static int compare_bytes(struct as_bytes a, struct as_bytes b)
{
    size_t shorter = a.length < b.length ? a.length : b.length;
    int order = memcmp(a.bytes, b.bytes, shorter);
    return order != 0 ? order : (a.length > b.length) - (a.length < b.length);
}

static int compare_entries(const void *a, const void *b)
{
    const struct as_gguf_entry *const *left = a, *const *right = b;
    int order = compare_bytes((*left)->key, (*right)->key);
    return order != 0 ? order : (*left > *right) - (*left < *right);
}

/* Sorts the entries by key, which also brings equal keys together. */
static int index_entries(struct as_gguf *gguf, struct reader *r)
{
    gguf->by_key = as_calloc(r->error, gguf->entry_count, sizeof *gguf->by_key, "metadata");
    if (gguf->by_key == NULL)
        return AS_ERR_MEMORY;
    for (size_t i = 0; i < gguf->entry_count; i++)
        gguf->by_key[i] = &gguf->entries[i];
    qsort(gguf->by_key, gguf->entry_count, sizeof *gguf->by_key, compare_entries);
    for (size_t i = 1; i < gguf->entry_count; i++) {
        const struct as_gguf_entry *first = gguf->by_key[i - 1], *second = gguf->by_key[i];
        if (compare_bytes(first->key, second->key) != 0)
            continue;
        r->index = (size_t)(second - gguf->entries);
        r->start = second->at;
        r->name = second->key;
        return refuse(r, AS_ERR_DATA, "the key was given before, at byte %zu" DAMAGED, first->at);
    }
    return 0;
}

static int read_metadata(struct as_gguf *gguf, struct reader *r, uint64_t count)
{
    gguf->entries = as_calloc(r->error, (size_t)count, sizeof *gguf->entries, "metadata");
    if (gguf->entries == NULL)
        return AS_ERR_MEMORY;
    r->section = "metadata entry";
    for (r->index = 0; r->index < count; r->index++) {
        r->start = r->at;
        r->name = (struct as_bytes){0};
        int code = read_entry(r, &gguf->entries[r->index]);
        if (code != 0)
            return code;
    }
    gguf->entry_count = (size_t)count;
    return index_entries(gguf, r);
}

static int read_alignment(struct as_gguf *gguf, struct reader *r)
{
    const struct as_gguf_entry *entry = as_gguf_find(gguf, "general.alignment");
    gguf->alignment = 32;
    if (entry == NULL)
        return 0;
    r->index = (size_t)(entry - gguf->entries);
    r->start = entry->at;
    r->name = entry->key;
    uint64_t value;
    if (entry->type != AS_GGUF_U32 || !as_gguf_unsigned(entry, &value))
        return refuse(r, AS_ERR_DATA, "the alignment is of type %s, must be u32" DAMAGED,
                      as_gguf_value_name(entry->type));
    if (value < 8 || value > AS_GGUF_ALIGNMENT_LIMIT || (value & (value - 1)) != 0)
        return refuse(r, AS_ERR_DATA,
                      "the alignment is %llu, must be a power of two from 8 to %u" DAMAGED,
                      (unsigned long long)value, AS_GGUF_ALIGNMENT_LIMIT);
    gguf->alignment = (size_t)value;
    return 0;
}

/* ---- tensors ------------------------------------------------------------------------------ */

/* Sets columns, rows and bytes from the dimensions, each step checked. */
static int measure_tensor(struct reader *r, struct as_gguf_tensor *tensor)
{
    const struct as_gguf_type *type = tensor->type;
    size_t rows = 1, row_bytes;
    bool overflow = tensor->dimension[0] > SIZE_MAX;
    for (uint32_t i = 0; i < tensor->dimensions; i++) {
        if (tensor->dimension[i] == 0)
            return refuse(r, AS_ERR_DATA, "dimension %u of %u is 0" DAMAGED, i, tensor->dimensions);
        if (i > 0)
            overflow = overflow || as_mul_overflows(rows, (size_t)tensor->dimension[i], &rows);
    }
    tensor->columns = (size_t)tensor->dimension[0];
    tensor->rows = rows;
    if (!overflow && tensor->columns % type->block != 0)
        return refuse(r, AS_ERR_DATA,
                      "its rows have %zu elements, which is not a multiple of the block of %u "
                      "elements of type %s" DAMAGED,
                      tensor->columns, type->block, type->name);
    if (overflow || as_mul_overflows(tensor->columns / type->block, type->bytes, &row_bytes) ||
        as_mul_overflows(row_bytes, rows, &tensor->bytes))
        return refuse(r, AS_ERR_DATA, "its dimensions multiply to more than 2^64 bytes" DAMAGED);
    return 0;
}

static int read_shape(struct reader *r, struct as_gguf_tensor *tensor)
{
    int code = need(r, 4, "the number of dimensions");
    if (code != 0)
        return code;
    tensor->dimensions = take_u32(r);
    if (tensor->dimensions < 1 || tensor->dimensions > 4)
        return refuse(r, AS_ERR_DATA, "it has %u dimensions, must have 1 to 4" DAMAGED,
                      tensor->dimensions);
    if ((code = need(r, tensor->dimensions * 8u + 12u, "the dimensions, type and offset")) != 0)
        return code;
    for (uint32_t i = 0; i < tensor->dimensions; i++)
        tensor->dimension[i] = take_u64(r);
    uint32_t id = take_u32(r);
    tensor->offset = take_u64(r);
    tensor->type = as_gguf_type(id);
    if (tensor->type == NULL)
        return refuse(r, AS_ERR_UNSUPPORTED,
                      "it is of type %u, which is unknown or was withdrawn from GGUF; convert the "
                      "model again with a current tool",
                      id);
    return measure_tensor(r, tensor);
}

static int read_tensor(struct reader *r, struct as_gguf_tensor *tensor)
{
    tensor->at = r->at;
    int code = take_string(r, "the name", &tensor->name);
    if (code != 0)
        return code;
    if (tensor->name.length == 0 || tensor->name.length > AS_GGUF_NAME_LIMIT)
        return refuse(r, AS_ERR_DATA, "the name has %zu bytes, must have 1 to %u" DAMAGED,
                      tensor->name.length, AS_GGUF_NAME_LIMIT);
    r->name = tensor->name;
    if (memchr(tensor->name.bytes, '\0', tensor->name.length) != NULL)
        return refuse(r, AS_ERR_DATA, "the name contains a NUL byte" DAMAGED);
    return read_shape(r, tensor);
}

/* Finds the data of one tensor; sizes are those of the whole file from here on. */
static int place_tensor(struct as_gguf *gguf, struct reader *r, struct as_gguf_tensor *tensor)
{
    if (tensor->offset % gguf->alignment != 0)
        return refuse(r, AS_ERR_DATA,
                      "its data offset %llu is not a multiple of the alignment %zu" DAMAGED,
                      (unsigned long long)tensor->offset, gguf->alignment);
    size_t room = gguf->size > gguf->data_offset ? gguf->size - gguf->data_offset : 0;
    if (tensor->offset > room || tensor->bytes > room - (size_t)tensor->offset)
        return refuse(r, AS_ERR_DATA,
                      "its %zu rows of %zu elements in %s blocks of %u need %zu bytes at offset "
                      "%llu of the data section, which has %zu (from byte %zu to the end of the "
                      "file)" DAMAGED,
                      tensor->rows, tensor->columns, tensor->type->name, tensor->type->block,
                      tensor->bytes, (unsigned long long)tensor->offset, room, gguf->data_offset);
    tensor->data = gguf->base + gguf->data_offset + (size_t)tensor->offset;
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    const struct as_gguf_tensor *const *left = a, *const *right = b;
    int order = compare_bytes((*left)->name, (*right)->name);
    return order != 0 ? order : (*left > *right) - (*left < *right);
}

static int compare_offsets(const void *a, const void *b)
{
    const struct as_gguf_tensor *const *left = a, *const *right = b;
    if ((*left)->offset != (*right)->offset)
        return (*left)->offset < (*right)->offset ? -1 : 1;
    return (*left > *right) - (*left < *right);
}

static void stand_at_tensor(struct reader *r, const struct as_gguf *gguf,
                            const struct as_gguf_tensor *tensor)
{
    r->section = "tensor entry";
    r->index = (size_t)(tensor - gguf->tensors);
    r->start = tensor->at;
    r->name = tensor->name;
}

/* No name twice, no byte of data in two tensors. */
static int check_distinct(struct as_gguf *gguf, struct reader *r)
{
    size_t count = gguf->tensor_count;
    char quoted[80];
    int code = 0;
    struct as_gguf_tensor **sorted = as_calloc(r->error, count, sizeof *sorted, "tensor names");
    if (sorted == NULL)
        return AS_ERR_MEMORY;
    for (size_t i = 0; i < count; i++)
        sorted[i] = &gguf->tensors[i];
    qsort(sorted, count, sizeof *sorted, compare_names);
    for (size_t i = 1; i < count && code == 0; i++) {
        stand_at_tensor(r, gguf, sorted[i]);
        if (compare_bytes(sorted[i - 1]->name, sorted[i]->name) == 0)
            code = refuse(r, AS_ERR_DATA, "the name was given before, at byte %zu" DAMAGED,
                          sorted[i - 1]->at);
    }
    qsort(sorted, count, sizeof *sorted, compare_offsets);
    for (size_t i = 1; i < count && code == 0; i++) {
        stand_at_tensor(r, gguf, sorted[i]);
        if (sorted[i - 1]->offset + sorted[i - 1]->bytes > sorted[i]->offset)
            code = refuse(
                r, AS_ERR_DATA,
                "its data at offset %llu overlaps that of %s (offset %llu, %zu bytes)" DAMAGED,
                (unsigned long long)sorted[i]->offset, as_gguf_quote(quoted, sorted[i - 1]->name),
                (unsigned long long)sorted[i - 1]->offset, sorted[i - 1]->bytes);
    }
    free(sorted);
    return code;
}

static int read_tensors(struct as_gguf *gguf, struct reader *r, uint64_t count)
{
    gguf->tensors = as_calloc(r->error, (size_t)count, sizeof *gguf->tensors, "tensor entries");
    if (gguf->tensors == NULL)
        return AS_ERR_MEMORY;
    r->section = "tensor entry";
    for (r->index = 0; r->index < count; r->index++) {
        r->start = r->at;
        r->name = (struct as_bytes){0};
        int code = read_tensor(r, &gguf->tensors[r->index]);
        if (code != 0)
            return code;
    }
    gguf->tensor_count = (size_t)count;
    gguf->header_size = r->at;
    gguf->data_offset = as_align_up(r->at, gguf->alignment);
    for (size_t i = 0; i < count; i++) {
        stand_at_tensor(r, gguf, &gguf->tensors[i]);
        int code = place_tensor(gguf, r, &gguf->tensors[i]);
        if (code != 0)
            return code;
    }
    return check_distinct(gguf, r);
}

/* ---- header ------------------------------------------------------------------------------- */

/* What a file that is no GGUF seems to be, for the message. */
static const char *guess_format(const uint8_t *base, size_t size)
{
    static const struct {
        const char *start, *meaning;
    } known[] = {
        {"FUGG", "a GGUF file of the other byte order; assay reads little-endian files only"},
        {"PK\003\004", "a ZIP archive (a PyTorch checkpoint or a wheel); unpack or convert it"},
        {"version https://git-lfs", "a Git LFS pointer, not the model itself; run git lfs pull"},
        {"<", "a web page or XML, not a model; check the address it was fetched from"},
        {"lmgg", "an old GGML file; convert it to GGUF"},
        {"tjgg", "an old GGJT file; convert it to GGUF"},
        {"{", "JSON, not a model"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        size_t length = strlen(known[i].start);
        if (size >= length && memcmp(base, known[i].start, length) == 0)
            return known[i].meaning;
    }
    if (size > 9 && base[8] == '{')
        return "a safetensors file; give the folder that it lies in, or a GGUF file";
    return "no model file that assay knows";
}

static int read_version(struct as_gguf *gguf, struct reader *r)
{
    gguf->version = take_u32(r);
    if (gguf->version == 2 || gguf->version == 3)
        return 0;
    if (gguf->version == 1)
        return as_fail(r->error, AS_ERR_UNSUPPORTED,
                       "header: GGUF version 1 is not read (2 and 3 are); convert the model again "
                       "with a current tool");
    if (gguf->version != 0 && (gguf->version & 0xffff) == 0)
        return as_fail(r->error, AS_ERR_UNSUPPORTED,
                       "header: the version at byte 4 is 0x%08x, so the file is big-endian; assay "
                       "reads little-endian files only: convert it (gguf-convert-endian)",
                       gguf->version);
    return as_fail(r->error, AS_ERR_UNSUPPORTED,
                   "header: GGUF version %u is not read (2 and 3 are)" DAMAGED, gguf->version);
}

/* A count must be backed by bytes: every entry takes at least `least` of those left. */
static int check_count(struct reader *r, uint64_t count, uint32_t limit, size_t least,
                       const char *what)
{
    if (count > limit)
        return as_fail(r->error, AS_ERR_DATA,
                       "header: it states %llu %s, more than the limit of %u" DAMAGED,
                       (unsigned long long)count, what, limit);
    if (count > (r->size - r->at) / least)
        return as_fail(
            r->error, AS_ERR_DATA,
            "header: it states %llu %s, which the %zu bytes after it cannot hold" DAMAGED,
            (unsigned long long)count, what, r->size - r->at);
    return 0;
}

static int read_all(struct as_gguf *gguf, struct reader *r)
{
    if (r->size < 4 || memcmp(r->base, "GGUF", 4) != 0)
        return as_fail(r->error, AS_ERR_DATA, "header: byte 0 does not start with GGUF; it is %s",
                       r->size == 0 ? "an empty file" : guess_format(r->base, r->size));
    if (r->size < 24)
        return as_fail(r->error, AS_ERR_DATA,
                       "header: the file has %zu of the header's 24 bytes" DAMAGED, r->size);
    r->at = 4;
    int code = read_version(gguf, r);
    if (code != 0)
        return code;
    uint64_t tensors = take_u64(r);
    uint64_t entries = take_u64(r);
    /* The least entry: a key of one byte and a u8. The least tensor: a name of one byte, one
     * dimension, type and offset. */
    if ((code = check_count(r, entries, AS_GGUF_ENTRY_LIMIT, 8 + 1 + 4 + 1, "metadata entries")) !=
            0 ||
        (code = check_count(r, tensors, AS_GGUF_TENSOR_LIMIT, 8 + 1 + 4 + 8 + 4 + 8, "tensors")) !=
            0 ||
        (code = read_metadata(gguf, r, entries)) != 0 || (code = read_alignment(gguf, r)) != 0)
        return code;
    return read_tensors(gguf, r, tensors);
}

int as_gguf_parse(struct as_gguf *gguf, const void *base, size_t size, struct as_error *error)
{
    *gguf = (struct as_gguf){.base = base, .size = size};
    struct as_error local = {0};
    struct reader reader = {
        .base = base,
        .size = size < AS_GGUF_HEADER_LIMIT ? size : AS_GGUF_HEADER_LIMIT,
        .file_size = size,
        .error = error != NULL ? error : &local,
    };
    int code = read_all(gguf, &reader);
    if (code != 0)
        as_gguf_free(gguf);
    return code;
}

void as_gguf_free(struct as_gguf *gguf)
{
    if (gguf == NULL)
        return;
    free(gguf->entries);
    free(gguf->tensors);
    free(gguf->by_key);
    *gguf = (struct as_gguf){0};
}

/* ---- look-up ------------------------------------------------------------------------------ */

const struct as_gguf_entry *as_gguf_find(const struct as_gguf *gguf, const char *key)
{
    struct as_bytes wanted = {key, strlen(key)};
    size_t low = 0, high = gguf->entry_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare_bytes(gguf->by_key[middle]->key, wanted);
        if (order == 0)
            return gguf->by_key[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}
