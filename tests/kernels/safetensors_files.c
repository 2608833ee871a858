/* The safetensors reader: what must load (C16), what must not, and damage of every kind. */
#include "safetensors_image.h"

#include "as_random.h"

static const struct as_safetensors_tensor *find(const struct as_safetensors *file, const char *name)
{
    for (size_t i = 0; i < file->tensor_count; i++)
        if (file->tensors[i].name.length == strlen(name) &&
            memcmp(file->tensors[i].name.bytes, name, strlen(name)) == 0)
            return &file->tensors[i];
    cr_assert_fail("no tensor %s", name);
    return NULL;
}

/* C16: all of it in one file: padding, keys in another order than the data, empty tensors, a
 * scalar, an I64 beside the weights, a prefix, empty metadata. */
Test(safetensors_files, c16_unusual_but_valid)
{
    static const char json[] =
        "{\"bert.second\":{\"shape\":[2,3],\"data_offsets\":[8,32],\"dtype\":\"F32\"},"
        "\"__metadata__\":{},"
        "\"empty\":{\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[32,32]},"
        "\"embeddings.position_ids\":{\"dtype\":\"I64\",\"shape\":[1,2],\"data_offsets\":[36,52]},"
        "\"scalar\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[32,36]},"
        "\"other.empty\":{\"dtype\":\"BF16\",\"shape\":[3,0,7],\"data_offsets\":[0,0]},"
        "\"first\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,8]}}     ";
    struct as_text image = image_of(json, 52);
    void *copy;
    struct as_safetensors file = parse_image(&image, &copy);
    cr_assert_eq(file.tensor_count, 6);
    cr_assert_eq(file.entry_count, 0);
    const struct as_safetensors_tensor *tensor = find(&file, "bert.second");
    cr_assert(tensor->dimensions == 2 && tensor->dimension[0] == 2 && tensor->dimension[1] == 3);
    cr_assert(tensor->bytes == 24 && tensor->data[0] == 8 && tensor->data[23] == 31);
    cr_assert_eq(tensor->type->dtype, ASSAY_F32);
    tensor = find(&file, "first");
    cr_assert(tensor->bytes == 8 && tensor->data[0] == 0 && tensor->type->dtype == ASSAY_BF16);
    tensor = find(&file, "scalar");
    cr_assert(tensor->dimensions == 0 && tensor->bytes == 4 && tensor->data[0] == 32);
    tensor = find(&file, "embeddings.position_ids");
    cr_assert(tensor->bytes == 16 && tensor->data[0] == 36 && tensor->type->dtype == ASSAY_NONE);
    cr_assert_eq(find(&file, "empty")->bytes + find(&file, "other.empty")->bytes, 0);
    as_safetensors_free(&file);
    free(copy);
}

Test(safetensors_files, valid)
{
    static const struct {
        const char *json;
        size_t bytes, tensors, entries;
    } cases[] = {
        {"{}", 0, 0, 0},
        {"{} \n\t\r ", 0, 0, 0},
        {"{\"__metadata__\":{\"format\":\"pt\",\"\":\"\"}}", 0, 0, 2},
        {"{\"__metadata__\":null}", 0, 0, 0},
        {"{ \"a\" : { \"dtype\" : \"U8\" , \"shape\" : [ 3 ] , \"data_offsets\" : [ 0 , 3 ] } }", 3,
         1, 0},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[2,3],\"data_offsets\":[0,3]}}", 3, 1, 0},
        {"{\"a\":{\"dtype\":\"F6_E2M3\",\"shape\":[4],\"data_offsets\":[0,3]}}", 3, 1, 0},
        {"{\"a\":{\"dtype\":\"C64\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8, 1, 0},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1, 1, 0},
        {"{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[2],\"data_offsets\":[0,2],\"more\":[{\"x\":"
         "-1.5e+3,\"y\":[true,false,null,\"\\u00e9\\\"\"]}]}}",
         2, 1, 0},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0,18446744073709551615,18446744073709551615],"
         "\"data_offsets\":[0,0]}}",
         0, 1, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct as_text image = image_of(cases[i].json, cases[i].bytes);
        void *copy;
        struct as_safetensors file = parse_image(&image, &copy);
        cr_assert_eq(file.tensor_count, cases[i].tensors, "%s", cases[i].json);
        cr_assert_eq(file.entry_count, cases[i].entries, "%s", cases[i].json);
        as_safetensors_free(&file);
        free(copy);
    }
}

/* Names with escapes mean what JSON says; the same name spelt twice is twice the same. */
Test(safetensors_files, escaped_names)
{
    static const char json[] =
        "{\"__metadata__\":{\"\\u0041\\n\":\"\\ud83e\\udd99\\/\"},"
        "\"m\\u006fdel.\\u00e9\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
        "\"plain\":{\"dtype\":\"\\u00558\",\"shape\":[1],\"data_offsets\":[1,2]}}";
    struct as_text image = image_of(json, 2);
    void *copy;
    struct as_safetensors file = parse_image(&image, &copy);
    cr_assert_eq(find(&file, "model.\xc3\xa9")->bytes, 1);
    cr_assert_eq(find(&file, "plain")->data[0], 1);
    cr_assert_eq(file.entries[0].key.length, 2);
    cr_assert_eq(memcmp(file.entries[0].key.bytes, "A\n", 2), 0);
    cr_assert_eq(file.entries[0].value.length, 5);
    cr_assert_eq(memcmp(file.entries[0].value.bytes, "\xf0\x9f\xa6\x99/", 5), 0);
    as_safetensors_free(&file);
    free(copy);

    image = image_of("{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                     "\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                     2);
    expect_no_safetensors(&image, AS_ERR_DATA, "tensor a at byte", "given before, at byte 9");
}

#define ONE(fields) "{\"a\":{" fields "}}"

Test(safetensors_files, refused)
{
    static const struct {
        const char *json;
        size_t bytes;
        int code;
        const char *first, *second;
    } cases[] = {
        {"[]", 0, AS_ERR_DATA, "byte 8 is 0x5b", "must be '{'"},
        {" {}", 0, AS_ERR_DATA, "byte 8 is 0x20", "must be '{'"},
        {"{}x", 0, AS_ERR_DATA, "header: byte 10", "expected nothing more, found 'x'"},
        {"{\"a\"}", 0, AS_ERR_DATA, "byte 12", "expected ':', found '}'"},
        {"{\"a\":1}", 0, AS_ERR_DATA, "byte 13", "expected '{', found '1'"},
        {"{\"a\":{}", 0, AS_ERR_DATA, "tensor a at byte 9", "no dtype"},
        {ONE("\"dtype\":\"U8\""), 0, AS_ERR_DATA, "tensor a", "no shape"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1]"), 1, AS_ERR_DATA, "tensor a", "no data_offsets"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"dtype\":\"U8\""), 1,
         AS_ERR_DATA, "tensor a", "dtype twice"},
        {ONE("\"dtype\":\"Q4_1\",\"shape\":[1],\"data_offsets\":[0,1]"), 1, AS_ERR_UNSUPPORTED,
         "tensor a at byte 9", "unknown type 'Q4_1'"},
        {ONE("\"dtype\":\"u8\",\"shape\":[1],\"data_offsets\":[0,1]"), 1, AS_ERR_UNSUPPORTED,
         "unknown type", "'u8'"},
        {ONE("\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]"), 1, AS_ERR_DATA,
         "expected a string", "'8'"},
        {ONE("\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]"), 1, AS_ERR_DATA, "expected '['",
         "'1'"},
        {ONE("\"dtype\":\"U8\",\"shape\":[-1],\"data_offsets\":[0,1]"), 1, AS_ERR_DATA,
         "whole number", "'-'"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1.0],\"data_offsets\":[0,1]"), 1, AS_ERR_DATA,
         "expected a whole number", "byte"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1e0],\"data_offsets\":[0,1]"), 1, AS_ERR_DATA,
         "expected a whole number", "byte"},
        {ONE("\"dtype\":\"U8\",\"shape\":[01],\"data_offsets\":[0,1]"), 1, AS_ERR_DATA,
         "expected a whole number", "byte"},
        {ONE("\"dtype\":\"U8\",\"shape\":[18446744073709551616],\"data_offsets\":[0,1]"), 1,
         AS_ERR_DATA, "byte", "2^64 or more"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]"), 1,
         AS_ERR_UNSUPPORTED, "tensor a", "more than 8 dimensions"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1,],\"data_offsets\":[0,1]"), 1, AS_ERR_DATA,
         "whole number", "']'"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1 1],\"data_offsets\":[0,1]"), 1, AS_ERR_DATA,
         "expected ','", "'1'"},
        {ONE("\"dtype\":\"U8\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,1]"), 1,
         AS_ERR_DATA, "tensor a", "more than 2^64 bits"},
        {ONE("\"dtype\":\"F64\",\"shape\":[1152921504606846976],\"data_offsets\":[0,0]"), 0,
         AS_ERR_DATA, "tensor a", "more than 2^64 bits"},
        {ONE("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,7]"), 7, AS_ERR_DATA, "tensor a",
         "need 64 bits, its data has 7 bytes"},
        {ONE("\"dtype\":\"F32\",\"shape\":[0,4],\"data_offsets\":[0,4]"), 4, AS_ERR_DATA,
         "tensor a", "need 0 bits"},
        {ONE("\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]"), 2, AS_ERR_DATA, "tensor a",
         "need 12 bits"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,0]"), 1, AS_ERR_DATA, "tensor a",
         "ends at 0, before it begins at 1"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]"), 1, AS_ERR_DATA,
         "two data offsets", "found"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]"), 1, AS_ERR_DATA,
         "two data offsets", "found"},
        {ONE("\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]"), 1, AS_ERR_DATA, "tensor a",
         "ends at 2 of the data section, which has 1 bytes"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[18446744073709551614,"
             "18446744073709551615]"),
         1, AS_ERR_DATA, "tensor a", "ends at 18446744073709551615"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]"), 2, AS_ERR_DATA, "tensor a",
         "begins at 1, but the one before it ends at 0"},
        {ONE("\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]"), 2, AS_ERR_DATA, "1 bytes",
         "follow the last tensor"},
        {"{}", 1, AS_ERR_DATA, "1 bytes", "follow the last tensor"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[1,3]}}",
         3, AS_ERR_DATA, "tensor b", "begins at 1, but the one before it ends at 2"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
         2, AS_ERR_DATA, "tensor", "begins at 0, but the one before it ends at 2"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
         2, AS_ERR_DATA, "tensor a", "begins at 1, but the one before it ends at 2"},
        {"{\"__metadata__\":{\"a\":1}}", 0, AS_ERR_DATA, "expected a string", "'1'"},
        {"{\"__metadata__\":[]}", 0, AS_ERR_DATA, "expected '{'", "'['"},
        {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, AS_ERR_DATA, "__metadata__", "twice"},
        {"{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, AS_ERR_DATA,
         "1 to 512 bytes", "byte 9"},
        {"{\"a\\u0000\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, AS_ERR_DATA,
         "no NUL", "byte 9"},
        {"{\"a\\x\":{}}", 0, AS_ERR_DATA, "escape", "byte 11"},
        {"{\"a\\ud800\":{}}", 0, AS_ERR_DATA, "escape", "byte 11"},
        {"{\"a\\ud800\\u0041\":{}}", 0, AS_ERR_DATA, "escape", "byte 11"},
        {"{\"a\\udc00\":{}}", 0, AS_ERR_DATA, "escape", "byte 11"},
        {"{\"a\\u00g0\":{}}", 0, AS_ERR_DATA, "escape", "byte 11"},
        {"{\"a\n\":{}}", 0, AS_ERR_DATA, "character of the string", "0x0a"},
        {"{\"a", 0, AS_ERR_DATA, "the string's end", "the end"},
        {"{\"a\\", 0, AS_ERR_DATA, "escape", "byte 11"},
        {"{\"\xff\":{}}", 0, AS_ERR_DATA, "byte 10", "0xff is not UTF-8"},
        {"{\"\xc0\x80\":{}}", 0, AS_ERR_DATA, "byte 10", "not UTF-8"},
        {"{\"\xed\xa0\x80\":{}}", 0, AS_ERR_DATA, "byte 10", "not UTF-8"},
        {"{\"\xf4\x90\x80\x80\":{}}", 0, AS_ERR_DATA, "byte 10", "not UTF-8"},
        {"{\"\xe2\x82", 0, AS_ERR_DATA, "byte 10", "not UTF-8"},
        {ONE("\"x\":tru"), 0, AS_ERR_DATA, "expected true", "'t'"},
        {ONE("\"x\":nil"), 0, AS_ERR_DATA, "expected null", "'n'"},
        {ONE("\"x\":-"), 0, AS_ERR_DATA, "expected a digit", "'}'"},
        {ONE("\"x\":1."), 0, AS_ERR_DATA, "expected a digit", "'}'"},
        {ONE("\"x\":1e"), 0, AS_ERR_DATA, "expected a digit", "'}'"},
        {ONE("\"x\":00"), 0, AS_ERR_DATA, "leading 0", "'0'"},
        {ONE("\"x\":NaN"), 0, AS_ERR_DATA, "expected a value", "'N'"},
        {ONE("\"x\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]"), 0,
         AS_ERR_DATA, "nested deeper", "32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct as_text image = image_of(cases[i].json, cases[i].bytes);
        expect_no_safetensors(&image, cases[i].code, cases[i].first, cases[i].second);
    }
}

Test(safetensors_files, header_sizes)
{
    static const struct {
        uint64_t stated;
        const char *first;
    } cases[] = {
        {0, "states 0 bytes"},
        {1, "states 1 bytes"},
        {3, "states 3 bytes"},
        {(16 << 20) + 1, "more than the limit"},
        {(uint64_t)1 << 63, "more than the limit"},
        {UINT64_MAX - 1, "more than the limit"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct as_text image = {0};
        put_json(&image, cases[i].stated, "{}");
        expect_no_safetensors(&image, AS_ERR_DATA, cases[i].first, "header");
    }
    for (size_t bytes = 0; bytes < 8; bytes++) {
        struct as_text image = {0};
        put_zeros(&image, bytes);
        expect_no_safetensors(&image, AS_ERR_DATA, "header", "takes 8");
    }
}

/* ---- damage ------------------------------------------------------------------------------- */

static const char sample[] =
    "{\"__metadata__\":{\"format\":\"pt\",\"e\\u0073c\":\"\xc3\xa9\"},"
    "\"model.a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
    "\"model.b\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[24,32]},"
    "\"model.c\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[32,33]}}   ";

static uint64_t opened, refused, sink;

/* Either way is fine, as long as it is clean and what is promised can be read. */
static void try_parse(const void *bytes, size_t size)
{
    struct as_safetensors file;
    struct as_error error = {0};
    int code = as_safetensors_parse(&file, bytes, size, &error);
    cr_assert_eq(code, error.code);
    if (code != 0) {
        refused++;
        cr_assert_gt(strlen(error.message), 10);
        cr_assert_null(file.tensors);
        return;
    }
    opened++;
    for (size_t i = 0; i < file.tensor_count; i++) {
        const struct as_safetensors_tensor *tensor = &file.tensors[i];
        sink += (uint8_t)tensor->name.bytes[0] + tensor->name.length;
        for (size_t j = 0; j < tensor->bytes; j++)
            sink += tensor->data[j];
    }
    for (size_t i = 0; i < file.entry_count; i++)
        for (size_t j = 0; j < file.entries[i].value.length; j++)
            sink += (uint8_t)file.entries[i].value.bytes[j];
    as_safetensors_free(&file);
}

Test(safetensors_files, cut_anywhere)
{
    struct as_text image = image_of(sample, 33);
    for (size_t kept = 0; kept <= image.length; kept++) {
        void *copy = exact_copy(image.data, kept);
        try_parse(copy, kept);
        free(copy);
    }
    cr_assert_eq(opened, 1);
    cr_assert_eq(refused, image.length);
    as_text_free(&image);
}

Test(safetensors_files, changed_bytes)
{
    struct as_text image = image_of(sample, 33);
    uint8_t *copy = exact_copy(image.data, image.length);
    for (size_t at = 0; at < image.length; at++)
        for (unsigned value = 0; value < 256; value++) {
            copy[at] = (uint8_t)value;
            try_parse(copy, image.length);
            copy[at] = (uint8_t)image.data[at];
        }
    for (uint64_t i = 0; i < 20000; i++) {
        size_t at[3];
        for (size_t j = 0; j < 3; j++) {
            at[j] = as_random_u64(5, j, i) % image.length;
            copy[at[j]] ^= (uint8_t)(1u << as_random_u64(6, j, i) % 8);
        }
        try_parse(copy, image.length);
        for (size_t j = 0; j < 3; j++)
            copy[at[j]] = (uint8_t)image.data[at[j]];
    }
    cr_assert_gt(opened, 256);
    cr_assert_gt(refused, 10000);
    free(copy);
    as_text_free(&image);
}

/* Pieces of JSON put together at random: the scanner's own damage. */
Test(safetensors_files, shuffled_pieces)
{
    static const char *const pieces[] = {"{",         "}",
                                         "[",         "]",
                                         ",",         ":",
                                         "\"a\"",     "\"__metadata__\"",
                                         "0",         "18446744073709551615",
                                         "-1",        "1e5",
                                         "true",      "null",
                                         "\"dtype\"", "\"F32\"",
                                         "\"shape\"", "\"data_offsets\"",
                                         "\"\\u00",   "\"\\ud83e\\udd99\"",
                                         " ",         "\""};
    for (uint64_t i = 0; i < 20000; i++) {
        struct as_text json = {0};
        as_text_add(&json, "{", 1);
        for (uint64_t j = 0; j < as_random_u64(7, 0, i) % 30; j++) {
            const char *piece = pieces[as_random_u64(8, j, i) % (sizeof pieces / sizeof pieces[0])];
            as_text_add(&json, piece, strlen(piece));
        }
        struct as_text image = image_of(json.data, 4);
        void *copy = exact_copy(image.data, image.length);
        try_parse(copy, image.length);
        free(copy);
        as_text_free(&image);
        as_text_free(&json);
    }
    cr_assert_gt(refused, 15000);
}
