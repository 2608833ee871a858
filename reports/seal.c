#include "seal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "as_hash.h"
#include "as_memory.h"

#define BLOCK ((size_t)1 << 20)
#define MAGIC "ASSEAL01"

/* HDF5 changes its superblock (which has a checksum of its own) as soon as it opens a file for
 * writing, and a killed program leaves it so: the seal does not cover it. */
#define SUPERBLOCK 48

struct seal {
    char magic[8];
    uint64_t size, checksum; /* of what lies before */
};

static int read_all(int fd, void *to, size_t size, uint64_t at, const char *path,
                    struct as_error *error)
{
    for (size_t done = 0; done < size;) {
        ssize_t got = pread(fd, (char *)to + done, size - done, (off_t)(at + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return as_fail_errno(error, AS_ERR_IO, "reading %s", path);
        if (got == 0)
            return as_fail(error, AS_ERR_IO, "reading %s: it became shorter meanwhile", path);
        done += (size_t)got;
    }
    return AS_OK;
}

static int checksum(int fd, uint64_t size, const char *path, uint64_t *sum, struct as_error *error)
{
    uint8_t *block = as_calloc(error, BLOCK, 1, "a checksum");
    int rc = block == NULL ? AS_ERR_MEMORY : AS_OK;
    *sum = size;
    for (uint64_t at = SUPERBLOCK; rc == AS_OK && at < size; at += BLOCK) {
        size_t length = size - at < BLOCK ? (size_t)(size - at) : BLOCK;
        rc = read_all(fd, block, length, at, path, error);
        if (rc == AS_OK)
            *sum = as_hash64(block, length, *sum);
    }
    free(block);
    return rc;
}

int as_seal_write(int fd, uint64_t size, const char *path, struct as_error *error)
{
    struct seal seal = {.magic = MAGIC, .size = size};
    int rc = checksum(fd, size, path, &seal.checksum, error);
    if (rc != AS_OK)
        return rc;
    if (pwrite(fd, &seal, sizeof seal, (off_t)size) != sizeof seal)
        return as_fail_errno(error, AS_ERR_IO, "writing the end of %s", path);
    return AS_OK;
}

int as_seal_check(int fd, uint64_t size, const char *path, enum as_seal *state,
                  struct as_error *error)
{
    struct seal seal;
    uint64_t sum;
    *state = AS_SEAL_NONE;
    if (size < sizeof seal)
        return AS_OK;
    int rc = read_all(fd, &seal, sizeof seal, size - sizeof seal, path, error);
    if (rc != AS_OK || memcmp(seal.magic, MAGIC, sizeof seal.magic) != 0)
        return rc;
    rc = checksum(fd, size - sizeof seal, path, &sum, error);
    if (rc == AS_OK)
        *state =
            seal.size == size - sizeof seal && seal.checksum == sum ? AS_SEAL_GOOD : AS_SEAL_BROKEN;
    return rc;
}
