/* y = x W^T, arranged so that one row of W is enough at a time. */
#include "product.h"

#include <string.h>

#include "as_memory.h"
#include "reference.h"

double *as_ref_panels(const double *x, int64_t tokens, int64_t columns, struct as_error *error)
{
    int64_t panels = (tokens + AS_REF_LANES - 1) / AS_REF_LANES;
    double *out = as_calloc_aligned(error, (size_t)(panels * columns), AS_REF_LANES * sizeof *out,
                                    "the inputs of a matrix product");
    if (out == NULL)
        return NULL;
    for (int64_t t = 0; t < tokens; t++) {
        double *lane = out + t / AS_REF_LANES * columns * AS_REF_LANES + t % AS_REF_LANES;
        for (int64_t k = 0; k < columns; k++)
            lane[k * AS_REF_LANES] = x[t * columns + k];
    }
    return out;
}

/* Four doubles side by side: one register where the machine has AVX2, two otherwise. Products and
 * sums are rounded one by one in either case, so both give the same bits. */
typedef double quad __attribute__((vector_size(32)));

static inline __attribute__((always_inline)) void sum_panel(const double *panel, const double *w,
                                                            int64_t columns, double *sums)
{
    const quad *x = (const quad *)(const void *)panel;
    quad a = {0}, b = {0}, c = {0}, d = {0};
    for (int64_t k = 0; k < columns; k++, x += AS_REF_LANES / 4) {
        a += w[k] * x[0];
        b += w[k] * x[1];
        c += w[k] * x[2];
        d += w[k] * x[3];
    }
    const quad all[] = {a, b, c, d};
    memcpy(sums, all, sizeof all);
}

__attribute__((target("avx2"))) static void sum_panel_avx2(const double *panel, const double *w,
                                                           int64_t columns, double *sums)
{
    sum_panel(panel, w, columns, sums);
}

void as_ref_product_row(const double *panels, const double *w, int64_t tokens, int64_t columns,
                        double *y, int64_t stride)
{
    bool avx2 = __builtin_cpu_supports("avx2");
    for (int64_t first = 0; first < tokens; first += AS_REF_LANES) {
        double sums[AS_REF_LANES];
        if (avx2)
            sum_panel_avx2(panels, w, columns, sums);
        else
            sum_panel(panels, w, columns, sums);
        for (int lane = 0; lane < AS_REF_LANES && first + lane < tokens; lane++)
            y[(first + lane) * stride] = sums[lane];
        panels += columns * AS_REF_LANES;
    }
}

int as_ref_linear(const double *x, const double *w, const double *bias, int64_t tokens,
                  int64_t rows, int64_t columns, double *y, struct as_error *error)
{
    double *panels = as_ref_panels(x, tokens, columns, error);
    if (panels == NULL)
        return AS_ERR_MEMORY;
    for (int64_t r = 0; r < rows; r++) {
        as_ref_product_row(panels, w + r * columns, tokens, columns, y + r, rows);
        for (int64_t t = 0; t < tokens && bias != NULL; t++)
            y[t * rows + r] += bias[r];
    }
    free(panels);
    return AS_OK;
}
