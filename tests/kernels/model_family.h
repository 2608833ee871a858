/* Tiny models of every family, written as GGUF images: what a family has is a few flags. */
#ifndef MODEL_FAMILY_H
#define MODEL_FAMILY_H

#include "gguf_image.h"

#include "as_random.h"
#include "engine/gguf_writer.h"
#include "engine/quantize.h"
#include "engine/synthetic_vocabulary.h"

enum { F_LAYERS = 2, F_HIDDEN = 64, F_HEADS = 4, F_KV = 2, F_HEAD = 32, F_FFN = 96, F_VOCAB = 260 };

struct family {
    const char *architecture; /* "qwen3" */
    bool qkv_bias, qk_norm, tied;
    const float *freqs;                         /* (F_HEAD / 2), or NULL */
    const char *without;                        /* a tensor that is left out */
    const char *extra;                          /* a vector of F_HIDDEN that is added */
    enum assay_dtype vectors;                   /* F32 where it is 0 */
    void (*put)(struct as_gguf_writer *writer); /* more metadata */
};

struct family_part {
    char name[64];
    size_t rows, columns; /* rows 0: a vector */
};

/* Part `index` of the family in the file's order; false past the end. */
static inline bool family_part(const struct family *family, size_t index, struct family_part *part)
{
    static const struct {
        const char *name;
        size_t rows, columns;
    } roles[] = {
        {"attn_norm.weight", 0, F_HIDDEN},
        {"attn_q.weight", F_HEADS * F_HEAD, F_HIDDEN},
        {"attn_k.weight", F_KV * F_HEAD, F_HIDDEN},
        {"attn_v.weight", F_KV * F_HEAD, F_HIDDEN},
        {"attn_output.weight", F_HIDDEN, F_HEADS * F_HEAD},
        {"ffn_norm.weight", 0, F_HIDDEN},
        {"ffn_gate.weight", F_FFN, F_HIDDEN},
        {"ffn_up.weight", F_FFN, F_HIDDEN},
        {"ffn_down.weight", F_HIDDEN, F_FFN},
        {"attn_q.bias", 0, F_HEADS * F_HEAD},
        {"attn_k.bias", 0, F_KV * F_HEAD},
        {"attn_v.bias", 0, F_KV * F_HEAD},
        {"attn_q_norm.weight", 0, F_HEAD},
        {"attn_k_norm.weight", 0, F_HEAD},
    };
    enum { ROLES = sizeof roles / sizeof roles[0] };
    for (size_t i = 0, kept = 0;; i++) {
        size_t role = i % ROLES, layer = i / ROLES, outer = i - F_LAYERS * ROLES;
        bool present = true;
        if (layer < F_LAYERS) {
            snprintf(part->name, sizeof part->name, "blk.%zu.%s", layer, roles[role].name);
            part->rows = roles[role].rows;
            part->columns = roles[role].columns;
            present = role < 9 || (role < 12 ? family->qkv_bias : family->qk_norm);
        } else {
            const char *names[] = {"token_embd.weight", "output_norm.weight", "output.weight",
                                   "rope_freqs.weight", family->extra};
            if (outer >= 5)
                return false;
            present = outer == 2   ? !family->tied
                      : outer == 3 ? family->freqs != NULL
                      : outer == 4 ? family->extra != NULL
                                   : true;
            snprintf(part->name, sizeof part->name, "%s", present ? names[outer] : "");
            part->rows = outer == 0 || outer == 2 ? F_VOCAB : 0;
            part->columns = outer == 3 ? F_HEAD / 2 : F_HIDDEN;
        }
        present = present && (family->without == NULL || strcmp(part->name, family->without) != 0);
        if (present && kept++ == index)
            return true;
    }
}

/* Element `i` of the part of that name: exact in BF16 (a sign, 7 bits and a small exponent). */
static inline float family_value(const char *name, size_t i)
{
    uint64_t stream = 0;
    for (; *name != '\0'; name++)
        stream = stream * 131 + (uint8_t)*name;
    return (float)((int)(as_random_u64(9, stream, i) % 255) - 127) / 64.0f;
}

static inline enum assay_dtype family_dtype(const struct family *family,
                                            const struct family_part *part)
{
    return part->rows == 0 ? family->vectors : ASSAY_F32;
}

static inline void family_put_metadata(const struct family *family, struct as_gguf_writer *writer)
{
    static const struct {
        const char *name;
        uint32_t value;
    } numbers[] = {{"block_count", F_LAYERS},         {"context_length", 4096},
                   {"embedding_length", F_HIDDEN},    {"feed_forward_length", F_FFN},
                   {"attention.head_count", F_HEADS}, {"attention.head_count_kv", F_KV},
                   {"attention.key_length", F_HEAD},  {"attention.value_length", F_HEAD}};
    char key[96];
    struct as_byte_vocabulary vocabulary;
    as_gguf_put_string(writer, "general.architecture", family->architecture);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        snprintf(key, sizeof key, "%s.%s", family->architecture, numbers[i].name);
        as_gguf_put_u32(writer, key, numbers[i].value);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", family->architecture);
    as_gguf_put_f32(writer, key, 1e-6f);
    snprintf(key, sizeof key, "%s.rope.freq_base", family->architecture);
    as_gguf_put_f32(writer, key, 1e6f);
    cr_assert_eq(as_byte_vocabulary_make(&vocabulary, F_VOCAB, NULL, 0, NULL), 0);
    as_byte_vocabulary_put(&vocabulary, writer, "qwen2");
    as_byte_vocabulary_free(&vocabulary);
    if (family->put != NULL)
        family->put(writer);
}

/* The family's file in memory, freed by the caller. */
static inline void *family_image(const struct family *family, size_t *size)
{
    struct as_gguf_writer *writer = as_gguf_writer_create(32, NULL);
    struct as_error error = {0};
    struct family_part part;
    void *image;
    family_put_metadata(family, writer);
    for (size_t i = 0; family_part(family, i, &part); i++)
        as_gguf_put_tensor(writer, part.name, family_dtype(family, &part), part.columns, part.rows);
    cr_assert_eq(as_gguf_begin(writer, NULL, &error), 0, "%s", error.message);
    for (size_t i = 0; family_part(family, i, &part); i++) {
        enum assay_dtype dtype = family_dtype(family, &part);
        size_t count = (part.rows + (part.rows == 0)) * part.columns;
        float *values = malloc(count * sizeof *values);
        void *stored = malloc(count * sizeof *values);
        for (size_t j = 0; j < count; j++)
            values[j] = strcmp(part.name, "rope_freqs.weight") == 0 ? family->freqs[j]
                                                                    : family_value(part.name, j);
        as_quantize(dtype, values, stored, count);
        size_t bytes = assay_row_bytes(dtype, (int64_t)count);
        cr_assert_eq(as_gguf_append(writer, stored, bytes, &error), 0, "%s", error.message);
        free(values);
        free(stored);
    }
    cr_assert_eq(as_gguf_finish_memory(writer, &image, size, &error), 0, "%s", error.message);
    as_gguf_writer_free(writer);
    return image;
}

/* A tensor that must hold the family's values in F32. */
static inline void family_check(const struct as_tensor *tensor, size_t rows, size_t columns)
{
    cr_assert_not_null(tensor);
    cr_assert(tensor->rows == rows && tensor->columns == columns && tensor->used, "%s",
              tensor->name);
    cr_assert_eq(tensor->dtype, ASSAY_F32, "%s", tensor->name);
    cr_assert_eq(tensor->bytes, rows * columns * 4);
    const float *values = tensor->data;
    for (size_t i = 0; i < rows * columns; i++)
        cr_assert_eq(values[i], family_value(tensor->name, i), "%s [%zu]", tensor->name, i);
}

/* All that the program reads holds what the family says. */
static inline void family_check_model(const struct family *family, const struct as_model *model)
{
    const struct as_model_config *c = &model->config;
    cr_assert(c->layers == F_LAYERS && c->hidden == F_HIDDEN && c->heads == F_HEADS &&
              c->kv_heads == F_KV && c->head_dim == F_HEAD && c->ffn == F_FFN &&
              c->vocab == F_VOCAB && c->rope_dims == F_HEAD);
    cr_assert_eq(c->qkv_bias, family->qkv_bias);
    cr_assert_eq(c->qk_norm, family->qk_norm);
    cr_assert_eq(c->tied_output, family->tied);
    family_check(model->token_embd, F_VOCAB, F_HIDDEN);
    family_check(model->output, F_VOCAB, F_HIDDEN);
    family_check(model->output_norm, 1, F_HIDDEN);
    for (size_t i = 0; i < F_LAYERS; i++) {
        const struct as_model_layer *layer = &model->layers[i];
        family_check(layer->attn_norm, 1, F_HIDDEN);
        family_check(layer->attn_q, F_HEADS * F_HEAD, F_HIDDEN);
        family_check(layer->attn_k, F_KV * F_HEAD, F_HIDDEN);
        family_check(layer->attn_v, F_KV * F_HEAD, F_HIDDEN);
        family_check(layer->attn_output, F_HIDDEN, F_HEADS * F_HEAD);
        family_check(layer->ffn_norm, 1, F_HIDDEN);
        family_check(layer->ffn_gate, F_FFN, F_HIDDEN);
        family_check(layer->ffn_up, F_FFN, F_HIDDEN);
        family_check(layer->ffn_down, F_HIDDEN, F_FFN);
        cr_assert_eq(layer->attn_q_bias != NULL, family->qkv_bias);
        cr_assert_eq(layer->attn_v_bias != NULL, family->qkv_bias);
        cr_assert_eq(layer->attn_q_norm != NULL, family->qk_norm);
        if (family->qkv_bias) {
            family_check(layer->attn_q_bias, 1, F_HEADS * F_HEAD);
            family_check(layer->attn_k_bias, 1, F_KV * F_HEAD);
            family_check(layer->attn_v_bias, 1, F_KV * F_HEAD);
        }
        if (family->qk_norm) {
            family_check(layer->attn_q_norm, 1, F_HEAD);
            family_check(layer->attn_k_norm, 1, F_HEAD);
        }
    }
}

#endif
