#include "report.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "as_memory.h"
#include "hdf5_util.h"
#include "seal.h"

#define CHUNK_CACHE ((size_t)16 << 20)
#define CHUNK_MAX ((size_t)64 << 20)
#define STRING_WIDTH_MAX 65536u
#define STRING_BUFFER ((size_t)1 << 20)
#define ATTRIBUTE_TEXT_MAX ((size_t)16 << 20)

/* What a deflated byte can become at most is 1032 bytes; a table that claims more than its file
 * can hold is damaged, and nothing is allocated for it. */
#define INFLATE_MAX 1032u

struct attribute {
    char *key, *text; /* numbers are rendered too */
    char type;        /* 's', 'u' or 'f' */
    uint64_t u64;
    double f64;
};

struct table {
    hid_t dataset, type; /* negative: the file does not have it */
    uint64_t count;
    bool whole; /* every field of the struct is in the file, and the struct has no padding */
};

struct as_report {
    char *path;
    hid_t file;
    uint64_t file_size;
    bool sealed;
    unsigned minor;
    struct table tables[AS_TABLE_COUNT];
    char *text; /* all strings, each with its NUL */
    size_t text_size, text_capacity;
    size_t *offsets; /* of string i in `text` */
    uint32_t string_count;
    struct attribute *attributes;
    size_t attribute_count, attribute_capacity;
    struct as_error failure; /* of a callback */
};

static int damaged(const struct as_report *report, struct as_error *error, const char *what)
{
    return as_fail_hdf5(error, AS_ERR_DATA, "reading the report %s: %s is damaged", report->path,
                        what);
}

/* --- attributes --- */

static char *read_text(hid_t attribute, hid_t type)
{
    char *text = NULL;
    if (H5Tis_variable_str(type) > 0) {
        char *own = NULL;
        hid_t memory = H5Tcopy(type);
        if (H5Aread(attribute, memory, &own) >= 0 && own != NULL)
            text = as_strdup(NULL, own);
        H5free_memory(own);
        H5Tclose(memory);
        return text;
    }
    size_t size = H5Tget_size(type);
    if (size == 0 || size > ATTRIBUTE_TEXT_MAX)
        return NULL;
    text = as_calloc(NULL, size + 1, 1, "an attribute");
    if (text != NULL && H5Aread(attribute, type, text) < 0) {
        free(text);
        text = NULL;
    }
    return text;
}

static char *render(const struct attribute *attribute)
{
    char text[64];
    if (attribute->type == 'u')
        snprintf(text, sizeof text, "%llu", (unsigned long long)attribute->u64);
    else
        snprintf(text, sizeof text, "%.17g", attribute->f64);
    return as_strdup(NULL, text);
}

/* Takes a scalar attribute; others (lists) are passed over. */
static herr_t take_attribute(hid_t root, const char *name, const H5A_info_t *info, void *data)
{
    (void)info;
    struct as_report *report = data;
    if (as_grow(&report->failure, &report->attributes, &report->attribute_capacity,
                report->attribute_count, sizeof *report->attributes, "attributes") != AS_OK)
        return -1;
    struct attribute *made = &report->attributes[report->attribute_count];
    hid_t attribute = H5Aopen(root, name, H5P_DEFAULT);
    hid_t type = H5Aget_type(attribute);
    hid_t space = H5Aget_space(attribute);
    bool taken = false;
    if (space >= 0 && H5Sget_simple_extent_npoints(space) == 1) {
        switch (H5Tget_class(type)) {
        case H5T_STRING:
            made->type = 's';
            made->text = read_text(attribute, type);
            taken = made->text != NULL;
            break;
        case H5T_INTEGER:
            made->type = 'u';
            taken = H5Aread(attribute, H5T_NATIVE_UINT64, &made->u64) >= 0;
            break;
        case H5T_FLOAT:
            made->type = 'f';
            taken = H5Aread(attribute, H5T_NATIVE_DOUBLE, &made->f64) >= 0;
            break;
        default: break;
        }
    }
    if (taken) {
        made->key = as_strdup(&report->failure, name);
        if (made->type != 's')
            made->text = render(made);
        taken = made->key != NULL && made->text != NULL;
    }
    if (taken) {
        report->attribute_count++;
    } else {
        free(made->key);
        free(made->text);
        memset(made, 0, sizeof *made);
    }
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(attribute);
    return report->failure.code == AS_OK ? 0 : -1;
}

static const struct attribute *find_attribute(const struct as_report *report, const char *key)
{
    for (size_t i = 0; i < report->attribute_count; i++) {
        if (strcmp(report->attributes[i].key, key) == 0)
            return &report->attributes[i];
    }
    return NULL;
}

static int read_attributes(struct as_report *report, struct as_error *error)
{
    hsize_t at = 0;
    if (H5Aiterate2(report->file, H5_INDEX_NAME, H5_ITER_INC, &at, take_attribute, report) < 0) {
        if (report->failure.code != AS_OK)
            return as_fail(error, report->failure.code, "%s", report->failure.message);
        return damaged(report, error, "the list of root attributes");
    }
    as_hdf5_begin();
    const char *schema = as_report_attribute(report, "schema");
    unsigned major;
    int used = 0;
    if (schema == NULL)
        return as_fail(error, AS_ERR_DATA,
                       "reading %s: it is an HDF5 file, but not a report of assay (it has no "
                       "attribute 'schema')",
                       report->path);
    if (sscanf(schema, "%u.%u%n", &major, &report->minor, &used) != 2 || schema[used] != '\0')
        return as_fail(error, AS_ERR_DATA,
                       "reading the report %s: its schema '%.32s' is not a version such as '1.0'",
                       report->path, schema);
    if (major != AS_SCHEMA_MAJOR)
        return as_fail(error, AS_ERR_DATA,
                       "reading the report %s: its schema is %.32s and this assay reads %d.x; use "
                       "the assay that wrote it",
                       report->path, schema, AS_SCHEMA_MAJOR);
    uint64_t complete;
    if (!as_report_attribute_u64(report, "complete", &complete) || complete != 1)
        return as_fail(error, AS_ERR_DATA,
                       "reading the report %s: it was never completed; if its work folder is still "
                       "there, 'assay recover' makes a whole one",
                       report->path);
    return AS_OK;
}

/* --- tables --- */

/* The file's member for `field`, or -1. */
static int find_member(hid_t file_type, const struct as_field *field)
{
    int count = H5Tget_nmembers(file_type);
    for (int i = 0; i < count; i++) {
        char *name = H5Tget_member_name(file_type, (unsigned)i);
        bool same = name != NULL && strcmp(name, field->name) == 0;
        H5free_memory(name);
        if (same)
            return i;
    }
    return -1;
}

static bool same_kind(hid_t file_type, int member, const struct as_field *field)
{
    hid_t type = H5Tget_member_type(file_type, (unsigned)member);
    H5T_class_t class = H5Tget_class(type);
    bool same = H5Tget_size(type) == as_type_size(field->type) &&
                class == (field->type == AS_TYPE_F64 ? H5T_FLOAT : H5T_INTEGER);
    if (same && class == H5T_INTEGER)
        same = H5Tget_sign(type) == H5T_SGN_NONE;
    H5Tclose(type);
    return same;
}

/* Makes the type of what both the file and the struct have. */
static int match_fields(struct as_report *report, enum as_table id, hid_t file_type,
                        struct as_error *error)
{
    const struct as_table_schema *schema = &as_tables[id];
    struct table *table = &report->tables[id];
    size_t matched = 0;
    table->type = H5Tcreate(H5T_COMPOUND, schema->row_size);
    for (uint32_t i = 0; i < schema->field_count; i++) {
        const struct as_field *field = &schema->fields[i];
        int member = find_member(file_type, field);
        if (member < 0 && field->required)
            return as_fail(error, AS_ERR_DATA,
                           "reading the report %s: its table %s has no field '%s'", report->path,
                           schema->name, field->name);
        if (member < 0)
            continue;
        if (!same_kind(file_type, member, field))
            return as_fail(error, AS_ERR_DATA,
                           "reading the report %s: field '%s' of its table %s is not of type %s",
                           report->path, field->name, schema->name, as_type_name(field->type));
        if (H5Tinsert(table->type, field->name, field->offset, as_hdf5_field_type(field->type)) < 0)
            return damaged(report, error, schema->name);
        matched += as_type_size(field->type);
    }
    table->whole = matched == schema->row_size;
    return AS_OK;
}

/* Rows of a dataset of one dimension whose rows take `row_size` bytes in the file, checked against
 * what the file can hold. */
static bool check_extent(const struct as_report *report, hid_t dataset, size_t row_size,
                         uint64_t *count)
{
    hsize_t size = 0, chunk = 0;
    hid_t space = H5Dget_space(dataset);
    hid_t creation = H5Dget_create_plist(dataset);
    bool good = H5Sget_simple_extent_ndims(space) == 1 &&
                H5Sget_simple_extent_dims(space, &size, NULL) == 1;
    if (good && H5Pget_layout(creation) == H5D_CHUNKED)
        good = H5Pget_chunk(creation, 1, &chunk) == 1 && chunk > 0 && chunk <= CHUNK_MAX / row_size;
    uint64_t most = (report->file_size + 1) * INFLATE_MAX;
    good = good && size <= most / row_size;
    H5Pclose(creation);
    H5Sclose(space);
    *count = size;
    return good;
}

static hid_t open_dataset(struct as_report *report, const char *name)
{
    hid_t access = H5Pcreate(H5P_DATASET_ACCESS);
    H5Pset_chunk_cache(access, 521, CHUNK_CACHE, 1.0);
    hid_t dataset = H5Dopen2(report->file, name, access);
    H5Pclose(access);
    return dataset;
}

static int open_table(struct as_report *report, enum as_table id, struct as_error *error)
{
    const char *name = as_tables[id].name;
    struct table *table = &report->tables[id];
    if (H5Lexists(report->file, name, H5P_DEFAULT) <= 0)
        return AS_OK;
    table->dataset = open_dataset(report, name);
    if (table->dataset < 0)
        return damaged(report, error, name);
    hid_t type = H5Dget_type(table->dataset);
    int rc = AS_OK;
    if (H5Tget_class(type) != H5T_COMPOUND ||
        !check_extent(report, table->dataset, H5Tget_size(type), &table->count))
        rc = damaged(report, error, name);
    else
        rc = match_fields(report, id, type, error);
    H5Tclose(type);
    return rc;
}

/* Packs texts [first, first + count), read into `rows`, behind those that are there. */
static int pack_strings(struct as_report *report, const char *rows, size_t width, size_t first,
                        size_t count, struct as_error *error)
{
    for (size_t i = 0; i < count; i++) {
        const char *text = rows + i * width;
        size_t length = strnlen(text, width);
        size_t wanted = report->text_size + length + 1;
        if (wanted > report->text_capacity) {
            size_t capacity = wanted + wanted / 2 + 4096;
            char *grown = realloc(report->text, capacity);
            if (grown == NULL)
                return as_fail_memory(error, capacity, "the strings of a report");
            report->text = grown;
            report->text_capacity = capacity;
        }
        memcpy(report->text + report->text_size, text, length);
        report->text[wanted - 1] = '\0';
        report->offsets[first + i] = report->text_size;
        report->text_size = wanted;
    }
    return AS_OK;
}

static int read_string_rows(struct as_report *report, hid_t dataset, hid_t type, size_t width,
                            uint64_t count, struct as_error *error)
{
    size_t rows = STRING_BUFFER / width;
    char *buffer = as_calloc(error, rows, width, "the strings of a report");
    report->offsets = as_calloc(error, count, sizeof *report->offsets, "the strings of a report");
    int rc = buffer == NULL || report->offsets == NULL ? AS_ERR_MEMORY : AS_OK;
    hid_t file_space = H5Dget_space(dataset);
    for (uint64_t at = 0; rc == AS_OK && at < count; at += rows) {
        hsize_t start = at, length = count - at < rows ? count - at : rows;
        hid_t memory_space = H5Screate_simple(1, &length, NULL);
        if (H5Sselect_hyperslab(file_space, H5S_SELECT_SET, &start, NULL, &length, NULL) < 0 ||
            H5Dread(dataset, type, memory_space, file_space, H5P_DEFAULT, buffer) < 0)
            rc = damaged(report, error, "/strings");
        H5Sclose(memory_space);
        if (rc == AS_OK)
            rc = pack_strings(report, buffer, width, (size_t)at, (size_t)length, error);
    }
    H5Sclose(file_space);
    free(buffer);
    report->string_count = rc == AS_OK ? (uint32_t)count : 0;
    return rc;
}

static int read_strings(struct as_report *report, struct as_error *error)
{
    uint64_t count = 0;
    hid_t dataset = open_dataset(report, "/strings");
    hid_t type = dataset < 0 ? -1 : H5Dget_type(dataset);
    size_t width = type < 0 ? 0 : H5Tget_size(type);
    int rc = AS_OK;
    if (type < 0 || H5Tget_class(type) != H5T_STRING || H5Tis_variable_str(type) != 0 ||
        width == 0 || width > STRING_WIDTH_MAX || !check_extent(report, dataset, width, &count) ||
        count >= AS_UNKNOWN_U32)
        rc = damaged(report, error, "/strings");
    else
        rc = read_string_rows(report, dataset, type, width, count, error);
    if (type >= 0)
        H5Tclose(type);
    if (dataset >= 0)
        H5Dclose(dataset);
    return rc;
}

/* --- opening --- */

static int check_content(struct as_report *report, int fd, struct as_error *error)
{
    static const char signature[8] = "\211HDF\r\n\032\n";
    char start[8] = {0};
    if (read(fd, start, sizeof start) != sizeof start || memcmp(start, signature, 8) != 0)
        return as_fail(error, AS_ERR_DATA,
                       "opening the report %s: it is not an HDF5 file (%llu bytes)", report->path,
                       (unsigned long long)report->file_size);
    enum as_seal seal;
    int rc = as_seal_check(fd, report->file_size, report->path, &seal, error);
    if (rc == AS_OK && seal == AS_SEAL_BROKEN)
        rc = as_fail(error, AS_ERR_DATA,
                     "opening the report %s: it is damaged (its checksum is wrong); get another "
                     "copy, or recover it from its work folder",
                     report->path);
    report->sealed = seal == AS_SEAL_GOOD;
    return rc;
}

/* The system's word on a file that cannot be read, and ours on one that cannot be a report. */
static int check_file(struct as_report *report, struct as_error *error)
{
    struct stat status;
    int fd = open(report->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return as_fail_errno(error, AS_ERR_IO, "opening the report %s", report->path);
    int rc;
    if (fstat(fd, &status) != 0) {
        rc = as_fail_errno(error, AS_ERR_IO, "opening the report %s", report->path);
    } else if (!S_ISREG(status.st_mode)) {
        rc = as_fail(error, AS_ERR_DATA, "opening the report %s: it is not a file", report->path);
    } else {
        report->file_size = (uint64_t)status.st_size;
        rc = check_content(report, fd, error);
    }
    close(fd);
    return rc;
}

static int open_all(struct as_report *report, const char *path, struct as_error *error)
{
    report->path = as_strdup(error, path);
    if (report->path == NULL)
        return AS_ERR_MEMORY;
    int rc = check_file(report, error);
    if (rc != AS_OK)
        return rc;
    hid_t access = as_hdf5_read_access();
    report->file = H5Fopen(path, H5F_ACC_RDONLY, access);
    H5Pclose(access);
    if (report->file < 0)
        return as_fail_hdf5(error, AS_ERR_DATA,
                            "opening the report %s: it is truncated, damaged or locked", path);
    rc = read_attributes(report, error);
    if (rc == AS_OK)
        rc = read_strings(report, error);
    for (int t = 0; rc == AS_OK && t < AS_TABLE_COUNT; t++)
        rc = open_table(report, (enum as_table)t, error);
    return rc;
}

struct as_report *as_report_open(const char *path, struct as_error *error)
{
    as_hdf5_begin();
    struct as_report *report = as_calloc(error, 1, sizeof *report, "a report");
    if (report == NULL)
        return NULL;
    report->file = -1;
    for (int t = 0; t < AS_TABLE_COUNT; t++)
        report->tables[t].dataset = report->tables[t].type = -1;
    if (open_all(report, path, error) == AS_OK)
        return report;
    as_report_close(report);
    return NULL;
}

void as_report_close(struct as_report *report)
{
    if (report == NULL)
        return;
    for (int t = 0; t < AS_TABLE_COUNT; t++) {
        if (report->tables[t].type >= 0)
            H5Tclose(report->tables[t].type);
        if (report->tables[t].dataset >= 0)
            H5Dclose(report->tables[t].dataset);
    }
    if (report->file >= 0)
        H5Fclose(report->file);
    for (size_t i = 0; i < report->attribute_count; i++) {
        free(report->attributes[i].key);
        free(report->attributes[i].text);
    }
    free(report->attributes);
    free(report->text);
    free(report->offsets);
    free(report->path);
    free(report);
}

/* --- using --- */

const char *as_report_path(const struct as_report *report)
{
    return report->path;
}

bool as_report_sealed(const struct as_report *report)
{
    return report->sealed;
}

unsigned as_report_schema_minor(const struct as_report *report)
{
    return report->minor;
}

uint64_t as_report_count(const struct as_report *report, enum as_table table)
{
    return report->tables[table].count;
}

int as_report_read_range(struct as_report *report, enum as_table id, uint64_t first, size_t count,
                         void *rows, struct as_error *error)
{
    const struct table *table = &report->tables[id];
    const size_t size = as_tables[id].row_size;
    if (first > table->count || count > table->count - first)
        return as_fail(error, AS_ERR_INTERNAL, "reading rows %llu to %llu of %s, which has %llu",
                       (unsigned long long)first, (unsigned long long)(first + count),
                       as_tables[id].name, (unsigned long long)table->count);
    if (count == 0)
        return AS_OK;
    if (!table->whole) {
        as_row_unknown(id, rows);
        for (size_t i = 1; i < count; i++)
            memcpy((char *)rows + i * size, rows, size);
    }
    as_hdf5_begin();
    hsize_t start = first, length = count;
    hid_t file_space = H5Dget_space(table->dataset);
    hid_t memory_space = H5Screate_simple(1, &length, NULL);
    herr_t rc = H5Sselect_hyperslab(file_space, H5S_SELECT_SET, &start, NULL, &length, NULL);
    if (rc >= 0)
        rc = H5Dread(table->dataset, table->type, memory_space, file_space, H5P_DEFAULT, rows);
    H5Sclose(memory_space);
    H5Sclose(file_space);
    return rc < 0 ? damaged(report, error, as_tables[id].name) : AS_OK;
}

int as_report_read(struct as_report *report, enum as_table table, void **rows, size_t *count,
                   struct as_error *error)
{
    *count = (size_t)report->tables[table].count;
    *rows = as_calloc(error, *count, as_tables[table].row_size, as_tables[table].name);
    if (*rows == NULL)
        return AS_ERR_MEMORY;
    int rc = as_report_read_range(report, table, 0, *count, *rows, error);
    if (rc != AS_OK) {
        free(*rows);
        *rows = NULL;
        *count = 0;
    }
    return rc;
}

const char *as_report_string(const struct as_report *report, uint32_t id)
{
    return id < report->string_count ? report->text + report->offsets[id] : NULL;
}

uint32_t as_report_string_count(const struct as_report *report)
{
    return report->string_count;
}

const char *as_report_attribute(const struct as_report *report, const char *key)
{
    const struct attribute *attribute = find_attribute(report, key);
    return attribute != NULL && attribute->type == 's' ? attribute->text : NULL;
}

bool as_report_attribute_u64(const struct as_report *report, const char *key, uint64_t *value)
{
    const struct attribute *attribute = find_attribute(report, key);
    if (attribute == NULL || attribute->type != 'u')
        return false;
    *value = attribute->u64;
    return true;
}

bool as_report_attribute_f64(const struct as_report *report, const char *key, double *value)
{
    const struct attribute *attribute = find_attribute(report, key);
    if (attribute == NULL || attribute->type == 's')
        return false;
    *value = attribute->type == 'f' ? attribute->f64 : (double)attribute->u64;
    return true;
}

const char *as_report_attribute_at(const struct as_report *report, size_t index, const char **value)
{
    if (index >= report->attribute_count)
        return NULL;
    *value = report->attributes[index].text;
    return report->attributes[index].key;
}
