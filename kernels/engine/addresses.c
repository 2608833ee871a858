/* Where values lie: one arena, each value living from its producer to its last reader. */
#include <string.h>

#include "as_memory.h"
#include "engine/planner.h"

#define ALIGNMENT 64

struct hole {
    size_t begin, end;
};

struct arena {
    struct hole *hole; /* free ranges, sorted, never touching; the last one is endless */
    size_t holes, capacity;
    size_t high;
    struct as_error *error;
};

static size_t value_bytes(const struct as_value *value, const int64_t rows[2])
{
    return as_align_up((size_t)rows[value->rows] * assay_row_bytes(value->dtype, value->columns),
                       ALIGNMENT);
}

/* First fit. Values of a program differ little in size, and first fit keeps low addresses warm. */
static size_t take(struct arena *arena, size_t bytes)
{
    for (size_t i = 0;; i++) {
        struct hole *hole = &arena->hole[i];
        if (hole->end - hole->begin < bytes)
            continue;
        size_t offset = hole->begin;
        hole->begin += bytes;
        if (offset + bytes > arena->high)
            arena->high = offset + bytes;
        if (hole->begin == hole->end)
            memmove(hole, hole + 1, (--arena->holes - i) * sizeof *hole);
        return offset;
    }
}

static int give_back(struct arena *arena, size_t offset, size_t bytes)
{
    int code = as_grow(arena->error, &arena->hole, &arena->capacity, arena->holes,
                       sizeof arena->hole[0], "the arena's map");
    if (code != 0)
        return code;
    size_t i = 0;
    while (arena->hole[i].begin < offset)
        i++;
    memmove(&arena->hole[i + 1], &arena->hole[i], (arena->holes++ - i) * sizeof arena->hole[0]);
    arena->hole[i] = (struct hole){offset, offset + bytes};
    if (arena->hole[i].end == arena->hole[i + 1].begin) {
        arena->hole[i].end = arena->hole[i + 1].end;
        memmove(&arena->hole[i + 1], &arena->hole[i + 2],
                (--arena->holes - i - 1) * sizeof arena->hole[0]);
    }
    if (i > 0 && arena->hole[i - 1].end == arena->hole[i].begin) {
        arena->hole[i - 1].end = arena->hole[i].end;
        memmove(&arena->hole[i], &arena->hole[i + 1], (--arena->holes - i) * sizeof arena->hole[0]);
    }
    return 0;
}

/* The group after which each value is dead: its last reader; never for kept ones. */
static void find_last_use(const struct as_grouping *grouping, size_t *last)
{
    for (size_t g = 0; g < grouping->groups; g++) {
        const struct as_group *group = &grouping->group[g];
        for (int32_t i = 0; i < group->outputs; i++)
            last[group->output[i]] = g;
        for (int32_t i = 0; i < group->externals; i++)
            last[group->external[i]] = g;
    }
    for (size_t v = 0; v < grouping->program->values; v++)
        if (grouping->program->value[v].kept)
            last[v] = SIZE_MAX;
}

static int assign(struct as_grouping *grouping, const int64_t rows[2], struct arena *arena,
                  const size_t *last)
{
    const struct as_program *program = grouping->program;
    grouping->offset[0] = take(arena, value_bytes(&program->value[0], rows));
    for (size_t g = 0; g < grouping->groups; g++) {
        const struct as_group *group = &grouping->group[g];
        for (int32_t i = 0; i < group->outputs; i++)
            grouping->offset[group->output[i]] =
                take(arena, value_bytes(&program->value[group->output[i]], rows));
        for (size_t v = 0; v < program->values; v++) {
            if (last[v] != g || grouping->offset[v] == SIZE_MAX)
                continue;
            int code = give_back(arena, grouping->offset[v], value_bytes(&program->value[v], rows));
            if (code != 0)
                return code;
        }
    }
    return 0;
}

int as_assign_addresses(struct as_grouping *grouping, const int64_t rows[2], struct as_error *error)
{
    size_t values = grouping->program->values;
    struct arena arena = {.error = error};
    size_t *last = as_calloc(error, values, sizeof *last, "the arena's map");
    grouping->offset = as_calloc(error, values, sizeof *grouping->offset, "the arena's map");
    int code = last == NULL || grouping->offset == NULL ? AS_ERR_MEMORY : 0;
    if (code == 0)
        code = as_grow(error, &arena.hole, &arena.capacity, 0, sizeof arena.hole[0],
                       "the arena's map");
    if (code == 0) {
        arena.hole[arena.holes++] = (struct hole){0, SIZE_MAX};
        for (size_t v = 0; v < values; v++) {
            grouping->offset[v] = SIZE_MAX;
            last[v] = SIZE_MAX;
        }
        find_last_use(grouping, last);
        code = assign(grouping, rows, &arena, last);
        grouping->arena_bytes = arena.high;
    }
    free(arena.hole);
    free(last);
    return code;
}
