#define _GNU_SOURCE
#include "check/guarded.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "as_hash.h"
#include "as_memory.h"

/* The pattern repeats after so many bytes; a guard is at least as long. */
#define PERIOD 4096

/* No guard needs to be longer. */
#define LONGEST_GUARD 65536

/* 0x7f81 .. 0x7fbf in every half-word, chosen by place, so that poison copied to another place is
 * seen as a write. */
static uint8_t half_byte(size_t position)
{
    if (position % 2 == 1)
        return 0x7f;
    return (uint8_t)(0x81 + as_mix64(position % PERIOD / 2) % 63);
}

static uint8_t page[PERIOD];

static void fill_page(void)
{
    for (size_t i = 0; i < PERIOD; i++)
        page[i] = half_byte(i);
}

static const uint8_t *pattern(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, fill_page);
    return page;
}

void as_poison(void *to, size_t bytes, size_t position)
{
    const uint8_t *from_page = pattern();
    for (size_t done = 0; done < bytes;) {
        size_t from = (position + done) % PERIOD;
        size_t part = PERIOD - from < bytes - done ? PERIOD - from : bytes - done;
        memcpy((uint8_t *)to + done, from_page + from, part);
        done += part;
    }
}

/* Maps whole pages and takes access to the last one away. The last row ends as near to it as the
 * alignment of 8 that even mapped files promise allows. */
static int open_fenced(struct as_guarded *guarded, struct as_error *error)
{
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    size_t body = guarded->rows == 0
                      ? 0
                      : guarded->rows * guarded->pitch - (guarded->pitch - guarded->row_bytes);
    guarded->block_bytes = as_align_up(body + PERIOD, page_bytes);
    guarded->mapped_bytes = guarded->block_bytes + page_bytes;
    guarded->start = (guarded->block_bytes - body) / 8 * 8;
    uint8_t *pages = mmap(NULL, guarded->mapped_bytes, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return as_fail_memory(error, guarded->mapped_bytes, "a fenced operand");
    guarded->block = pages;
    if (mprotect(pages + guarded->block_bytes, page_bytes, PROT_NONE) != 0)
        return as_fail_errno(error, AS_ERR_IO, "cannot fence an operand's memory");
    return 0;
}

static int open_plain(struct as_guarded *guarded, size_t shift, struct as_error *error)
{
    /* A write of one row too many must still land in the guard. */
    size_t guard = as_align_up(guarded->pitch + 64 > PERIOD ? guarded->pitch + 64 : PERIOD, 64);
    guard = guard > LONGEST_GUARD ? LONGEST_GUARD : guard;
    guarded->start = guard + shift;
    guarded->block_bytes = as_align_up(guarded->start + guarded->rows * guarded->pitch + guard, 64);
    guarded->block = as_calloc_aligned(error, guarded->block_bytes, 1, "a checked operand");
    return guarded->block == NULL ? AS_ERR_MEMORY : 0;
}

int as_guarded_open(struct as_guarded *guarded, const char *name, struct assay_device *device,
                    const struct as_guarded_shape *shape, const void *stored,
                    struct as_error *error)
{
    bool cpu = device->backend == ASSAY_CPU;
    *guarded = (struct as_guarded){.name = name,
                                   .rows = shape->rows,
                                   .row_bytes = shape->row_bytes,
                                   .pitch = shape->pitch,
                                   .stored = stored,
                                   .device = device};
    guarded->salt = as_hash64(name, strlen(name), 0) % (PERIOD / 2) * 2;
    int code = shape->fenced && cpu ? open_fenced(guarded, error)
                                    : open_plain(guarded, shape->shift, error);
    guarded->remote = guarded->block;
    if (code == 0 && !cpu &&
        (guarded->remote = device->alloc(device, guarded->block_bytes, error)) == NULL)
        code = AS_ERR_MEMORY;
    if (code == 0)
        code = as_guarded_fill(guarded, error);
    if (code != 0)
        as_guarded_close(guarded);
    return code;
}

void as_guarded_close(struct as_guarded *guarded)
{
    if (guarded == NULL)
        return;
    if (guarded->remote != NULL && guarded->remote != guarded->block)
        guarded->device->free(guarded->device, guarded->remote);
    if (guarded->mapped_bytes == 0)
        free(guarded->block);
    else if (guarded->block != NULL)
        munmap(guarded->block, guarded->mapped_bytes);
    *guarded = (struct as_guarded){0};
}

int as_guarded_fill(struct as_guarded *guarded, struct as_error *error)
{
    as_poison(guarded->block, guarded->block_bytes, guarded->salt);
    for (size_t r = 0; guarded->stored != NULL && guarded->row_bytes > 0 && r < guarded->rows; r++)
        memcpy(guarded->block + guarded->start + r * guarded->pitch,
               (const uint8_t *)guarded->stored + r * guarded->row_bytes, guarded->row_bytes);
    if (guarded->remote == guarded->block)
        return 0;
    return guarded->device->upload(guarded->device, guarded->remote, guarded->block,
                                   guarded->block_bytes, error);
}

int as_guarded_fetch(struct as_guarded *guarded, struct as_error *error)
{
    if (guarded->remote == guarded->block)
        return 0;
    return guarded->device->download(guarded->device, guarded->block, guarded->remote,
                                     guarded->block_bytes, error);
}

void *as_guarded_at(const struct as_guarded *guarded)
{
    return guarded->remote + guarded->start;
}

const uint8_t *as_guarded_row(const struct as_guarded *guarded, size_t row)
{
    return guarded->block + guarded->start + row * guarded->pitch;
}

/* Bytes [from, to) of the block that differ from poison: their count, the first one's place. */
static size_t disturbed(const struct as_guarded *guarded, size_t from, size_t to, size_t *first)
{
    const uint8_t *kept = pattern();
    size_t count = 0;
    for (size_t at = from; at < to;) {
        size_t in_page = (at + guarded->salt) % PERIOD;
        size_t part = PERIOD - in_page < to - at ? PERIOD - in_page : to - at;
        if (memcmp(guarded->block + at, kept + in_page, part) != 0)
            for (size_t i = 0; i < part; i++)
                if (guarded->block[at + i] != kept[in_page + i] && count++ == 0)
                    *first = at + i;
        at += part;
    }
    return count;
}

static bool rows_intact(const struct as_guarded *guarded, char *words, size_t size)
{
    for (size_t r = 0; r < guarded->rows; r++) {
        const uint8_t *row = as_guarded_row(guarded, r);
        const uint8_t *kept = (const uint8_t *)guarded->stored + r * guarded->row_bytes;
        if (guarded->row_bytes == 0 || memcmp(row, kept, guarded->row_bytes) == 0)
            continue;
        size_t i = 0;
        while (row[i] == kept[i])
            i++;
        snprintf(words, size, "changed its input %s (row %zu, byte %zu)", guarded->name, r, i);
        return false;
    }
    return true;
}

bool as_guarded_intact(const struct as_guarded *guarded, char *words, size_t size)
{
    size_t end = guarded->start + guarded->rows * guarded->pitch;
    if (guarded->rows > 0)
        end -= guarded->pitch - guarded->row_bytes;
    size_t first = 0, count = disturbed(guarded, 0, guarded->start, &first);
    if (count > 0) {
        snprintf(words, size, "wrote %zu bytes before the start of %s (the first %zu bytes ahead)",
                 count, guarded->name, guarded->start - first);
        return false;
    }
    count = disturbed(guarded, end, guarded->block_bytes, &first);
    if (count > 0) {
        snprintf(words, size, "wrote %zu bytes past the end of %s (the first at +%zu bytes)", count,
                 guarded->name, first - end);
        return false;
    }
    for (size_t r = 0; guarded->pitch > guarded->row_bytes && r + 1 < guarded->rows; r++) {
        size_t gap = guarded->start + r * guarded->pitch + guarded->row_bytes;
        count = disturbed(guarded, gap, gap + guarded->pitch - guarded->row_bytes, &first);
        if (count == 0)
            continue;
        snprintf(words, size, "wrote %zu bytes between rows %zu and %zu of %s", count, r, r + 1,
                 guarded->name);
        return false;
    }
    if (guarded->written || guarded->stored == NULL)
        return true;
    return rows_intact(guarded, words, size);
}

bool as_guarded_untouched(const struct as_guarded *guarded, size_t row, size_t offset, size_t bytes)
{
    const uint8_t *at = as_guarded_row(guarded, row) + offset;
    size_t position = (size_t)(at - guarded->block) + guarded->salt;
    const uint8_t *kept = pattern();
    for (size_t i = 0; i < bytes; i++)
        if (at[i] != kept[(position + i) % PERIOD])
            return false;
    return true;
}
