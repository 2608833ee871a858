/* That h5py alone reads every dataset by the names in SCHEMA.md: makes a report with a row in every
 * table and lets read_with_h5py.py look at it. Skipped (77) without the project's Python. */
#define _GNU_SOURCE
#include <spawn.h>
#include <sys/wait.h>

#include "helpers.h"

extern char **environ;

/* Field i of row r holds 1000 r + i (modulo 200 in a byte). */
static void put_counted_rows(struct as_spool *spool, enum as_table table, uint32_t rows)
{
    const struct as_table_schema *schema = &as_tables[table];
    for (uint32_t r = 0; r < rows; r++) {
        uint64_t row[AS_ROW_SIZE_MAX / 8];
        as_row_unknown(table, row);
        for (uint32_t i = 0; i < schema->field_count; i++) {
            const struct as_field *field = &schema->fields[i];
            uint64_t u64 = 1000u * r + i;
            double f64 = (double)u64;
            if (field->reference == AS_REFERENCE_STRING)
                u64 = r % 3;
            else if (field->reference == AS_REFERENCE_PROBLEM ||
                     field->reference == AS_REFERENCE_VARIANT)
                u64 = r;
            else if (field->type == AS_TYPE_U8)
                u64 %= 200;
            memcpy((char *)row + field->offset, field->type == AS_TYPE_F64 ? (void *)&f64 : &u64,
                   as_type_size(field->type));
        }
        put(spool, table, row);
    }
}

static int run_python(const char *python, const char *report)
{
    char *const arguments[] = {(char *)python,
                               (char *)ASSAY_SOURCE_DIR "/tests/reports/read_with_h5py.py",
                               (char *)ASSAY_SOURCE_DIR "/reports/SCHEMA.md", (char *)report, NULL};
    pid_t child;
    int status;
    if (posix_spawn(&child, python, NULL, NULL, arguments, environ) != 0)
        return -1;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(void)
{
    const char *python = ASSAY_SOURCE_DIR "/.venv/bin/python";
    if (access(python, X_OK) != 0) {
        printf("skipped: there is no %s with h5py\n", python);
        return 77;
    }
    struct as_error error = {0};
    make_scratch();
    struct as_spool *spool = new_spool(in_scratch("w"), AS_SPOOL_PARENT);
    as_spool_string(spool, "zero");
    as_spool_string(spool, "one \xf0\x9f\xa6\x99");
    as_spool_string(spool, "");
    as_spool_attribute(spool, "date", "2026-01-01T00:00:00Z");
    for (int t = 0; t < AS_TABLE_COUNT; t++)
        put_counted_rows(spool, (enum as_table)t, t == AS_TABLE_LAUNCHES ? 10000 : 5);
    int rc = as_spool_close(spool, &error);
    if (rc == AS_OK)
        rc = as_merge(in_scratch("w"), in_scratch("all.h5"), NULL, &error);
    if (rc == AS_OK)
        rc = run_python(python, in_scratch("all.h5"));
    if (rc == AS_OK)
        rc = as_spool_close(new_spool(in_scratch("none"), AS_SPOOL_PARENT), &error);
    if (rc == AS_OK)
        rc = as_merge(in_scratch("none"), in_scratch("none.h5"), NULL, &error);
    if (rc == AS_OK)
        rc = run_python(python, in_scratch("none.h5"));
    drop_scratch();
    if (rc != AS_OK)
        printf("%d %s\n", rc, error.message);
    return rc == 0 ? 0 : rc == 77 ? 77 : 1;
}
