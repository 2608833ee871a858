/* The reference on SmolLM2-135M-Instruct against Hugging Face transformers: the same GGUF file, read by
 * our reader and dequantised by the reference on one side, by transformers' reader on the other.
 * Skipped where ci/fetch-model.sh has not brought the file. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/model.h"
#include "reference.h"

#define MODEL ASSAY_SOURCE_DIR "/models/SmolLM2-135M-Instruct.Q4_1.gguf"
#define GOLDEN ASSAY_SOURCE_DIR "/tests/golden/logits/smollm2.json"

static int reference_dtype(enum assay_dtype dtype)
{
    for (int i = 0; i < AS_REF_DTYPES; i++)
        if (strcmp(as_ref_dtype_name(i), assay_dtype(dtype)->name) == 0)
            return i;
    return AS_REF_DTYPES;
}

static int model_row(void *context, const char *name, int64_t row, const void **bytes, int *dtype,
                     int64_t *columns)
{
    const struct as_tensor *tensor = as_model_tensor(context, name);
    if (tensor == NULL || row < 0 || row >= (int64_t)tensor->rows)
        return AS_ERR_DATA;
    *dtype = reference_dtype(tensor->dtype);
    *columns = (int64_t)tensor->columns;
    *bytes = (const uint8_t *)tensor->data + row * as_ref_dtype_bytes(*dtype, *columns);
    return 0;
}

static struct as_ref_llama shape_of(const struct as_model_config *config)
{
    return (struct as_ref_llama){
        .vocabulary = config->vocab,
        .layers = config->layers,
        .hidden = config->hidden,
        .heads = config->heads,
        .kv_heads = config->kv_heads,
        .head_dim = config->head_dim,
        .ffn = config->ffn,
        .rms_epsilon = (double)config->rms_epsilon,
        .rope = {.pairing =
                     config->rope_pairing == ASSAY_ROPE_ADJACENT ? AS_REF_ADJACENT : AS_REF_HALVES,
                 .theta = (double)config->rope_base,
                 .dims = config->rope_dims},
        .tied_output = config->tied_output,
        .threads = 2,
    };
}

/* Largest distance of one position from its golden; the twenty largest must be the golden's. */
static double position_distance(const json_t *golden, const json_t *ids, const double *row,
                                int64_t vocabulary)
{
    double worst = 0;
    const json_t *values = json_object_get(golden, "logits");
    for (size_t i = 0; i < json_array_size(ids); i++) {
        int64_t id = json_integer_value(json_array_get(ids, i));
        worst = fmax(worst, fabs(row[id] - json_number_value(json_array_get(values, i))));
    }
    const json_t *top = json_object_get(golden, "top");
    values = json_object_get(golden, "top_logits");
    cr_assert_eq(json_array_size(top), 20);
    for (size_t i = 0; i < 20; i++) {
        int64_t id = json_integer_value(json_array_get(top, i));
        worst = fmax(worst, fabs(row[id] - json_number_value(json_array_get(values, i))));
    }
    double twentieth = json_number_value(json_array_get(values, 19));
    int64_t above = 0;
    for (int64_t t = 0; t < vocabulary; t++)
        above += row[t] > twentieth + 1e-6;
    cr_assert_leq(above, 19);

    struct as_ref_top best = as_ref_argmax(row, vocabulary);
    cr_assert_eq(best.id, json_integer_value(json_array_get(top, 0)));
    double projection = json_number_value(json_object_get(golden, "projection"));
    cr_assert(fabs(best.projection - projection) < 1e-6, "projection %.12g, want %.12g",
              best.projection, projection);
    return worst;
}

Test(reference_goldens, smollm2_agrees_with_transformers)
{
    json_error_t json_error;
    struct as_error error = {0};
    struct as_model *model = NULL;
    json_t *golden = json_load_file(GOLDEN, 0, &json_error);
    cr_assert(golden != NULL, "%s: %s", GOLDEN, json_error.text);
    cr_assert_eq(as_model_open(MODEL, &model, &error), 0, "%s", error.message);
    struct as_ref_llama shape = shape_of(&model->config);
    struct as_ref_source source = {.row = model_row, .context = model};
    const json_t *ids = json_object_get(golden, "ids");
    double worst = 0;
    size_t index, at;
    json_t *prompt, *position;
    json_array_foreach(json_object_get(golden, "prompts"), index, prompt)
    {
        const json_t *list = json_object_get(prompt, "tokens");
        int64_t count = (int64_t)json_array_size(list);
        int32_t *tokens = calloc((size_t)count, sizeof *tokens);
        double *logits = calloc((size_t)(count * shape.vocabulary), sizeof *logits);
        for (int64_t t = 0; t < count; t++)
            tokens[t] = (int32_t)json_integer_value(json_array_get(list, (size_t)t));
        int status = as_ref_llama_logits(&shape, &source, tokens, count, 0, logits, &error);
        cr_assert_eq(status, 0, "%s", error.message);
        json_array_foreach(json_object_get(prompt, "positions"), at, position)
        {
            int64_t p = json_integer_value(json_object_get(position, "position"));
            worst = fmax(worst, position_distance(position, ids, logits + p * shape.vocabulary,
                                                  shape.vocabulary));
        }
        free(logits);
        free(tokens);
    }
    printf("largest distance from transformers: %.3g\n", worst);
    cr_assert_lt(worst, 1e-8, "%g away from transformers", worst);
    as_model_close(model);
    json_decref(golden);
}

int main(int argc, char *argv[])
{
    if (access(MODEL, R_OK) != 0) {
        printf("skipped: no models/SmolLM2-135M-Instruct.Q4_1.gguf; ci/fetch-model.sh brings it\n");
        return 77;
    }
    struct criterion_test_set *tests = criterion_initialize();
    int result = criterion_handle_args(argc, argv, true) ? !criterion_run_all_tests(tests) : 0;
    criterion_finalize(tests);
    return result;
}
