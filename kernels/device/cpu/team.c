#define _GNU_SOURCE
#include "device/cpu/team.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "as_clock.h"
#include "as_memory.h"

#define SPIN_NS 20000u

/* A number that only grows, and a count of those asleep on it. Each on its own cache line. */
struct turnstile {
    _Alignas(64) _Atomic uint32_t turn;
    _Alignas(64) _Atomic uint32_t sleepers;
};

struct member {
    _Alignas(64) uint64_t wait_ns; /* only its own thread writes it */
    struct assay_exec exec;
    pthread_t handle;
};

struct as_team {
    struct turnstile region;  /* opened by thread 0 */
    struct turnstile barrier; /* opened by whoever arrives last */
    _Alignas(64) _Atomic uint32_t arrived;
    _Alignas(64) void (*work)(void *, const struct assay_exec *);
    void *context;
    uint64_t regions;
    _Atomic uint64_t barriers;
    bool timing, closing;
    int32_t threads, started;
    struct member *member;
    bool pinned;      /* the caller, as thread 0 */
    cpu_set_t before; /* where the caller might run until then */
};

static inline void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void open_turnstile(struct turnstile *turnstile)
{
    atomic_fetch_add_explicit(&turnstile->turn, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&turnstile->sleepers, memory_order_seq_cst) > 0)
        syscall(SYS_futex, &turnstile->turn, FUTEX_WAKE_PRIVATE, 1 << 30, NULL, NULL, 0);
}

/* Returns once turn has moved past `seen`. Reading the clock each 64 pauses keeps the spin's
 * length honest without hammering it. */
static void pass_turnstile(struct turnstile *turnstile, uint32_t seen)
{
    uint64_t started = 0;
    for (uint32_t i = 1;; i++) {
        if (atomic_load_explicit(&turnstile->turn, memory_order_acquire) != seen)
            return;
        pause_cpu();
        if (i % 64 != 0)
            continue;
        uint64_t now = as_clock_ns();
        if (started == 0)
            started = now;
        else if (now - started > SPIN_NS)
            break;
    }
    atomic_fetch_add_explicit(&turnstile->sleepers, 1, memory_order_seq_cst);
    while (atomic_load_explicit(&turnstile->turn, memory_order_seq_cst) == seen)
        syscall(SYS_futex, &turnstile->turn, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub_explicit(&turnstile->sleepers, 1, memory_order_relaxed);
}

static void meet(struct as_team *team)
{
    uint32_t seen = atomic_load_explicit(&team->barrier.turn, memory_order_relaxed);
    uint32_t place = atomic_fetch_add_explicit(&team->arrived, 1, memory_order_acq_rel);
    if (place + 1 == (uint32_t)team->threads) {
        atomic_store_explicit(&team->arrived, 0, memory_order_relaxed);
        open_turnstile(&team->barrier);
    } else {
        pass_turnstile(&team->barrier, seen);
    }
}

void as_team_meet(const struct assay_exec *exec)
{
    struct as_team *team = exec->team;
    if (team->threads == 1)
        return;
    if (!team->timing) {
        meet(team);
        return;
    }
    uint64_t start = as_clock_ns();
    meet(team);
    team->member[exec->thread].wait_ns += as_clock_ns() - start;
}

void as_team_barrier(const struct assay_exec *exec)
{
    struct as_team *team = exec->team;
    if (exec->thread == 0)
        atomic_fetch_add_explicit(&team->barriers, 1, memory_order_relaxed);
    as_team_meet(exec);
}

uint64_t as_team_take_wait(const struct assay_exec *exec)
{
    struct as_team *team = exec->team;
    uint64_t wait = team->member[exec->thread].wait_ns;
    team->member[exec->thread].wait_ns = 0;
    return wait;
}

static void *worker(void *argument)
{
    struct assay_exec *exec = argument;
    struct as_team *team = exec->team;
    for (uint32_t seen = 0;; seen++) {
        pass_turnstile(&team->region, seen);
        if (team->closing)
            return NULL;
        team->work(team->context, exec);
        meet(team);
    }
}

void as_team_run(struct as_team *team, void (*work)(void *context, const struct assay_exec *exec),
                 void *context)
{
    team->work = work;
    team->context = context;
    team->regions++;
    if (team->threads == 1) {
        work(context, &team->member[0].exec);
        return;
    }
    open_turnstile(&team->region);
    work(context, &team->member[0].exec);
    meet(team);
}

static int start_worker(struct as_team *team, int32_t thread, struct as_error *error)
{
    int failed =
        pthread_create(&team->member[thread].handle, NULL, worker, &team->member[thread].exec);
    if (failed != 0) {
        errno = failed;
        return as_fail_errno(error, AS_ERR_IO, "cannot start engine thread %d", (int)thread);
    }
    team->started = thread + 1;
    char name[16];
    snprintf(name, sizeof name, "assay-team-%d", (int)thread % 1000);
    pthread_setname_np(team->member[thread].handle, name);
    return 0;
}

static int pin(pthread_t handle, int32_t cpu, struct as_error *error)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (cpu < 0 || cpu >= CPU_SETSIZE)
        return as_fail(error, AS_ERR_USAGE, "affinity: there can be no CPU %d", (int)cpu);
    CPU_SET(cpu, &set);
    int failed = pthread_setaffinity_np(handle, sizeof set, &set);
    if (failed != 0) {
        errno = failed;
        return as_fail_errno(error, AS_ERR_USAGE, "affinity: cannot pin a thread to CPU %d",
                             (int)cpu);
    }
    return 0;
}

static int pin_all(struct as_team *team, const int32_t *cpus, struct as_error *error)
{
    int code = 0;
    team->pinned = pthread_getaffinity_np(pthread_self(), sizeof team->before, &team->before) == 0;
    for (int32_t i = 0; code == 0 && i < team->threads; i++)
        code = pin(i == 0 ? pthread_self() : team->member[i].handle, cpus[i], error);
    return code;
}

void as_team_unpinned(struct as_team *team, void (*work)(void *context), void *context)
{
    cpu_set_t pinned;
    bool away = team->pinned &&
                pthread_getaffinity_np(pthread_self(), sizeof pinned, &pinned) == 0 &&
                pthread_setaffinity_np(pthread_self(), sizeof team->before, &team->before) == 0;
    work(context);
    if (away)
        pthread_setaffinity_np(pthread_self(), sizeof pinned, &pinned);
}

int as_team_create(struct as_team **team, int32_t threads, const int32_t *cpus,
                   struct as_error *error)
{
    *team = NULL;
    if (threads < 1 || threads > 256)
        return as_fail(error, AS_ERR_USAGE, "threads must be 1 to 256, not %d", (int)threads);
    struct as_team *made = as_calloc_aligned(error, 1, sizeof *made, "the thread team");
    if (made == NULL)
        return AS_ERR_MEMORY;
    made->threads = threads;
    made->started = 1;
    made->member =
        as_calloc_aligned(error, (size_t)threads, sizeof made->member[0], "the thread team");
    int code = made->member == NULL ? AS_ERR_MEMORY : 0;
    for (int32_t i = 0; code == 0 && i < threads; i++)
        made->member[i].exec = (struct assay_exec){
            .thread = i, .threads = threads, .barrier = as_team_barrier, .team = made};
    for (int32_t i = 1; code == 0 && i < threads; i++)
        code = start_worker(made, i, error);
    if (code == 0 && cpus != NULL)
        code = pin_all(made, cpus, error);
    if (code != 0) {
        as_team_free(made);
        return code;
    }
    *team = made;
    return 0;
}

void as_team_free(struct as_team *team)
{
    if (team == NULL)
        return;
    team->closing = true;
    open_turnstile(&team->region);
    for (int32_t i = 1; i < team->started; i++)
        pthread_join(team->member[i].handle, NULL);
    if (team->pinned)
        pthread_setaffinity_np(pthread_self(), sizeof team->before, &team->before);
    free(team->member);
    free(team);
}

int32_t as_team_threads(const struct as_team *team)
{
    return team->threads;
}

void as_team_set_timing(struct as_team *team, bool on)
{
    team->timing = on;
}

void as_team_counts(const struct as_team *team, uint64_t *regions, uint64_t *barriers)
{
    *regions = team->regions;
    *barriers = atomic_load_explicit(&team->barriers, memory_order_relaxed);
}
