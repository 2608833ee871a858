#include "check/noise.h"

#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "as_file.h"
#include "check/verify_text.h"

#define CACHE_LIMIT 4096 /* bytes of an entry */

#define SMOLLM2 0xf4fc6331c130fdbbu
#define TEXT 0x8578eb090d732226u

/* Reproduced by `assay verify --measure-noise --model FILE`; a changed text (`text`) or model
 * (`key.model`) makes an entry void. */
static const struct {
    struct as_noise_key key;
    uint64_t text; /* as_verify_text_digest() */
    double naive_rms, below;
} frozen[] = {
    /* SmolLM2-135M-Instruct.Q4_1.gguf */
    {{SMOLLM2, ASSAY_NONE, ASSAY_F32, ASSAY_F32}, TEXT, 1.25304853e-05, 0},
    {{SMOLLM2, ASSAY_NONE, ASSAY_Q8, ASSAY_F32}, TEXT, 3.09688738e-01, 0.53125},
};

double as_noise_level(const struct as_noise *noise)
{
    return 4 * noise->naive_rms;
}

bool as_noise_exact(const struct as_noise_key *key)
{
    return key->activations == ASSAY_F32 && key->kv == ASSAY_F32;
}

double as_noise_below_limit(const struct as_noise_key *key, double naive_below)
{
    return as_noise_exact(key) ? 0.02 : naive_below + 0.02;
}

const char *as_noise_dtype(enum assay_dtype dtype)
{
    return dtype == ASSAY_NONE ? "file" : assay_dtype(dtype)->name;
}

static bool same(const struct as_noise_key *a, const struct as_noise_key *b)
{
    return a->model == b->model && a->weights == b->weights && a->activations == b->activations &&
           a->kv == b->kv;
}

static bool find_frozen(const struct as_noise_key *key, struct as_noise *noise)
{
    for (size_t i = 0; i < sizeof frozen / sizeof frozen[0]; i++) {
        if (!same(&frozen[i].key, key) || frozen[i].text != as_verify_text_digest())
            continue;
        *noise = (struct as_noise){.naive_rms = frozen[i].naive_rms,
                                   .below = frozen[i].below,
                                   .positions = AS_NOISE_POSITIONS,
                                   .source = AS_NOISE_FROZEN};
        return true;
    }
    return false;
}

static int entry_path(const struct as_noise_key *key, char path[PATH_MAX], struct as_error *error)
{
    char name[128];
    snprintf(name, sizeof name, "noise/%016" PRIx64 "-%s-%s-%s.json", key->model,
             as_noise_dtype(key->weights), as_noise_dtype(key->activations),
             as_noise_dtype(key->kv));
    return as_cache_path(path, PATH_MAX, name, error);
}

static void text_words(char words[17])
{
    snprintf(words, 17, "%016" PRIx64, as_verify_text_digest());
}

/* Takes only what as_noise_keep() can have written for the text of this build. */
static bool read_entry(const char *json, size_t size, struct as_noise *noise)
{
    json_t *root = json_loadb(json, size, JSON_REJECT_DUPLICATES, NULL);
    char wanted[17];
    const char *text = NULL;
    int positions = 0;
    *noise = (struct as_noise){.source = AS_NOISE_CACHED};
    text_words(wanted);
    bool read =
        root != NULL &&
        json_unpack(root, "{s:s, s:F, s:F, s:i !}", "text", &text, "naive_rms", &noise->naive_rms,
                    "below", &noise->below, "positions", &positions) == 0 &&
        strcmp(text, wanted) == 0;
    noise->positions = positions;
    json_decref(root);
    return read && isfinite(noise->naive_rms) && noise->naive_rms >= 0 && noise->below >= 0 &&
           noise->below <= 1 && positions > 0 && positions <= AS_NOISE_POSITIONS;
}

bool as_noise_known(const struct as_noise_key *key, struct as_noise *noise)
{
    char path[PATH_MAX], *json;
    size_t size;
    if (find_frozen(key, noise))
        return true;
    if (entry_path(key, path, NULL) != 0 ||
        as_read_file(&json, &size, path, CACHE_LIMIT, NULL) != 0)
        return false;
    bool read = read_entry(json, size, noise);
    free(json);
    return read;
}

int as_noise_keep(const struct as_noise_key *key, const struct as_noise *noise,
                  struct as_error *error)
{
    char path[PATH_MAX], text[17], json[256];
    struct as_noise known;
    if (find_frozen(key, &known))
        return 0;
    int code = entry_path(key, path, error);
    if (code != 0)
        return code;
    text_words(text);
    int length = snprintf(json, sizeof json,
                          "{\"text\": \"%s\", \"naive_rms\": %.17g, \"below\": %.17g, "
                          "\"positions\": %d}\n",
                          text, noise->naive_rms, noise->below, (int)noise->positions);
    return as_write_file(path, json, (size_t)length, error);
}
