#include "replay/bench.h"

#include "as_memory.h"

/* Sequences get whole contexts unless the caller knows that less will do. */
static int32_t context_of(const struct as_bench *bench, int32_t needed)
{
    int32_t most = (int32_t)bench->model->config.context;
    int32_t context = bench->strategy.context == 0 ? most : bench->strategy.context;
    if (bench->strategy.context == 0 && needed > 0 && needed < context)
        context = needed;
    return context;
}

int as_bench_open(const struct as_bench_options *options, struct as_bench *bench,
                  struct as_error *error)
{
    *bench = (struct as_bench){0};
    int code =
        as_strategy_load(&bench->strategy, options->strategy, options->set, options->sets, error);
    if (code == 0)
        code = as_registry_create(&bench->registry, error);
    if (code == 0)
        code = as_model_open(options->model, &bench->model, error);
    if (code == 0) {
        const struct as_strategy *strategy = &bench->strategy;
        int32_t threads = strategy->threads;
        if (threads == 0 && options->spare_cpu && as_cpu_count() > 1)
            threads = as_cpu_count() - 1;
        code = as_cpu_device_open(&bench->device, threads,
                                  strategy->affinity_count > 0 ? strategy->affinity : NULL, error);
    }
    if (code == 0) {
        bench->threads = bench->device->threads;
        bench->context = context_of(bench, options->context);
        if (!options->plans_only)
            code = as_bench_start(bench, NULL, error);
    }
    if (code != 0)
        as_bench_close(bench);
    return code;
}

struct as_engine_options as_bench_engine_options(const struct as_bench *bench,
                                                 const struct assay_observer *observer)
{
    const struct as_strategy *strategy = &bench->strategy;
    int64_t blocks = (bench->context + strategy->block_size - 1) / strategy->block_size;
    return (struct as_engine_options){.model = bench->model,
                                      .device = bench->device,
                                      .registry = bench->registry,
                                      .choice = strategy->choice,
                                      .choices = (size_t)strategy->choices,
                                      .activations = (enum assay_dtype)strategy->activations,
                                      .kv = (enum assay_dtype)strategy->kv,
                                      .block_size = strategy->block_size,
                                      .kv_blocks = strategy->kv_blocks > 0
                                                       ? strategy->kv_blocks
                                                       : blocks * strategy->max_batch_size,
                                      .max_sequences = strategy->max_batch_size,
                                      .max_tokens = strategy->max_batch_tokens,
                                      .context = bench->context,
                                      .observer = observer};
}

int as_bench_start(struct as_bench *bench, const struct assay_observer *observer,
                   struct as_error *error)
{
    const struct as_engine_options options = as_bench_engine_options(bench, observer);
    return as_engine_create(&options, &bench->engine, error);
}

void as_bench_close(struct as_bench *bench)
{
    if (bench == NULL)
        return;
    as_engine_free(bench->engine);
    if (bench->device != NULL)
        bench->device->close(bench->device);
    as_model_close(bench->model);
    as_registry_free(bench->registry);
    *bench = (struct as_bench){0};
}
