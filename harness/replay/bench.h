/* A model on a device under a strategy, ready to run: what a child, `verify` and `serve` open. */
#ifndef AS_BENCH_H
#define AS_BENCH_H

#include "device/cpu/cpu_device.h"
#include "engine/engine.h"
#include "preprocess/template.h"
#include "preprocess/tokenizer.h"
#include "strategies/strategy.h"

struct as_bench {
    struct as_strategy strategy;
    struct as_registry *registry;
    struct as_model *model;
    struct assay_device *device;
    struct as_engine *engine;
    int32_t context; /* most rows of a sequence */
    int32_t threads;
};

struct as_bench_options {
    const char *model;    /* path or synthetic:... */
    const char *strategy; /* name or path */
    const char *const *set;
    size_t sets;
    int32_t context; /* rows that will be needed, 0 = unknown; lowers the cache's size */
    bool spare_cpu;  /* leave one CPU to whoever sends requests, where the strategy does not say */
    bool plans_only; /* no engine: for checks before anything runs */
};

/* Opens everything; on failure nothing is left open. `observer` is NULL in timing passes. It may
 * be made after the bench with as_bench_start(), which is what `plans_only` leaves out. */
int as_bench_open(const struct as_bench_options *options, struct as_bench *bench,
                  struct as_error *error);
int as_bench_start(struct as_bench *bench, const struct assay_observer *observer,
                   struct as_error *error);
void as_bench_close(struct as_bench *bench);

/* The engine options that the strategy means on this model and device. */
struct as_engine_options as_bench_engine_options(const struct as_bench *bench,
                                                 const struct assay_observer *observer);

#endif
