/* A launch of one variant on one case: its memory, as the engine would give it but guarded and
 * poisoned, and what is found there after a run. */
#ifndef AS_SETUP_H
#define AS_SETUP_H

#include "check/case.h"
#include "check/guarded.h"

struct as_team;

/* How operands lie in memory. */
struct as_layout {
    bool apart;    /* activations with gaps between rows, one element off every boundary */
    bool in_place; /* the first output shares the first input's memory */
    bool huge;     /* dead block-table entries are huge numbers, not the dead block */
    bool fenced;   /* what is only read ends where memory ends */
};

#define AS_SETUP_METADATA 7

struct as_setup {
    const struct as_case *made;
    struct assay_device *device;
    struct as_layout layout;
    struct assay_problem problem;
    struct assay_launch launch;
    struct assay_metadata metadata;
    struct assay_kv_cache cache;
    struct as_guarded operand[ASSAY_MAX_OPERANDS];
    struct as_guarded array[AS_SETUP_METADATA]; /* of the metadata */
    struct as_guarded k, v, plan, scratch;
    void *packed[ASSAY_MAX_OPERANDS]; /* weights as the variant wants them, or NULL */
    int32_t *dead_table;              /* the block table with its dead entries filled in */
    bool planned;
};

/* What went wrong, in words; empty while nothing did. */
struct as_complaint {
    char words[320];
};

/* Keeps the first complaint. */
void as_complain(struct as_complaint *complaint, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Allocates, packs and plans for teams of up to `threads`. A complaint (a pack function that
 * overruns, a plan that is refused) is not an error. */
int as_setup_open(struct as_setup *setup, const struct as_case *made,
                  const struct assay_variant *variant, struct assay_device *device,
                  const struct as_layout *layout, int32_t threads, struct as_complaint *complaint,
                  struct as_error *error);
void as_setup_close(struct as_setup *setup);

/* Gives the same launch the sizes and contents of `other` (as_case_shorter of the case it was
 * opened with) at the same addresses, and calls the variant's refresh, as between two steps. */
int as_setup_refit(struct as_setup *setup, const struct as_case *other,
                   struct as_complaint *complaint, struct as_error *error);

/* Fresh poison in outputs, scratch and cache, then one run. `team` is NULL where the device has
 * its own; thread `late` of it enters, and leaves every barrier, a moment after the others. */
int as_setup_run(struct as_setup *setup, struct as_team *team, int32_t late,
                 struct as_complaint *complaint, struct as_error *error);

/* Finds bytes that changed and must not have: guards, gaps, inputs, metadata, plan, cache. */
void as_setup_intact(const struct as_setup *setup, struct as_complaint *complaint);

/* Row `row` of output operand `operand`. */
const void *as_setup_output(const struct as_setup *setup, int32_t operand, int64_t row);

#endif
