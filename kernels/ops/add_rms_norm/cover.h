/* add_rms_norm: sum = a + b, y = rms_norm(sum) * weight; both leave the cover, since the sum is
 * the residual that the next layer adds to. */
#ifndef ADD_RMS_NORM_COVER_H
#define ADD_RMS_NORM_COVER_H

#include "kernel.h"

/* Operands: a, b (tokens, n), weight (n) f32, sum (tokens, n), y (tokens, n). */
extern const struct assay_cover assay_cover_add_rms_norm;

#endif
