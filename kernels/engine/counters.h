/* What the engine counted: proof that an optimisation happened, not only that answers are right.
 *
 * The list is written once here; names and units follow from it.
 */
#ifndef AS_COUNTERS_H
#define AS_COUNTERS_H

#include <stddef.h>
#include <stdint.h>

#define AS_COUNTER_LIST(X)                                                                       \
    X(steps, "steps", "steps run")                                                               \
    X(launches, "launches", "variants run, once for all threads")                                \
    X(plans_built, "plans", "plans made because a step's sizes were new")                        \
    X(plan_hits, "plans", "steps that found their plan made")                                    \
    X(metadata_builds, "builds", "arrays of attention metadata laid out anew")                   \
    X(metadata_updates, "updates", "lengths moved on or blocks appended in place")               \
    X(metadata_hits, "hits", "steps whose metadata was still right")                             \
    X(metadata_bytes, "bytes", "metadata sent to the device")                                    \
    X(uploads, "copies", "copies to the device")                                                 \
    X(upload_bytes, "bytes", "bytes copied to the device")                                       \
    X(downloads, "copies", "copies from the device")                                             \
    X(download_bytes, "bytes", "bytes copied from the device")                                   \
    X(synchronizations, "waits", "times the host waited for the device")                         \
    X(captures, "captures", "steps recorded for replay")                                         \
    X(replays, "replays", "recorded steps run again")                                            \
    X(algorithm_queries, "queries", "algorithms asked of a vendor library")                      \
    X(allocations_after_warmup, "allocations", "allocations made inside a step after the first") \
    X(regions, "regions", "times the team of threads was started on a launch or a step")         \
    X(barriers, "barriers", "barriers inside launches")                                          \
    X(packed_tensors, "tensors", "weights kept in a second layout")                              \
    X(packed_bytes, "bytes", "memory of those copies")                                           \
    X(model_bytes, "bytes", "tensors as stored, in the mapped file")                             \
    X(arena_bytes, "bytes", "memory of the values between ops")                                  \
    X(scratch_bytes, "bytes", "memory that launches share for themselves")                       \
    X(kv_bytes, "bytes", "memory of the KV cache")                                               \
    X(kv_blocks, "blocks", "blocks of the KV cache")                                             \
    X(kv_blocks_peak, "blocks", "most blocks in use after a step")                               \
    X(tokens_prefill, "tokens", "prompt tokens run")                                             \
    X(tokens_decode, "tokens", "tokens run to get the next one")                                 \
    X(rows_sampled, "rows", "tokens chosen")                                                     \
    X(preemptions, "preemptions", "sequences put back because the cache was full")

struct as_counters {
#define AS_COUNTER_FIELD(name, unit, meaning) uint64_t name;
    AS_COUNTER_LIST(AS_COUNTER_FIELD)
#undef AS_COUNTER_FIELD
};

struct as_counter_info {
    const char *name, *unit, *meaning;
    size_t offset; /* of the uint64_t in struct as_counters */
};

/* As many entries as counters, in order. */
extern const struct as_counter_info as_counter_info[];
extern const size_t as_counter_count;

static inline uint64_t as_counter_value(const struct as_counters *counters, size_t index)
{
    return *(const uint64_t *)((const char *)counters + as_counter_info[index].offset);
}

#endif
