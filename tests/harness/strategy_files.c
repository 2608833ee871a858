/* Strategy files: what is shipped loads, what is wrong is named with line, field and remedy. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

#include "registry/registry.h"
#include "strategies/strategy.h"

#define KERNELS "kernels:\n  add: add/cpu_naive\n"

static void refuse(const char *text, const char *const *set, size_t sets, const char *words)
{
    struct as_strategy strategy;
    struct as_error error = {0};
    int code = as_strategy_parse(&strategy, "mine.yaml", text, strlen(text), set, sets, &error);
    cr_assert_lt(code, 0, "accepted: %s", text);
    cr_assert_not_null(strstr(error.message, words), "\"%s\" lacks \"%s\"", error.message, words);
}

Test(strategy_files, every_shipped_one_loads_and_names_known_variants)
{
    struct as_registry *registry;
    cr_assert_eq(as_registry_create(&registry, NULL), 0);
    cr_assert_geq(as_shipped_strategy_count, 2);
    for (size_t i = 0; i < as_shipped_strategy_count; i++) {
        struct as_strategy strategy;
        struct as_error error = {0};
        const char *name = as_shipped_strategies[i].name;
        cr_assert_eq(as_strategy_load(&strategy, name, NULL, 0, &error), 0, "%s", error.message);
        cr_assert_str_eq(strategy.name, name);
        cr_assert_neq(strategy.question[0], '\0', "%s says not what it asks", name);
        for (int32_t c = 0; c < strategy.choices; c++) {
            const struct as_kernel_choice *choice = &strategy.choice[c];
            cr_assert(as_op_by_name(choice->name) != ASSAY_OPS ||
                      as_registry_cover(registry, choice->name) != NULL);
            for (int32_t v = 0; v < choice->variants; v++)
                cr_assert_not_null(as_registry_find(registry, choice->variant[v], &error), "%s",
                                   error.message);
        }
    }
    as_registry_free(registry);
}

Test(strategy_files, errors_name_line_and_remedy)
{
    refuse("execution: eager\nmax_batch_siz: 4\n" KERNELS, NULL, 0,
           "line 2: there is no field \"max_batch_siz\"; did you mean max_batch_size?");
    refuse("max_batch_size: many\n" KERNELS, NULL, 0, "line 1: max_batch_size must be a whole");
    refuse("max_batch_size: 0\n" KERNELS, NULL, 0, "from 1 to 1024");
    refuse("execution: eagerly\n" KERNELS, NULL, 0, "it is one of eager");
    refuse("kv: f32\nkv: f32\n" KERNELS, NULL, 0, "line 2: kv is given twice");
    refuse("kernels:\n  add: add/cpu_naive\n  add: add/cpu_naive\n", NULL, 0,
           "line 3: kernels names add twice");
    refuse("kernels:\n  add: {a: b}\n", NULL, 0, "a name or a list of names");
    refuse("kernels: naive\n", NULL, 0, "kernels must map");
    refuse("kv: [f32\n", NULL, 0, "not YAML");
    refuse("- a\n- b\n", NULL, 0, "must be a mapping");
    refuse("name: [a]\n" KERNELS, NULL, 0, "line 1: name must be a text");
    refuse("kv: f32\nname: 0123456789012345678901234567890123456789012345678901234567890123\n",
           NULL, 0, "line 2: name must be a text of 1 to 63 bytes");
    refuse("", NULL, 0, "must be a mapping");
    refuse("kv: f32\n", NULL, 0, "names no kernels");
}

Test(strategy_files, what_contradicts_itself_is_refused)
{
    refuse("max_batch_size: 8\nmax_batch_tokens: 4\n" KERNELS, NULL, 0,
           "max_batch_tokens 4 is less than max_batch_size 8");
    refuse("threads: 2\naffinity: [0]\n" KERNELS, NULL, 0, "affinity lists 1 CPUs for 2 threads");
    refuse("affinity: [0, x]\nthreads: 2\n" KERNELS, NULL, 0, "\"x\" is no CPU number");
    refuse("backend: cuda\n" KERNELS, NULL, 0, "cuda is not served");
    refuse("prefix_sharing: true\n" KERNELS, NULL, 0, "line 1: prefix_sharing is not served");
}

/* Numbers of four digits fill more than a kilobyte. */
Test(strategy_files, a_long_affinity_is_taken_whole)
{
    char text[4096] = "affinity=", *const set[] = {"threads=256", text};
    struct as_strategy strategy;
    struct as_error error = {0};
    for (int i = 0; i < 256; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "%s%d", i == 0 ? "" : ",",
                 1000 + i);
    cr_assert_eq(as_strategy_parse(&strategy, "mine", KERNELS, strlen(KERNELS),
                                   (const char *const *)set, 2, &error),
                 0, "%s", error.message);
    cr_assert_eq(strategy.affinity_count, 256);
    cr_assert_eq(strategy.affinity[255], 1255);
    for (int i = 0; i < 1024; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), ", ");
    cr_assert_eq(as_strategy_parse(&strategy, "mine", KERNELS, strlen(KERNELS),
                                   (const char *const *)set, 2, NULL),
                 AS_ERR_USAGE);
}

Test(strategy_files, overrides_apply_last_and_are_checked)
{
    const char *const set[] = {"threads=3", "kernels.add=add/other,add/cpu_naive"};
    const char *const unknown[] = {"thread=3"}, *const shapeless[] = {"threads"};
    const char *text = "threads: 2\n" KERNELS;
    struct as_strategy strategy;
    cr_assert_eq(as_strategy_parse(&strategy, "mine.yaml", text, strlen(text), set, 2, NULL), 0);
    cr_assert_eq(strategy.threads, 3);
    cr_assert_eq(strategy.choices, 1);
    cr_assert_eq(strategy.choice[0].variants, 2);
    cr_assert_str_eq(strategy.choice[0].variant[1], "add/cpu_naive");
    refuse(text, unknown, 1, "did you mean threads?");
    refuse(text, shapeless, 1, "write it as field=value");
}

/* The resolved form is a strategy file that means the same. */
Test(strategy_files, the_resolved_form_reads_back_with_the_same_digest)
{
    for (size_t i = 0; i < as_shipped_strategy_count; i++) {
        struct as_strategy strategy, again;
        char digest[17], same[17], other[17];
        const char *const set[] = {"threads=7"};
        struct as_error error = {0};
        cr_assert_eq(as_strategy_load(&strategy, as_shipped_strategies[i].name, NULL, 0, &error),
                     0);
        char *text = as_strategy_resolved(&strategy);
        cr_assert_not_null(text);
        cr_assert_eq(as_strategy_parse(&again, "again", text, strlen(text), NULL, 0, &error), 0,
                     "%s", error.message);
        as_strategy_digest(&strategy, digest);
        as_strategy_digest(&again, same);
        cr_assert_str_eq(digest, same);
        cr_assert_eq(as_strategy_parse(&again, "again", text, strlen(text), set, 1, &error), 0);
        as_strategy_digest(&again, other);
        cr_assert_str_neq(digest, other);
        free(text);
    }
}

Test(strategy_files, unknown_names_offer_the_nearest)
{
    struct as_strategy strategy;
    struct as_error error = {0};
    cr_assert_eq(as_strategy_load(&strategy, "naiv", NULL, 0, &error), AS_ERR_USAGE);
    cr_assert_not_null(strstr(error.message, "did you mean naive?"), "%s", error.message);
    as_error_clear(&error);
    cr_assert_eq(as_strategy_load(&strategy, "./nowhere.yaml", NULL, 0, &error), AS_ERR_IO);
    cr_assert_not_null(strstr(error.message, "./nowhere.yaml"));
}
