#define _GNU_SOURCE
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "as_file.h"
#include "as_hash.h"
#include "check/stamps.h"

struct search {
    uintptr_t address;
    char *id;
    size_t size;
    char path[512]; /* of the file found, when it carries no id */
    bool found;
};

/* The NT_GNU_BUILD_ID note among `bytes` bytes of notes, in hexadecimal. */
static bool read_notes(const uint8_t *notes, size_t bytes, char *id, size_t size)
{
    ElfW(Nhdr) header;
    for (size_t at = 0; at + sizeof header <= bytes;) {
        memcpy(&header, notes + at, sizeof header);
        size_t name = at + sizeof header;
        size_t body = name + (header.n_namesz + 3u) / 4 * 4;
        size_t next = body + (header.n_descsz + 3u) / 4 * 4;
        if (next > bytes || next <= at)
            return false;
        if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 &&
            memcmp(notes + name, "GNU", 4) == 0) {
            for (size_t i = 0; i < header.n_descsz && 2 * i + 3 <= size; i++)
                snprintf(id + 2 * i, 3, "%02x", notes[body + i]);
            return header.n_descsz > 0;
        }
        at = next;
    }
    return false;
}

static bool holds(const struct dl_phdr_info *info, uintptr_t address)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        uintptr_t start = info->dlpi_addr + segment->p_vaddr;
        if (segment->p_type == PT_LOAD && address >= start && address - start < segment->p_memsz)
            return true;
    }
    return false;
}

static int look(struct dl_phdr_info *info, size_t size, void *context)
{
    struct search *search = context;
    (void)size;
    if (!holds(info, search->address))
        return 0;
    const char *path = info->dlpi_name[0] != '\0' ? info->dlpi_name : "/proc/self/exe";
    snprintf(search->path, sizeof search->path, "%s", path);
    for (int i = 0; i < info->dlpi_phnum && !search->found; i++) {
        const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
        if (segment->p_type == PT_NOTE)
            search->found = read_notes((const uint8_t *)(info->dlpi_addr + segment->p_vaddr),
                                       segment->p_memsz, search->id, search->size);
    }
    return 1;
}

void as_build_id_of(const void *address, char *id, size_t size)
{
    struct search search = {.address = (uintptr_t)address, .id = id, .size = size};
    struct as_mapping file;
    snprintf(id, size, "unknown");
    dl_iterate_phdr(look, &search);
    if (search.found || search.path[0] == '\0' || as_map_file(&file, search.path, NULL) != 0)
        return;
    snprintf(id, size, "%016llx", (unsigned long long)as_hash64(file.data, file.size, 0));
    as_unmap(&file);
}

static char own_id[80];

static void find_own(void)
{
    as_build_id_of(own_id, own_id, sizeof own_id);
}

const char *as_build_id(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_own);
    return own_id;
}
