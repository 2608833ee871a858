#include "strategies/fields.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "as_text.h"

#define WORD_END      \
    {                 \
        NULL, 0, NULL \
    }

static const struct as_word backends[] = {
    {"cpu", ASSAY_CPU, NULL}, {"cuda", ASSAY_CUDA, "this build has no CUDA backend"}, WORD_END};

static const struct as_word executions[] = {
    {"eager", AS_EAGER, NULL},
    {"captured", AS_CAPTURED, "this build runs eager steps only"},
    WORD_END};

static const struct as_word metadata_modes[] = {
    {"per_step", AS_METADATA_PER_STEP, NULL},
    {"per_layer", AS_METADATA_PER_LAYER, "this build makes metadata per step only"},
    {"cached", AS_METADATA_CACHED, "this build makes metadata per step only"},
    WORD_END};

static const struct as_word layouts[] = {
    {"packed", AS_LAYOUT_PACKED, NULL},
    {"padded", AS_LAYOUT_PADDED, "this build packs its batches only"},
    WORD_END};

static const struct as_word batchings[] = {
    {"continuous", AS_BATCH_CONTINUOUS, NULL},
    {"static", AS_BATCH_STATIC, "this build batches continuously only"},
    {"dynamic", AS_BATCH_DYNAMIC, "this build batches continuously only"},
    WORD_END};

static const struct as_word weight_dtypes[] = {
    {"file", ASSAY_NONE, NULL},
    {"f32", ASSAY_F32, "this build runs weights as the file stores them"},
    {"bf16", ASSAY_BF16, "this build runs weights as the file stores them"},
    {"q8_0", ASSAY_Q8_0, "this build runs weights as the file stores them"},
    {"q4_0", ASSAY_Q4_0, "this build runs weights as the file stores them"},
    {"q4_1", ASSAY_Q4_1, "this build runs weights as the file stores them"},
    WORD_END};

static const struct as_word activation_classes[] = {
    {"f32", ASSAY_F32, NULL},
    {"bf16", ASSAY_BF16, "no CPU variant of this build takes bf16 activations"},
    {"q8", ASSAY_Q8, NULL},
    WORD_END};

static const struct as_word kv_dtypes[] = {{"f32", ASSAY_F32, NULL},
                                           {"f16", ASSAY_F16, "this build's cache is f32"},
                                           {"bf16", ASSAY_BF16, "this build's cache is f32"},
                                           {"q8_0", ASSAY_Q8_0, "this build's cache is f32"},
                                           WORD_END};

static const struct as_word preprocess_modes[] = {
    {"inline", AS_PREPROCESS_INLINE, NULL}, {"async", AS_PREPROCESS_ASYNC, NULL}, WORD_END};

#define WORD(field, words_, initial_)                                                      \
    {                                                                                      \
#field, AS_FIELD_WORD, offsetof(struct as_strategy, field), words_, 0, 0, initial_ \
    }
#define NUMBER(field, low_, high_, initial_)                                                      \
    {                                                                                             \
#field, AS_FIELD_NUMBER, offsetof(struct as_strategy, field), NULL, low_, high_, initial_ \
    }

const struct as_strategy_field as_strategy_fields[] = {
    {"question", AS_FIELD_TEXT, offsetof(struct as_strategy, question), NULL, 0, 0, 0},
    WORD(backend, backends, ASSAY_CPU),
    WORD(execution, executions, AS_EAGER),
    WORD(metadata, metadata_modes, AS_METADATA_PER_STEP),
    WORD(layout, layouts, AS_LAYOUT_PACKED),
    WORD(batching, batchings, AS_BATCH_CONTINUOUS),
    NUMBER(max_batch_size, 1, 1024, 16),
    NUMBER(max_batch_tokens, 1, 65536, 512),
    NUMBER(chunk_tokens, 1, 65536, 512),
    WORD(weights, weight_dtypes, ASSAY_NONE),
    WORD(activations, activation_classes, ASSAY_F32),
    WORD(kv, kv_dtypes, ASSAY_F32),
    NUMBER(block_size, 1, 4096, 16),
    NUMBER(kv_blocks, 0, INT32_MAX, 0),
    NUMBER(context, 0, 1 << 24, 0),
    WORD(preprocess, preprocess_modes, AS_PREPROCESS_ASYNC),
    NUMBER(preprocess_threads, 1, 64, 1),
    NUMBER(preprocess_queue, 1, 65536, 64),
    NUMBER(threads, 0, 256, 0),
    {"affinity", AS_FIELD_LIST, offsetof(struct as_strategy, affinity), NULL, 0, 4095, 0},
};

const size_t as_strategy_field_count = sizeof as_strategy_fields / sizeof as_strategy_fields[0];

/* Fields of the strategy space that came with what this build lacks. */
static const struct {
    const char *name, *reason;
} unserved[] = {
    {"buckets", "this build runs eager steps only"},
    {"batch_timeout_ms", "this build batches continuously only"},
    {"prefix_sharing", "this build shares no cache blocks between requests"},
    {"hugepages", "this build asks for no huge pages"},
    {"cache_size_limit", "this build caches no metadata"},
    {"cache_device", "this build caches no metadata"},
    {"preprocess_cache", "this build's text stage keeps no cache"},
    {"tensor_parallel_degree", "this build runs on one device"},
    {"pipeline_parallel_degree", "this build runs on one device"},
};

const char *as_strategy_unserved(const char *name)
{
    for (size_t i = 0; i < sizeof unserved / sizeof unserved[0]; i++)
        if (strcmp(unserved[i].name, name) == 0)
            return unserved[i].reason;
    return NULL;
}

const struct as_strategy_field *as_strategy_field(const char *name)
{
    for (size_t i = 0; i < as_strategy_field_count; i++)
        if (strcmp(as_strategy_fields[i].name, name) == 0)
            return &as_strategy_fields[i];
    return NULL;
}

static int set_word(int32_t *to, const struct as_strategy_field *field, const char *value,
                    const char *where, struct as_error *error)
{
    struct as_text served = {0};
    for (const struct as_word *word = field->words; word->word != NULL; word++) {
        if (strcmp(word->word, value) == 0 && word->refused == NULL) {
            *to = word->value;
            as_text_free(&served);
            return 0;
        }
        if (strcmp(word->word, value) == 0) {
            as_text_free(&served);
            return as_fail(error, AS_ERR_UNSUPPORTED, "%s: %s: %s is not served: %s", where,
                           field->name, value, word->refused);
        }
        if (word->refused == NULL)
            as_text_addf(&served, "%s%s", served.length == 0 ? "" : ", ", word->word);
    }
    as_fail(error, AS_ERR_USAGE, "%s: %s cannot be \"%s\"; it is one of %s", where, field->name,
            value, served.data == NULL ? "?" : served.data);
    as_text_free(&served);
    return AS_ERR_USAGE;
}

static int parse_number(const char *value, int32_t low, int32_t high, int32_t *number)
{
    char *end;
    errno = 0;
    long parsed = strtol(value, &end, 10);
    if (errno != 0 || end == value || *end != '\0' || parsed < low || parsed > high)
        return AS_ERR_USAGE;
    *number = (int32_t)parsed;
    return 0;
}

static int set_list(struct as_strategy *strategy, const char *value, const char *where,
                    struct as_error *error)
{
    strategy->affinity_count = 0;
    char copy[2048], *rest = copy; /* 256 numbers of four digits, ", " between them */
    if (strlen(value) >= sizeof copy)
        return as_fail(error, AS_ERR_USAGE, "%s: affinity: the list is too long for 256 CPUs",
                       where);
    snprintf(copy, sizeof copy, "%s", value);
    for (char *item; (item = strtok_r(rest, ", ", &rest)) != NULL;) {
        if (strategy->affinity_count == 256 ||
            parse_number(item, 0, 4095, &strategy->affinity[strategy->affinity_count]) != 0)
            return as_fail(error, AS_ERR_USAGE,
                           "%s: affinity: \"%s\" is no CPU number (0 to 4095, at most 256 of them)",
                           where, item);
        strategy->affinity_count++;
    }
    return 0;
}

int as_strategy_set(struct as_strategy *strategy, const struct as_strategy_field *field,
                    const char *value, const char *where, struct as_error *error)
{
    void *to = (char *)strategy + field->offset;
    switch (field->kind) {
    case AS_FIELD_WORD: return set_word(to, field, value, where, error);
    case AS_FIELD_TEXT: snprintf(to, sizeof strategy->question, "%s", value); return 0;
    case AS_FIELD_LIST: return set_list(strategy, value, where, error);
    case AS_FIELD_NUMBER:
        if (parse_number(value, field->low, field->high, to) == 0)
            return 0;
        return as_fail(error, AS_ERR_USAGE,
                       "%s: %s must be a whole number from %d to %d, not \"%s\"", where,
                       field->name, (int)field->low, (int)field->high, value);
    }
    return as_fail(error, AS_ERR_INTERNAL, "%s: %s has no kind", where, field->name);
}

static struct as_kernel_choice *find_choice(struct as_strategy *strategy, const char *name)
{
    for (int32_t i = 0; i < strategy->choices; i++)
        if (strcmp(strategy->choice[i].name, name) == 0)
            return &strategy->choice[i];
    return NULL;
}

int as_strategy_set_kernel(struct as_strategy *strategy, const char *name, const char *variants,
                           int32_t line, const char *where, struct as_error *error)
{
    struct as_kernel_choice made = {.line = line};
    char copy[sizeof made.variant + AS_MAX_ALTERNATIVES], *rest = copy;
    if (strlen(name) >= sizeof made.name || strlen(variants) >= sizeof copy)
        return as_fail(error, AS_ERR_USAGE, "%s: the kernels of %.60s are too long to be names",
                       where, name);
    snprintf(made.name, sizeof made.name, "%s", name);
    snprintf(copy, sizeof copy, "%s", variants);
    for (char *item; (item = strtok_r(rest, ", ", &rest)) != NULL;) {
        if (made.variants == AS_MAX_ALTERNATIVES || strlen(item) >= sizeof made.variant[0])
            return as_fail(error, AS_ERR_USAGE,
                           "%s: %s lists more than %d variants, or one with too long a name", where,
                           name, AS_MAX_ALTERNATIVES);
        snprintf(made.variant[made.variants++], sizeof made.variant[0], "%s", item);
    }
    struct as_kernel_choice *old = find_choice(strategy, name);
    if (made.variants == 0) {
        if (old == NULL)
            return as_fail(error, AS_ERR_USAGE, "%s: kernels: %s has no variants", where, name);
        memmove(old, old + 1, (size_t)(&strategy->choice[--strategy->choices] - old) * sizeof *old);
        return 0;
    }
    if (old == NULL && strategy->choices == AS_MAX_CHOICES)
        return as_fail(error, AS_ERR_USAGE, "%s: more than %d entries in kernels", where,
                       AS_MAX_CHOICES);
    if (old == NULL)
        old = &strategy->choice[strategy->choices++];
    *old = made;
    return 0;
}
