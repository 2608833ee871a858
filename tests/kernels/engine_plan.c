/* Cutting programs: covers found and refused, order kept, addresses never shared by the living. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "device/cpu/cpu_device.h"
#include "engine/planner.h"

static struct as_registry *registry;

static void make(void)
{
    cr_assert_eq(as_registry_create(&registry, NULL), 0);
}

static void unmake(void)
{
    as_registry_free(registry);
}

TestSuite(engine_plan, .init = make, .fini = unmake);

/* A program written by hand: each node reads values, the last value is kept. */
struct sketch {
    struct as_program program;
    struct as_node node[16];
    struct as_value value[17];
};

static int32_t sketch_node(struct sketch *s, enum assay_op op, int32_t a, int32_t b)
{
    int32_t n = (int32_t)s->program.nodes++, v = (int32_t)s->program.values++;
    s->node[n] = (struct as_node){.shape = {.op = op, .n = 8},
                                  .input = {a, b, AS_NO_VALUE, AS_NO_VALUE},
                                  .effect = AS_NO_VALUE,
                                  .output = v,
                                  .layer = -1};
    s->value[v] = (struct as_value){
        .name = "v", .rows = AS_ROWS_TOKENS, .columns = 8, .dtype = ASSAY_F32, .producer = n};
    if (a != AS_NO_VALUE)
        s->value[a].readers++;
    if (b != AS_NO_VALUE)
        s->value[b].readers++;
    return v;
}

static void sketch_begin(struct sketch *s)
{
    *s = (struct sketch){0};
    s->program.node = s->node;
    s->program.value = s->value;
    s->program.values = 1;
    s->value[0] = (struct as_value){
        .name = "input", .rows = AS_ROWS_TOKENS, .columns = 8, .dtype = ASSAY_F32, .producer = -1};
}

static const struct assay_cover silu_add = {
    .name = "test",
    .nodes = 2,
    .externals = 3,
    .outputs = 1,
    .node = {{.op = ASSAY_SILU_MUL, .input = {ASSAY_EXTERNAL(0), ASSAY_EXTERNAL(1)}},
             {.op = ASSAY_ADD, .input = {0, ASSAY_EXTERNAL(2)}}},
    .output = {1}};

Test(engine_plan, a_swallowed_value_with_a_reader_outside_is_refused)
{
    struct sketch s;
    char why[128] = "";
    sketch_begin(&s);
    int32_t product = sketch_node(&s, ASSAY_SILU_MUL, 0, 0);
    sketch_node(&s, ASSAY_ADD, product, 0);
    const int32_t nodes[] = {0, 1};
    cr_assert(as_cover_legal(&s.program, &silu_add, nodes, why, sizeof why));
    sketch_node(&s, ASSAY_ADD, product, 0);
    cr_assert_not(as_cover_legal(&s.program, &silu_add, nodes, why, sizeof why));
    cr_assert_not_null(strstr(why, "swallows"));
}

Test(engine_plan, a_value_may_be_swallowed_by_a_node_that_reads_it_twice)
{
    static const struct assay_cover doubled = {
        .name = "test",
        .nodes = 2,
        .externals = 2,
        .outputs = 1,
        .node = {{.op = ASSAY_SILU_MUL, .input = {ASSAY_EXTERNAL(0), ASSAY_EXTERNAL(1)}},
                 {.op = ASSAY_ADD, .input = {0, 0}}},
        .output = {1}};
    struct sketch s;
    char why[128] = "";
    sketch_begin(&s);
    int32_t product = sketch_node(&s, ASSAY_SILU_MUL, 0, 0);
    sketch_node(&s, ASSAY_ADD, product, product);
    const int32_t nodes[] = {0, 1};
    cr_assert(as_cover_legal(&s.program, &doubled, nodes, why, sizeof why), "%s", why);
}

Test(engine_plan, a_swallowed_value_that_is_kept_is_refused)
{
    struct sketch s;
    char why[128] = "";
    sketch_begin(&s);
    int32_t product = sketch_node(&s, ASSAY_SILU_MUL, 0, 0);
    sketch_node(&s, ASSAY_ADD, product, 0);
    s.value[product].kept = true;
    const int32_t nodes[] = {0, 1};
    cr_assert_not(as_cover_legal(&s.program, &silu_add, nodes, why, sizeof why));
    cr_assert_not_null(strstr(why, "caller"));
}

/* 0 ─► 1 ─► 2 with 0 and 2 in the cover and 1 outside: neither can run first. */
Test(engine_plan, a_path_that_leaves_and_comes_back_is_refused)
{
    static const struct assay_cover declared = {
        .name = "test",
        .nodes = 2,
        .externals = 3,
        .outputs = 2,
        .node = {{.op = ASSAY_SILU_MUL, .input = {ASSAY_EXTERNAL(0), ASSAY_EXTERNAL(1)}},
                 {.op = ASSAY_ADD, .input = {0, ASSAY_EXTERNAL(2)}}},
        .output = {0, 1}};
    struct sketch s;
    char why[128] = "";
    sketch_begin(&s);
    int32_t first = sketch_node(&s, ASSAY_SILU_MUL, 0, 0);
    int32_t outside = sketch_node(&s, ASSAY_ADD, first, 0);
    sketch_node(&s, ASSAY_ADD, first, outside);
    const int32_t nodes[] = {0, 2};
    cr_assert_not(as_cover_legal(&s.program, &declared, nodes, why, sizeof why));
    cr_assert_not_null(strstr(why, "leaves"));
}

static size_t choices_for_covers(struct as_kernel_choice *choice, bool cover)
{
    size_t count = 0;
    static const char *const names[] = {"add_rms_norm", "add", "rms_norm", "silu_mul"};
    for (size_t i = cover ? 0 : 1; i < 4; i++) {
        choice[count] = (struct as_kernel_choice){.variants = 1};
        snprintf(choice[count].name, sizeof choice[count].name, "%s", names[i]);
        snprintf(choice[count].variant[0], sizeof choice[count].variant[0], "%s/cpu_naive",
                 names[i]);
        count++;
    }
    return count;
}

/* add ─► rms_norm, and the sum goes on to a second add: the residual of a decoder. */
static void residual(struct sketch *s)
{
    sketch_begin(s);
    int32_t sum = sketch_node(s, ASSAY_ADD, 0, 0);
    int32_t normed = sketch_node(s, ASSAY_RMS_NORM, sum, AS_NO_VALUE);
    int32_t product = sketch_node(s, ASSAY_SILU_MUL, normed, normed);
    int32_t last = sketch_node(s, ASSAY_ADD, sum, product);
    s->value[last].kept = true;
}

Test(engine_plan, covers_come_first_in_the_strategys_order)
{
    struct sketch s;
    struct as_grouping *grouping;
    struct as_kernel_choice choice[4];
    const int64_t rows[2] = {4, 1};
    residual(&s);
    size_t choices = choices_for_covers(choice, true);
    cr_assert_eq(as_group_program(&s.program, registry, choice, choices, rows, &grouping, NULL), 0);
    cr_assert_eq(grouping->groups, 3);
    cr_assert_not_null(grouping->group[0].cover);
    cr_assert_eq(grouping->group[0].nodes, 2);
    cr_assert_eq(grouping->group[0].outputs, 2, "the sum is read later, so it leaves the cover");
    as_grouping_free(grouping);
    choices = choices_for_covers(choice, false);
    cr_assert_eq(as_group_program(&s.program, registry, choice, choices, rows, &grouping, NULL), 0);
    cr_assert_eq(grouping->groups, 4);
    as_grouping_free(grouping);
}

Test(engine_plan, an_op_that_no_choice_names_is_an_error)
{
    struct sketch s;
    struct as_grouping *grouping;
    struct as_kernel_choice choice[4];
    struct as_error error = {0};
    const int64_t rows[2] = {4, 1};
    residual(&s);
    size_t choices = choices_for_covers(choice, false) - 1;
    cr_assert_eq(as_group_program(&s.program, registry, choice, choices, rows, &grouping, &error),
                 AS_ERR_USAGE);
    cr_assert_not_null(strstr(error.message, "silu_mul"));
    cr_assert_null(grouping);
}

/* At every group, what is alive has addresses of its own; outputs never lie on inputs. */
static void check_addresses(const struct as_grouping *grouping, int64_t rows)
{
    const struct as_program *program = grouping->program;
    for (size_t g = 0; g < grouping->groups; g++)
        for (size_t a = 0; a < program->values; a++)
            for (size_t b = a + 1; b < program->values; b++) {
                size_t born[2] = {SIZE_MAX, SIZE_MAX}, dies[2] = {0, 0};
                const size_t value[2] = {a, b};
                for (size_t h = 0; h < grouping->groups; h++)
                    for (int i = 0; i < 2; i++) {
                        const struct as_group *group = &grouping->group[h];
                        for (int32_t o = 0; o < group->outputs; o++)
                            if (group->output[o] == (int32_t)value[i])
                                born[i] = dies[i] = h;
                        for (int32_t e = 0; e < group->externals; e++)
                            if (group->external[e] == (int32_t)value[i])
                                dies[i] = h;
                    }
                for (int i = 0; i < 2; i++) {
                    if (program->value[value[i]].kept)
                        dies[i] = grouping->groups;
                    if (value[i] == 0)
                        born[i] = 0;
                }
                bool both = born[0] <= g && g <= dies[0] && born[1] <= g && g <= dies[1];
                size_t bytes = (size_t)rows * 8 * sizeof(float);
                size_t low = grouping->offset[a], high = grouping->offset[b];
                if (both && low != SIZE_MAX && high != SIZE_MAX)
                    cr_assert(low + bytes <= high || high + bytes <= low,
                              "values %zu and %zu overlap in group %zu", a, b, g);
            }
}

Test(engine_plan, living_values_never_overlap)
{
    struct sketch s;
    struct as_grouping *grouping;
    struct as_kernel_choice choice[4];
    const int64_t rows[2] = {16, 1};
    sketch_begin(&s);
    int32_t x = 0, kept = 0;
    for (int i = 0; i < 3; i++) {
        int32_t sum = sketch_node(&s, ASSAY_ADD, x, kept);
        int32_t normed = sketch_node(&s, ASSAY_RMS_NORM, sum, AS_NO_VALUE);
        int32_t product = sketch_node(&s, ASSAY_SILU_MUL, normed, x);
        kept = sum;
        x = sketch_node(&s, ASSAY_ADD, product, sum);
    }
    s.value[x].kept = true;
    size_t choices = choices_for_covers(choice, true);
    cr_assert_eq(as_group_program(&s.program, registry, choice, choices, rows, &grouping, NULL), 0);
    check_addresses(grouping, rows[0]);
    cr_assert_leq(grouping->arena_bytes, (size_t)13 * 16 * 8 * sizeof(float));
    as_grouping_free(grouping);
}

Test(engine_plan, no_supporting_variant_is_refused_with_every_reason)
{
    struct assay_device *device;
    struct as_error error = {0};
    cr_assert_eq(as_cpu_device_open(&device, 1, NULL, NULL), 0);
    struct as_kernel_choice choice = {.name = "linear", .variants = 2};
    snprintf(choice.variant[0], sizeof choice.variant[0], "linear/cpu_naive");
    snprintf(choice.variant[1], sizeof choice.variant[1], "linear/cpu_naive_q8");
    const struct assay_problem problem = {.nodes = 1,
                                          .node = {{.op = ASSAY_LINEAR,
                                                    .weights = ASSAY_Q6_K,
                                                    .activations = ASSAY_F32,
                                                    .kv = ASSAY_NONE,
                                                    .tokens = 1,
                                                    .n = 8,
                                                    .k = 256}}};
    cr_assert_null(as_select_variant(registry, device, &choice, &problem, &error));
    cr_assert_not_null(strstr(error.message, "linear/cpu_naive does not serve weights in q6_k"),
                       "%s", error.message);
    cr_assert_not_null(strstr(error.message, "linear/cpu_naive_q8"), "%s", error.message);
    device->close(device);
}

Test(engine_plan, unknown_variants_offer_the_nearest)
{
    struct as_error error = {0};
    cr_assert_null(as_registry_find(registry, "linear/cpu_naiv", &error));
    cr_assert_not_null(strstr(error.message, "did you mean linear/cpu_naive"), "%s", error.message);
}

Test(engine_plan, a_misspelt_variant_is_refused_behind_a_right_one)
{
    struct sketch s;
    struct as_error error = {0};
    struct as_grouping *grouping;
    const int64_t rows[2] = {4, 4};
    struct as_kernel_choice choice = {.name = "add", .variant = {"add/cpu_naive", "add/cpu_naiv"}};
    sketch_begin(&s);
    sketch_node(&s, ASSAY_ADD, 0, 0);
    choice.variants = 1;
    cr_assert_eq(as_group_program(&s.program, registry, &choice, 1, rows, &grouping, &error), 0,
                 "%s", error.message);
    as_grouping_free(grouping);
    choice.variants = 2;
    cr_assert_eq(as_group_program(&s.program, registry, &choice, 1, rows, &grouping, &error),
                 AS_ERR_USAGE);
    cr_assert_not_null(strstr(error.message, "kernels for add: "), "%s", error.message);
    cr_assert_not_null(strstr(error.message, "did you mean add/cpu_naive"), "%s", error.message);
}

/* Eight externals, four weights and four outputs are more than a launch has room for. */
Test(engine_plan, covers_that_no_launch_can_hold_are_refused)
{
    struct assay_cover cover = {.name = "large", .nodes = 4, .externals = 8, .outputs = 4};
    const struct assay_variant variant = {.name = "large/test", .cover = &cover};
    struct as_error error = {0};
    for (int32_t i = 0; i < 4; i++) {
        cover.node[i] = (struct assay_cover_node){
            ASSAY_LINEAR, {ASSAY_EXTERNAL(2 * i), ASSAY_EXTERNAL(2 * i + 1)}};
        cover.output[i] = i;
    }
    cr_assert_eq(as_registry_add(registry, &variant, "test", &error), AS_ERR_USAGE);
    cr_assert_not_null(strstr(error.message, "12 operands"), "%s", error.message);
    cover.nodes = cover.outputs = 1;
    cover.node[0].input[0] = 0;
    cr_assert_eq(as_registry_add(registry, &variant, "test", NULL), AS_ERR_USAGE, "reads itself");
    cover.node[0].input[0] = ASSAY_EXTERNAL(8);
    cr_assert_eq(as_registry_add(registry, &variant, "test", NULL), AS_ERR_USAGE);
    cover.node[0].input[0] = ASSAY_EXTERNAL(0);
    cr_assert_eq(as_registry_add(registry, &variant, "test", NULL), 0);
}
