/* Spools: what is put comes back; what is killed, cut, damaged or out of space loses little. */
#define _GNU_SOURCE /* MAP_ANONYMOUS, usleep */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "as_clock.h"
#include "as_hash.h"
#include "as_memory.h"
#include "as_random.h"
#include "as_text.h"
#include "helpers.h"
#include "spool_format.h"

TestSuite(spool, .init = make_scratch, .fini = drop_scratch);

static struct as_row_launch launch_row(uint32_t i)
{
    struct as_row_launch row = {i, 1, i / 7, i % 30, i % 5, i % 9, 1000u * i, 1000u * i + 10, 7, 3};
    return row;
}

/* Reads `path` to its end: counts launch rows, checking that they are rows 0, 1, 2, ... */
static uint32_t count_launches(const char *path, uint64_t *dropped)
{
    struct as_error error = {0};
    struct as_record record;
    uint32_t count = 0;
    struct as_spool_reader *reader = as_spool_reader_open(path, &error);
    cr_assert_not_null(reader, "%s", error.message);
    int rc;
    while ((rc = as_spool_next(reader, &record, &error)) > 0) {
        if (record.kind != AS_RECORD_ROW || record.table != AS_TABLE_LAUNCHES)
            continue;
        struct as_row_launch expected = launch_row(count++);
        cr_assert_eq(memcmp(record.row, &expected, sizeof expected), 0);
    }
    cr_assert_eq(rc, 0, "%s", error.message);
    *dropped = as_spool_dropped_bytes(reader);
    as_spool_reader_close(reader);
    return count;
}

Test(spool, round_trip_of_every_table)
{
    struct as_spool *spool = new_spool(scratch, "a.spool");
    unsigned char rows[AS_TABLE_COUNT][AS_ROW_SIZE_MAX];
    for (int t = 0; t < AS_TABLE_COUNT; t++) {
        cr_assert_leq(as_tables[t].row_size, AS_ROW_SIZE_MAX);
        for (uint32_t i = 0; i < AS_ROW_SIZE_MAX; i++)
            rows[t][i] = (unsigned char)(as_random_u64(7, (uint64_t)t, i) | 1);
        put(spool, (enum as_table)t, rows[t]);
    }
    close_spool(spool);

    struct as_error error = {0};
    struct as_record record;
    struct as_spool_reader *reader = as_spool_reader_open(in_scratch("a.spool"), &error);
    cr_assert_not_null(reader, "%s", error.message);
    cr_assert_eq(as_spool_ignored_fields(reader), 0);
    for (int round = 0; round < 2; round++) {
        for (int t = 0; t < AS_TABLE_COUNT; t++) {
            cr_assert_eq(as_spool_next(reader, &record, &error), 1);
            cr_assert_eq(record.kind, AS_RECORD_ROW);
            cr_assert_eq(record.table, t);
            cr_assert_eq(memcmp(record.row, rows[t], as_tables[t].row_size), 0);
        }
        cr_assert_eq(as_spool_next(reader, &record, &error), 0);
        cr_assert_eq(as_spool_next(reader, &record, &error), 0);
        cr_assert_eq(as_spool_dropped_bytes(reader), 0);
        as_spool_rewind(reader);
    }
    as_spool_reader_close(reader);
}

Test(spool, strings_and_attributes)
{
    struct as_spool *spool = new_spool(scratch, "a.spool");
    char *long_text = as_calloc(NULL, 3 * AS_STRING_MAX, 1, "a text");
    for (int i = 0; i + 2 < 2 * AS_STRING_MAX; i += 3)
        memcpy(long_text + i, "\xe4\xb8\xad", 3); /* a character of three bytes */
    cr_assert_eq(as_spool_string(spool, "one"), 0);
    cr_assert_eq(as_spool_string(spool, "two"), 1);
    cr_assert_eq(as_spool_string(spool, "one"), 0);
    cr_assert_eq(as_spool_string(spool, ""), 2);
    cr_assert_eq(as_spool_string(spool, NULL), AS_UNKNOWN_U32);
    cr_assert_eq(as_spool_string(spool, long_text), 3);
    cr_assert_eq(as_spool_attribute(spool, "model digest", "sha256:00"), 0);
    cr_assert_eq(as_spool_attribute(spool, "form", long_text), 0);
    cr_assert_eq(as_spool_attribute_u64(spool, "seed", UINT64_MAX - 1), 0);
    cr_assert_eq(as_spool_attribute_f64(spool, "scale", -0.5), 0);
    close_spool(spool);

    struct as_error error = {0};
    struct as_record record;
    struct as_spool_reader *reader = as_spool_reader_open(in_scratch("a.spool"), &error);
    cr_assert_not_null(reader, "%s", error.message);
    static const char *const expected[] = {"one", "two", ""};
    for (uint32_t i = 0; i < 3; i++) {
        cr_assert_eq(as_spool_next(reader, &record, &error), 1);
        cr_assert_eq(record.kind, AS_RECORD_STRING);
        cr_assert_eq(record.id, i);
        cr_assert_str_eq(record.text, expected[i]);
        cr_assert_eq(record.text_size, strlen(expected[i]));
    }
    cr_assert_eq(as_spool_next(reader, &record, &error), 1);
    cr_assert_eq(record.text_size, 4095, "cut between characters: 1365 of three bytes");
    cr_assert_eq(memcmp(record.text, long_text, 4095), 0);
    cr_assert_eq(as_spool_next(reader, &record, &error), 1);
    cr_assert_str_eq(record.key, "model digest");
    cr_assert_eq(record.type, 's');
    cr_assert_str_eq(record.text, "sha256:00");
    cr_assert_eq(as_spool_next(reader, &record, &error), 1);
    cr_assert_str_eq(record.text, long_text, "an attribute's text is not cut");
    cr_assert_eq(as_spool_next(reader, &record, &error), 1);
    cr_assert_eq(record.type, 'u');
    cr_assert_eq(record.u64, UINT64_MAX - 1);
    cr_assert_eq(as_spool_next(reader, &record, &error), 1);
    cr_assert_eq(record.type, 'f');
    cr_assert_eq(record.f64, -0.5);
    cr_assert_eq(as_spool_next(reader, &record, &error), 0);
    as_spool_reader_close(reader);
    free(long_text);
}

Test(spool, many_strings_stay_distinct)
{
    struct as_spool *spool = new_spool(scratch, "a.spool");
    char text[32];
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 20000; i++) {
            snprintf(text, sizeof text, "string %u", i);
            cr_assert_eq(as_spool_string(spool, text), i);
        }
    }
    close_spool(spool);
}

Test(spool, grows_over_many_windows)
{
    const uint32_t rows = 300000; /* 21 MB: six steps of the file */
    uint64_t dropped;
    struct as_spool *spool = new_spool(scratch, "a.spool");
    for (uint32_t i = 0; i < rows; i++) {
        struct as_row_launch row = launch_row(i);
        put(spool, AS_TABLE_LAUNCHES, &row);
        if (i % 1000 == 0)
            cr_assert_eq(as_spool_reserve(spool, 64 << 10), 0);
    }
    cr_assert_gt(as_spool_size(spool), (uint64_t)rows * 72);
    close_spool(spool);
    cr_assert_eq(count_launches(in_scratch("a.spool"), &dropped), rows);
    cr_assert_eq(dropped, 0);
}

/* A writer is killed in the middle of its work, eight times; what it is known to have put (it says
 * so through a shared page after each put) is there, and nothing else is. */
Test(spool, killed_writer_loses_at_most_one_record)
{
    for (uint64_t trial = 0; trial < 8; trial++) {
        volatile uint32_t *progress =
            mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        pid_t child = fork();
        if (child == 0) {
            struct as_error error = {0};
            struct as_spool *spool = as_spool_create(in_scratch("k.spool"), 0, &error);
            for (uint32_t i = 0; spool != NULL; i++) {
                struct as_row_launch row = launch_row(i);
                if (as_spool_put(spool, AS_TABLE_LAUNCHES, &row) != 0)
                    _exit(3);
                *progress = i + 1;
            }
            _exit(3);
        }
        uint32_t wanted = 1 + (uint32_t)(as_random_u64(11, 0, trial) % 100000);
        while (*progress < wanted)
            usleep(100);
        kill(child, SIGKILL);
        int status;
        waitpid(child, &status, 0);
        cr_assert(WIFSIGNALED(status));
        uint64_t dropped;
        uint32_t found = count_launches(in_scratch("k.spool"), &dropped);
        cr_assert(found == *progress || found == *progress + 1, "%u of %u", found, *progress);
        cr_assert_leq(dropped, 72, "at most the record being written");
        munmap((void *)progress, 4096);
    }
}

Test(spool, cut_anywhere_keeps_what_is_whole)
{
    struct as_error error = {0};
    struct as_spool *spool = new_spool(scratch, "a.spool");
    uint64_t header = as_spool_size(spool);
    for (uint32_t i = 0; i < 100; i++) {
        struct as_row_launch row = launch_row(i);
        put(spool, AS_TABLE_LAUNCHES, &row);
    }
    close_spool(spool);
    char *bytes;
    size_t size;
    MUST(as_read_file(&bytes, &size, in_scratch("a.spool"), 1 << 20, &error));
    cr_assert_eq(size, header + 100 * 72);
    for (size_t cut = 0; cut <= size; cut += cut < header ? 97 : 5) {
        MUST(as_write_file(in_scratch("c.spool"), bytes, cut, &error));
        if (cut < header) {
            struct as_error refused = {0};
            cr_assert_null(as_spool_reader_open(in_scratch("c.spool"), &refused));
            cr_assert_eq(refused.code, AS_ERR_DATA, "%s", refused.message);
            cr_assert_not_null(strstr(refused.message, "c.spool"));
            continue;
        }
        uint64_t dropped;
        cr_assert_eq(count_launches(in_scratch("c.spool"), &dropped), (cut - header) / 72);
        cr_assert_leq(dropped, (cut - header) % 72);
    }
    free(bytes);
}

/* Damage of a few bytes anywhere is found: the rows before it come back right, nothing crashes. */
Test(spool, damage_is_found)
{
    struct as_error error = {0};
    struct as_spool *spool = new_spool(scratch, "a.spool");
    uint64_t header = as_spool_size(spool);
    for (uint32_t i = 0; i < 50; i++) {
        struct as_row_launch row = launch_row(i);
        put(spool, AS_TABLE_LAUNCHES, &row);
    }
    as_spool_string(spool, "text");
    as_spool_attribute(spool, "key", "value");
    close_spool(spool);
    char *bytes;
    size_t size;
    MUST(as_read_file(&bytes, &size, in_scratch("a.spool"), 1 << 20, &error));
    for (uint64_t trial = 0; trial < 2000; trial++) {
        size_t at = (size_t)(as_random_u64(3, trial, 0) % size);
        size_t count = 1 + (size_t)(as_random_u64(3, trial, 1) % 9);
        char saved[16];
        count = count < size - at ? count : size - at;
        memcpy(saved, bytes + at, count);
        bool changed = false;
        for (size_t i = 0; i < count; i++) {
            bytes[at + i] = (char)as_random_u64(3, trial, 2 + i);
            changed = changed || bytes[at + i] != saved[i];
        }
        MUST(as_write_file(in_scratch("d.spool"), bytes, size, &error));
        memcpy(bytes + at, saved, count);
        struct as_error refused = {0};
        struct as_record record;
        struct as_spool_reader *reader = as_spool_reader_open(in_scratch("d.spool"), &refused);
        if (reader == NULL) {
            cr_assert_lt(at, header);
            cr_assert_eq(refused.code, AS_ERR_DATA);
            continue;
        }
        uint32_t found = 0;
        int rc;
        while ((rc = as_spool_next(reader, &record, &refused)) > 0) {
            if (record.kind != AS_RECORD_ROW)
                continue;
            struct as_row_launch expected = launch_row(found++);
            cr_assert_eq(record.table, AS_TABLE_LAUNCHES);
            cr_assert_eq(memcmp(record.row, &expected, sizeof expected), 0);
        }
        cr_assert_eq(rc, 0, "%s", refused.message);
        if (at >= header && changed) {
            /* Padding of a frame is not covered, and holds nothing. */
            cr_assert(found == 50 || found == (at - header) / 72, "%u rows, byte %zu", found, at);
        }
        as_spool_reader_close(reader);
    }
    free(bytes);
}

/* Random bytes behind a good header, and random files. */
Test(spool, noise_is_no_spool)
{
    struct as_error error = {0};
    struct as_spool *spool = new_spool(scratch, "a.spool");
    size_t header = (size_t)as_spool_size(spool);
    close_spool(spool);
    char *bytes;
    size_t size;
    MUST(as_read_file(&bytes, &size, in_scratch("a.spool"), 1 << 20, &error));
    char *noise = as_calloc(&error, header + 4096, 1, "noise");
    for (uint64_t trial = 0; trial < 500; trial++) {
        bool with_header = trial % 2 == 0;
        if (with_header)
            memcpy(noise, bytes, header);
        for (size_t i = with_header ? header : 0; i < header + 4096; i++)
            noise[i] = (char)(as_random_u64(5, trial, i) >> (trial % 3 == 0 ? 60 : 0));
        if (!with_header)
            memcpy(noise, AS_SPOOL_MAGIC, 8);
        MUST(as_write_file(in_scratch("n.spool"), noise, header + 4096, &error));
        struct as_error refused = {0};
        struct as_record record;
        struct as_spool_reader *reader = as_spool_reader_open(in_scratch("n.spool"), &refused);
        cr_assert_eq(reader != NULL, with_header);
        if (reader != NULL)
            cr_assert_eq(as_spool_next(reader, &record, &refused), 0);
        as_spool_reader_close(reader);
    }
    free(noise);
    free(bytes);
}

/* A full disk is an error with the file's name, not a signal, and what was put before stays. */
Test(spool, out_of_space_is_an_error)
{
    pid_t child = fork();
    if (child == 0) {
        struct as_error error = {0};
        const struct rlimit limit = {9 << 20, 9 << 20};
        setrlimit(RLIMIT_FSIZE, &limit);
        struct as_spool *spool = as_spool_create(in_scratch("f.spool"), 0, &error);
        int rc = 0;
        uint32_t i = 0;
        for (; rc == 0 && i < 1000000; i++) {
            struct as_row_launch row = launch_row(i);
            rc = as_spool_put(spool, AS_TABLE_LAUNCHES, &row);
        }
        struct as_row_launch row = launch_row(i);
        bool good = rc == AS_ERR_IO && as_spool_put(spool, AS_TABLE_LAUNCHES, &row) == rc &&
                    as_spool_string(spool, "x") == AS_UNKNOWN_U32 &&
                    strstr(as_spool_error(spool)->message, "f.spool") != NULL &&
                    as_spool_close(spool, &error) == rc && error.code == rc;
        if (good)
            printf("%s\n", error.message);
        fflush(stdout);
        _exit(good ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
    uint64_t dropped;
    cr_assert_gt(count_launches(in_scratch("f.spool"), &dropped), 100000);
    cr_assert_eq(dropped, 0);

    child = fork();
    if (child == 0) {
        struct as_error error = {0};
        const struct rlimit limit = {1 << 20, 1 << 20};
        setrlimit(RLIMIT_FSIZE, &limit);
        _exit(as_spool_create(in_scratch("g.spool"), 0, &error) == NULL && error.code == AS_ERR_IO
                  ? 0
                  : 1);
    }
    waitpid(child, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %d", status);
}

Test(spool, cannot_be_created)
{
    struct as_error error = {0};
    cr_assert_null(as_spool_create(in_scratch("no/such/folder/a.spool"), 0, &error));
    cr_assert_eq(error.code, AS_ERR_IO);
    cr_assert_not_null(strstr(error.message, "a.spool"));
    struct as_error absurd = {0};
    cr_assert_null(as_spool_create(in_scratch("a.spool"), SIZE_MAX, &absurd));
    cr_assert_eq(absurd.code, AS_ERR_IO, "%s", absurd.message);
}

/* --- a spool of another build --- */

struct other_field {
    const char *name;
    uint32_t offset;
    uint8_t type, reference;
};

static void add_table(struct as_text *text, const char *name, uint32_t row_size,
                      const struct other_field *fields, uint32_t count)
{
    const struct as_spool_table table = {row_size, count, (uint32_t)strlen(name)};
    as_text_add(text, (const char *)&table, sizeof table);
    as_text_add(text, name, strlen(name));
    for (uint32_t i = 0; i < count; i++) {
        const struct as_spool_field field = {fields[i].offset, fields[i].type, fields[i].reference,
                                             (uint16_t)strlen(fields[i].name)};
        as_text_add(text, (const char *)&field, sizeof field);
        as_text_add(text, fields[i].name, field.name_size);
    }
}

static void add_frame(struct as_text *file, uint32_t kind, const void *payload, uint32_t length)
{
    static const char zeros[8];
    struct as_frame frame = {as_frame_word(kind, length), 0};
    frame.checksum = as_hash64(payload, length, frame.word);
    as_text_add(file, (const char *)&frame, sizeof frame);
    as_text_add(file, payload, length);
    as_text_add(file, zeros, as_align_up(length, 8) - length);
}

static void write_other(const char *path, const struct as_text *tables, uint32_t count,
                        const struct as_text *frames)
{
    struct as_error error = {0};
    struct as_text file = {0};
    static const char zeros[64];
    struct as_spool_header header = {.size =
                                         (uint32_t)as_align_up(sizeof header + tables->length, 64),
                                     .tables = count,
                                     .checksum = as_hash64(tables->data, tables->length, count)};
    memcpy(header.magic, AS_SPOOL_MAGIC, sizeof header.magic);
    as_text_add(&file, (const char *)&header, sizeof header);
    as_text_add(&file, tables->data, tables->length);
    as_text_add(&file, zeros, header.size - file.length);
    as_text_add(&file, frames->data, frames->length);
    must(as_write_file(path, file.data, file.length, &error), "as_write_file", &error);
    as_text_free(&file);
}

/* Fields elsewhere, of other widths, missing, unknown to us; a table that is unknown to us. */
Test(spool, rows_of_another_build_are_matched_by_name)
{
    static const struct other_field launches[] = {
        {"wait_ns", 0, AS_TYPE_U32, AS_REFERENCE_NONE},
        {"launch", 4, AS_TYPE_U32, AS_REFERENCE_LAUNCH},
        {"cycles", 8, AS_TYPE_U64, AS_REFERENCE_NONE},
        {"start", 16, AS_TYPE_U64, AS_REFERENCE_NONE},
        {"work_ns", 24, AS_TYPE_F64, AS_REFERENCE_NONE},
        {"layer", 32, AS_TYPE_U8, AS_REFERENCE_NONE},
        {"step", 40, AS_TYPE_U32, AS_REFERENCE_STRING},
    };
    static const struct other_field later[] = {{"x", 0, AS_TYPE_F64, AS_REFERENCE_NONE}};
    struct {
        uint32_t wait_ns, launch;
        uint64_t cycles, start;
        double work_ns;
        uint8_t layer, pad[7];
        uint32_t step, pad2;
    } rows[] = {{5, 17, 99, 123456789012, 250, 3, {0}, 8, 0},
                {AS_UNKNOWN_U32, 18, 99, AS_UNKNOWN_U64, AS_UNKNOWN_F64, AS_UNKNOWN_U8, {0}, 8, 0}};
    struct as_text tables = {0}, frames = {0};
    add_table(&tables, "/later", 8, later, 1);
    add_table(&tables, "/launches", sizeof rows[0], launches, 7);
    add_frame(&frames, 1, &rows[0].work_ns, 8);
    add_frame(&frames, 2, &rows[0], sizeof rows[0]);
    add_frame(&frames, 2, &rows[1], sizeof rows[1]);
    write_other(in_scratch("o.spool"), &tables, 2, &frames);

    struct as_error error = {0};
    struct as_record record;
    struct as_row_launch expected;
    struct as_spool_reader *reader = as_spool_reader_open(in_scratch("o.spool"), &error);
    cr_assert_not_null(reader, "%s", error.message);
    cr_assert_eq(as_spool_ignored_fields(reader), 3, "x, cycles, and step, which is another kind");
    cr_assert_eq(as_spool_next(reader, &record, &error), 1);
    cr_assert_eq(record.table, -1);
    cr_assert_null(record.row);
    cr_assert_eq(as_spool_next(reader, &record, &error), 1);
    cr_assert_eq(record.table, AS_TABLE_LAUNCHES);
    as_row_unknown(AS_TABLE_LAUNCHES, &expected);
    expected.wait_ns = 5;
    expected.launch = 17;
    expected.start = 123456789012;
    expected.work_ns = 250;
    expected.layer = 3;
    cr_assert_eq(memcmp(record.row, &expected, sizeof expected), 0);
    cr_assert_eq(as_spool_next(reader, &record, &error), 1);
    as_row_unknown(AS_TABLE_LAUNCHES, &expected);
    expected.launch = 18;
    cr_assert_eq(memcmp(record.row, &expected, sizeof expected), 0, "unknown stays unknown");
    cr_assert_eq(as_spool_next(reader, &record, &error), 0);
    cr_assert_eq(as_spool_dropped_bytes(reader), 0);
    as_spool_reader_close(reader);

    /* A description whose field lies outside its row is refused. */
    static const struct other_field outside[] = {{"x", 4, AS_TYPE_F64, AS_REFERENCE_NONE}};
    struct as_text wrong = {0};
    add_table(&wrong, "/later", 8, outside, 1);
    write_other(in_scratch("w.spool"), &wrong, 1, &frames);
    cr_assert_null(as_spool_reader_open(in_scratch("w.spool"), &error));
    cr_assert_eq(error.code, AS_ERR_DATA);
    as_text_free(&wrong);
    as_text_free(&tables);
    as_text_free(&frames);
}

/* Prints what a put costs; asserts nothing about time. */
Test(spool, cost_of_a_put)
{
    const uint32_t rows = 50000; /* 3.6 MB: within the room that is reserved */
    struct as_error error = {0};
    struct as_spool *spool = as_spool_create(in_scratch("b.spool"), (size_t)rows * 72, &error);
    cr_assert_not_null(spool, "%s", error.message);
    struct as_row_launch row = launch_row(1);
    uint64_t start = as_clock_ns();
    for (uint32_t i = 0; i < rows; i++) {
        row.launch = i;
        put(spool, AS_TABLE_LAUNCHES, &row);
    }
    printf("one put of a launch row: %.1f ns\n", (double)(as_clock_ns() - start) / rows);
    close_spool(spool);
}
