/* Loads four elements at once from an address that it takes for a multiple of 16. */
#include <xmmintrin.h>

#include "wrong.h"

static int run_silu_mul_misaligned(const struct assay_launch *launch, const struct assay_exec *exec)
{
    int64_t n = launch->problem->node[0].n;
    FOR_ROWS(launch, exec, t)
    {
        const float *gate = cpu_row(&launch->operand[0], t), *up = cpu_row(&launch->operand[1], t);
        float *y = cpu_row(&launch->operand[2], t);
        if (n >= 4)
            _mm_storeu_ps(y, _mm_load_ps(gate));
        for (int64_t i = 0; i < n; i++)
            y[i] = (n >= 4 && i < 4 ? y[i] : gate[i]) / (1 + expf(-gate[i])) * up[i];
    }
    return 0;
}

const struct assay_variant assay_wrong_silu_mul_misaligned = {
    WRONG(ASSAY_SILU_MUL, "silu_mul_misaligned", run_silu_mul_misaligned)};
