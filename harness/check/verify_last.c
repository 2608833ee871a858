/* The last verdict of each (model, plan digest), as JSON in the cache folder. */
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "as_file.h"
#include "check/stamps.h"
#include "check/verify.h"

#define LIMIT 16384 /* bytes of an entry */

static int entry_path(uint64_t model_digest, const char *plan_digest, char path[PATH_MAX],
                      struct as_error *error)
{
    char name[96];
    snprintf(name, sizeof name, "verify/%016" PRIx64 "-%.32s.json", model_digest, plan_digest);
    return as_cache_path(path, PATH_MAX, name, error);
}

static json_t *number(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

int as_verify_keep(const struct as_verify *verify, const struct as_verify_result *result,
                   struct as_error *error)
{
    char path[PATH_MAX], words[512];
    const struct as_ref_logits *all = &result->all;
    int code = entry_path(verify->digest, result->plan_digest, path, error);
    if (code != 0)
        return code;
    as_verify_words(result, words, sizeof words);
    json_t *root = json_pack(
        "{s:b, s:i, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:I, s:s, s:s}", "passed",
        result->faults == 0, "positions", (int)verify->positions, "text", as_verify_origin(verify),
        "rms", number(all->rms), "naive_rms", number(result->naive_rms), "max_error",
        number(all->max_error), "kl", number(all->kl), "agreement", number(all->agreement), "below",
        number(result->below), "flips", (json_int_t)(all->flips + result->greedy_flips), "time",
        (json_int_t)time(NULL), "build", as_build_id(), "words", words);
    char *text = root == NULL ? NULL : json_dumps(root, JSON_INDENT(2));
    json_decref(root);
    if (text == NULL)
        return as_fail(error, AS_ERR_MEMORY, "the result of verify cannot be written as JSON");
    code = as_write_file(path, text, strlen(text), error);
    free(text);
    return code;
}

static double real_of(const json_t *root, const char *key)
{
    const json_t *value = json_object_get(root, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void copy_text(char *to, size_t size, const json_t *root, const char *key)
{
    const char *text = json_string_value(json_object_get(root, key));
    snprintf(to, size, "%s", text == NULL ? "" : text);
}

int as_verify_last(uint64_t model_digest, const char *plan_digest, struct as_verify_last *last,
                   struct as_error *error)
{
    char path[PATH_MAX], *text;
    size_t size;
    *last = (struct as_verify_last){0};
    if (entry_path(model_digest, plan_digest, path, NULL) != 0 ||
        as_read_file(&text, &size, path, LIMIT, NULL) != 0)
        return AS_ERR_IO;
    json_t *root = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    const json_t *passed = json_object_get(root, "passed");
    if (!json_is_boolean(passed)) {
        json_decref(root);
        return as_fail(error, AS_ERR_DATA, "%s: no result of verify; run `assay verify` again",
                       path);
    }
    last->passed = json_is_true(passed);
    last->positions = (int32_t)json_integer_value(json_object_get(root, "positions"));
    last->flips = json_integer_value(json_object_get(root, "flips"));
    last->time = json_integer_value(json_object_get(root, "time"));
    last->rms = real_of(root, "rms");
    last->naive_rms = real_of(root, "naive_rms");
    last->max_error = real_of(root, "max_error");
    last->kl = real_of(root, "kl");
    last->agreement = real_of(root, "agreement");
    last->below = real_of(root, "below");
    copy_text(last->text, sizeof last->text, root, "text");
    copy_text(last->build, sizeof last->build, root, "build");
    copy_text(last->words, sizeof last->words, root, "words");
    json_decref(root);
    return 0;
}
