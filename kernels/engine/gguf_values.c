/* Metadata values out of a parsed file. Their bytes were found to be all there by the parser; they
 * are not aligned. */
#include "gguf.h"

#include <string.h>

bool as_gguf_signed(const struct as_gguf_entry *entry, int64_t *value)
{
    uint64_t bits = 0;
    size_t size = as_gguf_value_size(entry->type);
    memcpy(&bits, entry->data, size);
    switch (entry->type) {
    case AS_GGUF_U8:
    case AS_GGUF_U16:
    case AS_GGUF_U32: *value = (int64_t)bits; return true;
    case AS_GGUF_I8: *value = (int8_t)bits; return true;
    case AS_GGUF_I16: *value = (int16_t)bits; return true;
    case AS_GGUF_I32: *value = (int32_t)bits; return true;
    case AS_GGUF_I64: *value = (int64_t)bits; return true;
    case AS_GGUF_U64: *value = (int64_t)bits; return bits <= INT64_MAX;
    default: return false;
    }
}

bool as_gguf_unsigned(const struct as_gguf_entry *entry, uint64_t *value)
{
    if (entry->type == AS_GGUF_U64) {
        memcpy(value, entry->data, sizeof *value);
        return true;
    }
    int64_t number;
    if (!as_gguf_signed(entry, &number) || number < 0)
        return false;
    *value = (uint64_t)number;
    return true;
}

bool as_gguf_float(const struct as_gguf_entry *entry, double *value)
{
    float single;
    if (entry->type == AS_GGUF_F32) {
        memcpy(&single, entry->data, sizeof single);
        *value = (double)single;
        return true;
    }
    if (entry->type != AS_GGUF_F64)
        return false;
    memcpy(value, entry->data, sizeof *value);
    return true;
}

bool as_gguf_bool(const struct as_gguf_entry *entry, bool *value)
{
    if (entry->type != AS_GGUF_BOOL)
        return false;
    *value = *entry->data != 0;
    return true;
}

/* The string at `data`, whose length was checked when the file was parsed. */
static struct as_bytes string_at(const uint8_t *data)
{
    uint64_t length;
    memcpy(&length, data, sizeof length);
    return (struct as_bytes){(const char *)data + sizeof length, (size_t)length};
}

bool as_gguf_string(const struct as_gguf_entry *entry, struct as_bytes *value)
{
    if (entry->type != AS_GGUF_STRING)
        return false;
    *value = string_at(entry->data);
    return true;
}

void as_gguf_strings(const struct as_gguf_entry *entry, struct as_bytes *strings)
{
    const uint8_t *at = entry->data;
    if (entry->type != AS_GGUF_ARRAY || entry->element != AS_GGUF_STRING)
        return;
    for (uint64_t i = 0; i < entry->count; i++) {
        strings[i] = string_at(at);
        at += 8 + strings[i].length;
    }
}
