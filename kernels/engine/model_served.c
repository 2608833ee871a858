/* What models may need beyond the plain `llama` architecture, and whether the engine computes it.
 *
 * This is the one place to say so: as_program_llama() and the variants that it needs come first,
 * then the flag. Until then such a model is refused by name when it is opened, never run without
 * the part. */
#include <stdio.h>
#include <string.h>

#include "model.h"

enum feature { QKV_BIAS, QK_NORM, ROPE_DIVISORS, ROPE_MAGNITUDE, FEATURES };

static const bool served[FEATURES] = {
    [QKV_BIAS] = false,       /* layer->attn_{q,k,v}_bias */
    [QK_NORM] = false,        /* layer->attn_{q,k}_norm */
    [ROPE_DIVISORS] = false,  /* config.rope_divisors */
    [ROPE_MAGNITUDE] = false, /* config.rope_magnitude */
};

static bool needed(const struct as_model_config *config, enum feature feature)
{
    switch (feature) {
    case QKV_BIAS: return config->qkv_bias;
    case QK_NORM: return config->qk_norm;
    case ROPE_DIVISORS: return config->rope_divisors != NULL;
    case ROPE_MAGNITUDE: return config->rope_magnitude != 1.0f;
    default: return false;
    }
}

int as_model_check_served(const struct as_model *model, struct as_error *error)
{
    const struct as_model_config *config = &model->config;
    char what[128] = "";
    for (unsigned i = 0; i < FEATURES && what[0] == '\0'; i++) {
        if (served[i] || !needed(config, i))
            continue;
        if (i == QKV_BIAS)
            snprintf(what, sizeof what, "tensor %.64s: biases are",
                     model->layers[0].attn_q_bias->stored_name);
        else if (i == QK_NORM)
            snprintf(what, sizeof what, "tensor %.64s: norms of queries and keys are",
                     model->layers[0].attn_q_norm->stored_name);
        else
            snprintf(what, sizeof what, "RoPE scaling of type '%s' by %g is",
                     as_rope_scaling_name(config->rope_scaling), (double)config->rope_factor);
    }
    if (what[0] == '\0')
        return 0;
    return as_fail(error, AS_ERR_UNSUPPORTED, "%s not served yet", what);
}
