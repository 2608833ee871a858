#include "preprocess/utf8.h"

#include <string.h>

size_t as_utf8_check(const char *text, size_t length)
{
    const unsigned char *bytes = (const unsigned char *)text;
    size_t offset = 0;
    while (offset < length) {
        uint64_t word;
        if (length - offset >= sizeof word) {
            memcpy(&word, bytes + offset, sizeof word);
            if ((word & 0x8080808080808080u) == 0) {
                offset += sizeof word;
                continue;
            }
        }
        size_t used;
        if (as_utf8_next(bytes + offset, length - offset, &used) != AS_UTF8_WHOLE)
            return offset;
        offset += used;
    }
    return length;
}
