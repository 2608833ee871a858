/* Bytes of a spool, shared by its writer and its reader. Little-endian, as all of assay.
 *
 *   header  magic, bytes of the header (a multiple of 64), tables, checksum of the description;
 *           then the description: every table with its fields
 *   frames  {kind, length of the payload, checksum} and the payload, padded to 8 bytes
 *
 * A frame's first word is stored after everything else of it, so a writer that is killed leaves a
 * zero there and the reader stops. The checksum (seeded with the first word) finds what a machine
 * that lost power, or a damaged disk, leaves. */
#ifndef AS_SPOOL_FORMAT_H
#define AS_SPOOL_FORMAT_H

#include <stdint.h>

#define AS_SPOOL_MAGIC "ASSPOOL1"
#define AS_SPOOL_HEADER_MAX (1u << 20)
#define AS_SPOOL_TABLES_MAX 256u
#define AS_SPOOL_FIELDS_MAX 1024u
#define AS_SPOOL_FILE_ROW_MAX 4096u
#define AS_SPOOL_PAYLOAD_MAX (AS_ATTRIBUTE_MAX + (64u << 10))

struct as_spool_header {
    char magic[8];
    uint32_t size;
    uint32_t tables;
    uint64_t checksum;
};

/* Of the description: a table, then its name, then its fields, each followed by its name. */
struct as_spool_table {
    uint32_t row_size, fields;
    uint32_t name_size;
};
struct as_spool_field {
    uint32_t offset;
    uint8_t type, reference;
    uint16_t name_size;
};

/* Kinds of frames: a table's place in the header plus one, or one of these. */
#define AS_FRAME_STRING 0x10001u
#define AS_FRAME_ATTRIBUTE 0x10002u

struct as_frame {
    uint64_t word; /* kind in the low half, length in the high half */
    uint64_t checksum;
};

/* An attribute's payload: this, the key with its NUL, the value (text with its NUL, or 8 bytes). */
struct as_frame_attribute {
    uint32_t type, key_size;
};

static inline uint64_t as_frame_word(uint32_t kind, uint32_t length)
{
    return (uint64_t)length << 32 | kind;
}

#endif
