/* Cases made from another: one sequence of it, and another step of all of them. */
#include <string.h>

#include "as_memory.h"
#include "check/case.h"

/* Takes everything but what a case computes for itself. */
static void start_from(struct as_case *made, const struct as_case *whole)
{
    *made = *whole;
    made->truth = made->borrows_inputs = made->borrows_weights = made->borrows_cache = false;
    made->sample = NULL;
    made->samples = 0;
    made->cache.new_k = made->cache.new_v = NULL;
    for (int32_t i = 0; i < made->operands; i++)
        made->operand[i].expected = NULL;
}

/* Which rows of an operand belong to sequence `sequence`: [*first, *first + *count). */
static void rows_of_sequence(const struct as_case *whole, const struct as_case_operand *operand,
                             int32_t sequence, int64_t *first, int64_t *count)
{
    const struct as_check_batch *batch = &whole->batch;
    *first = batch->cu_query[sequence];
    *count = batch->cu_query[sequence + 1] - *first;
    if (batch->logit_rows == 0 || operand->rows == batch->tokens)
        return;
    int64_t from = *first, to = *first + *count;
    *first = *count = 0;
    for (int32_t i = 0; i < batch->logit_rows; i++) {
        *first += batch->logit_row[i] < from;
        *count += batch->logit_row[i] >= from && batch->logit_row[i] < to;
    }
}

int as_case_part(struct as_case *part, const struct as_case *whole, int32_t sequence,
                 struct as_error *error)
{
    start_from(part, whole);
    part->borrows_weights = part->borrows_cache = true;
    for (int32_t i = 0; i < part->operands; i++)
        if (part->operand[i].role != AS_CASE_WEIGHT)
            part->operand[i].stored = NULL;
    int code = as_check_batch_part(&part->batch, &whole->batch, sequence, error);
    for (int32_t i = 0; code == 0 && i < part->operands; i++) {
        struct as_case_operand *operand = &part->operand[i];
        int64_t first;
        if (operand->role == AS_CASE_WEIGHT)
            continue;
        rows_of_sequence(whole, &whole->operand[i], sequence, &first, &operand->rows);
        size_t row = assay_row_bytes(operand->dtype, operand->columns);
        if (operand->role == AS_CASE_OUTPUT)
            continue;
        operand->stored = as_calloc_aligned(error, (size_t)operand->rows, row, operand->name);
        if (operand->stored == NULL)
            code = AS_ERR_MEMORY;
        else
            memcpy(operand->stored, (const char *)whole->operand[i].stored + (size_t)first * row,
                   (size_t)operand->rows * row);
    }
    if (code != 0) {
        as_case_free(part);
        return code;
    }
    int64_t tokens = whole->batch.logit_rows > 0 ? part->batch.logit_rows : part->batch.tokens;
    for (int32_t i = 0; i < part->problem.nodes; i++)
        part->problem.node[i].tokens = tokens;
    as_case_set_sizes(part);
    return 0;
}

int as_case_shorter(struct as_case *shorter, const struct as_case *whole, struct as_error *error)
{
    start_from(shorter, whole);
    shorter->borrows_inputs = shorter->borrows_weights = true;
    shorter->cache.k = shorter->cache.v = NULL;
    int code = as_check_batch_shorter(&shorter->batch, &whole->batch, error);
    if (code == 0) {
        as_case_set_sizes(shorter);
        shorter->sample =
            as_calloc(error, (size_t)whole->samples, sizeof *shorter->sample, "a sample of rows");
        code = shorter->sample == NULL ? AS_ERR_MEMORY : 0;
    }
    if (code == 0 && shorter->uses_cache)
        code = as_case_fill_cache(shorter, error);
    if (code == 0) {
        memcpy(shorter->sample, whole->sample, (size_t)whole->samples * sizeof *shorter->sample);
        shorter->samples = whole->samples;
        code = as_case_expect(shorter, error);
    }
    shorter->truth = true;
    if (code != 0)
        as_case_free(shorter);
    return code;
}
