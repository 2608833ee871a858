#include "preprocess/special.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "as_clock.h"
#include "as_memory.h"

#define ROOT 0u
#define NONE UINT32_MAX

/* A prefix of some token. */
struct node {
    uint32_t parent, depth; /* depth: its length in bytes */
    uint32_t fail;          /* the longest other node that is a suffix of this one */
    uint32_t found;         /* this node or its longest suffix that is a whole token, or NONE */
    int32_t id;             /* of the token that ends here, or -1 */
    unsigned char byte;     /* the last one */
};

struct as_special {
    struct node *nodes;
    size_t count, capacity;
    uint32_t *edges; /* open addressing by (parent, byte); NONE: free */
    size_t edge_slots;
    uint64_t seed;    /* of the hash: no file can be made to collide */
    bool starts[256]; /* first bytes of tokens */
};

static size_t edge_slot(const struct as_special *special, uint32_t parent, unsigned char byte)
{
    uint64_t mixed = (((uint64_t)parent << 8 | byte) ^ special->seed) * 0x9e3779b97f4a7c15u;
    mixed = (mixed ^ mixed >> 32) * 0xbf58476d1ce4e5b9u;
    size_t slot = (size_t)(mixed >> 32) & (special->edge_slots - 1);
    while (special->edges[slot] != NONE) {
        const struct node *node = &special->nodes[special->edges[slot]];
        if (node->parent == parent && node->byte == byte)
            break;
        slot = (slot + 1) & (special->edge_slots - 1);
    }
    return slot;
}

static uint32_t child(const struct as_special *special, uint32_t parent, unsigned char byte)
{
    return special->edges[edge_slot(special, parent, byte)];
}

static int grow_edges(struct as_special *special, struct as_error *error)
{
    size_t slots = special->edge_slots == 0 ? 256 : special->edge_slots * 2;
    uint32_t *edges = as_calloc(error, slots, sizeof *edges, "the table of added tokens");
    if (edges == NULL)
        return AS_ERR_MEMORY;
    memset(edges, 0xff, slots * sizeof *edges);
    free(special->edges);
    special->edges = edges;
    special->edge_slots = slots;
    for (uint32_t i = 1; i < special->count; i++)
        edges[edge_slot(special, special->nodes[i].parent, special->nodes[i].byte)] = i;
    return 0;
}

int as_special_create(struct as_special **special, struct as_error *error)
{
    *special = NULL;
    struct as_special *made = as_calloc(error, 1, sizeof *made, "the added tokens");
    if (made == NULL)
        return AS_ERR_MEMORY;
    made->seed = as_clock_ns();
    if (as_grow(error, &made->nodes, &made->capacity, 0, sizeof *made->nodes, "the added tokens") !=
            0 ||
        grow_edges(made, error) != 0) {
        as_special_free(made);
        return AS_ERR_MEMORY;
    }
    made->nodes[ROOT] = (struct node){.parent = NONE, .found = NONE, .id = -1};
    made->count = 1;
    *special = made;
    return 0;
}

void as_special_free(struct as_special *special)
{
    if (special == NULL)
        return;
    free(special->nodes);
    free(special->edges);
    free(special);
}

int as_special_add(struct as_special *special, const char *text, size_t length, int32_t id,
                   struct as_error *error)
{
    const unsigned char *bytes = (const unsigned char *)text;
    if (length == 0)
        return 0;
    if (length >= NONE - special->count)
        return as_fail(error, AS_ERR_DATA, "the added tokens together are too long");
    uint32_t at = ROOT;
    for (size_t i = 0; i < length; i++) {
        if (special->count * 2 > special->edge_slots && grow_edges(special, error) != 0)
            return AS_ERR_MEMORY;
        size_t slot = edge_slot(special, at, bytes[i]);
        uint32_t next = special->edges[slot];
        if (next == NONE) {
            if (as_grow(error, &special->nodes, &special->capacity, special->count,
                        sizeof *special->nodes, "the added tokens") != 0)
                return AS_ERR_MEMORY;
            next = (uint32_t)special->count++;
            special->nodes[next] = (struct node){
                .parent = at, .depth = (uint32_t)i + 1, .found = NONE, .id = -1, .byte = bytes[i]};
            special->edges[slot] = next;
        }
        at = next;
    }
    special->starts[bytes[0]] = true;
    if (special->nodes[at].id < 0)
        special->nodes[at].id = id;
    return 0;
}

/* The nodes in order of depth, so that every suffix of a node comes before it. */
static uint32_t *by_depth(const struct as_special *special, struct as_error *error)
{
    size_t deepest = 0;
    for (size_t i = 0; i < special->count; i++)
        if (special->nodes[i].depth > deepest)
            deepest = special->nodes[i].depth;
    size_t *next = as_calloc(error, deepest + 2, sizeof *next, "the added tokens");
    uint32_t *order = as_calloc(error, special->count, sizeof *order, "the added tokens");
    if (next == NULL || order == NULL) {
        free(next);
        free(order);
        return NULL;
    }
    for (size_t i = 0; i < special->count; i++)
        next[special->nodes[i].depth + 1]++;
    for (size_t depth = 0; depth <= deepest; depth++)
        next[depth + 1] += next[depth];
    for (uint32_t i = 0; i < special->count; i++)
        order[next[special->nodes[i].depth]++] = i;
    free(next);
    return order;
}

int as_special_complete(struct as_special *special, struct as_error *error)
{
    uint32_t *order = by_depth(special, error);
    if (order == NULL)
        return AS_ERR_MEMORY;
    for (size_t i = 1; i < special->count; i++) {
        uint32_t at = order[i];
        struct node *node = &special->nodes[at];
        if (node->depth > 1) {
            uint32_t suffix = special->nodes[node->parent].fail;
            uint32_t next;
            while ((next = child(special, suffix, node->byte)) == NONE && suffix != ROOT)
                suffix = special->nodes[suffix].fail;
            node->fail = next == NONE ? ROOT : next;
        }
        node->found = node->id >= 0 ? at : special->nodes[node->fail].found;
    }
    free(order);
    return 0;
}

int32_t as_special_find(const struct as_special *special, const char *text, size_t length,
                        size_t from, size_t *start, size_t *end)
{
    const unsigned char *bytes = (const unsigned char *)text;
    const struct node *nodes = special->nodes;
    uint32_t at = ROOT, best = NONE;
    *start = *end = length;
    for (size_t i = from; i < length; i++) {
        if (at == ROOT) {
            while (i < length && !special->starts[bytes[i]])
                i++;
            if (i == length)
                break;
        }
        uint32_t next;
        while ((next = child(special, at, bytes[i])) == NONE && at != ROOT)
            at = nodes[at].fail;
        at = next == NONE ? ROOT : next;
        /* What is being followed starts after the best: nothing further left can come. */
        if (best != NONE && i + 1 - nodes[at].depth > *start)
            break;
        uint32_t found = nodes[at].found;
        if (found != NONE && i + 1 - nodes[found].depth <= *start) {
            best = found;
            *start = i + 1 - nodes[found].depth;
            *end = i + 1;
        }
    }
    return best == NONE ? -1 : nodes[best].id;
}
