/* Rounding a launch's inputs to the activation class Q8, for the integer rungs of linear. */
#ifndef CPU_QUANTIZE_ROWS_H
#define CPU_QUANTIZE_ROWS_H

#include "device/cpu/rows.h"

/* Rounded rows: x = scale * quant, in blocks of 32 along k. `sum` is scale times the sum of the
 * block's quants, which meets the minima of Q4_1: sum (q d + m) x = d sum q x + m sum x. */
struct cpu_q8_rows {
    const int8_t *quants; /* (tokens, k) */
    const float *scales;  /* (tokens, k / 32) */
    const float *sums;    /* (tokens, k / 32) */
};

/* Bytes of scratch for cpu_quantize_rows. */
size_t cpu_quantize_rows_size(int64_t tokens, int64_t k, int32_t threads);

/* Rounds x (tokens, k), bit for bit as cpu_quantize_q8 does, with AVX2. Every thread of the team
 * calls it and may read all rows after it. Few rows are rounded by each thread for itself, since
 * that costs less than meeting at a barrier; many are shared out. */
struct cpu_q8_rows cpu_quantize_rows(const struct assay_operand *x, int64_t tokens, int64_t k,
                                     void *scratch, const struct assay_exec *exec);

#endif
