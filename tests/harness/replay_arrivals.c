/* Arrivals: sent in order and not before their time; chains and concurrency; and the judgement of
 * a load that came late. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "as_clock.h"
#include "replay/arrivals.h"
#include "replay/pacer.h"
#include "replay/validity.h"

/* ---- the pacer ---------------------------------------------------------------------------- */

#define ITEMS 200

struct log {
    pthread_mutex_t lock;
    size_t item[ITEMS];
    uint64_t at_ns[ITEMS];
    size_t count;
};

static void note(void *context, size_t item)
{
    struct log *log = context;
    pthread_mutex_lock(&log->lock);
    log->item[log->count] = item;
    log->at_ns[log->count++] = as_clock_ns();
    pthread_mutex_unlock(&log->lock);
}

static void wait_for(struct log *log, size_t count)
{
    for (size_t have = 0; have < count;) {
        const struct timespec pause = {.tv_nsec = 1000000};
        nanosleep(&pause, NULL);
        pthread_mutex_lock(&log->lock);
        have = log->count;
        pthread_mutex_unlock(&log->lock);
    }
}

Test(replay_arrivals, the_pacer_keeps_order_and_is_never_early)
{
    struct as_pacer *pacer;
    struct log log = {.lock = PTHREAD_MUTEX_INITIALIZER};
    uint64_t due[ITEMS], start = as_clock_ns();
    cr_assert_eq(as_pacer_create(note, &log, ITEMS, &pacer, NULL), 0);
    /* Added out of order, every third at the same time as another. */
    for (size_t i = 0; i < ITEMS; i++) {
        size_t item = (i * 77) % ITEMS;
        due[item] = start + 2000000 + (item / 3) * 300000;
        cr_assert_eq(as_pacer_add(pacer, item, due[item]), 0);
    }
    wait_for(&log, ITEMS);
    for (size_t i = 0; i < ITEMS; i++) {
        cr_assert_geq(log.at_ns[i], due[log.item[i]], "item %zu was early", log.item[i]);
        if (i > 0)
            cr_assert_leq(due[log.item[i - 1]], due[log.item[i]]);
    }
    as_pacer_free(pacer);
}

Test(replay_arrivals, a_pacer_is_closed_with_items_waiting)
{
    struct as_pacer *pacer;
    struct log log = {.lock = PTHREAD_MUTEX_INITIALIZER};
    cr_assert_eq(as_pacer_create(note, &log, 2, &pacer, NULL), 0);
    cr_assert_eq(as_pacer_add(pacer, 0, as_clock_ns() + 3600000000000u), 0);
    cr_assert_eq(as_pacer_add(pacer, 1, as_clock_ns() + 3600000000000u), 0);
    cr_assert_eq(as_pacer_add(pacer, 2, 0), AS_ERR_MEMORY, "a full pacer took another");
    as_pacer_free(pacer);
    cr_assert_eq(log.count, 0);
}

/* ---- arrivals through a stage ------------------------------------------------------------- */

#define WORKLOAD                                                                                        \
    "{\"assay_workload\":1}\n"                                                                          \
    "{\"id\":\"a\",\"at_ns\":0,\"tokens\":[1],\"out\":{\"n\":1}}\n"                                     \
    "{\"id\":\"b\",\"at_ns\":600000000,\"tokens\":[1,2],\"out\":{\"n\":1}}\n"                           \
    "{\"id\":\"c\",\"after\":{\"id\":\"a\",\"delay_ns\":250000000},\"tokens\":[3],\"out\":{\"n\":1}}\n" \
    "{\"id\":\"d\",\"at_ns\":100000000,\"tokens\":[4],\"out\":{\"n\":1}}\n"

struct rig {
    struct as_workload *workload;
    struct as_stage *stage;
    struct as_arrivals *arrivals;
    uint64_t start;
};

static void open_rig(struct rig *rig, const char *workload, enum as_mode mode, uint32_t concurrency,
                     bool inline_text)
{
    struct as_error error = {0};
    cr_assert_eq(as_workload_parse(&rig->workload, workload, strlen(workload), "test", &error), 0,
                 "%s", error.message);
    const struct as_stage_options stage = {.threads = inline_text ? 0 : 1};
    cr_assert_eq(as_stage_create(&stage, &rig->stage, &error), 0, "%s", error.message);
    const struct as_arrivals_options options = {.mode = mode,
                                                .concurrency = concurrency,
                                                .workload = rig->workload,
                                                .stage = rig->stage,
                                                .inline_text = inline_text};
    cr_assert_eq(as_arrivals_create(&options, &rig->arrivals, &error), 0, "%s", error.message);
    rig->start = as_clock_ns();
    cr_assert_eq(as_arrivals_start(rig->arrivals, rig->start, &error), 0);
}

static void close_rig(struct rig *rig)
{
    as_stage_close(rig->stage);
    as_arrivals_free(rig->arrivals);
    as_stage_free(rig->stage);
    as_workload_free(rig->workload);
}

/* The next request to come out of the stage; it is ended at once. */
static size_t next(struct rig *rig, bool inline_text)
{
    if (inline_text)
        cr_assert_eq(as_arrivals_work(rig->arrivals, as_stage_pending(rig->stage) == 0, NULL), 0);
    struct as_stage_result *result = as_stage_take(rig->stage, UINT64_MAX);
    cr_assert_not_null(result);
    size_t id = result->id;
    free(result);
    cr_assert_eq(as_arrivals_ended(rig->arrivals, id, as_clock_ns(), NULL), 0);
    return id;
}

static void expect_order(enum as_mode mode, uint32_t concurrency, const size_t *order)
{
    for (int inline_text = 0; inline_text < 2; inline_text++) {
        struct rig rig;
        open_rig(&rig, WORKLOAD, mode, concurrency, inline_text);
        for (int i = 0; i < 4; i++)
            cr_assert_eq(next(&rig, inline_text), order[i], "%s, place %d", as_mode_name(mode), i);
        for (size_t i = 0; i < 4; i++) {
            struct as_arrival stamp = as_arrivals_stamp(rig.arrivals, i);
            cr_assert_geq(stamp.sent_ns, stamp.scheduled_ns, "request %zu was early", i);
        }
        close_rig(&rig);
    }
}

Test(replay_arrivals, open_mode_sends_at_the_workloads_times)
{
    const size_t order[] = {0, 3, 2, 1}; /* 0, 100 ms, 250 ms after a ended, 600 ms */
    expect_order(AS_MODE_OPEN, 0, order);
}

Test(replay_arrivals, offline_sends_in_order_of_arrival_and_chains_at_the_end)
{
    const size_t order[] = {0, 3, 1, 2};
    expect_order(AS_MODE_OFFLINE, 0, order);
}

Test(replay_arrivals, closed_mode_keeps_a_conversations_place)
{
    const size_t order[] = {0, 2, 3, 1}; /* one at a time: a, its next turn, then the others */
    expect_order(AS_MODE_CLOSED, 1, order);
}

/* Two requests that wait for the same one take two places, of which one is beyond the limit. */
Test(replay_arrivals, closed_mode_sends_nothing_beyond_its_limit)
{
    static const char forked[] =
        "{\"assay_workload\":1}\n"
        "{\"id\":\"a\",\"at_ns\":0,\"tokens\":[1],\"out\":{\"n\":1}}\n"
        "{\"id\":\"b\",\"at_ns\":1,\"tokens\":[2],\"out\":{\"n\":1}}\n"
        "{\"id\":\"c\",\"after\":{\"id\":\"a\"},\"tokens\":[3],\"out\":{\"n\":1}}\n"
        "{\"id\":\"d\",\"after\":{\"id\":\"a\"},\"tokens\":[4],\"out\":{\"n\":1}}\n";
    struct rig rig;
    open_rig(&rig, forked, AS_MODE_CLOSED, 1, false);
    const size_t order[] = {0, 2, 3, 1};
    for (int i = 0; i < 4; i++) {
        uint64_t b = as_arrivals_stamp(rig.arrivals, 1).scheduled_ns;
        cr_assert_eq(b == UINT64_MAX, i < 3, "b was due when %d requests had ended", i);
        cr_assert_eq(next(&rig, false), order[i]);
    }
    close_rig(&rig);
}

/* ---- validity ----------------------------------------------------------------------------- */

static bool judge(uint64_t lag_ns, uint64_t ttft_ns, double stretch, char *reason, size_t size)
{
    static struct as_row_request row[200];
    const struct as_row_request *list[200];
    for (size_t i = 0; i < 200; i++) {
        as_row_unknown(AS_TABLE_REQUESTS, &row[i]);
        row[i].scheduled = 1000000000u + i * 10000000u;
        row[i].sent = 1000000000u + (uint64_t)((double)(i * 10000000u) * stretch) +
                      (i % 50 == 0 ? lag_ns : 0);
        row[i].first_token = row[i].sent + ttft_ns;
        list[i] = &row[i];
    }
    reason[0] = '\0';
    return as_open_loop_valid(list, 200, reason, size);
}

Test(replay_arrivals, a_late_load_is_not_valid)
{
    char reason[256];
    cr_assert(judge(900000, 1000000, 1, reason, sizeof reason), "%s", reason);
    cr_assert_not(judge(1100000, 1000000, 1, reason, sizeof reason));
    cr_assert_not_null(strstr(reason, "1.10 ms"), "%s", reason);
    /* 1 % of a TTFT of 500 ms allows 5 ms. */
    cr_assert(judge(4900000, 500000000, 1, reason, sizeof reason), "%s", reason);
    cr_assert_not(judge(5100000, 500000000, 1, reason, sizeof reason));
    cr_assert_not(judge(0, 10000000000u, 1.02, reason, sizeof reason));
    cr_assert_not_null(strstr(reason, "achieved rate"), "%s", reason);
}
