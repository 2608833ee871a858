/* What Llama variants add: biases, norms of q and k, RoPE scaling (C20); all of it is read, and
 * refused by name where a file must be run and the engine does not compute it yet. */
#include "model_family.h"

#include <math.h>

#include "engine/model_internal.h"

static const struct family families[] = {
    {.architecture = "llama"},
    {.architecture = "llama", .tied = true},
    {.architecture = "llama", .qkv_bias = true},
    {.architecture = "qwen2", .qkv_bias = true},
    {.architecture = "qwen2", .qkv_bias = true, .tied = true},
    {.architecture = "qwen3", .qk_norm = true},
    {.architecture = "qwen3", .qk_norm = true, .tied = true, .vectors = ASSAY_F16},
    {.architecture = "qwen3", .qk_norm = true, .qkv_bias = true, .vectors = ASSAY_BF16},
};

static struct as_model *inspect(const struct family *family, void **image)
{
    struct as_model *model;
    struct as_error error = {0};
    size_t size;
    *image = family_image(family, &size);
    cr_assert_eq(as_model_inspect_bytes(*image, size, "family", &model, &error), 0, "%s",
                 error.message);
    return model;
}

/* Opens the family for running, which must fail with this. */
static void expect(const struct family *family, int code, const char *first, const char *second)
{
    struct as_model *model;
    struct as_error error = {0};
    size_t size;
    void *image = family_image(family, &size);
    int found = as_model_open_bytes(image, size, "family", &model, &error);
    cr_assert_eq(found, code, "%s: %d instead of %d: %s", first, found, code, error.message);
    cr_assert_null(model);
    cr_assert_eq(strncmp(error.message, "cannot read the model family: ", 30), 0, "%s",
                 error.message);
    cr_assert_not_null(strstr(error.message, first), "no '%s' in: %s", first, error.message);
    cr_assert_not_null(strstr(error.message, second), "no '%s' in: %s", second, error.message);
    free(image);
}

Test(model_variants, families)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        void *image;
        struct as_model *model = inspect(&families[i], &image);
        cr_assert_str_eq(model->family, families[i].architecture);
        cr_assert_eq(model->config.rope_pairing,
                     strcmp(model->family, "llama") == 0 ? ASSAY_ROPE_ADJACENT : ASSAY_ROPE_HALVES);
        cr_assert_eq(model->unused_count, 0);
        cr_assert_eq(model->config.rope_base, 1e6f);
        cr_assert(model->config.rope_divisors == NULL && model->config.rope_magnitude == 1.0f &&
                  model->config.rope_scaling == AS_ROPE_SCALING_NONE);
        family_check_model(&families[i], model);
        walk_model(model);
        as_model_close(model);
        free(image);
    }
}

/* Every part that makes a difference is either served or named. */
Test(model_variants, unserved_parts_are_named)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        void *image;
        struct as_model *model = inspect(&families[i], &image);
        struct as_error error = {0};
        int code = as_model_check_served(model, &error);
        cr_assert_eq(code != 0, error.code != 0);
        if (!model->config.qkv_bias && !model->config.qk_norm)
            cr_assert_eq(code, 0);
        if (code != 0) {
            cr_assert_eq(code, AS_ERR_UNSUPPORTED);
            cr_assert_not_null(strstr(error.message, "not served yet"), "%s", error.message);
            cr_assert_not_null(strstr(error.message, "tensor blk.0.attn_q"), "%s", error.message);
            expect(&families[i], AS_ERR_UNSUPPORTED, "not served yet", "blk.0.attn_q");
        }
        as_model_close(model);
        free(image);
    }
}

Test(model_variants, missing_and_foreign_parts)
{
    static const struct {
        struct family family;
        int code;
        const char *first, *second;
    } cases[] = {
        {{.architecture = "qwen2"}, AS_ERR_DATA, "blk.0.attn_q.bias", "missing"},
        {{.architecture = "qwen2", .qkv_bias = true, .without = "blk.1.attn_v.bias"},
         AS_ERR_DATA,
         "blk.1.attn_v.bias",
         "expected 1 row of 64"},
        {{.architecture = "qwen3"}, AS_ERR_DATA, "blk.0.attn_q_norm.weight", "missing"},
        {{.architecture = "qwen3", .qk_norm = true, .without = "blk.1.attn_k_norm.weight"},
         AS_ERR_DATA,
         "blk.1.attn_k_norm.weight",
         "missing"},
        {{.architecture = "llama", .qk_norm = true},
         AS_ERR_UNSUPPORTED,
         "blk.0.attn_q_norm.weight",
         "norms of queries"},
        {{.architecture = "llama", .qkv_bias = true, .without = "blk.0.attn_k.bias"},
         AS_ERR_DATA,
         "blk.0.attn_k.bias",
         "missing"},
        {{.architecture = "llama", .extra = "blk.0.attn_output.bias"},
         AS_ERR_UNSUPPORTED,
         "blk.0.attn_output.bias",
         "biases"},
        {{.architecture = "llama", .extra = "blk.1.ffn_down_exps.weight"},
         AS_ERR_UNSUPPORTED,
         "blk.1.ffn_down_exps.weight",
         "experts"},
        {{.architecture = "llama", .extra = "rope_factors_long.weight"},
         AS_ERR_UNSUPPORTED,
         "rope_factors_long.weight",
         "longrope"},
        {{.architecture = "qwen2moe", .qkv_bias = true},
         AS_ERR_UNSUPPORTED,
         "'qwen2moe'",
         "qwen2, qwen3"},
        {{.architecture = "mistral3"}, AS_ERR_UNSUPPORTED, "'mistral3'", "llama (also Mistral)"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        expect(&cases[i].family, cases[i].code, cases[i].first, cases[i].second);
}

/* ---- RoPE scaling ------------------------------------------------------------------------- */

static bool near(double value, double wanted)
{
    return fabs(value - wanted) <= 4e-8 * fabs(wanted); /* one rounding to float32 and C20's own */
}

/* Divisors for a model of this head and base, checked at pairs; freed by the caller. */
static float *divisors_of(const struct as_rope_rule *rule, uint32_t head, float base)
{
    struct as_model model = {.config = {.rope_dims = head, .rope_base = base}};
    struct as_model_storage storage = {.model = &model};
    struct as_error error = {0};
    cr_assert_eq(as_model_scale_rope(&storage, rule, NULL, &error), 0, "%s", error.message);
    cr_assert_eq(model.config.rope_divisors, storage.rope_divisors);
    return storage.rope_divisors;
}

Test(model_variants, c20_llama3)
{
    struct as_rope_rule rule = as_rope_rule();
    rule.scaling = AS_ROPE_SCALING_LLAMA3;
    rule.factor = 32.0;
    rule.original_context = 8192.0;
    float *divisors = divisors_of(&rule, 64, 500000.0f);
    for (int i = 0; i < 15; i++)
        cr_assert_eq(divisors[i], 1.0f, "%d", i);
    cr_assert(near(divisors[15], 1.65132925), "%.9g", (double)divisors[15]);
    cr_assert(near(divisors[16], 3.2922621), "%.9g", (double)divisors[16]);
    cr_assert(near(divisors[17], 9.66672898), "%.9g", (double)divisors[17]);
    for (int i = 18; i < 32; i++)
        cr_assert_eq(divisors[i], 32.0f, "%d", i);
    free(divisors);

    rule.factor = 8.0;
    divisors = divisors_of(&rule, 128, 500000.0f);
    for (int i = 0; i < 29; i++)
        cr_assert_eq(divisors[i], 1.0f, "%d", i);
    cr_assert(near(divisors[29], 1.20748387), "%.9g", (double)divisors[29]);
    cr_assert(near(divisors[30], 1.55341463), "%.9g", (double)divisors[30]);
    cr_assert(near(divisors[34], 5.25732659), "%.9g", (double)divisors[34]);
    for (int i = 35; i < 64; i++)
        cr_assert_eq(divisors[i], 8.0f, "%d", i);
    free(divisors);
}

static float freqs[F_HEAD / 2];

Test(model_variants, c20_rope_freqs)
{
    for (int i = 0; i < F_HEAD / 2; i++)
        freqs[i] = i < 8 ? 1.0f : (float)i;
    const struct family family = {.architecture = "llama", .freqs = freqs};
    void *image;
    struct as_model *model = inspect(&family, &image);
    const struct as_model_config *c = &model->config;
    cr_assert(c->rope_scaling == AS_ROPE_SCALING_LLAMA3 && c->rope_factor == 15.0f &&
              c->rope_magnitude == 1.0f);
    cr_assert_eq(memcmp(c->rope_divisors, freqs, sizeof freqs), 0);
    cr_assert(as_model_tensor(model, "rope_freqs.weight")->used);
    cr_assert_eq(model->unused_count, 0);
    struct as_error error = {0};
    if (as_model_check_served(model, &error) != 0)
        cr_assert_not_null(strstr(error.message, "RoPE scaling of type 'llama3' by 15"), "%s",
                           error.message);
    as_model_close(model);
    free(image);

    for (int i = 0; i < F_HEAD / 2; i++)
        freqs[i] = 1.0f; /* scales nothing */
    model = inspect(&family, &image);
    cr_assert(model->config.rope_divisors == NULL &&
              model->config.rope_scaling == AS_ROPE_SCALING_NONE);
    cr_assert_eq(as_model_check_served(model, NULL), 0);
    as_model_close(model);
    free(image);

    static const float bad[] = {0.0f, -1.0f, (float)NAN, (float)INFINITY};
    for (size_t i = 0; i < 4; i++) {
        freqs[7] = bad[i];
        expect(&family, AS_ERR_DATA, "pair 7", "damaged");
    }
}

static void put_linear(struct as_gguf_writer *writer)
{
    as_gguf_put_string(writer, "llama.rope.scaling.type", "linear");
    as_gguf_put_f32(writer, "llama.rope.scaling.factor", 2.5f);
}

static void put_older_linear(struct as_gguf_writer *writer)
{
    as_gguf_put_f32(writer, "llama.rope.scale_linear", 2.5f);
}

static void put_yarn(struct as_gguf_writer *writer)
{
    as_gguf_put_string(writer, "qwen2.rope.scaling.type", "yarn");
    as_gguf_put_f32(writer, "qwen2.rope.scaling.factor", 4.0f);
    as_gguf_put_u32(writer, "qwen2.rope.scaling.original_context_length", 32768);
}

static void put_yarn_more(struct as_gguf_writer *writer)
{
    put_yarn(writer);
    as_gguf_put_f32(writer, "qwen2.rope.scaling.attn_factor", 0.5f);
    as_gguf_put_f32(writer, "qwen2.rope.scaling.yarn_beta_fast", 16.0f);
    as_gguf_put_f32(writer, "qwen2.rope.scaling.yarn_beta_slow", 2.0f);
    as_gguf_put_f32(writer, "qwen2.rope.scaling.yarn_log_multiplier", 0.0f);
}

static void put_yarn_log(struct as_gguf_writer *writer)
{
    put_yarn(writer);
    as_gguf_put_f32(writer, "qwen2.rope.scaling.yarn_log_multiplier", 0.1f);
}

static void put_yarn_no_ramp(struct as_gguf_writer *writer)
{
    put_yarn(writer);
    as_gguf_put_f32(writer, "qwen2.rope.scaling.yarn_beta_slow", 0.0f);
}

Test(model_variants, linear_and_yarn_from_gguf)
{
    static const struct family linears[] = {{.architecture = "llama", .put = put_linear},
                                            {.architecture = "llama", .put = put_older_linear}};
    void *image;
    struct as_model *model;
    const struct as_model_config *c;
    for (size_t i = 0; i < 2; i++) {
        struct as_error error = {0};
        model = inspect(&linears[i], &image);
        c = &model->config;
        cr_assert(c->rope_scaling == AS_ROPE_SCALING_LINEAR && c->rope_factor == 2.5f);
        for (int pair = 0; pair < F_HEAD / 2; pair++)
            cr_assert_eq(c->rope_divisors[pair], 2.5f);
        if (as_model_check_served(model, &error) != 0)
            cr_assert_not_null(strstr(error.message, "RoPE scaling of type 'linear' by 2.5"), "%s",
                               error.message);
        as_model_close(model);
        free(image);
    }

    static const struct {
        struct family family;
        double magnitude, fast, slow;
    } yarns[] = {
        {{.architecture = "qwen2", .qkv_bias = true, .put = put_yarn}, 1.0, 32.0, 1.0},
        {{.architecture = "qwen2", .qkv_bias = true, .put = put_yarn_more}, 0.5, 16.0, 2.0},
    };
    for (size_t i = 0; i < 2; i++) {
        struct as_rope_rule rule = as_rope_rule();
        rule.scaling = AS_ROPE_SCALING_YARN;
        rule.factor = 4.0;
        rule.original_context = 32768.0;
        rule.beta_fast = yarns[i].fast;
        rule.beta_slow = yarns[i].slow;
        model = inspect(&yarns[i].family, &image);
        c = &model->config;
        float *wanted = divisors_of(&rule, F_HEAD, 1e6f);
        cr_assert(c->rope_scaling == AS_ROPE_SCALING_YARN && c->rope_factor == 4.0f);
        cr_assert(near(c->rope_magnitude, yarns[i].magnitude * (1.0 + 0.1 * log(4.0))), "%g",
                  (double)c->rope_magnitude);
        cr_assert_eq(memcmp(c->rope_divisors, wanted, F_HEAD / 2 * sizeof *wanted), 0);
        cr_assert(wanted[0] == 1.0f && wanted[F_HEAD / 2 - 1] == 4.0f);
        free(wanted);
        as_model_close(model);
        free(image);
    }
    const struct family logs = {.architecture = "qwen2", .qkv_bias = true, .put = put_yarn_log};
    expect(&logs, AS_ERR_UNSUPPORTED, "qwen2.rope.scaling.yarn_log_multiplier", "0.1");
    const struct family ramp = {.architecture = "qwen2", .qkv_bias = true, .put = put_yarn_no_ramp};
    expect(&ramp, AS_ERR_DATA, "beta_slow 0", "over 0");
}
