#include "probe/ceilings.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "as_clock.h"
#include "as_file.h"
#include "as_memory.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/team.h"
#include "probe/provenance.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define READ_BYTES ((size_t)256 << 20) /* a thread; beyond any last-level cache of one core */
#define ROUNDS 4

struct measurement {
    const char *name, *units;
    bool vectors; /* AVX2 is there */
    float *memory;
    size_t floats;            /* a thread */
    double work[256];         /* done by each thread, bytes or operations */
    volatile float sink[256]; /* what was computed must be wanted, or it is not computed */
};

/* ---- the loops ---------------------------------------------------------------------------- */

static float read_plain(const float *data, size_t count)
{
    float sum[16] = {0};
    for (size_t i = 0; i + 16 <= count; i += 16)
        for (size_t j = 0; j < 16; j++)
            sum[j] += data[i + j];
    for (size_t j = 1; j < 16; j++)
        sum[0] += sum[j];
    return sum[0];
}

static float multiply_add_plain(size_t rounds)
{
    float sum[16];
    for (size_t j = 0; j < 16; j++)
        sum[j] = (float)j;
    for (size_t i = 0; i < rounds; i++)
        for (size_t j = 0; j < 16; j++)
            sum[j] = sum[j] * 0.999f + 0.5f;
    for (size_t j = 1; j < 16; j++)
        sum[0] += sum[j];
    return sum[0];
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static float read_avx2(const float *data, size_t count)
{
    __m256 sum[8];
    for (int j = 0; j < 8; j++)
        sum[j] = _mm256_setzero_ps();
    for (size_t i = 0; i + 64 <= count; i += 64)
        for (size_t j = 0; j < 8; j++)
            sum[j] = _mm256_add_ps(sum[j], _mm256_loadu_ps(data + i + 8 * j));
    for (int j = 1; j < 8; j++)
        sum[0] = _mm256_add_ps(sum[0], sum[j]);
    return _mm_cvtss_f32(_mm256_castps256_ps128(sum[0]));
}

/* Twelve independent chains hide the latency of four to five cycles at two a cycle. */
__attribute__((target("avx2,fma"))) static float multiply_add_avx2(size_t rounds)
{
    __m256 sum[12], factor = _mm256_set1_ps(0.999f), term = _mm256_set1_ps(0.5f);
    for (int j = 0; j < 12; j++)
        sum[j] = _mm256_set1_ps((float)j);
    for (size_t i = 0; i < rounds; i++)
        for (int j = 0; j < 12; j++)
            sum[j] = _mm256_fmadd_ps(sum[j], factor, term);
    for (int j = 1; j < 12; j++)
        sum[0] = _mm256_add_ps(sum[0], sum[j]);
    return _mm_cvtss_f32(_mm256_castps256_ps128(sum[0]));
}

/* The int8 dot product of AVX2: bytes to words, words to dwords, dwords summed. */
__attribute__((target("avx2,fma"))) static float multiply_add_int8_avx2(size_t rounds)
{
    __m256i sum[8], one = _mm256_set1_epi16(1), left = _mm256_set1_epi8(3);
    for (int j = 0; j < 8; j++)
        sum[j] = _mm256_set1_epi32(j);
    for (size_t i = 0; i < rounds; i++)
        for (int j = 0; j < 8; j++) {
            /* The running sum is an operand, so that no round can be hoisted out of the loop. */
            __m256i words = _mm256_maddubs_epi16(left, sum[j]);
            sum[j] = _mm256_add_epi32(sum[j], _mm256_madd_epi16(words, one));
        }
    for (int j = 1; j < 8; j++)
        sum[0] = _mm256_add_epi32(sum[0], sum[j]);
    return (float)_mm_cvtsi128_si32(_mm256_castsi256_si128(sum[0]));
}
#endif

static void measure_read(void *context, const struct assay_exec *exec)
{
    struct measurement *m = context;
    const float *data = m->memory + (size_t)exec->thread * m->floats;
#if defined(__x86_64__)
    m->sink[exec->thread] = m->vectors ? read_avx2(data, m->floats) : read_plain(data, m->floats);
#else
    m->sink[exec->thread] = read_plain(data, m->floats);
#endif
    m->work[exec->thread] = (double)m->floats * sizeof(float);
}

static void measure_f32(void *context, const struct assay_exec *exec)
{
    enum { TIMES = 2000000 };
    struct measurement *m = context;
#if defined(__x86_64__)
    if (m->vectors) {
        m->sink[exec->thread] = multiply_add_avx2(TIMES);
        m->work[exec->thread] = 2.0 * 8 * 12 * TIMES;
        return;
    }
#endif
    m->sink[exec->thread] = multiply_add_plain(TIMES);
    m->work[exec->thread] = 2.0 * 16 * TIMES;
}

static void measure_q8(void *context, const struct assay_exec *exec)
{
    enum { TIMES = 2000000 };
    struct measurement *m = context;
#if defined(__x86_64__)
    if (m->vectors) {
        m->sink[exec->thread] = multiply_add_int8_avx2(TIMES);
        m->work[exec->thread] = 2.0 * 32 * 8 * TIMES;
        return;
    }
#endif
    measure_f32(context, exec);
}

/* ---- measuring ---------------------------------------------------------------------------- */

/* The best of a few rounds: a ceiling is what can be reached, not what is usual. */
static double best_rate(struct as_team *team, void (*loop)(void *, const struct assay_exec *),
                        struct measurement *m)
{
    double best = 0;
    for (int r = 0; r < ROUNDS; r++) {
        uint64_t start = as_clock_ns();
        as_team_run(team, loop, m);
        double seconds = (double)(as_clock_ns() - start) * 1e-9, work = 0;
        for (int32_t t = 0; t < as_team_threads(team); t++)
            work += m->work[t];
        best = work / seconds > best ? work / seconds : best;
    }
    return best;
}

static int measure_team(int32_t threads, struct as_ceiling *ceiling, struct as_error *error)
{
    static const struct {
        const char *name, *units;
        void (*loop)(void *, const struct assay_exec *);
    } kinds[] = {{"bandwidth_read", "B/s", measure_read},
                 {"compute_f32", "FLOP/s", measure_f32},
                 {"compute_q8", "FLOP/s", measure_q8}};
    struct as_team *team;
    struct measurement *m = as_calloc(error, 1, sizeof *m, "the ceilings");
    if (m == NULL)
        return AS_ERR_MEMORY;
    int code = as_team_create(&team, threads, NULL, error);
    if (code == 0) {
        m->vectors = (as_cpu_features() & ASSAY_CPU_AVX2) != 0;
        m->floats = READ_BYTES / sizeof(float) / (threads > 8 ? 4 : 1);
        m->memory = as_calloc_aligned(error, m->floats * (size_t)threads, sizeof(float),
                                      "measuring memory bandwidth");
        code = m->memory == NULL ? AS_ERR_MEMORY : 0;
    }
    for (int k = 0; code == 0 && k < 3; k++) {
        ceiling[k] = (struct as_ceiling){.threads = threads,
                                         .value = best_rate(team, kinds[k].loop, m),
                                         .measured = as_clock_ns()};
        snprintf(ceiling[k].name, sizeof ceiling[k].name, "%s", kinds[k].name);
        snprintf(ceiling[k].units, sizeof ceiling[k].units, "%s", kinds[k].units);
    }
    as_team_free(team);
    free(m->memory);
    free(m);
    return code == 0 ? 3 : code;
}

/* ---- the cache ---------------------------------------------------------------------------- */

static bool cache_path(char *path, size_t size)
{
    char boot[64], name[128];
    as_provenance_boot(boot, sizeof boot);
    snprintf(name, sizeof name, "ceilings/%s-%d", boot, (int)as_cpu_count());
    return as_cache_path(path, size, name, NULL) == 0;
}

static int read_cache(struct as_ceiling *ceiling)
{
    char path[PATH_MAX], *text;
    size_t size;
    if (!cache_path(path, sizeof path) || as_read_file(&text, &size, path, 65536, NULL) != 0)
        return 0;
    int count = 0;
    char *rest = text;
    for (char *line; count < AS_MAX_CEILINGS && (line = strtok_r(rest, "\n", &rest)) != NULL;) {
        struct as_ceiling *c = &ceiling[count];
        int threads;
        unsigned long long measured;
        if (sscanf(line, "%31s %15s %d %lf %llu", c->name, c->units, &threads, &c->value,
                   &measured) != 5)
            break;
        c->threads = threads;
        c->measured = measured;
        count++;
    }
    free(text);
    return count;
}

static void write_cache(const struct as_ceiling *ceiling, int count)
{
    char path[PATH_MAX], text[AS_MAX_CEILINGS * 128] = "";
    size_t length = 0;
    for (int i = 0; i < count; i++)
        length += (size_t)snprintf(text + length, sizeof text - length, "%s %s %d %.17g %llu\n",
                                   ceiling[i].name, ceiling[i].units, (int)ceiling[i].threads,
                                   ceiling[i].value, (unsigned long long)ceiling[i].measured);
    if (cache_path(path, sizeof path))
        as_write_file(path, text, length, NULL);
}

/* A ceiling is what can be reached, so the best of all measurements of this boot stands: one taken
 * while the machine was busy is mended by the next. */
static void keep_best(struct as_ceiling *ceiling, int count)
{
    struct as_ceiling before[AS_MAX_CEILINGS];
    int known = read_cache(before);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < known; k++)
            if (strcmp(before[k].name, ceiling[i].name) == 0 &&
                before[k].threads == ceiling[i].threads && before[k].value > ceiling[i].value)
                ceiling[i] = before[k];
}

int as_ceilings_get(struct as_ceiling *ceiling, struct as_error *error)
{
    int32_t cpus = as_cpu_count();
    int count = measure_team(1, ceiling, error);
    if (count > 0 && cpus > 1) {
        int more = measure_team(cpus, ceiling + count, error);
        count = more < 0 ? more : count + more;
    }
    if (count > 0) {
        keep_best(ceiling, count);
        write_cache(ceiling, count);
    }
    return count;
}

int as_ceilings_write(struct as_spool *spool, struct as_error *error)
{
    struct as_ceiling ceiling[AS_MAX_CEILINGS];
    char boot[64];
    as_provenance_boot(boot, sizeof boot);
    int count = as_ceilings_get(ceiling, error);
    for (int i = 0; i < count; i++) {
        const struct as_row_ceiling row = {.name = as_spool_string(spool, ceiling[i].name),
                                           .units = as_spool_string(spool, ceiling[i].units),
                                           .threads = (uint32_t)ceiling[i].threads,
                                           .boot = as_spool_string(spool, boot),
                                           .measured = ceiling[i].measured,
                                           .value = ceiling[i].value};
        int code = as_spool_put(spool, AS_TABLE_CEILINGS, &row);
        if (code != 0)
            return as_fail(error, code, "%s", as_spool_error(spool)->message);
    }
    return count < 0 ? count : 0;
}
