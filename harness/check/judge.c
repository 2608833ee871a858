#include "check/judge.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "as_memory.h"
#include "reference.h"

/* ---- numbers of a row --------------------------------------------------------------------- */

static const char *const top_fields[] = {"id", "nonfinite", "logit", "margin", "projection"};
static const size_t top_offsets[] = {
    offsetof(struct assay_top, id), offsetof(struct assay_top, nonfinite),
    offsetof(struct assay_top, logit), offsetof(struct assay_top, margin),
    offsetof(struct assay_top, projection)};
static const size_t top_sizes[] = {4, 4, 4, 4, 8};

static void read_row(const struct as_setup *setup, int32_t operand, int64_t row, double *out)
{
    const struct as_case_operand *from = &setup->made->operand[operand];
    const void *at = as_setup_output(setup, operand, row);
    if (from->dtype == ASSAY_TOP) {
        struct assay_top top;
        memcpy(&top, at, sizeof top);
        const double fields[] = {top.id, top.nonfinite, (double)top.logit, (double)top.margin,
                                 top.projection};
        memcpy(out, fields, sizeof fields);
        return;
    }
    for (int64_t c = 0; c < from->columns; c++) {
        float value;
        memcpy(&value, (const char *)at + (size_t)c * sizeof value, sizeof value);
        out[c] = (double)value;
    }
}

/* "y[3][17]" or "top[3].margin". */
static void place(const struct as_case_operand *operand, int64_t row, int64_t number, char *words,
                  size_t size)
{
    if (operand->dtype == ASSAY_TOP)
        snprintf(words, size, "%s[%lld].%s", operand->name, (long long)row, top_fields[number]);
    else
        snprintf(words, size, "%s[%lld][%lld]", operand->name, (long long)row, (long long)number);
}

static bool unwritten(const struct as_setup *setup, int32_t operand, int64_t row, int64_t number)
{
    const struct as_guarded *memory = &setup->operand[operand];
    if (memory->block == NULL) /* in place: no poison was there */
        return false;
    bool top = setup->made->operand[operand].dtype == ASSAY_TOP;
    size_t offset = top ? top_offsets[number] : (size_t)number * sizeof(float);
    return as_guarded_untouched(memory, (size_t)row, offset,
                                top ? top_sizes[number] : sizeof(float));
}

static bool unjudged(const struct as_case *made, int64_t row)
{
    return made->padding_unjudged && row < made->batch.tokens &&
           made->batch.token_sequence[row] < 0;
}

/* ---- truth -------------------------------------------------------------------------------- */

/* Equal bits as float32, or NaN on both sides. */
static bool same_number(double expected, double got)
{
    float a = (float)expected, b = (float)got;
    return (isnan(expected) && isnan(got)) || memcmp(&a, &b, sizeof a) == 0;
}

struct fault {
    int64_t row, number;
    double expected, got, ratio, nmse;
    bool found, global;
};

static void complain_number(const struct as_setup *setup, int32_t operand,
                            const struct fault *fault, const struct assay_tolerance *tolerance,
                            struct as_complaint *complaint)
{
    const struct as_case_operand *from = &setup->made->operand[operand];
    char where[96];
    place(from, fault->row, fault->number, where, sizeof where);
    if (unwritten(setup, operand, fault->row, fault->number))
        as_complain(complaint, "did not write %s (%.9g is right)", where, fault->expected);
    else if (fault->global)
        as_complain(
            complaint,
            "%s as a whole is off: the squared error is %.3g of the squares, %.3g is allowed",
            from->name, fault->nmse, tolerance->nmse);
    else if (isnan(fault->got) && !isnan(fault->expected))
        as_complain(complaint,
                    "%s is NaN where %.9g is right: something dead or unwritten was read", where,
                    fault->expected);
    else if (isnan(fault->expected) && !isnan(fault->got))
        as_complain(complaint, "%s is %.9g where NaN is right: a NaN of the inputs was lost", where,
                    fault->got);
    else if (tolerance->bitwise)
        as_complain(complaint, "%s is %.9g where exactly %.9g is right", where, fault->got,
                    fault->expected);
    else
        as_complain(complaint, "%s is %.9g where %.9g is right, %.3g times what is allowed", where,
                    fault->got, fault->expected, fault->ratio);
}

/* The fault that `comparison` of rows `rows` of an operand shows, if any. */
static struct fault find_fault(const struct as_ref_comparison *comparison, const double *expected,
                               const double *got, int64_t count, bool bitwise)
{
    struct fault fault = {.row = -1};
    int64_t at = -1;
    if (bitwise)
        for (int64_t i = 0; at < 0 && i < count; i++)
            at = same_number(expected[i], got[i]) ? -1 : i;
    else if (!comparison->pass)
        at = comparison->worst;
    if (at < 0)
        return fault;
    fault.found = true;
    fault.global = !bitwise && comparison->anomalies == 0 && comparison->over == 0;
    fault.number = at;
    fault.expected = expected[at];
    fault.got = got[at];
    fault.ratio = comparison->worst_ratio;
    fault.nmse = comparison->nmse;
    return fault;
}

/* Rows whose truth is not known must at least be there and be numbers. */
static void judge_unsampled(const struct as_setup *setup, int32_t operand, double *numbers,
                            struct as_complaint *complaint)
{
    const struct as_case *made = setup->made;
    const struct as_case_operand *from = &made->operand[operand];
    for (int64_t r = 0, i = 0; r < from->rows; r++) {
        if (i < made->samples && made->sample[i] == r) {
            i++;
            continue;
        }
        if (unjudged(made, r) || made->anomalies || from->dtype == ASSAY_TOP)
            continue;
        read_row(setup, operand, r, numbers);
        for (int64_t c = 0; c < from->numbers; c++) {
            char where[96];
            if (isfinite(numbers[c]))
                continue;
            place(from, r, c, where, sizeof where);
            if (unwritten(setup, operand, r, c))
                as_complain(complaint, "did not write %s", where);
            else
                as_complain(complaint, "%s is %g where a finite number is right", where,
                            numbers[c]);
            return;
        }
    }
}

static int judge_output(const struct as_setup *setup, int32_t operand,
                        struct as_ref_comparison *total, struct as_complaint *complaint,
                        struct as_error *error)
{
    const struct as_case *made = setup->made;
    const struct as_case_operand *from = &made->operand[operand];
    struct assay_tolerance tolerance = as_case_tolerance(made, from->node);
    struct as_ref_limits limits = {.absolute = tolerance.absolute,
                                   .relative = tolerance.relative,
                                   .nmse = tolerance.nmse,
                                   .cosine = 1};
    int64_t numbers = from->numbers, rows = 0;
    double *got = as_calloc(error, (size_t)((made->samples + 1) * numbers), sizeof *got, "outputs");
    double *expected =
        as_calloc(error, (size_t)(made->samples * numbers), sizeof *expected, "outputs");
    int64_t *row_at = as_calloc(error, (size_t)made->samples, sizeof *row_at, "outputs");
    if (got == NULL || expected == NULL || row_at == NULL) {
        free(got);
        free(expected);
        free(row_at);
        return AS_ERR_MEMORY;
    }
    for (int64_t i = 0; i < made->samples; i++) {
        if (unjudged(made, made->sample[i]))
            continue;
        read_row(setup, operand, made->sample[i], got + rows * numbers);
        memcpy(expected + rows * numbers, from->expected + i * numbers,
               (size_t)numbers * sizeof *expected);
        row_at[rows++] = made->sample[i];
    }
    struct as_ref_comparison part = as_ref_compare(expected, got, rows * numbers, &limits);
    struct fault fault = find_fault(&part, expected, got, rows * numbers, tolerance.bitwise);
    if (tolerance.bitwise)
        part.pass = !fault.found;
    as_ref_compare_add(total, &part);
    if (fault.found && complaint->words[0] == '\0') {
        fault.row = row_at[fault.number / numbers];
        fault.number %= numbers;
        complain_number(setup, operand, &fault, &tolerance, complaint);
    }
    if (complaint->words[0] == '\0')
        judge_unsampled(setup, operand, got, complaint);
    free(got);
    free(expected);
    free(row_at);
    return 0;
}

/* ---- the cache ---------------------------------------------------------------------------- */

/* Which token writes the row at `slot`, or -1. */
static int64_t writer_of(const struct as_case *made, int64_t slot)
{
    for (int64_t t = 0; t < made->batch.tokens; t++)
        if (made->batch.slots[t] == slot)
            return t;
    return -1;
}

/* One row of one head: as kv_write must leave it, or as it was. */
static void judge_cached(const struct as_setup *setup, const struct as_guarded *memory,
                         const double *fresh, const uint8_t *before, size_t at, int64_t token,
                         int32_t head, struct as_complaint *complaint)
{
    const struct as_case_cache *cache = &setup->made->cache;
    const uint8_t *row = as_guarded_row(memory, 0) + at;
    size_t bytes = assay_row_bytes(cache->dtype, cache->head_dim);
    if (token < 0) {
        if (memcmp(row, before + at, bytes) != 0)
            as_complain(complaint, "wrote a row of %s that belongs to no token (byte %zu)",
                        memory->name, at);
        return;
    }
    double got[1024];
    fresh += (token * cache->kv_heads + head) * cache->head_dim;
    if (cache->head_dim > 1024 ||
        as_ref_dequantize((int)cache->dtype, row, got, cache->head_dim) != 0) {
        as_complain(complaint, "has a cache that the checker cannot read");
        return;
    }
    for (int32_t i = 0; i < cache->head_dim; i++) {
        if (got[i] == fresh[i] || (isnan(got[i]) && isnan(fresh[i])))
            continue;
        if (memcmp(row, before + at, bytes) == 0)
            as_complain(complaint, "did not write %s of token %lld, head %d", memory->name,
                        (long long)token, (int)head);
        else
            as_complain(complaint, "%s of token %lld, head %d, element %d is %.9g, not %.9g",
                        memory->name, (long long)token, (int)head, (int)i, got[i], fresh[i]);
        return;
    }
}

static void judge_cache(const struct as_setup *setup, struct as_complaint *complaint)
{
    const struct as_case_cache *cache = &setup->made->cache;
    for (int64_t slot = 0; slot < cache->blocks * cache->block_size; slot++) {
        int64_t token = writer_of(setup->made, slot);
        for (int32_t h = 0; h < cache->kv_heads; h++) {
            size_t at = assay_kv_offset(&setup->cache, slot / cache->block_size, h,
                                        (int32_t)(slot % cache->block_size));
            if (complaint->words[0] == '\0')
                judge_cached(setup, &setup->k, cache->new_k, cache->k, at, token, h, complaint);
            if (complaint->words[0] == '\0')
                judge_cached(setup, &setup->v, cache->new_v, cache->v, at, token, h, complaint);
        }
    }
}

int as_judge_truth(const struct as_setup *setup, struct as_ref_comparison *total,
                   struct as_complaint *complaint, struct as_error *error)
{
    int code = 0;
    for (int32_t i = 0; code == 0 && i < setup->made->operands; i++)
        if (setup->made->operand[i].role == AS_CASE_OUTPUT)
            code = judge_output(setup, i, total, complaint, error);
    if (code == 0 && setup->made->writes_cache && complaint->words[0] == '\0')
        judge_cache(setup, complaint);
    return code;
}

/* ---- run against run ---------------------------------------------------------------------- */

static size_t dense_bytes(const struct as_case_operand *operand)
{
    return (size_t)operand->rows * assay_row_bytes(operand->dtype, operand->columns);
}

int as_outcome_keep(struct as_outcome *outcome, const struct as_setup *setup,
                    struct as_error *error)
{
    const struct as_case *made = setup->made;
    size_t cache = made->writes_cache ? made->cache.bytes : 0;
    outcome->size = 2 * cache;
    for (int32_t i = 0; i < made->operands; i++)
        if (made->operand[i].role == AS_CASE_OUTPUT)
            outcome->size += dense_bytes(&made->operand[i]);
    outcome->bytes = as_calloc(error, outcome->size, 1, "outputs of a run");
    if (outcome->bytes == NULL)
        return AS_ERR_MEMORY;
    uint8_t *at = outcome->bytes;
    for (int32_t i = 0; i < made->operands; i++) {
        const struct as_case_operand *operand = &made->operand[i];
        size_t row = assay_row_bytes(operand->dtype, operand->columns);
        for (int64_t r = 0; operand->role == AS_CASE_OUTPUT && r < operand->rows; r++, at += row)
            memcpy(at, as_setup_output(setup, i, r), row);
    }
    if (cache > 0) {
        memcpy(at, as_guarded_row(&setup->k, 0), cache);
        memcpy(at + cache, as_guarded_row(&setup->v, 0), cache);
    }
    return 0;
}

/* The first number of a row whose bytes differ. */
static int64_t first_difference(const struct as_case_operand *operand, const uint8_t *a,
                                const uint8_t *b)
{
    for (int64_t i = 0; i < operand->numbers; i++) {
        bool top = operand->dtype == ASSAY_TOP;
        size_t at = top ? top_offsets[i] : (size_t)i * sizeof(float);
        if (memcmp(a + at, b + at, top ? top_sizes[i] : sizeof(float)) != 0)
            return i;
    }
    return 0;
}

void as_judge_same(const struct as_setup *setup, const struct as_outcome *outcome, const char *what,
                   struct as_complaint *complaint)
{
    const struct as_case *made = setup->made;
    const uint8_t *at = outcome->bytes;
    size_t cache = made->writes_cache ? made->cache.bytes : 0;
    for (int32_t i = 0; complaint->words[0] == '\0' && i < made->operands; i++) {
        const struct as_case_operand *operand = &made->operand[i];
        size_t row = assay_row_bytes(operand->dtype, operand->columns);
        for (int64_t r = 0; operand->role == AS_CASE_OUTPUT && r < operand->rows; r++, at += row) {
            const uint8_t *now = as_setup_output(setup, i, r);
            char where[96];
            if (unjudged(made, r) || memcmp(at, now, row) == 0 || complaint->words[0] != '\0')
                continue;
            place(operand, r, first_difference(operand, at, now), where, sizeof where);
            as_complain(complaint, "%s %s", where, what);
        }
    }
    if (cache == 0 || complaint->words[0] != '\0')
        return;
    if (memcmp(at, as_guarded_row(&setup->k, 0), cache) != 0 ||
        memcmp(at + cache, as_guarded_row(&setup->v, 0), cache) != 0)
        as_complain(complaint, "the cache %s", what);
}

void as_judge_part(const struct as_setup *part, const struct as_case *whole,
                   const struct as_outcome *outcome, int32_t sequence,
                   struct as_complaint *complaint)
{
    const struct as_check_batch *batch = &whole->batch;
    const uint8_t *at = outcome->bytes;
    for (int32_t i = 0; complaint->words[0] == '\0' && i < whole->operands; i++) {
        const struct as_case_operand *operand = &whole->operand[i];
        if (operand->role != AS_CASE_OUTPUT)
            continue;
        size_t row = assay_row_bytes(operand->dtype, operand->columns);
        int64_t own = 0;
        for (int64_t r = 0; r < operand->rows && complaint->words[0] == '\0'; r++) {
            int64_t token = batch->logit_rows > 0 ? batch->logit_row[r] : r;
            if (batch->token_sequence[token] != sequence)
                continue;
            const uint8_t *now = as_setup_output(part, i, own++);
            char where[96];
            if (memcmp(at + (size_t)r * row, now, row) == 0)
                continue;
            place(operand, r, first_difference(operand, at + (size_t)r * row, now), where,
                  sizeof where);
            as_complain(complaint,
                        "%s has other bits when its sequence runs alone, against batch_invariant",
                        where);
        }
        at += dense_bytes(operand);
    }
}
