/* GGUF files that must be refused in words: cases.md C12 and C14, counts, sizes, types, places. */
#include "gguf_image.h"

/* ---- C12 ---------------------------------------------------------------------------------- */

Test(gguf_refused, c12_zero_dimension)
{
    struct as_text image = {0};
    put_hex(&image,
            "4747554603000000 0100000000000000 0000000000000000 0100000000000000 74 02000000 "
            "0100000000000000 0000000000000000 00000000 0000000000000000");
    cr_assert_eq(image.length, 65);
    expect_refused(&image, AS_ERR_DATA, "tensor entry 0 (t)", "byte 24", "dimension 1", "0", NULL);
}

#define ALIGNMENT_ENTRY "1100000000000000 67656e6572616c2e616c69676e6d656e74"
#define ONE_ENTRY "4747554603000000 0000000000000000 0100000000000000" ALIGNMENT_ENTRY

Test(gguf_refused, c12_alignment)
{
    static const struct {
        const char *value, *text;
    } cases[] = {
        {"04000000 00000000", "alignment is 0"},
        {"04000000 18000000", "alignment is 24"},
        {"04000000 00000080", "alignment is 2147483648"},
        {"04000000 04000000", "alignment is 4"},
        {"05000000 20000000", "type i32"},
        {"08000000 0200000000000000 3332", "type string"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct as_text image = {0};
        put_hex(&image, ONE_ENTRY);
        put_hex(&image, cases[i].value);
        if (i == 0)
            cr_assert_eq(image.length, 57);
        expect_refused(&image, AS_ERR_DATA, "metadata entry 0 (general.alignment) at byte 24",
                       cases[i].text, NULL);
    }
}

Test(gguf_refused, c12_alignment_twice)
{
    struct as_text image = {0};
    put_hex(&image, "4747554603000000 0000000000000000 0200000000000000");
    put_hex(&image, ALIGNMENT_ENTRY "04000000 20000000");
    put_hex(&image, ALIGNMENT_ENTRY "04000000 20000000");
    expect_refused(&image, AS_ERR_DATA, "metadata entry 1 (general.alignment) at byte 57",
                   "given before, at byte 24", NULL);
}

/* The valid ones: the tensor stands at the next multiple, and its value is read there. */
Test(gguf_refused, c12_valid_alignments)
{
    static const uint32_t alignments[] = {8, 64, 65536};
    for (size_t i = 0; i < 3; i++) {
        struct as_text image = {0};
        struct as_gguf gguf;
        struct as_error error = {0};
        float value = 0.0f;
        put_header(&image, 3, 2, 1);
        put_key_u32(&image, "general.alignment", alignments[i]);
        put_tensor(&image, "a", 0, 0, 1, (uint64_t)1);
        put_tensor(&image, "b", 0, alignments[i], 1, (uint64_t)1);
        put_padding(&image, alignments[i]);
        as_text_add(&image, "\0\0\200\077", 4); /* 1.0f */
        put_padding(&image, alignments[i]);
        as_text_add(&image, "\0\0\0\100", 4); /* 2.0f */
        cr_assert_eq(as_gguf_parse(&gguf, image.data, image.length, &error), 0, "%s",
                     error.message);
        cr_assert_eq(gguf.data_offset % alignments[i], 0);
        memcpy(&value, gguf.tensors[0].data, sizeof value);
        cr_assert_eq(value, 1.0f);
        memcpy(&value, gguf.tensors[1].data, sizeof value);
        cr_assert_eq(value, 2.0f);
        as_gguf_free(&gguf);
        as_text_free(&image);
    }
}

/* ---- C14 ---------------------------------------------------------------------------------- */

Test(gguf_refused, c14_row_not_whole_blocks)
{
    struct as_text image = {0};
    put_header(&image, 3, 1, 0);
    put_tensor(&image, "blk.0.ffn_down.weight", 3, 0, 2, (uint64_t)48, (uint64_t)288);
    put_zeros(&image, 48 * 288);
    expect_refused(&image, AS_ERR_DATA, "blk.0.ffn_down.weight", "48 elements",
                   "block of 32 elements of type Q4_1", NULL);

    put_header(&image, 3, 1, 0);
    put_tensor(&image, "blk.0.ffn_down.weight", 12, 0, 2, (uint64_t)288, (uint64_t)288);
    put_zeros(&image, 288 * 288);
    expect_refused(&image, AS_ERR_DATA, "blk.0.ffn_down.weight", "288 elements",
                   "block of 256 elements of type Q4_K", NULL);
}

Test(gguf_refused, c14_data_cut)
{
    const size_t whole = 64 / 32 * 20 * 3; /* 3 rows of 64 in Q4_1 */
    for (size_t kept = 0; kept < whole; kept++) {
        struct as_text image = {0};
        put_header(&image, 3, 1, 0);
        put_tensor(&image, "last", 3, 0, 2, (uint64_t)64, (uint64_t)3);
        put_padding(&image, 32);
        put_zeros(&image, kept);
        expect_refused(&image, AS_ERR_DATA, "tensor entry 0 (last)", "3 rows of 64 elements",
                       "Q4_1 blocks of 32", "need 120 bytes", NULL);
    }
}

/* ---- header ------------------------------------------------------------------------------- */

Test(gguf_refused, other_files)
{
    static const struct {
        const char *bytes, *text;
        size_t size;
    } cases[] = {
        {"", "empty", 0},
        {"GGU", "no model file", 3},
        {"GGUF\3\0\0\0", "8 of the header's 24 bytes", 8},
        {"FUGG\0\0\0\3abcdefghijklmnopqrst", "byte order", 28},
        {"version https://git-lfs.github.com/spec/v1\n", "git lfs pull", 43},
        {"PK\3\4....................", "ZIP", 24},
        {"<!DOCTYPE html>.........", "web page", 24},
        {"\10\0\0\0\0\0\0\0{\"a\":1}          ", "safetensors", 24},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct as_text image = {0};
        as_text_add(&image, cases[i].bytes, cases[i].size);
        expect_refused(&image, AS_ERR_DATA, "header", cases[i].text, NULL);
    }
}

Test(gguf_refused, versions)
{
    static const struct {
        uint32_t version;
        const char *text;
    } cases[] = {
        {1, "version 1"},
        {0, "version 0"},
        {4, "version 4"},
        {0x03000000, "big-endian"},
        {UINT32_MAX, "version 4294967295"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct as_text image = {0};
        put_header(&image, cases[i].version, 0, 0);
        expect_refused(&image, AS_ERR_UNSUPPORTED, "header", cases[i].text, NULL);
    }
}

Test(gguf_refused, counts)
{
    static const uint64_t counts[] = {16385, 1000000, UINT32_MAX, INT64_MAX, UINT64_MAX};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct as_text image = {0};
        put_header(&image, 3, counts[i], 0);
        expect_refused(&image, AS_ERR_DATA, "tensors", "limit", NULL);
        put_header(&image, 3, 0, counts[i]);
        expect_refused(&image, AS_ERR_DATA, "metadata entries", "limit", NULL);
    }
    struct as_text image = {0};
    put_header(&image, 3, 16384, 0);
    expect_refused(&image, AS_ERR_DATA, "16384 tensors", "cannot hold", NULL);
    put_header(&image, 3, 0, 16384);
    expect_refused(&image, AS_ERR_DATA, "16384 metadata entries", "cannot hold", NULL);
}

/* ---- metadata ----------------------------------------------------------------------------- */

Test(gguf_refused, lengths)
{
    static const uint64_t lengths[] = {1000, UINT32_MAX, INT64_MAX, UINT64_MAX, UINT64_MAX - 7};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct as_text image = {0};
        put_header(&image, 3, 0, 1);
        put_u64(&image, lengths[i]); /* of the key */
        put_zeros(&image, 40);
        expect_refused(&image, AS_ERR_DATA, "metadata entry 0 at byte 24", "the key needs", NULL);

        put_header(&image, 3, 0, 1);
        put_key(&image, "k", AS_GGUF_STRING);
        put_u64(&image, lengths[i]);
        put_zeros(&image, 40);
        expect_refused(&image, AS_ERR_DATA, "metadata entry 0 (k)", "the string needs", NULL);

        put_header(&image, 3, 0, 1);
        put_key(&image, "k", AS_GGUF_ARRAY);
        put_u32(&image, AS_GGUF_U64);
        put_u64(&image, lengths[i]); /* of the array */
        put_zeros(&image, 40);
        expect_refused(&image, AS_ERR_DATA, "metadata entry 0 (k)", "the array needs", NULL);

        put_header(&image, 3, 0, 1);
        put_key(&image, "k", AS_GGUF_ARRAY);
        put_u32(&image, AS_GGUF_STRING);
        put_u64(&image, lengths[i]);
        put_zeros(&image, 40);
        expect_refused(&image, AS_ERR_DATA, "metadata entry 0 (k)", "a string of the array", NULL);
    }
}

Test(gguf_refused, keys)
{
    struct as_text image = {0};
    put_header(&image, 3, 0, 1);
    put_key_u32(&image, "", 1);
    put_zeros(&image, 8);
    expect_refused(&image, AS_ERR_DATA, "the key has 0 bytes", NULL);

    char *name = malloc(65537);
    memset(name, 'k', 65536);
    name[65536] = '\0';
    put_header(&image, 3, 0, 1);
    put_key_u32(&image, name, 1);
    expect_refused(&image, AS_ERR_DATA, "the key has 65536 bytes", NULL);
    free(name);

    put_header(&image, 3, 0, 3);
    put_key_u32(&image, "general.name", 1);
    put_key_u32(&image, "z", 1);
    put_key_u32(&image, "general.name", 2);
    expect_refused(&image, AS_ERR_DATA, "metadata entry 2 (general.name)", "given before", NULL);

    put_header(&image, 3, 0, 1);
    put_key(&image, "a\33[31m\1", AS_GGUF_BOOL);
    as_text_add(&image, "\7", 1);
    expect_refused(&image, AS_ERR_DATA, "(a?[31m?)", "the bool is 7", NULL);
}

Test(gguf_refused, value_types)
{
    static const uint32_t types[] = {13, 14, 100, UINT32_MAX};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct as_text image = {0};
        put_header(&image, 3, 0, 1);
        put_key(&image, "k", types[i]);
        put_zeros(&image, 40);
        expect_refused(&image, AS_ERR_DATA, "metadata entry 0 (k)", "unknown type", NULL);

        put_header(&image, 3, 0, 1);
        put_key(&image, "k", AS_GGUF_ARRAY);
        put_u32(&image, types[i]);
        put_u64(&image, 0);
        expect_refused(&image, AS_ERR_DATA, "metadata entry 0 (k)", "unknown type", NULL);
    }
}

/* An array of `depth` levels, each of one array, ending in an empty array of u8. */
static void put_nested(struct as_text *image, uint32_t depth)
{
    put_header(image, 3, 0, 1);
    put_key(image, "k", AS_GGUF_ARRAY);
    for (uint32_t i = 1; i < depth; i++) {
        put_u32(image, AS_GGUF_ARRAY);
        put_u64(image, 1);
    }
    put_u32(image, AS_GGUF_U8);
    put_u64(image, 0);
}

Test(gguf_refused, nesting)
{
    struct as_text image = {0};
    struct as_gguf gguf;
    put_nested(&image, AS_GGUF_DEPTH_LIMIT);
    cr_assert_eq(as_gguf_parse(&gguf, image.data, image.length, NULL), 0);
    as_gguf_free(&gguf);
    as_text_free(&image);
    put_nested(&image, AS_GGUF_DEPTH_LIMIT + 1);
    expect_refused(&image, AS_ERR_UNSUPPORTED, "nested deeper than 4", NULL);
    put_nested(&image, 100000);
    expect_refused(&image, AS_ERR_UNSUPPORTED, "nested deeper than 4", NULL);
}

/* ---- tensors ------------------------------------------------------------------------------ */

Test(gguf_refused, dimensions)
{
    static const uint64_t big = (uint64_t)1 << 32;
    struct as_text image = {0};
    put_header(&image, 3, 1, 0);
    put_tensor(&image, "t", 0, 0, 0);
    put_zeros(&image, 16);
    expect_refused(&image, AS_ERR_DATA, "0 dimensions", NULL);
    put_header(&image, 3, 1, 0);
    put_tensor(&image, "t", 0, 0, 5, big, big, big, big, big);
    expect_refused(&image, AS_ERR_DATA, "5 dimensions", NULL);
    put_header(&image, 3, 1, 0);
    put_tensor(&image, "t", 0, 0, 4, (uint64_t)1, (uint64_t)1, (uint64_t)1, (uint64_t)0);
    expect_refused(&image, AS_ERR_DATA, "dimension 3 of 4 is 0", NULL);
    put_header(&image, 3, 1, 0);
    put_tensor(&image, "t", 0, 0, 4, big, big, big, big);
    expect_refused(&image, AS_ERR_DATA, "more than 2^64 bytes", NULL);
    put_header(&image, 3, 1, 0);
    put_tensor(&image, "t", 0, 0, 2, UINT64_MAX, UINT64_MAX);
    expect_refused(&image, AS_ERR_DATA, "more than 2^64 bytes", NULL);
    put_header(&image, 3, 1, 0);
    put_tensor(&image, "t", 0, 0, 1, (uint64_t)1 << 62);
    expect_refused(&image, AS_ERR_DATA, "more than 2^64 bytes", NULL);
    put_header(&image, 3, 1, 0);
    put_tensor(&image, "t", 0, 0, 2, big, (uint64_t)1 << 29);
    expect_refused(&image, AS_ERR_DATA, "need 9223372036854775808 bytes", NULL);
}

Test(gguf_refused, tensor_names)
{
    struct as_text image = {0};
    char name[66];
    memset(name, 'n', 65);
    name[65] = '\0';
    put_header(&image, 3, 1, 0);
    put_tensor(&image, name, 0, 0, 1, (uint64_t)1);
    expect_refused(&image, AS_ERR_DATA, "the name has 65 bytes", NULL);
    put_header(&image, 3, 1, 0);
    put_tensor(&image, "", 0, 0, 1, (uint64_t)1);
    put_zeros(&image, 8);
    expect_refused(&image, AS_ERR_DATA, "the name has 0 bytes", NULL);
    put_header(&image, 3, 1, 0);
    put_u64(&image, 3);
    as_text_add(&image, "a\0b", 3);
    put_zeros(&image, 40);
    expect_refused(&image, AS_ERR_DATA, "NUL", NULL);
    put_header(&image, 3, 2, 0);
    put_tensor(&image, "same", 0, 0, 1, (uint64_t)1);
    put_tensor(&image, "same", 0, 32, 1, (uint64_t)1);
    put_zeros(&image, 100);
    expect_refused(&image, AS_ERR_DATA, "tensor entry 1 (same)", "given before, at byte 24", NULL);
}

Test(gguf_refused, tensor_types)
{
    static const uint32_t types[] = {4, 5, 31, 33, 38, 43, 1000, UINT32_MAX};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct as_text image = {0};
        char text[32];
        snprintf(text, sizeof text, "type %u", types[i]);
        put_header(&image, 3, 1, 0);
        put_tensor(&image, "t", types[i], 0, 1, (uint64_t)256);
        put_zeros(&image, 2048);
        expect_refused(&image, AS_ERR_UNSUPPORTED, "tensor entry 0 (t)", text, NULL);
    }
}

Test(gguf_refused, places)
{
    static const uint64_t beyond[] = {2048, (uint64_t)1 << 40, UINT64_MAX - 31};
    struct as_text image = {0};
    put_header(&image, 3, 1, 0);
    put_tensor(&image, "t", 0, 16, 1, (uint64_t)1);
    put_zeros(&image, 200);
    expect_refused(&image, AS_ERR_DATA, "data offset 16", "alignment 32", NULL);
    for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
        put_header(&image, 3, 1, 0);
        put_tensor(&image, "t", 0, beyond[i], 1, (uint64_t)1);
        put_zeros(&image, 200);
        expect_refused(&image, AS_ERR_DATA, "tensor entry 0 (t)", "to the end of the file", NULL);
    }
    put_header(&image, 3, 3, 0);
    put_tensor(&image, "a", 0, 64, 1, (uint64_t)8);
    put_tensor(&image, "b", 0, 0, 1, (uint64_t)17);
    put_tensor(&image, "c", 0, 32, 1, (uint64_t)1);
    put_zeros(&image, 400);
    expect_refused(&image, AS_ERR_DATA, "(c)", "overlaps that of b", NULL);
}

/* Gaps, another order than that of the offsets and bytes after the end do no harm. */
Test(gguf_refused, gaps_are_accepted)
{
    struct as_text image = {0};
    struct as_gguf gguf;
    struct as_error error = {0};
    put_header(&image, 2, 2, 0);
    put_tensor(&image, "a", 0, 96, 1, (uint64_t)8);
    put_tensor(&image, "b", 0, 0, 1, (uint64_t)8);
    put_zeros(&image, 400);
    cr_assert_eq(as_gguf_parse(&gguf, image.data, image.length, &error), 0, "%s", error.message);
    cr_assert_eq(gguf.version, 2);
    cr_assert_eq(gguf.tensors[0].data - gguf.tensors[1].data, 96);
    as_gguf_free(&gguf);
    as_text_free(&image);
}
