#include "engine/weights.h"

#include <string.h>

#include "as_memory.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/team.h"

struct packed {
    const void *stored;
    const char *layout;
    void *data;
};

struct as_weights {
    struct assay_device *device;
    struct as_counters *counters;
    struct packed *packed;
    size_t count, capacity;
};

int as_weights_create(struct assay_device *device, struct as_counters *counters,
                      struct as_weights **weights, struct as_error *error)
{
    *weights = as_calloc(error, 1, sizeof **weights, "packed weights");
    if (*weights == NULL)
        return AS_ERR_MEMORY;
    (*weights)->device = device;
    (*weights)->counters = counters;
    return 0;
}

void as_weights_free(struct as_weights *weights)
{
    if (weights == NULL)
        return;
    for (size_t i = 0; i < weights->count; i++)
        weights->device->free(weights->device, weights->packed[i].data);
    free(weights->packed);
    free(weights);
}

struct packing {
    const struct assay_variant *variant;
    const struct as_tensor *tensor;
    void *packed;
};

static void pack_share(void *context, const struct assay_exec *exec)
{
    const struct packing *packing = context;
    const struct as_tensor *tensor = packing->tensor;
    int64_t begin, end;
    assay_share(exec, (int64_t)tensor->rows, 64, &begin, &end);
    if (begin < end)
        packing->variant->pack(packing->packed, tensor->data, tensor->dtype, (int64_t)tensor->rows,
                               (int64_t)tensor->columns, begin, end);
}

static int pack(struct as_weights *weights, const struct as_tensor *tensor,
                const struct assay_variant *variant, const char *layout, void **data,
                struct as_error *error)
{
    size_t bytes =
        variant->packed_size(tensor->dtype, (int64_t)tensor->rows, (int64_t)tensor->columns);
    int code = as_grow(error, &weights->packed, &weights->capacity, weights->count,
                       sizeof weights->packed[0], "packed weights");
    if (code != 0)
        return code;
    *data = weights->device->alloc(weights->device, bytes, error);
    if (*data == NULL)
        return as_error_prefix(error, "packing %s into layout %s", tensor->name, layout);
    struct packing packing = {.variant = variant, .tensor = tensor, .packed = *data};
    as_team_run(as_cpu_device_team(weights->device), pack_share, &packing);
    weights->packed[weights->count++] =
        (struct packed){.stored = tensor->data, .layout = layout, .data = *data};
    weights->counters->packed_tensors++;
    weights->counters->packed_bytes += bytes;
    return 0;
}

int as_weights_operand(struct as_weights *weights, const struct as_tensor *tensor,
                       const struct assay_variant *variant, const struct assay_problem *problem,
                       int32_t node, struct assay_operand *operand, struct as_error *error)
{
    *operand = (struct assay_operand){.data = (void *)(uintptr_t)tensor->data,
                                      .dtype = tensor->dtype,
                                      .rows = (int64_t)tensor->rows,
                                      .columns = (int64_t)tensor->columns,
                                      .stride = (int64_t)tensor->columns};
    const char *layout =
        variant->weight_layout == NULL ? NULL : variant->weight_layout(problem, node);
    if (layout == NULL)
        return 0;
    for (size_t i = 0; i < weights->count; i++) {
        if (weights->packed[i].stored == tensor->data &&
            strcmp(weights->packed[i].layout, layout) == 0) {
            operand->data = weights->packed[i].data;
            return 0;
        }
    }
    return pack(weights, tensor, variant, layout, &operand->data, error);
}
