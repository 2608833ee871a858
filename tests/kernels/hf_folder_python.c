/* Agreement with Hugging Face's own packages: folders that transformers wrote, and which damaged
 * files the safetensors package takes. Skipped by name where the packages are not there. */
#include "hf_image.h"
#include "safetensors_image.h"

#include <sys/wait.h>

#include "as_memory.h"

#define PYTHON ASSAY_SOURCE_DIR "/.venv/bin/python"
#define SCRIPT ASSAY_SOURCE_DIR "/tests/golden/families/check_folder.py"

static char folder[] = "/tmp/assay-hf-python-XXXXXX";

/* Criterion keeps the reason to itself; ctest's log should name it. */
static void skip(const char *why)
{
    printf("skipped: %s\n", why);
    fflush(stdout);
    cr_skip_test("%s", why);
}

static void set_up(void)
{
    if (access(PYTHON, X_OK) != 0)
        skip("no .venv/bin/python: ci/python.sh --golden");
    cr_assert_not_null(mkdtemp(folder));
}

static void tear_down(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(hf_python, .init = set_up, .fini = tear_down);

/* False where the script lacks a package. */
static bool run_script(const char *mode, const char *a, const char *b)
{
    int status;
    pid_t child = fork();
    if (child == 0) {
        execl(PYTHON, PYTHON, SCRIPT, mode, a, b, (char *)NULL);
        _exit(127);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status), "check_folder.py %s", mode);
    cr_assert(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77, "check_folder.py %s %s: %d",
              mode, a, WEXITSTATUS(status));
    return WEXITSTATUS(status) == 0;
}

static void dump_tensor(const struct as_tensor *tensor, size_t index, FILE *out)
{
    char path[256];
    size_t count = tensor->rows * tensor->columns;
    float *values = malloc(count * sizeof *values);
    snprintf(path, sizeof path, "%s/%zu.f32", folder, index);
    as_dequantize(tensor->dtype, tensor->data, values, count);
    hf_write_file(path, values, count * sizeof *values);
    free(values);
    fprintf(out, "%s\t%zu\t%zu\t%s\n", tensor->stored_name, tensor->rows, tensor->columns, path);
}

static void check_folder(const char *name)
{
    struct as_model *model;
    struct as_error error = {0};
    char path[256], dump[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    snprintf(dump, sizeof dump, "%s/dump", folder);
    cr_assert_eq(as_model_inspect(path, &model, &error), 0, "%s", error.message);
    const struct as_model_config *c = &model->config;
    cr_assert_eq(strncmp(name, model->family, strlen(model->family)), 0, "%s", model->family);
    cr_assert(c->layers == 3 && c->hidden == 64 && c->heads == 4 && c->kv_heads == 2 &&
              c->ffn == 112 && c->vocab == 96 && c->context == 4096);
    cr_assert_eq(c->head_dim, strcmp(name, "qwen3") == 0 ? 32 : 16);
    cr_assert_eq(c->qkv_bias, strncmp(name, "qwen2", 5) == 0);
    cr_assert_eq(c->qk_norm, strcmp(name, "qwen3") == 0);
    cr_assert_eq(c->rope_scaling == AS_ROPE_SCALING_LLAMA3, strcmp(name, "llama-3.2") == 0);
    cr_assert_eq(c->tied_output, strcmp(name, "llama-3.2") == 0 || strcmp(name, "qwen2-tied") == 0);
    cr_assert_eq(model->unused_count, 0);
    if (strcmp(name, "llama-3.2") == 0)
        cr_assert(model->vocabulary.end_count == 3 && model->vocabulary.eos == 5 &&
                  model->vocabulary.ends[2] == 7);
    FILE *out = fopen(dump, "w");
    for (size_t i = 0; i < model->tensor_count; i++)
        dump_tensor(&model->tensors[i], i, out);
    cr_assert_eq(fclose(out), 0);
    as_model_close(model);
    cr_assert(run_script("values", path, dump));
}

Test(hf_python, folders_of_transformers)
{
    static const char *const names[] = {"llama", "llama-3.2",  "mistral",
                                        "qwen2", "qwen2-tied", "qwen3"};
    if (!run_script("make", folder, NULL))
        skip("no torch, safetensors or transformers in .venv: ci/python.sh --golden");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        check_folder(names[i]);
}

/* ---- the same files taken and refused ------------------------------------------------------ */

#define T(name, type, shape, begin, end)                                                          \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end \
    "]}"

/* Images that differ in one respect, with the bytes of data that follow. */
static const struct {
    const char *json;
    size_t bytes;
} images[] = {
    {"{}", 0},
    {"{}   ", 0},
    {"{} \n\t", 0},
    {" {}", 0},
    {"{}x", 0},
    {"{}", 1},
    {"[]", 0},
    {"{\"__metadata__\":{}}", 0},
    {"{\"__metadata__\":null}", 0},
    {"{\"__metadata__\":{\"a\":\"b\"}}", 0},
    {"{\"__metadata__\":{\"a\":1}}", 0},
    {"{\"__metadata__\":{\"a\":{}}}", 0},
    {"{\"__metadata__\":[]}", 0},
    {"{" T("a", "F32", "[2,3]", 0, 24) "}", 24},
    {"{" T("a", "F32", "[2,3]", 0, 24) "}", 23},
    {"{" T("a", "F32", "[2,3]", 0, 24) "}", 25},
    {"{" T("a", "F32", "[2,3]", 0, 23) "}", 23},
    {"{" T("a", "F32", "[2,3]", 1, 25) "}", 25},
    {"{" T("a", "F32", "[]", 0, 4) "}", 4},
    {"{" T("a", "F32", "[0,4]", 0, 0) "}", 0},
    {"{" T("a", "F32", "[0]", 0, 0) "," T("b", "U8", "[2]", 0, 2) "," T("c", "I64", "[0]", 2,
                                                                        2) "}",
     2},
    {"{" T("a", "F32", "[0]", 1, 1) "," T("b", "U8", "[2]", 0, 2) "}", 2},
    {"{" T("b", "U8", "[2]", 2, 4) "," T("a", "U8", "[2]", 0, 2) "}", 4},
    {"{" T("b", "U8", "[2]", 1, 3) "," T("a", "U8", "[2]", 0, 2) "}", 3},
    {"{" T("b", "U8", "[2]", 3, 5) "," T("a", "U8", "[2]", 0, 2) "}", 5},
    {"{" T("b", "U8", "[2]", 0, 2) "," T("a", "U8", "[2]", 0, 2) "}", 2},
    {"{" T("a", "U8", "[2]", 2, 0) "}", 2},
    {"{" T("a", "F16", "[1]", 0, 2) "}", 2},
    {"{" T("a", "BF16", "[1]", 0, 2) "}", 2},
    {"{" T("a", "BOOL", "[1]", 0, 1) "}", 1},
    {"{" T("a", "I8", "[1]", 0, 1) "}", 1},
    {"{" T("a", "I16", "[1]", 0, 2) "}", 2},
    {"{" T("a", "U16", "[1]", 0, 2) "}", 2},
    {"{" T("a", "I32", "[1]", 0, 4) "}", 4},
    {"{" T("a", "U32", "[1]", 0, 4) "}", 4},
    {"{" T("a", "I64", "[1]", 0, 8) "}", 8},
    {"{" T("a", "U64", "[1]", 0, 8) "}", 8},
    {"{" T("a", "F64", "[1]", 0, 8) "}", 8},
    {"{" T("a", "C64", "[1]", 0, 8) "}", 8},
    {"{" T("a", "F8_E4M3", "[1]", 0, 1) "}", 1},
    {"{" T("a", "F8_E5M2", "[1]", 0, 1) "}", 1},
    {"{" T("a", "F8_E8M0", "[1]", 0, 1) "}", 1},
    {"{" T("a", "F8_E4M3FNUZ", "[1]", 0, 1) "}", 1},
    {"{" T("a", "F8_E5M2FNUZ", "[1]", 0, 1) "}", 1},
    {"{" T("a", "F4", "[2]", 0, 1) "}", 1},
    {"{" T("a", "F4", "[1]", 0, 1) "}", 1},
    {"{" T("a", "F6_E2M3", "[4]", 0, 3) "}", 3},
    {"{" T("a", "F6_E3M2", "[4]", 0, 3) "}", 3},
    {"{" T("a", "Q8_0", "[1]", 0, 1) "}", 1},
    {"{" T("a", "f32", "[1]", 0, 4) "}", 4},
    {"{" T("a", "U8", "[-1]", 0, 1) "}", 1},
    {"{" T("a", "U8", "[1.0]", 0, 1) "}", 1},
    {"{" T("a", "U8", "[01]", 0, 1) "}", 1},
    {"{" T("a", "U8", "[1,]", 0, 1) "}", 1},
    {"{" T("a", "U8", "[18446744073709551616]", 0, 1) "}", 1},
    {"{" T("a", "U8", "[4294967296,4294967296]", 0, 0) "}", 0},
    {"{" T("a", "U8", "[18446744073709551615,2]", 0, 18446744073709551614) "}", 1},
    {"{" T("a", "U8", "\"1\"", 0, 1) "}", 1},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1},
    {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"shape\":[1]}}", 1},
    {"{\"a\":null}", 0},
    {"{\"a\":1}", 0},
    {"{\"\\u0061\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1},
    {"{\"\\ud83e\\udd99\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1},
    {"{\"\\ud83e\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1},
    {"{\"\xc3\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1},
    {"{\"a\n\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1},
};

#define IMAGES (sizeof images / sizeof images[0])

/* Rules of the format that the package does not keep: a header begins with '{', names come once. */
static bool stricter_by_rule(const struct as_error *error)
{
    return strstr(error->message, "must be '{'") != NULL ||
           strstr(error->message, "the name was given before") != NULL;
}

/* Writes every image, and every change of one byte of one of them to a few others. */
static size_t write_images(const char *into, bool *taken, bool *stricter)
{
    static const char marks[] = "\"{}[],:0a\\ ";
    size_t count = 0;
    for (size_t i = 0; i < IMAGES; i++) {
        struct as_text image = image_of(images[i].json, images[i].bytes);
        size_t length = image.length, changes = i == 20 ? length * (sizeof marks - 1) : 0;
        for (size_t c = 0; c <= changes; c++) {
            struct as_safetensors file;
            char path[512];
            char *copy = exact_copy(image.data, length);
            if (c > 0)
                copy[(c - 1) / (sizeof marks - 1)] = marks[(c - 1) % (sizeof marks - 1)];
            snprintf(path, sizeof path, "%s/%06zu", into, count);
            hf_write_file(path, copy, length);
            struct as_error error = {0};
            taken[count] = as_safetensors_parse(&file, copy, length, &error) == 0;
            stricter[count] = stricter_by_rule(&error);
            as_safetensors_free(&file);
            free(copy);
            count++;
        }
        as_text_free(&image);
    }
    return count;
}

Test(hf_python, safetensors_judges)
{
    static bool taken[8192], stricter[8192];
    char into[256], path[256], line[256], *text;
    size_t size, count, agreed = 0, accepted = 0;
    snprintf(into, sizeof into, "%s/images", folder);
    snprintf(path, sizeof path, "%s/verdicts", folder);
    cr_assert_eq(mkdir(into, 0700), 0);
    count = write_images(into, taken, stricter);
    cr_assert_leq(count, 8192);
    if (!run_script("judge", into, path))
        skip("no torch or safetensors in .venv: ci/python.sh --golden");
    cr_assert_eq(as_read_file(&text, &size, path, 1 << 22, NULL), 0);
    char *at = text;
    for (size_t i = 0; i < count; i++) {
        size_t length = strcspn(at, "\n");
        snprintf(line, sizeof line, "%.*s", (int)length, at);
        at += length + (at[length] == '\n');
        bool wanted = strcmp(line + 7, "ok") == 0;
        bool agrees = wanted == taken[i] || (wanted && stricter[i]);
        accepted += wanted;
        agreed += agrees;
        if (!agrees)
            fprintf(stderr, "%s: we %s\n", line, taken[i] ? "take it" : "refuse it");
    }
    free(text);
    cr_assert_gt(accepted, 100);
    cr_assert_eq(agreed, count);
}
