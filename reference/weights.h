/* Inside the reference only: a model's weights, fetched row by row and dequantised. */
#ifndef AS_REF_WEIGHTS_H
#define AS_REF_WEIGHTS_H

#include "reference.h"

/* out (columns) = row `row` of `tensor`; refused where the source's row has another length. */
int as_ref_load_row(const struct as_ref_source *source, const char *tensor, int64_t row,
                    int64_t columns, double *out, struct as_error *error);

/* y (tokens, rows) = x (tokens, columns) . transpose of tensor `weight` + vector `bias` or NULL,
 * the rows shared by `threads`. */
int as_ref_linear_tensor(const struct as_ref_source *source, const char *weight, const char *bias,
                         int threads, const double *x, int64_t tokens, int64_t rows,
                         int64_t columns, double *y, struct as_error *error);

#endif
