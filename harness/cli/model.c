/* assay model: look into a model, make a synthetic one. */
#define _GNU_SOURCE
#include <argp.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "as_text.h"
#include "cli/commands.h"
#include "engine/gguf.h"
#include "engine/model.h"
#include "engine/synthetic.h"
#include "preprocess/from_model.h"

enum { EXIT_YES = 0, EXIT_WRONG = 2 };

/* ---- what info prints ---------------------------------------------------------------------- */

/* Tensors of one type, summed as the file stores them. */
struct type_total {
    const char *type;
    size_t tensors, bytes;
};

#define TYPES 48 /* more than GGUF has */

static size_t sum_types(const struct as_model *model, struct type_total totals[TYPES])
{
    size_t count = 0;
    for (size_t i = 0; i < model->tensor_count; i++) {
        const struct as_tensor *tensor = &model->tensors[i];
        size_t at = 0;
        while (at < count && strcmp(totals[at].type, tensor->type) != 0)
            at++;
        if (at == TYPES)
            continue;
        if (at == count)
            totals[count++] = (struct type_total){.type = tensor->type};
        totals[at].tensors++;
        totals[at].bytes += tensor->stored_bytes;
    }
    return count;
}

static uint64_t count_parameters(const struct as_model *model)
{
    uint64_t parameters = 0;
    for (size_t i = 0; i < model->tensor_count; i++)
        if (model->tensors[i].used)
            parameters += (uint64_t)model->tensors[i].rows * model->tensors[i].columns;
    return parameters;
}

/* Text of a file as printable ASCII: bytes that a terminal might obey are escaped. */
static void add_printable(struct as_text *out, const char *bytes, size_t length, size_t limit)
{
    for (size_t i = 0; i < length && i < limit; i++) {
        unsigned char byte = (unsigned char)bytes[i];
        if (byte == '\n')
            as_text_add(out, "\\n", 2);
        else if (byte < ' ' || byte == 0x7f)
            as_text_addf(out, "\\x%02x", byte);
        else
            as_text_add(out, bytes + i, 1);
    }
    if (length > limit)
        as_text_add(out, "...", 3);
}

/* The name of the chat template, "unknown" or "none". */
static const char *template_name(const struct as_model *model)
{
    const struct as_template *chat;
    struct as_error error = {0};
    if (model->vocabulary.chat_template.bytes == NULL)
        return "none";
    if (as_template_from_model(model, NULL, &chat, &error) != 0)
        return "unknown";
    return as_template_name(chat);
}

struct info_options {
    bool json, tensors, metadata, no_digest, help;
    const char *path;
    int paths;
};

/* ---- for people ---------------------------------------------------------------------------- */

static void print_token(const struct as_model_vocabulary *v, const char *name, int32_t id,
                        const char *note)
{
    struct as_text text = {0};
    if (id < 0)
        return;
    if (v->pieces != NULL)
        add_printable(&text, v->pieces[id].bytes, v->pieces[id].length, 32);
    printf(", %s %" PRId32 "%s%s%s", name, id, text.data != NULL ? " " : "",
           text.data != NULL ? text.data : "", note);
    as_text_free(&text);
}

static void print_vocabulary(const struct as_model *model)
{
    const struct as_model_vocabulary *v = &model->vocabulary;
    printf("  %-14s %.40s", "tokenizer", v->model);
    if (v->pre != NULL)
        printf(" (%.40s)", v->pre);
    if (model->folder.path == NULL)
        printf(": %zu pieces, %zu merges", v->count, v->merge_count);
    else if (model->folder.tokenizer.bytes == NULL)
        printf(": missing");
    else
        printf(": %zu bytes", model->folder.tokenizer.length);
    print_token(v, "BOS", v->bos, v->add_bos ? " (added)" : "");
    print_token(v, "EOS", v->eos, v->add_eos ? " (added)" : "");
    printf("\n  %-14s %s\n", "chat template", template_name(model));
}

static void print_tensors(const struct as_model *model)
{
    for (size_t i = 0; i < model->tensor_count; i++) {
        const struct as_tensor *tensor = &model->tensors[i];
        char quoted[80];
        printf("  %-32s %-7s %8zu x %-8zu %12zu bytes%s\n",
               as_gguf_quote(quoted,
                             (struct as_bytes){tensor->stored_name, strlen(tensor->stored_name)}),
               tensor->type, tensor->rows, tensor->columns, tensor->stored_bytes,
               tensor->used ? "" : "  (not used)");
    }
}

static void print_metadata(const struct as_model *model)
{
    for (size_t i = 0; i < model->metadata_count; i++) {
        const struct as_metadata *item = &model->metadata[i];
        struct as_text text = {0};
        char quoted[80];
        switch (item->kind) {
        case AS_METADATA_UNSIGNED: as_text_addf(&text, "%" PRIu64, item->value.u); break;
        case AS_METADATA_SIGNED: as_text_addf(&text, "%" PRId64, item->value.i); break;
        case AS_METADATA_FLOAT: as_text_addf(&text, "%.9g", item->value.f); break;
        case AS_METADATA_BOOL: as_text_addf(&text, "%s", item->value.u ? "true" : "false"); break;
        case AS_METADATA_ARRAY:
            as_text_addf(&text, "%" PRIu64 " elements", item->value.count);
            break;
        case AS_METADATA_STRING:
            add_printable(&text, item->value.text.bytes, item->value.text.length, 100);
            break;
        }
        printf("  %-40s %-16s %s\n", as_gguf_quote(quoted, item->key), item->type,
               text.data != NULL ? text.data : "");
        as_text_free(&text);
    }
}

/* What variants of the architecture add to it. */
static void print_variant(const struct as_model *model)
{
    const struct as_model_config *c = &model->config;
    struct as_error lacking = {0};
    if (c->rope_scaling != AS_ROPE_SCALING_NONE)
        printf("  %-14s %s by %g, magnitude %g\n", "RoPE scaling",
               as_rope_scaling_name(c->rope_scaling), (double)c->rope_factor,
               (double)c->rope_magnitude);
    if (c->qkv_bias || c->qk_norm)
        printf("  %-14s %s%s%s\n", "attention", c->qkv_bias ? "biases of q, k and v" : "",
               c->qkv_bias && c->qk_norm ? ", " : "", c->qk_norm ? "norms of q and k" : "");
    if (model->note != NULL)
        printf("  %-14s %s\n", "note", model->note);
    if (as_model_check_served(model, &lacking) != 0)
        printf("  %-14s no: %s\n", "can be run", lacking.message);
}

static void print_info(const struct as_model *model, const struct info_options *options)
{
    const struct as_model_config *c = &model->config;
    struct type_total totals[TYPES];
    struct as_text name = {0};
    size_t types = sum_types(model, totals);
    add_printable(&name, model->name, strlen(model->name), 100);
    printf("%s\n  %-14s %s\n", model->path, "name", name.data != NULL ? name.data : "");
    as_text_free(&name);
    printf("  %-14s %s, %zu bytes\n", "file", model->format, model->file_bytes);
    printf("  %-14s %s, %u layers, hidden %u, %u heads on %u KV heads of %u, feed-forward %u\n",
           "architecture", model->family, c->layers, c->hidden, c->heads, c->kv_heads, c->head_dim,
           c->ffn);
    printf("  %-14s %u tokens\n  %-14s %" PRIu64 "\n", "context", c->context, "parameters",
           count_parameters(model));
    printf("  %-14s base %g, %u of %u dimensions of a head, %s pairs\n", "RoPE",
           (double)c->rope_base, c->rope_dims, c->head_dim,
           c->rope_pairing == ASSAY_ROPE_ADJACENT ? "adjacent" : "half-apart");
    printf("  %-14s RMS, epsilon %g\n", "norms", (double)c->rms_epsilon);
    printf("  %-14s %s\n", "output", c->tied_output ? "tied to token_embd" : "its own matrix");
    print_variant(model);
    for (size_t i = 0; i < types; i++)
        printf("  %-14s %-7s %6zu tensors %14zu bytes\n", i == 0 ? "weights" : "", totals[i].type,
               totals[i].tensors, totals[i].bytes);
    if (model->unused_count > 0)
        printf("  %-14s %zu tensors are not used (--tensors marks them)\n", "",
               model->unused_count);
    print_vocabulary(model);
    if (!options->no_digest)
        printf("  %-14s %016" PRIx64 "\n", "digest", as_model_digest(model));
    if (options->metadata) {
        printf("\n");
        print_metadata(model);
    }
    if (options->tensors) {
        printf("\n");
        print_tensors(model);
    }
}

/* ---- for programs -------------------------------------------------------------------------- */

/* Text of a file may hold bytes that are not UTF-8, which JSON cannot: those become '?'. */
static json_t *safe_string(const char *bytes, size_t length)
{
    json_t *json = json_stringn(bytes, length);
    if (json != NULL)
        return json;
    char *copy = malloc(length > 0 ? length : 1);
    if (copy == NULL)
        return NULL;
    for (size_t i = 0; i < length; i++)
        copy[i] = (char)((unsigned char)bytes[i] < 0x80 ? bytes[i] : '?');
    json = json_stringn(copy, length);
    free(copy);
    return json;
}

static json_t *describe_config(const struct as_model *model)
{
    const struct as_model_config *c = &model->config;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:I, s:s, s:b, "
                     "s:b, s:b, s:s, s:f, s:f}",
                     "layers", (json_int_t)c->layers, "hidden", (json_int_t)c->hidden, "heads",
                     (json_int_t)c->heads, "kv_heads", (json_int_t)c->kv_heads, "head_dim",
                     (json_int_t)c->head_dim, "ffn", (json_int_t)c->ffn, "vocab",
                     (json_int_t)c->vocab, "context", (json_int_t)c->context, "rms_epsilon",
                     (double)c->rms_epsilon, "rope_base", (double)c->rope_base, "rope_dims",
                     (json_int_t)c->rope_dims, "rope_pairing",
                     c->rope_pairing == ASSAY_ROPE_ADJACENT ? "adjacent" : "halves", "tied_output",
                     (int)c->tied_output, "qkv_bias", (int)c->qkv_bias, "qk_norm", (int)c->qk_norm,
                     "rope_scaling", as_rope_scaling_name(c->rope_scaling), "rope_factor",
                     (double)c->rope_factor, "rope_magnitude", (double)c->rope_magnitude);
}

static json_t *describe_vocabulary(const struct as_model *model)
{
    const struct as_model_vocabulary *v = &model->vocabulary;
    json_t *pre = v->pre != NULL ? safe_string(v->pre, strlen(v->pre)) : json_null();
    return json_pack("{s:o, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:s}", "model",
                     safe_string(v->model, strlen(v->model)), "pre", pre, "pieces",
                     (json_int_t)v->count, "merges", (json_int_t)v->merge_count, "bos",
                     (json_int_t)v->bos, "eos", (json_int_t)v->eos, "unknown",
                     (json_int_t)v->unknown, "pad", (json_int_t)v->pad, "add_bos", (int)v->add_bos,
                     "add_eos", (int)v->add_eos, "chat_template", template_name(model));
}

static json_t *describe_tensors(const struct as_model *model)
{
    json_t *list = json_array();
    for (size_t i = 0; i < model->tensor_count; i++) {
        const struct as_tensor *tensor = &model->tensors[i];
        json_array_append_new(
            list, json_pack("{s:o, s:o, s:s, s:I, s:I, s:I, s:b}", "name",
                            safe_string(tensor->name, strlen(tensor->name)), "stored_name",
                            safe_string(tensor->stored_name, strlen(tensor->stored_name)), "type",
                            tensor->type, "rows", (json_int_t)tensor->rows, "columns",
                            (json_int_t)tensor->columns, "bytes", (json_int_t)tensor->stored_bytes,
                            "used", (int)tensor->used));
    }
    return list;
}

static json_t *describe_metadata(const struct as_model *model)
{
    json_t *list = json_array();
    for (size_t i = 0; i < model->metadata_count; i++) {
        const struct as_metadata *item = &model->metadata[i];
        json_t *value = NULL;
        switch (item->kind) {
        case AS_METADATA_UNSIGNED:
            /* JSON's integers end at 2^63 here; the few beyond keep 53 bits. */
            value = item->value.u <= INT64_MAX ? json_integer((json_int_t)item->value.u)
                                               : json_real((double)item->value.u);
            break;
        case AS_METADATA_SIGNED: value = json_integer((json_int_t)item->value.i); break;
        case AS_METADATA_FLOAT: value = json_real(item->value.f); break;
        case AS_METADATA_BOOL: value = json_boolean(item->value.u != 0); break;
        case AS_METADATA_STRING:
            value = safe_string(item->value.text.bytes, item->value.text.length);
            break;
        case AS_METADATA_ARRAY:
            value = json_pack("{s:I}", "count", (json_int_t)item->value.count);
            break;
        }
        /* NaN and infinities have no JSON form. */
        json_array_append_new(list,
                              json_pack("{s:o, s:s, s:o}", "key",
                                        safe_string(item->key.bytes, item->key.length), "type",
                                        item->type, "value", value != NULL ? value : json_null()));
    }
    return list;
}

static json_t *describe(const struct as_model *model, const struct info_options *options)
{
    struct type_total totals[TYPES];
    size_t types = sum_types(model, totals);
    json_t *weights = json_array();
    char digest[17];
    for (size_t i = 0; i < types; i++)
        json_array_append_new(weights, json_pack("{s:s, s:I, s:I}", "type", totals[i].type,
                                                 "tensors", (json_int_t)totals[i].tensors, "bytes",
                                                 (json_int_t)totals[i].bytes));
    json_t *answer =
        json_pack("{s:o, s:o, s:s, s:I, s:s, s:o, s:I, s:o, s:I, s:o}", "path",
                  safe_string(model->path, strlen(model->path)), "name",
                  safe_string(model->name, strlen(model->name)), "format", model->format,
                  "file_bytes", (json_int_t)model->file_bytes, "architecture", model->family,
                  "config", describe_config(model), "parameters",
                  (json_int_t)count_parameters(model), "weights", weights, "unused_tensors",
                  (json_int_t)model->unused_count, "tokenizer", describe_vocabulary(model));
    if (answer == NULL)
        return NULL;
    struct as_error lacking = {0};
    int lacks = as_model_check_served(model, &lacking);
    json_object_set_new(answer, "lacking", lacks != 0 ? json_string(lacking.message) : json_null());
    json_object_set_new(answer, "note",
                        model->note != NULL ? json_string(model->note) : json_null());
    if (!options->no_digest) {
        snprintf(digest, sizeof digest, "%016" PRIx64, as_model_digest(model));
        json_object_set_new(answer, "digest", json_string(digest));
    }
    if (options->metadata)
        json_object_set_new(answer, "metadata", describe_metadata(model));
    if (options->tensors)
        json_object_set_new(answer, "tensors", describe_tensors(model));
    return answer;
}

/* ---- options ------------------------------------------------------------------------------- */

/* Names the nearest option for one that does not exist; argp itself offers none. */
static bool options_known(int argc, char **argv, const struct argp_option *accepted)
{
    const char *names[16];
    size_t count = 0;
    for (const struct argp_option *o = accepted; o->name != NULL && count < 15; o++)
        names[count++] = o->name;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strncmp(argv[i], "--", 2) != 0)
            continue;
        size_t length = strcspn(argv[i] + 2, "=");
        bool known = false;
        for (size_t j = 0; j < count; j++)
            known = known || strncmp(names[j], argv[i] + 2, length) == 0;
        if (known)
            continue;
        char wanted[64];
        snprintf(wanted, sizeof wanted, "%.*s", (int)(length < 63 ? length : 63), argv[i] + 2);
        const char *nearest = as_nearest(wanted, names, count);
        fprintf(stderr, "%s: there is no option --%s%s%s%s; --help lists them\n", argv[0], wanted,
                nearest != NULL ? " (did you mean --" : "", nearest != NULL ? nearest : "",
                nearest != NULL ? "?)" : "");
        return false;
    }
    return true;
}

static void print_help(struct argp_state *state)
{
    argp_state_help(state, stdout,
                    ARGP_HELP_USAGE | ARGP_HELP_PRE_DOC | ARGP_HELP_LONG | ARGP_HELP_POST_DOC);
    state->next = state->argc;
}

/* ---- info ---------------------------------------------------------------------------------- */

static const char info_doc[] =
    "Says what a model holds: architecture, sizes, weights, tokenizer, chat template. MODEL is a "
    "GGUF file, a Hugging Face folder (config.json and safetensors) or synthetic:SHAPE.\v"
    "Examples:\n"
    "  assay model info models/SmolLM2-135M-Instruct.Q4_1.gguf\n"
    "  assay model info --tensors synthetic:tiny\n"
    "  assay model info --json --metadata model.gguf\n\n"
    "Exit codes: 0; 2 when the model cannot be used or the command is wrong.";

static error_t parse_info(int key, char *argument, struct argp_state *state)
{
    struct info_options *options = state->input;
    switch (key) {
    case 'j': options->json = true; return 0;
    case 't': options->tensors = true; return 0;
    case 'm': options->metadata = true; return 0;
    case 'n': options->no_digest = true; return 0;
    case '?':
        options->help = true;
        print_help(state);
        return 0;
    case ARGP_KEY_ARG:
        options->path = argument;
        options->paths++;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static int show_info(const struct info_options *options)
{
    struct as_model *model;
    struct as_error error = {0};
    int status = EXIT_YES;
    if (as_model_inspect(options->path, &model, &error) != 0) {
        fprintf(stderr, "assay model info: %s\n", error.message);
        return EXIT_WRONG;
    }
    if (options->json) {
        json_t *answer = describe(model, options);
        if (answer == NULL || json_dumpf(answer, stdout, JSON_INDENT(2)) != 0 ||
            putchar('\n') == EOF) {
            fprintf(stderr, "assay model info: the answer cannot be written as JSON\n");
            status = EXIT_WRONG;
        }
        json_decref(answer);
    } else {
        print_info(model, options);
    }
    as_model_close(model);
    return status;
}

static int info(int argc, char **argv)
{
    static const struct argp_option accepted[] = {
        {"tensors", 't', NULL, 0, "List every tensor", 0},
        {"metadata", 'm', NULL, 0, "List every metadata key", 0},
        {"json", 'j', NULL, 0, "Print one JSON object instead of text", 0},
        {"no-digest", 'n', NULL, 0, "Leave out the digest, which reads the whole file", 0},
        {"help", '?', NULL, 0, "Print this help", -1},
        {"usage", '?', NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, -1},
        {0}};
    static const struct argp parser = {accepted, parse_info, "MODEL", info_doc, NULL, NULL, NULL};
    static char name[] = "assay model info";
    struct info_options options = {0};
    argv[0] = name;
    if (!options_known(argc, argv, accepted) ||
        argp_parse(&parser, argc, argv, ARGP_NO_EXIT | ARGP_NO_HELP, NULL, &options) != 0)
        return EXIT_WRONG;
    if (options.help)
        return EXIT_YES;
    if (options.paths != 1) {
        fprintf(stderr,
                "assay model info: give one model, a GGUF file, a folder or synthetic:SHAPE, "
                "not %d\n",
                options.paths);
        return EXIT_WRONG;
    }
    return show_info(&options);
}

/* ---- synth --------------------------------------------------------------------------------- */

static const char synth_doc[] =
    "Writes a synthetic model as GGUF: seeded random weights in a known shape, a tokenizer of "
    "bytes, a chat template. The same SHAPE gives the same file on every machine.\v"
    "SHAPE is a name and, after commas, what differs from its defaults: layers=N, context=N, "
    "weights=TYPE, seed=N. The shapes:\n"
    "  tiny        4 layers, F32, 3 MB\n"
    "  llama-135m  the shape of SmolLM2-135M, Q4_1, 98 MB\n"
    "  llama-1b    the shape of Llama 3.2 1B, BF16, 2.5 GB\n"
    "  llama-8b    the shape of Llama 3 8B, BF16, 16 GB\n\n"
    "Examples:\n"
    "  assay model synth tiny -o tiny.gguf\n"
    "  assay model synth llama-1b,layers=2,weights=q8_0 --output small.gguf\n\n"
    "Commands that take a model also take synthetic:SHAPE, which is written into the cache folder "
    "once.\n\n"
    "Exit codes: 0; 2 when the file cannot be made or the command is wrong.";

struct synth_options {
    const char *shape, *output;
    int shapes;
    bool help;
};

static error_t parse_synth(int key, char *argument, struct argp_state *state)
{
    struct synth_options *options = state->input;
    switch (key) {
    case 'o': options->output = argument; return 0;
    case '?':
        options->help = true;
        print_help(state);
        return 0;
    case ARGP_KEY_ARG:
        options->shape = argument;
        options->shapes++;
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

static int write_synthetic(const struct synth_options *options)
{
    struct as_synthetic synthetic;
    struct as_error error = {0};
    char text[256];
    if (as_synthetic_parse(&synthetic, options->shape, &error) != 0 ||
        as_synthetic_write(&synthetic, options->output, 0, &error) != 0) {
        fprintf(stderr, "assay model synth: %s\n", error.message);
        return EXIT_WRONG;
    }
    as_synthetic_describe(&synthetic, text, sizeof text);
    printf("%s: %s, %.1f MB of weights\n", options->output, text,
           (double)as_synthetic_bytes(&synthetic) / 1e6);
    return EXIT_YES;
}

static int synth(int argc, char **argv)
{
    static const struct argp_option accepted[] = {
        {"output", 'o', "FILE", 0, "The GGUF file to write", 0},
        {"help", '?', NULL, 0, "Print this help", -1},
        {"usage", '?', NULL, OPTION_ALIAS | OPTION_HIDDEN, NULL, -1},
        {0}};
    static const struct argp parser = {accepted, parse_synth, "SHAPE", synth_doc, NULL, NULL, NULL};
    static char name[] = "assay model synth";
    struct synth_options options = {0};
    argv[0] = name;
    if (!options_known(argc, argv, accepted) ||
        argp_parse(&parser, argc, argv, ARGP_NO_EXIT | ARGP_NO_HELP, NULL, &options) != 0)
        return EXIT_WRONG;
    if (options.help)
        return EXIT_YES;
    if (options.shapes != 1 || options.output == NULL) {
        fprintf(stderr, "assay model synth: give one SHAPE and -o FILE, such as "
                        "`assay model synth tiny -o tiny.gguf`\n");
        return EXIT_WRONG;
    }
    return write_synthetic(&options);
}

/* ---- the command --------------------------------------------------------------------------- */

static const char usage[] =
    "Usage: assay model info [--tensors] [--metadata] [--json] MODEL\n"
    "       assay model synth SHAPE -o FILE\n"
    "\n"
    "MODEL is a GGUF file, a Hugging Face folder or synthetic:SHAPE.\n"
    "\n"
    "  info    say what a model holds\n"
    "  synth   write a synthetic model as GGUF\n"
    "\n"
    "Examples:\n"
    "  assay model info models/SmolLM2-135M-Instruct.Q4_1.gguf\n"
    "  assay model synth llama-135m -o llama-135m.gguf\n"
    "\n"
    "`assay model info --help` and `assay model synth --help` list their options.\n";

int as_command_model(int argc, char **argv)
{
    static const char *const commands[] = {"info", "synth"};
    int status = EXIT_WRONG;
    if (argc < 2) {
        fprintf(stderr, "assay model: no command given\n%s", usage);
    } else if (strcmp(argv[1], "info") == 0) {
        status = info(argc - 1, argv + 1);
    } else if (strcmp(argv[1], "synth") == 0) {
        status = synth(argc - 1, argv + 1);
    } else if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        fputs(usage, stdout);
        status = EXIT_YES;
    } else {
        const char *nearest = as_nearest(argv[1], commands, 2);
        fprintf(stderr, "assay model: there is no %s \"%s\"%s%s%s; there are info and synth\n",
                argv[1][0] == '-' ? "option" : "command", argv[1],
                nearest != NULL ? " (did you mean " : "", nearest != NULL ? nearest : "",
                nearest != NULL ? "?)" : "");
    }
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("assay model: cannot write the answer");
        status = EXIT_WRONG;
    }
    return status;
}
