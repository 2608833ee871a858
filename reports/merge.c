#include "merge.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "as_memory.h"
#include "merge_internal.h"

static void free_attribute(struct as_merge_attribute *attribute)
{
    free(attribute->key);
    free(attribute->text);
}

void as_merge_attributes_free(struct as_merge_attributes *attributes)
{
    for (size_t i = 0; i < attributes->count; i++)
        free_attribute(&attributes->list[i]);
    free(attributes->list);
    *attributes = (struct as_merge_attributes){0};
}

int as_merge_attribute(struct as_merge_attributes *attributes, const char *key,
                       const struct as_record *record, struct as_error *error)
{
    size_t at = 0;
    while (at < attributes->count && strcmp(attributes->list[at].key, key) != 0)
        at++;
    struct as_merge_attribute made = {.key = as_strdup(error, key),
                                      .text = as_strdup(error, record->text),
                                      .type = record->type,
                                      .u64 = record->u64,
                                      .f64 = record->f64};
    int rc = AS_OK;
    if (made.key == NULL || (record->text != NULL && made.text == NULL))
        rc = AS_ERR_MEMORY;
    else if (at == attributes->count)
        rc = as_grow(error, &attributes->list, &attributes->capacity, attributes->count,
                     sizeof *attributes->list, "attributes");
    if (rc != AS_OK) {
        free_attribute(&made);
        return rc;
    }
    if (at == attributes->count)
        attributes->count++;
    else
        free_attribute(&attributes->list[at]);
    attributes->list[at] = made;
    return AS_OK;
}

struct as_row_run *as_merge_run(struct as_merge *merge, uint32_t run, struct as_error *error)
{
    for (size_t i = 0; i < merge->run_count; i++) {
        if (merge->runs[i].run == run)
            return &merge->runs[i];
    }
    if (as_grow(error, &merge->runs, &merge->run_capacity, merge->run_count, sizeof *merge->runs,
                "runs") != AS_OK)
        return NULL;
    struct as_row_run *row = &merge->runs[merge->run_count++];
    as_row_unknown(AS_TABLE_RUNS, row);
    row->run = run;
    return row;
}

void as_merge_overlay(struct as_row_run *to, const struct as_row_run *from)
{
    const struct as_table_schema *schema = &as_tables[AS_TABLE_RUNS];
    for (uint32_t i = 0; i < schema->field_count; i++) {
        const struct as_field *field = &schema->fields[i];
        double value;
        if (as_field_f64(field, from, &value))
            memcpy((char *)to + field->offset, (const char *)from + field->offset,
                   as_type_size(field->type));
    }
}

static const char *signal_name(uint32_t number)
{
    static const struct {
        uint32_t number;
        const char *name;
    } names[] = {{1, "SIGHUP"},   {2, "SIGINT"},   {3, "SIGQUIT"},  {4, "SIGILL"},
                 {6, "SIGABRT"},  {7, "SIGBUS"},   {8, "SIGFPE"},   {9, "SIGKILL"},
                 {11, "SIGSEGV"}, {13, "SIGPIPE"}, {14, "SIGALRM"}, {15, "SIGTERM"},
                 {24, "SIGXCPU"}, {25, "SIGXFSZ"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].number == number)
            return names[i].name;
    }
    return "a signal";
}

/* Judges a run that carries no verdict of its own. */
static int judge(struct as_merge *merge, struct as_row_run *run, struct as_error *error)
{
    char reason[128] = "";
    bool signalled = run->signal != AS_UNKNOWN_U32 && run->signal != 0;
    if (run->valid == AS_UNKNOWN_U8) {
        if (signalled)
            snprintf(reason, sizeof reason, "child killed by signal %u (%s)", run->signal,
                     signal_name(run->signal));
        else if (run->exit != AS_UNKNOWN_U32 && run->exit != 0)
            snprintf(reason, sizeof reason, "child exited with status %u", run->exit);
        else if (run->start == AS_UNKNOWN_U64 && run->exit == AS_UNKNOWN_U32)
            snprintf(reason, sizeof reason, "never started: the run was interrupted");
        else if (run->end == AS_UNKNOWN_U64 || run->exit == AS_UNKNOWN_U32)
            snprintf(reason, sizeof reason, "no end recorded: the run was interrupted");
        run->valid = reason[0] == '\0';
    }
    if (run->valid == 0 && run->invalid_reason == AS_UNKNOWN_U32) {
        if (reason[0] == '\0')
            snprintf(reason, sizeof reason, "marked invalid without a reason");
        run->invalid_reason = as_writer_string(merge->writer, reason, strlen(reason), error);
        if (run->invalid_reason == AS_UNKNOWN_U32)
            return AS_ERR_MEMORY;
    }
    merge->summary->invalid_runs += run->valid == 0;
    return AS_OK;
}

static int by_run(const void *a, const void *b)
{
    const struct as_row_run *x = a, *y = b;
    return (x->run > y->run) - (x->run < y->run);
}

static int write_runs(struct as_merge *merge, struct as_error *error)
{
    for (size_t i = 0; i < merge->parent_run_count; i++) {
        struct as_row_run *run = as_merge_run(merge, merge->parent_runs[i].run, error);
        if (run == NULL)
            return AS_ERR_MEMORY;
        as_merge_overlay(run, &merge->parent_runs[i]);
    }
    if (merge->run_count > 1)
        qsort(merge->runs, merge->run_count, sizeof *merge->runs, by_run);
    for (size_t i = 0; i < merge->run_count; i++) {
        int rc = judge(merge, &merge->runs[i], error);
        if (rc != AS_OK)
            return rc;
    }
    merge->summary->runs = (uint32_t)merge->run_count;
    return as_writer_rows(merge->writer, AS_TABLE_RUNS, merge->runs, merge->run_count, error);
}

static int write_problems_and_variants(struct as_merge *merge, struct as_error *error)
{
    int rc = AS_OK;
    for (uint32_t i = 0; rc == AS_OK && i < merge->problems.count; i++) {
        struct as_row_problem row;
        memcpy(&row, merge->problems.entries[i].text, sizeof row);
        row.problem = i;
        rc = as_writer_rows(merge->writer, AS_TABLE_PROBLEMS, &row, 1, error);
    }
    for (uint32_t i = 0; rc == AS_OK && i < merge->variants.count; i++) {
        struct as_row_variant row;
        memcpy(&row, merge->variants.entries[i].text, sizeof row);
        row.variant = i;
        row.checked = merge->checked[i];
        rc = as_writer_rows(merge->writer, AS_TABLE_VARIANTS, &row, 1, error);
    }
    return rc;
}

static int write_attributes(struct as_merge *merge, struct as_error *error)
{
    const struct as_merge_summary *summary = merge->summary;
    const struct {
        const char *key;
        uint64_t value;
    } counts[] = {{"merge_dropped_launches", summary->dropped_launches},
                  {"merge_dropped_bytes", summary->dropped_bytes},
                  {"merge_damaged_spools", summary->damaged_spools},
                  {"merge_ignored_fields", summary->ignored_fields},
                  {"merge_cut_strings", as_writer_cut_strings(merge->writer)}};
    bool producer = false;
    int rc = AS_OK;
    for (size_t i = 0; rc == AS_OK && i < merge->attributes.count; i++) {
        const struct as_merge_attribute *own = &merge->attributes.list[i];
        producer = producer || strcmp(own->key, "producer") == 0;
        rc = own->type == 's'   ? as_writer_attribute(merge->writer, own->key, own->text, error)
             : own->type == 'u' ? as_writer_attribute_u64(merge->writer, own->key, own->u64, error)
                                : as_writer_attribute_f64(merge->writer, own->key, own->f64, error);
    }
    for (size_t i = 0; rc == AS_OK && i < sizeof counts / sizeof counts[0]; i++)
        rc = as_writer_attribute_u64(merge->writer, counts[i].key, counts[i].value, error);
    if (rc == AS_OK && !producer)
        rc = as_writer_attribute(merge->writer, "producer", "assay", error);
    return rc;
}

/* Numbers of the folders run-<number>, ascending. */
struct run_folders {
    uint32_t *runs;
    size_t count, capacity;
};

static int by_number(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static int list_runs(const char *work, struct run_folders *folders, struct as_error *error)
{
    int rc = AS_OK;
    DIR *listing = opendir(work);
    if (listing == NULL)
        return as_fail_errno(error, errno == ENOENT || errno == ENOTDIR ? AS_ERR_USAGE : AS_ERR_IO,
                             "reading the work folder %s", work);
    for (struct dirent *entry; rc == AS_OK && (entry = readdir(listing)) != NULL;) {
        char expected[64];
        unsigned run;
        if (sscanf(entry->d_name, "run-%u", &run) != 1 || run == AS_UNKNOWN_U32)
            continue;
        snprintf(expected, sizeof expected, "run-%04u", run);
        if (strcmp(entry->d_name, expected) != 0)
            continue;
        rc = as_grow(error, &folders->runs, &folders->capacity, folders->count,
                     sizeof *folders->runs, "runs");
        if (rc == AS_OK)
            folders->runs[folders->count++] = run;
    }
    closedir(listing);
    if (folders->count > 1)
        qsort(folders->runs, folders->count, sizeof *folders->runs, by_number);
    return rc;
}

static int merge_all(struct as_merge *merge, const char *work, const struct run_folders *folders,
                     struct as_error *error)
{
    char path[4096];
    bool found = false;
    if (snprintf(path, sizeof path, "%s/%s", work, AS_SPOOL_PARENT) >= (int)sizeof path)
        return as_fail(error, AS_ERR_USAGE, "the path of the work folder %.200s is too long", work);
    int rc = as_merge_parent(merge, path, &found, error);
    if (rc == AS_OK && !found && folders->count == 0)
        rc = as_fail(error, AS_ERR_DATA,
                     "merging %s: it holds no %s and no run-0000, so it is not the work folder of "
                     "a run, or the run ended before it recorded anything",
                     work, AS_SPOOL_PARENT);
    for (size_t i = 0; rc == AS_OK && i < folders->count; i++) {
        rc = as_spool_child_folder(path, sizeof path, work, folders->runs[i], error);
        if (rc == AS_OK)
            rc = as_merge_child(merge, path, folders->runs[i], error);
    }
    if (rc == AS_OK)
        rc = write_runs(merge, error);
    if (rc == AS_OK)
        rc = write_problems_and_variants(merge, error);
    if (rc == AS_OK)
        rc = write_attributes(merge, error);
    return rc;
}

int as_merge(const char *work_folder, const char *output_path, struct as_merge_summary *summary,
             struct as_error *error)
{
    struct as_merge_summary own = {0};
    struct as_merge merge = {.summary = summary != NULL ? summary : &own};
    struct run_folders folders = {0};
    *merge.summary = own;
    int rc = list_runs(work_folder, &folders, error);
    if (rc == AS_OK) {
        merge.writer = as_writer_create(output_path, error);
        rc = merge.writer != NULL ? AS_OK : error != NULL ? error->code : AS_ERR_IO;
    }
    if (rc == AS_OK)
        rc = merge_all(&merge, work_folder, &folders, error);
    if (rc == AS_OK) {
        merge.summary->cut_strings = as_writer_cut_strings(merge.writer);
        rc = as_writer_finish(merge.writer, error);
    } else {
        as_writer_abandon(merge.writer);
    }
    as_merge_attributes_free(&merge.attributes);
    as_intern_free(&merge.problems);
    as_intern_free(&merge.variants);
    as_timeline_free(&merge.timeline);
    free(merge.checked);
    free(merge.runs);
    free(merge.parent_runs);
    free(folders.runs);
    return rc;
}
