/* The CPU as a device: memory is malloc's, upload is memcpy, a step completes inside submit. */
#ifndef AS_CPU_DEVICE_H
#define AS_CPU_DEVICE_H

#include "kernel.h"

/* A device of `threads` threads (0 = one for each CPU that this process may use), thread i pinned
 * to cpus[i] when `cpus` is not NULL. Close with device->close(device). */
int as_cpu_device_open(struct assay_device **device, int32_t threads, const int32_t *cpus,
                       struct as_error *error);

struct as_team;
struct as_team *as_cpu_device_team(struct assay_device *device);

/* CPUs that this process may run on. */
int32_t as_cpu_count(void);

/* enum assay_cpu_feature bits of this machine. */
uint32_t as_cpu_features(void);

/* "model name" of /proc/cpuinfo, or "cpu" where there is none. */
void as_cpu_name(char *name, size_t size);

#endif
