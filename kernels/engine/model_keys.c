/* Metadata by key, with type and range checked. */
#include "model_internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "as_memory.h"

int as_model_refuse_key(const struct as_gguf_entry *entry, int code, struct as_error *error,
                        const char *format, ...)
{
    char message[512], quoted[80];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return as_fail(error, code, "metadata key %s at byte %zu: %s",
                   as_gguf_quote(quoted, entry->key), entry->at, message);
}

/* Finds `key`; a missing one that is required is refused. */
static int find(const struct as_gguf *gguf, const char *key, bool required,
                const struct as_gguf_entry **entry, struct as_error *error)
{
    *entry = as_gguf_find(gguf, key);
    if (*entry != NULL || !required)
        return 0;
    return as_fail(error, AS_ERR_DATA,
                   "metadata: the key %s is missing (%zu keys are there); convert the model again "
                   "with a current tool",
                   key, gguf->entry_count);
}

static int refuse_type(const struct as_gguf_entry *entry, const char *wanted,
                       struct as_error *error)
{
    if (entry->type == AS_GGUF_ARRAY)
        return as_model_refuse_key(entry, AS_ERR_UNSUPPORTED, error,
                                   "it is an array of %s, must be one %s (values that differ from "
                                   "layer to layer are not served)",
                                   as_gguf_value_name(entry->element), wanted);
    return as_model_refuse_key(entry, AS_ERR_DATA, error, "it is of type %s, must be %s",
                               as_gguf_value_name(entry->type), wanted);
}

int as_model_key_u32(const struct as_gguf *gguf, const char *key, bool required, uint32_t least,
                     uint32_t most, uint32_t *value, struct as_error *error)
{
    const struct as_gguf_entry *entry;
    int code = find(gguf, key, required, &entry, error);
    if (code != 0 || entry == NULL)
        return code;
    int64_t number;
    uint64_t large;
    if (!as_gguf_signed(entry, &number)) {
        if (!as_gguf_unsigned(entry, &large))
            return refuse_type(entry, "an integer", error);
        number = INT64_MAX;
    }
    if (number < (int64_t)least || number > (int64_t)most)
        return as_model_refuse_key(entry, AS_ERR_DATA, error, "it is %lld, must be from %u to %u",
                                   (long long)number, least, most);
    *value = (uint32_t)number;
    return 0;
}

int as_model_key_float(const struct as_gguf *gguf, const char *key, bool required, double least,
                       double most, float *value, struct as_error *error)
{
    const struct as_gguf_entry *entry;
    int code = find(gguf, key, required, &entry, error);
    if (code != 0 || entry == NULL)
        return code;
    double number;
    if (!as_gguf_float(entry, &number))
        return refuse_type(entry, "a float", error);
    if (!(number >= least && number <= most))
        return as_model_refuse_key(entry, AS_ERR_DATA, error, "it is %g, must be from %g to %g",
                                   number, least, most);
    *value = (float)number;
    return 0;
}

int as_model_key_bool(const struct as_gguf *gguf, const char *key, bool *value,
                      struct as_error *error)
{
    const struct as_gguf_entry *entry = as_gguf_find(gguf, key);
    if (entry == NULL || as_gguf_bool(entry, value))
        return 0;
    return refuse_type(entry, "a bool", error);
}

int as_model_key_text(const struct as_gguf *gguf, const char *key, bool required, char **value,
                      struct as_error *error)
{
    const struct as_gguf_entry *entry;
    *value = NULL;
    int code = find(gguf, key, required, &entry, error);
    if (code != 0 || entry == NULL)
        return code;
    struct as_bytes text;
    if (!as_gguf_string(entry, &text))
        return refuse_type(entry, "a string", error);
    if (memchr(text.bytes, '\0', text.length) != NULL)
        return as_model_refuse_key(entry, AS_ERR_DATA, error, "the text contains a NUL byte");
    char *copy = as_calloc(error, text.length + 1, 1, key);
    if (copy == NULL)
        return AS_ERR_MEMORY;
    memcpy(copy, text.bytes, text.length);
    *value = copy;
    return 0;
}
