#define _GNU_SOURCE /* F_OFD_SETLK */
#include "writer.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "as_memory.h"
#include "as_text.h"
#include "hdf5_util.h"
#include "intern.h"
#include "seal.h"
#include "spool.h"

#define STRING_CHUNK_BYTES ((size_t)1 << 20)

/* Space kept in hand for what HDF5 writes of its own accord: headers, indexes, heaps. */
#define SLACK ((uint64_t)1 << 20)

struct table {
    hid_t dataset, type;
    uint8_t *buffer; /* of AS_CHUNK_ROWS rows, made with the first */
    uint32_t buffered;
    uint64_t written;
};

struct as_writer {
    hid_t file;
    int held;          /* the partial file, locked; -1 = it is not this writer's */
    uint64_t reserved; /* bytes of the file that the disk is known to have */
    char *path, *partial;
    struct table tables[AS_TABLE_COUNT];
    struct as_intern strings;
    uint32_t cut_strings;
};

/* Makes sure that `bytes` more can be written. HDF5 1.10 cannot close a file once a write of it
 * failed (it crashes when the process ends), so no write of it may meet a full disk. */
static int reserve(struct as_writer *writer, uint64_t bytes, struct as_error *error)
{
    hsize_t size = 0;
    if (writer->file >= 0 && H5Fget_filesize(writer->file, &size) < 0)
        return as_fail_hdf5(error, AS_ERR_IO, "writing the report %s", writer->partial);
    uint64_t wanted = size + bytes + SLACK;
    if (wanted <= writer->reserved)
        return AS_OK;
    int rc;
    do {
        rc = posix_fallocate(writer->held, (off_t)writer->reserved,
                             (off_t)(wanted + SLACK - writer->reserved));
    } while (rc == EINTR);
    if (rc != 0) {
        errno = rc;
        return as_fail_errno(error, AS_ERR_IO, "growing the report %s beyond %llu bytes",
                             writer->partial, (unsigned long long)size);
    }
    writer->reserved = wanted + SLACK;
    return AS_OK;
}

static int write_text_attribute(hid_t object, const char *key, const char *value,
                                struct as_error *error)
{
    hid_t type = as_hdf5_text_type();
    hid_t space = H5Screate(H5S_SCALAR);
    if (H5Aexists(object, key) > 0)
        H5Adelete(object, key);
    hid_t attribute = H5Acreate2(object, key, type, space, H5P_DEFAULT, H5P_DEFAULT);
    int rc = AS_OK;
    if (attribute < 0 || H5Awrite(attribute, type, &value) < 0)
        rc = as_fail_hdf5(error, AS_ERR_IO, "writing the attribute '%.100s'", key);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Tclose(type);
    return rc;
}

static int write_number_attribute(hid_t object, const char *key, hid_t type, const void *value,
                                  struct as_error *error)
{
    hid_t space = H5Screate(H5S_SCALAR);
    if (H5Aexists(object, key) > 0)
        H5Adelete(object, key);
    hid_t attribute = H5Acreate2(object, key, type, space, H5P_DEFAULT, H5P_DEFAULT);
    int rc = AS_OK;
    if (attribute < 0 || H5Awrite(attribute, type, value) < 0)
        rc = as_fail_hdf5(error, AS_ERR_IO, "writing the attribute '%.100s'", key);
    H5Aclose(attribute);
    H5Sclose(space);
    return rc;
}

/* A list of texts, one a field. */
static int write_list_attribute(hid_t object, const char *key, const char **values, uint32_t count,
                                struct as_error *error)
{
    hsize_t dims = count;
    hid_t type = as_hdf5_text_type();
    hid_t space = H5Screate_simple(1, &dims, NULL);
    hid_t attribute = H5Acreate2(object, key, type, space, H5P_DEFAULT, H5P_DEFAULT);
    int rc = AS_OK;
    if (attribute < 0 || H5Awrite(attribute, type, values) < 0)
        rc = as_fail_hdf5(error, AS_ERR_IO, "writing the attribute '%.100s'", key);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Tclose(type);
    return rc;
}

static int describe_fields(hid_t dataset, const struct as_table_schema *schema,
                           struct as_error *error)
{
    const char *names[64], *units[64], *descriptions[64];
    struct as_text summary = {0};
    uint32_t count = schema->field_count < 64 ? schema->field_count : 64;
    for (uint32_t i = 0; i < count; i++) {
        names[i] = schema->fields[i].name;
        units[i] = schema->fields[i].units;
        descriptions[i] = schema->fields[i].description;
        if (units[i][0] != '\0')
            as_text_addf(&summary, "%s%s: %s", summary.length > 0 ? ", " : "", names[i], units[i]);
    }
    int rc = AS_OK;
    if (summary.failed)
        rc = as_fail_memory(error, summary.length, "an attribute");
    if (rc == AS_OK)
        rc = write_text_attribute(dataset, "units", summary.length > 0 ? summary.data : "none",
                                  error);
    if (rc == AS_OK)
        rc = write_list_attribute(dataset, "fields", names, count, error);
    if (rc == AS_OK)
        rc = write_list_attribute(dataset, "field_units", units, count, error);
    if (rc == AS_OK)
        rc = write_list_attribute(dataset, "field_descriptions", descriptions, count, error);
    as_text_free(&summary);
    return rc;
}

static hid_t create_dataset(hid_t file, const char *name, hid_t type, hsize_t chunk)
{
    hsize_t size = 0, limit = H5S_UNLIMITED;
    hid_t space = H5Screate_simple(1, &size, &limit);
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
    hid_t dataset = -1;
    /* Chunks come whole, and go to the disk when they come: space was reserved for them. */
    if (H5Pset_chunk_cache(access, 0, 0, 1.0) >= 0 && H5Pset_chunk(creation, 1, &chunk) >= 0 &&
        H5Pset_shuffle(creation) >= 0 && H5Pset_deflate(creation, 1) >= 0 &&
        H5Pset_fletcher32(creation) >= 0)
        dataset = H5Dcreate2(file, name, type, space, H5P_DEFAULT, creation, access);
    H5Pclose(access);
    H5Pclose(creation);
    H5Sclose(space);
    return dataset;
}

static int create_table(struct as_writer *writer, enum as_table id, struct as_error *error)
{
    const struct as_table_schema *schema = &as_tables[id];
    struct table *table = &writer->tables[id];
    table->type = as_hdf5_row_type(id);
    table->dataset = create_dataset(writer->file, schema->name, table->type, AS_CHUNK_ROWS);
    if (table->dataset < 0)
        return as_fail_hdf5(error, AS_ERR_IO, "creating the dataset %s in %s", schema->name,
                            writer->partial);
    int rc = write_text_attribute(table->dataset, "description", schema->description, error);
    return rc == AS_OK ? describe_fields(table->dataset, schema, error) : rc;
}

/* Makes the file and holds it: HDF5 empties a file before it looks whether somebody writes it, and
 * its message for a missing or read-only folder is about HDF5. The lock is one of the open file,
 * which HDF5's own opening and closing leaves alone. */
static int hold_partial(struct as_writer *writer, struct as_error *error)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    writer->held = open(writer->partial, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (writer->held < 0)
        return as_fail_errno(error, AS_ERR_IO, "creating the report %s", writer->partial);
    if (fcntl(writer->held, F_OFD_SETLK, &lock) != 0 && (errno == EAGAIN || errno == EACCES)) {
        close(writer->held);
        writer->held = -1;
        return as_fail(error, AS_ERR_IO,
                       "creating the report %s: another process is writing it; wait for it or "
                       "name another output",
                       writer->partial);
    }
    return AS_OK;
}

static int begin(struct as_writer *writer, const char *path, struct as_error *error)
{
    size_t size = strlen(path) + sizeof ".partial";
    writer->path = as_strdup(error, path);
    writer->partial = as_calloc(error, size, 1, "a path");
    if (writer->path == NULL || writer->partial == NULL)
        return AS_ERR_MEMORY;
    snprintf(writer->partial, size, "%s.partial", path);
    int rc = hold_partial(writer, error);
    if (rc == AS_OK)
        rc = reserve(writer, 0, error);
    if (rc != AS_OK)
        return rc;
    hid_t access = as_hdf5_create_access();
    writer->file = H5Fcreate(writer->partial, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    H5Pclose(access);
    if (writer->file < 0)
        return as_fail_hdf5(error, AS_ERR_IO, "creating the report %s", writer->partial);
    writer->reserved = 0; /* HDF5 emptied the file */
    rc = reserve(writer, 0, error);
    for (int t = 0; rc == AS_OK && t < AS_TABLE_COUNT; t++)
        rc = create_table(writer, (enum as_table)t, error);
    return rc;
}

struct as_writer *as_writer_create(const char *path, struct as_error *error)
{
    struct sigaction action;
    if (sigaction(SIGXFSZ, NULL, &action) == 0 && action.sa_handler == SIG_DFL)
        signal(SIGXFSZ, SIG_IGN);
    as_hdf5_begin();
    struct as_writer *writer = as_calloc(error, 1, sizeof *writer, "a report");
    if (writer == NULL)
        return NULL;
    writer->file = -1;
    writer->held = -1;
    for (int t = 0; t < AS_TABLE_COUNT; t++)
        writer->tables[t].dataset = writer->tables[t].type = -1;
    if (begin(writer, path, error) == AS_OK)
        return writer;
    as_writer_abandon(writer);
    return NULL;
}

static int append(hid_t dataset, hid_t type, uint64_t at, uint64_t count, const void *data)
{
    hsize_t size = at + count, start = at, length = count;
    hid_t file_space = -1, memory_space = -1;
    int rc = -1;
    if (H5Dset_extent(dataset, &size) >= 0) {
        file_space = H5Dget_space(dataset);
        memory_space = H5Screate_simple(1, &length, NULL);
        if (H5Sselect_hyperslab(file_space, H5S_SELECT_SET, &start, NULL, &length, NULL) >= 0)
            rc = H5Dwrite(dataset, type, memory_space, file_space, H5P_DEFAULT, data);
    }
    H5Sclose(memory_space);
    H5Sclose(file_space);
    return rc;
}

static int flush_table(struct as_writer *writer, enum as_table id, struct as_error *error)
{
    struct table *table = &writer->tables[id];
    if (table->buffered == 0)
        return AS_OK;
    int rc = reserve(writer, (uint64_t)AS_CHUNK_ROWS * as_tables[id].row_size, error);
    if (rc != AS_OK)
        return rc;
    if (append(table->dataset, table->type, table->written, table->buffered, table->buffer) < 0)
        return as_fail_hdf5(error, AS_ERR_IO, "writing %s of the report %s", as_tables[id].name,
                            writer->partial);
    table->written += table->buffered;
    table->buffered = 0;
    return AS_OK;
}

int as_writer_rows(struct as_writer *writer, enum as_table id, const void *rows, size_t count,
                   struct as_error *error)
{
    struct table *table = &writer->tables[id];
    const size_t size = as_tables[id].row_size;
    if (table->buffer == NULL)
        table->buffer = as_calloc(error, AS_CHUNK_ROWS, size, "a report's rows");
    if (table->buffer == NULL)
        return AS_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) {
        as_row_copy(id, table->buffer + table->buffered * size, (const uint8_t *)rows + i * size);
        if (++table->buffered == AS_CHUNK_ROWS) {
            int rc = flush_table(writer, id, error);
            if (rc != AS_OK)
                return rc;
        }
    }
    return AS_OK;
}

uint64_t as_writer_count(const struct as_writer *writer, enum as_table table)
{
    return writer->tables[table].written + writer->tables[table].buffered;
}

uint32_t as_writer_string(struct as_writer *writer, const char *text, size_t size,
                          struct as_error *error)
{
    if (text == NULL)
        return AS_UNKNOWN_U32;
    size_t kept = as_utf8_cut(text, size, AS_STRING_MAX);
    bool added;
    uint32_t id = as_intern(&writer->strings, text, kept, &added, error);
    writer->cut_strings += added && kept < size;
    return id;
}

uint32_t as_writer_cut_strings(const struct as_writer *writer)
{
    return writer->cut_strings;
}

int as_writer_attribute(struct as_writer *writer, const char *key, const char *value,
                        struct as_error *error)
{
    int rc = reserve(writer, strlen(value), error);
    return rc == AS_OK ? write_text_attribute(writer->file, key, value, error) : rc;
}

int as_writer_attribute_u64(struct as_writer *writer, const char *key, uint64_t value,
                            struct as_error *error)
{
    int rc = reserve(writer, 0, error);
    return rc == AS_OK ? write_number_attribute(writer->file, key, H5T_STD_U64LE, &value, error)
                       : rc;
}

int as_writer_attribute_f64(struct as_writer *writer, const char *key, double value,
                            struct as_error *error)
{
    int rc = reserve(writer, 0, error);
    return rc == AS_OK ? write_number_attribute(writer->file, key, H5T_IEEE_F64LE, &value, error)
                       : rc;
}

/* One fixed width, the longest string's, so that any reader of HDF5 sees plain text by id. */
static int write_strings(struct as_writer *writer, struct as_error *error)
{
    size_t width = 1;
    for (size_t i = 0; i < writer->strings.count; i++) {
        if (writer->strings.entries[i].size > width)
            width = writer->strings.entries[i].size;
    }
    size_t rows = STRING_CHUNK_BYTES / width;
    rows = rows > AS_CHUNK_ROWS ? AS_CHUNK_ROWS : rows;
    char *buffer = as_calloc(error, rows, width, "a report's strings");
    if (buffer == NULL)
        return AS_ERR_MEMORY;
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, width);
    H5Tset_cset(type, H5T_CSET_UTF8);
    H5Tset_strpad(type, H5T_STR_NULLPAD);
    hid_t dataset = create_dataset(writer->file, "/strings", type, rows);
    int rc = dataset < 0
                 ? as_fail_hdf5(error, AS_ERR_IO, "creating /strings in %s", writer->partial)
                 : AS_OK;
    for (size_t at = 0; rc == AS_OK && at < writer->strings.count; at += rows) {
        size_t count = writer->strings.count - at < rows ? writer->strings.count - at : rows;
        memset(buffer, 0, rows * width);
        for (size_t i = 0; i < count; i++) {
            const struct as_interned *entry = &writer->strings.entries[at + i];
            memcpy(buffer + i * width, entry->text, entry->size);
        }
        rc = reserve(writer, rows * width, error);
        if (rc == AS_OK && append(dataset, type, at, count, buffer) < 0)
            rc = as_fail_hdf5(error, AS_ERR_IO, "writing /strings of the report %s",
                              writer->partial);
    }
    if (rc == AS_OK)
        rc = write_text_attribute(dataset, "description",
                                  "Texts; fields that name a string hold a row number of this one",
                                  error);
    if (rc == AS_OK)
        rc = write_text_attribute(dataset, "units", "none", error);
    H5Dclose(dataset);
    H5Tclose(type);
    free(buffer);
    return rc;
}

static void close_tables(struct as_writer *writer)
{
    for (int t = 0; t < AS_TABLE_COUNT; t++) {
        struct table *table = &writer->tables[t];
        if (table->dataset >= 0)
            H5Dclose(table->dataset);
        if (table->type >= 0)
            H5Tclose(table->type);
        table->dataset = table->type = -1;
    }
}

static int sync_path(const char *path, int flags, struct as_error *error)
{
    int fd = open(path, flags | O_CLOEXEC);
    int rc = fd < 0 ? -1 : fsync(fd);
    if (rc != 0)
        as_fail_errno(error, AS_ERR_IO, "writing %s to the disk", path);
    if (fd >= 0)
        close(fd);
    return rc == 0 ? AS_OK : AS_ERR_IO;
}

/* Cuts off what was reserved and not needed (all behind the end that the superblock, of version 2
 * by the V18 bounds, has at its byte 28) and seals the rest. */
static int seal(struct as_writer *writer, struct as_error *error)
{
    unsigned char superblock[36];
    uint64_t end = 0;
    if (pread(writer->held, superblock, sizeof superblock, 0) == sizeof superblock &&
        superblock[8] == 2 && superblock[9] == 8)
        memcpy(&end, superblock + 28, sizeof end);
    if (end < sizeof superblock || end > writer->reserved)
        return as_fail(error, AS_ERR_INTERNAL,
                       "writing the report %s: its end is not where HDF5 is known to put it",
                       writer->partial);
    if (ftruncate(writer->held, (off_t)end) != 0)
        return as_fail_errno(error, AS_ERR_IO, "cutting %s to its size", writer->partial);
    return as_seal_write(writer->held, end, writer->partial, error);
}

static int complete(struct as_writer *writer, struct as_error *error)
{
    char version[32];
    int rc = AS_OK;
    for (int t = 0; rc == AS_OK && t < AS_TABLE_COUNT; t++)
        rc = flush_table(writer, (enum as_table)t, error);
    if (rc == AS_OK)
        rc = write_strings(writer, error);
    snprintf(version, sizeof version, "%d.%d", AS_SCHEMA_MAJOR, AS_SCHEMA_MINOR);
    if (rc == AS_OK)
        rc = as_writer_attribute(writer, "schema", version, error);
    if (rc == AS_OK)
        rc = as_writer_attribute_u64(writer, "complete", 1, error);
    close_tables(writer);
    if (rc == AS_OK && H5Fflush(writer->file, H5F_SCOPE_GLOBAL) < 0)
        rc = as_fail_hdf5(error, AS_ERR_IO, "writing the report %s", writer->partial);
    if (rc != AS_OK)
        return rc;
    hid_t file = writer->file;
    writer->file = -1;
    if (H5Fclose(file) < 0)
        return as_fail_hdf5(error, AS_ERR_IO, "writing the report %s", writer->partial);
    rc = seal(writer, error);
    if (rc == AS_OK)
        rc = sync_path(writer->partial, O_RDWR, error);
    if (rc == AS_OK && rename(writer->partial, writer->path) != 0)
        rc = as_fail_errno(error, AS_ERR_IO, "renaming %s to %s", writer->partial, writer->path);
    return rc;
}

int as_writer_finish(struct as_writer *writer, struct as_error *error)
{
    int rc = complete(writer, error);
    if (rc == AS_OK) {
        /* The name itself; a file system that cannot sync a folder is no reason to fail. */
        char *folder = as_strdup(NULL, writer->path);
        if (folder != NULL)
            (void)sync_path(dirname(folder), O_RDONLY | O_DIRECTORY, NULL);
        free(folder);
        close(writer->held);
        writer->held = -1;
    }
    as_writer_abandon(writer);
    return rc;
}

void as_writer_abandon(struct as_writer *writer)
{
    if (writer == NULL)
        return;
    close_tables(writer);
    if (writer->file >= 0)
        H5Fclose(writer->file);
    if (writer->held >= 0) {
        unlink(writer->partial);
        close(writer->held);
    }
    for (int t = 0; t < AS_TABLE_COUNT; t++)
        free(writer->tables[t].buffer);
    as_intern_free(&writer->strings);
    free(writer->path);
    free(writer->partial);
    free(writer);
}
