/* Hugging Face folders; not read yet. */
#include "model_internal.h"

int as_model_read_folder(struct as_model_storage *storage, struct as_error *error)
{
    return as_fail(error, AS_ERR_IO, "%s is not a regular file", storage->path);
}

void as_hf_folder_free(struct as_hf_folder *folder)
{
    (void)folder;
}

uint64_t as_hf_folder_digest(const struct as_hf_folder *folder)
{
    (void)folder;
    return 0;
}

const char *as_hf_folder_file(const struct as_hf_folder *folder, size_t index)
{
    (void)folder;
    (void)index;
    return NULL;
}
