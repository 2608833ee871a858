/* Inside the reference only: the matrix product, one row of weights at a time for all tokens. */
#ifndef AS_REF_PRODUCT_H
#define AS_REF_PRODUCT_H

#include <stdint.h>

#include "as_error.h"

/* Tokens that are summed side by side; independent sums are what the compiler can vectorise
 * without changing their order. */
#define AS_REF_LANES 16

/* x (tokens, columns) rearranged to (panels, columns, AS_REF_LANES), the last panel padded with
 * zeros; freed by the caller. NULL with the message where memory is short. */
double *as_ref_panels(const double *x, int64_t tokens, int64_t columns, struct as_error *error);

/* y[t * stride] = sum over k, ascending, of x[t][k] w[k] for every token t; w (columns). */
void as_ref_product_row(const double *panels, const double *w, int64_t tokens, int64_t columns,
                        double *y, int64_t stride);

#endif
