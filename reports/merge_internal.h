/* Parts of the merge: what is gathered over all children, and one child's ids. */
#ifndef AS_MERGE_INTERNAL_H
#define AS_MERGE_INTERNAL_H

#include "intern.h"
#include "merge.h"
#include "spool.h"
#include "timeline.h"
#include "writer.h"

/* A root attribute to be. */
struct as_merge_attribute {
    char *key, *text; /* text: type 's' */
    char type;        /* 's', 'u' or 'f' */
    uint64_t u64;
    double f64;
};

struct as_merge_attributes {
    struct as_merge_attribute *list;
    size_t count, capacity;
};

/* Ids of a child by place: the report's id of local id i. */
struct as_id_map {
    uint32_t *ids;
    size_t count, capacity;
};

struct as_merge {
    struct as_writer *writer;
    struct as_merge_summary *summary;
    struct as_merge_attributes attributes;
    struct as_row_run *runs; /* by first sight */
    size_t run_count, run_capacity;
    struct as_row_run *parent_runs; /* laid over the others at the end, in order */
    size_t parent_run_count, parent_run_capacity;
    struct as_intern problems, variants; /* rows without their ids (and `checked`) as bytes */
    uint8_t *checked;                    /* by variant */
    size_t checked_capacity;
    uint32_t launch_base; /* added to the launch numbers of the present child */
    struct as_timeline timeline;
};

/* Sets an attribute; the last of a key wins. */
int as_merge_attribute(struct as_merge_attributes *attributes, const char *key,
                       const struct as_record *record, struct as_error *error);
void as_merge_attributes_free(struct as_merge_attributes *attributes);

/* The run row numbered `run`, made (all unknown) when it is new; NULL when memory ends. */
struct as_row_run *as_merge_run(struct as_merge *merge, uint32_t run, struct as_error *error);

/* Lays the known fields of `from` over `to`. */
void as_merge_overlay(struct as_row_run *to, const struct as_row_run *from);

/* Merges the spools of `folder` (which may be missing) as those of run `run`. */
int as_merge_child(struct as_merge *merge, const char *folder, uint32_t run,
                   struct as_error *error);

/* Merges the parent's spool, if there is one. `*found` says whether. */
int as_merge_parent(struct as_merge *merge, const char *path, bool *found, struct as_error *error);

#endif
