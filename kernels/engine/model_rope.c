/* RoPE scaling: every kind that is served comes to one divisor a pair and one magnitude.
 *
 * Formulae: Hugging Face transformers, modeling_rope_utils.py (llama3: Meta's llama-models,
 * apply_scaling; yarn: Peng et al., 2023, "YaRN: Efficient Context Window Extension of Large
 * Language Models", sections 3.2 and 3.4), computed in double and rounded once. */
#include "model_internal.h"

#include <math.h>
#include <stdlib.h>

#include "as_memory.h"

#define TAU 6.283185307179586

const char *as_rope_scaling_name(enum as_rope_scaling scaling)
{
    static const char *const names[] = {"none", "linear", "llama3", "yarn"};
    return (unsigned)scaling < sizeof names / sizeof names[0] ? names[scaling] : "?";
}

struct as_rope_rule as_rope_rule(void)
{
    return (struct as_rope_rule){.factor = 1.0,
                                 .low_frequency = 1.0,
                                 .high_frequency = 4.0,
                                 .beta_fast = 32.0,
                                 .beta_slow = 1.0,
                                 .more_magnitude = 1.0,
                                 .truncate = true};
}

/* Pairs that turn more than high_frequency times over the original context keep their angles,
 * those that turn less than low_frequency times are stretched, between them it is mixed. */
static double llama3_divisor(const struct as_rope_rule *rule, double frequency)
{
    double turns = rule->original_context * frequency / TAU;
    if (turns > rule->high_frequency)
        return 1.0;
    if (turns < rule->low_frequency)
        return rule->factor;
    double kept = (turns - rule->low_frequency) / (rule->high_frequency - rule->low_frequency);
    return 1.0 / ((1.0 - kept) / rule->factor + kept);
}

/* The pair, as a fraction, that turns `turns` times over the original context. */
static double yarn_pair(const struct as_rope_rule *rule, const struct as_model_config *config,
                        double turns)
{
    return config->rope_dims * log(rule->original_context / (turns * TAU)) /
           (2.0 * log((double)config->rope_base));
}

/* First and last pair of the ramp between angles that are kept and those that are stretched. */
static void yarn_ramp(const struct as_rope_rule *rule, const struct as_model_config *config,
                      double *low, double *high)
{
    *low = yarn_pair(rule, config, rule->beta_fast);
    *high = yarn_pair(rule, config, rule->beta_slow);
    if (rule->truncate) {
        *low = floor(*low);
        *high = ceil(*high);
    }
    *low = fmax(*low, 0.0);
    *high = fmin(*high, config->rope_dims - 1.0);
    if (*low == *high)
        *high += 0.001;
}

static double yarn_divisor(const struct as_rope_rule *rule, double low, double high, uint32_t pair)
{
    double ramp = (pair - low) / (high - low);
    double stretched = fmin(fmax(ramp, 0.0), 1.0);
    return 1.0 / (stretched / rule->factor + (1.0 - stretched));
}

static int check_rule(const struct as_rope_rule *rule, const struct as_model_config *config,
                      struct as_error *error)
{
    const char *name = as_rope_scaling_name(rule->scaling);
    bool uses_context =
        rule->scaling == AS_ROPE_SCALING_LLAMA3 || rule->scaling == AS_ROPE_SCALING_YARN;
    if (rule->scaling != AS_ROPE_SCALING_NONE && !(rule->factor > 0.0 && rule->factor <= 1e9))
        return as_fail(error, AS_ERR_DATA,
                       "RoPE scaling of type '%s' by %g: the factor must be over 0 and at most 1e9",
                       name, rule->factor);
    if (uses_context && !(rule->original_context >= 1.0 && rule->original_context <= 1e12))
        return as_fail(error, AS_ERR_DATA,
                       "RoPE scaling of type '%s' from a context of %g: it must be from 1 to 1e12",
                       name, rule->original_context);
    if (rule->scaling == AS_ROPE_SCALING_LLAMA3 &&
        !(rule->low_frequency > 0.0 && rule->high_frequency > rule->low_frequency &&
          rule->high_frequency <= 1e9))
        return as_fail(error, AS_ERR_DATA,
                       "RoPE scaling of type 'llama3' with a low frequency factor of %g and a high "
                       "one of %g: the low one must be over 0 and below the high one",
                       rule->low_frequency, rule->high_frequency);
    if (rule->scaling == AS_ROPE_SCALING_YARN &&
        !(rule->beta_slow > 0.0 && rule->beta_fast >= rule->beta_slow && rule->beta_fast <= 1e9 &&
          config->rope_base > 1.0f))
        return as_fail(error, AS_ERR_DATA,
                       "RoPE scaling of type 'yarn' with beta_fast %g, beta_slow %g and a base of "
                       "%g: beta_slow must be over 0 and at most beta_fast, the base over 1",
                       rule->beta_fast, rule->beta_slow, (double)config->rope_base);
    return 0;
}

/* 0 where neither the rule nor the file asks for a value that float32 holds. */
static double magnitude_of(const struct as_rope_rule *rule)
{
    if (rule->scaling != AS_ROPE_SCALING_YARN)
        return 1.0;
    double magnitude = rule->magnitude;
    if (magnitude == 0.0)
        magnitude = rule->factor > 1.0 ? 0.1 * log(rule->factor) + 1.0 : 1.0;
    magnitude *= rule->more_magnitude;
    return magnitude > 1e-6 && magnitude < 1e6 ? magnitude : 0.0;
}

static int fill(struct as_model_storage *storage, const struct as_rope_rule *rule,
                const float *freqs, bool *scales, struct as_error *error)
{
    const struct as_model_config *config = &storage->model->config;
    double low = 0.0, high = 0.0;
    if (rule->scaling == AS_ROPE_SCALING_YARN)
        yarn_ramp(rule, config, &low, &high);
    for (uint32_t i = 0; i < config->rope_dims / 2; i++) {
        double frequency = pow((double)config->rope_base, -2.0 * i / config->rope_dims);
        double divisor = freqs != NULL ? (double)freqs[i] : 1.0;
        switch (rule->scaling) {
        case AS_ROPE_SCALING_NONE: break;
        case AS_ROPE_SCALING_LINEAR: divisor *= rule->factor; break;
        case AS_ROPE_SCALING_LLAMA3: divisor *= llama3_divisor(rule, frequency); break;
        case AS_ROPE_SCALING_YARN: divisor *= yarn_divisor(rule, low, high, i); break;
        }
        if (!(divisor >= 1e-9 && divisor <= 1e12))
            return as_fail(error, AS_ERR_DATA,
                           "RoPE scaling divides the angle of pair %u by %g, which must be from "
                           "1e-9 to 1e12; the file is damaged",
                           i, divisor);
        storage->rope_divisors[i] = (float)divisor;
        *scales = *scales || storage->rope_divisors[i] != 1.0f;
    }
    return 0;
}

int as_model_scale_rope(struct as_model_storage *storage, const struct as_rope_rule *rule,
                        const float *freqs, struct as_error *error)
{
    struct as_model_config *config = &storage->model->config;
    bool scales = false;
    config->rope_scaling = AS_ROPE_SCALING_NONE;
    config->rope_factor = 1.0f;
    config->rope_magnitude = 1.0f;
    if (rule->scaling == AS_ROPE_SCALING_NONE && freqs == NULL)
        return 0;
    int code = check_rule(rule, config, error);
    if (code != 0)
        return code;
    double magnitude = magnitude_of(rule);
    if (magnitude == 0.0)
        return as_fail(error, AS_ERR_DATA,
                       "RoPE scaling of type 'yarn' has a magnitude that is not from 1e-6 to 1e6");
    storage->rope_divisors = as_calloc(error, config->rope_dims / 2, sizeof *storage->rope_divisors,
                                       "the divisors of RoPE's angles");
    if (storage->rope_divisors == NULL)
        return AS_ERR_MEMORY;
    if ((code = fill(storage, rule, freqs, &scales, error)) != 0 ||
        (!scales && (float)magnitude == 1.0f))
        return code;
    config->rope_scaling =
        rule->scaling == AS_ROPE_SCALING_NONE ? AS_ROPE_SCALING_LLAMA3 : rule->scaling;
    config->rope_magnitude = (float)magnitude;
    config->rope_divisors = storage->rope_divisors;
    config->rope_factor = (float)rule->factor;
    /* A GGUF file states llama3 by its divisors alone; the largest is the factor. */
    for (uint32_t i = 0; rule->scaling == AS_ROPE_SCALING_NONE && i < config->rope_dims / 2; i++)
        config->rope_factor = fmaxf(config->rope_factor, storage->rope_divisors[i]);
    return 0;
}
