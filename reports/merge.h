/* From spools to a report: one path for a run that finished and for one that was killed.
 *
 * A work folder holds
 *   parent.spool             root attributes; planned and final /runs rows; /ceilings;
 *                            /capabilities; /variants rows that carry `checked`
 *   run-0000/engine.spool    thread 0: strings, attributes, every other table; its /launches rows
 *                            carry thread 0's own start, work and wait (end is derived)
 *   run-0000/thread-1.spool  /launch_threads rows of thread 1, one a launch, in launch order
 *   run-0000/<other>.spool   any other rows
 *   run-0001/...
 *
 * Rules. /runs rows of one run are laid over each other: the child's first, then the parent's,
 * each known field replacing what was there. A run with no verdict on itself is valid when it
 * ended with exit 0, else invalid with the reason in words. A launch's start is the earliest
 * thread's, its end the latest thread's start + work + wait, work and wait are sums; a
 * /launch_threads row for thread 0 is made from the launch's own row. Launches that not every
 * thread finished (the tail of a killed child) are left out and counted. Problems and variants are
 * one row a content in the whole report; a known `checked` wins over an unknown. A row whose `run`
 * is unknown belongs to its folder's run. Children's attributes become root attributes; one that
 * contradicts a root attribute is stored as "run <number> <key>". */
#ifndef AS_MERGE_H
#define AS_MERGE_H

#include <stdint.h>

#include "as_error.h"

struct as_merge_summary {
    uint32_t runs, invalid_runs;
    uint64_t requests, steps, launches;
    uint64_t dropped_launches; /* thread rows or launches without their counterparts */
    uint64_t dropped_bytes;    /* of spools, behind the last whole record */
    uint32_t damaged_spools;   /* ended in a broken record, or had no valid header */
    uint32_t ignored_fields;   /* written by another build, unknown to this one */
    uint32_t cut_strings;      /* longer than AS_STRING_MAX */
};

/* Merges `work_folder` into the report `output_path`, which appears whole or not at all (written
 * as "<output_path>.partial", fsynced, renamed). The work folder is left as it is. `summary` may be
 * NULL. Memory stays bounded by the tables other than launches, steps and step rows. */
int as_merge(const char *work_folder, const char *output_path, struct as_merge_summary *summary,
             struct as_error *error);

#endif
