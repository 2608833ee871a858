/* Truth of covers is the composition of what they cover, and caches come in every dtype: variants
 * that are right by construction, in double, pass; with one thing wrong they do not. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "check/check.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/rows.h"

static struct assay_device *device;
static struct as_registry *registry;

static void open_all(void)
{
    struct as_error error = {0};
    cr_assert_eq(as_cpu_device_open(&device, 2, NULL, &error), 0, "%s", error.message);
    cr_assert_eq(as_registry_create(&registry, &error), 0, "%s", error.message);
}

static void close_all(void)
{
    as_registry_free(registry);
    device->close(device);
}

TestSuite(check_covers, .init = open_all, .fini = close_all, .timeout = 240);

static struct as_check_result check(const struct assay_variant *variant)
{
    struct as_check_result result;
    struct as_error error = {0};
    cr_assert_eq(as_check_suite(registry, variant, device, &result, &error), 0, "%s: %s",
                 variant->name, error.message);
    return result;
}

static void passes(const struct assay_variant *variant, int32_t problems)
{
    struct as_check_result result = check(variant);
    cr_assert(result.passed, "%s", result.reason);
    cr_assert(result.problems >= problems, "%s: %d problems", variant->name, (int)result.problems);
}

static void fails(const struct assay_variant *variant, const char *words)
{
    struct as_check_result result = check(variant);
    cr_assert(!result.passed, "%s was not caught", variant->name);
    cr_assert_not_null(strstr(result.reason, words), "%s", result.reason);
}

/* ---- siblings that share an input, and what reads both ------------------------------------- */

static const struct assay_cover gate_up = {
    .name = "gate_up",
    .nodes = 3,
    .externals = 1,
    .outputs = 1,
    .node = {{.op = ASSAY_LINEAR, .input = {ASSAY_EXTERNAL(0)}},
             {.op = ASSAY_LINEAR, .input = {ASSAY_EXTERNAL(0)}},
             {.op = ASSAY_SILU_MUL, .input = {0, 1}}},
    .output = {2}};

static double product(const struct assay_launch *launch, int32_t weight, int64_t t, int64_t row)
{
    const struct assay_operand *w = &launch->operand[weight];
    const float *x = cpu_row(&launch->operand[0], t), *wr = cpu_weight_row(w, row);
    double sum = 0;
    for (int64_t i = 0; i < w->columns; i++)
        sum += (double)x[i] * (double)wr[i];
    return sum;
}

/* Operands: x (tokens, k), gate and up weights (n, k), y (tokens, n). */
static void run_gate_up(const struct assay_launch *launch, const struct assay_exec *exec,
                        int32_t gate_weight, int32_t up_weight)
{
    int64_t begin, end;
    assay_share(exec, launch->problem->node[2].tokens, 1, &begin, &end);
    for (int64_t t = begin; t < end; t++)
        for (int64_t row = 0; row < launch->problem->node[2].n; row++) {
            double gate = product(launch, gate_weight, t, row);
            cpu_row(&launch->operand[3], t)[row] =
                (float)(gate / (1 + exp(-gate)) * product(launch, up_weight, t, row));
        }
}

static int run_right(const struct assay_launch *launch, const struct assay_exec *exec)
{
    run_gate_up(launch, exec, 1, 2);
    return 0;
}

static int run_swapped(const struct assay_launch *launch, const struct assay_exec *exec)
{
    run_gate_up(launch, exec, 2, 1);
    return 0;
}

#define GATE_UP(the_name, the_run)                                                                \
    {                                                                                             \
        .name = the_name, .cover = &gate_up, .op = ASSAY_LINEAR, .backend = ASSAY_CPU, .rung = 1, \
        .flags = ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT, .weights = ASSAY_BIT(ASSAY_F32),    \
        .activations = ASSAY_BIT(ASSAY_F32), .run = the_run                                       \
    }

Test(check_covers, gate_and_up)
{
    static const struct assay_variant right = GATE_UP("right/gate_up", run_right);
    static const struct assay_variant swapped = GATE_UP("wrong/gate_up", run_swapped);
    passes(&right, 30);
    fails(&swapped, "times what is allowed");
}

/* ---- a cover that writes the cache --------------------------------------------------------- */

static const struct assay_cover rope_write = {
    .name = "rope_write",
    .nodes = 2,
    .externals = 2,
    .outputs = 1,
    .node = {{.op = ASSAY_ROPE, .input = {ASSAY_EXTERNAL(0)}},
             {.op = ASSAY_KV_WRITE, .input = {0, ASSAY_EXTERNAL(1)}}},
    .output = {1}};

static uint16_t bits_of_bf16(double value)
{
    float narrow = (float)value;
    uint32_t bits;
    memcpy(&bits, &narrow, sizeof bits);
    if (isnan(narrow))
        return 0x7fc0;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* ggml's Q8_0: d in fp16, quants rounded half away from zero by the unrounded d. */
static void store_q8_0(const double *x, uint8_t *to)
{
    float largest = 0;
    bool finite = true;
    for (int i = 0; i < 32; i++) {
        largest = fmaxf(largest, fabsf((float)x[i]));
        finite &= isfinite(x[i]) != 0;
    }
    float d = largest / 127, id = d == 0 ? 0 : 1 / d;
    _Float16 half = (_Float16)(finite ? d : NAN);
    memcpy(to, &half, 2);
    for (int i = 0; i < 32; i++)
        to[2 + i] = (uint8_t)(int8_t)(finite ? roundf((float)x[i] * id) : 1);
}

static void store_row(const struct assay_kv_cache *cache, const double *x, void *to)
{
    for (int32_t i = 0; i < cache->head_dim; i++) {
        float narrow = (float)x[i];
        uint16_t half = bits_of_bf16(x[i]);
        if (cache->dtype == ASSAY_F32)
            memcpy((char *)to + 4 * i, &narrow, 4);
        if (cache->dtype == ASSAY_F16) {
            _Float16 rounded = (_Float16)narrow;
            memcpy(&half, &rounded, 2);
        }
        if (cache->dtype == ASSAY_F16 || cache->dtype == ASSAY_BF16)
            memcpy((char *)to + 2 * i, &half, 2);
        if (cache->dtype == ASSAY_Q8_0 && i % 32 == 0)
            store_q8_0(x + i, (uint8_t *)to + i / 32 * 34);
    }
}

/* One head of k at `position`, turned if the problem says so, and of v. */
static void write_head(const struct assay_launch *launch, int64_t t, int32_t h, bool turn)
{
    const struct assay_kv_cache *cache = launch->cache;
    const struct assay_shape *shape = &launch->problem->node[0];
    int64_t slot = launch->metadata->slots[t];
    size_t at =
        assay_kv_offset(cache, slot / cache->block_size, h, (int32_t)(slot % cache->block_size));
    double row[2][256];
    for (int32_t i = 0; i < cache->head_dim; i++)
        for (int j = 0; j < 2; j++)
            row[j][i] = (double)cpu_row(&launch->operand[j], t)[(int64_t)h * cache->head_dim + i];
    for (int32_t i = 0; turn && i < shape->rotary / 2; i++) {
        bool near = shape->pairing == ASSAY_ROPE_ADJACENT;
        int32_t a = near ? 2 * i : i, b = near ? 2 * i + 1 : i + shape->rotary / 2;
        double angle =
            launch->metadata->positions[t] * pow((double)shape->theta, -2.0 * i / shape->rotary);
        double x = row[0][a], y = row[0][b];
        row[0][a] = x * cos(angle) - y * sin(angle);
        row[0][b] = x * sin(angle) + y * cos(angle);
    }
    store_row(cache, row[0], (char *)cache->k + at);
    store_row(cache, row[1], (char *)cache->v + at);
}

static void write_all(const struct assay_launch *launch, const struct assay_exec *exec, bool turn)
{
    int64_t begin, end;
    assay_share(exec, launch->metadata->tokens, 1, &begin, &end);
    for (int64_t t = begin; t < end; t++)
        for (int32_t h = 0; launch->metadata->slots[t] >= 0 && h < launch->cache->kv_heads; h++)
            write_head(launch, t, h, turn);
}

static int run_turned(const struct assay_launch *launch, const struct assay_exec *exec)
{
    write_all(launch, exec, true);
    return 0;
}

static int run_unturned(const struct assay_launch *launch, const struct assay_exec *exec)
{
    write_all(launch, exec, false);
    return 0;
}

#define WRITES(the_name, the_cover, the_run, the_kv)                                      \
    {                                                                                     \
        .name = the_name, .cover = the_cover, .op = ASSAY_KV_WRITE, .backend = ASSAY_CPU, \
        .rung = 1, .flags = ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT, .kv = the_kv,    \
        .run = the_run                                                                    \
    }

#define ALL_CACHES \
    (ASSAY_BIT(ASSAY_F32) | ASSAY_BIT(ASSAY_F16) | ASSAY_BIT(ASSAY_BF16) | ASSAY_BIT(ASSAY_Q8_0))

Test(check_covers, the_cache_in_every_dtype)
{
    static const struct assay_variant right =
        WRITES("right/kv_write", NULL, run_unturned, ALL_CACHES);
    passes(&right, 4 * 17);
}

Test(check_covers, rope_and_kv_write)
{
    /* In float32 a sine in double and the reference's are the same, or a rounding apart. */
    static const struct assay_variant right =
        WRITES("right/rope_write", &rope_write, run_turned, ASSAY_BIT(ASSAY_F32));
    static const struct assay_variant unturned =
        WRITES("wrong/rope_write", &rope_write, run_unturned, ASSAY_BIT(ASSAY_F32));
    passes(&right, 10);
    fails(&unturned, "the cache's k of token");
}

/* ---- attention over caches in every dtype ---------------------------------------------------- */

static double cached(const struct assay_kv_cache *cache, const void *pool, size_t at, int32_t i)
{
    const char *row = (const char *)pool + at;
    if (cache->dtype == ASSAY_F32) {
        float value;
        memcpy(&value, row + 4 * i, 4);
        return (double)value;
    }
    uint16_t half;
    memcpy(&half, row + (cache->dtype == ASSAY_Q8_0 ? i / 32 * 34 : 2 * i), 2);
    if (cache->dtype == ASSAY_BF16) {
        uint32_t bits = (uint32_t)half << 16;
        float value;
        memcpy(&value, &bits, 4);
        return (double)value;
    }
    double scale = (double)cpu_f16(&half);
    return cache->dtype == ASSAY_F16 ? scale : scale * (int8_t)row[i / 32 * 34 + 2 + i % 32];
}

static void attend(const struct assay_launch *launch, int64_t t, int32_t h)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    const struct assay_metadata *m = launch->metadata;
    const struct assay_kv_cache *cache = launch->cache;
    const float *q = cpu_row(&launch->operand[0], t) + (int64_t)h * shape->head_dim;
    int32_t s = m->token_sequence[t], rows = s < 0 ? 0 : m->context[s];
    if (shape->causal && m->positions[t] + 1 < rows)
        rows = m->positions[t] + 1;
    double sums[256] = {0}, total = 0;
    for (int32_t p = 0; p < rows; p++) {
        int32_t block = m->block_table[(int64_t)s * m->table_stride + p / cache->block_size];
        size_t at = assay_kv_offset(cache, block, h / (shape->heads / shape->kv_heads),
                                    p % cache->block_size);
        double score = 0;
        for (int32_t i = 0; i < shape->head_dim; i++)
            score += (double)q[i] * cached(cache, cache->k, at, i);
        double weight = exp(score * (double)shape->scale);
        total += weight;
        for (int32_t i = 0; i < shape->head_dim; i++)
            sums[i] += weight * cached(cache, cache->v, at, i);
    }
    for (int32_t i = 0; i < shape->head_dim; i++)
        cpu_row(&launch->operand[1], t)[(int64_t)h * shape->head_dim + i] =
            rows == 0 ? 0 : (float)(sums[i] / total);
}

static int run_attention(const struct assay_launch *launch, const struct assay_exec *exec)
{
    int64_t begin, end;
    assay_share(exec, launch->problem->node[0].tokens, 1, &begin, &end);
    for (int64_t t = begin; t < end; t++)
        for (int32_t h = 0; h < launch->problem->node[0].heads; h++)
            attend(launch, t, h);
    return 0;
}

Test(check_covers, attention_over_every_dtype)
{
    static const struct assay_variant right = {.name = "right/attention",
                                               .op = ASSAY_ATTENTION,
                                               .backend = ASSAY_CPU,
                                               .rung = 1,
                                               .flags = ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT,
                                               .kv = ALL_CACHES,
                                               .run = run_attention};
    passes(&right, 4 * 40);
}
