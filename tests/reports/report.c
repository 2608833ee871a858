/* Reading reports: locked, read-only, cut, damaged, foreign and older files (cases C52 and C54). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <hdf5.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>

#include "as_random.h"
#include "helpers.h"

TestSuite(report, .init = make_scratch, .fini = drop_scratch);

static const struct child_options small = {.run = 0, .threads = 2, .launches = 40, .base = 1000};

static void make_report(const char *path)
{
    struct as_error error = {0};
    make_child(in_scratch("w"), &small);
    MUST(as_merge(in_scratch("w"), path, NULL, &error));
}

static void expect_refusal(const char *path, int code, const char *words)
{
    struct as_error error = {0};
    struct as_report *report = as_report_open(path, &error);
    cr_assert_null(report, "%s was read", path);
    cr_assert_eq(error.code, code, "%s", error.message);
    cr_assert_not_null(strstr(error.message, path), "%s", error.message);
    cr_assert_not_null(strstr(error.message, words), "%s", error.message);
    cr_assert_null(strchr(error.message, '\n'), "one line: %s", error.message);
}

static void expect_sound(const char *path)
{
    size_t count;
    struct as_report *report = open_report(path);
    struct as_row_launch *launches = read_table(report, AS_TABLE_LAUNCHES, &count);
    cr_assert_eq(count, 40);
    cr_assert_eq(launches[39].work_ns, 201);
    free(launches);
    as_report_close(report);
}

/* C54: another process holds an exclusive lock; it is read all the same, at once. */
Test(report, locked_by_another_process)
{
    int ready[2];
    char byte = 'x';
    make_report(in_scratch("r.h5"));
    cr_assert_eq(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        int fd = open(in_scratch("r.h5"), O_RDWR);
        bool held = flock(fd, LOCK_EX) == 0 && write(ready[1], &byte, 1) == 1;
        alarm(30); /* should the parent fail before it kills this */
        pause();
        _exit(!held);
    }
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    expect_sound(in_scratch("r.h5"));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* C54: several readers at once, in one process and in two. */
Test(report, read_by_many)
{
    make_report(in_scratch("r.h5"));
    struct as_report *first = open_report(in_scratch("r.h5"));
    struct as_report *second = open_report(in_scratch("r.h5"));
    pid_t child = fork();
    if (child == 0) {
        struct as_error error = {0};
        _exit(as_report_open(in_scratch("r.h5"), &error) == NULL);
    }
    int status;
    waitpid(child, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cr_assert_eq(as_report_count(first, AS_TABLE_LAUNCHES), 40);
    as_report_close(first);
    cr_assert_eq(as_report_count(second, AS_TABLE_STEPS), 10);
    as_report_close(second);
}

/* C54: mode 0444 in a folder of mode 0555, read by a user without privileges when run as root. */
Test(report, read_only_file_and_folder)
{
    struct as_error error = {0};
    MUST(as_make_folders(in_scratch("ro"), &error));
    make_report(in_scratch("ro/r.h5"));
    cr_assert_eq(chmod(in_scratch("ro/r.h5"), 0444), 0);
    cr_assert_eq(chmod(in_scratch("ro"), 0555), 0);
    cr_assert_eq(chmod(scratch, 0755), 0);
    pid_t child = fork();
    if (child == 0) {
        if (getuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
            _exit(3);
        struct as_report *report = as_report_open(in_scratch("ro/r.h5"), &error);
        _exit(report == NULL || as_report_count(report, AS_TABLE_LAUNCHES) != 40);
    }
    int status;
    waitpid(child, &status, 0);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
}

/* C54: a process that had the file open for writing was killed. */
Test(report, left_open_by_a_killed_writer)
{
    int ready[2];
    char byte = 'x';
    make_report(in_scratch("r.h5"));
    cr_assert_eq(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        hid_t file = H5Fopen(in_scratch("r.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
        bool opened = file >= 0 && write(ready[1], &byte, 1) == 1;
        alarm(30); /* should the parent fail before it kills this */
        pause();
        _exit(!opened);
    }
    cr_assert_eq(read(ready[0], &byte, 1), 1);
    expect_sound(in_scratch("r.h5"));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    expect_sound(in_scratch("r.h5"));
}

Test(report, refused_files)
{
    struct as_error error = {0};
    expect_refusal(in_scratch("missing.h5"), AS_ERR_IO, "No such file");
    MUST(as_write_file(in_scratch("text.h5"), "hello, this is text", 19, &error));
    expect_refusal(in_scratch("text.h5"), AS_ERR_DATA, "not an HDF5 file");
    MUST(as_write_file(in_scratch("empty.h5"), "", 0, &error));
    expect_refusal(in_scratch("empty.h5"), AS_ERR_DATA, "not an HDF5 file (0 bytes)");
    MUST(as_make_folders(in_scratch("folder.h5"), &error));
    expect_refusal(in_scratch("folder.h5"), AS_ERR_DATA, "not a file");
    cr_assert_eq(mkfifo(in_scratch("pipe.h5"), 0600), 0);
    expect_refusal(in_scratch("pipe.h5"), AS_ERR_DATA, "not a file");

    hid_t file = H5Fcreate(in_scratch("foreign.h5"), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    expect_refusal(in_scratch("foreign.h5"), AS_ERR_DATA, "not a report of assay");
}

/* Changes one text attribute of the root. */
static void set_text(const char *path, const char *key, const char *value)
{
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t type = H5Tcopy(H5T_C_S1);
    hid_t space = H5Screate(H5S_SCALAR);
    H5Tset_size(type, strlen(value) + 1);
    H5Adelete(file, key);
    hid_t attribute = H5Acreate2(file, key, type, space, H5P_DEFAULT, H5P_DEFAULT);
    cr_assert_geq(H5Awrite(attribute, type, value), 0);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Tclose(type);
    H5Fclose(file);
}

Test(report, other_versions)
{
    make_report(in_scratch("r.h5"));
    set_text(in_scratch("r.h5"), "schema", "1.7");
    struct as_report *report = open_report(in_scratch("r.h5"));
    cr_assert_eq(as_report_schema_minor(report), 7);
    as_report_close(report);
    set_text(in_scratch("r.h5"), "schema", "2.0");
    expect_refusal(in_scratch("r.h5"), AS_ERR_DATA, "its schema is 2.0 and this assay reads 1.x");
    set_text(in_scratch("r.h5"), "schema", "newest");
    expect_refusal(in_scratch("r.h5"), AS_ERR_DATA, "is not a version");
    set_text(in_scratch("r.h5"), "schema", "1.0");
    set_text(in_scratch("r.h5"), "complete", "no");
    expect_refusal(in_scratch("r.h5"), AS_ERR_DATA, "never completed");
}

/* Replaces /counters by a table of another shape. */
static void replace_counters(const char *path, bool with_value, hid_t value_type)
{
    struct {
        uint32_t name, run;
        uint64_t extra, value;
    } row = {0, 3, 9, 5};
    hsize_t size = 1;
    hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t type = H5Tcreate(H5T_COMPOUND, sizeof row);
    H5Tinsert(type, "name", 0, H5T_STD_U32LE);
    H5Tinsert(type, "run", 4, H5T_STD_U32LE);
    H5Tinsert(type, "extra", 8, H5T_STD_U64LE);
    if (with_value)
        H5Tinsert(type, "value", 16, value_type);
    H5Ldelete(file, "/counters", H5P_DEFAULT);
    hid_t space = H5Screate_simple(1, &size, NULL);
    hid_t dataset =
        H5Dcreate2(file, "/counters", type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    cr_assert_geq(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, &row), 0);
    H5Dclose(dataset);
    H5Sclose(space);
    H5Tclose(type);
    H5Fclose(file);
}

/* A table of another minor version: fields in another order, one more, one missing. */
Test(report, fields_are_matched_by_name)
{
    size_t count;
    make_report(in_scratch("r.h5"));
    replace_counters(in_scratch("r.h5"), true, H5T_STD_U64LE);
    struct as_report *report = open_report(in_scratch("r.h5"));
    struct as_row_counter *rows = read_table(report, AS_TABLE_COUNTERS, &count);
    cr_assert_eq(count, 1);
    cr_assert_eq(rows[0].run, 3);
    cr_assert_eq(rows[0].value, 5);
    cr_assert_eq(rows[0].units, AS_UNKNOWN_U32, "not in the file");
    free(rows);
    as_report_close(report);

    replace_counters(in_scratch("r.h5"), false, 0);
    expect_refusal(in_scratch("r.h5"), AS_ERR_DATA, "/counters has no field 'value'");
    replace_counters(in_scratch("r.h5"), true, H5T_IEEE_F64LE);
    expect_refusal(in_scratch("r.h5"), AS_ERR_DATA, "field 'value' of its table /counters is not");
    replace_counters(in_scratch("r.h5"), true, H5T_STD_U32LE);
    expect_refusal(in_scratch("r.h5"), AS_ERR_DATA, "is not of type u64");
}

/* A table that the file lacks altogether has no rows. */
Test(report, missing_table)
{
    size_t count;
    make_report(in_scratch("r.h5"));
    hid_t file = H5Fopen(in_scratch("r.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
    H5Ldelete(file, "/utilization", H5P_DEFAULT);
    H5Fclose(file);
    struct as_report *report = open_report(in_scratch("r.h5"));
    cr_assert_eq(as_report_count(report, AS_TABLE_UTILIZATION), 0);
    free(read_table(report, AS_TABLE_UTILIZATION, &count));
    cr_assert_eq(count, 0);
    as_report_close(report);
}

/* A dataset that claims 2^50 rows in a file of a few kilobytes: nothing is allocated for it. */
Test(report, absurd_claims)
{
    make_report(in_scratch("r.h5"));
    hid_t file = H5Fopen(in_scratch("r.h5"), H5F_ACC_RDWR, H5P_DEFAULT);
    hid_t dataset = H5Dopen2(file, "/launches", H5P_DEFAULT);
    hsize_t size = 1ull << 50;
    cr_assert_geq(H5Dset_extent(dataset, &size), 0);
    H5Dclose(dataset);
    H5Fclose(file);
    expect_refusal(in_scratch("r.h5"), AS_ERR_DATA, "/launches is damaged");
}

static void write_bytes(const char *path, const char *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(bytes, 1, size, file), size);
    cr_assert_eq(fclose(file), 0);
}

Test(report, cut_files)
{
    struct as_error error = {0};
    char *bytes;
    size_t size;
    make_report(in_scratch("r.h5"));
    MUST(as_read_file(&bytes, &size, in_scratch("r.h5"), 1 << 24, &error));
    for (size_t cut = 0; cut < size - 24; cut += size / 97) { /* the seal is the last 24 bytes */
        write_bytes(in_scratch("c.h5"), bytes, cut);
        expect_refusal(in_scratch("c.h5"), AS_ERR_DATA, cut < 8 ? "not an HDF5 file" : "truncated");
    }
    free(bytes);
}

/* An edit through HDF5 takes the seal off; a changed byte breaks it. */
Test(report, seal)
{
    make_report(in_scratch("r.h5"));
    struct as_report *report = open_report(in_scratch("r.h5"));
    cr_assert(as_report_sealed(report));
    as_report_close(report);
    struct stat status;
    cr_assert_eq(stat(in_scratch("r.h5"), &status), 0);
    FILE *file = fopen(in_scratch("r.h5"), "r+b");
    cr_assert_eq(fseek(file, status.st_size / 2, SEEK_SET), 0);
    int byte = fgetc(file);
    cr_assert_eq(fseek(file, status.st_size / 2, SEEK_SET), 0);
    fputc(byte ^ 4, file);
    fclose(file);
    expect_refusal(in_scratch("r.h5"), AS_ERR_DATA, "checksum is wrong");
    make_report(in_scratch("e.h5"));
    set_text(in_scratch("e.h5"), "producer", "somebody else");
    report = open_report(in_scratch("e.h5"));
    cr_assert_not(as_report_sealed(report));
    cr_assert_str_eq(as_report_attribute(report, "producer"), "somebody else");
    as_report_close(report);
}

/* Opens and reads everything; anything but a crash or a hang is right. */
static int read_everything(const char *path)
{
    struct as_error error = {0};
    struct as_report *report = as_report_open(path, &error);
    for (int t = 0; report != NULL && t < AS_TABLE_COUNT; t++) {
        void *rows;
        size_t count;
        if (as_report_read(report, (enum as_table)t, &rows, &count, &error) == AS_OK)
            free(rows);
    }
    as_report_close(report);
    if (report == NULL && error.code == AS_OK)
        return 1;
    return error.code != AS_OK && error.message[0] == '\0';
}

/* Reads files with the damage of trials [first, last); the number of failures without a message. */
static int read_damaged(char *bytes, size_t size, uint64_t first, uint64_t last)
{
    int bad = 0;
    for (uint64_t trial = first; trial < last; trial++) {
        size_t length = 1 + (size_t)(as_random_u64(21, trial, 0) % 16);
        size_t at = (size_t)(as_random_u64(21, trial, 1) % (size - length));
        char saved[16];
        memcpy(saved, bytes + at, length);
        for (size_t i = 0; i < length; i++)
            bytes[at + i] = (char)as_random_u64(21, trial, 2 + i);
        write_bytes(in_scratch("d.h5"), bytes, size);
        memcpy(bytes + at, saved, length);
        bad += read_everything(in_scratch("d.h5"));
    }
    return bad;
}

/* Damage anywhere ends in a message or in rows, never in a signal or a hang. */
Test(report, damaged_files)
{
    struct as_error error = {0};
    char *bytes;
    size_t size;
    make_report(in_scratch("r.h5"));
    MUST(as_read_file(&bytes, &size, in_scratch("r.h5"), 1 << 24, &error));
    for (uint64_t first = 0; first < 400; first += 50) {
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            _exit(read_damaged(bytes, size, first, first + 50));
        }
        int status;
        waitpid(child, &status, 0);
        cr_expect(WIFEXITED(status), "trials from %u: signal %d", (unsigned)first,
                  WTERMSIG(status));
        cr_expect_eq(WIFEXITED(status) ? WEXITSTATUS(status) : 0, 0, "no message from %u on",
                     (unsigned)first);
    }
    free(bytes);
}

Test(report, ranges)
{
    struct as_error error = {0};
    struct as_row_launch rows[5];
    make_report(in_scratch("r.h5"));
    struct as_report *report = open_report(in_scratch("r.h5"));
    MUST(as_report_read_range(report, AS_TABLE_LAUNCHES, 35, 5, rows, &error));
    cr_assert_eq(rows[4].launch, 39);
    MUST(as_report_read_range(report, AS_TABLE_LAUNCHES, 40, 0, rows, &error));
    cr_assert_lt(as_report_read_range(report, AS_TABLE_LAUNCHES, 36, 5, rows, &error), 0);
    as_report_close(report);
}

Test(report, attributes_in_order)
{
    make_report(in_scratch("r.h5"));
    struct as_report *report = open_report(in_scratch("r.h5"));
    const char *value, *previous = "";
    size_t count = 0;
    for (const char *key; (key = as_report_attribute_at(report, count, &value)) != NULL; count++) {
        cr_assert_gt(strcmp(key, previous), 0);
        cr_assert_not_null(value);
        previous = key;
    }
    cr_assert_eq(count, 8);
    cr_assert_null(as_report_attribute(report, "nothing"));
    cr_assert_null(as_report_attribute(report, "complete"), "not text");
    as_report_close(report);
}
