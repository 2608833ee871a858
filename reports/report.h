/* Reading reports. Tables arrive as arrays of the structs of schema.h whatever minor version wrote
 * them: members are matched by name, fields that the file lacks are unknown, required ones that are
 * missing are an error. Files are read without locks (a report is immutable once it has its name),
 * so a locked, read-only or concurrently read file works. */
#ifndef AS_REPORT_H
#define AS_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "as_error.h"
#include "schema.h"

struct as_report;

/* Opens the report `path`; NULL with one message when it is missing, not HDF5, truncated, damaged,
 * incomplete, not a report of assay, or of another major version. */
struct as_report *as_report_open(const char *path, struct as_error *error);
void as_report_close(struct as_report *report);

const char *as_report_path(const struct as_report *report);
unsigned as_report_schema_minor(const struct as_report *report);

/* Whether the file is as assay wrote it; false when another program has edited it since. (A file
 * whose bytes were damaged is refused when it is opened.) */
bool as_report_sealed(const struct as_report *report);

/* Rows of `table`; 0 for a table that the file does not have. */
uint64_t as_report_count(const struct as_report *report, enum as_table table);

/* All rows of `table` in a new array that the caller frees (never NULL on success). */
int as_report_read(struct as_report *report, enum as_table table, void **rows, size_t *count,
                   struct as_error *error);

/* Rows [first, first + count) into `rows`, for tables too large to hold. */
int as_report_read_range(struct as_report *report, enum as_table table, uint64_t first,
                         size_t count, void *rows, struct as_error *error);

/* The string `id`, owned by the report; NULL for an unknown id. */
const char *as_report_string(const struct as_report *report, uint32_t id);
uint32_t as_report_string_count(const struct as_report *report);

/* Root attributes. The string is owned by the report; NULL when absent or not text. */
const char *as_report_attribute(const struct as_report *report, const char *key);
bool as_report_attribute_u64(const struct as_report *report, const char *key, uint64_t *value);
bool as_report_attribute_f64(const struct as_report *report, const char *key, double *value);

/* Attributes by index, in name order, values as text; NULL past the end. */
const char *as_report_attribute_at(const struct as_report *report, size_t index,
                                   const char **value);

#endif
