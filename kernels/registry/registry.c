#include "registry/registry.h"

#include <stdio.h>
#include <string.h>

#include "as_memory.h"
#include "as_text.h"

struct as_registry {
    struct as_registry_entry *entries;
    size_t count, capacity;
};

const struct assay_op_info *assay_op(enum assay_op op)
{
    for (size_t i = 0; as_builtin_ops[i] != NULL; i++)
        if (as_builtin_ops[i]->op == op)
            return as_builtin_ops[i];
    return NULL;
}

enum assay_op as_op_by_name(const char *name)
{
    for (size_t i = 0; as_builtin_ops[i] != NULL; i++)
        if (strcmp(as_builtin_ops[i]->name, name) == 0)
            return as_builtin_ops[i]->op;
    return ASSAY_OPS;
}

static const struct assay_variant *lookup(const struct as_registry *registry, const char *name)
{
    for (size_t i = 0; i < registry->count; i++)
        if (strcmp(registry->entries[i].variant->name, name) == 0)
            return registry->entries[i].variant;
    return NULL;
}

/* A launch has room for so many operands and nodes, and a plugin's cover is not to be trusted. */
static int check_cover(const struct assay_variant *variant, struct as_error *error)
{
    const struct assay_cover *cover = variant->cover;
    if (cover == NULL)
        return 0;
    bool fits = cover->nodes >= 1 && cover->nodes <= ASSAY_MAX_COVER && cover->outputs >= 0 &&
                cover->outputs <= cover->nodes && cover->externals >= 0 &&
                cover->externals <= ASSAY_MAX_OPERANDS;
    int32_t operands = cover->externals + cover->outputs;
    for (int32_t i = 0; fits && i < cover->outputs; i++)
        fits = cover->output[i] >= 0 && cover->output[i] < cover->nodes;
    for (int32_t i = 0; fits && i < cover->nodes; i++) {
        const struct assay_op_info *info = assay_op(cover->node[i].op);
        fits = info != NULL;
        operands += fits ? info->weights : 0;
        for (int32_t j = 0; fits && j < info->inputs; j++) {
            int32_t input = cover->node[i].input[j];
            fits = (input >= 0 && input < i) ||
                   (input >= ASSAY_EXTERNAL(0) && input < ASSAY_EXTERNAL(cover->externals));
        }
    }
    if (fits && operands <= ASSAY_MAX_OPERANDS)
        return 0;
    return as_fail(error, AS_ERR_USAGE,
                   "variant %s: its cover has a node, an input or an output that cannot be, or "
                   "more than %d operands",
                   variant->name, ASSAY_MAX_OPERANDS);
}

int as_registry_add(struct as_registry *registry, const struct assay_variant *variant,
                    const char *plugin, struct as_error *error)
{
    if (lookup(registry, variant->name) != NULL)
        return as_fail(error, AS_ERR_USAGE, "two variants are named %s; rename the one in %s",
                       variant->name, plugin == NULL ? "kernels/ops" : plugin);
    int code = check_cover(variant, error);
    if (code == 0)
        code = as_grow(error, &registry->entries, &registry->capacity, registry->count,
                       sizeof registry->entries[0], "the table of variants");
    if (code != 0)
        return code;
    registry->entries[registry->count++] =
        (struct as_registry_entry){.variant = variant, .plugin = plugin};
    return 0;
}

int as_registry_create(struct as_registry **registry, struct as_error *error)
{
    *registry = as_calloc(error, 1, sizeof **registry, "the table of variants");
    if (*registry == NULL)
        return AS_ERR_MEMORY;
    for (size_t i = 0; as_builtin_variants[i] != NULL; i++) {
        int code = as_registry_add(*registry, as_builtin_variants[i], NULL, error);
        if (code != 0) {
            as_registry_free(*registry);
            *registry = NULL;
            return code;
        }
    }
    return 0;
}

void as_registry_free(struct as_registry *registry)
{
    if (registry == NULL)
        return;
    free(registry->entries);
    free(registry);
}

const struct as_registry_entry *as_registry_entries(const struct as_registry *registry,
                                                    size_t *count)
{
    *count = registry->count;
    return registry->entries;
}

const struct assay_variant *as_registry_find(const struct as_registry *registry, const char *name,
                                             struct as_error *error)
{
    const struct assay_variant *found = lookup(registry, name);
    if (found != NULL)
        return found;
    const char **names = as_calloc(error, registry->count, sizeof *names, "names of variants");
    if (names == NULL)
        return NULL;
    for (size_t i = 0; i < registry->count; i++)
        names[i] = registry->entries[i].variant->name;
    const char *nearest = as_nearest(name, names, registry->count);
    as_fail(error, AS_ERR_USAGE, "there is no variant %s%s%s%s; `assay kernels` lists them all",
            name, nearest == NULL ? "" : " (did you mean ", nearest == NULL ? "" : nearest,
            nearest == NULL ? "" : "?)");
    free(names);
    return NULL;
}

const struct assay_cover *as_registry_cover(const struct as_registry *registry, const char *name)
{
    for (size_t i = 0; i < registry->count; i++) {
        const struct assay_cover *cover = registry->entries[i].variant->cover;
        if (cover != NULL && strcmp(cover->name, name) == 0)
            return cover;
    }
    return NULL;
}

bool as_variant_runs_here(const struct assay_variant *variant, const struct assay_device *device,
                          char *why, size_t why_size)
{
    static const struct {
        uint32_t bit;
        const char *name;
    } features[] = {{ASSAY_CPU_AVX2, "AVX2 with FMA and F16C"},
                    {ASSAY_CPU_AVX512, "AVX-512 (F, BW, DQ, VL)"},
                    {ASSAY_CPU_VNNI, "AVX-512 VNNI"},
                    {ASSAY_CPU_BF16, "AVX-512 BF16"}};
    if (variant->backend != device->backend) {
        snprintf(why, why_size, "made for the %s backend, the device is %s",
                 variant->backend == ASSAY_CPU ? "cpu" : "cuda", device->name);
        return false;
    }
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++) {
        if ((variant->features & features[i].bit) != 0 &&
            (device->features & features[i].bit) == 0) {
            snprintf(why, why_size, "needs %s, which %s lacks", features[i].name, device->name);
            return false;
        }
    }
    return true;
}

static bool dtype_served(uint32_t mask, enum assay_dtype dtype, const char *role, char *why,
                         size_t why_size)
{
    if (mask == 0 || dtype == ASSAY_NONE || (mask & ASSAY_BIT(dtype)) != 0)
        return true;
    snprintf(why, why_size, "does not serve %s in %s", role, assay_dtype(dtype)->name);
    return false;
}

bool as_variant_supports(const struct assay_variant *variant, const struct assay_device *device,
                         const struct assay_problem *problem, char *why, size_t why_size)
{
    if (!as_variant_runs_here(variant, device, why, why_size))
        return false;
    if (variant->cover != problem->cover ||
        (variant->cover == NULL && variant->op != problem->node[0].op)) {
        snprintf(why, why_size, "is made for %s",
                 variant->cover != NULL ? variant->cover->name : assay_op(variant->op)->name);
        return false;
    }
    for (int32_t i = 0; i < problem->nodes; i++) {
        const struct assay_shape *shape = &problem->node[i];
        if (!dtype_served(variant->weights, shape->weights, "weights", why, why_size) ||
            !dtype_served(variant->activations, shape->activations, "activations", why, why_size) ||
            !dtype_served(variant->kv, shape->kv, "a cache", why, why_size))
            return false;
    }
    return variant->supports == NULL || variant->supports(device, problem, why, why_size);
}
