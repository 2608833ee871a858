/* Variants that are wrong on purpose, each in one way. They are compiled into tests alone, by
 * including their files: names are distinct, so that several fit into one translation unit. */
#ifndef AS_WRONG_H
#define AS_WRONG_H

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "device/cpu/rows.h"

/* The fields that all of them share. */
#define WRONG_FLAGS(the_op, the_name, the_run, the_flags)                                      \
    .name = "wrong/" the_name, .idea = "wrong on purpose", .op = the_op, .backend = ASSAY_CPU, \
    .rung = 1, .flags = the_flags, .graph = ASSAY_GRAPH_ANY, .run = the_run
#define WRONG(the_op, the_name, the_run) WRONG_FLAGS(the_op, the_name, the_run, ASSAY_DETERMINISTIC)

/* This thread's rows of a launch. */
#define FOR_ROWS(launch, exec, t)                                            \
    int64_t begin_, end_;                                                    \
    assay_share(exec, (launch)->problem->node[0].tokens, 1, &begin_, &end_); \
    for (int64_t t = begin_; t < end_; t++)

#endif
