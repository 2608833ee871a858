#include "schema.h"

#include <string.h>

/* clang-format off */
/* The array type is malformed, and so the build fails, where the member has another size. */
#define FIELD(size, kind, ref, row, member, name, units, required, description)                    \
    {name,                                                                                         \
     units,                                                                                        \
     description,                                                                                  \
     (uint32_t)(offsetof(struct row, member) +                                                     \
                0 * sizeof(char[sizeof((struct row){0}.member) == (size) ? 1 : -1])),              \
     AS_TYPE_##kind,                                                                               \
     AS_REFERENCE_##ref,                                                                           \
     required}
#define U8(...) FIELD(1, U8, NONE, __VA_ARGS__)
#define U32(...) FIELD(4, U32, NONE, __VA_ARGS__)
#define U64(...) FIELD(8, U64, NONE, __VA_ARGS__)
#define F64(...) FIELD(8, F64, NONE, __VA_ARGS__)
#define REF(row, member, ref, name, required, description)                                         \
    FIELD(4, U32, ref, row, member, name, "", required, description)
/* clang-format on */

#define R as_row_run
static const struct as_field run_fields[] = {
    REF(R, run, RUN, "run", true, "number of the run, unique in the report"),
    REF(R, strategy, STRING, "strategy", true, "name of the strategy"),
    U32(R, repetition, "repetition", "", false, "from 0, within its strategy and pass"),
    U8(R, pass, "pass", "", true, "0 timing, 1 traced, 2 schedule"),
    U32(R, order, "order", "", false, "place in the sequence of children, from 0"),
    U32(R, threads, "threads", "threads", false, "threads of the team that ran the kernels"),
    U64(R, start, "start", "ns", true, "start of the replay"),
    U64(R, end, "end", "ns", true, "end of the replay"),
    U64(R, window_start, "window_start", "ns", false,
        "start of the declared window that throughput is counted in; unknown = start"),
    U64(R, window_end, "window_end", "ns", false,
        "end of the declared window (exclusive); unknown = end"),
    U32(R, exit, "exit", "", false,
        "exit status of the child; unknown when a signal ended it or no end was recorded"),
    U32(R, signal, "signal", "", false, "signal that ended the child; 0 = none"),
    U8(R, valid, "valid", "", true, "1 = may be used, 0 = see invalid_reason"),
    REF(R, invalid_reason, STRING, "invalid_reason", false, "why the run is not valid, in words"),
    REF(R, plan_digest, STRING, "plan_digest", false, "digest of the plan that the strategy made"),
    REF(R, build, STRING, "build", false, "build id of the child's binary"),
    U64(R, peak_rss, "peak_rss", "bytes", false, "largest resident set of the child"),
    F64(R, recording_ns, "recording_ns", "ns", false, "measured cost of recording one launch"),
};
#undef R

#define R as_row_request
static const struct as_field request_fields[] = {
    REF(R, run, RUN, "run", true, "run that it was sent in"),
    REF(R, request, REQUEST, "request", true, "number of the request within its run, from 0"),
    REF(R, name, STRING, "name", false, "id of the workload's row"),
    REF(R, class_name, STRING, "class", false, "class of the workload's row, as chat or batch"),
    U64(R, scheduled, "scheduled", "ns", true, "when the workload wanted it sent"),
    U64(R, sent, "sent", "ns", true,
        "when it was sent: handed to the text stage, or the first byte written"),
    U64(R, preprocess_start, "preprocess_start", "ns", false, "text stage began on it"),
    U64(R, preprocess_end, "preprocess_end", "ns", false, "text stage was done with it"),
    U64(R, queued, "queued", "ns", false, "entered the scheduler's queue"),
    U64(R, first_scheduled, "first_scheduled", "ns", false,
        "start of the first step that worked on it"),
    U64(R, prefill_end, "prefill_end", "ns", false, "end of the step that finished its prompt"),
    U64(R, first_token, "first_token", "ns", false, "first token handed out"),
    U64(R, last_token, "last_token", "ns", false, "last token handed out"),
    U64(R, done, "done", "ns", false, "everything of it released"),
    U64(R, requeue_ns, "requeue_ns", "ns", false, "waiting again after preemptions, summed"),
    U32(R, prompt_tokens, "prompt_tokens", "tokens", false, "tokens of the prompt"),
    U32(R, cached_tokens, "cached_tokens", "tokens", false,
        "of the prompt, taken from the prefix cache"),
    U32(R, output_tokens, "output_tokens", "tokens", false,
        "tokens that the engine sampled, a stop token included"),
    U32(R, exact_tokens, "exact_tokens", "tokens", false,
        "output length demanded exactly; unknown = not demanded"),
    U32(R, preemptions, "preemptions", "", false, "times that it lost its cache blocks"),
    U8(R, outcome, "outcome", "", false,
       "0 done, 1 failed, 2 cancelled, 3 rejected, 4 timeout; unknown = not finished"),
    U8(R, finish, "finish", "", false, "0 stop token, 1 length, 2 stop string, 3 none"),
};
#undef R

#define R as_row_step
static const struct as_field step_fields[] = {
    REF(R, run, RUN, "run", true, "run of the step"),
    REF(R, step, STEP, "step", true, "number of the step within its run, from 0"),
    U64(R, start, "start", "ns", true, "metadata work for the step began"),
    U64(R, end, "end", "ns", true, "its tokens were known"),
    U32(R, prefill_tokens, "prefill_tokens", "tokens", false, "prompt tokens processed"),
    U32(R, decode_tokens, "decode_tokens", "tokens", false, "tokens of decoding sequences"),
    U32(R, padded_tokens, "padded_tokens", "tokens", false, "rows computed for nobody"),
    U32(R, sequences, "sequences", "", false, "requests that took part"),
    U32(R, bucket, "bucket", "tokens", false, "captured bucket; unknown = ran eager"),
    U32(R, kv_blocks, "kv_blocks", "blocks", false, "blocks of the KV cache in use"),
    U32(R, queue_depth, "queue_depth", "", false, "requests waiting when it was formed"),
    U64(R, metadata_build_ns, "metadata_build_ns", "ns", false, "building metadata on the host"),
    U64(R, metadata_upload_ns, "metadata_upload_ns", "ns", false, "uploading metadata"),
    U64(R, metadata_wait_ns, "metadata_wait_ns", "ns", false,
        "waiting for the device over metadata"),
    U64(R, device_start, "device_start", "ns", false,
        "first device work began; unknown where the device has no clock of its own"),
    U64(R, device_end, "device_end", "ns", false, "last device work ended"),
};
#undef R

#define R as_row_step_row
static const struct as_field step_row_fields[] = {
    REF(R, run, RUN, "run", true, "run of the step"),
    REF(R, step, STEP, "step", true, "step, within its run"),
    REF(R, request, REQUEST, "request", true, "request, within its run"),
    U32(R, tokens, "tokens", "tokens", true, "tokens of the request in this step"),
    U32(R, position, "position", "tokens", false, "position of the first of them in its sequence"),
    U8(R, phase, "phase", "", true, "0 prefill, 1 last chunk of a prefill, 2 decode, 3 encode"),
    U32(R, token, "token", "", false, "token sampled or forced; unknown where none is sampled"),
    U32(R, top1, "top1", "", false, "token with the largest logit, the lowest id of equals"),
    F64(R, top1_logit, "top1_logit", "", false, "its logit"),
    F64(R, margin, "margin", "", false, "largest logit minus the second largest"),
    F64(R, projection, "projection", "", false, "sum of +1 or -1 times logit, with fixed signs"),
};
#undef R

#define R as_row_problem
static const struct as_field problem_fields[] = {
    REF(R, problem, PROBLEM, "problem", true, "id of the problem"),
    REF(R, op, STRING, "op", true, "op"),
    REF(R, shape, STRING, "shape", false, "shape in words"),
    U32(R, m, "m", "", false, "rows of a matrix product [m,k] x [n,k]^T"),
    U32(R, n, "n", "", false, "columns of the product"),
    U32(R, k, "k", "", false, "inner dimension of the product"),
    U32(R, tokens, "tokens", "tokens", false, "tokens of the step that it covers"),
    U32(R, sequences, "sequences", "", false, "sequences of the step"),
    U32(R, context, "context", "tokens", false, "longest sequence"),
    U32(R, heads, "heads", "", false, "query heads"),
    U32(R, kv_heads, "kv_heads", "", false, "key and value heads"),
    U32(R, head_dim, "head_dim", "", false, "dimension of a head"),
    REF(R, weights, STRING, "weights", false, "dtype of the weights"),
    REF(R, activations, STRING, "activations", false, "dtype of the activations"),
    REF(R, kv, STRING, "kv", false, "dtype of the KV cache"),
    U64(R, flops, "flops", "FLOP", false, "operations of one launch, from the op's cost model"),
    U64(R, bytes, "bytes", "bytes", false, "bytes that one launch must move, likewise"),
};
#undef R

#define R as_row_variant
static const struct as_field variant_fields[] = {
    REF(R, variant, VARIANT, "variant", true, "id of the variant"),
    REF(R, name, STRING, "name", true, "name of the variant"),
    REF(R, backend, STRING, "backend", false, "cpu or cuda"),
    U32(R, rung, "rung", "", false, "place on the ladder; 0 = naive"),
    REF(R, improves, STRING, "improves", false, "name of the rung that it improves"),
    REF(R, plugin, STRING, "plugin", false, "name of the plugin; unknown = built in"),
    U8(R, checked, "checked", "", false, "1 = passed its check against the reference, 0 = did not"),
};
#undef R

#define R as_row_launch
static const struct as_field launch_fields[] = {
    REF(R, launch, LAUNCH, "launch", true, "number of the launch, unique in the report, ascending"),
    REF(R, run, RUN, "run", true, "run of the launch"),
    REF(R, step, STEP, "step", true, "step, within its run"),
    U32(R, layer, "layer", "", false, "layer of the model; unknown = outside the layers"),
    REF(R, variant, VARIANT, "variant", true, "variant that ran"),
    REF(R, problem, PROBLEM, "problem", true, "problem that it ran on"),
    U64(R, start, "start", "ns", true, "the first thread began"),
    U64(R, end, "end", "ns", true, "the last thread ended"),
    U64(R, work_ns, "work_ns", "ns", false, "working, summed over threads"),
    U64(R, wait_ns, "wait_ns", "ns", false, "waiting at barriers, summed over threads"),
};
#undef R

#define R as_row_launch_thread
static const struct as_field launch_thread_fields[] = {
    REF(R, launch, LAUNCH, "launch", true, "launch"),
    U32(R, thread, "thread", "", true, "thread of the team, from 0"),
    U64(R, start, "start", "ns", true, "the thread began"),
    U64(R, work_ns, "work_ns", "ns", false, "working"),
    U64(R, wait_ns, "wait_ns", "ns", false, "waiting at barriers"),
};
#undef R

#define R as_row_launch_cuda
static const struct as_field launch_cuda_fields[] = {
    REF(R, launch, LAUNCH, "launch", true, "launch; unknown = matched to none"),
    U32(R, correlation, "correlation", "", false, "CUPTI's correlation id"),
    U32(R, device, "device", "", false, "device ordinal"),
    U32(R, stream, "stream", "", false, "stream id"),
    U32(R, graph, "graph", "", false, "graph id; unknown = not from a graph"),
    U64(R, node, "node", "", false, "graph node id"),
    REF(R, kernel, STRING, "kernel", false, "name of the device function"),
    U32(R, grid_x, "grid_x", "blocks", false, "grid, x"),
    U32(R, grid_y, "grid_y", "blocks", false, "grid, y"),
    U32(R, grid_z, "grid_z", "blocks", false, "grid, z"),
    U32(R, block_x, "block_x", "threads", false, "block, x"),
    U32(R, block_y, "block_y", "threads", false, "block, y"),
    U32(R, block_z, "block_z", "threads", false, "block, z"),
    U32(R, registers, "registers", "", false, "registers a thread"),
    U32(R, shared_memory, "shared_memory", "bytes", false,
        "shared memory a block, static and dynamic"),
    U32(R, flags, "flags", "", false, "bits set by the probe; 0 = nothing remarkable"),
};
#undef R

#define R as_row_counter
static const struct as_field counter_fields[] = {
    REF(R, run, RUN, "run", true, "run that it was counted in"),
    REF(R, name, STRING, "name", true, "name of the counter"),
    U64(R, value, "value", "see units", true, "its value at the end of the run"),
    REF(R, units, STRING, "units", false, "units of the value; unknown = a plain count"),
};
#undef R

#define R as_row_ceiling
static const struct as_field ceiling_fields[] = {
    REF(R, name, STRING, "name", true, "bandwidth_read, compute_f32, compute_q8, ..."),
    U32(R, threads, "threads", "threads", false, "threads that measured it"),
    F64(R, value, "value", "see units", true, "the most that was reached"),
    REF(R, units, STRING, "units", true, "B/s or FLOP/s"),
    REF(R, boot, STRING, "boot", false, "boot id that it was measured under"),
    U64(R, measured, "measured", "ns", false, "when, on that boot's clock"),
};
#undef R

#define R as_row_capability
static const struct as_field capability_fields[] = {
    REF(R, name, STRING, "name", true, "what could be used"),
    U8(R, supported, "supported", "", true, "1 = works here, 0 = does not"),
    REF(R, reason, STRING, "reason", false, "why not, or what was found"),
};
#undef R

#define R as_row_utilization
static const struct as_field utilization_fields[] = {
    REF(R, run, RUN, "run", true, "run of the stretch"),
    U64(R, start, "start", "ns", true, "start of the stretch"),
    U64(R, end, "end", "ns", true, "end of the stretch"),
    F64(R, busy, "busy", "fraction", false,
        "work / (wall x threads); unknown where launches were not recorded"),
    U32(R, queue_depth, "queue_depth", "", false, "most requests waiting"),
    U32(R, sequences, "sequences", "", false, "most sequences in a step"),
    U32(R, kv_blocks, "kv_blocks", "blocks", false, "most blocks of the KV cache in use"),
};
#undef R

#define TABLE(id, dataset, row, list, a, text) \
    [id] = {dataset, a, text, list, sizeof list / sizeof list[0], sizeof(struct row)}

const struct as_table_schema as_tables[AS_TABLE_COUNT] = {
    TABLE(AS_TABLE_RUNS, "/runs", as_row_run, run_fields, "one child process",
          "The replays: which strategy, which pass, when, how it ended, whether it may be used"),
    TABLE(AS_TABLE_REQUESTS, "/requests", as_row_request, request_fields, "a request in a run",
          "The stamps of every request on its way through the text stage, queue and engine"),
    TABLE(AS_TABLE_STEPS, "/steps", as_row_step, step_fields, "a step of the engine",
          "Passes of the engine over one batch each, with the cost of their metadata"),
    TABLE(AS_TABLE_STEP_ROWS, "/step_rows", as_row_step_row, step_row_fields,
          "a request's part of a step",
          "The schedule (who was in which step with what) and what the step computed for each"),
    TABLE(AS_TABLE_PROBLEMS, "/problems", as_row_problem, problem_fields, "a problem met",
          "Ops with shapes and dtypes, and what one launch of each costs"),
    TABLE(AS_TABLE_VARIANTS, "/variants", as_row_variant, variant_fields, "a variant used",
          "The implementations that ran"),
    TABLE(AS_TABLE_LAUNCHES, "/launches", as_row_launch, launch_fields, "a launch",
          "Every run of a variant in the traced passes, in order of launch"),
    TABLE(AS_TABLE_LAUNCH_THREADS, "/launch_threads", as_row_launch_thread, launch_thread_fields,
          "a thread's part of a launch", "What each thread of the team did in each launch"),
    TABLE(AS_TABLE_LAUNCHES_CUDA, "/launches_cuda", as_row_launch_cuda, launch_cuda_fields,
          "the GPU part of a launch", "What CUPTI recorded for launches on a GPU"),
    TABLE(AS_TABLE_COUNTERS, "/counters", as_row_counter, counter_fields, "a counter in a run",
          "The engine's counters at the end of each run"),
    TABLE(AS_TABLE_CEILINGS, "/ceilings", as_row_ceiling, ceiling_fields, "a measured limit",
          "What the machine was measured to reach: memory bandwidth and arithmetic"),
    TABLE(AS_TABLE_CAPABILITIES, "/capabilities", as_row_capability, capability_fields,
          "a capability", "What the machine and its libraries support, with the reason where not"),
    TABLE(AS_TABLE_UTILIZATION, "/utilization", as_row_utilization, utilization_fields,
          "a stretch of a run", "Time lines of load: busy share, queue, batch and cache"),
};

int as_table_by_name(const char *name)
{
    for (int table = 0; table < AS_TABLE_COUNT; table++) {
        if (strcmp(as_tables[table].name, name) == 0)
            return table;
    }
    return -1;
}

const struct as_field *as_field_by_name(enum as_table table, const char *name)
{
    const struct as_table_schema *schema = &as_tables[table];
    for (uint32_t i = 0; i < schema->field_count; i++) {
        if (strcmp(schema->fields[i].name, name) == 0)
            return &schema->fields[i];
    }
    return NULL;
}

uint32_t as_type_size(enum as_type type)
{
    return type == AS_TYPE_U8 ? 1 : type == AS_TYPE_U32 ? 4 : 8;
}

const char *as_type_name(enum as_type type)
{
    static const char *const names[] = {"u8", "u32", "u64", "f64"};
    return (unsigned)type < 4 ? names[type] : "?";
}

const char *as_reference_name(enum as_reference kind)
{
    static const char *const names[] = {"",     "string",  "run",     "request",
                                        "step", "problem", "variant", "launch"};
    return (unsigned)kind < 8 ? names[kind] : "?";
}

void as_row_unknown(enum as_table table, void *row)
{
    const struct as_table_schema *schema = &as_tables[table];
    const double nan = AS_UNKNOWN_F64;
    memset(row, 0, schema->row_size);
    for (uint32_t i = 0; i < schema->field_count; i++) {
        const struct as_field *field = &schema->fields[i];
        if (field->type == AS_TYPE_F64)
            memcpy((char *)row + field->offset, &nan, sizeof nan);
        else
            memset((char *)row + field->offset, 0xff, as_type_size(field->type));
    }
}

void as_row_copy(enum as_table table, void *to, const void *from)
{
    const struct as_table_schema *schema = &as_tables[table];
    memset(to, 0, schema->row_size);
    for (uint32_t i = 0; i < schema->field_count; i++) {
        const struct as_field *field = &schema->fields[i];
        memcpy((char *)to + field->offset, (const char *)from + field->offset,
               as_type_size(field->type));
    }
}

bool as_field_u64(const struct as_field *field, const void *row, uint64_t *value)
{
    const char *at = (const char *)row + field->offset;
    uint32_t u32;
    double f64;
    switch (field->type) {
    case AS_TYPE_U8: *value = *(const uint8_t *)at; return *value != AS_UNKNOWN_U8;
    case AS_TYPE_U32:
        memcpy(&u32, at, sizeof u32);
        *value = u32;
        return u32 != AS_UNKNOWN_U32;
    case AS_TYPE_U64: memcpy(value, at, sizeof *value); return *value != AS_UNKNOWN_U64;
    default:
        memcpy(&f64, at, sizeof f64);
        if (!(f64 >= 0 && f64 < 0x1p64))
            return false;
        *value = (uint64_t)f64;
        return true;
    }
}

bool as_field_f64(const struct as_field *field, const void *row, double *value)
{
    if (field->type == AS_TYPE_F64) {
        memcpy(value, (const char *)row + field->offset, sizeof *value);
        return *value == *value;
    }
    uint64_t u64;
    bool known = as_field_u64(field, row, &u64);
    *value = known ? (double)u64 : AS_UNKNOWN_F64;
    return known;
}

static const char *code_name(const char *const *names, size_t count, uint8_t code)
{
    return code < count ? names[code] : code == AS_UNKNOWN_U8 ? "unknown" : "?";
}

const char *as_report_pass_name(uint8_t pass)
{
    static const char *const names[] = {"timing", "traced", "schedule"};
    return code_name(names, 3, pass);
}

const char *as_report_phase_name(uint8_t phase)
{
    static const char *const names[] = {"prefill", "prefill_end", "decode", "encode"};
    return code_name(names, 4, phase);
}

const char *as_report_outcome_name(uint8_t outcome)
{
    static const char *const names[] = {"done", "failed", "cancelled", "rejected", "timeout"};
    return code_name(names, 5, outcome);
}

const char *as_report_finish_name(uint8_t finish)
{
    static const char *const names[] = {"stop", "length", "stop_string", "none"};
    return code_name(names, 4, finish);
}
