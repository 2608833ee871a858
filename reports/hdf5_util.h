/* What the writer and the reader share of HDF5: types of rows, property lists, error messages.
 * HDF5's own printing is off; its stack becomes part of one message. */
#ifndef AS_HDF5_UTIL_H
#define AS_HDF5_UTIL_H

#include <hdf5.h>

#include "as_error.h"
#include "schema.h"

#define AS_CHUNK_ROWS 8192

/* To be called where a chain of HDF5 calls begins: from here on its failures are remembered (not
 * printed) in this thread, and what was remembered before is forgotten. */
void as_hdf5_begin(void);

/* As as_fail(), with the innermost words of HDF5's first failure since as_hdf5_begin() appended
 * (": No space left on device" where the system refused). */
int as_fail_hdf5(struct as_error *error, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The type of a field in files and in memory (they are the same). Not to be closed. */
hid_t as_hdf5_field_type(uint8_t type);

/* The compound type of a whole row; close with H5Tclose(). Negative on failure. */
hid_t as_hdf5_row_type(enum as_table table);

/* Variable-length UTF-8, for attributes. Close with H5Tclose(). */
hid_t as_hdf5_text_type(void);

/* Access properties for creating and for reading, both without HDF5's locks: the writer holds its
 * own, and a finished report never changes. Close with H5Pclose(). */
hid_t as_hdf5_create_access(void);
hid_t as_hdf5_read_access(void);

#endif
