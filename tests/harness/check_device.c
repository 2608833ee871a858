/* The checker reaches memory through the device alone: on one whose memory the host must not
 * touch, right variants pass and wrong ones are caught. */
#define _GNU_SOURCE
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "check/check.h"
#include "device/cpu/cpu_device.h"

#include "../variants/add_past_end.c"
#include "../variants/attention_dead_rows.c"

/* Device memory has no access rights except inside the device's own calls. */
struct block {
    void *at;
    size_t bytes;
};

static struct block blocks[256];

static void open_memory(bool open)
{
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        if (blocks[i].at != NULL)
            mprotect(blocks[i].at, blocks[i].bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

static void *far_alloc(struct assay_device *device, size_t bytes, struct as_error *error)
{
    (void)device;
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        if (blocks[i].at != NULL)
            continue;
        blocks[i].bytes = (bytes + 4096) / 4096 * 4096;
        void *at = mmap(NULL, blocks[i].bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return at == MAP_FAILED ? NULL : (blocks[i].at = at);
    }
    as_fail_memory(error, bytes, "a far block");
    return NULL;
}

static void far_free(struct assay_device *device, void *memory)
{
    (void)device;
    for (size_t i = 0; memory != NULL && i < sizeof blocks / sizeof blocks[0]; i++)
        if (blocks[i].at == memory) {
            munmap(memory, blocks[i].bytes);
            blocks[i] = (struct block){0};
        }
}

static int far_copy(struct assay_device *device, void *to, const void *from, size_t bytes,
                    struct as_error *error)
{
    (void)device;
    (void)error;
    open_memory(true);
    memcpy(to, from, bytes);
    open_memory(false);
    return 0;
}

static void no_barrier(const struct assay_exec *exec)
{
    (void)exec;
}

static int far_submit(struct assay_device *device, struct assay_step *step, struct as_error *error)
{
    const struct assay_exec exec = {.threads = 1, .barrier = no_barrier};
    int code = 0;
    (void)device;
    open_memory(true);
    for (int32_t i = 0; code == 0 && i < step->launches; i++)
        code = step->launch[i].variant->run(&step->launch[i], &exec);
    open_memory(false);
    return code == 0 ? 0 : as_fail(error, code, "a launch failed");
}

static int far_collect(struct assay_device *device, struct assay_step *step, struct as_error *error)
{
    (void)device;
    (void)step;
    (void)error;
    return 0;
}

static struct assay_device far_device = {.backend = ASSAY_CUDA,
                                         .name = "far",
                                         .threads = 1,
                                         .alloc = far_alloc,
                                         .free = far_free,
                                         .upload = far_copy,
                                         .download = far_copy,
                                         .submit = far_submit,
                                         .collect = far_collect};

static struct as_registry *registry;

static void open_registry(void)
{
    struct as_error error = {0};
    far_device.features = as_cpu_features();
    cr_assert_eq(as_registry_create(&registry, &error), 0, "%s", error.message);
}

static void close_registry(void)
{
    as_registry_free(registry);
}

TestSuite(check_device, .init = open_registry, .fini = close_registry, .timeout = 240);

static struct as_check_result check_far(const struct assay_variant *near)
{
    struct assay_variant far = *near;
    struct as_check_result result;
    struct as_error error = {0};
    far.backend = ASSAY_CUDA;
    cr_assert_eq(as_check_suite(registry, &far, &far_device, &result, &error), 0, "%s: %s",
                 far.name, error.message);
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++)
        cr_assert_null(blocks[i].at, "%s: device memory was not freed", far.name);
    return result;
}

static void passes_far(const char *name)
{
    struct as_error error = {0};
    const struct assay_variant *variant = as_registry_find(registry, name, &error);
    cr_assert_not_null(variant, "%s", error.message);
    struct as_check_result result = check_far(variant);
    cr_assert(result.passed && result.runs > 0, "%s", result.reason);
}

Test(check_device, right_variants_pass)
{
    passes_far("rms_norm/cpu_naive");
    passes_far("kv_write/cpu_naive");
    passes_far("attention/cpu_naive");
    passes_far("linear/cpu_naive_q8");
    passes_far("argmax/cpu_naive");
}

Test(check_device, wrong_variants_are_caught)
{
    struct as_check_result result = check_far(&assay_wrong_add_past_end);
    cr_assert_not_null(strstr(result.reason, "past the end of y"), "%s", result.reason);
    result = check_far(&assay_wrong_attention_dead_rows);
    cr_assert_not_null(strstr(result.reason, "something dead"), "%s", result.reason);
}
