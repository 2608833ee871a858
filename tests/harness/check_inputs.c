/* What the checker feeds to kernels: stored values of a sensible size in every dtype, and batches
 * that are what they say. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check/batch.h"
#include "check/guarded.h"
#include "check/values.h"
#include "reference.h"

Test(check_inputs, values_are_about_one)
{
    enum { COUNT = 64 * 1024 };
    static uint8_t stored[4 * COUNT];
    static double values[COUNT];
    for (int dtype = ASSAY_F32; dtype <= ASSAY_Q6_K; dtype++) {
        double squares = 0, sum = 0;
        int64_t zeros = 0;
        as_values_stored((enum assay_dtype)dtype, stored, COUNT, 5);
        cr_assert_eq(as_ref_dequantize(dtype, stored, values, COUNT), 0);
        for (int64_t i = 0; i < COUNT; i++) {
            cr_assert(isfinite(values[i]), "%s", as_ref_dtype_name(dtype));
            squares += values[i] * values[i];
            sum += values[i];
            zeros += values[i] == 0;
        }
        double rms = sqrt(squares / COUNT);
        cr_assert(rms > 0.8 && rms < 1.4, "%s: %g", as_ref_dtype_name(dtype), rms);
        cr_assert(fabs(sum / COUNT) < 0.1, "%s: mean %g", as_ref_dtype_name(dtype), sum / COUNT);
        cr_assert(zeros < COUNT / 10, "%s: %d zeros", as_ref_dtype_name(dtype), (int)zeros);
    }
}

Test(check_inputs, poison_is_nan_in_every_form)
{
    uint8_t bytes[4096 + 8];
    double value[32];
    for (size_t position = 0; position < 4096; position += 2) {
        as_poison(bytes, 36, position);
        static const int dtypes[] = {AS_REF_F32, AS_REF_F16, AS_REF_BF16};
        for (int i = 0; i < 3; i++) {
            as_ref_dequantize(dtypes[i], bytes, value, 1);
            cr_assert(isnan(value[0]), "%s at %zu", as_ref_dtype_name(dtypes[i]), position);
        }
        as_ref_dequantize(AS_REF_Q8_0, bytes, value, 32);
        cr_assert(isnan(value[0]) && isnan(value[31]), "q8_0 at %zu", position);
        int32_t number;
        memcpy(&number, bytes, sizeof number);
        cr_assert(number > 1 << 30);
    }
}

static void check_tokens(const struct as_check_batch *b, const struct as_check_batch_options *o)
{
    int32_t real = b->cu_query[b->sequences];
    cr_assert_eq(b->tokens, o->tokens);
    cr_assert(real <= b->tokens && (o->oddities || real == b->tokens));
    for (int32_t t = real; t < b->tokens; t++)
        cr_assert(b->token_sequence[t] == -1 && b->slots[t] == -1);
    for (int32_t s = 0; s < b->sequences; s++) {
        int32_t queries = b->cu_query[s + 1] - b->cu_query[s];
        cr_assert(queries >= 0 && queries <= b->max_query);
        cr_assert(b->context[s] >= queries || b->context[s] == 0);
        for (int32_t i = 0; i < queries; i++) {
            int32_t t = b->cu_query[s] + i, wanted = b->context[s] - queries + i;
            cr_assert_eq(b->token_sequence[t], s);
            cr_assert_eq(b->positions[t], wanted < 0 ? 0 : wanted);
            cr_assert_eq(b->slots[t] < 0, b->context[s] == 0);
        }
    }
}

/* Blocks lie in the pool, the dead one in no table, and no two tokens share a slot. */
static void check_blocks(const struct as_check_batch *b)
{
    char *owner = calloc((size_t)(b->blocks * b->block_size), 1);
    for (int32_t s = 0; s < b->sequences; s++)
        for (int32_t i = 0; i < b->table_stride; i++) {
            int32_t block = b->block_table[(int64_t)s * b->table_stride + i];
            bool live = (int64_t)i * b->block_size < b->context[s];
            cr_assert(live ? block >= 0 && block < b->blocks : block == -1);
            cr_assert_neq(block, b->dead_block);
        }
    for (int32_t t = 0; t < b->tokens; t++) {
        if (b->slots[t] < 0)
            continue;
        cr_assert(b->slots[t] < b->blocks * b->block_size);
        cr_assert(owner[b->slots[t]]++ == 0, "two tokens in slot %d", (int)b->slots[t]);
        int32_t s = b->token_sequence[t], p = b->positions[t];
        cr_assert_eq(b->block_table[(int64_t)s * b->table_stride + p / b->block_size],
                     b->slots[t] / b->block_size);
    }
    free(owner);
}

static void check_one(const struct as_check_batch_options *o)
{
    struct as_check_batch batch, part, shorter;
    struct as_error error = {0};
    cr_assert_eq(as_check_batch_make(&batch, o, &error), 0, "%s", error.message);
    check_tokens(&batch, o);
    check_blocks(&batch);
    if (o->context > 0 && batch.sequences > 0)
        cr_assert_eq(batch.max_context, o->context);
    cr_assert(batch.max_context <= (o->context >= 0 ? o->context : batch.tokens + 40));
    for (int32_t i = 0; i < batch.logit_rows; i++)
        cr_assert(batch.logit_row[i] >= (i > 0 ? batch.logit_row[i - 1] + 1 : 0) &&
                  batch.logit_row[i] < batch.tokens);
    for (int32_t s = 0; s < batch.sequences; s++) {
        cr_assert_eq(as_check_batch_part(&part, &batch, s, &error), 0);
        cr_assert_eq(part.cu_query[1], batch.cu_query[s + 1] - batch.cu_query[s]);
        check_blocks(&part);
        as_check_batch_free(&part);
    }
    cr_assert_eq(as_check_batch_shorter(&shorter, &batch, &error), 0);
    check_tokens(&shorter, o);
    check_blocks(&shorter);
    as_check_batch_free(&shorter);
    as_check_batch_free(&batch);
}

Test(check_inputs, batches_are_what_they_say, .timeout = 60)
{
    for (uint64_t seed = 0; seed < 3000; seed++) {
        struct as_check_batch_options o = {.seed = seed};
        o.tokens = as_value_below(seed, 1000, 60);
        o.context = as_value_below(seed, 1001, 3) == 0 ? -1 : as_value_below(seed, 1002, 90);
        o.sequences = as_value_below(seed, 1003, 2) * as_value_below(seed, 1004, 9);
        o.block_size = (int32_t)(1 + as_value_below(seed, 1005, 17));
        o.oddities = as_value_below(seed, 1006, 2) == 1;
        o.kv_tokens = as_value_below(seed, 1007, 2) * 100;
        o.logit_rows = o.tokens == 0 ? 0 : as_value_below(seed, 1008, o.tokens);
        check_one(&o);
    }
}
