/* The first line of a workload. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "parse.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *const header_names[] = {"assay_workload", "name",       "source",
                                           "rows",           "tokenizer",  "block_tokens",
                                           "synth",          "transforms", "body_sha256"};
static const char *const source_names[] = {"repo",   "commit",  "path",
                                           "sha256", "licence", "attribution"};
static const char *const tokenizer_names[] = {"id", "sha256", "vocab"};
static const char *const synth_names[] = {"algo", "seed"};

static int read_version(const struct as_awl_object *line)
{
    const json_t *json = json_object_get(line->json, "assay_workload");
    if (json == NULL)
        return as_awl_bad(
            line, "assay_workload",
            "missing; the first line is the header, at least {\"assay_workload\": %d}",
            AS_WORKLOAD_VERSION);
    uint64_t version = 0;
    int code = as_awl_u64(line, "assay_workload", 0, INT64_MAX, &version);
    if (code == 0 && version != AS_WORKLOAD_VERSION)
        code = as_awl_bad(line, "assay_workload",
                          "the file is of version %" PRIu64 ", this program reads version %d; "
                          "convert the file or use the program that wrote it",
                          version, AS_WORKLOAD_VERSION);
    return code;
}

static int read_source(const struct as_awl_object *line, struct as_workload_header *header)
{
    char path[16];
    struct as_awl_object source;
    int code = as_awl_inner(line, "source", &source, path, sizeof path);
    if (code != 0 || source.json == NULL)
        return code;
    if ((code = as_awl_known(&source, source_names, COUNT(source_names))) != 0 ||
        (code = as_awl_text(&source, "repo", &header->source.repo)) != 0 ||
        (code = as_awl_text(&source, "commit", &header->source.commit)) != 0 ||
        (code = as_awl_text(&source, "path", &header->source.path)) != 0 ||
        (code = as_awl_sha256(&source, "sha256", &header->source.sha256)) != 0 ||
        (code = as_awl_text(&source, "licence", &header->source.licence)) != 0)
        return code;
    return as_awl_text(&source, "attribution", &header->source.attribution);
}

static int read_tokenizer(const struct as_awl_object *line, struct as_workload_header *header)
{
    char path[16];
    struct as_awl_object tokenizer;
    int code = as_awl_inner(line, "tokenizer", &tokenizer, path, sizeof path);
    if (code != 0 || tokenizer.json == NULL)
        return code;
    if ((code = as_awl_known(&tokenizer, tokenizer_names, COUNT(tokenizer_names))) != 0 ||
        (code = as_awl_text(&tokenizer, "id", &header->tokenizer.id)) != 0 ||
        (code = as_awl_sha256(&tokenizer, "sha256", &header->tokenizer.sha256)) != 0)
        return code;
    return as_awl_u64(&tokenizer, "vocab", 1, INT32_MAX, &header->tokenizer.vocab);
}

/* Another generator would give other prompts under the same name, so it must be known. */
static int read_synth(const struct as_awl_object *line, struct as_workload_header *header)
{
    char path[16];
    struct as_awl_object synth;
    const char *algorithm = NULL;
    int code = as_awl_inner(line, "synth", &synth, path, sizeof path);
    if (code != 0 || synth.json == NULL)
        return code;
    if ((code = as_awl_known(&synth, synth_names, COUNT(synth_names))) != 0 ||
        (code = as_awl_name(&synth, "algo", &algorithm)) != 0)
        return code;
    if (algorithm != NULL && strcmp(algorithm, "counter1") != 0) {
        char shown[64];
        return as_awl_bad(&synth, "algo", "found \"%s\"; this program has \"counter1\" alone",
                          as_awl_excerpt(algorithm, shown, sizeof shown));
    }
    return as_awl_u64(&synth, "seed", 0, INT64_MAX, &header->synth_seed);
}

static int read_transforms(const struct as_awl_object *line, struct as_workload_header *header)
{
    json_t *steps, *step;
    size_t i;
    int code = as_awl_array(line, "transforms", &steps);
    if (code != 0 || steps == NULL)
        return code;
    json_array_foreach(steps, i, step)
    {
        char field[48], found[96];
        snprintf(field, sizeof field, "transforms[%zu]", i);
        if (!json_is_object(step))
            return as_awl_bad(line, field, "found %s; each step is an object in braces",
                              as_awl_found(step, found, sizeof found));
    }
    char *text = json_dumps(steps, JSON_COMPACT);
    if (text == NULL)
        return as_fail_memory(line->error, 0, "the transforms of a workload");
    header->transforms = as_awl_copy(line->workload, text, line->error);
    free(text);
    return header->transforms == NULL ? AS_ERR_MEMORY : 0;
}

int as_awl_header(struct as_workload *workload, json_t *json, struct as_error *error)
{
    struct as_workload_header *header = &workload->header;
    const struct as_awl_object line = {json, "", workload, error};
    int code;
    if ((code = read_version(&line)) != 0 ||
        (code = as_awl_known(&line, header_names, COUNT(header_names))) != 0 ||
        (code = as_awl_name(&line, "name", &header->name)) != 0 ||
        (code = read_source(&line, header)) != 0 ||
        (code = as_awl_u64(&line, "rows", 0, INT64_MAX, &header->rows)) != 0 ||
        (code = read_tokenizer(&line, header)) != 0 ||
        (code = as_awl_u64(&line, "block_tokens", 1, INT32_MAX, &header->block_tokens)) != 0 ||
        (code = read_synth(&line, header)) != 0 || (code = read_transforms(&line, header)) != 0)
        return code;
    return as_awl_sha256(&line, "body_sha256", &header->body_sha256);
}
