/* Lets the highest id win a tie. */
#include "wrong.h"

static struct assay_top scan_last_tie(const float *logits, int64_t n)
{
    struct assay_top top = {.id = -1, .logit = -INFINITY};
    float second = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        top.projection += assay_sign(i) * (double)logits[i];
        top.nonfinite += !isfinite(logits[i]);
        if (isnan(logits[i]))
            continue;
        if (top.id < 0 || logits[i] >= top.logit) {
            second = top.id < 0 ? second : top.logit;
            top.logit = logits[i];
            top.id = (int32_t)i;
        } else if (logits[i] > second) {
            second = logits[i];
        }
    }
    top.margin = second == -INFINITY ? INFINITY : top.logit - second;
    return top;
}

static int run_argmax_last_tie(const struct assay_launch *launch, const struct assay_exec *exec)
{
    FOR_ROWS(launch, exec, t)
    {
        ((struct assay_top *)launch->operand[1].data)[t] =
            scan_last_tie(cpu_row(&launch->operand[0], t), launch->problem->node[0].n);
    }
    return 0;
}

const struct assay_variant assay_wrong_argmax_last_tie = {
    WRONG(ASSAY_ARGMAX, "argmax_last_tie", run_argmax_last_tie)};
