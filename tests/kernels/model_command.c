/* assay model, run as a user runs it. Skipped by name where the program is not built. */
#include "hf_image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/assay-model-command-XXXXXX";
static char output[1 << 16];

static void set_up(void)
{
    if (access(ASSAY_BINARY_DIR "/assay", X_OK) != 0)
        cr_skip_test("the program assay is not built");
    cr_assert_not_null(mkdtemp(folder));
    setenv("XDG_CACHE_HOME", folder, 1);
}

static void tear_down(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(model_command, .init = set_up, .fini = tear_down);

/* Runs `assay model <arguments>`; what it prints, errors too, goes to `output`. */
static int run(const char *arguments)
{
    char command[512];
    snprintf(command, sizeof command, "cd '%s' && '%s/assay' model %s 2>&1", folder,
             ASSAY_BINARY_DIR, arguments);
    FILE *pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    size_t length = fread(output, 1, sizeof output - 1, pipe);
    output[length] = '\0';
    int status = pclose(pipe);
    cr_assert(WIFEXITED(status), "%s", output);
    return WEXITSTATUS(status);
}

static void expect(const char *arguments, int status, const char *text)
{
    int found = run(arguments);
    cr_assert_eq(found, status, "assay model %s: exit %d\n%s", arguments, found, output);
    cr_assert_not_null(strstr(output, text), "assay model %s: no '%s' in\n%s", arguments, text,
                       output);
}

Test(model_command, wrong_use)
{
    expect("", 2, "no command given");
    expect("inof x", 2, "did you mean info?");
    expect("--wrong", 2, "no option \"--wrong\"");
    expect("info", 2, "give one model");
    expect("info a b", 2, "give one model");
    expect("info --tensros x", 2, "did you mean --tensors?");
    expect("info /nonexistent.gguf", 2, "/nonexistent.gguf");
    expect("info synthetic:tinny", 2, "did you mean 'tiny'?");
    expect("synth tiny", 2, "-o FILE");
    expect("synth tiny -o /nonexistent/x.gguf", 2, "/nonexistent/x.gguf");
    expect("synth tiny,layers=x -o x.gguf", 2, "layers");
    expect("info /dev/null", 2, "not a regular file");
}

Test(model_command, help)
{
    expect("--help", 0, "Examples:");
    expect("info --help", 0, "Examples:");
    expect("synth --help", 0, "Examples:");
}

/* Models that the engine cannot run yet can be looked at; a folder is a model. */
Test(model_command, folders)
{
    struct hf_tensors tensors = {.count = 0};
    const struct family family = {.architecture = "qwen3", .qk_norm = true};
    hf_add_family(&tensors, &family, ASSAY_BF16);
    hf_write_single(&tensors, folder);
    hf_write_config(folder, "qwen3", false,
                    "{\"eos_token_id\":[7,8],\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}}");
    hf_free(&tensors);
    expect("info .", 0, "qwen3, 2 layers, hidden 64, 4 heads on 2 KV heads of 32");
    expect("info .", 0, "RoPE scaling   linear by 2");
    expect("info .", 0, "norms of q and k");
    expect("info --tensors .", 0, "model.layers.1.self_attn.k_norm.weight");
    expect("info --metadata .", 0, "max_position_embeddings");
    expect("info --json --tensors --metadata .", 0, "\"qk_norm\": true");
    json_t *answer = json_loads(output, JSON_REJECT_DUPLICATES, NULL);
    cr_assert_not_null(answer);
    cr_assert_str_eq(json_string_value(json_object_get(answer, "architecture")), "qwen3");
    json_decref(answer);
    hf_write_config(folder, "qwen4", false, NULL);
    expect("info .", 2, "config.json: key model_type: 'qwen4' is not served yet");
    expect("info /", 2, "no config.json");
}

Test(model_command, info_and_synth)
{
    expect("synth tiny,layers=5 -o x.gguf", 0, "synthetic:tiny,layers=5");
    expect("info x.gguf", 0, "llama, 5 layers, hidden 128, 4 heads on 2 KV heads of 32");
    expect("info --tensors x.gguf", 0, "blk.4.ffn_down.weight");
    expect("info --metadata synthetic:tiny", 0, "llama.context_length");
    expect("info --json --tensors --metadata x.gguf", 0, "{");
    json_t *answer = json_loads(output, JSON_REJECT_DUPLICATES, NULL);
    cr_assert_not_null(answer);
    json_t *config = json_object_get(answer, "config");
    cr_assert_eq(json_integer_value(json_object_get(config, "layers")), 5);
    cr_assert_eq(json_array_size(json_object_get(answer, "tensors")), 5 * 9 + 3);
    cr_assert_eq(strlen(json_string_value(json_object_get(answer, "digest"))), 16);
    json_decref(answer);
}
