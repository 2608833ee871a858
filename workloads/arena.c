#include <string.h>

#include "as_memory.h"
#include "parse.h"

#define CHUNK_BYTES ((size_t)64 << 10)

struct chunk {
    struct chunk *next;
    size_t used, size;
    max_align_t data[];
};

struct as_workload_arena {
    struct chunk *chunks;
};

static struct chunk *new_chunk(size_t bytes, struct as_error *error)
{
    size_t size = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
    size_t whole;
    if (as_add_overflows(size, sizeof(struct chunk), &whole)) {
        as_fail_memory(error, SIZE_MAX, "a workload");
        return NULL;
    }
    struct chunk *chunk = as_calloc(error, whole, 1, "a workload");
    if (chunk != NULL)
        chunk->size = size;
    return chunk;
}

void *as_awl_alloc(struct as_workload *workload, size_t count, size_t size, struct as_error *error)
{
    size_t bytes;
    if (as_mul_overflows(count, size, &bytes) || bytes > SIZE_MAX - sizeof(max_align_t)) {
        as_fail_memory(error, SIZE_MAX, "a workload");
        return NULL;
    }
    bytes = as_align_up(bytes == 0 ? 1 : bytes, sizeof(max_align_t));
    if (workload->arena == NULL) {
        workload->arena = as_calloc(error, 1, sizeof *workload->arena, "a workload");
        if (workload->arena == NULL)
            return NULL;
    }
    struct chunk **head = &workload->arena->chunks;
    if (*head == NULL || (*head)->size - (*head)->used < bytes) {
        struct chunk *chunk = new_chunk(bytes, error);
        if (chunk == NULL)
            return NULL;
        if (*head != NULL && bytes > CHUNK_BYTES / 2) {
            /* A large piece goes behind the head, whose room stays open to small ones. */
            chunk->next = (*head)->next;
            (*head)->next = chunk;
            chunk->used = bytes;
            return chunk->data;
        }
        chunk->next = *head;
        *head = chunk;
    }
    char *piece = (char *)(*head)->data + (*head)->used;
    (*head)->used += bytes;
    return piece;
}

char *as_awl_copy(struct as_workload *workload, const char *text, struct as_error *error)
{
    size_t bytes = strlen(text) + 1;
    char *copy = as_awl_alloc(workload, bytes, 1, error);
    return copy == NULL ? NULL : memcpy(copy, text, bytes);
}

void as_awl_free_arena(struct as_workload *workload)
{
    if (workload->arena == NULL)
        return;
    for (struct chunk *chunk = workload->arena->chunks, *next; chunk != NULL; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
    free(workload->arena);
    workload->arena = NULL;
}
