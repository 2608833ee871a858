/* Reports a failure where it meets a position it has no table for. */
#include "wrong.h"

static int run_rope_gives_up(const struct assay_launch *launch, const struct assay_exec *exec)
{
    (void)launch;
    (void)exec;
    return AS_ERR_UNSUPPORTED;
}

const struct assay_variant assay_wrong_rope_gives_up = {
    WRONG(ASSAY_ROPE, "rope_gives_up", run_rope_gives_up)};
