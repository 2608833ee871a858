/* The floor that every room stands on: errors, memory, text, files, random numbers. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "as_error.h"
#include "as_file.h"
#include "as_hash.h"
#include "as_memory.h"
#include "as_random.h"
#include "as_text.h"

Test(floor, the_first_message_wins_and_is_put_in_context)
{
    struct as_error error = {0};
    cr_assert_eq(as_fail(&error, AS_ERR_DATA, "byte %d is odd", 7), AS_ERR_DATA);
    cr_assert_eq(as_fail(&error, AS_ERR_IO, "later"), AS_ERR_IO);
    cr_assert_eq(error.code, AS_ERR_DATA);
    cr_assert_eq(as_error_prefix(&error, "file %s", "x"), AS_ERR_DATA);
    cr_assert_str_eq(error.message, "file x: byte 7 is odd");
    errno = ENOENT;
    cr_assert_eq(as_fail_errno(NULL, AS_ERR_IO, "nobody listens"), AS_ERR_IO);
    as_error_clear(&error);
    errno = ENOENT;
    as_fail_errno(&error, AS_ERR_IO, "cannot open y");
    cr_assert_str_eq(error.message, "cannot open y: No such file or directory");
}

Test(floor, long_messages_are_cut_not_overrun)
{
    struct as_error error = {0};
    char text[3000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    as_fail(&error, AS_ERR_DATA, "%s", text);
    as_error_prefix(&error, "%s", text);
    cr_assert_eq(strlen(error.message), sizeof error.message - 1);
}

Test(floor, arrays_grow_zeroed_and_refuse_the_impossible)
{
    struct as_error error = {0};
    int *array = NULL;
    size_t capacity = 0;
    for (size_t count = 0; count < 1000; count++) {
        cr_assert_eq(as_grow(&error, &array, &capacity, count, sizeof *array, "ints"), 0);
        cr_assert_eq(array[count], 0);
        array[count] = (int)count;
    }
    cr_assert_eq(as_grow(&error, &array, &capacity, 100000, sizeof *array, "ints"), 0);
    cr_assert_gt(capacity, 100000u);
    cr_assert_eq(array[999], 999);
    cr_assert_eq(as_grow(&error, &array, &capacity, SIZE_MAX / 2, sizeof *array, "ints"),
                 AS_ERR_MEMORY);
    cr_assert_eq(array[999], 999, "a failed growth touched the array");
    free(array);
    as_error_clear(&error);
    cr_assert_null(as_calloc_aligned(&error, SIZE_MAX / 2, 4, "too much"));
    cr_assert_eq(error.code, AS_ERR_MEMORY);
}

Test(floor, nearest_offers_what_is_near_and_nothing_else)
{
    const char *names[] = {"naive", NULL, "fast", "captured"};
    cr_assert_str_eq(as_nearest("naiv", names, 4), "naive");
    cr_assert_str_eq(as_nearest("fats", names, 4), "fast");
    cr_assert_str_eq(as_nearest("capturde", names, 4), "captured");
    cr_assert_null(as_nearest("zebra crossing", names, 4));
    cr_assert_null(as_nearest("naive", names, 0));
}

Test(floor, text_grows_by_pieces)
{
    struct as_text text = {0};
    for (int i = 0; i < 500; i++)
        as_text_addf(&text, "%d,", i);
    as_text_add(&text, "\0end", 4);
    cr_assert_not(text.failed);
    cr_assert_eq(memcmp(text.data, "0,1,2,3,", 8), 0);
    cr_assert_eq(memcmp(text.data + text.length - 4, "\0end", 5), 0);
    as_text_free(&text);
    cr_assert_null(text.data);
}

static void make_path(char *path, size_t size, const char *folder, const char *name)
{
    snprintf(path, size, "%s/%s", folder, name);
}

Test(floor, files_are_written_whole_read_within_a_limit_and_mapped)
{
    char folder[] = "/tmp/assay-floor-XXXXXX", path[128], *text;
    struct as_error error = {0};
    struct as_mapping mapping;
    size_t size;
    cr_assert_not_null(mkdtemp(folder));
    make_path(path, sizeof path, folder, "deep/er");
    cr_assert_eq(as_make_folders(path, &error), 0);
    cr_assert_eq(as_make_folders(path, &error), 0, "folders that exist are fine");
    make_path(path, sizeof path, folder, "deep/er/file");
    cr_assert_eq(as_write_file(path, "hello", 5, &error), 0);
    cr_assert_eq(as_write_file(path, "world!", 6, &error), 0);
    cr_assert_eq(as_read_file(&text, &size, path, 6, &error), 0);
    cr_assert_str_eq(text, "world!");
    cr_assert_eq(size, 6);
    free(text);
    cr_assert_eq(as_read_file(&text, &size, path, 5, &error), AS_ERR_DATA);
    cr_assert_null(text);
    cr_assert_not_null(strstr(error.message, "more than the limit of 5"));
    cr_assert_eq(as_map_file(&mapping, path, NULL), 0);
    cr_assert_eq(memcmp(mapping.data, "world!", 6), 0);
    as_unmap(&mapping);
    cr_assert_eq(as_write_file(path, "", 0, NULL), 0);
    cr_assert_eq(as_map_file(&mapping, path, NULL), 0);
    cr_assert_null(mapping.data);
    as_unmap(&mapping);
    unlink(path);
    make_path(path, sizeof path, folder, "deep/er");
    cr_assert_eq(as_map_file(&mapping, path, NULL), AS_ERR_IO, "a folder is no file");
    as_error_clear(&error);
    make_path(path, sizeof path, folder, "missing/file");
    cr_assert_eq(as_write_file(path, "x", 1, &error), AS_ERR_IO);
    cr_assert_not_null(strstr(error.message, "missing/file"));
    make_path(path, sizeof path, folder, "deep/er");
    rmdir(path);
    make_path(path, sizeof path, folder, "deep");
    rmdir(path);
    cr_assert_eq(rmdir(folder), 0, "a temporary file was left behind");
}

/* Means and variances within five standard errors; seeds are fixed, so the outcome is too. */
Test(floor, random_numbers_have_their_moments_and_streams_differ)
{
    enum { COUNT = 100000 };
    double sum = 0, square = 0, normal = 0, normal_square = 0;
    int equal = 0;
    for (uint64_t i = 0; i < COUNT; i++) {
        double u = as_random_unit(1, 2, i), n = as_random_normal(1, 3, i);
        cr_assert(u >= 0 && u < 1);
        sum += u;
        square += u * u;
        normal += n;
        normal_square += n * n;
        equal += as_random_u64(1, 2, i) == as_random_u64(1, 3, i);
    }
    cr_assert_float_eq(sum / COUNT, 0.5, 5 * 0.2887 / 316);
    cr_assert_float_eq(square / COUNT, 1.0 / 3, 5 * 0.2981 / 316);
    cr_assert_float_eq(normal / COUNT, 0, 5.0 / 316);
    cr_assert_float_eq(normal_square / COUNT, 1, 5 * 1.4142 / 316);
    cr_assert_eq(equal, 0);
    cr_assert_eq(as_random_u64(4, 5, 6), as_random_u64(4, 5, 6));
}

Test(floor, checksums_see_every_byte_and_the_length)
{
    uint8_t bytes[40] = {0};
    uint64_t whole = as_hash64(bytes, sizeof bytes, 0);
    cr_assert_neq(whole, as_hash64(bytes, sizeof bytes - 1, 0));
    cr_assert_neq(whole, as_hash64(bytes, sizeof bytes, 1));
    for (size_t i = 0; i < sizeof bytes; i++)
        for (int bit = 0; bit < 8; bit++) {
            bytes[i] ^= (uint8_t)(1 << bit);
            cr_assert_neq(whole, as_hash64(bytes, sizeof bytes, 0));
            bytes[i] ^= (uint8_t)(1 << bit);
        }
}
