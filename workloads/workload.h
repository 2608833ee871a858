/* Workloads: the requests that a replay sends, read from `.awl.jsonl` files.
 *
 * A file is UTF-8 text, one JSON object a line (LF or CRLF, an optional byte order mark, blank
 * lines ignored, the last line may lack its newline). The first is the header, every other one a
 * request. The reader is strict: an unknown, repeated, missing or ill-typed field is an error
 * that names line and field.
 *
 * Numbers. Integers are written in digits alone and lie between 0 and 2^63-1 (fields with a
 * narrower range say so); they are kept bit for bit. A real where an integer belongs is refused
 * even when it is integral (1e18, 2.0): beyond 2^53 it need not be the number that was meant. -0
 * is 0. Reals (temperature, top_p) may be written either way.
 *
 * Order. Rows may stand in any order of `at_ns`; a replay sends them by `at_ns`, equal times in
 * file order. Times count from the start of the trace.
 */
#ifndef AS_WORKLOAD_H
#define AS_WORKLOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "as_error.h"

#define AS_WORKLOAD_VERSION 1

/* Limits of the reader. */
#define AS_WORKLOAD_FILE_LIMIT ((size_t)1 << 30)  /* bytes a file */
#define AS_WORKLOAD_LINE_LIMIT ((size_t)16 << 20) /* bytes a line */
#define AS_WORKLOAD_DEPTH_LIMIT 32                /* nested objects and arrays */

/* What an absent value reads as. */
#define AS_WORKLOAD_NO_TIME UINT64_MAX  /* at_ns, cancel_ns */
#define AS_WORKLOAD_NO_U32 UINT32_MAX   /* turn */
#define AS_WORKLOAD_NO_U64 UINT64_MAX   /* source_row, header fields */
#define AS_WORKLOAD_NO_REQUEST SIZE_MAX /* after */

#define AS_WORKLOAD_DEFAULT_OUTPUT 64 /* tokens, where a row has no `out` */

enum as_workload_form {
    AS_WORKLOAD_TEXT = 1, /* `text`: a plain prompt, no chat template */
    AS_WORKLOAD_MESSAGES, /* `messages`: goes through the model's chat template */
    AS_WORKLOAD_TOKENS,   /* `tokens`: ids as they are */
    AS_WORKLOAD_LENGTH    /* `len`, perhaps with `blocks`: ids from as_workload_synthesize() */
};

struct as_workload_message {
    const char *role; /* "system", "user", "assistant", "tool" or "developer" */
    const char *content;
};

struct as_workload_output {
    uint32_t n;   /* tokens to generate, at least 1 */
    uint32_t min; /* tokens before which the end of sequence is ignored, at most n */
    bool exact;   /* ignore the end of sequence and stop at n: min is then n */
};

struct as_workload_sampling {
    bool present;       /* false: greedy, and the rest is 0, 0, 1, 0 */
    uint64_t seed;      /* where the file gives none: from (synth seed, id), below 2^63 */
    double temperature; /* 0 is greedy; default 1 */
    double top_p;       /* in (0, 1]; default 1 */
    uint32_t top_k;     /* 0 is off (default) */
};

struct as_workload_request {
    const char *id;
    uint64_t at_ns;      /* scheduled arrival, or AS_WORKLOAD_NO_TIME */
    size_t after;        /* else: index of the request whose end it waits for */
    uint64_t delay_ns;   /* and how long after that end it is sent */
    const char *session; /* grouping only; NULL where absent */
    uint32_t turn;       /* position in the session, or AS_WORKLOAD_NO_U32 */

    enum as_workload_form form;           /* which of the following holds the prompt */
    const char *text;                     /* TEXT; at least one byte */
    struct as_workload_message *messages; /* MESSAGES; at least one */
    size_t message_count;
    int32_t *tokens;  /* TOKENS; `length` of them, each >= 0 */
    uint32_t length;  /* TOKENS and LENGTH: prompt tokens, 1 to 2^31-1; else 0 */
    uint64_t *blocks; /* LENGTH: prefix-tree ids, one per header.block_tokens, or NULL */
    size_t block_count;

    struct as_workload_output output;
    struct as_workload_sampling sampling;
    const char *class_name; /* `class`: SLO class; NULL where absent */
    const char *model;      /* adapter or model alias; NULL where absent */
    uint64_t cancel_ns;     /* the client gives up this long after sending, or NO_TIME */
    uint64_t source_row;    /* `src.row`, or AS_WORKLOAD_NO_U64 */
    uint64_t line;          /* where it stands in the file, from 1; for messages */
};

/* The header line. Strings are NULL, numbers AS_WORKLOAD_NO_U64 where absent, unless said. */
struct as_workload_header {
    const char *name; /* where absent: the file's name without folder and .awl.jsonl */
    struct {
        const char *repo, *commit, *path, *sha256, *licence, *attribution;
    } source;
    struct {
        const char *id, *sha256;
        uint64_t vocab; /* where given, every entry of `tokens` is below it */
    } tokenizer;
    uint64_t rows;           /* where given, equal to the rows of the file */
    uint64_t block_tokens;   /* prompt tokens per entry of `blocks`, at least 1 */
    uint64_t synth_seed;     /* synth.seed, default 0; synth.algo is "counter1" or absent */
    const char *transforms;  /* JSON text of the array of steps that made this file */
    const char *body_sha256; /* 64 hex digits over the bytes from body_offset on; NOT verified
                                by the reader (`assay workload check` does) */
};

/* Owns everything that its pointers reach. Plain data: read freely from any thread, change only
 * through the functions below. */
struct as_workload {
    struct as_workload_header header;
    struct as_workload_request *requests;
    size_t count;    /* may be 0: valid to read, but nothing to run */
    size_t total;    /* rows of the file, whatever was cut by as_workload_limit() */
    uint64_t digest; /* as_hash64() with seed 0 over all bytes of the file */
    char digest_hex[17];
    size_t body_offset;              /* byte in the file behind the header line */
    struct as_workload_arena *arena; /* private */
};

/* Reads and checks the whole of `path`. On success `*workload` is the caller's, to be released
 * with as_workload_free(); on failure it is NULL. AS_ERR_DATA for anything wrong in the file,
 * with "PATH: line N: field "F": what was found; what to do". */
int as_workload_read(struct as_workload **workload, const char *path, struct as_error *error);

/* The same from `size` bytes in memory; `name` stands for the path in messages. The bytes need
 * not outlive the call. */
int as_workload_parse(struct as_workload **workload, const char *bytes, size_t size,
                      const char *name, struct as_error *error);

/* NULL is accepted. */
void as_workload_free(struct as_workload *workload);

/* Keeps the first `n` rows; more than there are keeps all. AS_ERR_USAGE when n is 0 or when a kept
 * row waits (`after`) for one that would be cut, which the message names; nothing is then
 * changed. */
int as_workload_limit(struct as_workload *workload, size_t n, struct as_error *error);

/* The token ids of a LENGTH request: `request->length` of them into `tokens`, drawn from
 * `candidates` (the ids that survive decoding and encoding with the served tokenizer; `count`
 * from 1 to 2^31-1). Token j of block b depends on (synth seed, b, j) alone, so equal block ids
 * give equal tokens in whatever row, and a partial last block is the head of the full one. A
 * request without blocks draws by (synth seed, its id, j): the same after any reordering or
 * slicing. The answer also depends on the candidates and their order. AS_ERR_USAGE when the
 * request is of another form or there are no candidates. */
int as_workload_synthesize(const struct as_workload *workload,
                           const struct as_workload_request *request, const int32_t *candidates,
                           size_t count, int32_t *tokens, struct as_error *error);

/* What a workload holds, in numbers. */
struct as_workload_totals {
    uint64_t timed, chained;                  /* rows with at_ns, rows with after */
    uint64_t text, messages, tokens, length;  /* rows by prompt form */
    uint64_t with_blocks, sampled, cancelled; /* rows with those fields */
    uint64_t first_ns, last_ns;               /* of at_ns; NO_TIME without timed rows */
    uint64_t prompt_tokens;                   /* of the forms TOKENS and LENGTH */
    uint64_t prompt_bytes;                    /* UTF-8 bytes of TEXT and MESSAGES contents */
    uint64_t output_tokens, exact;            /* sum of output.n; rows with exact lengths */
};

void as_workload_sum(const struct as_workload *workload, struct as_workload_totals *totals);

#endif
