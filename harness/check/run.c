/* One run of a setup, and what must not have changed after it. */
#include <stdatomic.h>
#include <time.h>

#include "check/setup.h"
#include "device/cpu/team.h"

/* Long against the work between two barriers of a small problem, short against patience. */
#define LATE_NS 120000

struct entry {
    const struct assay_launch *launch;
    int32_t late;
    _Atomic int failed;
};

/* One thread of the team, as the variant sees it: exec.team leads back here. */
struct member {
    struct assay_exec exec;
    const struct assay_exec *real;
    int32_t late;
};

static void be_late(const struct member *member)
{
    if (member->real->threads > 1 && member->real->thread == member->late)
        nanosleep(&(struct timespec){.tv_nsec = LATE_NS}, NULL);
}

static void barrier(const struct assay_exec *exec)
{
    const struct member *member = exec->team;
    as_team_barrier(member->real);
    be_late(member);
}

static void enter(void *context, const struct assay_exec *real)
{
    struct entry *entry = context;
    struct member member = {.exec = *real, .real = real, .late = entry->late};
    member.exec.barrier = barrier;
    member.exec.team = &member;
    be_late(&member);
    int code = entry->launch->variant->run(entry->launch, &member.exec);
    if (code != 0)
        atomic_store(&entry->failed, code);
}

static int submit(struct as_setup *setup, struct as_complaint *complaint, struct as_error *error)
{
    struct assay_device *device = setup->device;
    struct assay_step step = {.launch = &setup->launch, .launches = 1};
    struct as_error failed = {0};
    if (device->submit(device, &step, &failed) == 0 && device->collect(device, &step, &failed) == 0)
        return 0;
    if (failed.code != AS_ERR_WRONG && failed.code != AS_ERR_INTERNAL)
        return as_fail(error, failed.code, "%s", failed.message);
    as_complain(complaint, "%s", failed.message);
    return 0;
}

/* Calls `visit` on all the memory of a setup until it returns non-zero. */
static int each_block(const struct as_setup *setup,
                      int (*visit)(struct as_guarded *, void *context), void *context)
{
    struct as_setup *all = (struct as_setup *)(uintptr_t)setup; /* visitors know what they may */
    struct as_guarded *rest[] = {&all->k, &all->v, &all->plan, &all->scratch};
    int code = 0;
    for (int i = 0; code == 0 && i < ASSAY_MAX_OPERANDS; i++)
        code = all->operand[i].block != NULL ? visit(&all->operand[i], context) : 0;
    for (int i = 0; code == 0 && i < AS_SETUP_METADATA; i++)
        code = all->array[i].block != NULL ? visit(&all->array[i], context) : 0;
    for (int i = 0; code == 0 && i < 4; i++)
        code = rest[i]->block != NULL ? visit(rest[i], context) : 0;
    return code;
}

struct refilling {
    const struct as_setup *setup;
    struct as_error *error;
};

/* Outputs, scratch and written caches start as they were; a plan keeps its contents. */
static int refill(struct as_guarded *memory, void *context)
{
    const struct refilling *refilling = context;
    bool again = memory->written && memory != &refilling->setup->plan;
    return again ? as_guarded_fill(memory, refilling->error) : 0;
}

static int fetch(struct as_guarded *memory, void *error)
{
    return as_guarded_fetch(memory, error);
}

int as_setup_run(struct as_setup *setup, struct as_team *team, int32_t late,
                 struct as_complaint *complaint, struct as_error *error)
{
    struct refilling refilling = {.setup = setup, .error = error};
    int code = each_block(setup, refill, &refilling);
    if (code != 0)
        return code;
    if (team == NULL) {
        code = submit(setup, complaint, error);
    } else {
        struct entry entry = {.launch = &setup->launch, .late = late};
        as_team_run(team, enter, &entry);
        int failed = atomic_load(&entry.failed);
        if (failed != 0)
            as_complain(complaint, "run returned %d", failed);
    }
    return code != 0 ? code : each_block(setup, fetch, error);
}

static int intact(struct as_guarded *memory, void *context)
{
    struct as_complaint *complaint = context;
    return as_guarded_intact(memory, complaint->words, sizeof complaint->words) ? 0 : 1;
}

void as_setup_intact(const struct as_setup *setup, struct as_complaint *complaint)
{
    if (complaint->words[0] == '\0')
        each_block(setup, intact, complaint);
}

const void *as_setup_output(const struct as_setup *setup, int32_t operand, int64_t row)
{
    bool shared = setup->operand[operand].block == NULL; /* in place */
    return as_guarded_row(&setup->operand[shared ? 0 : operand], (size_t)row);
}
