/* Inside of a tokenizer, for the files that build, encode and decode. */
#ifndef AS_TOKENIZER_PARTS_H
#define AS_TOKENIZER_PARTS_H

#include "preprocess/bpe.h"
#include "preprocess/pretokenizer.h"
#include "preprocess/special.h"
#include "preprocess/tokenizer.h"

struct as_tokenizer {
    size_t count;
    char *pool;      /* the decoded pieces, one after the other */
    size_t *offsets; /* [count + 1] into pool */
    uint8_t *types;  /* [count] enum as_token_type */
    int32_t *table;  /* ids by decoded piece, open addressing, -1: free */
    size_t slots;    /* a power of two */
    uint64_t seed;   /* of the hash: no file can be made to collide */
    struct as_pretokenizer *pretokenizer;
    struct as_special *special;
    struct as_bpe bpe;
    int32_t bos, eos;
    bool add_bos, add_eos;
};

/* Code point <-> byte of GPT-2's mapping, which gives every byte a visible character. Returns
 * the byte, or -1 for a character that stands for none. */
int as_byte_of_code_point(uint32_t code_point);

#endif
