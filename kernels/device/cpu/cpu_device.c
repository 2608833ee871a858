#define _GNU_SOURCE
#include "device/cpu/cpu_device.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "as_clock.h"
#include "as_memory.h"
#include "device/cpu/team.h"

struct cpu_device {
    struct assay_device base;
    struct as_team *team;
    char name[96];
};

uint32_t as_cpu_features(void)
{
    uint32_t features = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
        __builtin_cpu_supports("f16c"))
        features |= ASSAY_CPU_AVX2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        features |= ASSAY_CPU_AVX512;
    if (__builtin_cpu_supports("avx512vnni"))
        features |= ASSAY_CPU_VNNI;
    if (__builtin_cpu_supports("avx512bf16"))
        features |= ASSAY_CPU_BF16;
#endif
    return features;
}

int32_t as_cpu_count(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    int32_t count = CPU_COUNT(&set);
    return count < 1 ? 1 : count > 256 ? 256 : count;
}

/* Zeroed, aligned to 64 bytes. calloc hands large blocks out untouched, so a cache sized for the
 * worst case costs memory only where rows are written; its own pointer lies in front. */
static void *cpu_alloc(struct assay_device *device, size_t bytes, struct as_error *error)
{
    (void)device;
    enum { ROOM = 64 + sizeof(void *) };
    char *base = bytes > SIZE_MAX - ROOM ? NULL : calloc(1, bytes + ROOM);
    if (base == NULL) {
        as_fail_memory(error, bytes, "device memory");
        return NULL;
    }
    uintptr_t aligned = as_align_up((uintptr_t)base + sizeof(void *), 64);
    memcpy((char *)aligned - sizeof(void *), &base, sizeof base);
    return (void *)aligned;
}

static void cpu_free(struct assay_device *device, void *memory)
{
    (void)device;
    if (memory == NULL)
        return;
    void *base;
    memcpy(&base, (char *)memory - sizeof(void *), sizeof base);
    free(base);
}

static int cpu_copy(struct assay_device *device, void *to, const void *from, size_t bytes,
                    struct as_error *error)
{
    (void)device;
    (void)error;
    if (bytes > 0)
        memcpy(to, from, bytes);
    return 0;
}

/* Nothing runs behind the caller's back, so an event is always reached. */
static int cpu_event_record(struct assay_device *device, void **event, struct as_error *error)
{
    (void)device;
    (void)error;
    *event = NULL;
    return 0;
}

static int cpu_event_wait(struct assay_device *device, void *event, struct as_error *error)
{
    (void)device;
    (void)event;
    (void)error;
    return 0;
}

struct region {
    const struct assay_step *step;
    const struct assay_launch *launch;
    _Atomic int failed;
};

static void run_launch(void *context, const struct assay_exec *exec)
{
    struct region *region = context;
    const struct assay_launch *launch = region->launch;
    const struct assay_observer *observer = region->step->observer;
    if (observer != NULL)
        observer->begin(observer->context, launch, exec->thread);
    int code = launch->variant->run(launch, exec);
    if (code != 0)
        atomic_store_explicit(&region->failed, code, memory_order_relaxed);
    if (observer != NULL) {
        as_team_meet(exec);
        observer->end(observer->context, launch, exec->thread, as_team_take_wait(exec));
    }
}

static int cpu_submit(struct assay_device *device, struct assay_step *step, struct as_error *error)
{
    struct cpu_device *cpu = (struct cpu_device *)device;
    struct region region = {.step = step};
    as_team_set_timing(cpu->team, step->observer != NULL);
    step->device_start = as_clock_ns();
    for (int32_t i = 0; i < step->launches; i++) {
        region.launch = &step->launch[i];
        as_team_run(cpu->team, run_launch, &region);
        int code = atomic_load_explicit(&region.failed, memory_order_relaxed);
        if (code != 0)
            return as_fail(error, code, "variant %s failed with code %d in layer %d (launch %d)",
                           step->launch[i].variant->name, code, (int)step->launch[i].layer, (int)i);
    }
    step->device_end = as_clock_ns();
    return 0;
}

static int cpu_collect(struct assay_device *device, struct assay_step *step, struct as_error *error)
{
    (void)device;
    (void)step;
    (void)error;
    return 0;
}

static void cpu_close(struct assay_device *device)
{
    struct cpu_device *cpu = (struct cpu_device *)device;
    if (cpu == NULL)
        return;
    as_team_free(cpu->team);
    free(cpu);
}

void as_cpu_name(char *name, size_t size)
{
    snprintf(name, size, "cpu");
    FILE *file = fopen("/proc/cpuinfo", "re");
    if (file == NULL)
        return;
    char line[256];
    while (fgets(line, sizeof line, file) != NULL) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || colon == NULL)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(name, size, "%s", colon + 1 + strspn(colon + 1, " "));
        break;
    }
    fclose(file);
}

int as_cpu_device_open(struct assay_device **device, int32_t threads, const int32_t *cpus,
                       struct as_error *error)
{
    *device = NULL;
    struct cpu_device *cpu = as_calloc(error, 1, sizeof *cpu, "the CPU device");
    if (cpu == NULL)
        return AS_ERR_MEMORY;
    if (threads == 0)
        threads = as_cpu_count();
    int code = as_team_create(&cpu->team, threads, cpus, error);
    if (code != 0) {
        free(cpu);
        return code;
    }
    as_cpu_name(cpu->name, sizeof cpu->name);
    cpu->base = (struct assay_device){.backend = ASSAY_CPU,
                                      .name = cpu->name,
                                      .features = as_cpu_features(),
                                      .threads = threads,
                                      .alloc = cpu_alloc,
                                      .free = cpu_free,
                                      .upload = cpu_copy,
                                      .download = cpu_copy,
                                      .event_record = cpu_event_record,
                                      .event_wait = cpu_event_wait,
                                      .submit = cpu_submit,
                                      .collect = cpu_collect,
                                      .close = cpu_close};
    *device = &cpu->base;
    return 0;
}

struct as_team *as_cpu_device_team(struct assay_device *device)
{
    return ((struct cpu_device *)device)->team;
}
