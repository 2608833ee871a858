/* A fast 64-bit checksum for framing and tables (not for secrets): FNV-1a over 8-byte words with
 * a final mix; the tail is folded in byte by byte. Little-endian machines only, as all of assay. */
#ifndef AS_HASH_H
#define AS_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "as_random.h"

static inline uint64_t as_hash64(const void *data, size_t size, uint64_t seed)
{
    const uint8_t *bytes = data;
    uint64_t hash = seed ^ 0xcbf29ce484222325u ^ size;
    for (; size >= 8; bytes += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        hash = (hash ^ word) * 0x100000001b3u;
        hash ^= hash >> 29;
    }
    for (; size > 0; bytes++, size--)
        hash = (hash ^ *bytes) * 0x100000001b3u;
    return as_mix64(hash);
}

#endif
