/* The table of dtypes, and the signs of the projection. */
#include "as_random.h"
#include "kernel.h"

/* Block sizes as ggml stores them (ggml-common.h): scales and minima are fp16, quants follow.
 * Q8 is what the engine holds in scratch: a float32 scale and 32 int8. */
static const struct assay_dtype_info dtypes[ASSAY_DTYPES + 1] = {
    [ASSAY_F32] = {"f32", 1, 4},       [ASSAY_F16] = {"f16", 1, 2},
    [ASSAY_BF16] = {"bf16", 1, 2},     [ASSAY_Q8_0] = {"q8_0", 32, 34},
    [ASSAY_Q4_0] = {"q4_0", 32, 18},   [ASSAY_Q4_1] = {"q4_1", 32, 20},
    [ASSAY_Q5_0] = {"q5_0", 32, 22},   [ASSAY_Q5_1] = {"q5_1", 32, 24},
    [ASSAY_Q4_K] = {"q4_k", 256, 144}, [ASSAY_Q5_K] = {"q5_k", 256, 176},
    [ASSAY_Q6_K] = {"q6_k", 256, 210}, [ASSAY_Q8] = {"q8", 32, 36},
    [ASSAY_I32] = {"i32", 1, 4},       [ASSAY_TOP] = {"top", 1, sizeof(struct assay_top)},
    [ASSAY_NONE] = {"none", 1, 0},
};

const struct assay_dtype_info *assay_dtype(enum assay_dtype dtype)
{
    return &dtypes[(unsigned)dtype < ASSAY_DTYPES ? dtype : ASSAY_NONE];
}

double assay_sign(int64_t id)
{
    return as_mix64((uint64_t)id) & 1 ? -1.0 : 1.0;
}
