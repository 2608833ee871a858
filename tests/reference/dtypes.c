/* Dequantisers and roundings against the `gguf` package's: bit for bit. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "reference.h"

static json_t *golden;

static void load(void)
{
    json_error_t error;
    golden = json_load_file(ASSAY_SOURCE_DIR "/tests/golden/blocks/blocks.json", 0, &error);
    cr_assert(golden != NULL, "blocks.json: %s", error.text);
}

static void unload(void)
{
    json_decref(golden);
}

static int dtype_of(const char *name)
{
    for (int i = 0; i < AS_REF_DTYPES; i++)
        if (strcmp(as_ref_dtype_name(i), name) == 0)
            return i;
    cr_assert_fail("no dtype %s", name);
    return -1;
}

/* The bytes behind a hexadecimal member; freed by the caller. */
static uint8_t *unhex(const json_t *object, const char *member, size_t *size)
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

static bool same_bits(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

TestSuite(dtypes, .init = load, .fini = unload);

Test(dtypes, blocks_dequantise_as_gguf_does)
{
    size_t index;
    int seen[AS_REF_DTYPES] = {0};
    json_t *entry;
    json_array_foreach(json_object_get(golden, "blocks"), index, entry)
    {
        const char *type = json_string_value(json_object_get(entry, "type"));
        const char *what = json_string_value(json_object_get(entry, "what"));
        int dtype = dtype_of(type);
        size_t size, value_bytes;
        uint8_t *stored = unhex(entry, "bytes", &size);
        uint8_t *values = unhex(entry, "values", &value_bytes);
        int64_t count = (int64_t)(value_bytes / sizeof(float));
        double *out = calloc((size_t)count, sizeof *out);
        cr_assert_eq(as_ref_dtype_bytes(dtype, count), (int64_t)size, "%s", type);
        cr_assert_eq(as_ref_dequantize(dtype, stored, out, count), 0);
        for (int64_t i = 0; i < count; i++) {
            float wanted;
            memcpy(&wanted, values + i * 4, sizeof wanted);
            cr_assert(same_bits(out[i], wanted), "%s, %s, element %d: %a, want %a", type, what,
                      (int)i, out[i], (double)wanted);
        }
        seen[dtype]++;
        free(out);
        free(values);
        free(stored);
    }
    for (int dtype = 0; dtype < AS_REF_Q8; dtype++)
        cr_assert_gt(seen[dtype], 0, "no golden for %s", as_ref_dtype_name(dtype));
}

Test(dtypes, values_round_as_stated)
{
    const json_t *rounding = json_object_get(golden, "rounding");
    int64_t rows = json_integer_value(json_object_get(rounding, "rows"));
    int64_t columns = json_integer_value(json_object_get(rounding, "columns"));
    size_t size, index;
    uint8_t *input = unhex(rounding, "in", &size);
    cr_assert_eq((int64_t)size, rows * columns * 4);
    double *x = calloc((size_t)(rows * columns), sizeof *x);
    json_t *entry;
    json_array_foreach(json_object_get(rounding, "out"), index, entry)
    {
        const char *type = json_string_value(json_object_get(entry, "type"));
        uint8_t *values = unhex(entry, "values", &size);
        as_ref_dequantize(AS_REF_F32, input, x, rows * columns);
        cr_assert_eq(as_ref_round(dtype_of(type), x, rows, columns), 0);
        for (int64_t i = 0; i < rows * columns; i++) {
            double wanted;
            memcpy(&wanted, values + i * 8, sizeof wanted);
            cr_assert(x[i] == wanted, "%s, element %d: %a, want %a", type, (int)i, x[i], wanted);
        }
        free(values);
    }
    free(x);
    free(input);
}

Test(dtypes, q8_blocks_start_anew_with_each_row_and_may_be_short)
{
    double x[2][40] = {{0}};
    x[0][0] = 127; /* d = 1 in the first block of the first row alone */
    x[0][1] = 0.4;
    x[0][33] = 0.4;
    x[1][1] = 0.4;
    as_ref_round(AS_REF_Q8, &x[0][0], 2, 40);
    cr_assert_eq(x[0][0], 127);
    cr_assert_eq(x[0][1], 0);
    cr_assert_float_eq(x[0][33], 0.4, 1e-7);
    cr_assert_float_eq(x[1][1], 0.4, 1e-7);
}

Test(dtypes, numbers_that_are_none_stay_visible)
{
    const int plain[] = {AS_REF_F32, AS_REF_F16, AS_REF_BF16};
    for (size_t i = 0; i < 3; i++) {
        double x[] = {NAN, INFINITY, -INFINITY, 1e39, -1e39, -0.0};
        as_ref_round(plain[i], x, 1, 6);
        cr_assert(isnan(x[0]) && x[1] == INFINITY && x[2] == -INFINITY);
        cr_assert(x[3] == INFINITY && x[4] == -INFINITY && same_bits(x[5], -0.0));
    }
    double block[64] = {1, NAN};
    block[40] = 1e-40; /* id = 127 / 1e-40 overflows float32 */
    as_ref_round(AS_REF_Q8, block, 1, 64);
    cr_assert(isnan(block[0]) && isnan(block[31]));
    cr_assert_eq(block[40], 0);
}

Test(dtypes, bf16_ties_go_to_even_and_carry)
{
    double x[] = {0x1.01p0, 0x1.03p0, 0x1.fffffep0, 0x1.fffffep127, 65519.0};
    as_ref_round(AS_REF_BF16, x, 1, 4);
    cr_assert(x[0] == 0x1.00p0 && x[1] == 0x1.04p0 && x[2] == 2 && x[3] == INFINITY);
    double y[] = {65519.0, 65520.0, 0x1p-25, 0x1.000002p-25, 0x1.ffcp-15};
    as_ref_round(AS_REF_F16, y, 1, 5);
    cr_assert(y[0] == 65504 && y[1] == INFINITY && y[2] == 0 && y[3] == 0x1p-24);
    cr_assert(y[4] == 0x1p-14);
}

Test(dtypes, what_cannot_be_is_refused)
{
    double out[64];
    uint8_t bytes[64] = {0};
    cr_assert_eq(as_ref_dequantize(AS_REF_Q4_1, bytes, out, 31), AS_ERR_DATA);
    cr_assert_eq(as_ref_dequantize(AS_REF_Q4_K, bytes, out, 32), AS_ERR_DATA);
    cr_assert_eq(as_ref_dequantize(AS_REF_Q8, bytes, out, 32), AS_ERR_UNSUPPORTED);
    cr_assert_eq(as_ref_dequantize(-1, bytes, out, 32), AS_ERR_UNSUPPORTED);
    cr_assert_eq(as_ref_dequantize(AS_REF_DTYPES, bytes, out, 32), AS_ERR_UNSUPPORTED);
    cr_assert_eq(as_ref_round(AS_REF_Q4_1, out, 1, 32), AS_ERR_UNSUPPORTED);
    cr_assert_eq(as_ref_dtype_bytes(AS_REF_Q4_1, -32), -1);
    cr_assert_eq(as_ref_dtype_bytes(AS_REF_F32, INT64_MAX / 2), -1);
    cr_assert_eq(as_ref_dtype_bytes(AS_REF_Q6_K, 512), 420);
    cr_assert_str_eq(as_ref_dtype_name(77), "?");
}
