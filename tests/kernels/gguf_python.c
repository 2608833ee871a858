/* Agreement with the `gguf` Python package: our files read the same there, and our quantisers give
 * the same bytes. Skipped by name where the project's .venv is not there. */
#include "gguf_image.h"

#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../fixtures/fixtures.c"
#include "as_random.h"
#include "engine/quantize.h"

#define PYTHON ASSAY_SOURCE_DIR "/.venv/bin/python"
#define SCRIPT ASSAY_SOURCE_DIR "/tests/golden/check_gguf.py"
#define SMOLLM2 ASSAY_SOURCE_DIR "/models/SmolLM2-135M-Instruct.Q4_1.gguf"

static char folder[] = "/tmp/assay-gguf-python-XXXXXX";

/* Criterion keeps the reason to itself; ctest's log should name it. */
static void skip(const char *why)
{
    printf("skipped: %s\n", why);
    fflush(stdout);
    cr_skip_test("%s", why);
}

static void set_up(void)
{
    if (system(PYTHON " -c 'import gguf, numpy' 2>/dev/null") != 0)
        skip("no .venv with gguf and numpy: ci/python.sh");
    cr_assert_not_null(mkdtemp(folder));
    setenv("XDG_CACHE_HOME", folder, 1);
}

static void tear_down(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(gguf_python, .init = set_up, .fini = tear_down);

static void run_script(const char *mode, const char *a, const char *b, const char *c)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        execl(PYTHON, PYTHON, SCRIPT, mode, a, b, c, (char *)NULL);
        _exit(127);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "check_gguf.py %s %s failed", mode, a);
}

static void dump_metadata(const struct as_model *model, FILE *out)
{
    for (size_t i = 0; i < model->metadata_count; i++) {
        const struct as_metadata *item = &model->metadata[i];
        fprintf(out, "%.*s\t", (int)item->key.length, item->key.bytes);
        switch (item->kind) {
        case AS_METADATA_UNSIGNED:
            fprintf(out, "int %llu", (unsigned long long)item->value.u);
            break;
        case AS_METADATA_SIGNED: fprintf(out, "int %lld", (long long)item->value.i); break;
        case AS_METADATA_FLOAT: fprintf(out, "float %a", item->value.f); break;
        case AS_METADATA_BOOL: fprintf(out, "bool %d", (int)item->value.u); break;
        case AS_METADATA_ARRAY:
            fprintf(out, "array %llu", (unsigned long long)item->value.count);
            break;
        case AS_METADATA_STRING:
            fprintf(out, "string ");
            for (size_t j = 0; j < item->value.text.length; j++)
                fprintf(out, "%02x", (uint8_t)item->value.text.bytes[j]);
            break;
        }
        fprintf(out, "\n");
    }
}

static void dump_values(const struct as_tensor *tensor, const char *path)
{
    size_t count = tensor->rows * tensor->columns;
    float *values = malloc(count * sizeof *values);
    FILE *out = fopen(path, "wb");
    as_dequantize(tensor->dtype, tensor->data, values, count);
    cr_assert_eq(fwrite(values, sizeof *values, count, out), count);
    cr_assert_eq(fclose(out), 0);
    free(values);
}

/* Tensors of up to `limit` elements are compared value by value. */
static void check_model(const char *path, size_t limit)
{
    struct as_model *model;
    struct as_error error = {0};
    char dump[256];
    cr_assert_eq(as_model_open(path, &model, &error), 0, "%s", error.message);
    snprintf(dump, sizeof dump, "%s/dump.txt", folder);
    FILE *out = fopen(dump, "w");
    dump_metadata(model, out);
    for (size_t i = 0; i < model->tensor_count; i++) {
        const struct as_tensor *tensor = &model->tensors[i];
        char values[256] = "-";
        if (tensor->rows * tensor->columns <= limit) {
            snprintf(values, sizeof values, "%s/%zu.f32", folder, i);
            dump_values(tensor, values);
        }
        fprintf(out, "tensor\t%s\t%s\t%zu\t%zu\t%s\n", tensor->name, tensor->type, tensor->rows,
                tensor->columns, values);
    }
    cr_assert_eq(fclose(out), 0);
    run_script("file", model->path, dump, NULL);
    as_model_close(model);
}

Test(gguf_python, synthetic_models)
{
    check_model("synthetic:tiny", SIZE_MAX);
    check_model("synthetic:tiny,weights=q8_0", SIZE_MAX);
    check_model("synthetic:tiny,weights=q4_1,layers=2", SIZE_MAX);
    check_model("synthetic:llama-135m,layers=1", 1 << 20);
    check_model("synthetic:tiny,weights=f16,layers=1", SIZE_MAX);
    check_model("synthetic:tiny,weights=bf16,layers=1", SIZE_MAX);
    check_model("synthetic:tiny,weights=q4_0,layers=1", SIZE_MAX);
}

/* A file of a tensor of every type, its bytes random but for finite scales. */
Test(gguf_python, every_type)
{
    static const struct {
        enum assay_dtype dtype;
        size_t scales[2]; /* where the half floats lie that must not be NaN or infinite */
    } kinds[] = {{ASSAY_F16, {0, 0}},     {ASSAY_BF16, {0, 0}}, {ASSAY_Q8_0, {0, 0}},
                 {ASSAY_Q4_0, {0, 0}},    {ASSAY_Q4_1, {0, 2}}, {ASSAY_Q5_0, {0, 0}},
                 {ASSAY_Q5_1, {0, 2}},    {ASSAY_Q4_K, {0, 2}}, {ASSAY_Q5_K, {0, 2}},
                 {ASSAY_Q6_K, {208, 208}}};
    enum { KINDS = sizeof kinds / sizeof kinds[0], ROWS = 5, COLUMNS = 512 };
    struct as_gguf_writer *writer = as_gguf_writer_create(32, NULL);
    struct as_error error = {0};
    char path[256], dump[256];
    as_gguf_put_string(writer, "general.architecture", "llama");
    for (size_t i = 0; i < KINDS; i++)
        as_gguf_put_tensor(writer, assay_dtype(kinds[i].dtype)->name, kinds[i].dtype, COLUMNS,
                           ROWS);
    snprintf(path, sizeof path, "%s/types.gguf", folder);
    snprintf(dump, sizeof dump, "%s/dump.txt", folder);
    cr_assert_eq(as_gguf_begin(writer, path, &error), 0, "%s", error.message);
    FILE *out = fopen(dump, "w");
    fprintf(out, "general.architecture\tstring 6c6c616d61\n");
    for (size_t i = 0; i < KINDS; i++) {
        const struct assay_dtype_info *info = assay_dtype(kinds[i].dtype);
        size_t bytes = ROWS * assay_row_bytes(kinds[i].dtype, COLUMNS);
        uint8_t *stored = malloc(bytes);
        char values[256];
        for (size_t j = 0; j < bytes; j++)
            stored[j] = (uint8_t)as_random_u64(21, i, j);
        for (size_t block = 0; block < bytes; block += (size_t)info->bytes)
            for (size_t k = 0; k < 2; k++)
                stored[block + kinds[i].scales[k] + 1] &= 0xbf; /* exponents below the top half */
        cr_assert_eq(as_gguf_append(writer, stored, bytes, &error), 0, "%s", error.message);
        const struct as_tensor tensor = {
            .dtype = kinds[i].dtype, .rows = ROWS, .columns = COLUMNS, .data = stored};
        snprintf(values, sizeof values, "%s/%zu.f32", folder, i);
        dump_values(&tensor, values);
        fprintf(out, "tensor\t%s\t%s\t%d\t%d\t%s\n", info->name,
                as_gguf_type_of(kinds[i].dtype)->name, ROWS, COLUMNS, values);
        free(stored);
    }
    cr_assert_eq(fclose(out), 0);
    cr_assert_eq(as_gguf_finish(writer, &error), 0, "%s", error.message);
    as_gguf_writer_free(writer);
    run_script("file", path, dump, NULL);
}

Test(gguf_python, fixtures)
{
    static const char *const names[] = {"S", "S-tie", "S-utf8", "M"};
    for (size_t i = 0; i < 4; i++) {
        struct as_fixture fixture;
        struct as_error error = {0};
        char path[256];
        snprintf(path, sizeof path, "%s/%s.gguf", folder, names[i]);
        cr_assert(as_fixture_named(&fixture, names[i]));
        fixture.alignment = i % 2 == 0 ? 32 : 64;
        cr_assert_eq(as_fixture_write(&fixture, path, &error), 0, "%s", error.message);
        check_model(path, SIZE_MAX);
    }
}

Test(gguf_python, smollm2)
{
    if (access(SMOLLM2, R_OK) != 0)
        cr_skip_test("no models/: run ci/fetch-model.sh to compare SmolLM2");
    check_model(SMOLLM2, 120000);
}

/* Values around several scales, with ties, zeros and signs, as blocks of 32. */
static void make_values(float *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t block = i / 32;
        float scale = 1.0f / (float)(1 << block % 12);
        values[i] = scale * (float)as_random_normal(3, block, i);
        if (block % 7 == 3)
            values[i] = (float)((int)(as_random_u64(4, block, i) % 31) - 15) * 0.5f;
        if (block % 7 == 5)
            values[i] = fabsf(values[i]);
        if (block % 50 == 0)
            values[i] = 0.0f;
    }
}

Test(gguf_python, quantisers)
{
    static const struct {
        enum assay_dtype dtype;
        const char *name;
    } kinds[] = {{ASSAY_F32, "F32"},   {ASSAY_F16, "F16"},   {ASSAY_BF16, "BF16"},
                 {ASSAY_Q8_0, "Q8_0"}, {ASSAY_Q4_0, "Q4_0"}, {ASSAY_Q4_1, "Q4_1"}};
    const size_t count = 32 * 20000;
    float *values = malloc(count * sizeof *values);
    uint8_t *blocks = malloc(count * sizeof *values);
    char floats[256], packed[256];
    make_values(values, count);
    snprintf(floats, sizeof floats, "%s/values", folder);
    snprintf(packed, sizeof packed, "%s/blocks", folder);
    FILE *out = fopen(floats, "wb");
    cr_assert_eq(fwrite(values, sizeof *values, count, out), count);
    cr_assert_eq(fclose(out), 0);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        as_quantize(kinds[i].dtype, values, blocks, count);
        size_t bytes = assay_row_bytes(kinds[i].dtype, (int64_t)count);
        out = fopen(packed, "wb");
        cr_assert_eq(fwrite(blocks, 1, bytes, out), bytes);
        cr_assert_eq(fclose(out), 0);
        run_script("quantize", kinds[i].name, floats, packed);
    }
    free(values);
    free(blocks);
}
