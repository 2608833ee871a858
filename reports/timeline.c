#include "timeline.h"

#include <stdlib.h>

#include "as_memory.h"

#define FIRST_WIDTH 10000000u /* ns */

void as_timeline_start(struct as_timeline *line, uint64_t base)
{
    struct as_timeline_bin *bins = line->bins;
    *line = (struct as_timeline){.bins = bins, .base = base, .width = FIRST_WIDTH};
}

static void clear_bin(struct as_timeline_bin *bin)
{
    *bin = (struct as_timeline_bin){0, AS_UNKNOWN_U32, AS_UNKNOWN_U32, AS_UNKNOWN_U32};
}

static void keep_larger(uint32_t *largest, uint32_t value)
{
    if (value != AS_UNKNOWN_U32 && (*largest == AS_UNKNOWN_U32 || value > *largest))
        *largest = value;
}

/* Joins neighbours, which doubles the width. */
static void halve(struct as_timeline *line)
{
    for (size_t i = 0; i < line->used; i += 2) {
        struct as_timeline_bin bin = line->bins[i];
        if (i + 1 < line->used) {
            const struct as_timeline_bin *next = &line->bins[i + 1];
            bin.work_ns += next->work_ns;
            keep_larger(&bin.queue_depth, next->queue_depth);
            keep_larger(&bin.sequences, next->sequences);
            keep_larger(&bin.kv_blocks, next->kv_blocks);
        }
        line->bins[i / 2] = bin;
    }
    line->used = (line->used + 1) / 2;
    line->width *= 2;
}

/* Makes bins up to the one that `end` lies in; events without both times, or that end before they
 * start, are passed over by returning false. */
static bool cover(struct as_timeline *line, uint64_t start, uint64_t end, struct as_error *error)
{
    if (start == AS_UNKNOWN_U64 || end == AS_UNKNOWN_U64 || end < start)
        return false;
    if (line->bins == NULL)
        line->bins = as_calloc(error, AS_TIMELINE_BINS, sizeof *line->bins, "a time line");
    if (line->bins == NULL)
        return false;
    if (line->base == AS_UNKNOWN_U64)
        line->base = start;
    uint64_t past = end > line->base ? end - line->base : 0;
    while (past / line->width >= AS_TIMELINE_BINS)
        halve(line);
    while (line->used <= past / line->width)
        clear_bin(&line->bins[line->used++]);
    if (end > line->last)
        line->last = end;
    return true;
}

static size_t bin_of(const struct as_timeline *line, uint64_t at)
{
    return at > line->base ? (size_t)((at - line->base) / line->width) : 0;
}

int as_timeline_step(struct as_timeline *line, const struct as_row_step *step,
                     struct as_error *error)
{
    if (!cover(line, step->start, step->end, error))
        return line->bins == NULL && error != NULL ? error->code : AS_OK;
    for (size_t i = bin_of(line, step->start); i <= bin_of(line, step->end); i++) {
        keep_larger(&line->bins[i].queue_depth, step->queue_depth);
        keep_larger(&line->bins[i].sequences, step->sequences);
        keep_larger(&line->bins[i].kv_blocks, step->kv_blocks);
    }
    return AS_OK;
}

/* The work is taken to be even over the launch, as far as the bins go. */
int as_timeline_launch(struct as_timeline *line, const struct as_row_launch *launch,
                       struct as_error *error)
{
    if (launch->work_ns == AS_UNKNOWN_U64)
        return AS_OK;
    if (!cover(line, launch->start, launch->end, error))
        return line->bins == NULL && error != NULL ? error->code : AS_OK;
    line->launches = true;
    size_t first = bin_of(line, launch->start), last = bin_of(line, launch->end);
    if (first == last) {
        line->bins[first].work_ns += (double)launch->work_ns;
        return AS_OK;
    }
    double rate = (double)launch->work_ns / (double)(launch->end - launch->start);
    for (size_t i = first; i <= last; i++) {
        uint64_t from = i == first ? launch->start : line->base + i * line->width;
        uint64_t to = i == last ? launch->end : line->base + (i + 1) * line->width;
        line->bins[i].work_ns += rate * (double)(to - from);
    }
    return AS_OK;
}

void as_timeline_row(const struct as_timeline *line, size_t index, uint32_t run, uint32_t threads,
                     struct as_row_utilization *row)
{
    const struct as_timeline_bin *bin = &line->bins[index];
    as_row_unknown(AS_TABLE_UTILIZATION, row);
    row->run = run;
    row->start = line->base + index * line->width;
    row->end = row->start + line->width;
    if (index + 1 == line->used && line->last < row->end && line->last > row->start)
        row->end = line->last;
    row->queue_depth = bin->queue_depth;
    row->sequences = bin->sequences;
    row->kv_blocks = bin->kv_blocks;
    if (line->launches && threads > 0)
        row->busy = bin->work_ns / ((double)(row->end - row->start) * threads);
}

void as_timeline_free(struct as_timeline *line)
{
    free(line->bins);
    *line = (struct as_timeline){0};
}
