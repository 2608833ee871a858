/* One child's spools into the report: ids are turned into the report's, threads are joined. */
#include "merge_internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "as_memory.h"

/* Local ids are dense; a row that claims a larger one is damaged, and no table is sized by it. */
#define LOCAL_IDS_MAX (1u << 24)

/* One spool being merged. */
struct source {
    struct as_spool_reader *reader;
    struct as_id_map strings;
    bool joins; /* its launches are joined with the thread spools */
};

/* The rows of one thread, beside the launches of thread 0. */
struct stream {
    struct as_spool_reader *reader;
    struct as_row_launch_thread head;
    uint32_t thread;
    bool has_head, had_rows;
};

struct child {
    struct as_merge *merge;
    uint32_t run; /* unknown for the parent's spool */
    struct as_id_map problems, variants;
    struct as_merge_attributes attributes;
    struct source *sources;
    size_t source_count, source_capacity;
    struct stream *streams;
    size_t stream_count, stream_capacity;
    uint32_t launches; /* one more than the largest local number */
    bool has_utilization;
};

static int map_set(struct as_id_map *map, uint32_t local, uint32_t global, struct as_error *error)
{
    if (local >= LOCAL_IDS_MAX)
        return AS_OK;
    while (map->count <= local) {
        int rc = as_grow(error, &map->ids, &map->capacity, map->count, sizeof *map->ids,
                         "ids of a spool");
        if (rc != AS_OK)
            return rc;
        map->ids[map->count++] = AS_UNKNOWN_U32;
    }
    map->ids[local] = global;
    return AS_OK;
}

static uint32_t map_get(const struct as_id_map *map, uint32_t local)
{
    return local < map->count ? map->ids[local] : AS_UNKNOWN_U32;
}

/* Opens a spool. A file that is none is counted and passed over: *reader stays NULL. */
static int open_spool(struct child *child, const char *path, struct as_spool_reader **reader,
                      struct as_error *error)
{
    struct as_error own = {0};
    *reader = as_spool_reader_open(path, &own);
    if (*reader == NULL && own.code == AS_ERR_DATA) {
        child->merge->summary->damaged_spools++;
        return AS_OK;
    }
    if (*reader == NULL)
        return as_fail(error, own.code, "%s", own.message);
    child->merge->summary->ignored_fields += as_spool_ignored_fields(*reader);
    return AS_OK;
}

static void close_spool(struct child *child, struct as_spool_reader *reader)
{
    if (reader == NULL)
        return;
    uint64_t dropped = as_spool_dropped_bytes(reader);
    child->merge->summary->dropped_bytes += dropped;
    child->merge->summary->damaged_spools += dropped > 0;
    as_spool_reader_close(reader);
}

/* Turns the ids of a row into the report's. */
static void remap(const struct child *child, const struct source *source, enum as_table table,
                  void *row)
{
    const struct as_table_schema *schema = &as_tables[table];
    for (uint32_t i = 0; i < schema->field_count; i++) {
        const struct as_field *field = &schema->fields[i];
        if (field->reference == AS_REFERENCE_NONE)
            continue;
        uint32_t id;
        memcpy(&id, (char *)row + field->offset, sizeof id);
        switch (field->reference) {
        case AS_REFERENCE_STRING: id = map_get(&source->strings, id); break;
        case AS_REFERENCE_PROBLEM: id = map_get(&child->problems, id); break;
        case AS_REFERENCE_VARIANT: id = map_get(&child->variants, id); break;
        case AS_REFERENCE_RUN: id = id == AS_UNKNOWN_U32 ? child->run : id; break;
        case AS_REFERENCE_LAUNCH:
            id = id == AS_UNKNOWN_U32 ? id : id + child->merge->launch_base;
            break;
        default: break;
        }
        memcpy((char *)row + field->offset, &id, sizeof id);
    }
}

static int add_problem(struct child *child, const struct source *source,
                       const struct as_row_problem *from, struct as_error *error)
{
    struct as_row_problem row;
    bool added;
    as_row_copy(AS_TABLE_PROBLEMS, &row, from);
    remap(child, source, AS_TABLE_PROBLEMS, &row);
    row.problem = 0;
    uint32_t id = as_intern(&child->merge->problems, (const char *)&row, sizeof row, &added, error);
    return id == AS_UNKNOWN_U32 ? AS_ERR_MEMORY
                                : map_set(&child->problems, from->problem, id, error);
}

static int add_variant(struct child *child, const struct source *source,
                       const struct as_row_variant *from, struct as_error *error)
{
    struct as_merge *merge = child->merge;
    struct as_row_variant row;
    bool added;
    as_row_copy(AS_TABLE_VARIANTS, &row, from);
    remap(child, source, AS_TABLE_VARIANTS, &row);
    row.variant = 0;
    row.checked = 0;
    uint32_t id = as_intern(&merge->variants, (const char *)&row, sizeof row, &added, error);
    if (id == AS_UNKNOWN_U32)
        return AS_ERR_MEMORY;
    if (added) {
        int rc = as_grow(error, &merge->checked, &merge->checked_capacity, id, 1, "variants");
        if (rc != AS_OK)
            return rc;
        merge->checked[id] = AS_UNKNOWN_U8;
    }
    /* A failed check outweighs a passed one. */
    if (from->checked != AS_UNKNOWN_U8 && merge->checked[id] != 0)
        merge->checked[id] = from->checked;
    return map_set(&child->variants, from->variant, id, error);
}

static int add_run(struct child *child, const struct source *source, const struct as_row_run *from,
                   struct as_error *error)
{
    struct as_merge *merge = child->merge;
    struct as_row_run row;
    as_row_copy(AS_TABLE_RUNS, &row, from);
    remap(child, source, AS_TABLE_RUNS, &row);
    if (row.run == AS_UNKNOWN_U32)
        return AS_OK;
    if (child->run == AS_UNKNOWN_U32) {
        int rc = as_grow(error, &merge->parent_runs, &merge->parent_run_capacity,
                         merge->parent_run_count, sizeof row, "runs");
        if (rc == AS_OK)
            merge->parent_runs[merge->parent_run_count++] = row;
        return rc;
    }
    struct as_row_run *run = as_merge_run(merge, row.run, error);
    if (run == NULL)
        return AS_ERR_MEMORY;
    as_merge_overlay(run, &row);
    return AS_OK;
}

static int define(struct child *child, struct source *source, const struct as_record *record,
                  struct as_error *error)
{
    if (record->kind == AS_RECORD_STRING) {
        uint32_t id =
            as_writer_string(child->merge->writer, record->text, record->text_size, error);
        return id == AS_UNKNOWN_U32 ? AS_ERR_MEMORY
                                    : map_set(&source->strings, record->id, id, error);
    }
    if (record->kind == AS_RECORD_ATTRIBUTE)
        return as_merge_attribute(&child->attributes, record->key, record, error);
    switch (record->table) {
    case AS_TABLE_PROBLEMS: return add_problem(child, source, record->row, error);
    case AS_TABLE_VARIANTS: return add_variant(child, source, record->row, error);
    case AS_TABLE_RUNS: return add_run(child, source, record->row, error);
    default: return AS_OK;
    }
}

/* First reading: what rows refer to. */
static int read_definitions(struct child *child, struct source *source, struct as_error *error)
{
    struct as_record record;
    int rc;
    while ((rc = as_spool_next(source->reader, &record, error)) > 0) {
        rc = define(child, source, &record, error);
        if (rc != AS_OK)
            return rc;
    }
    as_spool_rewind(source->reader);
    return rc;
}

static int next_head(struct stream *stream, struct as_error *error)
{
    struct as_record record;
    int rc;
    stream->has_head = false;
    while ((rc = as_spool_next(stream->reader, &record, error)) > 0) {
        if (record.kind == AS_RECORD_ROW && record.table == AS_TABLE_LAUNCH_THREADS) {
            memcpy(&stream->head, record.row, sizeof stream->head);
            stream->has_head = stream->had_rows = true;
            return AS_OK;
        }
    }
    return rc;
}

static void add_known(uint64_t *sum, uint64_t value)
{
    if (value != AS_UNKNOWN_U64)
        *sum = *sum == AS_UNKNOWN_U64 ? value : *sum + value;
}

/* Lays one thread's part over the launch, whose work and wait are the sums so far. */
static void join_part(struct as_row_launch *launch, const struct as_row_launch_thread *part)
{
    add_known(&launch->work_ns, part->work_ns);
    add_known(&launch->wait_ns, part->wait_ns);
    if (part->start == AS_UNKNOWN_U64)
        return;
    if (launch->start == AS_UNKNOWN_U64 || part->start < launch->start)
        launch->start = part->start;
    if (part->work_ns == AS_UNKNOWN_U64)
        return;
    uint64_t end = part->start + part->work_ns;
    if (part->wait_ns != AS_UNKNOWN_U64)
        end += part->wait_ns;
    if (launch->end == AS_UNKNOWN_U64 || end > launch->end)
        launch->end = end;
}

/* Skips parts of launches that thread 0 has no row of. */
static int catch_up(struct child *child, struct stream *stream, uint32_t launch,
                    struct as_error *error)
{
    while (stream->has_head && stream->head.launch < launch) {
        child->merge->summary->dropped_launches++;
        int rc = next_head(stream, error);
        if (rc != AS_OK)
            return rc;
    }
    return AS_OK;
}

static int write_part(struct child *child, struct as_row_launch_thread part, uint32_t thread,
                      struct as_error *error)
{
    part.launch += child->merge->launch_base;
    part.thread = thread;
    return as_writer_rows(child->merge->writer, AS_TABLE_LAUNCH_THREADS, &part, 1, error);
}

/* One launch of thread 0 with the parts of the others. */
static int join_launch(struct child *child, const struct source *source,
                       const struct as_row_launch *from, struct as_error *error)
{
    struct as_merge *merge = child->merge;
    struct as_row_launch launch = *from;
    const struct as_row_launch_thread own = {from->launch, 0, from->start, from->work_ns,
                                             from->wait_ns};
    bool whole = true;
    int rc = AS_OK;
    for (size_t i = 0; i < child->stream_count; i++) {
        struct stream *stream = &child->streams[i];
        rc = catch_up(child, stream, from->launch, error);
        if (rc != AS_OK)
            return rc;
        /* A thread that has nothing more never ended this launch; one that is further on was
         * not needed for it. */
        whole = whole && (stream->has_head || !stream->had_rows);
    }
    merge->summary->dropped_launches += !whole;
    launch.work_ns = launch.wait_ns = AS_UNKNOWN_U64;
    join_part(&launch, &own);
    if (whole && own.work_ns != AS_UNKNOWN_U64)
        rc = write_part(child, own, 0, error);
    for (size_t i = 0; rc == AS_OK && i < child->stream_count; i++) {
        struct stream *stream = &child->streams[i];
        if (!stream->has_head || stream->head.launch != from->launch)
            continue;
        join_part(&launch, &stream->head);
        if (whole)
            rc = write_part(child, stream->head, stream->thread, error);
        if (rc == AS_OK)
            rc = next_head(stream, error);
    }
    if (rc != AS_OK || !whole)
        return rc;
    remap(child, source, AS_TABLE_LAUNCHES, &launch);
    merge->summary->launches++;
    rc = as_timeline_launch(&merge->timeline, &launch, error);
    return rc == AS_OK ? as_writer_rows(merge->writer, AS_TABLE_LAUNCHES, &launch, 1, error) : rc;
}

static int copy_launch(struct child *child, const struct source *source,
                       const struct as_row_launch *row, struct as_error *error)
{
    if (row->launch == AS_UNKNOWN_U32 || row->launch > UINT32_MAX - 2 - child->merge->launch_base) {
        child->merge->summary->dropped_launches++; /* the report has no number for it */
        return AS_OK;
    }
    if (row->launch >= child->launches)
        child->launches = row->launch + 1;
    if (source->joins)
        return join_launch(child, source, row, error);
    struct as_row_launch launch = *row;
    remap(child, source, AS_TABLE_LAUNCHES, &launch);
    child->merge->summary->launches++;
    int rc = as_timeline_launch(&child->merge->timeline, &launch, error);
    return rc == AS_OK ? as_writer_rows(child->merge->writer, AS_TABLE_LAUNCHES, &launch, 1, error)
                       : rc;
}

static int copy_row(struct child *child, const struct source *source,
                    const struct as_record *record, struct as_error *error)
{
    uint64_t row[AS_ROW_SIZE_MAX / 8];
    enum as_table table = (enum as_table)record->table;
    switch (table) {
    case AS_TABLE_RUNS:
    case AS_TABLE_PROBLEMS:
    case AS_TABLE_VARIANTS: return AS_OK;
    case AS_TABLE_LAUNCHES: return copy_launch(child, source, record->row, error);
    case AS_TABLE_UTILIZATION: child->has_utilization = true; break;
    case AS_TABLE_REQUESTS: child->merge->summary->requests++; break;
    case AS_TABLE_STEPS: {
        child->merge->summary->steps++;
        int rc = as_timeline_step(&child->merge->timeline, record->row, error);
        if (rc != AS_OK)
            return rc;
        break;
    }
    default: break;
    }
    as_row_copy(table, row, record->row);
    remap(child, source, table, row);
    return as_writer_rows(child->merge->writer, table, row, 1, error);
}

/* Second reading: the rows themselves. */
static int read_rows(struct child *child, struct source *source, struct as_error *error)
{
    struct as_record record;
    int rc;
    while ((rc = as_spool_next(source->reader, &record, error)) > 0) {
        if (record.kind != AS_RECORD_ROW || record.table < 0)
            continue;
        rc = copy_row(child, source, &record, error);
        if (rc != AS_OK)
            return rc;
    }
    return rc;
}

/* Parts left in the thread spools when thread 0's launches have ended. */
static int drop_tails(struct child *child, struct as_error *error)
{
    uint64_t most = 0;
    for (size_t i = 0; i < child->stream_count; i++) {
        uint64_t left = 0;
        for (; child->streams[i].has_head; left++) {
            int rc = next_head(&child->streams[i], error);
            if (rc != AS_OK)
                return rc;
        }
        most = left > most ? left : most;
    }
    child->merge->summary->dropped_launches += most;
    return AS_OK;
}

static int write_timeline(struct child *child, struct as_error *error)
{
    struct as_merge *merge = child->merge;
    const struct as_row_run *run = as_merge_run(merge, child->run, error);
    if (run == NULL)
        return AS_ERR_MEMORY;
    uint32_t threads =
        run->threads != AS_UNKNOWN_U32 ? run->threads : (uint32_t)child->stream_count + 1;
    for (size_t i = 0; !child->has_utilization && i < merge->timeline.used; i++) {
        struct as_row_utilization row;
        as_timeline_row(&merge->timeline, i, child->run, threads, &row);
        int rc = as_writer_rows(merge->writer, AS_TABLE_UTILIZATION, &row, 1, error);
        if (rc != AS_OK)
            return rc;
    }
    return AS_OK;
}

/* A child's attributes become the root's; one that says otherwise than the root keeps its run's
 * number. */
static int merge_attributes(struct child *child, struct as_error *error)
{
    struct as_merge_attributes *root = &child->merge->attributes;
    for (size_t i = 0; i < child->attributes.count; i++) {
        const struct as_merge_attribute *own = &child->attributes.list[i];
        const struct as_merge_attribute *other = NULL;
        char key[AS_STRING_MAX + 32];
        for (size_t j = 0; other == NULL && j < root->count; j++) {
            if (strcmp(root->list[j].key, own->key) == 0)
                other = &root->list[j];
        }
        if (other != NULL && other->type == own->type && other->u64 == own->u64 &&
            memcmp(&other->f64, &own->f64, sizeof own->f64) == 0 &&
            (own->type != 's' || strcmp(other->text, own->text) == 0))
            continue;
        if (other == NULL)
            snprintf(key, sizeof key, "%s", own->key);
        else
            snprintf(key, sizeof key, "run %u %s", child->run, own->key);
        const struct as_record record = {.type = own->type,
                                         .text = own->text,
                                         .text_size = own->text == NULL ? 0 : strlen(own->text),
                                         .u64 = own->u64,
                                         .f64 = own->f64};
        int rc = as_merge_attribute(root, key, &record, error);
        if (rc != AS_OK)
            return rc;
    }
    return AS_OK;
}

static void free_child(struct child *child)
{
    for (size_t i = 0; i < child->source_count; i++) {
        close_spool(child, child->sources[i].reader);
        free(child->sources[i].strings.ids);
    }
    for (size_t i = 0; i < child->stream_count; i++)
        close_spool(child, child->streams[i].reader);
    as_merge_attributes_free(&child->attributes);
    free(child->sources);
    free(child->streams);
    free(child->problems.ids);
    free(child->variants.ids);
}

static int add_source(struct child *child, const char *path, bool joins, struct as_error *error)
{
    struct as_spool_reader *reader;
    int rc = open_spool(child, path, &reader, error);
    if (rc != AS_OK || reader == NULL)
        return rc;
    rc = as_grow(error, &child->sources, &child->source_capacity, child->source_count,
                 sizeof *child->sources, "spools");
    if (rc != AS_OK) {
        as_spool_reader_close(reader);
        return rc;
    }
    child->sources[child->source_count++] = (struct source){.reader = reader, .joins = joins};
    return AS_OK;
}

static int add_stream(struct child *child, const char *path, uint32_t thread,
                      struct as_error *error)
{
    struct as_spool_reader *reader;
    int rc = open_spool(child, path, &reader, error);
    if (rc != AS_OK || reader == NULL)
        return rc;
    rc = as_grow(error, &child->streams, &child->stream_capacity, child->stream_count,
                 sizeof *child->streams, "spools");
    if (rc != AS_OK) {
        as_spool_reader_close(reader);
        return rc;
    }
    child->streams[child->stream_count++] = (struct stream){.reader = reader, .thread = thread};
    return next_head(&child->streams[child->stream_count - 1], error);
}

/* Threads in order of their numbers, so that rows of a launch are too. */
static int by_thread(const void *a, const void *b)
{
    const struct stream *x = a, *y = b;
    return (x->thread > y->thread) - (x->thread < y->thread);
}

static int open_folder(struct child *child, const char *folder, struct as_error *error)
{
    char path[4096];
    int rc = AS_OK;
    DIR *listing = opendir(folder);
    if (listing == NULL)
        return errno == ENOENT ? AS_OK
                               : as_fail_errno(error, AS_ERR_IO, "reading the folder %s", folder);
    for (struct dirent *entry; rc == AS_OK && (entry = readdir(listing)) != NULL;) {
        const char *name = entry->d_name;
        size_t length = strlen(name);
        unsigned thread;
        int used = 0;
        if (length < 7 || strcmp(name + length - 6, ".spool") != 0)
            continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
            rc = as_fail(error, AS_ERR_USAGE, "the path of the spool %s/%.100s is too long", folder,
                         name);
        else if (sscanf(name, "thread-%u.spool%n", &thread, &used) == 1 && used == (int)length)
            rc = add_stream(child, path, thread, error);
        else
            rc = add_source(child, path, strcmp(name, AS_SPOOL_ENGINE) == 0, error);
    }
    closedir(listing);
    if (child->stream_count > 1)
        qsort(child->streams, child->stream_count, sizeof *child->streams, by_thread);
    return rc;
}

/* `again` for the second reading. The engine's spool goes first: it sets the order of rows. */
static int read_sources(struct child *child, bool again, struct as_error *error)
{
    int rc = AS_OK;
    for (int engine = 1; engine >= 0; engine--) {
        for (size_t i = 0; rc == AS_OK && i < child->source_count; i++) {
            if (child->sources[i].joins == (engine == 1))
                rc = again ? read_rows(child, &child->sources[i], error)
                           : read_definitions(child, &child->sources[i], error);
        }
    }
    return rc;
}

int as_merge_child(struct as_merge *merge, const char *folder, uint32_t run, struct as_error *error)
{
    struct child child = {.merge = merge, .run = run};
    int rc = open_folder(&child, folder, error);
    if (rc == AS_OK)
        rc = read_sources(&child, false, error);
    const struct as_row_run *row = rc == AS_OK ? as_merge_run(merge, run, error) : NULL;
    if (rc == AS_OK && row == NULL)
        rc = AS_ERR_MEMORY;
    if (rc == AS_OK) {
        as_timeline_start(&merge->timeline, row->start);
        rc = read_sources(&child, true, error);
    }
    if (rc == AS_OK)
        rc = drop_tails(&child, error);
    if (rc == AS_OK)
        rc = write_timeline(&child, error);
    if (rc == AS_OK)
        rc = merge_attributes(&child, error);
    merge->launch_base += child.launches;
    free_child(&child);
    return rc;
}

int as_merge_parent(struct as_merge *merge, const char *path, bool *found, struct as_error *error)
{
    struct child child = {.merge = merge, .run = AS_UNKNOWN_U32};
    int rc = access(path, F_OK) == 0 ? add_source(&child, path, false, error) : AS_OK;
    *found = child.source_count > 0;
    as_timeline_start(&merge->timeline, AS_UNKNOWN_U64);
    if (rc == AS_OK)
        rc = read_sources(&child, false, error);
    if (rc == AS_OK)
        rc = read_sources(&child, true, error);
    if (rc == AS_OK)
        rc = merge_attributes(&child, error);
    free_child(&child);
    return rc;
}
