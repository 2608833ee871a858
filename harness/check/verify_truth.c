#include "check/verify_truth.h"

#include <math.h>
#include <stdatomic.h>
#include <string.h>

#include "as_clock.h"
#include "as_memory.h"
#include "device/cpu/cpu_device.h"
#include "reference.h"

struct source {
    const struct as_model *model;
    const struct as_verify_progress *progress;
    atomic_ullong rows; /* served so far */
    uint64_t total;     /* rows of all tensors that are read */
};

static int reference_dtype(enum assay_dtype dtype)
{
    for (int i = 0; i < AS_REF_DTYPES; i++)
        if (strcmp(as_ref_dtype_name(i), assay_dtype(dtype)->name) == 0)
            return i;
    return AS_REF_DTYPES;
}

/* A row of the file as it is stored; the reference has its own dequantisers. */
static int serve_row(void *context, const char *name, int64_t row, const void **bytes, int *dtype,
                     int64_t *columns)
{
    struct source *source = context;
    const struct as_tensor *tensor = as_model_tensor(source->model, name);
    if (tensor == NULL || row < 0 || row >= (int64_t)tensor->rows)
        return AS_ERR_DATA;
    *dtype = reference_dtype(tensor->dtype);
    *columns = (int64_t)tensor->columns;
    *bytes = (const uint8_t *)tensor->data + row * as_ref_dtype_bytes(*dtype, *columns);
    uint64_t served = atomic_fetch_add_explicit(&source->rows, 1, memory_order_relaxed) + 1;
    const struct as_verify_progress *progress = source->progress;
    if (progress != NULL && progress->show != NULL && served % 256 == 0)
        progress->show(progress->context, "reference",
                       served < source->total ? served : source->total, source->total);
    return 0;
}

static struct as_ref_llama shape_of(const struct as_model_config *config)
{
    return (struct as_ref_llama){.vocabulary = config->vocab,
                                 .layers = config->layers,
                                 .hidden = config->hidden,
                                 .heads = config->heads,
                                 .kv_heads = config->kv_heads,
                                 .head_dim = config->head_dim,
                                 .ffn = config->ffn,
                                 .rms_epsilon = (double)config->rms_epsilon,
                                 .rope = {.pairing = config->rope_pairing == ASSAY_ROPE_ADJACENT
                                                         ? AS_REF_ADJACENT
                                                         : AS_REF_HALVES,
                                          .theta = (double)config->rope_base,
                                          .dims = config->rope_dims},
                                 .tied_output = config->tied_output,
                                 .threads = (int)as_cpu_count()};
}

static uint64_t rows_read(const struct as_model *model)
{
    uint64_t rows = 0;
    for (size_t i = 0; i < model->tensor_count; i++)
        if (model->tensors[i].used)
            rows += model->tensors[i].rows;
    return rows;
}

static int summarise(struct as_truth *truth, const char *path, struct as_error *error)
{
    double sum = 0;
    for (int32_t p = 0; p < truth->positions; p++) {
        const double *row = truth->logits + p * truth->vocabulary;
        truth->margin[p] = as_ref_argmax(row, truth->vocabulary).margin;
        for (int64_t t = 0; t < truth->vocabulary; t++)
            sum += row[t] * row[t];
        if (!isfinite(sum))
            return as_fail(error, AS_ERR_DATA,
                           "%s: even the reference's logits are not finite at position %d: the "
                           "file's weights hold NaN, infinities or absurd values",
                           path, (int)p);
    }
    truth->rms = sqrt(sum / ((double)truth->positions * (double)truth->vocabulary));
    return 0;
}

int as_truth_compute(const struct as_model *model, const int32_t *token, int32_t positions,
                     const struct as_verify_progress *progress, struct as_truth *truth,
                     struct as_error *error)
{
    struct source source = {.model = model, .progress = progress, .total = rows_read(model)};
    const struct as_ref_llama shape = shape_of(&model->config);
    const struct as_ref_source rows = {.row = serve_row, .context = &source};
    uint64_t start = as_clock_ns();
    *truth = (struct as_truth){
        .vocabulary = model->config.vocab, .positions = positions, .token = token};
    truth->logits = as_calloc(error, (size_t)positions * model->config.vocab, sizeof(double),
                              "the reference's logits");
    truth->margin = as_calloc(error, (size_t)positions, sizeof(double), "the reference's logits");
    int code = truth->logits == NULL || truth->margin == NULL ? AS_ERR_MEMORY : 0;
    if (code == 0)
        code = as_ref_llama_logits(&shape, &rows, token, positions, 0, truth->logits, error);
    if (code == 0)
        code = summarise(truth, model->path, error);
    if (code != 0) {
        as_truth_free(truth);
        return code;
    }
    truth->seconds = (double)(as_clock_ns() - start) * 1e-9;
    return 0;
}

void as_truth_free(struct as_truth *truth)
{
    free(truth->logits);
    free(truth->margin);
    *truth = (struct as_truth){0};
}

double as_truth_below(const struct as_truth *truth, int32_t positions, double noise)
{
    int32_t below = 0;
    for (int32_t p = 0; p < positions; p++)
        below += truth->margin[p] <= noise;
    return positions == 0 ? 0 : (double)below / (double)positions;
}
