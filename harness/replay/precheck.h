/* Before the first child: every (variant, problem class) of a strategy's plans is checked against
 * the reference, because nothing unchecked is timed. */
#ifndef AS_PRECHECK_H
#define AS_PRECHECK_H

#include "replay/bench.h"
#include "spool.h"

/* Checks the strategy of `options` on its model, from one token to its largest step. Writes each
 * variant with its verdict, and how many checks were needed and passed, into the parent's spool;
 * with `describe_model` also what the model is. `name` gets the strategy's own name. A failed check
 * is AS_ERR_WRONG, its reason in the message. */
int as_precheck(const struct as_bench_options *options, struct as_spool *spool, bool describe_model,
                char name[64], struct as_error *error);

#endif
