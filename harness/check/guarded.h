/* Memory of one operand with guards around it, poisoned so that what a kernel must not read is
 * NaN and what it must not write is known to the byte. */
#ifndef AS_GUARDED_H
#define AS_GUARDED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "as_error.h"
#include "kernel.h"

/* A matrix of `rows` rows of `row_bytes` bytes, `pitch` bytes apart, in a block with a guard on
 * either side. `at` is where a kernel finds it: host memory on the CPU, else the device's. */
struct as_guarded {
    const char *name; /* for messages; not owned */
    uint8_t *block;   /* host image of the whole block */
    size_t block_bytes;
    size_t start; /* of row 0 in the block */
    size_t salt;  /* added to positions, so that blocks do not hold the same poison */
    size_t rows, row_bytes, pitch;
    const void *stored; /* dense rows that the block holds, or NULL while it holds poison */
    bool written;       /* a kernel may write the rows (never what lies around them) */
    uint8_t *remote;    /* device memory of block_bytes; the block itself on the CPU */
    struct assay_device *device;
    size_t mapped_bytes; /* of a fenced block's mapping, its fence included; else 0 */
};

struct as_guarded_shape {
    size_t rows, row_bytes;
    size_t pitch; /* >= row_bytes */
    size_t shift; /* bytes past a 64-byte boundary where row 0 begins */
    bool fenced;  /* CPU: memory ends right behind the last row; reading on is a crash */
};

/* Allocates and fills with poison, then with `stored` where it is not NULL (borrowed, read again
 * by every fill). */
int as_guarded_open(struct as_guarded *guarded, const char *name, struct assay_device *device,
                    const struct as_guarded_shape *shape, const void *stored,
                    struct as_error *error);
void as_guarded_close(struct as_guarded *guarded);

/* Restores the state after opening. Uploads where the device is not the CPU. */
int as_guarded_fill(struct as_guarded *guarded, struct as_error *error);

/* Brings the device's bytes into the host image. */
int as_guarded_fetch(struct as_guarded *guarded, struct as_error *error);

/* Row 0 as a kernel sees it, and row `row` in the host image. */
void *as_guarded_at(const struct as_guarded *guarded);
const uint8_t *as_guarded_row(const struct as_guarded *guarded, size_t row);

/* Whether all bytes that a kernel must leave alone are as filled. If not, `words` says which
 * were not: "wrote 4 bytes past the end of y (at +0)". */
bool as_guarded_intact(const struct as_guarded *guarded, char *words, size_t size);

/* Whether `bytes` bytes at offset `offset` of row `row` still hold poison: nobody wrote them. */
bool as_guarded_untouched(const struct as_guarded *guarded, size_t row, size_t offset,
                          size_t bytes);

/* `bytes` bytes of poison as it stands at position `position` of a block; odd and even positions
 * differ. Any aligned 2 or 4 of them are a NaN in f16, bf16 and f32, and so is the d of a quantised
 * block; in bf16 and f32 a signalling one, which moves unchanged and which arithmetic changes: what
 * was never written can be told from what was computed from it. As an int32 it is huge. */
void as_poison(void *to, size_t bytes, size_t position);

#endif
