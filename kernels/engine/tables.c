#include <string.h>

#include "as_hash.h"
#include "as_memory.h"
#include "engine/plan.h"

static size_t find_slot(const struct as_tables *tables, const struct assay_problem *problem)
{
    size_t i = as_hash64(problem, sizeof *problem, 0) & (tables->slots - 1);
    while (tables->slot[i] != 0 &&
           memcmp(&tables->problem[tables->slot[i] - 1], problem, sizeof *problem) != 0)
        i = (i + 1) & (tables->slots - 1);
    return i;
}

static int grow_slots(struct as_tables *tables, struct as_error *error)
{
    size_t slots = tables->slots == 0 ? 256 : tables->slots * 2;
    uint32_t *slot = as_calloc(error, slots, sizeof *slot, "the table of problems");
    if (slot == NULL)
        return AS_ERR_MEMORY;
    free(tables->slot);
    tables->slot = slot;
    tables->slots = slots;
    for (size_t p = 0; p < tables->problems; p++)
        slot[find_slot(tables, &tables->problem[p])] = (uint32_t)p + 1;
    return 0;
}

int as_tables_problem(struct as_tables *tables, const struct assay_problem *problem, int32_t *index,
                      struct as_error *error)
{
    int code = 0;
    if (tables->problems * 2 >= tables->slots && (code = grow_slots(tables, error)) != 0)
        return code;
    size_t slot = find_slot(tables, problem);
    if (tables->slot[slot] == 0) {
        code = as_grow(error, &tables->problem, &tables->problem_capacity, tables->problems,
                       sizeof tables->problem[0], "the table of problems");
        if (code != 0)
            return code;
        memcpy(&tables->problem[tables->problems++], problem, sizeof *problem);
        tables->slot[slot] = (uint32_t)tables->problems;
    }
    *index = (int32_t)tables->slot[slot] - 1;
    return 0;
}

int as_tables_variant(struct as_tables *tables, const struct assay_variant *variant, int32_t *index,
                      struct as_error *error)
{
    for (size_t i = 0; i < tables->variants; i++) {
        if (tables->variant[i] == variant) {
            *index = (int32_t)i;
            return 0;
        }
    }
    int code = as_grow(error, &tables->variant, &tables->variant_capacity, tables->variants,
                       sizeof tables->variant[0], "the table of variants");
    if (code != 0)
        return code;
    *index = (int32_t)tables->variants;
    tables->variant[tables->variants++] = variant;
    return 0;
}

void as_tables_free(struct as_tables *tables)
{
    free(tables->problem);
    free(tables->variant);
    free(tables->slot);
    *tables = (struct as_tables){0};
}
