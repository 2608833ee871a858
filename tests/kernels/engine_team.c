/* The team: every thread enters, barriers hold, waiting is accounted, sleeping threads wake. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

#include "device/cpu/cpu_device.h"
#include "device/cpu/team.h"

#define ROUNDS 2000

struct relay {
    _Atomic int entered;
    int baton[8]; /* written by one thread, read by its neighbour behind a barrier */
    int wrong;
};

static void pass_baton(void *context, const struct assay_exec *exec)
{
    struct relay *relay = context;
    atomic_fetch_add(&relay->entered, 1);
    for (int round = 1; round <= 8; round++) {
        relay->baton[exec->thread] = round;
        exec->barrier(exec);
        if (relay->baton[(exec->thread + 1) % exec->threads] != round)
            relay->wrong = 1;
        exec->barrier(exec);
    }
}

static void check_relay(int32_t threads)
{
    struct as_team *team;
    struct as_error error = {0};
    cr_assert_eq(as_team_create(&team, threads, NULL, &error), 0, "%s", error.message);
    for (int i = 0; i < ROUNDS / threads; i++) {
        struct relay relay = {0};
        as_team_run(team, pass_baton, &relay);
        cr_assert_eq(relay.entered, threads);
        cr_assert_eq(relay.wrong, 0, "a barrier let a thread through early");
    }
    uint64_t regions, barriers;
    as_team_counts(team, &regions, &barriers);
    cr_assert_eq(regions, (uint64_t)(ROUNDS / threads));
    cr_assert_eq(barriers, (uint64_t)(ROUNDS / threads) * 16);
    as_team_free(team);
}

Test(engine_team, every_thread_enters_and_barriers_hold)
{
    for (int32_t threads = 1; threads <= 4; threads++)
        check_relay(threads);
}

static void meet_twice(void *context, const struct assay_exec *exec)
{
    (void)context;
    as_team_meet(exec);
    as_team_barrier(exec);
}

Test(engine_team, meeting_is_no_barrier_of_a_launch)
{
    struct as_team *team;
    uint64_t regions, barriers;
    for (int32_t threads = 1; threads <= 2; threads++) {
        cr_assert_eq(as_team_create(&team, threads, NULL, NULL), 0);
        as_team_run(team, meet_twice, NULL);
        as_team_counts(team, &regions, &barriers);
        cr_assert_eq(barriers, 1);
        as_team_free(team);
    }
}

static void sleep_a_little(long nanoseconds)
{
    const struct timespec time = {.tv_nsec = nanoseconds};
    nanosleep(&time, NULL);
}

static void wait_for_the_slow_one(void *context, const struct assay_exec *exec)
{
    uint64_t *wait = context;
    if (exec->thread == 1)
        sleep_a_little(20000000);
    exec->barrier(exec);
    wait[exec->thread] = as_team_take_wait(exec);
}

Test(engine_team, waiting_is_counted_for_the_one_who_waits)
{
    struct as_team *team;
    uint64_t wait[2] = {0};
    cr_assert_eq(as_team_create(&team, 2, NULL, NULL), 0);
    as_team_set_timing(team, true);
    as_team_run(team, wait_for_the_slow_one, wait);
    cr_assert_gt(wait[0], 15000000u, "thread 0 waited 20 ms, %lu ns were counted", wait[0]);
    cr_assert_lt(wait[1], wait[0]);
    as_team_free(team);
}

/* Longer than any spin: the team has gone to sleep and must be woken. */
Test(engine_team, a_sleeping_team_wakes)
{
    struct as_team *team;
    cr_assert_eq(as_team_create(&team, 3, NULL, NULL), 0);
    for (int i = 0; i < 5; i++) {
        struct relay relay = {0};
        sleep_a_little(5000000);
        as_team_run(team, pass_baton, &relay);
        cr_assert_eq(relay.entered, 3);
    }
    as_team_free(team);
}

Test(engine_team, impossible_sizes_and_cpus_are_refused)
{
    struct as_team *team;
    struct as_error error = {0};
    const int32_t no_such_cpu[2] = {0, 9999};
    cr_assert_eq(as_team_create(&team, 0, NULL, &error), AS_ERR_USAGE);
    as_error_clear(&error);
    cr_assert_eq(as_team_create(&team, 257, NULL, &error), AS_ERR_USAGE);
    as_error_clear(&error);
    cr_assert_eq(as_team_create(&team, 2, no_such_cpu, &error), AS_ERR_USAGE);
    cr_assert_not_null(strstr(error.message, "9999"));
    cr_assert_null(team);
}

Test(engine_team, shares_cover_everything_once)
{
    for (int32_t threads = 1; threads <= 5; threads++)
        for (int64_t count = 0; count <= 70; count++)
            for (int64_t grain = 1; grain <= 16; grain *= 4) {
                int64_t next = 0;
                for (int32_t t = 0; t < threads; t++) {
                    const struct assay_exec exec = {.thread = t, .threads = threads};
                    int64_t begin, end;
                    assay_share(&exec, count, grain, &begin, &end);
                    cr_assert_eq(begin, next);
                    cr_assert(end >= begin && end <= count);
                    cr_assert(begin % grain == 0 || begin == count);
                    next = end;
                }
                cr_assert_eq(next, count);
            }
}

static void count_cpus(void *context)
{
    int *cpus = context;
    *cpus = (int)as_cpu_count();
}

/* Children and threads of other rooms inherit the caller's CPUs: a pin must not outlive its team,
 * nor reach them while it lasts. */
Test(engine_team, a_pin_is_the_teams_alone)
{
    cpu_set_t before, after;
    struct as_team *team;
    struct as_error error = {0};
    int32_t cpu = 0;
    int seen = 0;
    cr_assert_eq(sched_getaffinity(0, sizeof before, &before), 0);
    while (!CPU_ISSET(cpu, &before))
        cpu++;
    const int32_t cpus[2] = {cpu, cpu}, absent[2] = {cpu, CPU_SETSIZE};
    cr_assert_eq(as_team_create(&team, 2, cpus, &error), 0, "%s", error.message);
    cr_assert_eq(as_cpu_count(), 1);
    as_team_unpinned(team, count_cpus, &seen);
    cr_assert_eq(seen, CPU_COUNT(&before));
    cr_assert_eq(as_cpu_count(), 1, "the caller was not pinned again");
    as_team_free(team);
    cr_assert_eq(sched_getaffinity(0, sizeof after, &after), 0);
    cr_assert(CPU_EQUAL(&before, &after), "the pin outlived the team");
    cr_assert_neq(as_team_create(&team, 2, absent, NULL), 0);
    cr_assert_eq(sched_getaffinity(0, sizeof after, &after), 0);
    cr_assert(CPU_EQUAL(&before, &after), "the pin outlived a team that was refused");
}
