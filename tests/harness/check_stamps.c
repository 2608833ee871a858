/* What was checked once is not checked again; what failed or changed is. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check/stamps.h"
#include "device/cpu/cpu_device.h"

#include "../variants/rms_norm_skips_row.c"
#include "../variants/silu_mul_misaligned.c"

static struct assay_device *device;
static struct as_registry *registry;
static char folder[] = "/tmp/assay-check-XXXXXX";

static void open_all(void)
{
    struct as_error error = {0};
    cr_assert_eq(as_cpu_device_open(&device, 2, NULL, &error), 0, "%s", error.message);
    cr_assert_eq(as_registry_create(&registry, &error), 0, "%s", error.message);
    cr_assert_not_null(mkdtemp(folder));
    setenv("XDG_CACHE_HOME", folder, 1);
}

static void close_all(void)
{
    char command[200];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_assert_eq(system(command), 0);
    as_registry_free(registry);
    device->close(device);
}

TestSuite(check_stamps, .init = open_all, .fini = close_all, .timeout = 200);

struct needs {
    struct as_check_need *list;
    size_t count;
};

static struct as_check_need pool[1024]; /* each test is a process of its own */

static void need(struct needs *needs, const char *name, struct assay_shape shape)
{
    struct as_error error = {0};
    char why[200];
    const struct assay_variant *variant = as_registry_find(registry, name, &error);
    if (variant == NULL)
        return;
    struct assay_problem problem;
    memset(&problem, 0, sizeof problem);
    problem.nodes = 1;
    problem.node[0] = shape;
    if (variant->cover != NULL) {
        problem.cover = variant->cover;
        problem.nodes = 2;
        problem.node[1] = shape;
        problem.node[1].op = ASSAY_RMS_NORM;
        problem.node[1].weights = ASSAY_F32;
    }
    if (!as_variant_supports(variant, device, &problem, why, sizeof why))
        return;
    cr_assert(needs->count < sizeof pool / sizeof pool[0]);
    needs->list = pool;
    needs->list[needs->count++] = (struct as_check_need){.variant = variant, .problem = problem};
}

static struct assay_shape shape_of(enum assay_op op, int64_t tokens, int64_t n)
{
    return (struct assay_shape){.op = op,
                                .tokens = tokens,
                                .n = n,
                                .weights = ASSAY_NONE,
                                .activations = ASSAY_F32,
                                .kv = ASSAY_NONE,
                                .epsilon = 1e-5f};
}

static struct assay_shape heads_of(enum assay_op op, int64_t tokens, int32_t heads)
{
    struct assay_shape shape = shape_of(op, tokens, heads * 64);
    shape.heads = heads;
    shape.kv_heads = 3;
    shape.head_dim = shape.rotary = 64;
    shape.block_size = 16;
    shape.theta = 1e5f;
    shape.scale = 0.125f;
    shape.causal = true;
    if (op != ASSAY_ROPE)
        shape.kv = ASSAY_F32;
    return shape;
}

static void need_linear(struct needs *needs, const char *suffix, enum assay_dtype class,
                        int64_t tokens)
{
    static const struct {
        int64_t n, k;
        enum assay_dtype weights;
    } matrices[] = {{576, 576, ASSAY_Q4_1},
                    {192, 576, ASSAY_Q4_1},
                    {1536, 576, ASSAY_Q4_1},
                    {576, 1536, ASSAY_Q4_1},
                    {49152, 576, ASSAY_Q8_0}};
    char name[64];
    snprintf(name, sizeof name, "linear/%s", suffix);
    for (size_t i = 0; i < sizeof matrices / sizeof matrices[0]; i++) {
        struct assay_shape shape = shape_of(ASSAY_LINEAR, tokens, matrices[i].n);
        shape.k = matrices[i].k;
        shape.weights = matrices[i].weights;
        shape.activations = class;
        need(needs, name, shape);
    }
}

/* Sanitizers make everything twenty times slower. */
#ifdef __SANITIZE_ADDRESS__
enum { LARGEST_STEP = 32 };
#else
enum { LARGEST_STEP = 512 };
#endif

/* The classes of SmolLM2-135M under strategy naive or fast, steps from one token up. */
static void need_smollm2(struct needs *needs, bool fast)
{
    static const char *const names[][2] = {
        {"rms_norm/cpu_naive", "rms_norm/cpu_avx2"}, {"add/cpu_naive", "add_rms_norm/cpu_avx2"},
        {"silu_mul/cpu_naive", "silu_mul/cpu_avx2"}, {"rope/cpu_naive", "rope/cpu_avx2"},
        {"argmax/cpu_naive", "argmax/cpu_avx2"},     {"attention/cpu_naive", "attention/cpu_avx2"}};
    for (int64_t tokens = 1; tokens <= LARGEST_STEP; tokens *= 2) {
        struct assay_shape norm = shape_of(ASSAY_RMS_NORM, tokens, 576);
        norm.weights = ASSAY_F32;
        need(needs, names[0][fast], norm);
        need(needs, names[1][fast], shape_of(ASSAY_ADD, tokens, 576));
        need(needs, names[2][fast], shape_of(ASSAY_SILU_MUL, tokens, 1536));
        need(needs, names[3][fast], heads_of(ASSAY_ROPE, tokens, 9));
        need(needs, names[3][fast], heads_of(ASSAY_ROPE, tokens, 3));
        need(needs, "kv_write/cpu_naive", heads_of(ASSAY_KV_WRITE, tokens, 3));
        need(needs, "select_rows/cpu_naive", shape_of(ASSAY_SELECT_ROWS, tokens, 576));
        struct assay_shape table = shape_of(ASSAY_EMBEDDING, tokens, 576);
        table.weights = ASSAY_Q8_0;
        need(needs, "embedding/cpu_naive", table);
        need(needs, names[4][fast], shape_of(ASSAY_ARGMAX, tokens, 49152));
        for (int64_t context = 1; context <= 2048; context *= 2) {
            struct assay_shape attention = heads_of(ASSAY_ATTENTION, tokens, 9);
            attention.context = context;
            if (context >= 16 && context >= tokens / 16)
                need(needs, names[5][fast], attention);
        }
        need_linear(needs, fast ? "cpu_avx2_q8_packed" : "cpu_naive", fast ? ASSAY_Q8 : ASSAY_F32,
                    tokens);
    }
}

static struct as_check_summary check(const struct needs *needs)
{
    struct as_check_summary summary;
    struct as_error error = {0};
    int code = as_check_needed(device, needs->list, needs->count, NULL, NULL, &summary, &error);
    cr_assert_eq(code, 0, "%s", error.message);
    return summary;
}

Test(check_stamps, smollm2_is_checked_once)
{
    struct needs needs = {0};
    need_smollm2(&needs, false);
    size_t naive = needs.count;
    need_smollm2(&needs, true);
    struct as_check_summary summary = check(&needs);
    printf("%zu naive and %zu other needs, %zu classes: %.2f s\n", naive, needs.count - naive,
           summary.needed, summary.seconds);
    cr_assert_eq(summary.failed, 0, "%s", summary.reason);
    cr_assert_eq(summary.passed, summary.needed);
    cr_assert_eq(summary.stamped, 0);
    cr_assert(summary.needed > 100 && summary.needed <= needs.count);
    struct as_check_summary again = check(&needs);
    printf("again, all stamped: %.4f s\n", again.seconds);
    cr_assert_eq(again.stamped, summary.needed);
    cr_assert_eq(again.passed, summary.needed);
}

static struct needs one_need(const char *variant)
{
    struct needs needs = {0};
    struct assay_shape norm = shape_of(ASSAY_RMS_NORM, 5, 33);
    norm.weights = ASSAY_F32;
    need(&needs, variant, norm);
    cr_assert_eq(needs.count, 1);
    return needs;
}

Test(check_stamps, sizes_of_one_class_are_one_need)
{
    struct needs needs = one_need("rms_norm/cpu_naive");
    struct assay_shape norm = shape_of(ASSAY_RMS_NORM, 8, 33);
    norm.weights = ASSAY_F32;
    need(&needs, "rms_norm/cpu_naive", norm);
    norm.tokens = 9;
    need(&needs, "rms_norm/cpu_naive", norm);
    norm.epsilon = 1e-6f;
    need(&needs, "rms_norm/cpu_naive", norm);
    cr_assert_eq(check(&needs).needed, 3);
}

Test(check_stamps, another_team_is_another_machine)
{
    struct needs needs = one_need("rms_norm/cpu_naive");
    cr_assert_eq(check(&needs).stamped, 0);
    cr_assert_eq(check(&needs).stamped, 1);
    device->threads = 1;
    cr_assert_eq(check(&needs).stamped, 0);
    device->threads = 2;
    device->features ^= ASSAY_CPU_BF16;
    cr_assert_eq(check(&needs).stamped, 0);
}

/* The one file of stamps, its path and its text. */
static void find_file(char *path, size_t size, char *text, size_t text_size)
{
    char command[300];
    snprintf(command, sizeof command, "ls '%s'/assay/checks/*.txt", folder);
    FILE *list = popen(command, "r");
    cr_assert_not_null(list);
    cr_assert_not_null(fgets(path, (int)size, list));
    pclose(list);
    path[strcspn(path, "\n")] = '\0';
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file);
    text[fread(text, 1, text_size - 1, file)] = '\0';
    fclose(file);
}

static void rewrite(const char *path, const char *text, size_t size)
{
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    cr_assert_eq(fwrite(text, 1, size, file), size);
    fclose(file);
}

Test(check_stamps, a_damaged_file_counts_for_nothing)
{
    struct needs needs = one_need("rms_norm/cpu_naive");
    char path[400], text[4096];
    check(&needs);
    find_file(path, sizeof path, text, sizeof text);
    cr_assert_not_null(strstr(text, " rms_norm/cpu_naive | "), "%s", text);
    size_t size = strlen(text);
    rewrite(path, text, size - 1); /* cut short */
    cr_assert_eq(check(&needs).stamped, 0);
    rewrite(path, "\0\0\0\0", 4);
    cr_assert_eq(check(&needs).stamped, 0);
    rewrite(path, "", 0);
    cr_assert_eq(check(&needs).stamped, 0);
    text[size - 2] = '\0';
    rewrite(path, text, size);
    cr_assert_eq(check(&needs).stamped, 0);
    cr_assert_eq(check(&needs).stamped, 1, "and was written anew");
}

Test(check_stamps, files_of_old_builds_go)
{
    struct needs needs = one_need("rms_norm/cpu_naive");
    char path[400];
    const struct timespec long_ago[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    snprintf(path, sizeof path, "%s/assay", folder);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/assay/checks", folder);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/assay/checks/old.txt", folder);
    rewrite(path, "x", 1);
    utimensat(AT_FDCWD, path, long_ago, 0);
    check(&needs);
    cr_assert_neq(access(path, F_OK), 0);
    rewrite(path, "x", 1);
    check(&needs);
    cr_assert_eq(access(path, F_OK), 0, "a young one stays");
}

Test(check_stamps, works_without_a_cache_folder)
{
    struct needs needs = one_need("rms_norm/cpu_naive");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    cr_assert_eq(check(&needs).passed, 1);
    cr_assert_eq(check(&needs).stamped, 0);
    setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
    cr_assert_eq(check(&needs).passed, 1);
    setenv("XDG_CACHE_HOME", folder, 1);
}

/* A failure is reported every time, by its reason, and stops neither the others nor their stamps;
 * the death of a process ends one check alone. */
Test(check_stamps, failures_are_not_stamped)
{
    struct needs needs = one_need("rms_norm/cpu_naive");
    struct assay_problem problem = needs.list[0].problem;
    const struct assay_variant *variants[] = {
        &assay_wrong_rms_norm_skips_row, needs.list[0].variant, &assay_wrong_silu_mul_misaligned};
    struct as_check_need list[3];
    for (int i = 0; i < 3; i++)
        list[i] = (struct as_check_need){.variant = variants[i], .problem = problem};
    list[2].problem.node[0].op = ASSAY_SILU_MUL;
    list[2].problem.node[0].weights = ASSAY_NONE;
    needs = (struct needs){.list = list, .count = 3};
    for (int round = 0; round < 2; round++) {
        struct as_check_summary summary = check(&needs);
        cr_assert_eq(summary.needed, 3);
        cr_assert_eq(summary.failed, 2);
        cr_assert_eq(summary.passed, 1);
        cr_assert_eq(summary.stamped, (size_t)round);
        cr_assert_not_null(strstr(summary.reason, "wrong/rms_norm_skips_row"), "%s",
                           summary.reason);
        cr_assert_not_null(strstr(summary.reason, "did not write y["), "%s", summary.reason);
    }
}

Test(check_stamps, the_build_id_is_of_the_file)
{
    char own[80], libc[80];
    as_build_id_of(registry, own, sizeof own); /* on the heap: of no file */
    cr_assert_str_eq(own, "unknown");
    as_build_id_of(as_builtin_variants[0], own, sizeof own);
    as_build_id_of((const void *)(uintptr_t)&printf, libc, sizeof libc);
    cr_assert_str_eq(own, as_build_id());
    cr_assert(strlen(own) >= 16 && strcmp(own, libc) != 0, "%s %s", own, libc);
}
