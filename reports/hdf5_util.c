#include "hdf5_util.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* What HDF5 said first since it was last asked; closing what a failure left would overwrite its
 * own stack. */
static _Thread_local char first_words[256];

/* HDF5 puts the system's words at the end of a long description; those are what a user needs. */
static herr_t keep_innermost(unsigned n, const H5E_error2_t *entry, void *data)
{
    (void)data;
    if (n != 0 || entry->desc == NULL)
        return 0;
    static const char mark[] = "error message = '";
    const char *system = strstr(entry->desc, mark);
    if (system != NULL) {
        system += sizeof mark - 1;
        const char *end = strchr(system, '\'');
        snprintf(first_words, sizeof first_words, "%.*s",
                 (int)(end == NULL ? strlen(system) : (size_t)(end - system)), system);
    } else {
        snprintf(first_words, sizeof first_words, "%s", entry->desc);
    }
    return 0;
}

/* Called by HDF5 whenever a call of its interface fails, in place of its printing. */
static herr_t remember(hid_t stack, void *data)
{
    (void)data;
    if (first_words[0] == '\0')
        H5Ewalk2(stack, H5E_WALK_UPWARD, keep_innermost, NULL);
    return 0;
}

int as_fail_hdf5(struct as_error *error, int code, const char *format, ...)
{
    char message[768], words[sizeof first_words];
    va_list arguments;
    memcpy(words, first_words, sizeof words);
    first_words[0] = '\0';
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    if (words[0] == '\0')
        return as_fail(error, code, "%s", message);
    return as_fail(error, code, "%s: %s", message, words);
}

void as_hdf5_begin(void)
{
    H5Eset_auto2(H5E_DEFAULT, remember, NULL);
    first_words[0] = '\0';
}

hid_t as_hdf5_field_type(uint8_t type)
{
    switch (type) {
    case AS_TYPE_U8: return H5T_STD_U8LE;
    case AS_TYPE_U32: return H5T_STD_U32LE;
    case AS_TYPE_U64: return H5T_STD_U64LE;
    default: return H5T_IEEE_F64LE;
    }
}

hid_t as_hdf5_row_type(enum as_table table)
{
    const struct as_table_schema *schema = &as_tables[table];
    hid_t type = H5Tcreate(H5T_COMPOUND, schema->row_size);
    for (uint32_t i = 0; type >= 0 && i < schema->field_count; i++) {
        const struct as_field *field = &schema->fields[i];
        if (H5Tinsert(type, field->name, field->offset, as_hdf5_field_type(field->type)) < 0) {
            H5Tclose(type);
            return -1;
        }
    }
    return type;
}

hid_t as_hdf5_text_type(void)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0 &&
        (H5Tset_size(type, H5T_VARIABLE) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0)) {
        H5Tclose(type);
        return -1;
    }
    return type;
}

hid_t as_hdf5_create_access(void)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    if (access >= 0 && (H5Pset_libver_bounds(access, H5F_LIBVER_V18, H5F_LIBVER_V18) < 0 ||
                        H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) < 0 ||
                        H5Pset_file_locking(access, false, true) < 0)) {
        H5Pclose(access);
        return -1;
    }
    return access;
}

hid_t as_hdf5_read_access(void)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    if (access >= 0 && (H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) < 0 ||
                        H5Pset_file_locking(access, false, true) < 0)) {
        H5Pclose(access);
        return -1;
    }
    return access;
}
