/* A checked reader of safetensors files over bytes in memory.
 *
 * The format is Hugging Face's (github.com/huggingface/safetensors, README "Format" and the checks
 * of safetensors/src/tensor.rs): 8 bytes header size, a header of JSON, then the tensors' data
 * without gap or overlap. Every number is checked before it is used; memory grows with the entries
 * that are really there.
 */
#ifndef AS_SAFETENSORS_H
#define AS_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "as_error.h"
#include "kernel.h"
#include "model.h"

/* The format allows 100 MB; published headers have up to 10 MB (90,000 tensors of a mixture of
 * experts), those of the families that are served under 200 KB. */
#define AS_SAFETENSORS_HEADER_LIMIT ((size_t)16 << 20)
#define AS_SAFETENSORS_TENSOR_LIMIT 16384u
#define AS_SAFETENSORS_NAME_LIMIT 512u
#define AS_SAFETENSORS_DIMENSIONS 8u

struct as_safetensors_type {
    const char *name; /* "BF16" */
    uint32_t bits;
    enum assay_dtype dtype; /* ASSAY_NONE where assay has none */
};

struct as_safetensors_tensor {
    struct as_bytes name;
    const struct as_safetensors_type *type;
    uint32_t dimensions; /* 0: a scalar */
    uint64_t dimension[AS_SAFETENSORS_DIMENSIONS];
    uint64_t begin, end; /* in the data section */
    const uint8_t *data; /* not aligned; of an empty tensor not to be read */
    size_t bytes;
    size_t at; /* offset of its entry in the file */
};

struct as_safetensors_entry {
    struct as_bytes key, value;
};

struct as_safetensors {
    const uint8_t *base;
    size_t size, data_offset;
    struct as_safetensors_tensor *tensors; /* in the header's order */
    size_t tensor_count, tensor_capacity;
    struct as_safetensors_entry *entries; /* __metadata__ */
    size_t entry_count, entry_capacity;
    char *decoded; /* strings that had escapes */
};

/* Reads the header of the `size` bytes at `base`, which must outlive the result. On failure *file
 * is empty; messages name entry and byte, not the file (the caller does).
 *
 * Accepted as the format says: any order of keys, an empty or absent __metadata__, white space at
 * the header's end, empty tensors, scalars. Refused: what is not JSON, names that occur twice,
 * unknown types, data that does not fill its shape, data outside the file, gaps, overlaps, and
 * bytes after the last tensor. */
int as_safetensors_parse(struct as_safetensors *file, const void *base, size_t size,
                         struct as_error *error);
void as_safetensors_free(struct as_safetensors *file);

#endif
