/* The schema of a report: one table of tables, from which spools, merging, the HDF5 writer, the
 * reader and the check of SCHEMA.md all work.
 *
 * Rows are fixed-size structs. Times are u64 nanoseconds on CLOCK_MONOTONIC; text is a u32 id of a
 * string; a value that is not known is all ones (u8, u32, u64) or NaN (f64). The version is
 * major.minor and only ever grows: a new field or table raises the minor, a changed meaning the
 * major. Fields are matched by name everywhere, so a struct may be reordered. */
#ifndef AS_SCHEMA_H
#define AS_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AS_SCHEMA_MAJOR 1
#define AS_SCHEMA_MINOR 0

#define AS_UNKNOWN_U8 ((uint8_t)0xff)
#define AS_UNKNOWN_U32 ((uint32_t)0xffffffffu)
#define AS_UNKNOWN_U64 ((uint64_t)0xffffffffffffffffu)
#define AS_UNKNOWN_F64 (__builtin_nan(""))

enum as_table {
    AS_TABLE_RUNS,
    AS_TABLE_REQUESTS,
    AS_TABLE_STEPS,
    AS_TABLE_STEP_ROWS,
    AS_TABLE_PROBLEMS,
    AS_TABLE_VARIANTS,
    AS_TABLE_LAUNCHES,
    AS_TABLE_LAUNCH_THREADS,
    AS_TABLE_LAUNCHES_CUDA,
    AS_TABLE_COUNTERS,
    AS_TABLE_CEILINGS,
    AS_TABLE_CAPABILITIES,
    AS_TABLE_UTILIZATION,
    AS_TABLE_COUNT
};

/* The pass of a run. */
enum as_report_pass {
    AS_REPORT_PASS_TIMING = 0,  /* step and request stamps only: what verdicts use */
    AS_REPORT_PASS_TRACED = 1,  /* every launch recorded: what explains them */
    AS_REPORT_PASS_SCHEDULE = 2 /* untimed: records the schedule that lockstep replays follow */
};

/* What a request's part of a step was. */
enum as_report_phase {
    AS_REPORT_PHASE_PREFILL = 0, /* a chunk of the prompt that is not its last: nothing sampled */
    AS_REPORT_PHASE_PREFILL_END = 1, /* the chunk that ends the prompt: samples the first token */
    AS_REPORT_PHASE_DECODE = 2,
    AS_REPORT_PHASE_ENCODE = 3 /* an encoder's whole text */
};

/* How a request ended. Unknown (255) is a request that the run did not finish. */
enum as_report_outcome {
    AS_REPORT_OUTCOME_DONE = 0,
    AS_REPORT_OUTCOME_FAILED = 1,    /* an error, such as non-finite logits */
    AS_REPORT_OUTCOME_CANCELLED = 2, /* by the client */
    AS_REPORT_OUTCOME_REJECTED = 3,  /* never admitted: too long, queue full */
    AS_REPORT_OUTCOME_TIMEOUT = 4
};

/* Why generation stopped. */
enum as_report_finish {
    AS_REPORT_FINISH_STOP = 0,        /* the model's end token */
    AS_REPORT_FINISH_LENGTH = 1,      /* the length that was asked for, or the context's end */
    AS_REPORT_FINISH_STOP_STRING = 2, /* a stop string of the request */
    AS_REPORT_FINISH_NONE = 3         /* nothing was generated: encoders, failures, rejections */
};

struct as_row_run {
    uint32_t run;        /* its number in the report; the child's folder is run-<number> */
    uint32_t strategy;   /* string */
    uint32_t repetition; /* from 0, of this strategy and pass */
    uint32_t order;      /* place in the sequence of children, from 0 */
    uint32_t threads;    /* of the team that runs kernels */
    uint32_t exit;       /* status of the child; unknown when a signal ended it or it never ended */
    uint32_t signal;     /* that ended the child; 0 = none */
    uint32_t invalid_reason;           /* string; unknown when valid */
    uint32_t plan_digest;              /* string */
    uint32_t build;                    /* string: build id of the child's binary */
    uint64_t start, end;               /* of the replay: what throughput is divided by */
    uint64_t window_start, window_end; /* declared window; unknown = from start to end */
    uint64_t peak_rss;                 /* bytes */
    double recording_ns;               /* cost of recording one launch */
    uint8_t pass;                      /* enum as_report_pass */
    uint8_t valid;                     /* 1, or 0 with invalid_reason */
};

struct as_row_request {
    uint32_t run, request; /* request: number in its run, from 0 */
    uint32_t name;         /* string: the workload row's id */
    uint32_t class_name;   /* string; the field is called "class" */
    uint32_t prompt_tokens, cached_tokens, output_tokens;
    uint32_t exact_tokens; /* output length demanded exactly; unknown = not demanded */
    uint32_t preemptions;
    uint8_t outcome;    /* enum as_report_outcome */
    uint8_t finish;     /* enum as_report_finish */
    uint64_t scheduled; /* when the workload wanted it sent */
    uint64_t sent;      /* when it was: handed to the text stage or written to the socket */
    uint64_t preprocess_start, preprocess_end;
    uint64_t queued;                  /* entered the scheduler's queue */
    uint64_t first_scheduled;         /* start of the first step that worked on it */
    uint64_t prefill_end;             /* end of the step that finished the prompt */
    uint64_t first_token, last_token; /* handed out */
    uint64_t done;                    /* everything released */
    uint64_t requeue_ns;              /* waited again after preemptions, summed */
};

struct as_row_step {
    uint32_t run, step; /* step: number in its run, from 0 */
    uint32_t prefill_tokens, decode_tokens, padded_tokens;
    uint32_t sequences;
    uint32_t bucket; /* tokens of the captured bucket; unknown = ran eager */
    uint32_t kv_blocks;
    uint32_t queue_depth; /* requests waiting when the step was formed */
    uint64_t start, end;
    uint64_t metadata_build_ns, metadata_upload_ns, metadata_wait_ns;
    uint64_t device_start, device_end; /* unknown where the device has no clock of its own */
};

struct as_row_step_row {
    uint32_t run, step, request;
    uint32_t tokens;   /* of this request in this step */
    uint32_t position; /* of the first of them in its sequence */
    uint32_t token;    /* sampled or forced; unknown where nothing is sampled */
    uint32_t top1;     /* id with the largest logit; the lowest id of equals */
    uint8_t phase;     /* enum as_report_phase */
    double top1_logit;
    double margin;     /* top-1 minus top-2 logit */
    double projection; /* sum of +-1 times logit with fixed signs */
};

struct as_row_problem {
    uint32_t problem; /* id within a child; ids of the report are given by the merge */
    uint32_t op;      /* string */
    uint32_t shape;   /* string: the shape in words */
    uint32_t m, n, k; /* of a matrix product: [m,k] x [n,k]^T */
    uint32_t tokens, sequences;
    uint32_t context; /* longest sequence, in tokens */
    uint32_t heads, kv_heads, head_dim;
    uint32_t weights, activations, kv; /* strings: dtypes */
    uint64_t flops, bytes;             /* of one launch, from the op's cost model */
};

struct as_row_variant {
    uint32_t variant;  /* id within a child; ids of the report are given by the merge */
    uint32_t name;     /* string */
    uint32_t backend;  /* string */
    uint32_t rung;     /* place on the ladder, 0 = naive */
    uint32_t improves; /* string: name of the rung below */
    uint32_t plugin;   /* string: name of the plugin; unknown = built in */
    uint8_t checked;   /* 1 = passed its check against the reference, 0 = did not */
};

struct as_row_launch {
    uint32_t launch; /* number within a child, ascending; the merge makes it unique in the report */
    uint32_t run, step;
    uint32_t layer; /* unknown = outside the layers */
    uint32_t variant, problem;
    uint64_t start, end;       /* first thread's begin, last thread's end */
    uint64_t work_ns, wait_ns; /* summed over the threads */
};

struct as_row_launch_thread {
    uint32_t launch, thread;
    uint64_t start, work_ns, wait_ns;
};

struct as_row_launch_cuda {
    uint32_t launch, correlation, device, stream;
    uint32_t graph;
    uint32_t kernel; /* string: the device function's name */
    uint32_t grid_x, grid_y, grid_z, block_x, block_y, block_z;
    uint32_t registers;     /* a thread */
    uint32_t shared_memory; /* bytes a block, static and dynamic */
    uint32_t flags;
    uint64_t node; /* of the graph */
};

struct as_row_counter {
    uint32_t run;
    uint32_t name, units; /* strings */
    uint64_t value;
};

/* A measured limit of the machine. Names that `show` relates launches to: "bandwidth_read" (units
 * "B/s") and "compute_<activations dtype>" (units "FLOP/s"); "compute_f32" where none fits. */
struct as_row_ceiling {
    uint32_t name, units; /* strings */
    uint32_t threads;
    uint32_t boot;     /* string: boot id that it was measured under */
    uint64_t measured; /* when, on that boot's CLOCK_MONOTONIC */
    double value;
};

struct as_row_capability {
    uint32_t name, reason; /* strings; reason: why not, or what was found */
    uint8_t supported;
};

/* A stretch of a run. The merge derives rows from steps and launches for runs that have none. */
struct as_row_utilization {
    uint32_t run;
    uint32_t queue_depth, sequences, kv_blocks; /* largest seen in the stretch */
    uint64_t start, end;
    double busy; /* work / (wall x threads); NaN where launches were not recorded */
};

_Static_assert(sizeof(struct as_row_launch) <= 64, "a launch row is at most 64 bytes");

enum as_type { AS_TYPE_U8, AS_TYPE_U32, AS_TYPE_U64, AS_TYPE_F64 };

/* What a u32 field names, so that a merge can turn a child's ids into the report's. */
enum as_reference {
    AS_REFERENCE_NONE,
    AS_REFERENCE_STRING,
    AS_REFERENCE_RUN,
    AS_REFERENCE_REQUEST, /* within its run */
    AS_REFERENCE_STEP,    /* within its run */
    AS_REFERENCE_PROBLEM,
    AS_REFERENCE_VARIANT,
    AS_REFERENCE_LAUNCH
};

struct as_field {
    const char *name;
    const char *units; /* "ns", "bytes", "tokens", ...; "" for plain numbers, ids and codes */
    const char *description;
    uint32_t offset;
    uint8_t type;      /* enum as_type */
    uint8_t reference; /* enum as_reference */
    bool required;     /* a file whose table lacks it is refused */
};

struct as_table_schema {
    const char *name;  /* of the dataset: "/runs" */
    const char *a_row; /* what a row is */
    const char *description;
    const struct as_field *fields;
    uint32_t field_count;
    uint32_t row_size;
};

#define AS_ROW_SIZE_MAX 256

extern const struct as_table_schema as_tables[AS_TABLE_COUNT];

/* The table called `name` ("/runs"), or -1. */
int as_table_by_name(const char *name);

/* The field of `table` called `name`, or NULL. */
const struct as_field *as_field_by_name(enum as_table table, const char *name);

uint32_t as_type_size(enum as_type type);
const char *as_type_name(enum as_type type);           /* "u8", "u32", "u64", "f64" */
const char *as_reference_name(enum as_reference kind); /* "string", "run", ...; "" for none */

/* Fills a row with unknowns (and its padding with zeros), so that a writer sets only what it
 * knows. */
void as_row_unknown(enum as_table table, void *row);

/* Copies a row field by field; padding becomes zero, so that equal rows are equal bytes. */
void as_row_copy(enum as_table table, void *to, const void *from);

/* One field as a number; false when it is unknown. u64 beyond 2^53 loses low bits in `f64`. */
bool as_field_u64(const struct as_field *field, const void *row, uint64_t *value);
bool as_field_f64(const struct as_field *field, const void *row, double *value);

/* Names of coded values ("timing", "decode", ...); "unknown" for 255, "?" for a code of a later
 * minor version. */
const char *as_report_pass_name(uint8_t pass);
const char *as_report_phase_name(uint8_t phase);
const char *as_report_outcome_name(uint8_t outcome);
const char *as_report_finish_name(uint8_t finish);

#endif
