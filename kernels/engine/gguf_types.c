/* The tables of GGUF: value types and tensor types. */
#include "gguf.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    size_t size;
} value_types[AS_GGUF_VALUE_TYPES] = {
    [AS_GGUF_U8] = {"u8", 1},       [AS_GGUF_I8] = {"i8", 1},     [AS_GGUF_U16] = {"u16", 2},
    [AS_GGUF_I16] = {"i16", 2},     [AS_GGUF_U32] = {"u32", 4},   [AS_GGUF_I32] = {"i32", 4},
    [AS_GGUF_F32] = {"f32", 4},     [AS_GGUF_BOOL] = {"bool", 1}, [AS_GGUF_STRING] = {"string", 0},
    [AS_GGUF_ARRAY] = {"array", 0}, [AS_GGUF_U64] = {"u64", 8},   [AS_GGUF_I64] = {"i64", 8},
    [AS_GGUF_F64] = {"f64", 8},
};

const char *as_gguf_value_name(uint32_t type)
{
    return type < AS_GGUF_VALUE_TYPES ? value_types[type].name : "?";
}

size_t as_gguf_value_size(uint32_t type)
{
    return type < AS_GGUF_VALUE_TYPES ? value_types[type].size : 0;
}

/* Ids, block sizes and bytes are those of ggml.h and ggml-common.h. The ids that are missing were
 * withdrawn by ggml (4, 5, 31 to 33, 36 to 38).
 *
 * Served = the reader accepts it in a tensor that the program uses, and as_dequantize() decodes it.
 * Whether a kernel variant takes it is the planner's question: a strategy none of whose variants
 * does is refused with their reasons. So linear/cpu_naive and embedding/cpu_naive must accept every
 * served type before models of that type run. */
static const struct as_gguf_type types[] = {
    {0, "F32", 1, 4, ASSAY_F32, true},           {1, "F16", 1, 2, ASSAY_F16, true},
    {2, "Q4_0", 32, 18, ASSAY_Q4_0, true},       {3, "Q4_1", 32, 20, ASSAY_Q4_1, true},
    {6, "Q5_0", 32, 22, ASSAY_Q5_0, true},       {7, "Q5_1", 32, 24, ASSAY_Q5_1, true},
    {8, "Q8_0", 32, 34, ASSAY_Q8_0, true},       {9, "Q8_1", 32, 36, ASSAY_NONE, false},
    {10, "Q2_K", 256, 84, ASSAY_NONE, false},    {11, "Q3_K", 256, 110, ASSAY_NONE, false},
    {12, "Q4_K", 256, 144, ASSAY_Q4_K, true},    {13, "Q5_K", 256, 176, ASSAY_Q5_K, true},
    {14, "Q6_K", 256, 210, ASSAY_Q6_K, true},    {15, "Q8_K", 256, 292, ASSAY_NONE, false},
    {16, "IQ2_XXS", 256, 66, ASSAY_NONE, false}, {17, "IQ2_XS", 256, 74, ASSAY_NONE, false},
    {18, "IQ3_XXS", 256, 98, ASSAY_NONE, false}, {19, "IQ1_S", 256, 50, ASSAY_NONE, false},
    {20, "IQ4_NL", 32, 18, ASSAY_NONE, false},   {21, "IQ3_S", 256, 110, ASSAY_NONE, false},
    {22, "IQ2_S", 256, 82, ASSAY_NONE, false},   {23, "IQ4_XS", 256, 136, ASSAY_NONE, false},
    {24, "I8", 1, 1, ASSAY_NONE, false},         {25, "I16", 1, 2, ASSAY_NONE, false},
    {26, "I32", 1, 4, ASSAY_I32, false},         {27, "I64", 1, 8, ASSAY_NONE, false},
    {28, "F64", 1, 8, ASSAY_NONE, false},        {29, "IQ1_M", 256, 56, ASSAY_NONE, false},
    {30, "BF16", 1, 2, ASSAY_BF16, true},        {34, "TQ1_0", 256, 54, ASSAY_NONE, false},
    {35, "TQ2_0", 256, 66, ASSAY_NONE, false},   {39, "MXFP4", 32, 17, ASSAY_NONE, false},
    {40, "NVFP4", 64, 36, ASSAY_NONE, false},    {41, "Q1_0", 128, 18, ASSAY_NONE, false},
    {42, "Q2_0", 64, 18, ASSAY_NONE, false},
};

#define TYPE_COUNT (sizeof types / sizeof types[0])

const struct as_gguf_type *as_gguf_type(uint32_t id)
{
    for (size_t i = 0; i < TYPE_COUNT; i++)
        if (types[i].id == id)
            return &types[i];
    return NULL;
}

const struct as_gguf_type *as_gguf_type_of(enum assay_dtype dtype)
{
    for (size_t i = 0; i < TYPE_COUNT && dtype != ASSAY_NONE; i++)
        if (types[i].dtype == dtype)
            return &types[i];
    return NULL;
}

void as_gguf_served(char *text, size_t size)
{
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < TYPE_COUNT && length < size; i++) {
        if (!types[i].served)
            continue;
        int more =
            snprintf(text + length, size - length, "%s%s", length > 0 ? ", " : "", types[i].name);
        length += more > 0 ? (size_t)more : 0;
    }
}

const char *as_gguf_quote(char out[80], struct as_bytes name)
{
    size_t length = name.length < 76 ? name.length : 76;
    for (size_t i = 0; i < length; i++)
        out[i] = name.bytes[i] >= ' ' && name.bytes[i] <= '~' ? name.bytes[i] : '?';
    strcpy(out + length, length < name.length ? "..." : "");
    return out;
}
