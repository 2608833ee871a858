/* One line of text as a JSON object, and the name of the field in which a line goes wrong. */
#include <stdio.h>
#include <string.h>

#include "as_text.h"
#include "parse.h"

struct frame {
    bool array;
    size_t index;    /* of the element, in an array */
    const char *key; /* of the value, in an object; NULL before the first */
    size_t key_size;
};

struct walk {
    struct frame frames[AS_WORKLOAD_DEPTH_LIMIT];
    size_t depth;
    bool too_deep;
    bool key_next; /* in an object: the next string is a key */
};

/* The byte behind the string that opens at `start`, or `size` where it never closes. */
static size_t string_end(const char *text, size_t size, size_t start)
{
    size_t i = start + 1;
    while (i < size && text[i] != '"')
        i += text[i] == '\\' ? 2 : 1;
    return i < size ? i + 1 : size;
}

static void open_frame(struct walk *walk, bool array)
{
    if (walk->depth == AS_WORKLOAD_DEPTH_LIMIT) {
        walk->too_deep = true;
        return;
    }
    walk->frames[walk->depth++] = (struct frame){.array = array};
    walk->key_next = !array;
}

/* Follows the nesting of `text` up to the byte `stop`. It asks nothing of the grammar: it must
 * also serve on what the parser refuses. */
static void follow(struct walk *walk, const char *text, size_t size, size_t stop)
{
    for (size_t i = 0; i < size && i < stop && !walk->too_deep;) {
        struct frame *top = walk->depth > 0 ? &walk->frames[walk->depth - 1] : NULL;
        char byte = text[i];
        if (byte == '"') {
            size_t end = string_end(text, size, i);
            if (top != NULL && !top->array && walk->key_next) {
                top->key = text + i + 1;
                top->key_size = end - i - (end - i >= 2 ? 2 : 1);
            }
            i = end;
            continue;
        }
        if (byte == '{' || byte == '[') {
            open_frame(walk, byte == '[');
        } else if ((byte == '}' || byte == ']') && top != NULL) {
            walk->depth--;
            walk->key_next = false;
        } else if (byte == ',' && top != NULL) {
            top->index++;
            walk->key_next = !top->array;
        } else if (byte == ':') {
            walk->key_next = false;
        }
        i++;
    }
}

/* Writes the path that `walk` stands at, such as `messages[2].content`; "" at the top. */
static void write_path(const struct walk *walk, char *path, size_t size)
{
    struct as_text text = {0};
    as_text_add(&text, "", 0);
    for (size_t i = 0; i < walk->depth; i++) {
        const struct frame *frame = &walk->frames[i];
        if (frame->array)
            as_text_addf(&text, "[%zu]", frame->index);
        else if (frame->key != NULL) {
            if (text.length > 0)
                as_text_add(&text, ".", 1);
            as_text_add(&text, frame->key, frame->key_size < 64 ? frame->key_size : 64);
        }
    }
    as_awl_excerpt(text.data != NULL && !text.failed ? text.data : "", path, size);
    as_text_free(&text);
}

/* Fails with the place of byte `at` of the line, counted from 1, and its field. */
static int bad_byte(const char *line, size_t size, size_t at, const char *what,
                    struct as_error *error)
{
    struct walk walk = {0};
    char path[96];
    follow(&walk, line, size, at);
    write_path(&walk, path, sizeof path);
    if (path[0] == '\0')
        return as_fail(error, AS_ERR_DATA, "byte %zu: %s", at, what);
    return as_fail(error, AS_ERR_DATA, "byte %zu, at field \"%s\": %s", at, path, what);
}

static const char *advice(enum json_error_code code)
{
    switch (code) {
    case json_error_numeric_overflow:
        return "; integers go up to 9223372036854775807, reals up to 1.8e308";
    case json_error_duplicate_key: return "; give each field once";
    case json_error_invalid_utf8: return "; save the file as UTF-8";
    case json_error_null_character:
    case json_error_null_byte_in_key: return "; take the NUL character out";
    case json_error_premature_end_of_input:
        return "; the line is cut short or a bracket or quote is missing";
    case json_error_end_of_input_expected:
        return "; put one object on a line, with nothing behind it";
    default: return "; write one JSON object on a line";
    }
}

json_t *as_awl_decode(const char *line, size_t size, struct as_error *error)
{
    if (size > AS_WORKLOAD_LINE_LIMIT) {
        as_fail(error, AS_ERR_DATA,
                "the line has %zu bytes, more than the limit of %zu; split the request", size,
                AS_WORKLOAD_LINE_LIMIT);
        return NULL;
    }
    const char *zero = memchr(line, '\0', size);
    if (zero != NULL) {
        bad_byte(line, size, (size_t)(zero - line) + 1,
                 "found a NUL byte; is this a text file? Take the byte out", error);
        return NULL;
    }
    struct walk walk = {0};
    follow(&walk, line, size, size);
    if (walk.too_deep) {
        char path[96];
        write_path(&walk, path, sizeof path);
        as_fail(error, AS_ERR_DATA, "field \"%s\": nested deeper than %d levels; flatten it", path,
                AS_WORKLOAD_DEPTH_LIMIT);
        return NULL;
    }
    json_error_t fault;
    json_t *json = json_loadb(line, size, JSON_REJECT_DUPLICATES, &fault);
    if (json == NULL) {
        enum json_error_code code = json_error_code(&fault);
        if (code == json_error_out_of_memory) {
            as_fail_memory(error, size, "a line of a workload");
            return NULL;
        }
        char found[256], what[384];
        bool null = code == json_error_null_character || code == json_error_null_byte_in_key;
        as_awl_excerpt(null ? "found the escape \\u0000" : fault.text, found, sizeof found);
        snprintf(what, sizeof what, "not valid JSON here: %s%s", found, advice(code));
        bad_byte(line, size, fault.position > 0 ? (size_t)fault.position : 0, what, error);
        return NULL;
    }
    if (!json_is_object(json)) {
        char found[96];
        as_fail(error, AS_ERR_DATA, "found %s; a line is one JSON object in braces",
                as_awl_found(json, found, sizeof found));
        json_decref(json);
        return NULL;
    }
    return json;
}
