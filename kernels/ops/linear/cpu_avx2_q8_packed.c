/* linear/cpu_avx2_q8_packed: W reordered so that the lanes of a vector are rows.
 *
 * In the stored order the lanes are columns: every block ends in a scale for one row and every
 * row in a sum over lanes. Here sixteen rows lie interleaved, four bytes of each in turn, and
 * four bytes of x are sent to all lanes: scales and sums then work on eight rows at once, and the
 * products of a whole Q4_1 block are added up in 16 bits, which leaves one vpmaddubsw and one
 * vpaddw for 32 products. Tiles are 16 rows x 4 tokens. W streams in one direction, and nothing
 * but the embedding needs the file's own pages any more. The packed size is the stored one.
 *
 * Layout "rows16", for each 16 rows and each block of 32 columns (rows past the end are zero):
 *   Q4_1  d fp16 (16), m fp16 (16), then for v in 0..3, half in 0..1: 32 bytes, byte 4 r + j =
 *         row 8 half + r, low nibble column 8 v + j, high nibble column 8 v + 4 + j
 *   Q8_0  d fp16 (16), then for v in 0..7, half in 0..1: 32 bytes, byte 4 r + j = row 8 half + r,
 *         column 4 v + j
 * Each output has one accumulator in every tile, filled block by block. */
#include "device/cpu/avx2.h"
#include "device/cpu/quantize_rows.h"

#define ROWS 16
#define TOKENS 4
#define BYTES_Q4_1 (64 + 256) /* of sixteen rows' blocks */
#define BYTES_Q8_0 (32 + 512)

/* Tokens that pass one group of rows before the next one: their rounded rows stay in the second
 * cache (64 x 1536 bytes) while all of W goes by. */
#define CHUNK 64

/* ---- packing ------------------------------------------------------------------------------ */

static const char *weight_layout(const struct assay_problem *problem, int32_t node)
{
    (void)problem;
    (void)node;
    return "rows16";
}

static size_t group_bytes(enum assay_dtype dtype, int64_t columns)
{
    return (size_t)(columns / CPU_BLOCK) * (dtype == ASSAY_Q4_1 ? BYTES_Q4_1 : BYTES_Q8_0);
}

static size_t packed_size(enum assay_dtype dtype, int64_t rows, int64_t columns)
{
    return (size_t)((rows + ROWS - 1) / ROWS) * group_bytes(dtype, columns);
}

/* The nibble of column `column` in a block's 16 bytes. */
static uint8_t nibble(const uint8_t *bytes, int column)
{
    return column < 16 ? bytes[column] & 15 : bytes[column - 16] >> 4;
}

static void pack_block(uint8_t *to, const uint8_t *from, enum assay_dtype dtype, int lane)
{
    int half = lane / 8, r = lane % 8;
    memcpy(to + 2 * lane, from, 2);
    if (dtype == ASSAY_Q4_1) {
        memcpy(to + 32 + 2 * lane, from + 2, 2);
        for (int i = 0; i < 16; i++) {
            int v = i / 4, j = i % 4;
            to[64 + 64 * v + 32 * half + 4 * r + j] =
                (uint8_t)(nibble(from + 4, 8 * v + j) | nibble(from + 4, 8 * v + 4 + j) << 4);
        }
    } else {
        for (int v = 0; v < 8; v++) {
            memcpy(to + 32 + 64 * v + 32 * half + 4 * r, from + 2 + 4 * v, 4);
        }
    }
}

static void pack(void *packed, const void *stored, enum assay_dtype dtype, int64_t rows,
                 int64_t columns, int64_t begin, int64_t end)
{
    size_t row_bytes = assay_row_bytes(dtype, columns), block = (size_t)assay_dtype(dtype)->bytes;
    size_t packed_block = group_bytes(dtype, CPU_BLOCK);
    for (int64_t first = begin; first < end; first += ROWS) {
        uint8_t *group = (uint8_t *)packed + (size_t)(first / ROWS) * group_bytes(dtype, columns);
        if (rows - first < ROWS) {
            memset(group, 0, group_bytes(dtype, columns));
        }
        for (int lane = 0; lane < ROWS && first + lane < rows; lane++) {
            const uint8_t *row = (const uint8_t *)stored + (size_t)(first + lane) * row_bytes;
            for (int64_t b = 0; b < columns / CPU_BLOCK; b++) {
                pack_block(group + (size_t)b * packed_block, row + (size_t)b * block, dtype, lane);
            }
        }
    }
}

/* ---- running ------------------------------------------------------------------------------ */

/* Where a tile reads and writes. */
struct tile {
    const uint8_t *w;     /* a group of sixteen rows */
    const int8_t *quants; /* (tokens, k) of the tile's first token on */
    const float *scales;  /* (tokens, blocks) */
    const float *sums;    /* (tokens, blocks) */
    float *y;             /* first token, first row */
    int64_t blocks, y_stride;
    int64_t rows; /* 1 .. 16 that exist */
};

CPU_AVX2_INLINE __m256 halves(const uint8_t *stored)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)stored));
}

CPU_AVX2_INLINE __m256i bytes32(const uint8_t *stored)
{
    return _mm256_loadu_si256((const __m256i *)stored);
}

/* Asks for a block two kilobytes ahead: the processor's own prefetching stops at every page. */
CPU_AVX2_INLINE void prefetch(const uint8_t *w, int bytes)
{
    for (int line = 0; line < bytes; line += 64) {
        _mm_prefetch((const char *)w + 2048 + line, _MM_HINT_T0);
    }
}

CPU_AVX2_INLINE void store_rows(const struct tile *tile, int t, __m256 first, __m256 second)
{
    float *y = tile->y + t * tile->y_stride;
    if (tile->rows == ROWS) {
        _mm256_storeu_ps(y, first);
        _mm256_storeu_ps(y + 8, second);
    } else {
        _mm256_maskstore_ps(y, avx2_mask(tile->rows), first);
        _mm256_maskstore_ps(y + 8, avx2_mask(tile->rows - 8), second);
    }
}

/* Adds the products of one block: sum[h][t] += d[h] scale integers[h][t]. */
CPU_AVX2_INLINE void add_block(__m256 *sum, __m256i integers, __m256 d, float scale)
{
    __m256 both = _mm256_mul_ps(d, _mm256_set1_ps(scale));
    *sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(integers), both, *sum);
}

/* `tokens` is a constant where it is inlined. A block's sum in 16 bits is at most
 * 8 * 2 * 15 * 127 = 30480. */
CPU_AVX2_INLINE void tile_q4_1(const struct tile *tile, int tokens)
{
    const __m256i low = _mm256_set1_epi8(15), ones = _mm256_set1_epi16(1);
    int64_t k = tile->blocks * CPU_BLOCK;
    const uint8_t *w = tile->w;
    __m256 sum[2][TOKENS];
    for (int t = 0; t < tokens; t++) {
        sum[0][t] = sum[1][t] = _mm256_setzero_ps();
    }
    for (int64_t b = 0; b < tile->blocks; b++, w += BYTES_Q4_1) {
        prefetch(w, BYTES_Q4_1);
        __m256i pairs[2][TOKENS];
        for (int t = 0; t < tokens; t++) {
            pairs[0][t] = pairs[1][t] = _mm256_setzero_si256();
        }
        for (int v = 0; v < 4; v++) {
            __m256i first = bytes32(w + 64 + 64 * v), second = bytes32(w + 96 + 64 * v);
            __m256i q[2][2] = {
                {_mm256_and_si256(first, low), _mm256_and_si256(_mm256_srli_epi16(first, 4), low)},
                {_mm256_and_si256(second, low),
                 _mm256_and_si256(_mm256_srli_epi16(second, 4), low)},
            };
            for (int t = 0; t < tokens; t++) {
                const int8_t *x = tile->quants + t * k + b * CPU_BLOCK + 8 * v;
                for (int part = 0; part < 2; part++) {
                    __m256i four = avx2_four_bytes(x + 4 * part);
                    for (int h = 0; h < 2; h++) {
                        pairs[h][t] =
                            _mm256_add_epi16(pairs[h][t], _mm256_maddubs_epi16(q[h][part], four));
                        AVX2_PIN(pairs[h][t]);
                    }
                }
            }
        }
        __m256 d[2] = {halves(w), halves(w + 16)}, m[2] = {halves(w + 32), halves(w + 48)};
        for (int t = 0; t < tokens; t++) {
            int64_t at = t * tile->blocks + b;
            __m256 minimum = _mm256_set1_ps(tile->sums[at]);
            for (int h = 0; h < 2; h++) {
                add_block(&sum[h][t], _mm256_madd_epi16(pairs[h][t], ones), d[h], tile->scales[at]);
                sum[h][t] = _mm256_fmadd_ps(m[h], minimum, sum[h][t]);
            }
        }
    }
    for (int t = 0; t < tokens; t++) {
        store_rows(tile, t, sum[0][t], sum[1][t]);
    }
}

/* Signed by signed: the sign of w moves over to x, and two products of 128 * 127 are all that 16
 * bits hold. */
CPU_AVX2_INLINE void tile_q8_0(const struct tile *tile, int tokens)
{
    const __m256i ones = _mm256_set1_epi16(1);
    int64_t k = tile->blocks * CPU_BLOCK;
    const uint8_t *w = tile->w;
    __m256 sum[2][TOKENS];
    for (int t = 0; t < tokens; t++) {
        sum[0][t] = sum[1][t] = _mm256_setzero_ps();
    }
    for (int64_t b = 0; b < tile->blocks; b++, w += BYTES_Q8_0) {
        prefetch(w, BYTES_Q8_0);
        __m256i whole[2][TOKENS];
        for (int t = 0; t < tokens; t++) {
            whole[0][t] = whole[1][t] = _mm256_setzero_si256();
        }
        for (int v = 0; v < 8; v++) {
            __m256i q[2] = {bytes32(w + 32 + 64 * v), bytes32(w + 64 + 64 * v)};
            __m256i magnitude[2] = {_mm256_abs_epi8(q[0]), _mm256_abs_epi8(q[1])};
            for (int t = 0; t < tokens; t++) {
                __m256i four = avx2_four_bytes(tile->quants + t * k + b * CPU_BLOCK + 4 * v);
                for (int h = 0; h < 2; h++) {
                    __m256i pairs =
                        _mm256_maddubs_epi16(magnitude[h], _mm256_sign_epi8(four, q[h]));
                    whole[h][t] = _mm256_add_epi32(whole[h][t], _mm256_madd_epi16(pairs, ones));
                    AVX2_PIN(whole[h][t]);
                }
            }
        }
        __m256 d[2] = {halves(w), halves(w + 16)};
        for (int t = 0; t < tokens; t++) {
            for (int h = 0; h < 2; h++) {
                add_block(&sum[h][t], whole[h][t], d[h], tile->scales[t * tile->blocks + b]);
            }
        }
    }
    for (int t = 0; t < tokens; t++) {
        store_rows(tile, t, sum[0][t], sum[1][t]);
    }
}

/* One function for each tile, so that the compiler sees constants and small register sets. */
#define TILE(dtype, count)                                               \
    CPU_AVX2 static void tile_##dtype##_##count(const struct tile *tile) \
    {                                                                    \
        tile_##dtype(tile, count);                                       \
    }
TILE(q4_1, 1)
TILE(q4_1, 2)
TILE(q4_1, 3)
TILE(q4_1, 4)
TILE(q8_0, 1)
TILE(q8_0, 2)
TILE(q8_0, 3)
TILE(q8_0, 4)

static void (*const tiles[2][TOKENS + 1])(const struct tile *) = {
    {NULL, tile_q4_1_1, tile_q4_1_2, tile_q4_1_3, tile_q4_1_4},
    {NULL, tile_q8_0_1, tile_q8_0_2, tile_q8_0_3, tile_q8_0_4},
};

/* Rows [begin, end) of W against tokens [first, last). */
static void run_chunk(const struct assay_launch *launch, const struct cpu_q8_rows *x, int64_t begin,
                      int64_t end, int64_t first, int64_t last)
{
    const struct assay_operand *weight = &launch->operand[1], *y = &launch->operand[2];
    int64_t k = launch->problem->node[0].k, blocks = k / CPU_BLOCK;
    void (*const *run_tile)(const struct tile *) = tiles[weight->dtype == ASSAY_Q4_1 ? 0 : 1];
    for (int64_t row = begin; row < end; row += ROWS) {
        struct tile tile = {
            .w = (const uint8_t *)weight->data +
                 (size_t)(row / ROWS) * group_bytes(weight->dtype, k),
            .blocks = blocks,
            .y_stride = y->stride,
            .rows = end - row < ROWS ? end - row : ROWS,
        };
        for (int64_t t = first; t < last; t += TOKENS) {
            tile.quants = x->quants + t * k;
            tile.scales = x->scales + t * blocks;
            tile.sums = x->sums + t * blocks;
            tile.y = cpu_row(y, t) + row;
            run_tile[last - t < TOKENS ? last - t : TOKENS](&tile);
        }
    }
}

static int run(const struct assay_launch *launch, const struct assay_exec *exec)
{
    const struct assay_shape *shape = &launch->problem->node[0];
    struct cpu_q8_rows x =
        cpu_quantize_rows(&launch->operand[0], shape->tokens, shape->k, launch->scratch, exec);
    int64_t begin, end;
    assay_share(exec, shape->n, ROWS, &begin, &end);
    for (int64_t first = 0; first < shape->tokens; first += CHUNK) {
        int64_t last = first + CHUNK < shape->tokens ? first + CHUNK : shape->tokens;
        run_chunk(launch, &x, begin, end, first, last);
    }
    return 0;
}

static size_t scratch_size(const struct assay_problem *problem, int32_t threads)
{
    return cpu_quantize_rows_size(problem->node[0].tokens, problem->node[0].k, threads);
}

const struct assay_variant assay_variant_linear_cpu_avx2_q8_packed = {
    .name = "linear/cpu_avx2_q8_packed",
    .idea = "lanes are rows: sixteen rows of W interleaved, tiles of 16 rows x 4 tokens",
    .improves = "linear/cpu_avx2_q8",
    .op = ASSAY_LINEAR,
    .backend = ASSAY_CPU,
    .rung = 2,
    .flags = ASSAY_DEFAULT | ASSAY_DETERMINISTIC | ASSAY_BATCH_INVARIANT,
    .graph = ASSAY_GRAPH_ANY,
    .weights = ASSAY_BIT(ASSAY_Q8_0) | ASSAY_BIT(ASSAY_Q4_1),
    .activations = ASSAY_BIT(ASSAY_Q8),
    .features = ASSAY_CPU_AVX2,
    .weight_layout = weight_layout,
    .packed_size = packed_size,
    .pack = pack,
    .scratch_size = scratch_size,
    .run = run,
};
