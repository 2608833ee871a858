#include "synthetic.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "as_file.h"
#include "as_memory.h"
#include "as_random.h"
#include "as_text.h"
#include "gguf.h"
#include "gguf_writer.h"
#include "quantize.h"
#include "synthetic_vocabulary.h"

/* Raised whenever the same specification gives other bytes: older files in the cache are then
 * written anew. */
#define GENERATOR "1"
#define GENERATOR_KEY "assay.synthetic"

/* SmolLM2's template, byte for byte, so that the text stage knows it by its digest. */
static const char chat_template[] =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + "
    "'<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}";

/* Sizes of SmolLM2-135M, Llama-3.2-1B and Llama-3-8B; all rows are multiples of 32. */
static const struct as_synthetic shapes[] = {
    {"tiny", 4, 128, 4, 2, 32, 256, 512, 4096, 10000.0f, false, ASSAY_F32, 0},
    {"llama-135m", 30, 576, 9, 3, 64, 1536, 49152, 4096, 100000.0f, true, ASSAY_Q4_1, 0},
    {"llama-1b", 16, 2048, 32, 8, 64, 8192, 128256, 4096, 500000.0f, true, ASSAY_BF16, 0},
    {"llama-8b", 32, 4096, 32, 8, 128, 14336, 128256, 4096, 500000.0f, false, ASSAY_BF16, 0},
};

#define SHAPE_COUNT (sizeof shapes / sizeof shapes[0])

/* ---- specification ------------------------------------------------------------------------ */

bool as_synthetic_is(const char *path)
{
    return strncmp(path, AS_SYNTHETIC_PREFIX, strlen(AS_SYNTHETIC_PREFIX)) == 0;
}

const char *as_synthetic_shape(size_t index)
{
    return index < SHAPE_COUNT ? shapes[index].shape : NULL;
}

static int refuse_name(const char *what, const char *name, const char *const *known, size_t count,
                       struct as_error *error)
{
    struct as_text list = {0};
    const char *nearest = as_nearest(name, known, count);
    for (size_t i = 0; i < count; i++)
        as_text_addf(&list, "%s%s", i > 0 ? ", " : "", known[i]);
    int code = as_fail(error, AS_ERR_USAGE, "unknown %s '%.40s'; %s%s%sthere are %s", what, name,
                       nearest != NULL ? "did you mean '" : "", nearest != NULL ? nearest : "",
                       nearest != NULL ? "'? " : "", list.failed ? "" : list.data);
    as_text_free(&list);
    return code;
}

static int find_shape(struct as_synthetic *synthetic, const char *name, struct as_error *error)
{
    static const char *const bert[] = {"minilm", "bert-base"};
    const char *names[SHAPE_COUNT];
    for (size_t i = 0; i < SHAPE_COUNT; i++) {
        names[i] = shapes[i].shape;
        if (strcmp(shapes[i].shape, name) == 0) {
            *synthetic = shapes[i];
            return 0;
        }
    }
    for (size_t i = 0; i < sizeof bert / sizeof bert[0]; i++)
        if (strcmp(bert[i], name) == 0)
            return as_fail(error, AS_ERR_UNSUPPORTED,
                           "the shape '%s' is of the BERT family, which is not served yet", name);
    return refuse_name("shape", name, names, SHAPE_COUNT, error);
}

static int read_number(const char *key, const char *value, uint64_t least, uint64_t most,
                       uint64_t *number, struct as_error *error)
{
    uint64_t result = 0;
    bool valid = *value != '\0';
    for (const char *digit = value; *digit != '\0' && valid; digit++)
        valid = *digit >= '0' && *digit <= '9' &&
                !__builtin_mul_overflow(result, (uint64_t)10, &result) &&
                !__builtin_add_overflow(result, (uint64_t)(*digit - '0'), &result);
    if (!valid || result < least || result > most)
        return as_fail(error, AS_ERR_USAGE,
                       "%s is '%.40s', must be a whole number from %llu to %llu", key, value,
                       (unsigned long long)least, (unsigned long long)most);
    *number = result;
    return 0;
}

/* Types that a synthetic model may be stored in: those that as_quantize() writes. */
static int read_weights(struct as_synthetic *synthetic, const char *value, struct as_error *error)
{
    static const enum assay_dtype dtypes[] = {ASSAY_F32,  ASSAY_F16,  ASSAY_BF16,
                                              ASSAY_Q8_0, ASSAY_Q4_0, ASSAY_Q4_1};
    const char *names[sizeof dtypes / sizeof dtypes[0]];
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
        names[i] = as_gguf_type_of(dtypes[i])->name;
        if (strcasecmp(names[i], value) == 0) {
            synthetic->weights = dtypes[i];
            return 0;
        }
    }
    return refuse_name("weights type", value, names, sizeof dtypes / sizeof dtypes[0], error);
}

static int read_override(struct as_synthetic *synthetic, const char *key, const char *value,
                         struct as_error *error)
{
    static const char *const keys[] = {"layers", "context", "weights", "seed"};
    uint64_t number = 0;
    int code = 0;
    if (strcmp(key, "layers") == 0) {
        code = read_number(key, value, 1, 1024, &number, error);
        synthetic->layers = (uint32_t)number;
    } else if (strcmp(key, "context") == 0) {
        code = read_number(key, value, 1, 1 << 24, &number, error);
        synthetic->context = (uint32_t)number;
    } else if (strcmp(key, "seed") == 0) {
        code = read_number(key, value, 0, UINT64_MAX, &synthetic->seed, error);
    } else if (strcmp(key, "weights") == 0) {
        code = read_weights(synthetic, value, error);
    } else {
        code = refuse_name("key", key, keys, sizeof keys / sizeof keys[0], error);
    }
    return code;
}

static int parse_parts(struct as_synthetic *synthetic, char *text, struct as_error *error)
{
    char *rest = strchr(text, ',');
    if (rest != NULL)
        *rest++ = '\0';
    int code = find_shape(synthetic, text, error);
    while (code == 0 && rest != NULL) {
        char *key = rest;
        rest = strchr(key, ',');
        if (rest != NULL)
            *rest++ = '\0';
        char *value = strchr(key, '=');
        if (value == NULL)
            return as_fail(error, AS_ERR_USAGE, "'%.40s' is not key=value", key);
        *value++ = '\0';
        code = read_override(synthetic, key, value, error);
    }
    return code;
}

int as_synthetic_parse(struct as_synthetic *synthetic, const char *text, struct as_error *error)
{
    char copy[256];
    const char *body = as_synthetic_is(text) ? text + strlen(AS_SYNTHETIC_PREFIX) : text;
    size_t length = strlen(body);
    if (length >= sizeof copy)
        return as_fail(error, AS_ERR_USAGE,
                       "a synthetic model's specification of %zu bytes is too "
                       "long",
                       length);
    memcpy(copy, body, length + 1);
    int code = parse_parts(synthetic, copy, error);
    if (code != 0)
        as_error_prefix(error, "synthetic model '%.80s'", body);
    return code;
}

void as_synthetic_describe(const struct as_synthetic *synthetic, char *text, size_t size)
{
    const struct as_synthetic *shape = NULL;
    for (size_t i = 0; i < SHAPE_COUNT; i++)
        if (strcmp(shapes[i].shape, synthetic->shape) == 0)
            shape = &shapes[i];
    char layers[32] = "", context[32] = "", weights[32] = "", seed[32] = "";
    if (shape == NULL || synthetic->layers != shape->layers)
        snprintf(layers, sizeof layers, ",layers=%u", synthetic->layers);
    if (shape == NULL || synthetic->context != shape->context)
        snprintf(context, sizeof context, ",context=%u", synthetic->context);
    if (shape == NULL || synthetic->weights != shape->weights)
        snprintf(weights, sizeof weights, ",weights=%s", as_gguf_type_of(synthetic->weights)->name);
    if (shape == NULL || synthetic->seed != shape->seed)
        snprintf(seed, sizeof seed, ",seed=%llu", (unsigned long long)synthetic->seed);
    for (char *c = weights; *c != '\0'; c++)
        *c = (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
    snprintf(text, size, AS_SYNTHETIC_PREFIX "%s%s%s%s%s", synthetic->shape, layers, context,
             weights, seed);
}

/* ---- tensors ------------------------------------------------------------------------------ */

/* A tensor to be made. Vectors (rows 0) are norm weights. `stream` numbers it by role and layer,
 * so that a layer's weights are the same whatever the number of layers. */
struct part {
    char name[AS_GGUF_NAME_LIMIT];
    enum assay_dtype dtype;
    size_t rows, columns;
    uint64_t stream;
};

#define LAYER_PARTS 9
#define OUTER_PARTS 3 /* token_embd, output_norm, output */

/* Part `index` of the model in the file's order; false past the end. Where weights are quantised
 * to 4 bits, the matrix that gives the logits keeps 8, as in SmolLM2's file. */
static bool describe_part(const struct as_synthetic *s, size_t index, struct part *part)
{
    size_t q = (size_t)s->heads * s->head_dim, kv = (size_t)s->kv_heads * s->head_dim;
    const struct {
        const char *name;
        size_t rows, columns;
    } roles[LAYER_PARTS] = {
        {"attn_norm", 0, s->hidden},     {"ffn_down", s->hidden, s->ffn},
        {"ffn_gate", s->ffn, s->hidden}, {"ffn_up", s->ffn, s->hidden},
        {"ffn_norm", 0, s->hidden},      {"attn_k", kv, s->hidden},
        {"attn_output", s->hidden, q},   {"attn_q", q, s->hidden},
        {"attn_v", kv, s->hidden},
    };
    bool four_bits = s->weights == ASSAY_Q4_0 || s->weights == ASSAY_Q4_1;
    enum assay_dtype logits = four_bits ? ASSAY_Q8_0 : s->weights;
    size_t layer_end = 1 + (size_t)s->layers * LAYER_PARTS;
    *part = (struct part){.rows = s->vocab, .columns = s->hidden, .dtype = logits};
    if (index == 0) {
        strcpy(part->name, "token_embd.weight");
        part->dtype = s->tied_output ? logits : s->weights;
    } else if (index < layer_end) {
        size_t layer = (index - 1) / LAYER_PARTS, role = (index - 1) % LAYER_PARTS;
        snprintf(part->name, sizeof part->name, "blk.%zu.%s.weight", layer, roles[role].name);
        part->rows = roles[role].rows;
        part->columns = roles[role].columns;
        part->dtype = part->rows == 0 ? ASSAY_F32 : s->weights;
        part->stream = OUTER_PARTS + (index - 1);
    } else if (index == layer_end) {
        strcpy(part->name, "output_norm.weight");
        part->rows = 0;
        part->dtype = ASSAY_F32;
        part->stream = 1;
    } else if (index == layer_end + 1 && !s->tied_output) {
        strcpy(part->name, "output.weight");
        part->stream = 2;
    } else {
        return false;
    }
    return true;
}

uint64_t as_synthetic_bytes(const struct as_synthetic *synthetic)
{
    struct part part;
    uint64_t bytes = 0;
    for (size_t i = 0; describe_part(synthetic, i, &part); i++) {
        const struct as_gguf_type *type = as_gguf_type_of(part.dtype);
        bytes +=
            (uint64_t)(part.columns / type->block) * type->bytes * (part.rows == 0 ? 1 : part.rows);
    }
    return bytes;
}

/* `count` values from element `first` of a tensor: the sum of four 16-bit uniforms (Irwin-Hall),
 * close to a normal of deviation `scale` around `mean`, and some ten times cheaper. Its own
 * deviation is sqrt(4 (2^32 - 1) / 12). */
static void draw(uint64_t seed, uint64_t stream, uint64_t first, size_t count, float mean,
                 float scale, float *values)
{
    float step = scale / 37837.22f;
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = as_random_u64(seed, stream, first + i);
        int32_t sum = (int32_t)(bits & 0xffff) + (int32_t)(bits >> 16 & 0xffff) +
                      (int32_t)(bits >> 32 & 0xffff) + (int32_t)(bits >> 48);
        values[i] = mean + (float)(sum - 2 * 65535) * step;
    }
}

/* A thread's part of a wave: `rows` rows from `first`, quantised into `out`. */
struct task {
    const struct part *part;
    uint64_t seed;
    size_t first, rows;
    size_t row_bytes;
    float *row; /* one row of values */
    uint8_t *out;
};

static void *fill_rows(void *context)
{
    struct task *task = context;
    const struct part *part = task->part;
    bool norm = part->rows == 0;
    float scale = norm ? 0.05f : 1.0f / sqrtf((float)part->columns);
    for (size_t i = 0; i < task->rows; i++) {
        draw(task->seed, part->stream, (task->first + i) * part->columns, part->columns,
             norm ? 1.0f : 0.0f, scale, task->row);
        as_quantize(part->dtype, task->row, task->out + i * task->row_bytes, part->columns);
    }
    return NULL;
}

#define MAX_THREADS 16
#define TASK_BYTES ((size_t)2 << 20) /* aimed at, per thread and wave */

/* Runs the tasks, all but the first on threads of their own; a thread that cannot be had runs
 * here. */
static void run_tasks(struct task *tasks, int count)
{
    pthread_t threads[MAX_THREADS];
    bool started[MAX_THREADS] = {false};
    for (int i = 1; i < count; i++)
        started[i] = pthread_create(&threads[i], NULL, fill_rows, &tasks[i]) == 0;
    fill_rows(&tasks[0]);
    for (int i = 1; i < count; i++) {
        if (started[i])
            pthread_join(threads[i], NULL);
        else
            fill_rows(&tasks[i]);
    }
}

static int write_part(const struct as_synthetic *synthetic, const struct part *part,
                      struct task *tasks, int threads, struct as_gguf_writer *writer,
                      struct as_error *error)
{
    const struct as_gguf_type *type = as_gguf_type_of(part->dtype);
    size_t row_bytes = part->columns / type->block * type->bytes;
    size_t rows = part->rows == 0 ? 1 : part->rows, done = 0;
    size_t each = TASK_BYTES / row_bytes > 0 ? TASK_BYTES / row_bytes : 1;
    int code = 0;
    while (done < rows && code == 0) {
        int count = 0;
        for (; count < threads && done < rows; count++) {
            size_t share = rows - done < each ? rows - done : each;
            tasks[count].part = part;
            tasks[count].seed = synthetic->seed;
            tasks[count].first = done;
            tasks[count].rows = share;
            tasks[count].row_bytes = row_bytes;
            done += share;
        }
        run_tasks(tasks, count);
        for (int i = 0; i < count && code == 0; i++)
            code = as_gguf_append(writer, tasks[i].out, tasks[i].rows * row_bytes, error);
    }
    return code;
}

static int write_parts(const struct as_synthetic *synthetic, int threads,
                       struct as_gguf_writer *writer, struct as_error *error)
{
    struct task tasks[MAX_THREADS] = {{0}};
    struct part part;
    size_t widest = synthetic->ffn > synthetic->hidden ? synthetic->ffn : synthetic->hidden;
    size_t q = (size_t)synthetic->heads * synthetic->head_dim;
    widest = q > widest ? q : widest;
    int code = 0;
    for (int i = 0; i < threads && code == 0; i++) {
        tasks[i].row = as_calloc_aligned(error, widest, sizeof *tasks[i].row, "a row of weights");
        tasks[i].out = as_calloc_aligned(error, TASK_BYTES + widest * 4, 1, "rows of weights");
        code = tasks[i].row == NULL || tasks[i].out == NULL ? AS_ERR_MEMORY : 0;
    }
    for (size_t i = 0; code == 0 && describe_part(synthetic, i, &part); i++)
        code = write_part(synthetic, &part, tasks, threads, writer, error);
    for (int i = 0; i < threads; i++) {
        free(tasks[i].row);
        free(tasks[i].out);
    }
    return code;
}

/* ---- file --------------------------------------------------------------------------------- */

/* llama.cpp's number for a file's predominant type (enum llama_ftype). */
static uint32_t file_type(enum assay_dtype dtype)
{
    switch (dtype) {
    case ASSAY_F16: return 1;
    case ASSAY_Q4_0: return 2;
    case ASSAY_Q4_1: return 3;
    case ASSAY_Q8_0: return 7;
    case ASSAY_BF16: return 32;
    default: return 0;
    }
}

static void put_metadata(const struct as_synthetic *s, struct as_gguf_writer *writer)
{
    char name[256];
    as_synthetic_describe(s, name, sizeof name);
    as_gguf_put_string(writer, "general.architecture", "llama");
    as_gguf_put_string(writer, "general.type", "model");
    as_gguf_put_string(writer, "general.name", name);
    as_gguf_put_string(writer, GENERATOR_KEY, GENERATOR);
    as_gguf_put_u32(writer, "general.file_type", file_type(s->weights));
    as_gguf_put_u32(writer, "general.quantization_version", 2);
    as_gguf_put_u32(writer, "llama.block_count", s->layers);
    as_gguf_put_u32(writer, "llama.context_length", s->context);
    as_gguf_put_u32(writer, "llama.embedding_length", s->hidden);
    as_gguf_put_u32(writer, "llama.feed_forward_length", s->ffn);
    as_gguf_put_u32(writer, "llama.attention.head_count", s->heads);
    as_gguf_put_u32(writer, "llama.attention.head_count_kv", s->kv_heads);
    as_gguf_put_u32(writer, "llama.rope.dimension_count", s->head_dim);
    as_gguf_put_f32(writer, "llama.rope.freq_base", s->rope_base);
    as_gguf_put_f32(writer, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    as_gguf_put_u32(writer, "llama.vocab_size", s->vocab);
}

static int put_tokenizer(const struct as_synthetic *synthetic, struct as_gguf_writer *writer,
                         struct as_error *error)
{
    static const char *const controls[] = {"<|im_start|>", "<|im_end|>"};
    struct as_byte_vocabulary vocabulary;
    int code = as_byte_vocabulary_make(&vocabulary, synthetic->vocab, controls, 2, error);
    if (code != 0)
        return code;
    as_byte_vocabulary_put(&vocabulary, writer, "smollm");
    as_gguf_put_u32(writer, "tokenizer.ggml.bos_token_id", AS_BYTE_VOCABULARY_FIRST);
    as_gguf_put_u32(writer, "tokenizer.ggml.eos_token_id", AS_BYTE_VOCABULARY_FIRST + 1);
    as_gguf_put_u32(writer, "tokenizer.ggml.padding_token_id", AS_BYTE_VOCABULARY_FIRST + 1);
    as_gguf_put_string(writer, "tokenizer.chat_template", chat_template);
    as_byte_vocabulary_free(&vocabulary);
    return 0;
}

static int write_file(const struct as_synthetic *synthetic, struct as_gguf_writer *writer,
                      const char *path, int threads, struct as_error *error)
{
    struct part part;
    put_metadata(synthetic, writer);
    int code = put_tokenizer(synthetic, writer, error);
    for (size_t i = 0; code == 0 && describe_part(synthetic, i, &part); i++)
        as_gguf_put_tensor(writer, part.name, part.dtype, part.columns, part.rows);
    if (code == 0)
        code = as_gguf_begin(writer, path, error);
    if (code == 0)
        code = write_parts(synthetic, threads, writer, error);
    return code != 0 ? code : as_gguf_finish(writer, error);
}

int as_synthetic_write(const struct as_synthetic *synthetic, const char *path, int threads,
                       struct as_error *error)
{
    char text[256];
    long processors = threads > 0 ? threads : sysconf(_SC_NPROCESSORS_ONLN);
    threads = (int)(processors < 1 ? 1 : processors > MAX_THREADS ? MAX_THREADS : processors);
    struct as_gguf_writer *writer = as_gguf_writer_create(32, error);
    if (writer == NULL)
        return AS_ERR_MEMORY;
    int code = write_file(synthetic, writer, path, threads, error);
    as_gguf_writer_free(writer);
    as_synthetic_describe(synthetic, text, sizeof text);
    if (code != 0)
        as_error_prefix(error, "cannot make the model %s (%.1f MB)", text,
                        (double)as_synthetic_bytes(synthetic) / 1e6);
    return code;
}

int as_synthetic_cache_path(const struct as_synthetic *synthetic, char *path, size_t size,
                            struct as_error *error)
{
    char text[256], name[320];
    as_synthetic_describe(synthetic, text, sizeof text);
    snprintf(name, sizeof name, "models/%s.gguf", text + strlen(AS_SYNTHETIC_PREFIX));
    int code = as_cache_path(path, size, name, error);
    if (code != 0)
        as_error_prefix(error,
                        "cannot keep the model %s (set XDG_CACHE_HOME to a folder that can "
                        "be written)",
                        text);
    return code;
}

bool as_synthetic_matches(const struct as_synthetic *synthetic, const struct as_model *model)
{
    char text[256];
    as_synthetic_describe(synthetic, text, sizeof text);
    const struct as_metadata *generator = as_model_metadata(model, GENERATOR_KEY);
    return strcmp(model->name, text) == 0 && model->tensor_bytes == as_synthetic_bytes(synthetic) &&
           generator != NULL && generator->kind == AS_METADATA_STRING &&
           generator->value.text.length == strlen(GENERATOR) &&
           memcmp(generator->value.text.bytes, GENERATOR, strlen(GENERATOR)) == 0;
}
