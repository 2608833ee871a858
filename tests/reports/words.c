/* Numbers and texts as people see them. */
#define _GNU_SOURCE /* open_memstream */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "words.h"

Test(words, durations)
{
    cr_assert_str_eq(as_words_ns(0), "0 ns");
    cr_assert_str_eq(as_words_ns(7), "7 ns");
    cr_assert_str_eq(as_words_ns(7.25), "7.25 ns");
    cr_assert_str_eq(as_words_ns(999), "999 ns");
    cr_assert_str_eq(as_words_ns(999.7), "1.00 us");
    cr_assert_str_eq(as_words_ns(12345), "12.3 us");
    cr_assert_str_eq(as_words_ns(123456789), "123 ms");
    cr_assert_str_eq(as_words_ns(999999999), "1.00 s");
    cr_assert_str_eq(as_words_ns(123.4e9), "123 s");
    cr_assert_str_eq(as_words_ns(-2500), "-2.50 us");
    cr_assert_str_eq(as_words_ns(NAN), "n/a");
}

Test(words, numbers)
{
    cr_assert_str_eq(as_words_number(0), "0");
    cr_assert_str_eq(as_words_number(0.01234), "0.0123");
    cr_assert_str_eq(as_words_number(0.999), "1.00");
    cr_assert_str_eq(as_words_number(9.996), "10.0");
    cr_assert_str_eq(as_words_number(99.96), "100");
    cr_assert_str_eq(as_words_number(1234.4), "1234");
    cr_assert_str_eq(as_words_number(NAN), "n/a");
    cr_assert_str_eq(as_words_count(1234567), "1,234,567");
    cr_assert_str_eq(as_words_count(123), "123");
    cr_assert_str_eq(as_words_count(-1234), "-1,234");
    cr_assert_str_eq(as_words_percent(0.1234), "12.3 %");
    cr_assert_str_eq(as_words_percent(0.012), "1.2 %");
    cr_assert_str_eq(as_words_percent(0.000291), "0.029 %");
    cr_assert_str_eq(as_words_percent(2.684), "268 %");
    cr_assert_str_eq(as_words_percent(0), "0 %");
    cr_assert_str_eq(as_words_percent(NAN), "n/a");
    cr_assert_str_eq(as_words_bytes(1.5e9), "1.50 GB");
    cr_assert_str_eq(as_words_bytes(17), "17 B");
    cr_assert_str_eq(as_words_ratio(1.2345), "1.23x");
}

Test(words, hostile_texts)
{
    cr_assert_str_eq(as_words_safe("plain \xe4\xb8\xad"), "plain \xe4\xb8\xad");
    cr_assert_str_eq(as_words_safe("a\x1b[31mb\n\x7f"), "a?[31mb??");
    cr_assert_str_eq(as_words_safe("\xff\xc3."), "??.");
    cr_assert_str_eq(as_words_safe("\xc2\x9b"
                                   "1m"),
                     "??1m", "a C1 control");
    cr_assert_str_eq(as_words_safe("\xed\xa0\x80"), "???", "a surrogate");
    cr_assert_str_eq(as_words_safe("\xe2\x80\xae"
                                   "x"),
                     "???x", "right to left");
    cr_assert_str_eq(as_words_safe("\xe4\xb8"), "??", "cut");
    cr_assert_str_eq(as_words_safe(NULL), "n/a");
}

Test(words, columns)
{
    struct as_columns columns = {.alignment = "lrl"};
    struct as_error error = {0};
    static const char *const cells[] = {"name", "n",  "what", "\xc3\xa9\xc3\xa9", "1000", "longer",
                                        "x",    NULL, ""};
    char *text;
    size_t size;
    for (int i = 0; i < 9; i++)
        as_columns_add(&columns, cells[i]);
    FILE *stream = open_memstream(&text, &size);
    cr_assert_eq(as_columns_print(&columns, stream, "  ", "<", ">", &error), 0);
    fclose(stream);
    cr_assert_str_eq(text, "  <name     n  what>\n  \xc3\xa9\xc3\xa9    1000  longer\n"
                           "  x      n/a  \n");
    free(text);
}
