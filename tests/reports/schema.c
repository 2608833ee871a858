/* The table of tables, and that SCHEMA.md says the same field by field. */
#include "as_text.h"
#include "helpers.h"

Test(schema, launch_rows_stay_small)
{
    cr_assert_leq(sizeof(struct as_row_launch), 64);
    for (int t = 0; t < AS_TABLE_COUNT; t++)
        cr_assert_leq(as_tables[t].row_size, AS_ROW_SIZE_MAX, "%s", as_tables[t].name);
}

/* No two fields overlap, names are unique, and every byte that no field covers is padding. */
Test(schema, fields_cover_their_rows)
{
    for (int t = 0; t < AS_TABLE_COUNT; t++) {
        const struct as_table_schema *schema = &as_tables[t];
        unsigned char covered[AS_ROW_SIZE_MAX] = {0};
        uint32_t bytes = 0;
        cr_assert_eq(as_table_by_name(schema->name), t);
        cr_assert_lt(schema->field_count, 64, "the writer lists at most 64");
        for (uint32_t i = 0; i < schema->field_count; i++) {
            const struct as_field *field = &schema->fields[i];
            uint32_t size = as_type_size(field->type);
            cr_assert_eq(as_field_by_name((enum as_table)t, field->name), field, "%s twice",
                         field->name);
            cr_assert_eq(field->offset % size, 0);
            cr_assert(field->reference == AS_REFERENCE_NONE || field->type == AS_TYPE_U32);
            cr_assert_gt(strlen(field->description), 0);
            for (uint32_t b = 0; b < size; b++)
                cr_assert_eq(covered[field->offset + b]++, 0, "%s overlaps", field->name);
            bytes += size;
        }
        cr_assert_lt(schema->row_size - bytes, 8, "%s: a member is no field", schema->name);
    }
    cr_assert_eq(as_table_by_name("/nothing"), -1);
    cr_assert_null(as_field_by_name(AS_TABLE_RUNS, "nothing"));
}

Test(schema, unknown_rows)
{
    for (int t = 0; t < AS_TABLE_COUNT; t++) {
        unsigned char row[AS_ROW_SIZE_MAX], copy[AS_ROW_SIZE_MAX];
        uint64_t u64;
        double f64;
        memset(row, 0x55, sizeof row);
        as_row_unknown((enum as_table)t, row);
        for (uint32_t i = 0; i < as_tables[t].field_count; i++) {
            cr_assert_not(as_field_u64(&as_tables[t].fields[i], row, &u64));
            cr_assert_not(as_field_f64(&as_tables[t].fields[i], row, &f64));
        }
        as_row_copy((enum as_table)t, copy, row);
        cr_assert_eq(memcmp(row, copy, as_tables[t].row_size), 0);
    }
}

Test(schema, known_values)
{
    struct as_row_ceiling row;
    uint64_t u64;
    double f64;
    as_row_unknown(AS_TABLE_CEILINGS, &row);
    row.threads = 0;
    row.measured = (1ull << 53) + 1;
    row.value = -1.5;
    cr_assert(as_field_u64(as_field_by_name(AS_TABLE_CEILINGS, "threads"), &row, &u64) && u64 == 0);
    cr_assert(as_field_u64(as_field_by_name(AS_TABLE_CEILINGS, "measured"), &row, &u64));
    cr_assert_eq(u64, (1ull << 53) + 1);
    cr_assert(as_field_f64(as_field_by_name(AS_TABLE_CEILINGS, "value"), &row, &f64));
    cr_assert_eq(f64, -1.5);
    cr_assert_not(as_field_u64(as_field_by_name(AS_TABLE_CEILINGS, "value"), &row, &u64));
}

Test(schema, names_of_codes)
{
    cr_assert_str_eq(as_report_pass_name(AS_REPORT_PASS_TRACED), "traced");
    cr_assert_str_eq(as_report_phase_name(AS_REPORT_PHASE_DECODE), "decode");
    cr_assert_str_eq(as_report_outcome_name(AS_REPORT_OUTCOME_TIMEOUT), "timeout");
    cr_assert_str_eq(as_report_finish_name(AS_REPORT_FINISH_LENGTH), "length");
    cr_assert_str_eq(as_report_finish_name(AS_UNKNOWN_U8), "unknown");
    cr_assert_str_eq(as_report_finish_name(77), "?");
}

/* The part of SCHEMA.md about `table`, exactly as it must read. */
static void describe(struct as_text *text, const struct as_table_schema *schema)
{
    as_text_addf(text,
                 "### `%s`\n\n%s. A row is %s.\n\n| field | type | names | units | meaning |\n"
                 "| --- | --- | --- | --- | --- |\n",
                 schema->name, schema->description, schema->a_row);
    for (uint32_t i = 0; i < schema->field_count; i++) {
        const struct as_field *field = &schema->fields[i];
        as_text_addf(text, "| `%s` | %s | %s | %s | %s |\n", field->name, as_type_name(field->type),
                     as_reference_name(field->reference), field->units, field->description);
    }
}

Test(schema, schema_md_agrees)
{
    struct as_error error = {0};
    char *page;
    size_t size;
    char version[64];
    MUST(as_read_file(&page, &size, ASSAY_SOURCE_DIR "/reports/SCHEMA.md", 1 << 20, &error));
    snprintf(version, sizeof version, "(schema %d.%d)", AS_SCHEMA_MAJOR, AS_SCHEMA_MINOR);
    cr_assert_not_null(strstr(page, version));
    const char *at = strstr(page, "## Datasets");
    cr_assert_not_null(at);
    size_t described = 0;
    for (int t = 0; t < AS_TABLE_COUNT; t++) {
        struct as_text expected = {0};
        describe(&expected, &as_tables[t]);
        const char *found = strstr(at, expected.data);
        cr_assert_not_null(found, "SCHEMA.md does not have this part:\n%s", expected.data);
        char after = found[expected.length];
        cr_assert(after == '\n' || after == '\0', "SCHEMA.md: %s has more", as_tables[t].name);
        described += expected.length;
        as_text_free(&expected);
    }
    cr_assert_lt(strlen(at) - described, 300, "SCHEMA.md describes a table that is not there");
    free(page);
}
