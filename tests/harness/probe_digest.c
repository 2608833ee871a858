/* Digests kept in the cache folder: known again, and not of what the files held before. */
#include "../kernels/hf_image.h"

#include <inttypes.h>
#include <time.h>

#include "../reports/helpers.h"
#include "probe/digest.h"

static void set_up(void)
{
    make_scratch();
    setenv("XDG_CACHE_HOME", in_scratch("cache"), 1);
}

TestSuite(probe_digest, .init = set_up, .fini = drop_scratch);

static void expect_right(const char *path)
{
    struct as_model *model;
    struct as_error error = {0};
    char right[17], digest[17];
    MUST(as_model_open(path, &model, &error));
    snprintf(right, sizeof right, "%016" PRIx64, as_model_digest(model));
    for (int i = 0; i < 2; i++) {
        as_model_digest_cached(model, digest);
        cr_assert_str_eq(digest, right, "time %d", i);
    }
    as_model_close(model);
}

/* Rewriting a file in a folder changes nothing of the folder itself. */
Test(probe_digest, a_file_of_a_folder_is_rewritten)
{
    struct hf_tensors tensors = {.count = 0};
    const struct family family = {.architecture = "llama"};
    const struct timespec tick = {.tv_nsec = 20000000};
    const char *folder = in_scratch("model");
    cr_assert_eq(mkdir(folder, 0755), 0);
    hf_add_family(&tensors, &family, ASSAY_BF16);
    hf_write_single(&tensors, folder);
    hf_write_config(folder, "llama", false, NULL);
    expect_right(folder);
    nanosleep(&tick, NULL);
    ((unsigned char *)tensors.list[0].data)[0] ^= 1;
    hf_write_single(&tensors, folder);
    expect_right(folder);
    hf_free(&tensors);
}
