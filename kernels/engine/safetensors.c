#include "safetensors.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "as_memory.h"
#include "gguf.h"
#include "safetensors_json.h"

#define DAMAGED "; the file is damaged or incomplete: fetch or convert it again"

/* Dtype of safetensors/src/tensor.rs */
static const struct as_safetensors_type types[] = {
    {"F32", 32, ASSAY_F32},         {"F16", 16, ASSAY_F16},     {"BF16", 16, ASSAY_BF16},
    {"I32", 32, ASSAY_I32},         {"BOOL", 8, ASSAY_NONE},    {"U8", 8, ASSAY_NONE},
    {"I8", 8, ASSAY_NONE},          {"I16", 16, ASSAY_NONE},    {"U16", 16, ASSAY_NONE},
    {"U32", 32, ASSAY_NONE},        {"I64", 64, ASSAY_NONE},    {"U64", 64, ASSAY_NONE},
    {"F64", 64, ASSAY_NONE},        {"C64", 64, ASSAY_NONE},    {"F8_E4M3", 8, ASSAY_NONE},
    {"F8_E5M2", 8, ASSAY_NONE},     {"F8_E8M0", 8, ASSAY_NONE}, {"F8_E4M3FNUZ", 8, ASSAY_NONE},
    {"F4", 4, ASSAY_NONE},          {"F6_E2M3", 6, ASSAY_NONE}, {"F6_E3M2", 6, ASSAY_NONE},
    {"F8_E5M2FNUZ", 8, ASSAY_NONE},
};

static bool equal(struct as_bytes text, const char *word)
{
    return text.length == strlen(word) && memcmp(text.bytes, word, text.length) == 0;
}

static const struct as_safetensors_type *find_type(struct as_bytes name)
{
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (equal(name, types[i].name))
            return &types[i];
    return NULL;
}

/* Fails with "tensor <name> at byte <place>: <message>". */
static int refuse(const struct as_safetensors_tensor *tensor, int code, struct as_error *error,
                  const char *format, ...) __attribute__((format(printf, 4, 5)));

static int refuse(const struct as_safetensors_tensor *tensor, int code, struct as_error *error,
                  const char *format, ...)
{
    char message[512], quoted[80];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return as_fail(error, code, "tensor %s at byte %zu: %s", as_gguf_quote(quoted, tensor->name),
                   tensor->at, message);
}

/* ---- entries ------------------------------------------------------------------------------ */

static int read_metadata(struct as_safetensors *file, struct as_scan *scan)
{
    bool first = true, more = true;
    if (as_scan_peek(scan) == 'n') /* null, as serde reads an Option */
        return as_scan_skip(scan);
    int code = as_scan_enter(scan, '{');
    while (code == 0) {
        if ((code = as_scan_next(scan, '}', &first, &more)) != 0 || !more)
            return code;
        if (file->entry_count >= AS_SAFETENSORS_TENSOR_LIMIT)
            return as_fail(scan->error, AS_ERR_DATA,
                           "byte %zu: __metadata__ has more entries than the limit of %u",
                           scan->offset + scan->at, AS_SAFETENSORS_TENSOR_LIMIT);
        code = as_grow(scan->error, &file->entries, &file->entry_capacity, file->entry_count,
                       sizeof *file->entries, "the metadata");
        if (code != 0)
            return code;
        struct as_safetensors_entry *entry = &file->entries[file->entry_count++];
        if ((code = as_scan_key(scan, &entry->key)) == 0)
            code = as_scan_string(scan, &entry->value);
    }
    return code;
}

static int read_shape(struct as_scan *scan, struct as_safetensors_tensor *tensor)
{
    bool first = true, more = true;
    int code = as_scan_enter(scan, '[');
    tensor->dimensions = 0;
    while (code == 0) {
        if ((code = as_scan_next(scan, ']', &first, &more)) != 0 || !more)
            return code;
        if (tensor->dimensions == AS_SAFETENSORS_DIMENSIONS)
            return refuse(tensor, AS_ERR_UNSUPPORTED, scan->error, "it has more than %u dimensions",
                          AS_SAFETENSORS_DIMENSIONS);
        code = as_scan_unsigned(scan, &tensor->dimension[tensor->dimensions]);
        tensor->dimensions += code == 0;
    }
    return code;
}

static int read_offsets(struct as_scan *scan, struct as_safetensors_tensor *tensor)
{
    uint64_t *const offsets[] = {&tensor->begin, &tensor->end};
    bool first = true, more = true;
    int code = as_scan_enter(scan, '[');
    for (size_t i = 0; code == 0 && i < 3; i++) {
        if ((code = as_scan_next(scan, ']', &first, &more)) != 0)
            return code;
        if (more != (i < 2))
            return as_scan_expected(scan, "two data offsets");
        if (more)
            code = as_scan_unsigned(scan, offsets[i]);
    }
    return code;
}

static int read_type(struct as_scan *scan, struct as_safetensors_tensor *tensor)
{
    struct as_bytes name;
    char quoted[80];
    int code = as_scan_string(scan, &name);
    if (code != 0)
        return code;
    tensor->type = find_type(name);
    return tensor->type != NULL
               ? 0
               : refuse(tensor, AS_ERR_UNSUPPORTED, scan->error, "it is of the unknown type '%s'",
                        as_gguf_quote(quoted, name));
}

/* The object behind a tensor's name; members of other names are passed over, as serde does. */
static int read_fields(struct as_scan *scan, struct as_safetensors_tensor *tensor)
{
    static const struct {
        const char *name;
        int (*read)(struct as_scan *, struct as_safetensors_tensor *);
    } fields[] = {{"dtype", read_type}, {"shape", read_shape}, {"data_offsets", read_offsets}};
    bool first = true, more = true, seen[3] = {false};
    int code = as_scan_enter(scan, '{');
    while (code == 0) {
        struct as_bytes key;
        if ((code = as_scan_next(scan, '}', &first, &more)) != 0 || !more)
            break;
        if ((code = as_scan_key(scan, &key)) != 0)
            return code;
        size_t field = 0;
        while (field < 3 && !equal(key, fields[field].name))
            field++;
        if (field == 3) {
            code = as_scan_skip(scan);
        } else if (seen[field]) {
            return refuse(tensor, AS_ERR_DATA, scan->error, "it has %s twice" DAMAGED,
                          fields[field].name);
        } else {
            seen[field] = true;
            code = fields[field].read(scan, tensor);
        }
    }
    for (size_t i = 0; i < 3 && code == 0; i++)
        if (!seen[i])
            code = refuse(tensor, AS_ERR_DATA, scan->error, "it has no %s" DAMAGED, fields[i].name);
    return code;
}

/* The data must be exactly what type and shape ask for. */
static int measure(struct as_safetensors_tensor *tensor, struct as_error *error)
{
    uint64_t bits = tensor->type->bits;
    bool overflow = false, empty = false;
    for (uint32_t i = 0; i < tensor->dimensions; i++) {
        empty = empty || tensor->dimension[i] == 0;
        overflow = overflow || __builtin_mul_overflow(bits, tensor->dimension[i], &bits);
    }
    if (overflow && !empty)
        return refuse(tensor, AS_ERR_DATA, error,
                      "its dimensions multiply to more than 2^64 bits" DAMAGED);
    bits = empty ? 0 : bits;
    if (tensor->end < tensor->begin)
        return refuse(tensor, AS_ERR_DATA, error,
                      "its data ends at %llu, before it begins at %llu" DAMAGED,
                      (unsigned long long)tensor->end, (unsigned long long)tensor->begin);
    if (bits % 8 != 0 || bits / 8 != tensor->end - tensor->begin)
        return refuse(tensor, AS_ERR_DATA, error,
                      "its shape and type %s need %llu bits, its data has %llu bytes (%llu to "
                      "%llu)" DAMAGED,
                      tensor->type->name, (unsigned long long)bits,
                      (unsigned long long)(tensor->end - tensor->begin),
                      (unsigned long long)tensor->begin, (unsigned long long)tensor->end);
    tensor->bytes = (size_t)(bits / 8);
    return 0;
}

static int read_tensor(struct as_safetensors *file, struct as_scan *scan, struct as_bytes name,
                       size_t at)
{
    if (file->tensor_count >= AS_SAFETENSORS_TENSOR_LIMIT)
        return as_fail(scan->error, AS_ERR_DATA, "byte %zu: more tensors than the limit of %u", at,
                       AS_SAFETENSORS_TENSOR_LIMIT);
    if (name.length == 0 || name.length > AS_SAFETENSORS_NAME_LIMIT ||
        memchr(name.bytes, '\0', name.length) != NULL)
        return as_fail(scan->error, AS_ERR_DATA,
                       "byte %zu: a tensor's name must have 1 to %u bytes and no NUL" DAMAGED, at,
                       AS_SAFETENSORS_NAME_LIMIT);
    int code = as_grow(scan->error, &file->tensors, &file->tensor_capacity, file->tensor_count,
                       sizeof *file->tensors, "the tensors");
    if (code != 0)
        return code;
    struct as_safetensors_tensor *tensor = &file->tensors[file->tensor_count++];
    tensor->name = name;
    tensor->at = at;
    code = read_fields(scan, tensor);
    return code != 0 ? code : measure(tensor, scan->error);
}

static int read_header(struct as_safetensors *file, struct as_scan *scan)
{
    bool first = true, more = true, metadata = false;
    int code = as_scan_enter(scan, '{');
    while (code == 0) {
        struct as_bytes name;
        if ((code = as_scan_next(scan, '}', &first, &more)) != 0 || !more)
            break;
        as_scan_peek(scan);
        size_t at = scan->offset + scan->at;
        if ((code = as_scan_key(scan, &name)) != 0)
            return code;
        if (!equal(name, "__metadata__"))
            code = read_tensor(file, scan, name, at);
        else if (metadata)
            return as_fail(scan->error, AS_ERR_DATA, "byte %zu: __metadata__ comes twice" DAMAGED,
                           at);
        else
            code = read_metadata(file, scan);
        metadata = metadata || equal(name, "__metadata__");
    }
    return code != 0 ? code : as_scan_finish(scan);
}

/* ---- the data ----------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    const struct as_safetensors_tensor *const *left = a, *const *right = b;
    struct as_bytes x = (*left)->name, y = (*right)->name;
    int order = memcmp(x.bytes, y.bytes, x.length < y.length ? x.length : y.length);
    if (order == 0)
        order = (x.length > y.length) - (x.length < y.length);
    return order != 0 ? order : (*left > *right) - (*left < *right);
}

static int compare_data(const void *a, const void *b)
{
    const struct as_safetensors_tensor *const *left = a, *const *right = b;
    int order = ((*left)->begin > (*right)->begin) - ((*left)->begin < (*right)->begin);
    return order != 0 ? order : ((*left)->end > (*right)->end) - ((*left)->end < (*right)->end);
}

/* The data section is filled from its start to the end of the file, each byte by one tensor. */
static int check_filled(const struct as_safetensors *file,
                        const struct as_safetensors_tensor *const *sorted, struct as_error *error)
{
    size_t room = file->size - file->data_offset;
    uint64_t filled = 0;
    for (size_t i = 0; i < file->tensor_count; i++) {
        const struct as_safetensors_tensor *tensor = sorted[i];
        if (tensor->end > room)
            return refuse(tensor, AS_ERR_DATA, error,
                          "its data ends at %llu of the data section, which has %zu bytes (from "
                          "byte %zu to the end of the file)" DAMAGED,
                          (unsigned long long)tensor->end, room, file->data_offset);
        if (tensor->begin != filled)
            return refuse(tensor, AS_ERR_DATA, error,
                          "its data begins at %llu, but the one before it ends at %llu" DAMAGED,
                          (unsigned long long)tensor->begin, (unsigned long long)filled);
        filled = tensor->end;
    }
    if (filled != room)
        return as_fail(error, AS_ERR_DATA,
                       "byte %zu: %zu bytes follow the last tensor's data" DAMAGED,
                       file->data_offset + (size_t)filled, room - (size_t)filled);
    return 0;
}

static int check_tensors(struct as_safetensors *file, struct as_error *error)
{
    const struct as_safetensors_tensor **sorted =
        as_calloc(error, file->tensor_count, sizeof *sorted, "the tensors");
    int code = sorted == NULL ? AS_ERR_MEMORY : 0;
    for (size_t i = 0; i < file->tensor_count && code == 0; i++)
        sorted[i] = &file->tensors[i];
    if (code == 0)
        qsort(sorted, file->tensor_count, sizeof *sorted, compare_names);
    for (size_t i = 1; i < file->tensor_count && code == 0; i++)
        if (sorted[i]->name.length == sorted[i - 1]->name.length &&
            memcmp(sorted[i]->name.bytes, sorted[i - 1]->name.bytes, sorted[i]->name.length) == 0)
            code = refuse(sorted[i], AS_ERR_DATA, error,
                          "the name was given before, at byte %zu" DAMAGED, sorted[i - 1]->at);
    if (code == 0) {
        qsort(sorted, file->tensor_count, sizeof *sorted, compare_data);
        code = check_filled(file, sorted, error);
    }
    for (size_t i = 0; i < file->tensor_count && code == 0; i++)
        file->tensors[i].data = file->base + file->data_offset + (size_t)file->tensors[i].begin;
    free(sorted);
    return code;
}

/* ---- file --------------------------------------------------------------------------------- */

static int find_header(struct as_safetensors *file, struct as_error *error)
{
    uint64_t length = 0;
    if (file->size < 8)
        return as_fail(error, AS_ERR_DATA,
                       "header: the file has %zu bytes, the header's size alone takes 8" DAMAGED,
                       file->size);
    memcpy(&length, file->base, sizeof length);
    if (length > AS_SAFETENSORS_HEADER_LIMIT)
        return as_fail(error, AS_ERR_DATA,
                       "header: it states %llu bytes of JSON, more than the limit of %zu; the file "
                       "is damaged or no safetensors file",
                       (unsigned long long)length, AS_SAFETENSORS_HEADER_LIMIT);
    if (length < 2 || length > file->size - 8)
        return as_fail(error, AS_ERR_DATA,
                       "header: it states %llu bytes of JSON, where the file has %zu left" DAMAGED,
                       (unsigned long long)length, file->size - 8);
    if (file->base[8] != '{')
        return as_fail(error, AS_ERR_DATA,
                       "header: byte 8 is 0x%02x, must be '{'; the file is damaged or no "
                       "safetensors file",
                       file->base[8]);
    file->data_offset = 8 + (size_t)length;
    return 0;
}

int as_safetensors_parse(struct as_safetensors *file, const void *base, size_t size,
                         struct as_error *error)
{
    struct as_error local = {0};
    struct as_scan scan = {0};
    error = error != NULL ? error : &local;
    *file = (struct as_safetensors){.base = base, .size = size};
    int code = find_header(file, error);
    if (code == 0)
        code = as_scan_begin(&scan, (const char *)file->base + 8, file->data_offset - 8, 8, error);
    if (code == 0 && (code = read_header(file, &scan)) != 0)
        as_error_prefix(error, "header");
    if (code == 0)
        code = check_tensors(file, error);
    file->decoded = scan.decoded;
    if (code != 0)
        as_safetensors_free(file);
    return code;
}

void as_safetensors_free(struct as_safetensors *file)
{
    if (file == NULL)
        return;
    free(file->tensors);
    free(file->entries);
    free(file->decoded);
    *file = (struct as_safetensors){0};
}
