#include "replay/precheck.h"

#include <stdio.h>

#include "as_memory.h"
#include "check/stamps.h"
#include "probe/digest.h"

struct needs {
    struct as_check_need *need;
    size_t count, capacity;
    struct as_error *error;
};

static int collect(void *context, const struct assay_variant *variant,
                   const struct assay_problem *problem)
{
    struct needs *needs = context;
    int code = as_grow(needs->error, &needs->need, &needs->capacity, needs->count,
                       sizeof needs->need[0], "the checks");
    if (code == 0)
        needs->need[needs->count++] =
            (struct as_check_need){.variant = variant, .problem = *problem};
    return code;
}

/* Every class that a step can fall into: tokens and context in powers of two. Steps of several
 * sequences can hold more tokens than the longest context, so all pairs are met. */
static int collect_classes(const struct as_bench *bench, struct needs *needs)
{
    const struct as_engine_options options = as_bench_engine_options(bench, NULL);
    int code = 0;
    bool last_tokens = false;
    for (int64_t tokens = 1; code == 0 && !last_tokens; tokens *= 2) {
        last_tokens = tokens >= options.max_tokens;
        bool last_context = false;
        for (int64_t context = 1; code == 0 && !last_context; context *= 2) {
            last_context = context >= options.context;
            int64_t rows = tokens < options.max_sequences ? tokens : options.max_sequences;
            const struct as_step_shape shape = {.tokens = tokens,
                                                .logit_rows = rows,
                                                .sequences = 1,
                                                .context = context,
                                                .kv_tokens = tokens * context,
                                                .kv_rows = context};
            code = as_engine_visit_problems(&options, &shape, collect, needs, needs->error);
        }
    }
    return code;
}

static void put_variants(struct as_spool *spool, const struct needs *needs, bool passed)
{
    for (size_t i = 0; i < needs->count; i++) {
        const struct assay_variant *variant = needs->need[i].variant;
        bool seen = false;
        for (size_t j = 0; j < i && !seen; j++)
            seen = needs->need[j].variant == variant;
        if (seen)
            continue;
        struct as_row_variant row;
        as_row_unknown(AS_TABLE_VARIANTS, &row);
        row.name = as_spool_string(spool, variant->name);
        row.backend = as_spool_string(spool, variant->backend == ASSAY_CPU ? "cpu" : "cuda");
        row.rung = (uint32_t)variant->rung;
        row.improves = as_spool_string(spool, variant->improves);
        row.checked = passed;
        as_spool_put(spool, AS_TABLE_VARIANTS, &row);
    }
}

static void put_model(struct as_spool *spool, const struct as_model *model)
{
    char digest[17];
    as_model_digest_cached(model, digest);
    as_spool_attribute(spool, "model", model->path);
    as_spool_attribute(spool, "model_name", model->name);
    as_spool_attribute(spool, "model_digest", digest);
    as_spool_attribute_u64(spool, "model_tensor_bytes", model->tensor_bytes);
}

int as_precheck(const struct as_bench_options *options, struct as_spool *spool, bool describe_model,
                char name[64], struct as_error *error)
{
    struct as_bench bench;
    struct needs needs = {.error = error};
    struct as_check_summary summary = {0};
    char key[128];
    int code = as_bench_open(options, &bench, error);
    if (code != 0)
        return code;
    snprintf(name, 64, "%s", bench.strategy.name);
    if (describe_model)
        put_model(spool, bench.model);
    code = collect_classes(&bench, &needs);
    if (code == 0)
        code = as_check_needed(bench.device, needs.need, needs.count, NULL, NULL, &summary, error);
    if (code == 0 && summary.failed > 0)
        code = as_fail(error, AS_ERR_WRONG,
                       "strategy %s: %zu of %zu checks failed, so nothing is timed; the first: %s",
                       bench.strategy.name, summary.failed, summary.needed, summary.reason);
    if (code == 0) {
        put_variants(spool, &needs, true);
        snprintf(key, sizeof key, "checks_needed %s", bench.strategy.name);
        as_spool_attribute_u64(spool, key, summary.needed);
        snprintf(key, sizeof key, "checks_passed %s", bench.strategy.name);
        as_spool_attribute_u64(spool, key, summary.passed);
        snprintf(key, sizeof key, "checks_seconds %s", bench.strategy.name);
        as_spool_attribute_f64(spool, key, summary.seconds);
    }
    free(needs.need);
    as_bench_close(&bench);
    return code;
}
