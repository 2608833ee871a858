/* The reading side of spools. Nothing in a file is believed before it was checked. */
#include "spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "as_hash.h"
#include "as_memory.h"
#include "spool_format.h"

#define BUFFER ((size_t)1 << 20)

struct copy {
    uint32_t from, to;
    uint8_t from_type, to_type;
};

/* How a row of the file becomes a row of this build. */
struct plan {
    int table; /* -1: a table that this build does not know */
    uint32_t row_size;
    bool identical; /* the file's row is this build's row */
    struct copy *copies;
    uint32_t copy_count;
};

struct as_spool_reader {
    int fd;
    char *path;
    uint64_t file_size, header_size, position;
    uint8_t *buffer; /* holds buffer_size bytes from buffer_start on */
    size_t buffer_capacity, buffer_size;
    uint64_t buffer_start;
    struct plan *plans;
    uint32_t plan_count, ignored_fields;
    uint64_t dropped;
    bool stopped; /* file_size is then the end of the last whole record */
    int failed;   /* code of a failed read: a NULL of bytes_at() is then no end */
    uint64_t row[AS_ROW_SIZE_MAX / 8];
};

int as_spool_child_folder(char *path, size_t size, const char *work, uint32_t run,
                          struct as_error *error)
{
    int length = snprintf(path, size, "%s/run-%04u", work, run);
    if (length < 0 || (size_t)length >= size)
        return as_fail(error, AS_ERR_USAGE, "the path of the work folder %.200s is too long", work);
    return AS_OK;
}

int as_spool_thread_path(char *path, size_t size, const char *child, uint32_t thread,
                         struct as_error *error)
{
    int length = snprintf(path, size, "%s/thread-%u.spool", child, thread);
    if (length < 0 || (size_t)length >= size)
        return as_fail(error, AS_ERR_USAGE, "the path of the folder %.200s is too long", child);
    return AS_OK;
}

/* `size` bytes of the file at `position`, which lies on 8 bytes in memory when it does in the
 * file; NULL when the file is shorter or, with a message, when it cannot be read. */
static const uint8_t *bytes_at(struct as_spool_reader *reader, uint64_t position, size_t size,
                               struct as_error *error)
{
    if (position > reader->file_size || size > reader->file_size - position)
        return NULL;
    if (position >= reader->buffer_start &&
        position + size <= reader->buffer_start + reader->buffer_size)
        return reader->buffer + (position - reader->buffer_start);
    if (size > reader->buffer_capacity) {
        uint8_t *grown = realloc(reader->buffer, size);
        if (grown == NULL) {
            reader->failed = as_fail_memory(error, size, "reading a spool");
            return NULL;
        }
        reader->buffer = grown;
        reader->buffer_capacity = size;
    }
    reader->buffer_start = position;
    reader->buffer_size = 0;
    while (reader->buffer_size < size) {
        ssize_t got = pread(reader->fd, reader->buffer + reader->buffer_size,
                            reader->buffer_capacity - reader->buffer_size,
                            (off_t)(position + reader->buffer_size));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            reader->failed = as_fail_errno(error, AS_ERR_IO, "reading the spool %s", reader->path);
            return NULL;
        }
        if (got == 0) /* became shorter while it was read */
            return NULL;
        reader->buffer_size += (size_t)got;
    }
    return reader->buffer;
}

static uint64_t load(const uint8_t *at, uint8_t type, double *f64)
{
    uint64_t u64 = 0;
    memcpy(&u64, at, as_type_size(type));
    if (type == AS_TYPE_F64)
        memcpy(f64, at, sizeof *f64);
    else if ((type == AS_TYPE_U8 && u64 == AS_UNKNOWN_U8) ||
             (type == AS_TYPE_U32 && u64 == AS_UNKNOWN_U32))
        u64 = AS_UNKNOWN_U64;
    return u64;
}

/* A field whose type changed between builds: unknown stays unknown, and so becomes what the new
 * type cannot hold. */
static void convert(uint8_t *to, uint8_t to_type, const uint8_t *from, uint8_t from_type)
{
    double f64 = 0;
    uint64_t u64 = load(from, from_type, &f64);
    if (to_type == AS_TYPE_F64) {
        if (from_type != AS_TYPE_F64)
            f64 = u64 == AS_UNKNOWN_U64 ? AS_UNKNOWN_F64 : (double)u64;
        memcpy(to, &f64, sizeof f64);
        return;
    }
    if (from_type == AS_TYPE_F64)
        u64 = f64 >= 0 && f64 < 0x1p64 ? (uint64_t)f64 : AS_UNKNOWN_U64;
    uint64_t largest = to_type == AS_TYPE_U8 ? 0xfe : to_type == AS_TYPE_U32 ? 0xfffffffe : u64;
    if (u64 > largest)
        u64 = AS_UNKNOWN_U64;
    memcpy(to, &u64, as_type_size(to_type));
}

static const void *convert_row(struct as_spool_reader *reader, const struct plan *plan,
                               const uint8_t *from)
{
    as_row_unknown((enum as_table)plan->table, reader->row);
    uint8_t *to = (uint8_t *)reader->row;
    for (uint32_t i = 0; i < plan->copy_count; i++) {
        const struct copy *copy = &plan->copies[i];
        if (copy->from_type == copy->to_type)
            memcpy(to + copy->to, from + copy->from, as_type_size(copy->to_type));
        else
            convert(to + copy->to, copy->to_type, from + copy->from, copy->from_type);
    }
    return reader->row;
}

/* Takes a name of `size` bytes from the description into `name`. */
static bool take_name(const uint8_t **at, const uint8_t *end, size_t size, char name[64])
{
    if (size >= 64 || (size_t)(end - *at) < size)
        return false;
    memcpy(name, *at, size);
    name[size] = '\0';
    *at += size;
    return true;
}

/* Reads one table of the description into `plan`. */
static bool plan_table(struct as_spool_reader *reader, struct plan *plan, const uint8_t **at,
                       const uint8_t *end, struct as_error *error)
{
    struct as_spool_table table;
    char name[64];
    if ((size_t)(end - *at) < sizeof table)
        return false;
    memcpy(&table, *at, sizeof table);
    *at += sizeof table;
    if (table.row_size == 0 || table.row_size > AS_SPOOL_FILE_ROW_MAX ||
        table.fields > AS_SPOOL_FIELDS_MAX || !take_name(at, end, table.name_size, name))
        return false;
    plan->table = as_table_by_name(name);
    plan->row_size = table.row_size;
    plan->copies = as_calloc(error, table.fields, sizeof *plan->copies, "a spool's fields");
    if (plan->copies == NULL)
        return false;
    bool identical = plan->table >= 0 && table.row_size == as_tables[plan->table].row_size &&
                     table.fields == as_tables[plan->table].field_count;
    for (uint32_t i = 0; i < table.fields; i++) {
        struct as_spool_field field;
        if ((size_t)(end - *at) < sizeof field)
            return false;
        memcpy(&field, *at, sizeof field);
        *at += sizeof field;
        if (!take_name(at, end, field.name_size, name) || field.type > AS_TYPE_F64 ||
            field.offset > table.row_size ||
            as_type_size(field.type) > table.row_size - field.offset)
            return false;
        const struct as_field *known =
            plan->table < 0 ? NULL : as_field_by_name((enum as_table)plan->table, name);
        if (known == NULL || known->reference != field.reference) {
            reader->ignored_fields++;
            identical = false;
            continue;
        }
        plan->copies[plan->copy_count++] =
            (struct copy){field.offset, known->offset, field.type, known->type};
        identical = identical && known->offset == field.offset && known->type == field.type;
    }
    plan->identical = identical;
    return true;
}

static int read_header(struct as_spool_reader *reader, struct as_error *error)
{
    struct as_spool_header header;
    const uint8_t *at = bytes_at(reader, 0, sizeof header, error);
    if (at == NULL)
        return as_fail(error, AS_ERR_DATA,
                       "reading the spool %s: it has %llu bytes, too few for a header",
                       reader->path, (unsigned long long)reader->file_size);
    memcpy(&header, at, sizeof header);
    if (memcmp(header.magic, AS_SPOOL_MAGIC, sizeof header.magic) != 0)
        return as_fail(error, AS_ERR_DATA,
                       "reading the spool %s: it does not begin with a spool's header (its writer "
                       "may have been killed before its first record)",
                       reader->path);
    if (header.size <= sizeof header || header.size > AS_SPOOL_HEADER_MAX || header.size % 8 != 0 ||
        header.tables > AS_SPOOL_TABLES_MAX ||
        (at = bytes_at(reader, 0, header.size, error)) == NULL)
        return as_fail(error, AS_ERR_DATA,
                       "reading the spool %s: its header claims %u bytes and %u tables, which "
                       "cannot be",
                       reader->path, header.size, header.tables);
    const uint8_t *end = at + header.size;
    const uint8_t *start = at + sizeof header;
    reader->plans = as_calloc(error, header.tables, sizeof *reader->plans, "a spool's tables");
    if (reader->plans == NULL)
        return AS_ERR_MEMORY;
    at = start;
    for (; reader->plan_count < header.tables; reader->plan_count++) {
        if (!plan_table(reader, &reader->plans[reader->plan_count], &at, end, error)) {
            reader->plan_count++;
            return as_fail(error, AS_ERR_DATA,
                           "reading the spool %s: the description of its table %u is damaged",
                           reader->path, reader->plan_count);
        }
    }
    if (as_hash64(start, (size_t)(at - start), header.tables) != header.checksum)
        return as_fail(error, AS_ERR_DATA, "reading the spool %s: the header's checksum is wrong",
                       reader->path);
    reader->header_size = reader->position = header.size;
    return AS_OK;
}

struct as_spool_reader *as_spool_reader_open(const char *path, struct as_error *error)
{
    struct as_spool_reader *reader = as_calloc(error, 1, sizeof *reader, "a spool reader");
    if (reader == NULL)
        return NULL;
    struct stat status;
    bool ok = false;
    reader->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (reader->fd < 0 || fstat(reader->fd, &status) != 0) {
        as_fail_errno(error, AS_ERR_IO, "opening the spool %s", path);
    } else if (!S_ISREG(status.st_mode)) {
        as_fail(error, AS_ERR_DATA, "opening the spool %s: it is not a file", path);
    } else {
        reader->file_size = (uint64_t)status.st_size;
        reader->path = as_strdup(error, path);
        reader->buffer = malloc(BUFFER);
        reader->buffer_capacity = BUFFER;
        if (reader->buffer == NULL)
            as_fail_memory(error, BUFFER, "reading a spool");
        else if (reader->path != NULL)
            ok = read_header(reader, error) == AS_OK;
    }
    if (ok)
        return reader;
    as_spool_reader_close(reader);
    return NULL;
}

/* Ends the reading at the current position; what follows is counted up to its last byte that is
 * not zero (the reserved tail of a file whose writer was killed is zero). */
static int stop(struct as_spool_reader *reader, struct as_error *error)
{
    uint64_t last = 0;
    if (reader->failed || reader->stopped)
        return reader->failed;
    for (uint64_t at = reader->position; at < reader->file_size;) {
        size_t size = reader->file_size - at < BUFFER ? (size_t)(reader->file_size - at) : BUFFER;
        const uint8_t *bytes = bytes_at(reader, at, size, error);
        if (bytes == NULL)
            return reader->failed
                       ? reader->failed
                       : as_fail(error, AS_ERR_IO,
                                 "reading the spool %s: it became shorter meanwhile", reader->path);
        for (size_t i = size; i > 0; i--) {
            if (bytes[i - 1] != 0) {
                last = at + i;
                break;
            }
        }
        at += size;
    }
    reader->dropped = last > reader->position ? last - reader->position : 0;
    reader->file_size = reader->position;
    reader->stopped = true;
    return 0;
}

static bool take_attribute(struct as_record *record, const uint8_t *payload, size_t length)
{
    struct as_frame_attribute head;
    if (length < sizeof head)
        return false;
    memcpy(&head, payload, sizeof head);
    const char *key = (const char *)payload + sizeof head;
    if (head.key_size < 2 || head.key_size > length - sizeof head || key[head.key_size - 1] != '\0')
        return false;
    const char *value = key + head.key_size;
    size_t size = length - sizeof head - head.key_size;
    *record = (struct as_record){
        .kind = AS_RECORD_ATTRIBUTE, .table = -1, .key = key, .type = (char)head.type};
    switch (head.type) {
    case 's':
        record->text = value;
        record->text_size = size - 1;
        return size > 0 && value[size - 1] == '\0';
    case 'u':
        if (size == sizeof record->u64)
            memcpy(&record->u64, value, size);
        return size == sizeof record->u64;
    case 'f':
        if (size == sizeof record->f64)
            memcpy(&record->f64, value, size);
        return size == sizeof record->f64;
    default: return false;
    }
}

static bool take_string(struct as_record *record, const uint8_t *payload, size_t length)
{
    if (length < sizeof record->id + 1 || payload[length - 1] != '\0')
        return false;
    *record = (struct as_record){.kind = AS_RECORD_STRING, .table = -1};
    memcpy(&record->id, payload, sizeof record->id);
    record->text = (const char *)payload + sizeof record->id;
    record->text_size = length - sizeof record->id - 1;
    return true;
}

static bool take_row(struct as_spool_reader *reader, struct as_record *record, uint32_t kind,
                     const uint8_t *payload, size_t length)
{
    if (kind > reader->plan_count || length != reader->plans[kind - 1].row_size)
        return false;
    const struct plan *plan = &reader->plans[kind - 1];
    *record = (struct as_record){.kind = AS_RECORD_ROW, .table = plan->table};
    if (plan->table >= 0)
        record->row = plan->identical ? payload : convert_row(reader, plan, payload);
    return true;
}

int as_spool_next(struct as_spool_reader *reader, struct as_record *record, struct as_error *error)
{
    struct as_frame frame;
    const uint8_t *at = bytes_at(reader, reader->position, sizeof frame, error);
    if (at == NULL)
        return stop(reader, error);
    memcpy(&frame, at, sizeof frame);
    uint32_t kind = (uint32_t)frame.word;
    uint32_t length = (uint32_t)(frame.word >> 32);
    if (kind == 0 || length > AS_SPOOL_PAYLOAD_MAX)
        return stop(reader, error);
    size_t size = sizeof frame + as_align_up(length, 8);
    at = bytes_at(reader, reader->position, size, error);
    if (at == NULL)
        return stop(reader, error);
    const uint8_t *payload = at + sizeof frame;
    if (as_hash64(payload, length, frame.word) != frame.checksum)
        return stop(reader, error);
    bool taken = kind == AS_FRAME_STRING      ? take_string(record, payload, length)
                 : kind == AS_FRAME_ATTRIBUTE ? take_attribute(record, payload, length)
                                              : take_row(reader, record, kind, payload, length);
    if (!taken)
        return stop(reader, error);
    reader->position += size;
    return 1;
}

void as_spool_rewind(struct as_spool_reader *reader)
{
    reader->position = reader->header_size;
}

uint64_t as_spool_dropped_bytes(const struct as_spool_reader *reader)
{
    return reader->dropped;
}

uint32_t as_spool_ignored_fields(const struct as_spool_reader *reader)
{
    return reader->ignored_fields;
}

void as_spool_reader_close(struct as_spool_reader *reader)
{
    if (reader == NULL)
        return;
    for (uint32_t i = 0; i < reader->plan_count; i++)
        free(reader->plans[i].copies);
    free(reader->plans);
    if (reader->fd >= 0)
        close(reader->fd);
    free(reader->buffer);
    free(reader->path);
    free(reader);
}
