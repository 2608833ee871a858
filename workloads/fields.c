/* Typed fields of a JSON object, each with a message that says which, what was found and what
 * belongs there. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "as_text.h"
#include "parse.h"

#define NAME_BYTES 256

const char *as_awl_excerpt(const char *text, char *words, size_t size)
{
    size_t length = strlen(text);
    bool cut = length >= size;
    if (cut) {
        length = size - 4;
        while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
            length--;
    }
    for (size_t i = 0; i < length; i++) {
        unsigned char byte = (unsigned char)text[i];
        words[i] = byte < 0x20 || byte == 0x7f ? '?' : text[i];
    }
    strcpy(words + length, cut ? "..." : "");
    return words;
}

const char *as_awl_found(const json_t *json, char *words, size_t size)
{
    char text[64];
    switch (json_typeof(json)) {
    case JSON_STRING:
        snprintf(words, size, "\"%s\"", as_awl_excerpt(json_string_value(json), text, sizeof text));
        break;
    case JSON_INTEGER:
        snprintf(words, size, "%" JSON_INTEGER_FORMAT, json_integer_value(json));
        break;
    case JSON_REAL: snprintf(words, size, "the real number %.17g", json_real_value(json)); break;
    case JSON_ARRAY: snprintf(words, size, "an array of %zu", json_array_size(json)); break;
    case JSON_OBJECT: snprintf(words, size, "an object"); break;
    default:
        snprintf(words, size, "%s",
                 json_is_null(json)   ? "null"
                 : json_is_true(json) ? "true"
                                      : "false");
    }
    return words;
}

int as_awl_bad(const struct as_awl_object *object, const char *field, const char *format, ...)
{
    char what[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    const char *dot = object->path[0] != '\0' && field[0] != '\0' ? "." : "";
    return as_fail(object->error, AS_ERR_DATA, "field \"%s%s%s\": %s", object->path, dot, field,
                   what);
}

int as_awl_known(const struct as_awl_object *object, const char *const *names, size_t count)
{
    const char *key;
    json_t *value;
    json_object_foreach(object->json, key, value)
    {
        bool known = false;
        for (size_t i = 0; i < count && !known; i++)
            known = strcmp(key, names[i]) == 0;
        if (known)
            continue;
        char shown[64];
        as_awl_excerpt(key, shown, sizeof shown);
        const char *near = as_nearest(key, names, count);
        if (near != NULL)
            return as_awl_bad(object, shown, "unknown; did you mean \"%s\"?", near);
        struct as_text list = {0};
        for (size_t i = 0; i < count; i++)
            as_text_addf(&list, "%s%s", i > 0 ? ", " : "", names[i]);
        int code = as_awl_bad(object, shown, "unknown; known here: %s",
                              list.failed ? "(out of memory)" : list.data);
        as_text_free(&list);
        return code;
    }
    return 0;
}

static int integer(const struct as_awl_object *object, const char *field, const json_t *json,
                   uint64_t least, uint64_t most, uint64_t *value)
{
    char found[96];
    json_int_t got = json_integer_value(json);
    if (json_is_real(json))
        return as_awl_bad(object, field,
                          "found %s; write an integer in digits alone, without point or exponent",
                          as_awl_found(json, found, sizeof found));
    if (!json_is_integer(json) || got < 0 || (uint64_t)got < least || (uint64_t)got > most)
        return as_awl_bad(object, field, "found %s; give an integer from %" PRIu64 " to %" PRIu64,
                          as_awl_found(json, found, sizeof found), least, most);
    *value = (uint64_t)got;
    return 0;
}

int as_awl_u64(const struct as_awl_object *object, const char *field, uint64_t least, uint64_t most,
               uint64_t *value)
{
    const json_t *json = json_object_get(object->json, field);
    return json == NULL ? 0 : integer(object, field, json, least, most, value);
}

int as_awl_element(const struct as_awl_object *object, const char *field, size_t index,
                   const json_t *json, uint64_t least, uint64_t most, uint64_t *value)
{
    json_int_t got = json_integer_value(json);
    if (json_is_integer(json) && got >= 0 && (uint64_t)got >= least && (uint64_t)got <= most) {
        *value = (uint64_t)got;
        return 0;
    }
    char name[96];
    snprintf(name, sizeof name, "%s[%zu]", field, index);
    return integer(object, name, json, least, most, value);
}

int as_awl_real(const struct as_awl_object *object, const char *field, double *value)
{
    const json_t *json = json_object_get(object->json, field);
    if (json == NULL)
        return 0;
    char found[96];
    if (!json_is_number(json) || !isfinite(json_number_value(json)))
        return as_awl_bad(object, field, "found %s; give a number",
                          as_awl_found(json, found, sizeof found));
    *value = json_number_value(json);
    return 0;
}

int as_awl_bool(const struct as_awl_object *object, const char *field, bool *value)
{
    const json_t *json = json_object_get(object->json, field);
    if (json == NULL)
        return 0;
    char found[96];
    if (!json_is_boolean(json))
        return as_awl_bad(object, field, "found %s; give true or false",
                          as_awl_found(json, found, sizeof found));
    *value = json_is_true(json);
    return 0;
}

int as_awl_text(const struct as_awl_object *object, const char *field, const char **value)
{
    const json_t *json = json_object_get(object->json, field);
    if (json == NULL)
        return 0;
    char found[96];
    if (!json_is_string(json))
        return as_awl_bad(object, field, "found %s; give a string",
                          as_awl_found(json, found, sizeof found));
    *value = as_awl_copy(object->workload, json_string_value(json), object->error);
    return *value == NULL ? AS_ERR_MEMORY : 0;
}

int as_awl_name(const struct as_awl_object *object, const char *field, const char **value)
{
    const char *text = NULL;
    int code = as_awl_text(object, field, &text);
    if (code != 0 || text == NULL)
        return code;
    size_t length = strlen(text);
    if (length == 0 || length > NAME_BYTES)
        return as_awl_bad(object, field, "found %zu bytes; give a name of 1 to %d", length,
                          NAME_BYTES);
    for (const unsigned char *byte = (const unsigned char *)text; *byte != '\0'; byte++)
        if (*byte < 0x20 || *byte == 0x7f)
            return as_awl_bad(object, field,
                              "found the control character 0x%02x; names are plain text", *byte);
    *value = text;
    return 0;
}

int as_awl_sha256(const struct as_awl_object *object, const char *field, const char **value)
{
    const char *text = NULL;
    int code = as_awl_text(object, field, &text);
    if (code != 0 || text == NULL)
        return code;
    if (strlen(text) != 64 || strspn(text, "0123456789abcdefABCDEF") != 64) {
        char shown[72];
        return as_awl_bad(object, field, "found \"%s\"; a SHA-256 is 64 hex digits",
                          as_awl_excerpt(text, shown, sizeof shown));
    }
    *value = text;
    return 0;
}

int as_awl_inner(const struct as_awl_object *object, const char *field, struct as_awl_object *inner,
                 char *path, size_t path_size)
{
    *inner = *object;
    inner->json = json_object_get(object->json, field);
    inner->path = path;
    snprintf(path, path_size, "%s%s%s", object->path, object->path[0] != '\0' ? "." : "", field);
    char found[96];
    if (inner->json != NULL && !json_is_object(inner->json))
        return as_awl_bad(object, field, "found %s; give an object in braces",
                          as_awl_found(inner->json, found, sizeof found));
    return 0;
}

int as_awl_array(const struct as_awl_object *object, const char *field, json_t **value)
{
    json_t *json = json_object_get(object->json, field);
    char found[96];
    if (json != NULL && !json_is_array(json))
        return as_awl_bad(object, field, "found %s; give an array in brackets",
                          as_awl_found(json, found, sizeof found));
    *value = json;
    return 0;
}
