/* Private to the room: memory of a workload, typed fields with their messages, and the rows. */
#ifndef AS_WORKLOAD_PARSE_H
#define AS_WORKLOAD_PARSE_H

#include <jansson.h>

#include "workload.h"

/* `count` zeroed elements that live as long as the workload, or NULL with the message. */
void *as_awl_alloc(struct as_workload *workload, size_t count, size_t size, struct as_error *error);
char *as_awl_copy(struct as_workload *workload, const char *text, struct as_error *error);
void as_awl_free_arena(struct as_workload *workload);

/* One JSON object under the reader's eyes. `path` is its own place in the row, "" for the row
 * itself, so that a field is named "out.n" or "messages[2].role". */
struct as_awl_object {
    json_t *json;
    const char *path;
    struct as_workload *workload;
    struct as_error *error;
};

/* Every reading below leaves `*value` alone where the field is absent and returns 0; where it
 * is there but wrong, AS_ERR_DATA with a message that names it. */

/* Refuses any field that is not in `names`, offering the nearest. */
int as_awl_known(const struct as_awl_object *object, const char *const *names, size_t count);
int as_awl_u64(const struct as_awl_object *object, const char *field, uint64_t least, uint64_t most,
               uint64_t *value);
int as_awl_real(const struct as_awl_object *object, const char *field, double *value);
int as_awl_bool(const struct as_awl_object *object, const char *field, bool *value);
/* Any text, perhaps empty. */
int as_awl_text(const struct as_awl_object *object, const char *field, const char **value);
/* A name: 1 to 256 bytes without control characters. */
int as_awl_name(const struct as_awl_object *object, const char *field, const char **value);
/* A SHA-256 in hex. */
int as_awl_sha256(const struct as_awl_object *object, const char *field, const char **value);
/* `*inner` gets json NULL where the field is absent. Its path is `path`, of `path_size` bytes. */
int as_awl_inner(const struct as_awl_object *object, const char *field, struct as_awl_object *inner,
                 char *path, size_t path_size);
int as_awl_array(const struct as_awl_object *object, const char *field, json_t **value);

/* The value of an integer that stands in an array: element `index` of `field`. */
int as_awl_element(const struct as_awl_object *object, const char *field, size_t index,
                   const json_t *json, uint64_t least, uint64_t most, uint64_t *value);

/* Fails with `field "PATH.FIELD": <formatted>`. Returns AS_ERR_DATA. */
int as_awl_bad(const struct as_awl_object *object, const char *field, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* What stands there, in a few safe words for a message. */
const char *as_awl_found(const json_t *json, char *words, size_t size);

/* At most 60 bytes of `text`, control characters replaced, cut at a character's edge. */
const char *as_awl_excerpt(const char *text, char *words, size_t size);

/* One line as a JSON object (release with json_decref), or NULL with the message. */
json_t *as_awl_decode(const char *line, size_t size, struct as_error *error);

/* The header line, and one row. `*after` gets the id that the row waits for, or NULL. */
int as_awl_header(struct as_workload *workload, json_t *json, struct as_error *error);
int as_awl_row(struct as_workload *workload, struct as_workload_request *request,
               const char **after, json_t *json, struct as_error *error);

/* Ids unique, `after` resolved from `afters` (an id or NULL per request) and free of cycles. */
int as_awl_link(struct as_workload *workload, const char *const *afters, struct as_error *error);

/* The seed of a sampled row that names none. */
uint64_t as_awl_default_seed(const struct as_workload *workload, const char *id);

#endif
