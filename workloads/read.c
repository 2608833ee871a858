/* Workload files, line by line. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "as_file.h"
#include "as_hash.h"
#include "as_memory.h"
#include "parse.h"

struct reader {
    struct as_workload *workload;
    struct as_error *error;
    const char **afters; /* per request: the id it waits for, or NULL */
    size_t request_capacity, after_capacity;
    uint64_t line, header_line; /* 0 before the header */
};

static int take_header(struct reader *reader, json_t *json)
{
    reader->header_line = reader->line;
    return as_awl_header(reader->workload, json, reader->error);
}

static int take_row(struct reader *reader, json_t *json)
{
    struct as_workload *workload = reader->workload;
    int code = as_grow(reader->error, &workload->requests, &reader->request_capacity,
                       workload->count, sizeof *workload->requests, "the rows of a workload");
    if (code != 0 ||
        (code = as_grow(reader->error, &reader->afters, &reader->after_capacity, workload->count,
                        sizeof *reader->afters, "the rows of a workload")) != 0)
        return code;
    struct as_workload_request *request = &workload->requests[workload->count];
    request->line = reader->line;
    code = as_awl_row(workload, request, &reader->afters[workload->count], json, reader->error);
    if (code == 0)
        workload->count++;
    return code;
}

static int take_line(struct reader *reader, const char *line, size_t size)
{
    json_t *json = as_awl_decode(line, size, reader->error);
    int code = AS_ERR_DATA;
    if (json != NULL)
        code = reader->header_line == 0 ? take_header(reader, json) : take_row(reader, json);
    json_decref(json);
    if (code == 0)
        return 0;
    as_error_prefix(reader->error, "line %" PRIu64, reader->line);
    return reader->error != NULL ? reader->error->code : code;
}

static bool is_blank(const char *line, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r')
            return false;
    return true;
}

static int take_lines(struct reader *reader, const char *bytes, size_t size)
{
    size_t at = size >= 3 && memcmp(bytes, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (at < size) {
        const char *line = bytes + at;
        const char *end = memchr(line, '\n', size - at);
        size_t length = end != NULL ? (size_t)(end - line) : size - at;
        at += length + (end != NULL);
        reader->line++;
        if (is_blank(line, length))
            continue;
        bool header = reader->header_line == 0;
        int code = take_line(reader, line, length);
        if (code != 0)
            return code;
        if (header)
            reader->workload->body_offset = at;
    }
    if (reader->header_line == 0)
        return as_fail(reader->error, AS_ERR_DATA,
                       "line 1: field \"assay_workload\": the file has no lines; the first is the "
                       "header, at least {\"assay_workload\": %d}",
                       AS_WORKLOAD_VERSION);
    return 0;
}

/* A workload without a name goes by that of its file. */
static int name_workload(struct as_workload *workload, const char *path, struct as_error *error)
{
    static const char *const endings[] = {".awl.jsonl", ".jsonl"};
    if (workload->header.name != NULL)
        return 0;
    const char *slash = strrchr(path, '/');
    char *name = as_awl_copy(workload, slash != NULL ? slash + 1 : path, error);
    if (name == NULL)
        return AS_ERR_MEMORY;
    for (size_t i = 0; i < 2; i++) {
        size_t length = strlen(name), cut = strlen(endings[i]);
        if (length > cut && strcmp(name + length - cut, endings[i]) == 0)
            name[length - cut] = '\0';
    }
    workload->header.name = name;
    return 0;
}

static int take_all(struct reader *reader, const char *bytes, size_t size, const char *name)
{
    struct as_workload *workload = reader->workload;
    struct as_error *error = reader->error;
    workload->digest = as_hash64(bytes, size, 0);
    snprintf(workload->digest_hex, sizeof workload->digest_hex, "%016" PRIx64, workload->digest);
    int code = take_lines(reader, bytes, size);
    if (code != 0)
        return code;
    const struct as_workload_header *header = &workload->header;
    if (header->rows != AS_WORKLOAD_NO_U64 && header->rows != workload->count)
        return as_fail(error, AS_ERR_DATA,
                       "line %" PRIu64 ": field \"rows\": says %" PRIu64 ", but %zu follow; is the "
                       "file whole? Correct or leave out \"rows\"",
                       reader->header_line, header->rows, workload->count);
    if ((code = as_awl_link(workload, reader->afters, error)) != 0)
        return code;
    workload->total = workload->count;
    return name_workload(workload, name, error);
}

int as_workload_parse(struct as_workload **workload, const char *bytes, size_t size,
                      const char *name, struct as_error *error)
{
    *workload = NULL;
    struct as_workload *made = as_calloc(error, 1, sizeof *made, "a workload");
    if (made == NULL)
        return AS_ERR_MEMORY;
    made->header.rows = made->header.block_tokens = made->header.tokenizer.vocab =
        AS_WORKLOAD_NO_U64;
    struct reader reader = {.workload = made, .error = error};
    int code = take_all(&reader, bytes, size, name);
    free(reader.afters);
    if (code == 0) {
        *workload = made;
        return 0;
    }
    as_workload_free(made);
    /* The end of a long path tells more than its start, and the message must keep its room. */
    size_t length = strlen(name);
    as_error_prefix(error, "%s%s", length > 300 ? "..." : "",
                    length > 300 ? name + length - 300 : name);
    return code;
}

int as_workload_read(struct as_workload **workload, const char *path, struct as_error *error)
{
    char *bytes;
    size_t size;
    *workload = NULL;
    int code = as_read_file(&bytes, &size, path, AS_WORKLOAD_FILE_LIMIT, error);
    if (code != 0)
        return code;
    code = as_workload_parse(workload, bytes, size, path, error);
    free(bytes);
    return code;
}
