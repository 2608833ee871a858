/* Whole model files, damaged: cut at every byte of the header, bits flipped, numbers replaced,
 * and headers as large as they may be. Nothing may be read outside the file, and what still opens
 * must keep its promises. */
#include "gguf_image.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "../fixtures/fixtures.c"
#include "as_random.h"

/* A fixture's image and the size of its header. */
static uint8_t *make_image(const char *name, size_t *size, size_t *header)
{
    struct as_fixture fixture;
    struct as_error error = {0};
    struct as_gguf gguf;
    void *image;
    cr_assert(as_fixture_named(&fixture, name));
    fixture.chat_template = "{{ messages }}";
    cr_assert_eq(as_fixture_image(&fixture, &image, size, &error), 0, "%s", error.message);
    cr_assert_eq(as_gguf_parse(&gguf, image, *size, &error), 0, "%s", error.message);
    *header = gguf.header_size;
    as_gguf_free(&gguf);
    return image;
}

static uint64_t opened, refused, sink;

/* Opens the bytes as a model; either way is fine, as long as it is clean. */
static void try_open(const void *bytes, size_t size)
{
    struct as_model *model;
    struct as_error error = {0};
    int code = as_model_open_bytes(bytes, size, "image", &model, &error);
    if (code == 0) {
        cr_assert_not_null(model);
        cr_assert_eq(error.code, 0);
        sink += walk_model(model);
        opened++;
        as_model_close(model);
        return;
    }
    refused++;
    cr_assert_null(model);
    cr_assert_eq(error.code, code);
    cr_assert(strncmp(error.message, "cannot read the model image: ", 29) == 0, "%s",
              error.message);
    cr_assert(strlen(error.message) > 40, "%s", error.message);
}

Test(model_hostile, cut_in_the_header)
{
    size_t size, header;
    uint8_t *image = make_image("S", &size, &header);
    for (size_t kept = 0; kept <= header; kept++) {
        void *copy = exact_copy(image, kept);
        try_open(copy, kept);
        free(copy);
    }
    cr_assert_eq(opened, 0);
    cr_assert_eq(refused, header + 1);
    free(image);
}

Test(model_hostile, cut_in_the_data)
{
    size_t size, header;
    uint8_t *image = make_image("S", &size, &header);
    for (size_t kept = size - 1; kept > header; kept -= kept > size - 64 ? 1 : 9973) {
        void *copy = exact_copy(image, kept);
        try_open(copy, kept);
        free(copy);
        if (kept < header + 9973)
            break;
    }
    cr_assert_eq(opened, 0);
    cr_assert_gt(refused, 150);
    try_open(image, size);
    cr_assert_eq(opened, 1);
    free(image);
}

Test(model_hostile, flipped_bits)
{
    size_t size, header;
    uint8_t *image = make_image("S", &size, &header);
    for (uint64_t i = 0; i < 20000; i++) {
        size_t bits = 1 + as_random_u64(1, 0, i) % 3, at[3];
        for (size_t j = 0; j < bits; j++) {
            at[j] = as_random_u64(1, 1 + j, i) % (header * 8);
            image[at[j] / 8] ^= (uint8_t)(1u << at[j] % 8);
        }
        try_open(image, size);
        for (size_t j = 0; j < bits; j++)
            image[at[j] / 8] ^= (uint8_t)(1u << at[j] % 8);
    }
    cr_assert_gt(opened, 0);
    cr_assert_gt(refused, 1000);
    free(image);
}

Test(model_hostile, replaced_numbers)
{
    static const uint64_t extremes[] = {0,
                                        1,
                                        0x7f,
                                        0xff,
                                        0x7fffffff,
                                        0x80000000,
                                        0xffffffff,
                                        (uint64_t)1 << 40,
                                        INT64_MAX,
                                        (uint64_t)1 << 63,
                                        UINT64_MAX - 1,
                                        UINT64_MAX};
    size_t size, header;
    uint8_t *image = make_image("S", &size, &header);
    for (size_t at = 4; at + 8 <= header; at++) {
        for (size_t i = 0; i < sizeof extremes / sizeof extremes[0]; i++) {
            uint64_t saved;
            size_t width = i % 2 == 0 ? 4 : 8;
            memcpy(&saved, image + at, 8);
            memcpy(image + at, &extremes[i], width);
            try_open(image, size);
            memcpy(image + at, &saved, 8);
        }
    }
    cr_assert_gt(refused, 1000);
    free(image);
}

/* ---- the largest headers ------------------------------------------------------------------ */

static size_t peak_bytes(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (size_t)usage.ru_maxrss * 1024;
}

/* Writes `head` and then zeros up to `size` as a sparse file. */
static void write_sparse(const char *path, const struct as_text *head, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, head->data, head->length), (ssize_t)head->length);
    cr_assert_eq(ftruncate(fd, (off_t)size), 0);
    close(fd);
}

/* Processor time, so that a busy machine does not fail the test; builds for debugging get more. */
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
#define SECONDS 1.0
#else
#define SECONDS 10.0
#endif

static double processor_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Opens the file, which must be refused within a second and 64 MB. */
static void expect_cheap(struct as_text *head, size_t size, const char *text)
{
    char path[] = "/tmp/assay-hostile-XXXXXX";
    struct as_model *model;
    struct as_error error = {0};
    close(mkstemp(path));
    write_sparse(path, head, size);
    size_t before = peak_bytes();
    double start = processor_seconds();
    int code = as_model_open(path, &model, &error);
    double spent = processor_seconds() - start;
    size_t used = peak_bytes() - before;
    unlink(path);
    as_text_free(head);
    cr_assert_neq(code, 0);
    cr_assert_not_null(strstr(error.message, text), "%s", error.message);
    cr_assert_lt(used, (size_t)64 << 20, "%zu bytes for: %s", used, error.message);
    cr_assert_lt(spent, SECONDS, "%g s", spent);
}

#define FILE_SIZE ((size_t)1 << 33)

/* Zeros read as empty strings, 8 bytes each. */
Test(model_hostile, arrays_of_empty_strings)
{
    struct as_text head = {0};
    put_header(&head, 3, 0, 1);
    put_key(&head, "tokenizer.ggml.tokens", AS_GGUF_ARRAY);
    put_u32(&head, AS_GGUF_STRING);
    put_u64(&head, (uint64_t)1 << 29);
    expect_cheap(&head, FILE_SIZE, "limit of 25165824 bytes for a header");
}

enum { PIECES = 1 << 19, MERGES = 1 << 20 };

static void put_array(struct as_text *head, const char *key, uint32_t element, uint64_t count)
{
    put_key(head, key, AS_GGUF_ARRAY);
    put_u32(head, element);
    put_u64(head, count);
}

/* Everything that takes memory as large as it may be, in one header. */
Test(model_hostile, all_at_the_limits)
{
    struct as_text head = {0};
    size_t entries = AS_GGUF_ENTRY_LIMIT - 6;
    put_header(&head, 3, AS_GGUF_TENSOR_LIMIT, AS_GGUF_ENTRY_LIMIT);
    put_key(&head, "general.architecture", AS_GGUF_STRING);
    put_string(&head, "llama");
    put_key(&head, "tokenizer.ggml.model", AS_GGUF_STRING);
    put_string(&head, "gpt2");
    put_array(&head, "tokenizer.ggml.tokens", AS_GGUF_STRING, PIECES);
    put_zeros(&head, PIECES * 8);
    put_array(&head, "tokenizer.ggml.scores", AS_GGUF_F32, PIECES);
    put_zeros(&head, PIECES * 4);
    put_array(&head, "tokenizer.ggml.token_type", AS_GGUF_I32, PIECES);
    for (uint32_t i = 0; i < PIECES; i++)
        put_u32(&head, AS_PIECE_NORMAL);
    put_array(&head, "tokenizer.ggml.merges", AS_GGUF_STRING, MERGES);
    put_zeros(&head, MERGES * 8);
    for (size_t i = 0; i < entries; i++) {
        char key[32];
        snprintf(key, sizeof key, "key.%zu", i);
        put_key_u32(&head, key, 0);
    }
    for (uint32_t i = 0; i < AS_GGUF_TENSOR_LIMIT; i++) {
        char name[64];
        snprintf(name, sizeof name, "tensor.with.a.name.as.long.as.it.may.be.............%u", i);
        put_tensor(&head, name, 0, 32 * (uint64_t)i, 1, (uint64_t)1);
    }
    cr_assert_lt(head.length, AS_GGUF_HEADER_LIMIT);
    expect_cheap(&head, FILE_SIZE, "llama.block_count is missing");
}

Test(model_hostile, vocabulary_beyond_the_limits)
{
    struct as_text head = {0};
    put_header(&head, 3, 0, 3);
    put_key(&head, "general.architecture", AS_GGUF_STRING);
    put_string(&head, "llama");
    put_key(&head, "tokenizer.ggml.model", AS_GGUF_STRING);
    put_string(&head, "gpt2");
    put_array(&head, "tokenizer.ggml.tokens", AS_GGUF_STRING, PIECES + 1);
    expect_cheap(&head, FILE_SIZE, "524289 elements, more than the limit of 524288");
}

/* Keys that share long beginnings, so that sorting them compares much. */
Test(model_hostile, long_equal_keys)
{
    struct as_text head = {0};
    char *key = malloc(AS_GGUF_KEY_LIMIT + 1);
    memset(key, 'k', AS_GGUF_KEY_LIMIT);
    key[AS_GGUF_KEY_LIMIT] = '\0';
    put_header(&head, 3, 0, 380);
    for (uint32_t i = 0; i < 380; i++) {
        snprintf(key + AS_GGUF_KEY_LIMIT - 4, 5, "%04u", i);
        put_key_u32(&head, key, i);
    }
    free(key);
    expect_cheap(&head, FILE_SIZE, "general.architecture is missing");
}

Test(model_hostile, nested_arrays)
{
    struct as_text head = {0};
    put_header(&head, 3, 0, 1);
    put_key(&head, "k", AS_GGUF_ARRAY);
    put_u32(&head, AS_GGUF_ARRAY);
    put_u64(&head, UINT64_MAX);
    expect_cheap(&head, FILE_SIZE, "limit of 25165824 bytes for a header");
}
