#define _GNU_SOURCE
#include "as_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "as_memory.h"

static int open_regular(const char *path, size_t *size, struct as_error *error)
{
    /* Without O_NONBLOCK a FIFO that nobody writes would hold this forever. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return as_fail_errno(error, AS_ERR_IO, "cannot open %s", path);
    struct stat info;
    if (fstat(fd, &info) != 0) {
        as_fail_errno(error, AS_ERR_IO, "cannot examine %s", path);
    } else if (!S_ISREG(info.st_mode)) {
        as_fail(error, AS_ERR_IO, "%s is not a regular file", path);
    } else if ((uintmax_t)info.st_size > SIZE_MAX / 2) {
        as_fail(error, AS_ERR_DATA, "%s is too large to map", path);
    } else {
        *size = (size_t)info.st_size;
        return fd;
    }
    close(fd);
    return error != NULL && error->code != 0 ? error->code : AS_ERR_IO;
}

int as_map_file(struct as_mapping *mapping, const char *path, struct as_error *error)
{
    *mapping = (struct as_mapping){0};
    size_t size = 0;
    int fd = open_regular(path, &size, error);
    if (fd < 0)
        return fd;
    if (size > 0) {
        void *data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) {
            as_fail_errno(error, AS_ERR_IO, "cannot map %s (%zu bytes)", path, size);
            close(fd);
            return AS_ERR_IO;
        }
        *mapping = (struct as_mapping){.data = data, .size = size};
    }
    close(fd);
    return 0;
}

void as_unmap(struct as_mapping *mapping)
{
    if (mapping != NULL && mapping->data != NULL)
        munmap((void *)(uintptr_t)mapping->data, mapping->size);
    if (mapping != NULL)
        *mapping = (struct as_mapping){0};
}

static int read_all(int fd, char *text, size_t size, const char *path, struct as_error *error)
{
    size_t done = 0;
    while (done < size) {
        ssize_t got = read(fd, text + done, size - done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return as_fail_errno(error, AS_ERR_IO, "cannot read %s", path);
        if (got == 0)
            return as_fail(error, AS_ERR_IO, "%s shrank while it was read: %zu of %zu bytes", path,
                           done, size);
        done += (size_t)got;
    }
    return 0;
}

int as_read_file(char **text, size_t *size, const char *path, size_t limit, struct as_error *error)
{
    *text = NULL;
    *size = 0;
    size_t bytes = 0;
    int fd = open_regular(path, &bytes, error);
    if (fd < 0)
        return fd;
    int code = 0;
    if (bytes > limit) {
        code = as_fail(error, AS_ERR_DATA, "%s is %zu bytes, more than the limit of %zu", path,
                       bytes, limit);
    } else if ((*text = as_calloc(error, bytes + 1, 1, path)) == NULL) {
        code = AS_ERR_MEMORY;
    } else if ((code = read_all(fd, *text, bytes, path, error)) != 0) {
        free(*text);
        *text = NULL;
    } else {
        *size = bytes;
    }
    close(fd);
    return code;
}

static int write_all(int fd, const char *data, size_t size)
{
    while (size > 0) {
        ssize_t put = write(fd, data, size);
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return -1;
        data += put;
        size -= (size_t)put;
    }
    return fsync(fd);
}

int as_write_file(const char *path, const void *data, size_t size, struct as_error *error)
{
    char temporary[PATH_MAX];
    int length = snprintf(temporary, sizeof temporary, "%s.%ld.partial", path, (long)getpid());
    if (length < 0 || (size_t)length >= sizeof temporary)
        return as_fail(error, AS_ERR_IO, "the path %.80s... is too long", path);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return as_fail_errno(error, AS_ERR_IO, "cannot create %s", temporary);
    int failed = write_all(fd, data, size);
    int saved = errno;
    if (close(fd) != 0 && !failed) {
        failed = 1;
        saved = errno;
    }
    if (!failed && rename(temporary, path) == 0)
        return 0;
    if (failed)
        errno = saved;
    as_fail_errno(error, AS_ERR_IO, "cannot write %s", path);
    unlink(temporary);
    return AS_ERR_IO;
}

int as_make_folders(const char *path, struct as_error *error)
{
    char partial[PATH_MAX];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof partial)
        return as_fail(error, AS_ERR_IO, "cannot create a folder: its path is empty or too long");
    memcpy(partial, path, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (partial[i] != '/' && partial[i] != '\0')
            continue;
        char kept = partial[i];
        partial[i] = '\0';
        if (mkdir(partial, 0755) != 0 && errno != EEXIST)
            return as_fail_errno(error, AS_ERR_IO, "cannot create the folder %s", partial);
        partial[i] = kept;
    }
    return 0;
}

int as_cache_path(char *path, size_t size, const char *name, struct as_error *error)
{
    const char *base = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    char folder[PATH_MAX];
    if (base != NULL && base[0] == '/')
        snprintf(folder, sizeof folder, "%s/assay", base);
    else if (home != NULL && home[0] == '/')
        snprintf(folder, sizeof folder, "%s/.cache/assay", home);
    else
        return as_fail(error, AS_ERR_IO,
                       "no cache folder: neither XDG_CACHE_HOME nor HOME is an absolute path");
    int length = snprintf(path, size, "%s/%s", folder, name);
    if (length < 0 || (size_t)length >= size)
        return as_fail(error, AS_ERR_IO, "the cache path for %s is too long", name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    int code = as_make_folders(path, error);
    *slash = '/';
    return code;
}
