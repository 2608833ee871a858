/* Was an open-loop run the load that it claims to be? */
#ifndef AS_VALIDITY_H
#define AS_VALIDITY_H

#include <stdbool.h>

#include "schema.h"

/* False, with the reason in words, when requests were sent too late to speak of the workload's
 * load: the 99th percentile of sent - scheduled is over 1 ms and over 1 % of the median time to
 * first token, or the achieved rate is off by more than 1 %. Rows whose times are unknown are left
 * out; fewer than two sent rows are valid. */
bool as_open_loop_valid(const struct as_row_request *const *row, size_t rows, char *reason,
                        size_t reason_size);

#endif
