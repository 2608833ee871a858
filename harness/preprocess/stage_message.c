#include "preprocess/stage_message.h"

#include <stdlib.h>
#include <string.h>

#include "as_memory.h"

size_t as_stage_text_bytes(const struct as_stage_request *request)
{
    if (request->kind == AS_INPUT_TEXT)
        return request->text.length;
    size_t total = 0;
    for (size_t i = 0; request->kind == AS_INPUT_MESSAGES && i < request->message_count; i++)
        if (as_add_overflows(total, request->messages[i].role.length, &total) ||
            as_add_overflows(total, request->messages[i].content.length, &total))
            return SIZE_MAX;
    return total;
}

/* Bytes of block->data, or SIZE_MAX. */
static size_t data_bytes(const struct as_stage_request *request)
{
    size_t fixed = 0, total;
    if (request->kind == AS_INPUT_MESSAGES)
        fixed = as_mul_overflows(request->message_count, 16, &fixed) ? SIZE_MAX : fixed;
    if (request->kind == AS_INPUT_TOKENS)
        fixed = as_mul_overflows(request->token_count, 4, &fixed) ? SIZE_MAX : fixed;
    return as_add_overflows(fixed, as_stage_text_bytes(request), &total) ? SIZE_MAX : total;
}

static unsigned char *put(unsigned char *at, const void *bytes, size_t length)
{
    if (length > 0)
        memcpy(at, bytes, length);
    return at + length;
}

static void put_messages(const struct as_stage_request *request, unsigned char *data)
{
    unsigned char *at = data + 16 * request->message_count;
    for (size_t i = 0; i < request->message_count; i++) {
        const struct as_message *message = &request->messages[i];
        const uint64_t lengths[2] = {message->role.length, message->content.length};
        memcpy(data + 16 * i, lengths, sizeof lengths);
        at = put(at, message->role.bytes, message->role.length);
        at = put(at, message->content.bytes, message->content.length);
    }
}

int as_stage_pack(const struct as_stage_request *request, uint64_t queued_ns,
                  struct as_stage_block **block, struct as_error *error)
{
    *block = NULL;
    size_t bytes = data_bytes(request);
    if (bytes > SIZE_MAX / 2)
        return as_fail_memory(error, bytes, "a request");
    struct as_stage_block *made = malloc(sizeof *made + bytes);
    if (made == NULL)
        return as_fail_memory(error, sizeof *made + bytes, "a request");
    *made = (struct as_stage_block){.size = sizeof *made + bytes,
                                    .id = request->id,
                                    .queued_ns = queued_ns,
                                    .kind = (uint32_t)request->kind,
                                    .plain = request->plain,
                                    .no_generation = request->no_generation};
    if (request->kind == AS_INPUT_TEXT) {
        made->count = request->text.length;
        put(made->data, request->text.bytes, request->text.length);
    } else if (request->kind == AS_INPUT_MESSAGES) {
        made->count = request->message_count;
        put_messages(request, made->data);
    } else {
        made->count = request->token_count;
        put(made->data, request->tokens, 4 * request->token_count);
    }
    *block = made;
    return 0;
}

void as_stage_unpack_messages(const struct as_stage_block *block, struct as_message *messages)
{
    const char *at = (const char *)block->data + 16 * block->count;
    for (size_t i = 0; i < block->count; i++) {
        uint64_t lengths[2];
        memcpy(lengths, block->data + 16 * i, sizeof lengths);
        messages[i].role = (struct as_piece){at, lengths[0]};
        messages[i].content = (struct as_piece){at + lengths[0], lengths[1]};
        at += lengths[0] + lengths[1];
    }
}

int as_stage_result_make(uint64_t id, const int32_t *tokens, size_t count,
                         const struct as_error *failure, struct as_stage_result **result,
                         struct as_error *error)
{
    *result = NULL;
    size_t error_bytes = failure != NULL ? strlen(failure->message) + 1 : 0, bytes;
    struct as_stage_result *made = NULL;
    if (!as_mul_overflows(count, sizeof *tokens, &bytes) && bytes < SIZE_MAX / 2) {
        bytes += sizeof *made + error_bytes;
        made = malloc(bytes);
    }
    if (made == NULL)
        return as_fail_memory(error, bytes, "the result of a request");
    *made = (struct as_stage_result){
        .size = bytes, .id = id, .token_count = count, .error_bytes = error_bytes};
    if (count > 0)
        memcpy(made->tokens, tokens, count * sizeof *tokens);
    if (failure != NULL) {
        made->status = failure->code;
        memcpy((char *)&made->tokens[count], failure->message, error_bytes);
    }
    *result = made;
    return 0;
}

const char *as_stage_result_error(const struct as_stage_result *result)
{
    return result->error_bytes > 0 ? (const char *)&result->tokens[result->token_count] : "";
}
