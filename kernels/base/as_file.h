/* Files: mapped, read whole within a limit, written whole by rename. */
#ifndef AS_FILE_H
#define AS_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "as_error.h"

/* A file mapped read-only. An empty file has data NULL and size 0. */
struct as_mapping {
    const uint8_t *data;
    size_t size;
};

/* Maps `path`; release with as_unmap(), which accepts a zeroed mapping. */
int as_map_file(struct as_mapping *mapping, const char *path, struct as_error *error);
void as_unmap(struct as_mapping *mapping);

/* Reads all of `path` into a NUL-terminated buffer that the caller frees; `*size` excludes the
 * NUL. Files over `limit` bytes are refused with AS_ERR_DATA before anything is read. */
int as_read_file(char **text, size_t *size, const char *path, size_t limit, struct as_error *error);

/* Writes `size` bytes to `path` so that readers see all or nothing: a temporary file beside it,
 * fsync, rename. */
int as_write_file(const char *path, const void *data, size_t size, struct as_error *error);

/* Creates `path` and its missing parents (mode 0755); an existing folder is success. */
int as_make_folders(const char *path, struct as_error *error);

/* "$XDG_CACHE_HOME/assay/<name>" or "$HOME/.cache/assay/<name>", its folder created.
 * Returns AS_ERR_IO where neither variable is set; callers then go without a cache. */
int as_cache_path(char *path, size_t size, const char *name, struct as_error *error);

#endif
