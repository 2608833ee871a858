/* Synthetic models: what may be asked for, the same bytes from any number of threads, shapes that
 * open, the cache. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "as_file.h"
#include "as_hash.h"
#include "engine/gguf.h"
#include "engine/model.h"
#include "engine/quantize.h"
#include "engine/synthetic.h"

static char folder[] = "/tmp/assay-synthetic-XXXXXX";

static void set_up(void)
{
    cr_assert_not_null(mkdtemp(folder));
    setenv("XDG_CACHE_HOME", folder, 1);
}

static void tear_down(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(synthetic, .init = set_up, .fini = tear_down);

Test(synthetic, refused)
{
    static const struct {
        const char *text;
        int code;
        const char *first, *second;
    } cases[] = {
        {"synthetic:", AS_ERR_USAGE, "unknown shape ''", "tiny, llama-135m"},
        {"synthetic:tinny", AS_ERR_USAGE, "'tinny'", "did you mean 'tiny'"},
        {"synthetic:llama-136m", AS_ERR_USAGE, "'llama-136m'", "did you mean 'llama-135m'"},
        {"synthetic:minilm", AS_ERR_UNSUPPORTED, "minilm", "BERT"},
        {"synthetic:tiny,", AS_ERR_USAGE, "''", "not key=value"},
        {"synthetic:tiny,layers", AS_ERR_USAGE, "'layers'", "not key=value"},
        {"synthetic:tiny,layer=2", AS_ERR_USAGE, "'layer'", "did you mean 'layers'"},
        {"synthetic:tiny,layers=", AS_ERR_USAGE, "layers", "from 1 to"},
        {"synthetic:tiny,layers=0", AS_ERR_USAGE, "layers", "from 1 to"},
        {"synthetic:tiny,layers=-1", AS_ERR_USAGE, "layers", "'-1'"},
        {"synthetic:tiny,layers=1e3", AS_ERR_USAGE, "layers", "'1e3'"},
        {"synthetic:tiny,layers=99999999999999999999999", AS_ERR_USAGE, "layers", "from 1 to"},
        {"synthetic:tiny,context=0", AS_ERR_USAGE, "context", "from 1 to"},
        {"synthetic:tiny,seed=x", AS_ERR_USAGE, "seed", "'x'"},
        {"synthetic:tiny,weights=q8", AS_ERR_USAGE, "'q8'", "Q8_0"},
        {"synthetic:tiny,weights=q9_0", AS_ERR_USAGE, "'q9_0'", "did you mean"},
        {"synthetic:tiny,weights=q4_k", AS_ERR_USAGE, "'q4_k'", "Q4_0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct as_model *model;
        struct as_error error = {0};
        cr_assert_eq(as_model_open(cases[i].text, &model, &error), cases[i].code, "%s: %s",
                     cases[i].text, error.message);
        cr_assert_null(model);
        cr_assert_not_null(strstr(error.message, cases[i].first), "%s", error.message);
        cr_assert_not_null(strstr(error.message, cases[i].second), "%s", error.message);
    }
}

/* Every type that can be written opens, with the values that it can hold. */
Test(synthetic, every_type_of_weights)
{
    static const struct {
        const char *text;
        enum assay_dtype dtype;
        double error; /* largest difference from the F32 model's weights, which are below 1 */
    } cases[] = {
        {"synthetic:tiny,weights=f16", ASSAY_F16, 3e-4},
        {"synthetic:tiny,weights=bf16", ASSAY_BF16, 2e-3},
        {"synthetic:tiny,weights=q8_0", ASSAY_Q8_0, 3e-3},
        {"synthetic:tiny,weights=q4_0", ASSAY_Q4_0, 5e-2},
        {"synthetic:tiny,weights=q4_1", ASSAY_Q4_1, 4e-2},
    };
    struct as_model *exact, *model;
    struct as_error error = {0};
    cr_assert_eq(as_model_open("synthetic:tiny", &exact, &error), 0, "%s", error.message);
    const struct as_tensor *plain = exact->layers[2].ffn_up;
    const float *wanted = plain->data;
    size_t count = plain->rows * plain->columns;
    float *values = malloc(count * sizeof *values);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cr_assert_eq(as_model_open(cases[i].text, &model, &error), 0, "%s", error.message);
        const struct as_tensor *tensor = model->layers[2].ffn_up;
        cr_assert_eq(tensor->dtype, cases[i].dtype);
        as_dequantize(tensor->dtype, tensor->data, values, count);
        double largest = 0.0;
        for (size_t j = 0; j < count; j++)
            largest = fmax(largest, fabs((double)values[j] - (double)wanted[j]));
        cr_assert(largest > 0.0 && largest < cases[i].error, "%s: %g", cases[i].text, largest);
        as_model_close(model);
    }
    free(values);
    as_model_close(exact);
}

/* The large shapes' default weights, without writing gigabytes. */
Test(synthetic, default_weights)
{
    struct as_synthetic synthetic;
    cr_assert_eq(as_synthetic_parse(&synthetic, "llama-1b", NULL), 0);
    cr_assert_eq(synthetic.weights, ASSAY_BF16);
    cr_assert_eq(as_synthetic_parse(&synthetic, "llama-8b", NULL), 0);
    cr_assert_eq(synthetic.weights, ASSAY_BF16);
    cr_assert_eq(as_synthetic_parse(&synthetic, "tiny,weights=bf16", NULL), 0);
}

Test(synthetic, specifications)
{
    static const struct {
        const char *text, *described;
    } cases[] = {
        {"tiny", "synthetic:tiny"},
        {"synthetic:tiny,layers=4,weights=f32,context=4096,seed=0", "synthetic:tiny"},
        {"tiny,seed=7,weights=Q8_0,layers=2", "synthetic:tiny,layers=2,weights=q8_0,seed=7"},
        {"llama-8b,context=100,weights=q4_1", "synthetic:llama-8b,context=100,weights=q4_1"},
        {"llama-1b,weights=f32,layers=1", "synthetic:llama-1b,layers=1,weights=f32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct as_synthetic synthetic, again;
        struct as_error error = {0};
        char text[256];
        cr_assert_eq(as_synthetic_parse(&synthetic, cases[i].text, &error), 0, "%s", error.message);
        as_synthetic_describe(&synthetic, text, sizeof text);
        cr_assert_str_eq(text, cases[i].described);
        cr_assert_eq(as_synthetic_parse(&again, text, &error), 0);
        cr_assert(again.layers == synthetic.layers && again.weights == synthetic.weights &&
                  again.seed == synthetic.seed && again.context == synthetic.context);
    }
    cr_assert(as_synthetic_is("synthetic:x") && !as_synthetic_is("synthetic"));
    for (size_t i = 0; as_synthetic_shape(i) != NULL; i++)
        cr_assert_lt(i, 10);
}

static uint64_t digest_file(const char *path)
{
    struct as_mapping mapping;
    cr_assert_eq(as_map_file(&mapping, path, NULL), 0);
    uint64_t digest = as_hash64(mapping.data, mapping.size, 0);
    as_unmap(&mapping);
    return digest;
}

Test(synthetic, same_bytes_on_any_thread_count)
{
    static const char *const texts[] = {"tiny", "tiny,weights=q8_0", "tiny,weights=q4_1,layers=6"};
    for (size_t i = 0; i < 3; i++) {
        struct as_synthetic synthetic;
        struct as_error error = {0};
        uint64_t first = 0;
        char path[256];
        cr_assert_eq(as_synthetic_parse(&synthetic, texts[i], &error), 0);
        for (int threads = 1; threads <= 5; threads++) {
            snprintf(path, sizeof path, "%s/%zu-%d.gguf", folder, i, threads);
            cr_assert_eq(as_synthetic_write(&synthetic, path, threads, &error), 0, "%s",
                         error.message);
            uint64_t digest = digest_file(path);
            cr_assert(threads == 1 || digest == first);
            first = digest;
        }
        synthetic.seed = 1;
        cr_assert_eq(as_synthetic_write(&synthetic, path, 2, &error), 0);
        cr_assert_neq(digest_file(path), first);
    }
}

/* Frozen: reports name models by digest, so the same specification must stay the same file. */
Test(synthetic, frozen_bytes)
{
    struct as_model *model;
    struct as_error error = {0};
    cr_assert_eq(as_model_open("synthetic:tiny", &model, &error), 0, "%s", error.message);
    cr_assert_eq(as_model_digest(model), (uint64_t)0x962c2b5be7b9c929, "%016llx",
                 (unsigned long long)as_model_digest(model));
    as_model_close(model);
}

Test(synthetic, tiny_is_a_model)
{
    struct as_model *model;
    struct as_error error = {0};
    cr_assert_eq(as_model_open("synthetic:tiny", &model, &error), 0, "%s", error.message);
    const struct as_model_config *c = &model->config;
    const struct as_model_vocabulary *v = &model->vocabulary;
    cr_assert(c->layers >= 4 && c->context == 4096 && c->vocab == v->count && !c->tied_output);
    cr_assert_eq(c->hidden % 32 + c->ffn % 32 + c->head_dim % 32, 0);
    cr_assert_str_eq(model->name, "synthetic:tiny");
    cr_assert_str_eq(v->model, "gpt2");
    cr_assert_eq(model->unused_count, 0);
    cr_assert_eq(v->pieces[v->eos].length, 10);
    cr_assert_eq(memcmp(v->pieces[v->eos].bytes, "<|im_end|>", 10), 0);
    cr_assert_eq(memcmp(v->pieces[v->bos].bytes, "<|im_start|>", 12), 0);
    cr_assert(v->types[v->eos] == AS_PIECE_CONTROL && !v->add_bos && !v->add_eos);
    cr_assert_gt(v->chat_template.length, 100);

    /* Weights: deviation 1/sqrt(fan in), mean 0; norms around 1. */
    const float *w = model->layers[3].ffn_down->data;
    size_t count = model->layers[3].ffn_down->rows * model->layers[3].ffn_down->columns;
    double sum = 0.0, squares = 0.0;
    for (size_t i = 0; i < count; i++) {
        sum += (double)w[i];
        squares += (double)w[i] * (double)w[i];
    }
    cr_assert_float_eq(sqrt(squares / (double)count), 1.0 / sqrt(256.0), 0.001);
    cr_assert_float_eq(sum / (double)count, 0.0, 0.002);
    const float *norm = model->output_norm->data;
    for (size_t i = 0; i < c->hidden; i++)
        cr_assert(norm[i] > 0.75f && norm[i] < 1.25f);
    as_model_close(model);
}

/* Every piece is distinct and has text, also those that only fill the vocabulary. */
Test(synthetic, pieces_are_distinct)
{
    struct as_model *model;
    struct as_error error = {0};
    cr_assert_eq(as_model_open("synthetic:llama-135m,layers=1", &model, &error), 0, "%s",
                 error.message);
    const struct as_model_vocabulary *v = &model->vocabulary;
    size_t slots = (size_t)1 << 18;
    int32_t *table = calloc(slots, sizeof *table);
    for (size_t i = 0; i < v->count; i++) {
        size_t slot = as_hash64(v->pieces[i].bytes, v->pieces[i].length, 0) % slots;
        cr_assert_gt(v->pieces[i].length, 0);
        for (; table[slot] != 0; slot = (slot + 1) % slots) {
            const struct as_bytes *other = &v->pieces[table[slot] - 1];
            cr_assert(other->length != v->pieces[i].length ||
                      memcmp(other->bytes, v->pieces[i].bytes, other->length) != 0);
        }
        table[slot] = (int32_t)i + 1;
    }
    free(table);
    cr_assert(model->config.tied_output && model->token_embd->dtype == ASSAY_Q8_0);
    cr_assert(model->layers[0].attn_q->dtype == ASSAY_Q4_1);
    cr_assert_eq(model->layers[0].attn_norm->dtype, ASSAY_F32);
    as_model_close(model);
}

/* The sizes that users know: those of the published files. */
Test(synthetic, shapes)
{
    struct as_synthetic synthetic;
    cr_assert_eq(as_synthetic_parse(&synthetic, "llama-135m", NULL), 0);
    cr_assert_eq(as_synthetic_bytes(&synthetic), 96576768); /* SmolLM2-135M-Instruct.Q4_1.gguf */
    cr_assert_eq(as_synthetic_parse(&synthetic, "llama-1b,weights=f32", NULL), 0);
    cr_assert_eq(as_synthetic_bytes(&synthetic) / 4, 1235814400); /* Llama-3.2-1B */
    cr_assert_eq(as_synthetic_parse(&synthetic, "llama-8b,weights=f32", NULL), 0);
    cr_assert_eq(as_synthetic_bytes(&synthetic) / 4, 8030261248); /* Meta-Llama-3-8B */
}

/* ---- cache -------------------------------------------------------------------------------- */

static void cache_path(const char *text, char *path, size_t size)
{
    struct as_synthetic synthetic;
    cr_assert_eq(as_synthetic_parse(&synthetic, text, NULL), 0);
    cr_assert_eq(as_synthetic_cache_path(&synthetic, path, size, NULL), 0);
}

static struct stat open_and_stat(const char *text, const char *path)
{
    struct as_model *model;
    struct as_error error = {0};
    struct stat info;
    cr_assert_eq(as_model_open(text, &model, &error), 0, "%s", error.message);
    cr_assert_str_eq(model->path, path);
    cr_assert_eq(stat(path, &info), 0);
    cr_assert_eq((size_t)info.st_size, model->file_bytes);
    as_model_close(model);
    return info;
}

Test(synthetic, written_once)
{
    char path[512], other[512];
    cache_path("synthetic:tiny", path, sizeof path);
    cache_path("synthetic:tiny,seed=1", other, sizeof other);
    cr_assert_str_neq(path, other);
    cr_assert_eq(strncmp(path, folder, strlen(folder)), 0);
    struct stat first = open_and_stat("synthetic:tiny", path);
    struct stat again = open_and_stat("synthetic:tiny", path);
    cr_assert_eq(first.st_ino, again.st_ino);

    /* Cut, emptied, or another model under its name: written anew. */
    cr_assert_eq(truncate(path, first.st_size - 1), 0);
    struct stat mended = open_and_stat("synthetic:tiny", path);
    cr_assert_eq(mended.st_size, first.st_size);
    cr_assert_eq(truncate(path, 0), 0);
    mended = open_and_stat("synthetic:tiny", path);
    cr_assert_eq(mended.st_size, first.st_size);
    open_and_stat("synthetic:tiny,seed=1", other);
    cr_assert_eq(rename(other, path), 0);
    struct as_model *model;
    cr_assert_eq(as_model_open("synthetic:tiny", &model, NULL), 0);
    cr_assert_str_eq(model->name, "synthetic:tiny");
    as_model_close(model);
}

Test(synthetic, nothing_partial_is_left)
{
    struct as_synthetic synthetic;
    struct as_error error = {0};
    struct rlimit limit = {1 << 20, 1 << 20};
    char path[256], partial[300];
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    snprintf(path, sizeof path, "%s/full.gguf", folder);
    snprintf(partial, sizeof partial, "%s.%ld.partial", path, (long)getpid());
    cr_assert_eq(as_synthetic_parse(&synthetic, "tiny", &error), 0);
    cr_assert_eq(as_synthetic_write(&synthetic, path, 2, &error), AS_ERR_IO);
    cr_assert_not_null(strstr(error.message, "full.gguf"), "%s", error.message);
    cr_assert_not_null(strstr(error.message, "synthetic:tiny"), "%s", error.message);
    cr_assert_neq(access(path, F_OK), 0);
    cr_assert_neq(access(partial, F_OK), 0);
}

Test(synthetic, no_cache_folder)
{
    struct as_model *model;
    struct as_error error = {0};
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    cr_assert_eq(as_model_open("synthetic:tiny", &model, &error), AS_ERR_IO);
    cr_assert_not_null(strstr(error.message, "XDG_CACHE_HOME"), "%s", error.message);
    as_error_clear(&error);
    setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
    cr_assert_eq(as_model_open("synthetic:tiny", &model, &error), AS_ERR_IO);
    cr_assert_not_null(strstr(error.message, "/proc/nowhere"), "%s", error.message);
}
