/* One request of a workload. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "as_text.h"
#include "parse.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *const row_names[] = {
    "id",  "at_ns",  "after", "session",  "turn",  "text",  "messages",  "tokens",
    "len", "blocks", "out",   "sampling", "class", "model", "cancel_ns", "src"};
static const char *const after_names[] = {"id", "delay_ns"};
static const char *const message_names[] = {"role", "content"};
static const char *const roles[] = {"system", "user", "assistant", "tool", "developer"};
static const char *const out_names[] = {"n", "exact", "min"};
static const char *const sampling_names[] = {"seed", "temperature", "top_p", "top_k"};
static const char *const src_names[] = {"row"};

/* In the order of enum as_workload_form. */
static const char *const forms[] = {"text", "messages", "tokens", "len"};

static bool has(const struct as_awl_object *object, const char *field)
{
    return json_object_get(object->json, field) != NULL;
}

static int missing(const struct as_awl_object *object, const char *field, const char *advice)
{
    return as_awl_bad(object, field, "missing; %s", advice);
}

static int read_arrival(const struct as_awl_object *row, struct as_workload_request *request,
                        const char **after)
{
    char path[16];
    struct as_awl_object inner;
    if (has(row, "at_ns") == has(row, "after"))
        return as_awl_bad(row, "at_ns",
                          has(row, "after")
                              ? "found beside \"after\"; a row has exactly one of the two"
                              : "missing, and so is \"after\"; a row has exactly one of the two");
    int code = as_awl_u64(row, "at_ns", 0, INT64_MAX, &request->at_ns);
    if (code != 0 || (code = as_awl_inner(row, "after", &inner, path, sizeof path)) != 0 ||
        inner.json == NULL)
        return code;
    if ((code = as_awl_known(&inner, after_names, COUNT(after_names))) != 0 ||
        (code = as_awl_name(&inner, "id", after)) != 0 ||
        (code = as_awl_u64(&inner, "delay_ns", 0, INT64_MAX, &request->delay_ns)) != 0)
        return code;
    return *after != NULL ? 0
                          : missing(&inner, "id", "name the request whose end this one waits for");
}

static int read_role(const struct as_awl_object *message, const char **role)
{
    const char *name = NULL;
    int code = as_awl_name(message, "role", &name);
    if (code != 0)
        return code;
    if (name == NULL)
        return missing(message, "role", "say who speaks: system, user, assistant, tool");
    for (size_t i = 0; i < COUNT(roles); i++) {
        if (strcmp(name, roles[i]) == 0) {
            *role = roles[i];
            return 0;
        }
    }
    char shown[64];
    const char *near = as_nearest(name, roles, COUNT(roles));
    as_awl_excerpt(name, shown, sizeof shown);
    if (near != NULL)
        return as_awl_bad(message, "role", "found \"%s\"; did you mean \"%s\"?", shown, near);
    return as_awl_bad(message, "role",
                      "found \"%s\"; roles are system, user, assistant, tool, developer", shown);
}

static int read_messages(const struct as_awl_object *row, struct as_workload_request *request)
{
    json_t *list, *element;
    size_t i;
    int code = as_awl_array(row, "messages", &list);
    if (code != 0)
        return code;
    size_t count = json_array_size(list);
    if (count == 0)
        return as_awl_bad(row, "messages", "found an empty array; a prompt has a message");
    request->messages = as_awl_alloc(row->workload, count, sizeof *request->messages, row->error);
    if (request->messages == NULL)
        return AS_ERR_MEMORY;
    request->message_count = count;
    json_array_foreach(list, i, element)
    {
        char path[48], found[96];
        snprintf(path, sizeof path, "messages[%zu]", i);
        if (!json_is_object(element))
            return as_awl_bad(row, path, "found %s; a message is {\"role\": ..., \"content\": ...}",
                              as_awl_found(element, found, sizeof found));
        const struct as_awl_object message = {element, path, row->workload, row->error};
        struct as_workload_message *kept = &request->messages[i];
        if ((code = as_awl_known(&message, message_names, COUNT(message_names))) != 0 ||
            (code = read_role(&message, &kept->role)) != 0 ||
            (code = as_awl_text(&message, "content", &kept->content)) != 0)
            return code;
        if (kept->content == NULL)
            return missing(&message, "content", "give the text that was said");
    }
    return 0;
}

static int read_tokens(const struct as_awl_object *row, struct as_workload_request *request)
{
    json_t *list, *element;
    size_t i;
    int code = as_awl_array(row, "tokens", &list);
    if (code != 0)
        return code;
    size_t count = json_array_size(list);
    if (count == 0)
        return as_awl_bad(row, "tokens", "found an empty array; a prompt has a token");
    uint64_t most = INT32_MAX;
    if (row->workload->header.tokenizer.vocab != AS_WORKLOAD_NO_U64)
        most = row->workload->header.tokenizer.vocab - 1;
    request->tokens = as_awl_alloc(row->workload, count, sizeof *request->tokens, row->error);
    if (request->tokens == NULL)
        return AS_ERR_MEMORY;
    request->length = (uint32_t)count; /* fits: a line holds fewer than 2^24 */
    json_array_foreach(list, i, element)
    {
        uint64_t token;
        if ((code = as_awl_element(row, "tokens", i, element, 0, most, &token)) != 0)
            return code;
        request->tokens[i] = (int32_t)token;
    }
    return 0;
}

static int read_blocks(const struct as_awl_object *row, struct as_workload_request *request)
{
    json_t *list, *element;
    size_t i;
    int code = as_awl_array(row, "blocks", &list);
    if (code != 0 || list == NULL)
        return code;
    uint64_t block_tokens = row->workload->header.block_tokens;
    if (block_tokens == AS_WORKLOAD_NO_U64)
        return as_awl_bad(row, "blocks",
                          "found, but the header has no \"block_tokens\"; say there how many "
                          "tokens a block has");
    size_t count = json_array_size(list);
    uint64_t wanted = (request->length + block_tokens - 1) / block_tokens;
    if (count != wanted)
        return as_awl_bad(row, "blocks",
                          "found %zu, but %" PRIu32 " tokens in blocks of %" PRIu64 " make %" PRIu64
                          "; correct \"len\", \"blocks\" or \"block_tokens\"",
                          count, request->length, block_tokens, wanted);
    request->blocks = as_awl_alloc(row->workload, count, sizeof *request->blocks, row->error);
    if (request->blocks == NULL)
        return AS_ERR_MEMORY;
    request->block_count = count;
    json_array_foreach(list, i, element)
    {
        code = as_awl_element(row, "blocks", i, element, 0, INT64_MAX, &request->blocks[i]);
        if (code != 0)
            return code;
    }
    return 0;
}

static int read_prompt(const struct as_awl_object *row, struct as_workload_request *request)
{
    for (size_t i = 0; i < COUNT(forms); i++) {
        if (!has(row, forms[i]))
            continue;
        if (request->form != 0)
            return as_awl_bad(row, forms[i],
                              "found beside \"%s\"; a row has exactly one of text, messages, "
                              "tokens, len",
                              forms[request->form - 1]);
        request->form = (enum as_workload_form)(i + 1);
    }
    if (request->form == 0)
        return missing(row, "text", "a row has exactly one of text, messages, tokens, len");
    if (request->form != AS_WORKLOAD_LENGTH && has(row, "blocks"))
        return as_awl_bad(row, "blocks", "found without \"len\"; blocks say what a length holds");
    uint64_t length = 0;
    int code = 0;
    switch (request->form) {
    case AS_WORKLOAD_TEXT:
        code = as_awl_text(row, "text", &request->text);
        if (code == 0 && request->text[0] == '\0')
            code = as_awl_bad(row, "text", "found \"\"; a prompt has at least one byte");
        return code;
    case AS_WORKLOAD_MESSAGES: return read_messages(row, request);
    case AS_WORKLOAD_TOKENS: return read_tokens(row, request);
    default:
        if ((code = as_awl_u64(row, "len", 1, INT32_MAX, &length)) != 0)
            return code;
        request->length = (uint32_t)length;
        return read_blocks(row, request);
    }
}

static int read_output(const struct as_awl_object *row, struct as_workload_output *output)
{
    char path[16];
    struct as_awl_object out;
    uint64_t n = AS_WORKLOAD_DEFAULT_OUTPUT, min = 0;
    int code = as_awl_inner(row, "out", &out, path, sizeof path);
    if (code != 0)
        return code;
    if (out.json != NULL) {
        if ((code = as_awl_known(&out, out_names, COUNT(out_names))) != 0 ||
            (code = as_awl_u64(&out, "n", 1, INT32_MAX, &n)) != 0 ||
            (code = as_awl_u64(&out, "min", 0, n, &min)) != 0 ||
            (code = as_awl_bool(&out, "exact", &output->exact)) != 0)
            return code;
    }
    output->n = (uint32_t)n;
    output->min = (uint32_t)(output->exact ? n : min);
    return 0;
}

static int read_sampling(const struct as_awl_object *row, struct as_workload_request *request)
{
    char path[16];
    struct as_awl_object inner;
    struct as_workload_sampling *sampling = &request->sampling;
    sampling->top_p = 1;
    int code = as_awl_inner(row, "sampling", &inner, path, sizeof path);
    if (code != 0 || inner.json == NULL)
        return code;
    uint64_t top_k = 0;
    sampling->present = true;
    sampling->temperature = 1;
    sampling->seed = as_awl_default_seed(row->workload, request->id);
    if ((code = as_awl_known(&inner, sampling_names, COUNT(sampling_names))) != 0 ||
        (code = as_awl_u64(&inner, "seed", 0, INT64_MAX, &sampling->seed)) != 0 ||
        (code = as_awl_real(&inner, "temperature", &sampling->temperature)) != 0 ||
        (code = as_awl_real(&inner, "top_p", &sampling->top_p)) != 0 ||
        (code = as_awl_u64(&inner, "top_k", 0, INT32_MAX, &top_k)) != 0)
        return code;
    sampling->top_k = (uint32_t)top_k;
    if (sampling->temperature < 0)
        return as_awl_bad(&inner, "temperature", "found %g; give 0 (greedy) or more",
                          sampling->temperature);
    if (!(sampling->top_p > 0 && sampling->top_p <= 1))
        return as_awl_bad(&inner, "top_p", "found %g; give a share above 0, at most 1",
                          sampling->top_p);
    return 0;
}

static int read_rest(const struct as_awl_object *row, struct as_workload_request *request)
{
    char path[16];
    struct as_awl_object src;
    uint64_t turn = AS_WORKLOAD_NO_U32;
    int code;
    if ((code = as_awl_name(row, "session", &request->session)) != 0 ||
        (code = as_awl_u64(row, "turn", 0, INT32_MAX, &turn)) != 0 ||
        (code = as_awl_name(row, "class", &request->class_name)) != 0 ||
        (code = as_awl_name(row, "model", &request->model)) != 0 ||
        (code = as_awl_u64(row, "cancel_ns", 0, INT64_MAX, &request->cancel_ns)) != 0 ||
        (code = as_awl_inner(row, "src", &src, path, sizeof path)) != 0)
        return code;
    request->turn = (uint32_t)turn;
    if (src.json == NULL)
        return 0;
    if ((code = as_awl_known(&src, src_names, COUNT(src_names))) != 0)
        return code;
    return as_awl_u64(&src, "row", 0, INT64_MAX, &request->source_row);
}

int as_awl_row(struct as_workload *workload, struct as_workload_request *request,
               const char **after, json_t *json, struct as_error *error)
{
    const struct as_awl_object row = {json, "", workload, error};
    request->at_ns = request->cancel_ns = AS_WORKLOAD_NO_TIME;
    request->after = AS_WORKLOAD_NO_REQUEST;
    request->source_row = AS_WORKLOAD_NO_U64;
    if (has(&row, "assay_workload"))
        return as_awl_bad(&row, "assay_workload",
                          "a second header; give each workload a file of its own");
    int code;
    if ((code = as_awl_known(&row, row_names, COUNT(row_names))) != 0 ||
        (code = as_awl_name(&row, "id", &request->id)) != 0)
        return code;
    if (request->id == NULL)
        return missing(&row, "id", "give each request a name of its own");
    if ((code = read_arrival(&row, request, after)) != 0 ||
        (code = read_prompt(&row, request)) != 0 ||
        (code = read_output(&row, &request->output)) != 0 ||
        (code = read_sampling(&row, request)) != 0)
        return code;
    return read_rest(&row, request);
}
