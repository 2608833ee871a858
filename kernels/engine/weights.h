/* Weights as launches want them: as stored in the mapped file, or packed once into the layout
 * that a variant asks for. One copy per tensor and layout, owned here. */
#ifndef AS_WEIGHTS_H
#define AS_WEIGHTS_H

#include "engine/counters.h"
#include "engine/model.h"
#include "kernel.h"

struct as_weights;

int as_weights_create(struct assay_device *device, struct as_counters *counters,
                      struct as_weights **weights, struct as_error *error);
void as_weights_free(struct as_weights *weights);

/* The operand for `tensor`, weight of pattern node `node` of `problem` run by `variant`. Packs at
 * the first request of a layout. */
int as_weights_operand(struct as_weights *weights, const struct as_tensor *tensor,
                       const struct assay_variant *variant, const struct assay_problem *problem,
                       int32_t node, struct assay_operand *operand, struct as_error *error);

#endif
