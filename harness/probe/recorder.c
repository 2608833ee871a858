#include "probe/recorder.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "as_clock.h"
#include "as_file.h"
#include "as_memory.h"

/* Launches of one step are at most this many; a 100-layer model unfused makes 1,700. */
#define STEP_LAUNCHES 4096

struct track {
    _Alignas(64) struct as_spool *spool; /* only its own thread touches it */
    uint64_t start;
    uint32_t launch; /* number of the next launch of this child */
};

struct as_recorder {
    struct as_recorder_options options;
    struct assay_observer observer;
    struct track *track;
    uint32_t step;
    bool recording;
    size_t problems, variants; /* written so far */
};

static void begin(void *context, const struct assay_launch *launch, int32_t thread)
{
    struct as_recorder *recorder = context;
    (void)launch;
    recorder->track[thread].start = as_clock_ns();
}

static void record_driver(struct as_recorder *recorder, struct track *track,
                          const struct assay_launch *launch, uint64_t work, uint64_t wait)
{
    const struct as_row_launch row = {.launch = track->launch++,
                                      .run = recorder->options.run,
                                      .step = recorder->step,
                                      .layer = launch->layer < 0 ? AS_UNKNOWN_U32
                                                                 : (uint32_t)launch->layer,
                                      .variant = (uint32_t)launch->variant_index,
                                      .problem = (uint32_t)launch->problem_index,
                                      .start = track->start,
                                      .end = AS_UNKNOWN_U64,
                                      .work_ns = work,
                                      .wait_ns = wait};
    as_spool_put(track->spool, AS_TABLE_LAUNCHES, &row);
}

static void end(void *context, const struct assay_launch *launch, int32_t thread, uint64_t wait_ns)
{
    struct as_recorder *recorder = context;
    struct track *track = &recorder->track[thread];
    uint64_t total = as_clock_ns() - track->start;
    uint64_t work = total > wait_ns ? total - wait_ns : 0;
    if (!recorder->recording)
        return;
    if (thread == 0) {
        record_driver(recorder, track, launch, work, wait_ns);
        return;
    }
    const struct as_row_launch_thread row = {.launch = track->launch++,
                                             .thread = (uint32_t)thread,
                                             .start = track->start,
                                             .work_ns = work,
                                             .wait_ns = wait_ns};
    as_spool_put(track->spool, AS_TABLE_LAUNCH_THREADS, &row);
}

static int open_spools(struct as_recorder *recorder, struct as_error *error)
{
    const struct as_recorder_options *o = &recorder->options;
    int32_t count = o->traced ? o->threads : 1;
    for (int32_t i = 0; i < count; i++) {
        char path[PATH_MAX];
        int code = 0;
        if (i == 0)
            snprintf(path, sizeof path, "%s/%s", o->folder, AS_SPOOL_ENGINE);
        else
            code = as_spool_thread_path(path, sizeof path, o->folder, (uint32_t)i, error);
        if (code != 0)
            return code;
        recorder->track[i].spool = as_spool_create(path, 0, error);
        if (recorder->track[i].spool == NULL)
            return error == NULL || error->code == 0 ? AS_ERR_IO : error->code;
    }
    return 0;
}

int as_recorder_create(const struct as_recorder_options *options, struct as_recorder **result,
                       struct as_error *error)
{
    struct as_recorder *recorder = *result = as_calloc(error, 1, sizeof *recorder, "the recorder");
    if (recorder == NULL)
        return AS_ERR_MEMORY;
    recorder->options = *options;
    recorder->observer = (struct assay_observer){.context = recorder, .begin = begin, .end = end};
    recorder->track = as_calloc_aligned(error, (size_t)options->threads, sizeof recorder->track[0],
                                        "the recorder");
    int code = recorder->track == NULL ? AS_ERR_MEMORY : open_spools(recorder, error);
    if (code != 0) {
        as_recorder_close(recorder, NULL);
        *result = NULL;
    }
    return code;
}

int as_recorder_close(struct as_recorder *recorder, struct as_error *error)
{
    int code = 0;
    if (recorder == NULL)
        return 0;
    for (int32_t i = 0; recorder->track != NULL && i < recorder->options.threads; i++) {
        int closed = as_spool_close(recorder->track[i].spool, code == 0 ? error : NULL);
        code = code == 0 ? closed : code;
    }
    free(recorder->track);
    free(recorder);
    return code;
}

const struct assay_observer *as_recorder_observer(const struct as_recorder *recorder)
{
    return recorder->options.traced ? &recorder->observer : NULL;
}

struct as_spool *as_recorder_spool(struct as_recorder *recorder)
{
    return recorder->track[0].spool;
}

int as_recorder_begin_step(struct as_recorder *recorder, uint32_t step)
{
    recorder->step = step;
    recorder->recording = true;
    for (int32_t i = 0; recorder->options.traced && i < recorder->options.threads; i++) {
        int code = as_spool_reserve(recorder->track[i].spool,
                                    STEP_LAUNCHES * (sizeof(struct as_row_launch) + 16));
        if (code != 0)
            return code;
    }
    return 0;
}

void as_recorder_end_step(struct as_recorder *recorder)
{
    recorder->recording = false;
}

static uint32_t dtype_string(struct as_spool *spool, enum assay_dtype dtype)
{
    return dtype == ASSAY_NONE ? AS_UNKNOWN_U32 : as_spool_string(spool, assay_dtype(dtype)->name);
}

static uint32_t known(int64_t value)
{
    return value <= 0 ? AS_UNKNOWN_U32 : (uint32_t)value;
}

static void put_problem(struct as_spool *spool, uint32_t id, const struct assay_problem *problem)
{
    const struct assay_shape *shape = &problem->node[0];
    for (int32_t i = 0; i < problem->nodes; i++)
        if (problem->node[i].op == ASSAY_LINEAR)
            shape = &problem->node[i];
    char words[192];
    double flops, bytes;
    as_problem_words(problem, words, sizeof words);
    as_problem_cost(problem, &flops, &bytes);
    struct as_row_problem row;
    as_row_unknown(AS_TABLE_PROBLEMS, &row);
    row.problem = id;
    row.op = as_spool_string(spool, as_problem_name(problem));
    row.shape = as_spool_string(spool, words);
    row.tokens = (uint32_t)shape->tokens;
    row.m = (uint32_t)shape->tokens;
    row.n = known(shape->n);
    row.k = known(shape->k);
    row.sequences = known(shape->sequences);
    row.context = known(shape->context);
    row.heads = known(shape->heads);
    row.kv_heads = known(shape->kv_heads);
    row.head_dim = known(shape->head_dim);
    row.weights = dtype_string(spool, shape->weights);
    row.activations = dtype_string(spool, shape->activations);
    row.kv = dtype_string(spool, shape->kv);
    row.flops = (uint64_t)flops;
    row.bytes = (uint64_t)bytes;
    as_spool_put(spool, AS_TABLE_PROBLEMS, &row);
}

static void put_variant(struct as_spool *spool, uint32_t id, const struct assay_variant *variant)
{
    struct as_row_variant row;
    as_row_unknown(AS_TABLE_VARIANTS, &row);
    row.variant = id;
    row.name = as_spool_string(spool, variant->name);
    row.backend = as_spool_string(spool, variant->backend == ASSAY_CPU ? "cpu" : "cuda");
    row.rung = (uint32_t)variant->rung;
    row.improves = as_spool_string(spool, variant->improves);
    as_spool_put(spool, AS_TABLE_VARIANTS, &row);
}

int as_recorder_tables(struct as_recorder *recorder, const struct as_engine *engine,
                       struct as_error *error)
{
    struct as_spool *spool = recorder->track[0].spool;
    for (; recorder->problems < as_engine_problem_count(engine); recorder->problems++)
        put_problem(spool, (uint32_t)recorder->problems,
                    as_engine_problem(engine, recorder->problems));
    for (; recorder->variants < as_engine_variant_count(engine); recorder->variants++)
        put_variant(spool, (uint32_t)recorder->variants,
                    as_engine_variant(engine, recorder->variants));
    return as_recorder_failed(recorder, error);
}

int as_recorder_counters(struct as_recorder *recorder, struct as_engine *engine)
{
    struct as_spool *spool = recorder->track[0].spool;
    const struct as_counters *counters = as_engine_counters(engine);
    int code = 0;
    for (size_t i = 0; code == 0 && i < as_counter_count; i++) {
        const struct as_row_counter row = {.run = recorder->options.run,
                                           .name = as_spool_string(spool, as_counter_info[i].name),
                                           .units = as_spool_string(spool, as_counter_info[i].unit),
                                           .value = as_counter_value(counters, i)};
        code = as_spool_put(spool, AS_TABLE_COUNTERS, &row);
    }
    return code;
}

int as_recorder_failed(const struct as_recorder *recorder, struct as_error *error)
{
    for (int32_t i = 0; i < recorder->options.threads; i++) {
        struct as_spool *spool = recorder->track[i].spool;
        const struct as_error *failed = spool == NULL ? NULL : as_spool_error(spool);
        if (failed != NULL && failed->code != 0)
            return as_fail(error, failed->code, "%s", failed->message);
    }
    return 0;
}

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double as_recorder_cost(const char *folder)
{
    enum { ROUNDS = 31, CALLS = 256 };
    char own[PATH_MAX], path[PATH_MAX + 16];
    double cost[ROUNDS];
    struct as_recorder *recorder;
    snprintf(own, sizeof own, "%s/cost", folder);
    if (as_make_folders(own, NULL) != 0)
        return AS_UNKNOWN_F64;
    const struct as_recorder_options options = {.folder = own, .threads = 1, .traced = true};
    snprintf(path, sizeof path, "%s/%s", own, AS_SPOOL_ENGINE);
    if (as_recorder_create(&options, &recorder, NULL) != 0) {
        unlink(path);
        rmdir(own);
        return AS_UNKNOWN_F64;
    }
    const struct assay_launch launch = {.layer = 1};
    for (int r = 0; r < ROUNDS; r++) {
        as_recorder_begin_step(recorder, 0);
        uint64_t start = as_clock_ns();
        for (int i = 0; i < CALLS; i++) {
            begin(recorder, &launch, 0);
            end(recorder, &launch, 0, 0);
        }
        cost[r] = (double)(as_clock_ns() - start) / CALLS;
    }
    as_recorder_close(recorder, NULL);
    unlink(path);
    rmdir(own);
    qsort(cost, ROUNDS, sizeof cost[0], by_value);
    return cost[ROUNDS / 2];
}
