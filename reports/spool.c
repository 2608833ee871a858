/* The writing side of spools. */
#define _GNU_SOURCE /* MADV_POPULATE_WRITE */
#include "spool.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "as_hash.h"
#include "as_memory.h"
#include "as_text.h"
#include "intern.h"
#include "spool_format.h"

#define STEP ((size_t)4 << 20) /* the file grows by this, and at least this is mapped */

struct as_spool {
    uint8_t *at, *limit; /* next byte to fill and end of the window */
    uint8_t *window;
    size_t window_size;
    uint64_t window_start; /* place of the window in the file */
    uint64_t file_size;    /* reserved so far */
    int fd;
    char *path;
    struct as_intern strings;
    struct as_error error;
};

static uint64_t position(const struct as_spool *spool)
{
    return spool->window_start + (uint64_t)(spool->at - spool->window);
}

static int reserve_file(struct as_spool *spool, uint64_t size)
{
    if (size <= spool->file_size)
        return AS_OK;
    int rc;
    do {
        rc = posix_fallocate(spool->fd, (off_t)spool->file_size, (off_t)(size - spool->file_size));
    } while (rc == EINTR);
    if (rc != 0) {
        errno = rc;
        return as_fail_errno(&spool->error, AS_ERR_IO,
                             "growing %s to %llu bytes (free some space, or record elsewhere)",
                             spool->path, (unsigned long long)size);
    }
    /* Zeros written in large pieces make the page cache in large pieces; left to the puts, every
     * page would cost a fault that the file system has to answer (eight times the time on ext4). */
    static const uint8_t zeros[256 << 10];
    for (uint64_t at = spool->file_size; at < size;) {
        size_t length = size - at < sizeof zeros ? (size_t)(size - at) : sizeof zeros;
        ssize_t wrote = pwrite(spool->fd, zeros, length, (off_t)at);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return as_fail_errno(&spool->error, AS_ERR_IO, "filling %s up to %llu bytes",
                                 spool->path, (unsigned long long)size);
        at += (uint64_t)wrote;
    }
    spool->file_size = size;
    return AS_OK;
}

/* Moves the window so that `bytes` can be stored from the current position on. */
static int move_window(struct as_spool *spool, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint64_t at = spool->window == NULL ? 0 : position(spool);
    uint64_t start = at / page * page;
    size_t size = as_align_up((size_t)(at - start) + bytes, STEP);
    int rc = reserve_file(spool, start + size);
    if (rc != AS_OK)
        return rc;
    uint8_t *window = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, spool->fd, (off_t)start);
    if (window == MAP_FAILED)
        return as_fail_errno(&spool->error, AS_ERR_IO, "mapping %zu bytes of %s", size,
                             spool->path);
#ifdef MADV_POPULATE_WRITE
    /* The remaining faults are cheaper together; where a kernel refuses, the puts take them. */
    (void)madvise(window, size, MADV_POPULATE_WRITE);
#endif
    if (spool->window != NULL)
        munmap(spool->window, spool->window_size);
    spool->window = window;
    spool->window_size = size;
    spool->window_start = start;
    spool->at = window + (at - start);
    spool->limit = window + size;
    return AS_OK;
}

static int make_room(struct as_spool *spool, size_t bytes)
{
    if (spool->error.code != AS_OK)
        return spool->error.code;
    if ((size_t)(spool->limit - spool->at) >= bytes)
        return AS_OK;
    return move_window(spool, bytes);
}

int as_spool_reserve(struct as_spool *spool, size_t bytes)
{
    return make_room(spool, bytes);
}

/* Stores a frame whose payload is already in place behind `at` and whose padding is zero. */
static void commit(struct as_spool *spool, uint32_t kind, size_t length)
{
    struct as_frame *frame = (struct as_frame *)(void *)spool->at;
    uint64_t word = as_frame_word(kind, (uint32_t)length);
    frame->checksum = as_hash64(spool->at + sizeof *frame, length, word);
    __atomic_store_n(&frame->word, word, __ATOMIC_RELEASE);
    spool->at += sizeof *frame + as_align_up(length, 8);
}

int as_spool_put(struct as_spool *spool, enum as_table table, const void *row)
{
    const size_t length = as_tables[table].row_size;
    const size_t room = sizeof(struct as_frame) + as_align_up(length, 8);
    if (__builtin_expect((size_t)(spool->limit - spool->at) < room || spool->error.code, 0)) {
        int rc = make_room(spool, room);
        if (rc != AS_OK)
            return rc;
    }
    memcpy(spool->at + sizeof(struct as_frame), row, length);
    commit(spool, (uint32_t)table + 1, length);
    return AS_OK;
}

static int put_parts(struct as_spool *spool, uint32_t kind, const void *a, size_t a_size,
                     const void *b, size_t b_size, const void *c, size_t c_size)
{
    size_t length = a_size + b_size + c_size;
    int rc = make_room(spool, sizeof(struct as_frame) + as_align_up(length, 8));
    if (rc != AS_OK)
        return rc;
    uint8_t *to = spool->at + sizeof(struct as_frame);
    memcpy(to, a, a_size);
    memcpy(to + a_size, b, b_size);
    memcpy(to + a_size + b_size, c, c_size);
    commit(spool, kind, length);
    return AS_OK;
}

uint32_t as_spool_string(struct as_spool *spool, const char *text)
{
    if (text == NULL || spool->error.code != AS_OK)
        return AS_UNKNOWN_U32;
    bool added;
    size_t size = as_utf8_cut(text, strlen(text), AS_STRING_MAX);
    uint32_t id = as_intern(&spool->strings, text, size, &added, &spool->error);
    if (added && put_parts(spool, AS_FRAME_STRING, &id, sizeof id, text, size, "", 1) != AS_OK)
        return AS_UNKNOWN_U32;
    return id;
}

static int put_attribute(struct as_spool *spool, const char *key, char type, const void *value,
                         size_t size)
{
    struct as_frame_attribute head = {.type = (uint32_t)type,
                                      .key_size = (uint32_t)strlen(key) + 1};
    if (head.key_size == 1 || head.key_size > AS_STRING_MAX || size > AS_ATTRIBUTE_MAX)
        return as_fail(&spool->error, AS_ERR_INTERNAL,
                       "recording the attribute '%.64s' in %s: its key has %u bytes (at most %u) "
                       "and its value %zu (at most %u)",
                       key, spool->path, head.key_size - 1, AS_STRING_MAX, size, AS_ATTRIBUTE_MAX);
    return put_parts(spool, AS_FRAME_ATTRIBUTE, &head, sizeof head, key, head.key_size, value,
                     size);
}

int as_spool_attribute(struct as_spool *spool, const char *key, const char *value)
{
    return value == NULL ? spool->error.code
                         : put_attribute(spool, key, 's', value, strlen(value) + 1);
}

int as_spool_attribute_u64(struct as_spool *spool, const char *key, uint64_t value)
{
    return put_attribute(spool, key, 'u', &value, sizeof value);
}

int as_spool_attribute_f64(struct as_spool *spool, const char *key, double value)
{
    return put_attribute(spool, key, 'f', &value, sizeof value);
}

static void describe_tables(struct as_text *text)
{
    for (int t = 0; t < AS_TABLE_COUNT; t++) {
        const struct as_table_schema *schema = &as_tables[t];
        struct as_spool_table table = {.row_size = schema->row_size,
                                       .fields = schema->field_count,
                                       .name_size = (uint32_t)strlen(schema->name)};
        as_text_add(text, (const char *)&table, sizeof table);
        as_text_add(text, schema->name, table.name_size);
        for (uint32_t f = 0; f < schema->field_count; f++) {
            struct as_spool_field field = {.offset = schema->fields[f].offset,
                                           .type = schema->fields[f].type,
                                           .reference = schema->fields[f].reference,
                                           .name_size = (uint16_t)strlen(schema->fields[f].name)};
            as_text_add(text, (const char *)&field, sizeof field);
            as_text_add(text, schema->fields[f].name, field.name_size);
        }
    }
}

static int write_header(struct as_spool *spool, size_t reserve)
{
    struct as_text text = {0};
    describe_tables(&text);
    if (text.failed) {
        as_text_free(&text);
        return as_fail_memory(&spool->error, text.length, "a spool's header");
    }
    struct as_spool_header header = {.size = (uint32_t)as_align_up(sizeof header + text.length, 64),
                                     .tables = AS_TABLE_COUNT,
                                     .checksum = as_hash64(text.data, text.length, AS_TABLE_COUNT)};
    size_t room;
    if (as_add_overflows(reserve, header.size, &room) || room > SIZE_MAX / 2)
        room = SIZE_MAX / 2;
    int rc = move_window(spool, room);
    if (rc == AS_OK) {
        memcpy(spool->at + sizeof header, text.data, text.length);
        memcpy(spool->at, &header, sizeof header);
        __atomic_signal_fence(__ATOMIC_RELEASE);
        memcpy(spool->at, AS_SPOOL_MAGIC, sizeof header.magic);
        spool->at += header.size;
    }
    as_text_free(&text);
    return rc;
}

struct as_spool *as_spool_create(const char *path, size_t reserve, struct as_error *error)
{
    struct sigaction action;
    if (sigaction(SIGXFSZ, NULL, &action) == 0 && action.sa_handler == SIG_DFL)
        signal(SIGXFSZ, SIG_IGN);

    struct as_spool *spool = as_calloc(error, 1, sizeof *spool, "a spool");
    if (spool == NULL)
        return NULL;
    spool->fd = -1;
    spool->path = as_strdup(&spool->error, path);
    if (spool->path != NULL) {
        spool->fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
        if (spool->fd < 0)
            as_fail_errno(&spool->error, AS_ERR_IO, "creating the spool %s", path);
        else
            write_header(spool, reserve);
    }
    if (spool->error.code == AS_OK)
        return spool;
    as_spool_close(spool, error);
    return NULL;
}

const struct as_error *as_spool_error(const struct as_spool *spool)
{
    return &spool->error;
}

uint64_t as_spool_size(const struct as_spool *spool)
{
    return position(spool);
}

int as_spool_close(struct as_spool *spool, struct as_error *error)
{
    if (spool == NULL)
        return AS_OK;
    if (spool->window != NULL) {
        uint64_t size = position(spool);
        munmap(spool->window, spool->window_size);
        if (ftruncate(spool->fd, (off_t)size) != 0)
            as_fail_errno(&spool->error, AS_ERR_IO, "cutting %s to %llu bytes", spool->path,
                          (unsigned long long)size);
    }
    if (spool->fd >= 0)
        close(spool->fd);
    int code = spool->error.code;
    if (code != AS_OK)
        as_fail(error, code, "%s", spool->error.message);
    as_intern_free(&spool->strings);
    free(spool->path);
    free(spool);
    return code;
}
