/* The machine itself: CPU, caches, memory, clocks, counters, and who else is using it. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "cli/doctor.h"
#include "device/cpu/cpu_device.h"
#include "probe/provenance.h"

/* Long enough to see a neighbour at work, short enough to wait for. */
#define WATCH_NS 200000000

/* ---- CPU ---------------------------------------------------------------------------------- */

static const struct {
    uint32_t bit;
    const char *name;
} features[] = {{ASSAY_CPU_AVX2, "AVX2 with FMA and F16C"},
                {ASSAY_CPU_AVX512, "AVX-512 (F, BW, DQ, VL)"},
                {ASSAY_CPU_VNNI, "AVX-512 VNNI"},
                {ASSAY_CPU_BF16, "AVX-512 BF16"}};

#define FEATURES (sizeof features / sizeof features[0])

/* Names of the features that are there, or of those that are not. */
static void list_features(uint32_t has, bool present, char *words, size_t size)
{
    words[0] = '\0';
    for (size_t i = 0; i < FEATURES; i++) {
        size_t length = strlen(words);
        if (((has & features[i].bit) != 0) == present)
            snprintf(words + length, size - length, "%s%s", length > 0 ? ", " : "",
                     features[i].name);
    }
}

/* The value of the first line of /proc/cpuinfo that begins with `key`. */
static bool cpuinfo(const char *key, char *value, size_t size)
{
    char line[4096];
    bool found = false;
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file != NULL && !found && fgets(line, sizeof line, file) != NULL) {
        char *colon = strchr(line, ':');
        if (colon == NULL || strncmp(line, key, strlen(key)) != 0)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(value, size, "%s", colon[1] == ' ' ? colon + 2 : colon + 1);
        found = true;
    }
    if (file != NULL)
        fclose(file);
    return found;
}

static void look_at_cpu(struct as_findings *all)
{
    char words[256], flags[4096] = "";
    if (!cpuinfo("model name", words, sizeof words))
        snprintf(words, sizeof words, "a CPU that does not say its name");
    cpuinfo("flags", flags, sizeof flags);
    bool guest = strstr(flags, " hypervisor") != NULL;
    as_finding_add(all, "cpu", "model", AS_FOUND, "%s%s", words,
                   guest ? ", seen from inside a virtual machine" : "");
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    int32_t usable = as_cpu_count();
    struct as_finding *finding =
        as_finding_add(all, "cpu", "cpus", AS_FOUND, "%ld online, %d of them for this process",
                       online, (int)usable);
    char quota[64];
    if (as_provenance_read_line("/sys/fs/cgroup/cpu.max", quota, sizeof quota) &&
        strncmp(quota, "max", 3) != 0) {
        double limit = strtod(quota, NULL);
        const char *space = strchr(quota, ' ');
        double period = space != NULL ? strtod(space, NULL) : 0;
        if (limit > 0 && period > 0) {
            finding->state = AS_DISTURBS;
            snprintf(finding->text, sizeof finding->text,
                     "%ld online, %d for this process, and a limit of %.2f CPUs' time on its group",
                     online, (int)usable, limit / period);
            snprintf(finding->advice, sizeof finding->advice,
                     "a step that meets the limit is stopped in the middle: measure outside of it");
        }
    }
    uint32_t has = as_cpu_features();
    list_features(has, true, words, sizeof words);
    if (words[0] != '\0')
        as_finding_add(all, "cpu", "instructions", AS_FOUND, "%s", words);
    list_features(has, false, words, sizeof words);
    if (words[0] != '\0')
        snprintf(as_finding_add(all, "cpu", "instructions", AS_MISSING, "%s", words)->advice, 240,
                 "`assay kernels` says which variants need them");
}

static void look_at_caches(struct as_findings *all)
{
    char words[256] = "";
    for (int i = 0; i < 8; i++) {
        char path[128], level[16], type[32], size[32], shared[64];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/level", i);
        if (!as_provenance_read_line(path, level, sizeof level))
            break;
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/type", i);
        bool known = as_provenance_read_line(path, type, sizeof type);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        known &= as_provenance_read_line(path, size, sizeof size);
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/shared_cpu_list",
                 i);
        known &= as_provenance_read_line(path, shared, sizeof shared);
        size_t length = strlen(words);
        if (known && strcmp(type, "Instruction") != 0)
            snprintf(words + length, sizeof words - length, "%sL%s %s (CPUs %s)",
                     length > 0 ? ", " : "", level, size, shared);
    }
    if (words[0] != '\0')
        as_finding_add(all, "cpu", "caches", AS_FOUND, "%s", words);
    else
        as_finding_add(all, "cpu", "caches", AS_MISSING, "sizes are not exposed");
}

/* ---- memory ------------------------------------------------------------------------------- */

/* A line of /proc/meminfo, in kB; -1 where there is none. */
static int64_t meminfo(const char *key)
{
    char line[128];
    int64_t value = -1;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file != NULL && value < 0 && fgets(line, sizeof line, file) != NULL) {
        size_t length = strlen(key);
        if (strncmp(line, key, length) == 0 && line[length] == ':')
            value = strtoll(line + length + 1, NULL, 10);
    }
    if (file != NULL)
        fclose(file);
    return value;
}

static void look_at_memory(struct as_findings *all)
{
    int64_t total = meminfo("MemTotal"), available = meminfo("MemAvailable");
    char limit[64];
    struct as_finding *finding = as_finding_add(
        all, "memory", "ram", total < 0 ? AS_MISSING : AS_FOUND,
        "%.1f GiB, %.1f GiB of it available", (double)total / 0x1p20, (double)available / 0x1p20);
    if (total < 0)
        snprintf(finding->text, sizeof finding->text, "/proc/meminfo cannot be read");
    if (as_provenance_read_line("/sys/fs/cgroup/memory.max", limit, sizeof limit) &&
        isdigit((unsigned char)limit[0]))
        as_finding_add(all, "memory", "limit", AS_FOUND, "%.1f GiB for this process's group",
                       strtod(limit, NULL) / 0x1p30);
    int64_t used = meminfo("SwapTotal") - meminfo("SwapFree");
    if (used > 1024) /* kB */
        snprintf(as_finding_add(all, "memory", "swap", AS_DISTURBS, "%.0f MiB are swapped out",
                                (double)used / 1024)
                     ->advice,
                 240, "a page fault to disk costs more than a step: free memory before measuring");
    char modes[96] = "", mode[32] = "unknown";
    as_provenance_read_line("/sys/kernel/mm/transparent_hugepage/enabled", modes, sizeof modes);
    const char *open = strchr(modes, '[');
    if (open != NULL)
        snprintf(mode, sizeof mode, "%.*s", (int)strcspn(open + 1, "]"), open + 1);
    int64_t reserved = meminfo("HugePages_Total");
    finding = as_finding_add(all, "memory", "huge pages",
                             strcmp(mode, "never") == 0 && reserved <= 0 ? AS_MISSING : AS_FOUND,
                             "transparent ones: %s; reserved ones: %" PRId64 " of %" PRId64 " KiB",
                             mode, reserved < 0 ? 0 : reserved, meminfo("Hugepagesize"));
    if (finding->state == AS_MISSING)
        snprintf(finding->advice, sizeof finding->advice,
                 "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled, as root");
}

/* ---- clocks and counters ------------------------------------------------------------------ */

static void look_at_clocks(struct as_findings *all)
{
    char governor[64], low[32] = "?", high[32] = "?", source[64] = "unknown";
    as_provenance_read_line("/sys/devices/system/clocksource/clocksource0/current_clocksource",
                            source, sizeof source);
    struct timespec step = {0};
    clock_getres(CLOCK_MONOTONIC, &step);
    struct as_finding *finding = as_finding_add(all, "clock", "source", AS_FOUND,
                                                "%s, resolution %ld ns", source, step.tv_nsec);
    if (strcmp(source, "tsc") != 0 && strcmp(source, "kvm-clock") != 0) {
        finding->state = AS_DISTURBS;
        snprintf(finding->advice, sizeof finding->advice,
                 "reading it may take a microsecond; tsc and kvm-clock take some 20 ns");
    }
    if (!as_provenance_read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", governor,
                                 sizeof governor)) {
        as_finding_add(all, "clock", "frequency", AS_MISSING,
                       "neither governor nor frequency is exposed (usual in virtual machines): "
                       "changes of the clock cannot be seen from here");
        return;
    }
    as_provenance_read_line("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_min_freq", low,
                            sizeof low);
    as_provenance_read_line("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq", high,
                            sizeof high);
    finding = as_finding_add(all, "clock", "frequency", AS_FOUND, "governor %s, %.2f to %.2f GHz",
                             governor, strtod(low, NULL) * 1e-6, strtod(high, NULL) * 1e-6);
    if (strcmp(governor, "performance") != 0) {
        finding->state = AS_DISTURBS;
        snprintf(finding->advice, sizeof finding->advice,
                 "cpupower frequency-set -g performance, as root, steadies the clock");
    }
}

static const char *why_no_counters(int error)
{
    switch (error) {
    case EACCES:
    case EPERM: return "not allowed: see /proc/sys/kernel/perf_event_paranoid";
    case ENOENT:
    case EOPNOTSUPP:
    case ENODEV: return "the hardware or the virtual machine has no such counter";
    case ENOSYS: return "the kernel or a sandbox does not offer the call";
    default: return strerror(error);
    }
}

/* Opens a counter of this thread in user mode and lets it count a little. */
static bool try_counter(uint32_t type, uint64_t config, char *words, size_t size)
{
    struct perf_event_attr attributes = {.type = type,
                                         .size = sizeof attributes,
                                         .config = config,
                                         .disabled = 1,
                                         .exclude_kernel = 1,
                                         .exclude_hv = 1};
    uint64_t count = 0;
    int fd = (int)syscall(SYS_perf_event_open, &attributes, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
    if (fd < 0) {
        snprintf(words, size, "%s", why_no_counters(errno));
        return false;
    }
    ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
    for (volatile int i = 0; i < 100000; i++)
        continue;
    ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
    bool counted = read(fd, &count, sizeof count) == sizeof count && count > 0;
    close(fd);
    if (!counted)
        snprintf(words, size, "it opens but does not count (a virtual machine without a PMU?)");
    return counted;
}

static void look_at_counters(struct as_findings *all)
{
    static const struct {
        const char *name;
        uint32_t type;
        uint64_t config;
    } counters[] = {{"cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES},
                    {"instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS},
                    {"cache misses", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES}};
    char paranoid[16] = "unknown", why[160] = "", present[96] = "", absent[96] = "";
    as_provenance_read_line("/proc/sys/kernel/perf_event_paranoid", paranoid, sizeof paranoid);
    for (size_t i = 0; i < sizeof counters / sizeof counters[0]; i++) {
        bool counts = try_counter(counters[i].type, counters[i].config, why, sizeof why);
        char *list = counts ? present : absent;
        size_t length = strlen(list);
        snprintf(list + length, 96 - length, "%s%s", length > 0 ? ", " : "", counters[i].name);
    }
    if (present[0] != '\0')
        as_finding_add(all, "counters", "perf_event", AS_FOUND, "%s (paranoid level %s)", present,
                       paranoid);
    if (absent[0] == '\0')
        return;
    struct as_finding *finding =
        as_finding_add(all, "counters", "perf_event", AS_MISSING, "no %s: %s (paranoid level %s)",
                       absent, why, paranoid);
    if (strncmp(why, "not allowed", 11) == 0)
        snprintf(finding->advice, sizeof finding->advice,
                 "sysctl kernel.perf_event_paranoid=2, as root; in a container also CAP_PERFMON");
}

/* ---- others ------------------------------------------------------------------------------- */

/* User, nice, system, idle, iowait, irq, softirq, steal of all CPUs, in ticks. */
static bool read_ticks(uint64_t ticks[8])
{
    char line[512];
    if (!as_provenance_read_line("/proc/stat", line, sizeof line))
        return false;
    char *at = line + strcspn(line, " ");
    for (int i = 0; i < 8; i++)
        ticks[i] = strtoull(at, &at, 10);
    return true;
}

static void look_at_load(struct as_findings *all)
{
    uint64_t before[8], after[8], total = 0;
    double load[3] = {0};
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    if (getloadavg(load, 3) == 3) {
        bool busy = load[0] > 0.3 * (double)cpus;
        struct as_finding *finding =
            as_finding_add(all, "load", "load average", busy ? AS_DISTURBS : AS_FOUND,
                           "%.2f, %.2f, %.2f over 1, 5 and 15 minutes on %ld CPUs", load[0],
                           load[1], load[2], cpus);
        if (busy)
            snprintf(finding->advice, sizeof finding->advice,
                     "others compute here: stop them, or let the controls of `gate` judge");
    }
    if (!read_ticks(before))
        return;
    nanosleep(&(struct timespec){.tv_nsec = WATCH_NS}, NULL);
    read_ticks(after);
    for (int i = 0; i < 8; i++)
        total += after[i] - before[i];
    if (total == 0)
        return;
    double busy = 1 - (double)(after[3] - before[3] + after[4] - before[4]) / (double)total;
    double stolen = (double)(after[7] - before[7]) / (double)total;
    as_finding_add(all, "load", "right now", busy > 0.2 ? AS_DISTURBS : AS_FOUND,
                   "%.0f %% of all CPU time was in use over the last %d ms", 100 * busy,
                   WATCH_NS / 1000000);
    struct as_finding *finding =
        as_finding_add(all, "load", "steal", stolen > 0.005 ? AS_DISTURBS : AS_FOUND,
                       "%.1f %% of CPU time went to other virtual machines", 100 * stolen);
    if (finding->state == AS_DISTURBS)
        snprintf(finding->advice, sizeof finding->advice,
                 "nothing here can stop that: repeat at another time");
}

void as_doctor_machine(struct as_findings *all)
{
    look_at_cpu(all);
    look_at_caches(all);
    look_at_memory(all);
    look_at_clocks(all);
    look_at_counters(all);
    look_at_load(all);
}
