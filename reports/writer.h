/* Writing a report file: rows in any order of tables, buffered by chunk; strings and attributes;
 * then all of it under its name at once, or nothing. One thread. */
#ifndef AS_WRITER_H
#define AS_WRITER_H

#include <stddef.h>
#include <stdint.h>

#include "as_error.h"
#include "schema.h"

struct as_writer;

/* Begins "<path>.partial"; NULL with the message in `error` when it cannot be written. */
struct as_writer *as_writer_create(const char *path, struct as_error *error);

/* Appends rows (structs of schema.h with ids of this report). */
int as_writer_rows(struct as_writer *writer, enum as_table table, const void *rows, size_t count,
                   struct as_error *error);
uint64_t as_writer_count(const struct as_writer *writer, enum as_table table);

/* The report's id of a string, cut at AS_STRING_MAX bytes; AS_UNKNOWN_U32 for NULL or, with the
 * message in `error`, when memory ends. */
uint32_t as_writer_string(struct as_writer *writer, const char *text, size_t size,
                          struct as_error *error);
uint32_t as_writer_cut_strings(const struct as_writer *writer);

/* Root attributes; the last of a name wins. */
int as_writer_attribute(struct as_writer *writer, const char *key, const char *value,
                        struct as_error *error);
int as_writer_attribute_u64(struct as_writer *writer, const char *key, uint64_t value,
                            struct as_error *error);
int as_writer_attribute_f64(struct as_writer *writer, const char *key, double value,
                            struct as_error *error);

/* Completes, fsyncs and renames the file, and frees the writer whether or not that worked. After
 * a failure nothing of it is left, and an older report of that name stands untouched. */
int as_writer_finish(struct as_writer *writer, struct as_error *error);

/* Removes what was begun and frees. NULL is allowed. */
void as_writer_abandon(struct as_writer *writer);

#endif
