/* Folders of every family against transformers' logits (tests/golden/families/make_logits.py): a
 * forward pass in double, as short as it can be, reads nothing but struct as_model. It shows what
 * each part of the configuration and of the layers means. */
#include "hf_image.h"

#include <math.h>

enum { TOKENS = 12, Q = F_HEADS * F_HEAD, KV = F_KV * F_HEAD };

static char folder[] = "/tmp/assay-hf-logits-XXXXXX";

static void set_up(void)
{
    cr_assert_not_null(mkdtemp(folder));
}

static void tear_down(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(hf_logits, .init = set_up, .fini = tear_down);

/* ---- the model ----------------------------------------------------------------------------- */

/* values() of make_logits.py: matrices as BF16, which holds them exactly, vectors as F32. */
static void add_part(struct hf_tensors *tensors, const struct family_part *part)
{
    char stored[128], shape[64];
    size_t count = (part->rows + (part->rows == 0)) * part->columns;
    float *values = malloc(count * sizeof *values);
    uint16_t *halves = malloc(count * sizeof *halves);
    for (size_t i = 0; i < count; i++) {
        float v = family_value(part->name, i);
        values[i] = part->rows > 0                              ? v / 16.0f
                    : strstr(part->name, "norm.weight") != NULL ? 1.0f + v / 4.0f
                                                                : v;
    }
    as_hf_stored_name(part->name, stored, sizeof stored);
    if (part->rows > 0) {
        as_quantize(ASSAY_BF16, values, halves, count);
        snprintf(shape, sizeof shape, "%zu,%zu", part->rows, part->columns);
        hf_add(tensors, stored, "BF16", shape, halves, count * 2);
    } else {
        snprintf(shape, sizeof shape, "%zu", part->columns);
        hf_add(tensors, stored, "F32", shape, values, count * 4);
    }
    free(values);
    free(halves);
}

static void write_model(json_t *config)
{
    const char *type = json_string_value(json_object_get(config, "model_type"));
    const struct family family = {
        .qkv_bias = strcmp(type, "qwen2") == 0,
        .qk_norm = strcmp(type, "qwen3") == 0,
        .tied = json_is_true(json_object_get(config, "tie_word_embeddings")),
    };
    struct hf_tensors tensors = {.count = 0};
    struct family_part part;
    for (size_t i = 0; family_part(&family, i, &part); i++)
        add_part(&tensors, &part);
    hf_write_single(&tensors, folder);
    hf_free(&tensors);
    char *text = json_dumps(config, 0);
    hf_write_text(folder, "config.json", text);
    free(text);
}

/* ---- forward pass -------------------------------------------------------------------------- */

/* y (rows) = W x (+ bias). */
static void multiply(const struct as_tensor *matrix, const struct as_tensor *bias, const double *x,
                     double *y)
{
    float row[Q];
    size_t stride = assay_row_bytes(matrix->dtype, (int64_t)matrix->columns);
    for (size_t i = 0; i < matrix->rows; i++) {
        as_dequantize(matrix->dtype, (const uint8_t *)matrix->data + i * stride, row,
                      matrix->columns);
        y[i] = bias != NULL ? (double)((const float *)bias->data)[i] : 0.0;
        for (size_t j = 0; j < matrix->columns; j++)
            y[i] += (double)row[j] * x[j];
    }
}

static void normalise(const struct as_model *model, const struct as_tensor *weight, const double *x,
                      double *y)
{
    double sum = 0.0;
    for (size_t i = 0; i < weight->columns; i++)
        sum += x[i] * x[i];
    double scale = 1.0 / sqrt(sum / (double)weight->columns + (double)model->config.rms_epsilon);
    for (size_t i = 0; i < weight->columns; i++)
        y[i] = x[i] * scale * (double)((const float *)weight->data)[i];
}

/* Norm (where the model has it) and RoPE of each head, in place. */
static void turn(const struct as_model *model, const struct as_tensor *norm, size_t heads,
                 size_t position, double *x)
{
    const struct as_model_config *c = &model->config;
    cr_assert_eq(c->rope_pairing, ASSAY_ROPE_HALVES);
    for (size_t head = 0; head < heads; head++, x += F_HEAD) {
        if (norm != NULL)
            normalise(model, norm, x, x);
        for (size_t i = 0; i < c->rope_dims / 2; i++) {
            double angle = (double)position *
                           pow((double)c->rope_base, -2.0 * (double)i / (double)c->rope_dims);
            if (c->rope_divisors != NULL)
                angle /= (double)c->rope_divisors[i];
            double cosine = cos(angle) * (double)c->rope_magnitude;
            double sine = sin(angle) * (double)c->rope_magnitude;
            double a = x[i], b = x[i + c->rope_dims / 2];
            x[i] = a * cosine - b * sine;
            x[i + c->rope_dims / 2] = b * cosine + a * sine;
        }
    }
}

/* Attention of the query at `position` over the keys and values up to it. */
static void attend(const double *q, double k[][KV], double v[][KV], size_t position, double *out)
{
    for (size_t head = 0; head < F_HEADS; head++) {
        size_t from = head / (F_HEADS / F_KV) * F_HEAD;
        double weight[TOKENS], sum = 0.0, largest = -INFINITY;
        for (size_t p = 0; p <= position; p++) {
            weight[p] = 0.0;
            for (size_t d = 0; d < F_HEAD; d++)
                weight[p] += q[head * F_HEAD + d] * k[p][from + d] / sqrt((double)F_HEAD);
            largest = fmax(largest, weight[p]);
        }
        for (size_t p = 0; p <= position; p++)
            sum += weight[p] = exp(weight[p] - largest);
        for (size_t d = 0; d < F_HEAD; d++) {
            out[head * F_HEAD + d] = 0.0;
            for (size_t p = 0; p <= position; p++)
                out[head * F_HEAD + d] += weight[p] / sum * v[p][from + d];
        }
    }
}

static void run_layer(const struct as_model *model, const struct as_model_layer *layer,
                      double x[TOKENS][F_HIDDEN])
{
    static double q[TOKENS][Q], k[TOKENS][KV], v[TOKENS][KV];
    double normed[F_HIDDEN], mixed[Q], gate[F_FFN], up[F_FFN], out[F_HIDDEN];
    for (size_t p = 0; p < TOKENS; p++) {
        normalise(model, layer->attn_norm, x[p], normed);
        multiply(layer->attn_q, layer->attn_q_bias, normed, q[p]);
        multiply(layer->attn_k, layer->attn_k_bias, normed, k[p]);
        multiply(layer->attn_v, layer->attn_v_bias, normed, v[p]);
        turn(model, layer->attn_q_norm, F_HEADS, p, q[p]);
        turn(model, layer->attn_k_norm, F_KV, p, k[p]);
    }
    for (size_t p = 0; p < TOKENS; p++) {
        attend(q[p], k, v, p, mixed);
        multiply(layer->attn_output, NULL, mixed, out);
        for (size_t i = 0; i < F_HIDDEN; i++)
            x[p][i] += out[i];
        normalise(model, layer->ffn_norm, x[p], normed);
        multiply(layer->ffn_gate, NULL, normed, gate);
        multiply(layer->ffn_up, NULL, normed, up);
        for (size_t i = 0; i < F_FFN; i++)
            gate[i] = gate[i] / (1.0 + exp(-gate[i])) * up[i];
        multiply(layer->ffn_down, NULL, gate, out);
        for (size_t i = 0; i < F_HIDDEN; i++)
            x[p][i] += out[i];
    }
}

static void run(const struct as_model *model, const json_t *tokens, double logits[TOKENS][F_VOCAB])
{
    static double x[TOKENS][F_HIDDEN];
    double normed[F_HIDDEN];
    const struct as_tensor *table = model->token_embd;
    size_t stride = assay_row_bytes(table->dtype, F_HIDDEN);
    for (size_t p = 0; p < TOKENS; p++) {
        float row[F_HIDDEN];
        size_t token = (size_t)json_integer_value(json_array_get(tokens, p));
        as_dequantize(table->dtype, (const uint8_t *)table->data + token * stride, row, F_HIDDEN);
        for (size_t i = 0; i < F_HIDDEN; i++)
            x[p][i] = (double)row[i];
    }
    for (size_t i = 0; i < F_LAYERS; i++)
        run_layer(model, &model->layers[i], x);
    for (size_t p = 0; p < TOKENS; p++) {
        normalise(model, model->output_norm, x[p], normed);
        multiply(model->output, NULL, normed, logits[p]);
    }
}

/* ---- against transformers ------------------------------------------------------------------ */

static void check_case(const json_t *entry)
{
    static double logits[TOKENS][F_VOCAB];
    const char *name = json_string_value(json_object_get(entry, "name"));
    struct as_model *model;
    struct as_error error = {0};
    size_t i, j;
    json_t *row, *value;
    write_model(json_object_get(entry, "config"));
    cr_assert_eq(as_model_inspect(folder, &model, &error), 0, "%s: %s", name, error.message);
    cr_assert_eq(model->config.rope_divisors != NULL,
                 json_number_value(json_object_get(entry, "plain_rope")) > 0.0, "%s", name);
    run(model, json_object_get(entry, "tokens"), logits);
    as_model_close(model);
    json_array_foreach(json_object_get(entry, "logits"), i, row)
    {
        size_t p =
            (size_t)json_integer_value(json_array_get(json_object_get(entry, "positions"), i));
        json_array_foreach(row, j, value)
        {
            cr_assert_float_eq(logits[p][j], json_number_value(value), 2e-5,
                               "%s, position %zu, logit %zu: %.8g, want %.8g", name, p, j,
                               logits[p][j], json_number_value(value));
        }
    }
}

Test(hf_logits, as_transformers)
{
    json_error_t failure;
    size_t index;
    json_t *golden =
        json_load_file(ASSAY_SOURCE_DIR "/tests/golden/families/logits.json", 0, &failure);
    json_t *entry;
    cr_assert_not_null(golden, "%s", failure.text);
    cr_assert_eq(json_array_size(json_object_get(golden, "cases")), 8);
    json_array_foreach(json_object_get(golden, "cases"), index, entry)
    {
        check_case(entry);
    }
    json_decref(golden);
}
