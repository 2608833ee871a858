/* Matrix products whose weights come from a callback: one dequantised row a thread is held. */
#include "weights.h"

#include <pthread.h>
#include <string.h>

#include "as_memory.h"
#include "product.h"

#define MAX_THREADS 256

int as_ref_load_row(const struct as_ref_source *source, const char *tensor, int64_t row,
                    int64_t columns, double *out, struct as_error *error)
{
    const void *bytes = NULL;
    int dtype = AS_REF_DTYPES;
    int64_t found = -1;
    int status = source->row(source->context, tensor, row, &bytes, &dtype, &found);
    if (status != 0)
        return as_fail(error, status < 0 ? status : AS_ERR_DATA,
                       "reference: row %lld of tensor \"%s\" could not be read", (long long)row,
                       tensor);
    if (found != columns)
        return as_fail(error, AS_ERR_DATA,
                       "reference: row %lld of tensor \"%s\" has %lld elements where the model's "
                       "shape asks for %lld",
                       (long long)row, tensor, (long long)found, (long long)columns);
    status = as_ref_dequantize(dtype, bytes, out, columns);
    if (status != 0)
        return as_fail(error, status,
                       "reference: tensor \"%s\" of type %s cannot be dequantised in rows of %lld",
                       tensor, as_ref_dtype_name(dtype), (long long)columns);
    return AS_OK;
}

/* Rows first .. last - 1 of one product. */
struct share {
    const struct as_ref_source *source;
    const char *weight;
    const double *panels;
    double *y;
    int64_t first, last, tokens, rows, columns;
    pthread_t thread;
    struct as_error error;
};

static void *run_share(void *argument)
{
    struct share *share = argument;
    double *w = as_calloc(&share->error, (size_t)share->columns, sizeof *w, "a row of weights");
    for (int64_t r = share->first; r < share->last && share->error.code == 0; r++) {
        if (as_ref_load_row(share->source, share->weight, r, share->columns, w, &share->error) == 0)
            as_ref_product_row(share->panels, w, share->tokens, share->columns, share->y + r,
                               share->rows);
    }
    free(w);
    return NULL;
}

/* Runs `shares` in as many threads, the first in this one; a thread that cannot be had has its
 * share run here. */
static int run_shares(struct share *shares, int threads, struct as_error *error)
{
    bool started[MAX_THREADS] = {false};
    for (int i = 1; i < threads; i++)
        started[i] = pthread_create(&shares[i].thread, NULL, run_share, &shares[i]) == 0;
    for (int i = 0; i < threads; i++)
        if (!started[i])
            run_share(&shares[i]);
    int status = AS_OK;
    for (int i = 0; i < threads; i++) {
        if (started[i])
            pthread_join(shares[i].thread, NULL);
        if (status == AS_OK && shares[i].error.code != 0)
            status = as_fail(error, shares[i].error.code, "%s", shares[i].error.message);
    }
    return status;
}

static int add_bias(const struct as_ref_source *source, const char *bias, int64_t tokens,
                    int64_t rows, double *y, struct as_error *error)
{
    double *b = as_calloc(error, (size_t)rows, sizeof *b, "a bias");
    if (b == NULL)
        return AS_ERR_MEMORY;
    int status = as_ref_load_row(source, bias, 0, rows, b, error);
    for (int64_t t = 0; t < tokens && status == AS_OK; t++)
        as_ref_add(y + t * rows, b, rows, y + t * rows);
    free(b);
    return status;
}

int as_ref_linear_tensor(const struct as_ref_source *source, const char *weight, const char *bias,
                         int threads, const double *x, int64_t tokens, int64_t rows,
                         int64_t columns, double *y, struct as_error *error)
{
    threads = threads < 1 ? 1 : threads > MAX_THREADS ? MAX_THREADS : threads;
    double *panels = as_ref_panels(x, tokens, columns, error);
    struct share *shares = as_calloc(error, (size_t)threads, sizeof *shares, "threads");
    int status = AS_ERR_MEMORY;
    if (panels != NULL && shares != NULL) {
        for (int i = 0; i < threads; i++)
            shares[i] = (struct share){.source = source,
                                       .weight = weight,
                                       .panels = panels,
                                       .y = y,
                                       .first = rows * i / threads,
                                       .last = rows * (i + 1) / threads,
                                       .tokens = tokens,
                                       .rows = rows,
                                       .columns = columns};
        status = run_shares(shares, threads, error);
    }
    if (status == AS_OK && bias != NULL)
        status = add_bias(source, bias, tokens, rows, y, error);
    free(shares);
    free(panels);
    return status;
}
