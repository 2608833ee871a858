/* A variant over its op's whole suite. */
#ifndef AS_CHECK_SUITE_H
#define AS_CHECK_SUITE_H

#include "check/checker.h"

/* as_check_suite without isolation. */
int as_checker_suite(struct as_checker *checker, const struct as_registry *registry,
                     const struct assay_variant *variant, struct as_check_result *result);

#endif
