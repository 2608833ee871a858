/* Crash-safe recording: a file a thread, preallocated and mapped shared, so that a put is a copy
 * and a checksum with no system call, and a SIGKILL loses at most the record being written.
 *
 * A spool describes its own tables (names, fields, types, offsets), so that one written by another
 * build can be merged by field name. Ids in rows are local: strings to the spool; problems,
 * variants and launches to the child (all spools of one folder run-<number>).
 *
 * One thread writes a spool at a time. Out of space is an error return: space is reserved before
 * anything is stored, and as_spool_create() makes the process ignore SIGXFSZ. */
#ifndef AS_SPOOL_H
#define AS_SPOOL_H

#include <stddef.h>
#include <stdint.h>

#include "as_error.h"
#include "schema.h"

/* Strings longer than this are cut at a UTF-8 boundary, here and in the report. */
#define AS_STRING_MAX 4096

/* The largest text value of an attribute; longer ones are refused. */
#define AS_ATTRIBUTE_MAX (4u << 20)

/* Names within a work folder; see merge.h. */
#define AS_SPOOL_PARENT "parent.spool"
#define AS_SPOOL_ENGINE "engine.spool"

/* "<work>/run-0007" and "<child>/thread-3.spool". Return 0, or AS_ERR_USAGE when `size` is too
 * small. */
int as_spool_child_folder(char *path, size_t size, const char *work, uint32_t run,
                          struct as_error *error);
int as_spool_thread_path(char *path, size_t size, const char *child, uint32_t thread,
                         struct as_error *error);

struct as_spool;

/* Creates (or empties) `path` with room for `reserve` bytes of records (0 = one step of 4 MiB),
 * faulted in. Returns NULL with the message in `error`. */
struct as_spool *as_spool_create(const char *path, size_t reserve, struct as_error *error);

/* Appends a row of `table`; `row` is its struct of schema.h. Returns 0 or a negative code; after a
 * failure every later put returns the same code, and as_spool_error() holds the message. */
int as_spool_put(struct as_spool *spool, enum as_table table, const void *row);

/* Makes room for `bytes` more of records now (a row costs its size + 16), so that the puts that
 * follow make no system call. Cheap when the room is there. */
int as_spool_reserve(struct as_spool *spool, size_t bytes);

/* The id of `text` in this spool, written on first use; AS_UNKNOWN_U32 for NULL and after a
 * failure. A hash lookup and at worst an allocation: not for the hot path. */
uint32_t as_spool_string(struct as_spool *spool, const char *text);

/* A named value for the report's root. The last of a key wins; a NULL is not written. */
int as_spool_attribute(struct as_spool *spool, const char *key, const char *value);
int as_spool_attribute_u64(struct as_spool *spool, const char *key, uint64_t value);
int as_spool_attribute_f64(struct as_spool *spool, const char *key, double value);

/* The first failure of this spool (code 0 while there is none). Owned by the spool. */
const struct as_error *as_spool_error(const struct as_spool *spool);

/* Bytes of the file in use. */
uint64_t as_spool_size(const struct as_spool *spool);

/* Cuts the file to what is in use and frees. Returns the spool's first failure, if any, with its
 * message in `error`. NULL is allowed. (No fsync: spools outlive the process, not the machine.) */
int as_spool_close(struct as_spool *spool, struct as_error *error);

/* --- reading --- */

enum as_record_kind { AS_RECORD_ROW, AS_RECORD_STRING, AS_RECORD_ATTRIBUTE };

struct as_record {
    enum as_record_kind kind;
    int table;        /* ROW: enum as_table, or -1 for a table this build does not know */
    const void *row;  /* ROW: this build's struct, ids still local to the writer */
    uint32_t id;      /* STRING */
    const char *text; /* STRING, ATTRIBUTE of type 's': NUL-terminated */
    size_t text_size; /* without the NUL */
    const char *key;  /* ATTRIBUTE */
    char type;        /* ATTRIBUTE: 's', 'u' or 'f' */
    uint64_t u64;
    double f64;
};

struct as_spool_reader;

/* Opens a spool for reading in order. A file without a valid header (killed before its first
 * record, or not a spool) is AS_ERR_DATA. Close with as_spool_reader_close(). */
struct as_spool_reader *as_spool_reader_open(const char *path, struct as_error *error);

/* 1 with the next record, 0 at the end, negative on a failed read. What `record` points to lives
 * until the next call. Reading stops at the first frame that is not whole; what lies behind it is
 * lost and counted. */
int as_spool_next(struct as_spool_reader *reader, struct as_record *record, struct as_error *error);

/* Back to the first record. */
void as_spool_rewind(struct as_spool_reader *reader);

/* After the end: bytes behind the last whole record that are not part of one (0 = none). */
uint64_t as_spool_dropped_bytes(const struct as_spool_reader *reader);

/* Fields (and tables) of the file that this build does not know and leaves out. */
uint32_t as_spool_ignored_fields(const struct as_spool_reader *reader);

void as_spool_reader_close(struct as_spool_reader *reader);

#endif
