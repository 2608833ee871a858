/* Decoding every stored format as the `gguf` package does, bit for bit (tests/golden/blocks). */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "engine/gguf.h"
#include "engine/quantize.h"

static enum assay_dtype dtype_of(const char *name)
{
    for (unsigned dtype = 0; dtype < ASSAY_DTYPES; dtype++)
        if (strcmp(assay_dtype(dtype)->name, name) == 0)
            return dtype;
    cr_assert_fail("no dtype %s", name);
    return ASSAY_NONE;
}

/* The bytes behind a hexadecimal member; freed by the caller. */
static void *unhex(const json_t *object, const char *member, size_t *size)
{
    const char *text = json_string_value(json_object_get(object, member));
    *size = strlen(text) / 2;
    uint8_t *bytes = malloc(*size + 1);
    for (size_t i = 0; i < *size; i++) {
        const char pair[3] = {text[2 * i], text[2 * i + 1], 0};
        bytes[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return bytes;
}

Test(model_dequantize, as_gguf_does)
{
    size_t index, seen[ASSAY_DTYPES] = {0};
    json_error_t failure;
    json_t *entry,
        *golden = json_load_file(ASSAY_SOURCE_DIR "/tests/golden/blocks/blocks.json", 0, &failure);
    cr_assert_not_null(golden, "%s", failure.text);
    json_array_foreach(json_object_get(golden, "blocks"), index, entry)
    {
        const char *what = json_string_value(json_object_get(entry, "what"));
        enum assay_dtype dtype = dtype_of(json_string_value(json_object_get(entry, "type")));
        size_t size, value_bytes;
        void *stored = unhex(entry, "bytes", &size);
        float *wanted = unhex(entry, "values", &value_bytes);
        size_t count = value_bytes / sizeof *wanted;
        float *values = malloc(value_bytes);
        cr_assert(as_dequantize_serves(dtype), "%s", assay_dtype(dtype)->name);
        cr_assert_eq(assay_row_bytes(dtype, (int64_t)count), size);
        as_dequantize(dtype, stored, values, count);
        for (size_t i = 0; i < count; i++)
            cr_assert_eq(memcmp(&values[i], &wanted[i], sizeof *values), 0,
                         "%s, %s, element %zu: %a, want %a", assay_dtype(dtype)->name, what, i,
                         (double)values[i], (double)wanted[i]);
        seen[dtype]++;
        free(values);
        free(wanted);
        free(stored);
    }
    for (unsigned dtype = 0; dtype < ASSAY_DTYPES; dtype++)
        cr_assert_eq(seen[dtype] > 0, as_dequantize_serves(dtype), "%s", assay_dtype(dtype)->name);
    json_decref(golden);
}

/* Several blocks one after the other are decoded as each alone. */
Test(model_dequantize, many_blocks)
{
    for (unsigned dtype = 0; dtype < ASSAY_DTYPES; dtype++) {
        if (!as_dequantize_serves(dtype))
            continue;
        size_t block = (size_t)assay_dtype(dtype)->block, bytes = (size_t)assay_dtype(dtype)->bytes;
        uint8_t *stored = malloc(5 * bytes);
        float *together = malloc(5 * block * 4), *alone = malloc(5 * block * 4);
        for (size_t i = 0; i < 5 * bytes; i++)
            stored[i] = (uint8_t)(i * 37 + 11);
        as_dequantize(dtype, stored, together, 5 * block);
        for (size_t i = 0; i < 5; i++)
            as_dequantize(dtype, stored + i * bytes, alone + i * block, block);
        cr_assert_eq(memcmp(together, alone, 5 * block * 4), 0, "%s", assay_dtype(dtype)->name);
        free(stored);
        free(together);
        free(alone);
    }
}

/* The three tables that say what a type is agree: GGUF's, the dtypes', the decoders'. */
Test(model_dequantize, tables_agree)
{
    size_t served = 0;
    for (uint32_t id = 0; id < 64; id++) {
        const struct as_gguf_type *type = as_gguf_type(id);
        if (type == NULL)
            continue;
        served += type->served;
        cr_assert(!type->served || type->dtype != ASSAY_NONE, "%s", type->name);
        if (type->dtype == ASSAY_NONE)
            continue;
        cr_assert_eq(type->served, as_dequantize_serves(type->dtype), "%s", type->name);
        cr_assert_eq(type->block, (uint32_t)assay_dtype(type->dtype)->block, "%s", type->name);
        cr_assert_eq(type->bytes, (uint32_t)assay_dtype(type->dtype)->bytes, "%s", type->name);
        cr_assert_eq(as_gguf_type_of(type->dtype), type);
    }
    cr_assert_eq(served, 11);
}
