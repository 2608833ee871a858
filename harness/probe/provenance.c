#define _GNU_SOURCE
#include "probe/provenance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "as_clock.h"
#include "check/stamps.h"
#include "device/cpu/cpu_device.h"

bool as_provenance_read_line(const char *path, char *line, size_t size)
{
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    char *read = fgets(line, (int)size, file);
    fclose(file);
    if (read == NULL)
        return false;
    line[strcspn(line, "\n")] = '\0';
    return true;
}

void as_provenance_boot(char *boot, size_t size)
{
    if (!as_provenance_read_line("/proc/sys/kernel/random/boot_id", boot, size))
        snprintf(boot, size, "unknown");
}

static void write_line(struct as_spool *spool, const char *key, const char *path)
{
    char line[256];
    if (as_provenance_read_line(path, line, sizeof line))
        as_spool_attribute(spool, key, line);
}

static void write_cpu(struct as_spool *spool)
{
    char line[256];
    as_cpu_name(line, sizeof line);
    as_spool_attribute(spool, "cpu", line);
    uint32_t features = as_cpu_features();
    snprintf(line, sizeof line, "%s%s%s%s", (features & ASSAY_CPU_AVX2) ? "avx2 " : "",
             (features & ASSAY_CPU_AVX512) ? "avx512 " : "",
             (features & ASSAY_CPU_VNNI) ? "vnni " : "", (features & ASSAY_CPU_BF16) ? "bf16" : "");
    as_spool_attribute(spool, "cpu_features", line);
    as_spool_attribute_u64(spool, "cpus", (uint64_t)as_cpu_count());
}

void as_provenance_write(struct as_spool *spool, const char *command_line)
{
    struct utsname kernel;
    char text[320];
    time_t now = time(NULL);
    struct tm utc;
    as_spool_attribute(spool, "producer", "assay");
    as_spool_attribute(spool, "version", as_build_version);
    as_spool_attribute(spool, "git_commit", as_build_commit);
    as_spool_attribute(spool, "build_flags", as_build_flags);
    as_spool_attribute(spool, "build_id", as_build_id());
    as_spool_attribute(spool, "command_line", command_line);
    if (gmtime_r(&now, &utc) != NULL && strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc) > 0)
        as_spool_attribute(spool, "date", text);
    as_spool_attribute_u64(spool, "clock_monotonic_ns", as_clock_ns());
    as_provenance_boot(text, sizeof text);
    as_spool_attribute(spool, "boot_id", text);
    if (uname(&kernel) == 0) {
        snprintf(text, sizeof text, "%s %s %s", kernel.sysname, kernel.release, kernel.machine);
        as_spool_attribute(spool, "os", text);
    }
    write_cpu(spool);
    write_line(spool, "governor", "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    write_line(spool, "load_average", "/proc/loadavg");
}
