/* The seal of a report: 24 bytes behind the HDF5 file, which HDF5 passes over, with a checksum of
 * all between the superblock and them. HDF5 1.10 may crash on a damaged file, so damage is found
 * before it sees one. A program that edits the file through HDF5 cuts the seal off: such a file is
 * read, unsealed. */
#ifndef AS_SEAL_H
#define AS_SEAL_H

#include <stdint.h>

#include "as_error.h"

enum as_seal { AS_SEAL_NONE, AS_SEAL_GOOD, AS_SEAL_BROKEN };

/* Appends the seal to the file `fd` (open for reading and writing) of `size` bytes. */
int as_seal_write(int fd, uint64_t size, const char *path, struct as_error *error);

/* Looks at the file `fd` of `size` bytes. */
int as_seal_check(int fd, uint64_t size, const char *path, enum as_seal *seal,
                  struct as_error *error);

#endif
