/* A model file as the rest of assay sees it: configuration, tensors, vocabulary.
 *
 * The structures say nothing of the container, a GGUF file or a Hugging Face folder: names of
 * tensors and of settings are those of GGUF's `llama` architecture, whatever the file calls them.
 * Everything is read-only after as_model_open() and lives until as_model_close(); text is bytes
 * with a length, not NUL-terminated unless it is said to be.
 */
#ifndef AS_MODEL_H
#define AS_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "as_error.h"
#include "kernel.h"

/* Bytes that belong to the model; `bytes` is NULL only where the thing is absent. */
struct as_bytes {
    const char *bytes;
    size_t length;
};

/* One tensor, row-major, in the mapping: `rows` rows of `columns` elements, each row stored in
 * columns / block elements * block bytes, without gaps. A vector has rows == 1. A matrix that
 * multiplies activations has shape [rows = outputs][columns = inputs].
 *
 * `data` is aligned as the file says: in GGUF to at least 8 bytes (32 in nearly every file), in
 * safetensors to the element (4 bytes for F32, 2 for F16 and BF16). Vectors that the program uses
 * are F32 always: stored as F16 or BF16 they were converted at load, which loses nothing. */
struct as_tensor {
    const char *name;       /* NUL-terminated, e.g. "blk.0.attn_q.weight" */
    const char *type;       /* the file's word: "Q4_1" */
    enum assay_dtype dtype; /* ASSAY_NONE where assay has no such dtype (never in used tensors) */
    size_t rows, columns;   /* unused ones may be empty: 0 rows or columns, data not to be read */
    const void *data;
    size_t bytes; /* at `data` */
    bool used;    /* named by the family's program; false = carried by the file, never read */
    const char *stored_name; /* the file's own: "model.layers.0.self_attn.q_proj.weight" */
    size_t stored_bytes;     /* in the file; not `bytes` where the tensor was converted at load */
    uint32_t dimensions;     /* of the file's shape, those of size 1 at its outer end left out */
};

/* How RoPE's angles were stretched for longer contexts (Hugging Face's words). */
enum as_rope_scaling {
    AS_ROPE_SCALING_NONE,
    AS_ROPE_SCALING_LINEAR,
    AS_ROPE_SCALING_LLAMA3, /* also a GGUF file's rope_freqs.weight */
    AS_ROPE_SCALING_YARN
};

/* "none", "linear", "llama3", "yarn". */
const char *as_rope_scaling_name(enum as_rope_scaling scaling);

struct as_model_config {
    uint32_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab;
    uint32_t context; /* positions that the file says it was trained for */
    float rms_epsilon;
    float rope_base;    /* theta of pair i = rope_base^(-2 i / rope_dims) */
    uint32_t rope_dims; /* leading elements of a head that RoPE turns; even, <= head_dim */
    enum assay_rope_pairing rope_pairing;
    bool tied_output; /* no output.weight: logits come from token_embd */

    /* What some models of the architecture have and others have not. */
    bool qkv_bias; /* every layer has attn_{q,k,v}_bias: added to q, k and v before RoPE */
    bool qk_norm;  /* every layer has attn_{q,k}_norm: RMS norm of each head's row of q and k,
                      with rms_epsilon, before RoPE */
    enum as_rope_scaling rope_scaling;
    float rope_factor; /* by which contexts are stretched, as the file says it; 1 = not */
    /* (rope_dims / 2): the angle of pair i at position p is
     * p rope_base^(-2 i / rope_dims) / rope_divisors[i]; NULL = all 1. Linear, llama3 and yarn all
     * come to this. */
    const float *rope_divisors;
    float rope_magnitude; /* multiplies cos and sin; not 1 in yarn alone */
};

/* A layer's tensors, shapes checked against the configuration at load. */
struct as_model_layer {
    const struct as_tensor *attn_norm;   /* [hidden] */
    const struct as_tensor *attn_q;      /* [heads * head_dim][hidden] */
    const struct as_tensor *attn_k;      /* [kv_heads * head_dim][hidden] */
    const struct as_tensor *attn_v;      /* [kv_heads * head_dim][hidden] */
    const struct as_tensor *attn_output; /* [hidden][heads * head_dim] */
    const struct as_tensor *ffn_norm;    /* [hidden] */
    const struct as_tensor *ffn_gate;    /* [ffn][hidden] */
    const struct as_tensor *ffn_up;      /* [ffn][hidden] */
    const struct as_tensor *ffn_down;    /* [hidden][ffn] */

    /* NULL unless config.qkv_bias */
    const struct as_tensor *attn_q_bias; /* [heads * head_dim] */
    const struct as_tensor *attn_k_bias; /* [kv_heads * head_dim] */
    const struct as_tensor *attn_v_bias; /* [kv_heads * head_dim] */

    /* NULL unless config.qk_norm */
    const struct as_tensor *attn_q_norm; /* [head_dim] */
    const struct as_tensor *attn_k_norm; /* [head_dim] */
};

#define AS_MODEL_ENDS 8 /* ids that may end a text; published models have up to 4 */

/* tokenizer.ggml.token_type of a piece. */
enum as_piece_type {
    AS_PIECE_NORMAL = 1,
    AS_PIECE_UNKNOWN = 2,
    AS_PIECE_CONTROL = 3,
    AS_PIECE_USER_DEFINED = 4,
    AS_PIECE_UNUSED = 5,
    AS_PIECE_BYTE = 6
};

/* The tokenizer as the file states it, not interpreted: `pieces` are GPT-2's mapped characters
 * for model "gpt2". Ids are in range or -1. The text stage's struct as_vocabulary has the same
 * content.
 *
 * Of a Hugging Face folder: `model` is "tokenizer.json", there are no pieces and no merges (the
 * text stage reads model->folder), ids come from config.json and generation_config.json. */
struct as_model_vocabulary {
    const char *model; /* tokenizer.ggml.model, e.g. "gpt2"; NUL-terminated */
    const char *pre;   /* tokenizer.ggml.pre, NUL-terminated; NULL = absent */
    size_t count;      /* of pieces: config.vocab, or 0 of a folder */
    const struct as_bytes *pieces;
    const int32_t *types; /* enum as_piece_type, or NULL when the file has none */
    const float *scores;  /* or NULL */
    size_t merge_count;
    const struct as_bytes *merges; /* "left right" by rank */
    int32_t bos, eos, eot, unknown, pad;
    bool add_bos, add_eos, add_space_prefix;
    struct as_bytes chat_template; /* absent = bytes NULL */
    size_t end_count;
    int32_t ends[AS_MODEL_ENDS]; /* every id that ends a text: GGUF's eos and eot; a folder may name
                                    more, generation_config.json's first */
};

/* The other files of a Hugging Face folder, mapped, for the text stage; bytes NULL = absent. They
 * are not checked. */
struct as_model_folder {
    const char *path;                 /* NULL: the model is a file */
    struct as_bytes tokenizer;        /* tokenizer.json */
    struct as_bytes tokenizer_config; /* tokenizer_config.json */
    struct as_bytes chat_template;    /* chat_template.jinja */
};

/* One entry of the file's metadata, for `model info`. */
enum as_metadata_kind {
    AS_METADATA_UNSIGNED,
    AS_METADATA_SIGNED,
    AS_METADATA_FLOAT,
    AS_METADATA_BOOL,
    AS_METADATA_STRING,
    AS_METADATA_ARRAY
};

struct as_metadata {
    struct as_bytes key;
    enum as_metadata_kind kind;
    const char *type; /* the file's own word: "u32", "string", "array of string" */
    union {
        uint64_t u; /* also the bool */
        int64_t i;
        double f;
        struct as_bytes text;
        uint64_t count; /* an array's elements */
    } value;
};

struct as_model_storage; /* mappings and tables; of no interest outside model.c */

struct as_model {
    const char *path;   /* the file or folder; of a synthetic model, the file in the cache */
    const char *name;   /* general.name, or the file's or folder's own name */
    const char *format; /* "GGUF v3", "safetensors" */
    const char *family; /* "llama", "mistral" (folders alone), "qwen2", "qwen3" */
    size_t file_bytes;  /* of all files that hold weights */
    struct as_model_config config;

    const struct as_tensor *token_embd;  /* [vocab][hidden] */
    const struct as_tensor *output_norm; /* [hidden] */
    const struct as_tensor *output;      /* [vocab][hidden]; token_embd when tied */
    const struct as_model_layer *layers; /* config.layers of them */

    size_t tensor_count; /* in the file's order */
    const struct as_tensor *tensors;
    size_t tensor_bytes; /* sum over all tensors */
    size_t unused_count; /* tensors with used == false */

    struct as_model_vocabulary vocabulary;

    size_t metadata_count; /* of a folder: config.json's outer members */
    const struct as_metadata *metadata;

    struct as_model_folder folder;
    const char *note; /* one sentence on what was decided that users should know; NULL = none */

    struct as_model_storage *storage;
};

/* Opens a GGUF file, a Hugging Face folder (config.json and safetensors) or
 * "synthetic:<shape>[,key=value...]" (written into the cache folder at first use). On failure
 * *model is NULL and the message names file, place and remedy. The data is mapped, not read:
 * opening costs milliseconds whatever the file's size.
 *
 * A model that needs what the engine does not compute yet (model_served.c) is refused by name. */
int as_model_open(const char *path, struct as_model **model, struct as_error *error);
void as_model_close(struct as_model *model); /* NULL is fine */

/* As as_model_open() for looking only: opens also what the engine does not compute yet. Nothing
 * may run such a model; as_model_check_served() says what is lacking. */
int as_model_inspect(const char *path, struct as_model **model, struct as_error *error);
int as_model_check_served(const struct as_model *model, struct as_error *error);

/* The tensor of that name, or NULL. */
const struct as_tensor *as_model_tensor(const struct as_model *model, const char *name);

/* The metadata entry of that key, or NULL. */
const struct as_metadata *as_model_metadata(const struct as_model *model, const char *key);

/* As as_model_open() over a GGUF image in memory, for tests and fuzzers. `bytes` stay the caller's,
 * must be aligned as malloc aligns and outlive the model; `name` is the path in messages. */
int as_model_open_bytes(const void *bytes, size_t size, const char *name, struct as_model **model,
                        struct as_error *error);
int as_model_inspect_bytes(const void *bytes, size_t size, const char *name,
                           struct as_model **model, struct as_error *error);

/* A checksum over every byte of the file, of a folder over config.json and its weights (reads it
 * all: some 60 ms per 100 MB from a warm cache). Callers that need it often keep it by device,
 * inode, size, mtime and ctime of every as_model_file(). */
uint64_t as_model_digest(const struct as_model *model);

/* The files that the digest covers: `index` 0 upward, NULL at the end. */
const char *as_model_file(const struct as_model *model, size_t index);

#endif
