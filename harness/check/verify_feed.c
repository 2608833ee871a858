#include "check/verify_feed.h"

#include <math.h>

#include "as_memory.h"
#include "reference.h"

/* What a run needs besides the feeder: a step's rows and whose they are. */
struct run {
    struct as_feeder *feeder;
    struct as_feed *feed;
    int32_t feeds;
    struct as_batch_row *row; /* (feeds) */
    struct as_feed **owner;   /* (feeds) */
    int32_t rows;
    struct as_error *error;
};

/* Starts sequences in order while the strategy's cache and batch have room for whole ones. */
static void admit(struct run *run)
{
    struct as_kv_pool *pool = as_engine_pool(run->feeder->bench->engine);
    for (int32_t i = 0; i < run->feeds; i++) {
        struct as_feed *feed = &run->feed[i];
        if (feed->sequence >= 0 || feed->done > 0)
            continue;
        as_kv_poison_free(pool);
        int32_t sequence = as_kv_open(pool);
        if (sequence < 0)
            return;
        if (!as_kv_reserve(pool, sequence, run->feeder->positions)) {
            as_kv_close(pool, sequence);
            return;
        }
        feed->sequence = sequence;
    }
}

static void form(struct run *run)
{
    const struct as_strategy *strategy = &run->feeder->bench->strategy;
    int32_t budget = strategy->max_batch_tokens;
    run->rows = 0;
    for (int32_t i = 0; i < run->feeds && budget > 0; i++) {
        struct as_feed *feed = &run->feed[i];
        int32_t left = run->feeder->positions - feed->done;
        if (feed->sequence < 0)
            continue;
        int32_t count = feed->chunk[feed->turn % feed->chunks];
        count = count < strategy->chunk_tokens ? count : strategy->chunk_tokens;
        count = count < left ? count : left;
        count = count < budget ? count : budget;
        run->owner[run->rows] = feed;
        run->row[run->rows++] =
            (struct as_batch_row){.sequence = feed->sequence,
                                  .tokens = run->feeder->truth->token + feed->done,
                                  .count = count,
                                  .wants_logits = true};
        budget -= count;
    }
}

/* Whether argmax's columns are those of the logits it read. */
static bool columns_agree(const struct assay_top *top, const float *logits, int64_t vocabulary)
{
    int64_t best = 0, nonfinite = 0;
    for (int64_t t = 0; t < vocabulary; t++) {
        nonfinite += !isfinite(logits[t]);
        if (logits[t] > logits[best])
            best = t;
    }
    if (nonfinite > 0)
        return top->nonfinite == nonfinite;
    return top->nonfinite == 0 && top->id == best && top->logit == logits[best];
}

static void add_columns(struct as_feeder *feeder, const double *ref, const struct assay_top *top)
{
    struct as_ref_top wanted = as_ref_argmax(ref, feeder->truth->vocabulary);
    feeder->greedy_rows++;
    feeder->greedy_anomalies += top->nonfinite > 0 || !isfinite(top->logit);
    feeder->greedy_flips += top->id != wanted.id && wanted.margin > feeder->noise;
}

static void add_row(struct run *run, int32_t index, const struct as_step_result *result)
{
    struct as_feeder *feeder = run->feeder;
    struct as_feed *feed = run->owner[index];
    int64_t vocabulary = feeder->truth->vocabulary;
    feed->done += run->row[index].count;
    feed->turn++;
    const double *ref = feeder->truth->logits + (feed->done - 1) * vocabulary;
    if (feeder->columns_only) {
        add_columns(feeder, ref, &result->top[index]);
    } else {
        const float *logits = result->logits + index * vocabulary;
        as_ref_logits_add(feed->sum, ref, logits, vocabulary, feeder->noise);
        feeder->column_faults += !columns_agree(&result->top[index], logits, vocabulary);
    }
}

/* One step of all that run. *tokens: how many it took. */
static int step(struct run *run, int32_t *tokens)
{
    struct as_feeder *feeder = run->feeder;
    struct as_engine *engine = feeder->bench->engine;
    const struct as_batch batch = {.row = run->row, .rows = run->rows};
    struct as_step_result result;
    int code = as_engine_submit(engine, &batch, !feeder->columns_only, run->error);
    if (code == 0)
        code = as_engine_collect(engine, &result, run->error);
    if (code != 0)
        return code;
    *tokens = result.tokens;
    for (int32_t i = 0; i < run->rows; i++) {
        add_row(run, i, &result);
        if (run->owner[i]->done == feeder->positions) {
            as_kv_close(as_engine_pool(engine), run->owner[i]->sequence);
            run->owner[i]->sequence = -1;
        }
    }
    return 0;
}

static int run_all(struct run *run)
{
    struct as_feeder *feeder = run->feeder;
    struct as_kv_pool *pool = as_engine_pool(feeder->bench->engine);
    const struct as_verify_progress *progress = feeder->progress;
    uint64_t done = 0, total = (uint64_t)run->feeds * (uint64_t)feeder->positions;
    while (done < total) {
        int32_t tokens = 0;
        admit(run);
        form(run);
        if (run->rows == 0)
            return as_fail(run->error, AS_ERR_USAGE,
                           "a cache of %lld blocks of %d rows is too small for %d positions; raise "
                           "the strategy's kv_blocks or compare fewer",
                           (long long)as_kv_total_blocks(pool),
                           (int)as_kv_pool_layer(pool, 0)->block_size, (int)feeder->positions);
        int code = step(run, &tokens);
        if (code != 0)
            return code;
        done += (uint64_t)tokens;
        if (progress != NULL && progress->show != NULL)
            progress->show(progress->context, feeder->what, done, total);
    }
    return 0;
}

int as_feed_run(struct as_feeder *feeder, struct as_feed *feed, int32_t feeds,
                struct as_error *error)
{
    struct run run = {.feeder = feeder, .feed = feed, .feeds = feeds, .error = error};
    for (int32_t i = 0; i < feeds; i++)
        feed[i].sequence = -1;
    run.row = as_calloc(error, (size_t)feeds, sizeof run.row[0], "rows of a step");
    run.owner = as_calloc(error, (size_t)feeds, sizeof run.owner[0], "rows of a step");
    int code = run.row == NULL || run.owner == NULL ? AS_ERR_MEMORY : run_all(&run);
    for (int32_t i = 0; i < feeds; i++)
        if (feed[i].sequence >= 0)
            as_kv_close(as_engine_pool(feeder->bench->engine), feed[i].sequence);
    free(run.row);
    free(run.owner);
    return code;
}
