/* What rows say of each other: ids are unique, and `after` names a row without going in a
 * circle. Linear in the number of rows. */
#include <inttypes.h>
#include <string.h>

#include "as_hash.h"
#include "as_memory.h"
#include "parse.h"

/* Open addressing over request indices plus one (0 is empty), at most half full. A file within
 * the reader's limit has fewer than 2^32 rows by far. */
struct index {
    const struct as_workload *workload;
    uint32_t *slots;
    size_t mask;
};

/* The slot that holds `id`, or the empty one where it belongs. The hash is seeded by the digest
 * of the whole file, so a file cannot be written to make its own ids collide. */
static size_t find_slot(const struct index *index, const char *id)
{
    size_t slot = as_hash64(id, strlen(id), index->workload->digest) & index->mask;
    while (index->slots[slot] != 0 &&
           strcmp(index->workload->requests[index->slots[slot] - 1].id, id) != 0)
        slot = (slot + 1) & index->mask;
    return slot;
}

static int fill(struct index *index, struct as_error *error)
{
    const struct as_workload *workload = index->workload;
    for (size_t i = 0; i < workload->count; i++) {
        const struct as_workload_request *request = &workload->requests[i];
        size_t slot = find_slot(index, request->id);
        if (index->slots[slot] != 0)
            return as_fail(error, AS_ERR_DATA,
                           "line %" PRIu64 ": field \"id\": \"%s\" is taken by line %" PRIu64
                           "; give each request an id of its own",
                           request->line, request->id,
                           workload->requests[index->slots[slot] - 1].line);
        index->slots[slot] = (uint32_t)(i + 1);
    }
    return 0;
}

static int resolve(const struct index *index, struct as_workload *workload,
                   const char *const *afters, struct as_error *error)
{
    for (size_t i = 0; i < workload->count; i++) {
        if (afters[i] == NULL)
            continue;
        uint32_t found = index->slots[find_slot(index, afters[i])];
        if (found == 0)
            return as_fail(error, AS_ERR_DATA,
                           "line %" PRIu64 ": field \"after.id\": no request has the id \"%s\"; "
                           "name one of this file",
                           workload->requests[i].line, afters[i]);
        workload->requests[i].after = found - 1;
    }
    return 0;
}

static int circle(const struct as_workload_request *requests, size_t at, struct as_error *error)
{
    const struct as_workload_request *one = &requests[at], *other = &requests[one->after];
    if (one == other)
        return as_fail(error, AS_ERR_DATA,
                       "line %" PRIu64 ": field \"after.id\": \"%s\" waits for itself; name "
                       "another request or give \"at_ns\"",
                       one->line, one->id);
    return as_fail(error, AS_ERR_DATA,
                   "line %" PRIu64 ": field \"after.id\": \"%s\" waits for \"%s\" (line %" PRIu64
                   "), which waits for it in turn; give one of them \"at_ns\"",
                   one->line, one->id, other->id, other->line);
}

/* Each row waits for at most one other, so from every row there is one path upward; a path that
 * comes back to a row of its own is a circle. */
static int refuse_circles(const struct as_workload *workload, struct as_error *error)
{
    enum { UNSEEN, ON_PATH, DONE };
    const struct as_workload_request *requests = workload->requests;
    unsigned char *states = as_calloc(error, workload->count, 1, "the order of a workload");
    if (states == NULL)
        return AS_ERR_MEMORY;
    int code = 0;
    for (size_t i = 0; i < workload->count && code == 0; i++) {
        size_t at = i;
        while (at != AS_WORKLOAD_NO_REQUEST && states[at] == UNSEEN) {
            states[at] = ON_PATH;
            at = requests[at].after;
        }
        if (at != AS_WORKLOAD_NO_REQUEST && states[at] == ON_PATH)
            code = circle(requests, at, error);
        for (at = i; at != AS_WORKLOAD_NO_REQUEST && states[at] == ON_PATH; at = requests[at].after)
            states[at] = DONE;
    }
    free(states);
    return code;
}

int as_awl_link(struct as_workload *workload, const char *const *afters, struct as_error *error)
{
    size_t slots = 16;
    while (slots < workload->count * 2)
        slots *= 2;
    struct index index = {.workload = workload, .mask = slots - 1};
    index.slots = as_calloc(error, slots, sizeof *index.slots, "the ids of a workload");
    if (index.slots == NULL)
        return AS_ERR_MEMORY;
    int code = fill(&index, error);
    if (code == 0)
        code = resolve(&index, workload, afters, error);
    free(index.slots);
    return code == 0 ? refuse_circles(workload, error) : code;
}
