/* A checked reader of GGUF files (versions 2 and 3, little-endian) over bytes in memory.
 *
 * The format is ggml's docs/gguf.md. Every count, length, offset and dimension of the file is
 * checked before it is used; no allocation is larger than a fixed multiple of the bytes that are
 * really there. What the metadata means is model.c's business.
 */
#ifndef AS_GGUF_H
#define AS_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "as_error.h"
#include "model.h"

/* Limits: generous against every known file, and tight enough that no header makes the reader use
 * 64 MB or a second. A header is all before the tensors' data. */
#define AS_GGUF_HEADER_LIMIT ((size_t)24 << 20)
#define AS_GGUF_ENTRY_LIMIT 16384u
#define AS_GGUF_TENSOR_LIMIT 16384u
#define AS_GGUF_KEY_LIMIT 65535u /* gguf.md: a key is at most 2^16 - 1 bytes */
#define AS_GGUF_NAME_LIMIT 64u   /* gguf.md: a tensor's name is at most 64 bytes */
#define AS_GGUF_DEPTH_LIMIT 4u   /* arrays of arrays */
#define AS_GGUF_ALIGNMENT_LIMIT 65536u

enum as_gguf_value_type {
    AS_GGUF_U8,
    AS_GGUF_I8,
    AS_GGUF_U16,
    AS_GGUF_I16,
    AS_GGUF_U32,
    AS_GGUF_I32,
    AS_GGUF_F32,
    AS_GGUF_BOOL,
    AS_GGUF_STRING,
    AS_GGUF_ARRAY,
    AS_GGUF_U64,
    AS_GGUF_I64,
    AS_GGUF_F64,
    AS_GGUF_VALUE_TYPES
};

/* "u32", "string", ...; "?" beyond the table. */
const char *as_gguf_value_name(uint32_t type);

/* Bytes of a value of fixed size; 0 for strings, arrays and unknown types. */
size_t as_gguf_value_size(uint32_t type);

/* How a tensor's elements are stored. */
struct as_gguf_type {
    uint32_t id; /* enum ggml_type */
    const char *name;
    uint32_t block, bytes; /* elements and bytes of a block; a row is whole blocks */
    enum assay_dtype dtype;
    bool served; /* assay computes with it; the others are refused by name */
};

/* The type of that id, or NULL where ggml has none (withdrawn ids included). */
const struct as_gguf_type *as_gguf_type(uint32_t id);

/* The stored form of a dtype, or NULL where it has none. */
const struct as_gguf_type *as_gguf_type_of(enum assay_dtype dtype);

/* "F32, Q8_0, Q4_1": the served types, for messages. */
void as_gguf_served(char *text, size_t size);

struct as_gguf_entry {
    struct as_bytes key;
    uint32_t type;       /* enum as_gguf_value_type */
    uint32_t element;    /* of an array */
    uint64_t count;      /* of an array's elements */
    const uint8_t *data; /* the value, or an array's first element; not aligned */
    size_t at;           /* offset of the entry in the file */
};

struct as_gguf_tensor {
    struct as_bytes name;
    const struct as_gguf_type *type;
    uint32_t dimensions;
    uint64_t dimension[4];
    size_t columns, rows, bytes; /* rows = product of all dimensions but the first */
    uint64_t offset;             /* from the start of the data section */
    const uint8_t *data;
    size_t at; /* offset of the tensor's entry in the file */
};

struct as_gguf {
    const uint8_t *base;
    size_t size;
    uint32_t version;
    size_t alignment;              /* general.alignment, 32 where it is not given */
    size_t header_size;            /* end of the tensor entries */
    size_t data_offset;            /* header_size, aligned */
    struct as_gguf_entry *entries; /* in the file's order */
    size_t entry_count;
    struct as_gguf_tensor *tensors; /* in the file's order */
    size_t tensor_count;
    const struct as_gguf_entry **by_key; /* sorted */
};

/* Reads the header of the `size` bytes at `base`, which must outlive the result. On failure
 * *gguf is empty; messages name section, entry and byte, not the file (the caller does).
 *
 * Refused: version 1 and unknown ones, big-endian files, unknown value types and tensor types,
 * arrays nested deeper than AS_GGUF_DEPTH_LIMIT, keys or tensor names that occur twice, zero
 * dimensions, rows that do not fill whole blocks, data beyond the file, misplaced or overlapping.
 * Gaps between tensors and bytes after the last one are accepted. */
int as_gguf_parse(struct as_gguf *gguf, const void *base, size_t size, struct as_error *error);
void as_gguf_free(struct as_gguf *gguf);

const struct as_gguf_entry *as_gguf_find(const struct as_gguf *gguf, const char *key);

/* The value of a scalar entry as the widest of its kind; false where the type does not fit (a
 * negative number is no u64, a float is no integer). */
bool as_gguf_unsigned(const struct as_gguf_entry *entry, uint64_t *value);
bool as_gguf_signed(const struct as_gguf_entry *entry, int64_t *value);
bool as_gguf_float(const struct as_gguf_entry *entry, double *value);
bool as_gguf_bool(const struct as_gguf_entry *entry, bool *value);
bool as_gguf_string(const struct as_gguf_entry *entry, struct as_bytes *value);

/* Fills `strings` with the elements of an array of strings (entry->count of them). */
void as_gguf_strings(const struct as_gguf_entry *entry, struct as_bytes *strings);

/* A name from a file, fit for a message: printable ASCII, at most 80 bytes with the NUL. */
const char *as_gguf_quote(char out[80], struct as_bytes name);

#endif
