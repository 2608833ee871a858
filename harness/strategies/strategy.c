#include "strategies/strategy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "as_file.h"
#include "as_hash.h"
#include "as_text.h"
#include "strategies/fields.h"

#define FILE_LIMIT (1u << 20)

struct reading {
    struct as_strategy *strategy;
    yaml_document_t *document;
    const char *origin;
    char where[320]; /* "naive.yaml line 7" */
    struct as_error *error;
};

static const char *at(struct reading *reading, const yaml_node_t *node)
{
    snprintf(reading->where, sizeof reading->where, "strategy %s line %zu", reading->origin,
             node->start_mark.line + 1);
    return reading->where;
}

static const char *scalar(const yaml_node_t *node)
{
    if (node == NULL || node->type != YAML_SCALAR_NODE)
        return NULL;
    const char *text = (const char *)node->data.scalar.value;
    return strlen(text) == node->data.scalar.length ? text : NULL;
}

/* A scalar, or a sequence of scalars joined by commas. */
static int joined(struct reading *reading, const yaml_node_t *node, struct as_text *text)
{
    const char *one = scalar(node);
    if (one != NULL) {
        as_text_addf(text, "%s", one);
        return 0;
    }
    if (node == NULL || node->type != YAML_SEQUENCE_NODE)
        return as_fail(reading->error, AS_ERR_USAGE, "%s: a name or a list of names belongs here",
                       reading->where);
    for (yaml_node_item_t *item = node->data.sequence.items.start;
         item < node->data.sequence.items.top; item++) {
        const char *name = scalar(yaml_document_get_node(reading->document, *item));
        if (name == NULL)
            return as_fail(reading->error, AS_ERR_USAGE, "%s: a list may hold names only",
                           reading->where);
        as_text_addf(text, "%s%s", text->length == 0 ? "" : ",", name);
    }
    return 0;
}

static int read_kernels(struct reading *reading, const yaml_node_t *node)
{
    if (node->type != YAML_MAPPING_NODE)
        return as_fail(reading->error, AS_ERR_USAGE,
                       "%s: kernels must map ops and covers to variants", at(reading, node));
    for (yaml_node_pair_t *pair = node->data.mapping.pairs.start;
         pair < node->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml_document_get_node(reading->document, pair->key);
        const yaml_node_t *value = yaml_document_get_node(reading->document, pair->value);
        const char *name = scalar(key);
        at(reading, key);
        if (name == NULL)
            return as_fail(reading->error, AS_ERR_USAGE, "%s: an op or cover belongs here",
                           reading->where);
        for (int32_t i = 0; i < reading->strategy->choices; i++)
            if (strcmp(reading->strategy->choice[i].name, name) == 0)
                return as_fail(reading->error, AS_ERR_USAGE, "%s: kernels names %s twice",
                               reading->where, name);
        struct as_text variants = {0};
        int code = joined(reading, value, &variants);
        if (code == 0 && variants.failed)
            code = as_fail_memory(reading->error, variants.length, "a strategy");
        if (code == 0)
            code = as_strategy_set_kernel(
                reading->strategy, name, variants.data == NULL ? "" : variants.data,
                (int32_t)key->start_mark.line + 1, reading->where, reading->error);
        as_text_free(&variants);
        if (code != 0)
            return code;
    }
    return 0;
}

static int unknown_field(const char *where, const char *name, struct as_error *error)
{
    const char *reason = as_strategy_unserved(name);
    if (reason != NULL)
        return as_fail(error, AS_ERR_UNSUPPORTED, "%s: %s is not served: %s", where, name, reason);
    const char *names[64];
    size_t count = 0;
    for (size_t i = 0; i < as_strategy_field_count; i++)
        names[count++] = as_strategy_fields[i].name;
    names[count++] = "kernels";
    names[count++] = "name";
    const char *nearest = as_nearest(name, names, count);
    return as_fail(error, AS_ERR_USAGE, "%s: there is no field \"%.60s\"%s%s%s", where, name,
                   nearest == NULL ? "" : "; did you mean ", nearest == NULL ? "" : nearest,
                   nearest == NULL ? "" : "?");
}

/* Cut short, two names could become one, and a report tells strategies apart by name. */
static int read_name(struct reading *reading, const yaml_node_t *value)
{
    const char *name = scalar(value);
    if (name == NULL || name[0] == '\0' || strlen(name) >= sizeof reading->strategy->name)
        return as_fail(reading->error, AS_ERR_USAGE, "%s: name must be a text of 1 to %zu bytes",
                       reading->where, sizeof reading->strategy->name - 1);
    snprintf(reading->strategy->name, sizeof reading->strategy->name, "%s", name);
    return 0;
}

static int read_field(struct reading *reading, const yaml_node_t *key, const yaml_node_t *value,
                      uint64_t *seen)
{
    const char *name = scalar(key);
    at(reading, key);
    if (name == NULL)
        return as_fail(reading->error, AS_ERR_USAGE, "%s: a field's name belongs here",
                       reading->where);
    if (strcmp(name, "kernels") == 0)
        return read_kernels(reading, value);
    const struct as_strategy_field *field = as_strategy_field(name);
    if (strcmp(name, "name") == 0)
        return read_name(reading, value);
    if (field == NULL)
        return unknown_field(reading->where, name, reading->error);
    uint64_t bit = (uint64_t)1 << (field - as_strategy_fields);
    if ((*seen & bit) != 0)
        return as_fail(reading->error, AS_ERR_USAGE, "%s: %s is given twice", reading->where, name);
    *seen |= bit;
    struct as_text text = {0};
    int code = joined(reading, value, &text);
    if (code == 0 && text.failed)
        code = as_fail_memory(reading->error, text.length, "a strategy");
    if (code == 0)
        code = as_strategy_set(reading->strategy, field, text.data == NULL ? "" : text.data,
                               reading->where, reading->error);
    as_text_free(&text);
    return code;
}

static int read_document(struct reading *reading)
{
    const yaml_node_t *root = yaml_document_get_root_node(reading->document);
    uint64_t seen = 0;
    if (root == NULL || root->type != YAML_MAPPING_NODE)
        return as_fail(reading->error, AS_ERR_USAGE,
                       "strategy %s: the file must be a mapping of fields", reading->origin);
    for (yaml_node_pair_t *pair = root->data.mapping.pairs.start;
         pair < root->data.mapping.pairs.top; pair++) {
        int code = read_field(reading, yaml_document_get_node(reading->document, pair->key),
                              yaml_document_get_node(reading->document, pair->value), &seen);
        if (code != 0)
            return code;
    }
    return 0;
}

static int apply_set(struct as_strategy *strategy, const char *set, struct as_error *error)
{
    char name[96];
    const char *equals = strchr(set, '=');
    if (equals == NULL || equals == set || (size_t)(equals - set) >= sizeof name)
        return as_fail(error, AS_ERR_USAGE, "--set %.60s: write it as field=value", set);
    memcpy(name, set, (size_t)(equals - set));
    name[equals - set] = '\0';
    char where[160];
    snprintf(where, sizeof where, "--set %.100s", set);
    if (strncmp(name, "kernels.", 8) == 0)
        return as_strategy_set_kernel(strategy, name + 8, equals + 1, 0, where, error);
    const struct as_strategy_field *field = as_strategy_field(name);
    if (strcmp(name, "kernels") == 0 || strcmp(name, "name") == 0)
        return as_fail(error, AS_ERR_USAGE, "%s: %s", where,
                       name[0] == 'k' ? "write it as kernels.OP=VARIANT, one --set an op"
                                      : "a strategy's name is its file's");
    if (field == NULL)
        return unknown_field(where, name, error);
    return as_strategy_set(strategy, field, equals + 1, where, error);
}

/* Combinations that mean nothing or cannot run. */
static int check_combination(const struct as_strategy *strategy, struct as_error *error)
{
    if (strategy->choices == 0)
        return as_fail(error, AS_ERR_USAGE, "strategy %s names no kernels", strategy->name);
    if (strategy->affinity_count > 0 && strategy->threads != strategy->affinity_count)
        return as_fail(error, AS_ERR_USAGE,
                       "strategy %s: affinity lists %d CPUs for %d threads; set threads to the "
                       "same number",
                       strategy->name, (int)strategy->affinity_count, (int)strategy->threads);
    if (strategy->max_batch_tokens < strategy->max_batch_size)
        return as_fail(error, AS_ERR_USAGE,
                       "strategy %s: max_batch_tokens %d is less than max_batch_size %d, so a step "
                       "could not decode all of its sequences",
                       strategy->name, (int)strategy->max_batch_tokens,
                       (int)strategy->max_batch_size);
    return 0;
}

int as_strategy_parse(struct as_strategy *strategy, const char *origin, const char *text,
                      size_t size, const char *const *set, size_t sets, struct as_error *error)
{
    *strategy = (struct as_strategy){0};
    size_t length = strlen(origin);
    bool suffixed = length > 5 && strcmp(origin + length - 5, ".yaml") == 0;
    snprintf(strategy->name, sizeof strategy->name, "%.*s", (int)(length - (suffixed ? 5 : 0)),
             origin);
    for (size_t i = 0; i < as_strategy_field_count; i++)
        if (as_strategy_fields[i].kind == AS_FIELD_WORD ||
            as_strategy_fields[i].kind == AS_FIELD_NUMBER)
            *(int32_t *)((char *)strategy + as_strategy_fields[i].offset) =
                as_strategy_fields[i].initial;
    yaml_parser_t parser;
    yaml_document_t document;
    if (!yaml_parser_initialize(&parser))
        return as_fail_memory(error, sizeof parser, "the YAML parser");
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, size);
    int code = 0;
    if (!yaml_parser_load(&parser, &document)) {
        code = as_fail(error, AS_ERR_USAGE, "strategy %s line %zu: not YAML: %s", origin,
                       parser.problem_mark.line + 1,
                       parser.problem == NULL ? "unreadable" : parser.problem);
    } else {
        struct reading reading = {
            .strategy = strategy, .document = &document, .origin = origin, .error = error};
        code = read_document(&reading);
        yaml_document_delete(&document);
    }
    yaml_parser_delete(&parser);
    for (size_t i = 0; code == 0 && i < sets; i++)
        code = apply_set(strategy, set[i], error);
    return code != 0 ? code : check_combination(strategy, error);
}

static int load_shipped(struct as_strategy *strategy, const char *name, const char *const *set,
                        size_t sets, struct as_error *error)
{
    const char *names[64] = {0};
    size_t count = 0;
    for (size_t i = 0; i < as_shipped_strategy_count && count < 64; i++) {
        const struct as_shipped_strategy *shipped = &as_shipped_strategies[i];
        if (strcmp(shipped->name, name) == 0)
            return as_strategy_parse(strategy, name, shipped->text, strlen(shipped->text), set,
                                     sets, error);
        names[count++] = shipped->name;
    }
    const char *nearest = as_nearest(name, names, count);
    struct as_text list = {0};
    for (size_t i = 0; i < count; i++)
        as_text_addf(&list, "%s%s", i == 0 ? "" : ", ", names[i]);
    as_fail(error, AS_ERR_USAGE,
            "there is no strategy \"%.60s\"%s%s%s; shipped are %s, a file of your own is given by "
            "its path",
            name, nearest == NULL ? "" : " (did you mean ", nearest == NULL ? "" : nearest,
            nearest == NULL ? "" : "?)", list.data == NULL ? "none" : list.data);
    as_text_free(&list);
    return AS_ERR_USAGE;
}

int as_strategy_load(struct as_strategy *strategy, const char *name, const char *const *set,
                     size_t sets, struct as_error *error)
{
    size_t length = strlen(name);
    bool file =
        strchr(name, '/') != NULL || (length > 5 && strcmp(name + length - 5, ".yaml") == 0);
    if (!file)
        return load_shipped(strategy, name, set, sets, error);
    char *text;
    size_t size;
    int code = as_read_file(&text, &size, name, FILE_LIMIT, error);
    if (code != 0)
        return code;
    const char *slash = strrchr(name, '/');
    code =
        as_strategy_parse(strategy, slash == NULL ? name : slash + 1, text, size, set, sets, error);
    free(text);
    return code;
}

static const char *word_of(const struct as_strategy_field *field, int32_t value)
{
    for (const struct as_word *word = field->words; word->word != NULL; word++)
        if (word->value == value)
            return word->word;
    return "?";
}

static void add_fields(const struct as_strategy *strategy, struct as_text *text)
{
    for (size_t i = 0; i < as_strategy_field_count; i++) {
        const struct as_strategy_field *field = &as_strategy_fields[i];
        const void *from = (const char *)strategy + field->offset;
        if (field->kind == AS_FIELD_WORD)
            as_text_addf(text, "%s: %s\n", field->name, word_of(field, *(const int32_t *)from));
        else if (field->kind == AS_FIELD_NUMBER)
            as_text_addf(text, "%s: %d\n", field->name, (int)*(const int32_t *)from);
    }
    as_text_addf(text, "affinity: [");
    for (int32_t i = 0; i < strategy->affinity_count; i++)
        as_text_addf(text, "%s%d", i == 0 ? "" : ", ", (int)strategy->affinity[i]);
    as_text_addf(text, "]\nkernels:\n");
    for (int32_t i = 0; i < strategy->choices; i++) {
        const struct as_kernel_choice *choice = &strategy->choice[i];
        as_text_addf(text, "  %s: [", choice->name);
        for (int32_t v = 0; v < choice->variants; v++)
            as_text_addf(text, "%s%s", v == 0 ? "" : ", ", choice->variant[v]);
        as_text_addf(text, "]\n");
    }
}

char *as_strategy_resolved(const struct as_strategy *strategy)
{
    struct as_text text = {0};
    as_text_addf(&text, "name: %s\n", strategy->name);
    add_fields(strategy, &text);
    if (text.failed) {
        as_text_free(&text);
        return NULL;
    }
    return text.data;
}

void as_strategy_digest(const struct as_strategy *strategy, char digest[17])
{
    struct as_text text = {0};
    add_fields(strategy, &text);
    snprintf(digest, 17, "%016llx",
             (unsigned long long)as_hash64(text.data, text.data == NULL ? 0 : text.length, 0));
    as_text_free(&text);
}
