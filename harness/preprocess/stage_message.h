/* What crosses the border of the text stage, as blocks of bytes without pointers. */
#ifndef AS_STAGE_MESSAGE_H
#define AS_STAGE_MESSAGE_H

#include "preprocess/stage.h"

/* A request as it lies in the queue. */
struct as_stage_block {
    uint64_t size; /* of the whole block, bytes */
    uint64_t id;
    uint64_t queued_ns;
    uint32_t kind; /* enum as_input */
    uint32_t plain, no_generation;
    uint32_t padding;
    uint64_t count;       /* bytes of the text, messages, or tokens */
    unsigned char data[]; /* the text; the tokens; or two u64 lengths (role, content) for each
                             message and then all roles and contents in order */
};

/* Bytes of text in the request, whatever its kind; SIZE_MAX when that overflows. */
size_t as_stage_text_bytes(const struct as_stage_request *request);

/* A block of the request, to be freed with free(). */
int as_stage_pack(const struct as_stage_request *request, uint64_t queued_ns,
                  struct as_stage_block **block, struct as_error *error);

/* Points messages[block->count] into the block of a request with messages. */
void as_stage_unpack_messages(const struct as_stage_block *block, struct as_message *messages);

/* A result with `count` tokens, or with the message of `failure`; the times are left 0. */
int as_stage_result_make(uint64_t id, const int32_t *tokens, size_t count,
                         const struct as_error *failure, struct as_stage_result **result,
                         struct as_error *error);

#endif
