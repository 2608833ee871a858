/* Every metadata type through the reader, and what the writer makes through the reader. */
#include "gguf_image.h"

#include "engine/gguf_writer.h"

Test(gguf_values, scalars)
{
    struct as_text image = {0};
    struct as_gguf gguf;
    struct as_error error = {0};
    put_header(&image, 3, 0, 12);
    put_key(&image, "u8", AS_GGUF_U8);
    put_hex(&image, "ff");
    put_key(&image, "i8", AS_GGUF_I8);
    put_hex(&image, "ff");
    put_key(&image, "u16", AS_GGUF_U16);
    put_hex(&image, "feff");
    put_key(&image, "i16", AS_GGUF_I16);
    put_hex(&image, "feff");
    put_key(&image, "u32", AS_GGUF_U32);
    put_hex(&image, "fdffffff");
    put_key(&image, "i32", AS_GGUF_I32);
    put_hex(&image, "fdffffff");
    put_key(&image, "u64", AS_GGUF_U64);
    put_hex(&image, "fcffffffffffffff");
    put_key(&image, "i64", AS_GGUF_I64);
    put_hex(&image, "fcffffffffffffff");
    put_key(&image, "f32", AS_GGUF_F32);
    put_hex(&image, "0000c03f");
    put_key(&image, "f64", AS_GGUF_F64);
    put_hex(&image, "000000000000f83f");
    put_key(&image, "bool", AS_GGUF_BOOL);
    put_hex(&image, "01");
    put_key(&image, "string", AS_GGUF_STRING);
    put_string(&image, "text");
    cr_assert_eq(as_gguf_parse(&gguf, image.data, image.length, &error), 0, "%s", error.message);

    static const struct {
        const char *key;
        uint64_t u;
        int64_t i;
        bool is_unsigned, is_signed;
    } numbers[] = {
        {"u8", 255, 255, true, true},
        {"i8", 0, -1, false, true},
        {"u16", 65534, 65534, true, true},
        {"i16", 0, -2, false, true},
        {"u32", 4294967293u, 4294967293, true, true},
        {"i32", 0, -3, false, true},
        {"u64", UINT64_MAX - 3, 0, true, false},
        {"i64", 0, -4, false, true},
        {"f32", 0, 0, false, false},
        {"bool", 0, 0, false, false},
        {"string", 0, 0, false, false},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const struct as_gguf_entry *entry = as_gguf_find(&gguf, numbers[i].key);
        uint64_t u = 0;
        int64_t s = 0;
        cr_assert_not_null(entry);
        cr_assert_eq(as_gguf_unsigned(entry, &u), numbers[i].is_unsigned, "%s", numbers[i].key);
        cr_assert_eq(as_gguf_signed(entry, &s), numbers[i].is_signed, "%s", numbers[i].key);
        cr_assert(!numbers[i].is_unsigned || u == numbers[i].u, "%s", numbers[i].key);
        cr_assert(!numbers[i].is_signed || s == numbers[i].i, "%s", numbers[i].key);
    }
    double f = 0.0;
    bool flag = false;
    struct as_bytes text;
    cr_assert(as_gguf_float(as_gguf_find(&gguf, "f32"), &f) && f == 1.5);
    cr_assert(as_gguf_float(as_gguf_find(&gguf, "f64"), &f) && f == 1.5);
    cr_assert(!as_gguf_float(as_gguf_find(&gguf, "u32"), &f));
    cr_assert(as_gguf_bool(as_gguf_find(&gguf, "bool"), &flag) && flag);
    cr_assert(as_gguf_string(as_gguf_find(&gguf, "string"), &text) && text.length == 4 &&
              memcmp(text.bytes, "text", 4) == 0);
    cr_assert_null(as_gguf_find(&gguf, "absent"));
    cr_assert_null(as_gguf_find(&gguf, ""));
    as_gguf_free(&gguf);
    as_text_free(&image);
}

Test(gguf_values, type_table)
{
    for (uint32_t id = 0; id < 64; id++) {
        const struct as_gguf_type *type = as_gguf_type(id);
        if (type == NULL)
            continue;
        cr_assert_eq(type->id, id);
        if (type->dtype != ASSAY_NONE) {
            const struct assay_dtype_info *info = assay_dtype(type->dtype);
            cr_assert_eq(as_gguf_type_of(type->dtype), type);
            cr_assert_eq((uint32_t)info->block, type->block, "%s", type->name);
            cr_assert_eq((uint32_t)info->bytes, type->bytes, "%s", type->name);
        }
    }
    char served[128];
    as_gguf_served(served, sizeof served);
    cr_assert_not_null(strstr(served, "F32"));
    cr_assert_not_null(strstr(served, "Q8_0"));
    cr_assert_not_null(strstr(served, "Q4_1"));
    cr_assert_null(as_gguf_type_of(ASSAY_TOP));
    cr_assert_null(as_gguf_type_of(ASSAY_NONE));
    cr_assert_str_eq(as_gguf_value_name(99), "?");
}

Test(gguf_values, writer_round_trip)
{
    static const size_t alignments[] = {8, 32, 64, 4096};
    for (size_t i = 0; i < 4; i++) {
        struct as_error error = {0};
        struct as_gguf_writer *writer = as_gguf_writer_create(alignments[i], &error);
        const struct as_bytes texts[] = {{"one", 3}, {"", 0}, {"three", 5}};
        const int32_t numbers[] = {-1, 7};
        const float values[] = {1.0f, 2.0f, 3.0f};
        uint8_t block[34 * 2 * 3];
        void *image;
        size_t size;
        memset(block, 5, sizeof block);
        as_gguf_put_u32(writer, "a", 17);
        as_gguf_put_strings(writer, "b", texts, 3);
        as_gguf_put_i32s(writer, "c", numbers, 2);
        as_gguf_put_f32s(writer, "d", values, 3);
        as_gguf_put_tensor(writer, "v", ASSAY_F32, 3, 0);
        as_gguf_put_tensor(writer, "m", ASSAY_Q8_0, 64, 3);
        cr_assert_eq(as_gguf_begin(writer, NULL, &error), 0, "%s", error.message);
        cr_assert_eq(as_gguf_append(writer, values, 8, &error), 0);
        cr_assert_eq(as_gguf_append(writer, values + 2, 4, &error), 0);
        cr_assert_eq(as_gguf_append(writer, block, sizeof block, &error), 0);
        cr_assert_eq(as_gguf_finish_memory(writer, &image, &size, &error), 0, "%s", error.message);
        as_gguf_writer_free(writer);

        struct as_gguf gguf;
        struct as_bytes strings[3];
        cr_assert_eq(as_gguf_parse(&gguf, image, size, &error), 0, "%s", error.message);
        cr_assert_eq(gguf.alignment, alignments[i]);
        as_gguf_strings(as_gguf_find(&gguf, "b"), strings);
        cr_assert(strings[0].length == 3 && strings[1].length == 0 && strings[2].length == 5);
        cr_assert(memcmp(strings[2].bytes, "three", 5) == 0);
        cr_assert_eq(gguf.tensor_count, 2);
        cr_assert(gguf.tensors[0].rows == 1 && gguf.tensors[0].columns == 3);
        cr_assert(gguf.tensors[1].rows == 3 && gguf.tensors[1].columns == 64);
        cr_assert_eq(memcmp(gguf.tensors[0].data, values, sizeof values), 0);
        cr_assert_eq(memcmp(gguf.tensors[1].data, block, sizeof block), 0);
        as_gguf_free(&gguf);
        free(image);
    }
}

Test(gguf_values, writer_refuses_its_own_misuse)
{
    struct as_error error = {0};
    float values[4] = {0};
    struct as_gguf_writer *writer = as_gguf_writer_create(32, &error);
    as_gguf_put_tensor(writer, "t", ASSAY_Q8_0, 33, 1);
    cr_assert_eq(as_gguf_begin(writer, NULL, &error), AS_ERR_INTERNAL);
    as_gguf_writer_free(writer);

    as_error_clear(&error);
    writer = as_gguf_writer_create(32, &error);
    as_gguf_put_tensor(writer, "t", ASSAY_F32, 3, 0);
    cr_assert_eq(as_gguf_begin(writer, NULL, &error), 0);
    cr_assert_eq(as_gguf_append(writer, values, 16, &error), AS_ERR_INTERNAL);
    as_error_clear(&error);
    cr_assert_eq(as_gguf_append(writer, values, 4, &error), 0);
    void *image;
    size_t size;
    cr_assert_eq(as_gguf_finish_memory(writer, &image, &size, &error), AS_ERR_INTERNAL);
    cr_assert_not_null(strstr(error.message, "4 of 12 bytes"));
    as_gguf_writer_free(writer);
    as_gguf_writer_free(NULL);
}
