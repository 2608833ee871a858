#include "intern.h"

#include <stdlib.h>
#include <string.h>

#include "as_hash.h"
#include "as_memory.h"
#include "schema.h"

static int grow_slots(struct as_intern *table, struct as_error *error)
{
    size_t count = table->slot_count == 0 ? 64 : table->slot_count * 2;
    uint32_t *slots = as_calloc(error, count, sizeof *slots, "a table of strings");
    if (slots == NULL)
        return AS_ERR_MEMORY;
    for (size_t id = 0; id < table->count; id++) {
        size_t slot = table->entries[id].hash & (count - 1);
        while (slots[slot] != 0)
            slot = (slot + 1) & (count - 1);
        slots[slot] = (uint32_t)id + 1;
    }
    free(table->slots);
    table->slots = slots;
    table->slot_count = count;
    return AS_OK;
}

uint32_t as_intern(struct as_intern *table, const char *text, size_t size, bool *added,
                   struct as_error *error)
{
    *added = false;
    if (2 * table->count >= table->slot_count && grow_slots(table, error) != AS_OK)
        return AS_UNKNOWN_U32;
    uint64_t hash = as_hash64(text, size, 0);
    size_t slot = hash & (table->slot_count - 1);
    for (; table->slots[slot] != 0; slot = (slot + 1) & (table->slot_count - 1)) {
        const struct as_interned *entry = &table->entries[table->slots[slot] - 1];
        if (entry->hash == hash && entry->size == size && memcmp(entry->text, text, size) == 0)
            return table->slots[slot] - 1;
    }
    if (as_grow(error, &table->entries, &table->capacity, table->count, sizeof *table->entries,
                "a table of strings") != AS_OK)
        return AS_UNKNOWN_U32;
    char *copy = as_calloc(error, size + 1, 1, "a string");
    if (copy == NULL)
        return AS_UNKNOWN_U32;
    memcpy(copy, text, size);
    table->entries[table->count] =
        (struct as_interned){.hash = hash, .text = copy, .size = (uint32_t)size};
    table->slots[slot] = (uint32_t)++table->count;
    *added = true;
    return (uint32_t)table->count - 1;
}

void as_intern_free(struct as_intern *table)
{
    for (size_t i = 0; i < table->count; i++)
        free(table->entries[i].text);
    free(table->entries);
    free(table->slots);
    *table = (struct as_intern){0};
}

size_t as_utf8_cut(const char *text, size_t size, size_t max)
{
    if (size <= max)
        return size;
    size = max;
    while (size > 0 && ((unsigned char)text[size] & 0xc0) == 0x80)
        size--;
    return size;
}
