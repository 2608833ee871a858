/* Token ids for prompts of which only the length, and perhaps the prefix tree, is known. */
#include <string.h>

#include "as_hash.h"
#include "as_random.h"
#include "parse.h"

/* Keeps the streams of rows and of sampling seeds apart. */
#define ROW_STREAM 0x726f77u
#define SEED_STREAM 0x73656564u

uint64_t as_awl_default_seed(const struct as_workload *workload, const char *id)
{
    uint64_t stream = as_hash64(id, strlen(id), SEED_STREAM);
    return as_random_u64(workload->header.synth_seed, stream, 0) >> 1;
}

/* `size` tokens of one stream, from its start. The 32 upper bits scale to an index by a product,
 * which favours no candidate by more than count / 2^32. */
static void draw(uint64_t seed, uint64_t stream, const int32_t *candidates, size_t count,
                 int32_t *tokens, size_t size)
{
    for (size_t j = 0; j < size; j++) {
        uint64_t value = as_random_u64(seed, stream, j) >> 32;
        tokens[j] = candidates[value * count >> 32];
    }
}

int as_workload_synthesize(const struct as_workload *workload,
                           const struct as_workload_request *request, const int32_t *candidates,
                           size_t count, int32_t *tokens, struct as_error *error)
{
    if (request->form != AS_WORKLOAD_LENGTH)
        return as_fail(error, AS_ERR_USAGE,
                       "cannot make up a prompt for \"%s\": it brings its own; ask only for rows "
                       "with \"len\"",
                       request->id);
    if (candidates == NULL || count == 0 || count > INT32_MAX)
        return as_fail(error, AS_ERR_USAGE,
                       "cannot make up a prompt for \"%s\" from %zu candidate tokens; pass 1 to "
                       "2^31-1",
                       request->id, count);
    uint64_t seed = workload->header.synth_seed;
    if (request->block_count == 0) {
        draw(seed, as_hash64(request->id, strlen(request->id), ROW_STREAM), candidates, count,
             tokens, request->length);
        return 0;
    }
    size_t block_tokens = workload->header.block_tokens, at = 0;
    for (size_t i = 0; i < request->block_count; i++) {
        size_t left = request->length - at;
        size_t size = left < block_tokens ? left : block_tokens;
        draw(seed, request->blocks[i], candidates, count, tokens + at, size);
        at += size;
    }
    return 0;
}
