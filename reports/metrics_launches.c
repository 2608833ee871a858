/* Where the time of traced runs went: launches summed by run, variant and problem, and rolled up
 * by op, variant or class of problem. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "as_memory.h"
#include "as_random.h"
#include "metrics_internal.h"

#define BLOCK 65536 /* launches held at a time */

/* --- cells --- */

struct cell_table {
    uint32_t *slots; /* index + 1 into cells; 0 = free; a power of two of them */
    size_t slot_count, capacity;
};

static uint64_t cell_hash(uint32_t run, uint32_t variant, uint32_t problem)
{
    return as_mix64(((uint64_t)run << 40) ^ ((uint64_t)variant << 24) ^ problem);
}

static int grow_table(struct as_metrics *metrics, struct cell_table *table, struct as_error *error)
{
    size_t count = table->slot_count == 0 ? 256 : 2 * table->slot_count;
    uint32_t *slots = as_calloc(error, count, sizeof *slots, "launches");
    if (slots == NULL)
        return AS_ERR_MEMORY;
    for (size_t i = 0; i < metrics->cell_count; i++) {
        const struct as_launch_cell *cell = &metrics->cells[i];
        size_t slot = cell_hash(cell->run, cell->variant, cell->problem) & (count - 1);
        while (slots[slot] != 0)
            slot = (slot + 1) & (count - 1);
        slots[slot] = (uint32_t)i + 1;
    }
    free(table->slots);
    table->slots = slots;
    table->slot_count = count;
    return AS_OK;
}

static struct as_launch_cell *find_cell(struct as_metrics *metrics, struct cell_table *table,
                                        uint32_t run, uint32_t variant, uint32_t problem,
                                        struct as_error *error)
{
    if (2 * metrics->cell_count >= table->slot_count && grow_table(metrics, table, error) != AS_OK)
        return NULL;
    size_t slot = cell_hash(run, variant, problem) & (table->slot_count - 1);
    for (; table->slots[slot] != 0; slot = (slot + 1) & (table->slot_count - 1)) {
        struct as_launch_cell *cell = &metrics->cells[table->slots[slot] - 1];
        if (cell->run == run && cell->variant == variant && cell->problem == problem)
            return cell;
    }
    if (as_grow(error, &metrics->cells, &table->capacity, metrics->cell_count,
                sizeof *metrics->cells, "launches") != AS_OK)
        return NULL;
    table->slots[slot] = (uint32_t)++metrics->cell_count;
    struct as_launch_cell *cell = &metrics->cells[metrics->cell_count - 1];
    *cell = (struct as_launch_cell){.run = run, .variant = variant, .problem = problem};
    return cell;
}

static int add_launch(struct as_metrics *metrics, struct cell_table *table, uint32_t run,
                      const struct as_row_launch *row, struct as_error *error)
{
    struct as_run_metrics *metrics_of = &metrics->runs[run];
    struct as_launch_cell *cell = find_cell(metrics, table, run, row->variant, row->problem, error);
    if (cell == NULL)
        return AS_ERR_MEMORY;
    double ns = row->start != AS_UNKNOWN_U64 && row->end != AS_UNKNOWN_U64 && row->end >= row->start
                    ? (double)(row->end - row->start)
                    : 0;
    double work = row->work_ns != AS_UNKNOWN_U64 ? (double)row->work_ns : 0;
    double wait = row->wait_ns != AS_UNKNOWN_U64 ? (double)row->wait_ns : 0;
    cell->calls++;
    cell->ns += ns;
    cell->work_ns += work;
    cell->wait_ns += wait;
    metrics_of->launches++;
    metrics_of->launch_ns += ns;
    metrics_of->work_ns += work;
    metrics_of->wait_ns += wait;
    return AS_OK;
}

int as_metrics_add_launches(struct as_metrics *metrics, struct as_error *error)
{
    struct cell_table table = {0};
    struct as_row_launch *rows = as_calloc(error, BLOCK, sizeof *rows, "launches");
    uint64_t total = as_report_count(metrics->report, AS_TABLE_LAUNCHES);
    int rc = rows == NULL ? AS_ERR_MEMORY : AS_OK;
    for (uint64_t at = 0; rc == AS_OK && at < total; at += BLOCK) {
        size_t count = total - at < BLOCK ? (size_t)(total - at) : BLOCK;
        rc = as_report_read_range(metrics->report, AS_TABLE_LAUNCHES, at, count, rows, error);
        for (size_t i = 0; rc == AS_OK && i < count; i++) {
            ptrdiff_t run = as_metrics_run_index(metrics, rows[i].run);
            if (run >= 0)
                rc = add_launch(metrics, &table, (uint32_t)run, &rows[i], error);
        }
    }
    free(table.slots);
    free(rows);
    return rc;
}

/* --- ceilings --- */

double as_metrics_ceiling(const struct as_metrics *metrics, const char *name, uint32_t threads)
{
    for (size_t i = 0; i < metrics->ceiling_count; i++) {
        const struct as_row_ceiling *row = &metrics->ceilings[i];
        const char *own = as_report_string(metrics->report, row->name);
        if (own != NULL && strcmp(own, name) == 0 && row->threads == threads && row->value > 0)
            return row->value;
    }
    return NAN;
}

/* Least time that a launch of `problem` can take by the ceilings, in ns; NaN when not known. */
static double ideal_ns(const struct as_metrics *metrics, const struct as_row_problem *problem,
                       uint32_t threads)
{
    char name[80];
    const char *dtype = as_report_string(metrics->report, problem->activations);
    double bandwidth = as_metrics_ceiling(metrics, "bandwidth_read", threads);
    snprintf(name, sizeof name, "compute_%.60s", dtype != NULL ? dtype : "f32");
    double compute = as_metrics_ceiling(metrics, name, threads);
    if (isnan(compute))
        compute = as_metrics_ceiling(metrics, "compute_f32", threads);
    if (problem->bytes == AS_UNKNOWN_U64 || problem->flops == AS_UNKNOWN_U64)
        return NAN;
    double by_bytes = (double)problem->bytes / bandwidth * 1e9;
    double by_flops = (double)problem->flops / compute * 1e9;
    if (isnan(by_bytes) || isnan(by_flops))
        return NAN;
    return by_bytes > by_flops ? by_bytes : by_flops;
}

/* --- classes --- */

static uint32_t round_up(uint32_t value)
{
    uint32_t power = 1;
    while (power < value && power < (1u << 31))
        power *= 2;
    return power;
}

/* snprintf behind what is there. */
#define APPEND(...)                                                 \
    do {                                                            \
        int more = snprintf(text + used, size - used, __VA_ARGS__); \
        used += more > 0 ? (size_t)more : 0;                        \
        used = used < size ? used : size - 1;                       \
    } while (0)

void as_metrics_class(const struct as_report *report, const struct as_row_problem *problem,
                      char *text, size_t size)
{
    size_t used = 0;
    const uint32_t dtypes[] = {problem->weights, problem->activations, problem->kv};
    const char *op = as_report_string(report, problem->op);
    const char *before = ", ";
    APPEND("%s", op != NULL ? op : "?");
    if (problem->n != AS_UNKNOWN_U32 && problem->k != AS_UNKNOWN_U32)
        APPEND(" %u to %u", problem->k, problem->n);
    else if (problem->n != AS_UNKNOWN_U32 && problem->heads == AS_UNKNOWN_U32)
        APPEND(" %u wide", problem->n);
    if (problem->heads != AS_UNKNOWN_U32)
        APPEND(" %u", problem->heads);
    if (problem->heads != AS_UNKNOWN_U32 && problem->kv_heads != AS_UNKNOWN_U32)
        APPEND("/%u", problem->kv_heads);
    if (problem->heads != AS_UNKNOWN_U32 && problem->head_dim != AS_UNKNOWN_U32)
        APPEND(" heads of %u", problem->head_dim);
    if (problem->tokens != AS_UNKNOWN_U32)
        APPEND(", tokens%s%u", problem->tokens <= 1 ? " " : "<=", round_up(problem->tokens));
    if (problem->context != AS_UNKNOWN_U32)
        APPEND(", context<=%u", round_up(problem->context));
    for (int i = 0; i < 3; i++) {
        const char *dtype = as_report_string(report, dtypes[i]);
        if (dtype == NULL)
            continue;
        APPEND("%s%s", before, dtype);
        before = "/";
    }
}

/* --- usage --- */

static bool traced_by(const struct as_strategy_metrics *strategy, uint32_t run)
{
    for (size_t i = 0; i < strategy->traced_count; i++) {
        if (strategy->traced[i] == run)
            return true;
    }
    return false;
}

static const char *name_or(const struct as_metrics *metrics, uint32_t id, const char *other)
{
    const char *name = as_report_string(metrics->report, id);
    return name != NULL ? name : other;
}

/* The key of a cell at a level, as far as it goes; numbers of a usage row start at zero. */
static void describe_cell(const struct as_metrics *metrics, const struct as_launch_cell *cell,
                          enum as_usage_level level, struct as_usage *usage)
{
    *usage = (struct as_usage){.op = "?", .variant = "?"};
    if (cell->variant < metrics->variant_count)
        usage->variant = name_or(metrics, metrics->variants[cell->variant].name, "?");
    if (cell->problem >= metrics->problem_count)
        return;
    const struct as_row_problem *problem = &metrics->problems[cell->problem];
    usage->op = name_or(metrics, problem->op, "?");
    if (level == AS_USAGE_CLASS)
        as_metrics_class(metrics->report, problem, usage->problem_class,
                         sizeof usage->problem_class);
}

static bool same_row(const struct as_usage *a, const struct as_usage *b, enum as_usage_level level)
{
    if (strcmp(a->op, b->op) != 0 || strcmp(a->problem_class, b->problem_class) != 0)
        return false;
    return level == AS_USAGE_OP || strcmp(a->variant, b->variant) == 0;
}

static void add_cell(const struct as_metrics *metrics, const struct as_launch_cell *cell,
                     struct as_usage *usage)
{
    double bytes = NAN, flops = NAN, ideal = NAN, calls = (double)cell->calls;
    if (cell->problem < metrics->problem_count) {
        const struct as_row_problem *problem = &metrics->problems[cell->problem];
        bytes = problem->bytes != AS_UNKNOWN_U64 ? (double)problem->bytes : NAN;
        flops = problem->flops != AS_UNKNOWN_U64 ? (double)problem->flops : NAN;
        ideal = ideal_ns(metrics, problem, metrics->runs[cell->run].row.threads);
    }
    usage->calls += cell->calls;
    usage->ns += cell->ns;
    usage->work_ns += cell->work_ns;
    usage->wait_ns += cell->wait_ns;
    usage->bytes += bytes * calls;
    usage->flops += flops * calls;
    usage->ideal_ns += ideal * calls;
}

static int most_time_first(const void *a, const void *b)
{
    const struct as_usage *x = a, *y = b;
    if (x->ns != y->ns)
        return x->ns > y->ns ? -1 : 1;
    int order = strcmp(x->op, y->op);
    return order != 0 ? order : strcmp(x->problem_class, y->problem_class);
}

/* The row that `wanted` belongs to, made when it is new. Rows are found by a hash of their text: a
 * run over many lengths meets many problems. */
static struct as_usage *find_usage(struct as_usage *rows, size_t *count, uint32_t *slots,
                                   size_t slot_count, const struct as_usage *wanted,
                                   enum as_usage_level level)
{
    uint64_t hash = 0;
    const char *texts[] = {wanted->op, level == AS_USAGE_OP ? "" : wanted->variant,
                           wanted->problem_class};
    for (int i = 0; i < 3; i++) {
        for (const char *c = texts[i]; *c != '\0'; c++)
            hash = (hash ^ (unsigned char)*c) * 0x100000001b3u;
        hash = as_mix64(hash);
    }
    size_t slot = hash & (slot_count - 1);
    for (; slots[slot] != 0; slot = (slot + 1) & (slot_count - 1)) {
        struct as_usage *row = &rows[slots[slot] - 1];
        if (same_row(row, wanted, level)) {
            if (row->variant != NULL && strcmp(row->variant, wanted->variant) != 0)
                row->variant = NULL;
            return row;
        }
    }
    rows[(*count)++] = *wanted;
    slots[slot] = (uint32_t)*count;
    return &rows[*count - 1];
}

int as_metrics_usage(const struct as_metrics *metrics, const struct as_strategy_metrics *strategy,
                     enum as_usage_level level, struct as_usage **rows, size_t *count,
                     struct as_error *error)
{
    size_t slot_count = 16;
    while (slot_count < 2 * metrics->cell_count)
        slot_count *= 2;
    uint32_t *slots = as_calloc(error, slot_count, sizeof *slots, "usage");
    *count = 0;
    *rows = as_calloc(error, metrics->cell_count, sizeof **rows, "usage");
    if (slots == NULL || *rows == NULL) {
        free(slots);
        free(*rows);
        *rows = NULL;
        return AS_ERR_MEMORY;
    }
    double total = 0;
    for (size_t i = 0; i < metrics->cell_count; i++) {
        const struct as_launch_cell *cell = &metrics->cells[i];
        struct as_usage wanted;
        if (!traced_by(strategy, cell->run))
            continue;
        describe_cell(metrics, cell, level, &wanted);
        add_cell(metrics, cell, find_usage(*rows, count, slots, slot_count, &wanted, level));
        total += cell->ns;
    }
    free(slots);
    for (size_t i = 0; i < *count; i++)
        (*rows)[i].share = total > 0 ? (*rows)[i].ns / total : NAN;
    if (*count > 1)
        qsort(*rows, *count, sizeof **rows, most_time_first);
    return AS_OK;
}
