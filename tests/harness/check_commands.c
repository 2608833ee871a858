/* `assay kernels` and `assay doctor` as they are typed. */
#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "registry/registry.h"

static char output[1 << 20];

/* Runs the program with `arguments`, both streams into `output`; returns its exit code. */
static int run(const char *arguments)
{
    char command[512];
    if (access(ASSAY_BINARY_DIR "/assay", X_OK) != 0)
        cr_skip_test("the program is not built");
    snprintf(command, sizeof command, "'%s/assay' %s 2>&1", ASSAY_BINARY_DIR, arguments);
    FILE *pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    size_t length = fread(output, 1, sizeof output - 1, pipe);
    output[length] = '\0';
    int status = pclose(pipe);
    cr_assert(WIFEXITED(status), "%s", output);
    return WEXITSTATUS(status);
}

static void says(const char *words)
{
    cr_assert_not_null(strstr(output, words), "expected \"%s\" in:\n%s", words, output);
}

Test(check_commands, kernels_lists_all)
{
    cr_assert_eq(run("kernels"), 0, "%s", output);
    for (size_t i = 0; as_builtin_variants[i] != NULL; i++) {
        says(as_builtin_variants[i]->name);
        says(as_builtin_variants[i]->idea);
    }
}

Test(check_commands, kernels_in_json)
{
    json_error_t error;
    size_t count = 0, i;
    json_t *row;
    cr_assert_eq(run("kernels --json"), 0, "%s", output);
    json_t *answer = json_loads(output, 0, &error);
    cr_assert_not_null(answer, "%s", error.text);
    while (as_builtin_variants[count] != NULL)
        count++;
    const json_t *rows = json_object_get(answer, "variants");
    cr_assert_eq(json_array_size(rows), count);
    json_array_foreach(rows, i, row)
    {
        static const char *const fields[] = {"name",    "op",          "backend",  "idea",
                                             "weights", "activations", "kv",       "flags",
                                             "graph",   "rung",        "runs_here"};
        for (size_t f = 0; f < sizeof fields / sizeof fields[0]; f++)
            cr_assert_not_null(json_object_get(row, fields[f]), "%s", fields[f]);
        cr_assert(json_is_null(json_object_get(row, "check")));
    }
    json_decref(answer);
}

Test(check_commands, kernels_checks, .timeout = 120)
{
    json_error_t error;
    cr_assert_eq(run("kernels --check --quiet --json --op rms_norm"), 0, "%s", output);
    json_t *answer = json_loads(output, 0, &error);
    cr_assert_not_null(answer, "%s: %s", error.text, output);
    json_t *rows = json_object_get(answer, "variants"), *row;
    size_t i;
    cr_assert(json_array_size(rows) >= 1);
    json_array_foreach(rows, i, row)
    {
        cr_assert_str_eq(json_string_value(json_object_get(row, "op")), "rms_norm");
        json_t *check = json_object_get(row, "check");
        if (!json_is_true(json_object_get(row, "runs_here")))
            continue;
        cr_assert(json_is_true(json_object_get(check, "passed")));
        double ratio = json_real_value(json_object_get(check, "max_to_threshold"));
        cr_assert(ratio > 0 && ratio < 1);
    }
    json_decref(answer);
    cr_assert_eq(run("kernels --check -q add/cpu_naive"), 0, "%s", output);
    says("1 of 1 passed");
}

Test(check_commands, wrong_use_names_the_nearest)
{
    cr_assert_eq(run("kernels --chekc"), 2);
    says("did you mean --check?");
    cr_assert_eq(run("kernels --op liner"), 2);
    says("did you mean linear?");
    cr_assert_eq(run("kernels linear/cpu_naiv"), 2);
    says("did you mean linear/cpu_naive?");
    cr_assert_eq(run("kernels --backend tpu"), 2);
    says("known: cpu, cuda");
    cr_assert_eq(run("kernels --op"), 2);
    cr_assert_eq(run("kernels -z"), 2);
    cr_assert_eq(run("doctor --josn"), 2);
    says("did you mean --json?");
    cr_assert_eq(run("doctor extra"), 2);
    says("extra");
    cr_assert_eq(run("kernels > /dev/full"), 2);
}

Test(check_commands, help_has_examples)
{
    cr_assert_eq(run("kernels --help"), 0);
    says("Examples:");
    says("Exit codes:");
    cr_assert_eq(run("doctor --help"), 0);
    says("Examples:");
}

Test(check_commands, doctor_says_what_is_here)
{
    static const char *const topics[] = {"cpu",  "memory", "clock", "counters",
                                         "load", "gpu",    "tools", "disk"};
    json_error_t error;
    cr_assert_eq(run("doctor"), 0, "%s", output);
    says("missing");
    cr_assert_eq(run("doctor --json"), 0, "%s", output);
    json_t *answer = json_loads(output, 0, &error), *finding;
    cr_assert_not_null(answer, "%s", error.text);
    json_t *findings = json_object_get(answer, "findings");
    for (size_t t = 0; t < sizeof topics / sizeof topics[0]; t++) {
        bool found = false;
        size_t i;
        json_array_foreach(findings, i, finding)
        {
            const char *topic = json_string_value(json_object_get(finding, "topic"));
            found |= strcmp(topic, topics[t]) == 0;
            cr_assert(json_string_length(json_object_get(finding, "text")) > 0);
        }
        cr_assert(found, "nothing about %s", topics[t]);
    }
    json_decref(answer);
    cr_assert_eq(run("doctor --json | grep -c '\"name\": \"cache folder\"'"), 0);
    cr_assert_eq(run("doctor < /dev/null"), 0);
}

Test(check_commands, doctor_does_without_a_home)
{
    unsetenv("HOME");
    unsetenv("XDG_CACHE_HOME");
    cr_assert_eq(run("doctor"), 0, "%s", output);
    says("no cache folder");
}
