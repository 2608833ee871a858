#include "replay/job.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "as_file.h"
#include "replay/arrivals.h"

#define JSON_LIMIT (1u << 20)

static int write_json(json_t *json, const char *folder, const char *name, struct as_error *error)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    char *text = json == NULL ? NULL : json_dumps(json, JSON_INDENT(2));
    json_decref(json);
    if (text == NULL)
        return as_fail(error, AS_ERR_MEMORY,
                       "cannot write %s: its strings are not UTF-8, or memory "
                       "is short",
                       path);
    int code = as_write_file(path, text, strlen(text), error);
    free(text);
    return code;
}

static json_t *read_json(const char *folder, const char *name, struct as_error *error)
{
    char path[PATH_MAX], *text;
    size_t size;
    json_error_t problem;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (as_read_file(&text, &size, path, JSON_LIMIT, error) != 0)
        return NULL;
    json_t *json = json_loadb(text, size, JSON_REJECT_DUPLICATES, &problem);
    free(text);
    if (json == NULL || !json_is_object(json)) {
        as_fail(error, AS_ERR_DATA, "%s line %d: %s", path, problem.line,
                json == NULL ? problem.text : "a JSON object belongs here");
        json_decref(json);
        return NULL;
    }
    return json;
}

int as_job_write(const struct as_job *job, const char *folder, struct as_error *error)
{
    json_t *sets = json_array();
    for (uint32_t i = 0; i < job->sets; i++)
        json_array_append_new(sets, json_string(job->set[i]));
    json_t *json = json_pack("{s:i, s:I, s:I, s:I, s:s, s:I, s:s, s:s, s:s, s:s*, s:s, s:I, s:o}",
                             "protocol", AS_PROTOCOL, "run", (json_int_t)job->run, "repetition",
                             (json_int_t)job->repetition, "order", (json_int_t)job->order, "pass",
                             job->pass == AS_PASS_TRACED ? "traced" : "timing", "limit",
                             (json_int_t)job->limit, "model", job->model, "workload", job->workload,
                             "strategy", job->strategy, "chat_template", job->chat_template, "mode",
                             job->mode, "concurrency", (json_int_t)job->concurrency, "set", sets);
    return write_json(json, folder, "job.json", error);
}

static int refuse_unknown_keys(json_t *json, const char *folder, struct as_error *error)
{
    static const char *const known[] = {"protocol",      "run",   "repetition", "order",    "pass",
                                        "limit",         "model", "workload",   "strategy", "mode",
                                        "chat_template", "set",   "concurrency"};
    const char *key;
    json_t *value;
    json_object_foreach(json, key, value)
    {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            found = found || strcmp(key, known[i]) == 0;
        if (!found)
            return as_fail(error, AS_ERR_DATA,
                           "%s/job.json: this build does not know the key \"%s\"; drive it with a "
                           "parent of its own version",
                           folder, key);
    }
    return 0;
}

static int unpack_job(struct as_job *job, json_t *json, const char *folder, struct as_error *error)
{
    int protocol = 0;
    json_int_t run, repetition, order, limit, concurrency;
    const char *pass;
    json_t *sets = NULL;
    json_error_t problem;
    if (json_unpack_ex(json, &problem, 0, "{s:i}", "protocol", &protocol) != 0)
        return as_fail(error, AS_ERR_DATA, "%s/job.json: %s", folder, problem.text);
    if (protocol != AS_PROTOCOL)
        return as_fail(error, AS_ERR_DATA, "%s/job.json speaks protocol %d, this build %d", folder,
                       protocol, AS_PROTOCOL);
    int code = refuse_unknown_keys(json, folder, error);
    if (code != 0)
        return code;
    if (json_unpack_ex(
            json, &problem, 0, "{s:i, s:I, s:I, s:I, s:s, s:I, s:s, s:s, s:s, s?s, s:s, s:I, s:o}",
            "protocol", &protocol, "run", &run, "repetition", &repetition, "order", &order, "pass",
            &pass, "limit", &limit, "model", &job->model, "workload", &job->workload, "strategy",
            &job->strategy, "chat_template", &job->chat_template, "mode", &job->mode, "concurrency",
            &concurrency, "set", &sets) != 0)
        return as_fail(error, AS_ERR_DATA, "%s/job.json: %s", folder, problem.text);
    if (run < 0 || run > UINT32_MAX || repetition < 0 || repetition > UINT32_MAX || order < 0 ||
        order > UINT32_MAX || limit < 0 || concurrency < 1 || concurrency > UINT32_MAX ||
        json_array_size(sets) > AS_JOB_SETS)
        return as_fail(error, AS_ERR_DATA, "%s/job.json: a number is out of range", folder);
    if (as_mode_by_name(job->mode) < 0)
        return as_fail(error, AS_ERR_DATA, "%s/job.json: this build knows no mode \"%s\"", folder,
                       job->mode);
    if (strcmp(pass, "traced") != 0 && strcmp(pass, "timing") != 0)
        return as_fail(error, AS_ERR_DATA, "%s/job.json: this build knows no pass \"%s\"", folder,
                       pass);
    job->run = (uint32_t)run;
    job->repetition = (uint32_t)repetition;
    job->order = (uint32_t)order;
    job->limit = (uint64_t)limit;
    job->concurrency = (uint32_t)concurrency;
    job->pass = strcmp(pass, "traced") == 0 ? AS_PASS_TRACED : AS_PASS_TIMING;
    job->sets = (uint32_t)json_array_size(sets);
    if (!json_is_array(sets))
        return as_fail(error, AS_ERR_DATA, "%s/job.json: set must be a list of strings", folder);
    for (uint32_t i = 0; i < job->sets; i++) {
        job->set[i] = json_string_value(json_array_get(sets, i));
        if (job->set[i] == NULL)
            return as_fail(error, AS_ERR_DATA, "%s/job.json: set must be a list of strings",
                           folder);
    }
    return 0;
}

int as_job_read(struct as_job *job, const char *folder, struct as_error *error)
{
    *job = (struct as_job){0};
    json_t *json = read_json(folder, "job.json", error);
    if (json == NULL)
        return error->code;
    job->storage = json;
    int code = unpack_job(job, json, folder, error);
    if (code != 0)
        as_job_free(job);
    return code;
}

void as_job_free(struct as_job *job)
{
    json_decref(job->storage);
    *job = (struct as_job){0};
}

int as_done_write(const struct as_done *done, const char *folder, struct as_error *error)
{
    return write_json(json_pack("{s:i, s:i, s:s, s:s, s:s, s:s}", "protocol", AS_PROTOCOL, "exit",
                                (int)done->exit, "build_id", done->build_id, "plan_digest",
                                done->plan_digest, "message", done->message, "strategy",
                                done->strategy == NULL ? "" : done->strategy),
                      folder, "done.json", error);
}

int as_done_read(struct as_done *done, const char *folder, struct as_error *error)
{
    *done = (struct as_done){0};
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/done.json", folder);
    if (access(path, F_OK) != 0)
        return AS_ERR_IO;
    json_t *json = read_json(folder, "done.json", error);
    if (json == NULL)
        return error->code;
    int exit_code = 0, protocol = 0;
    const char *build, *digest, *message, *strategy;
    json_error_t problem;
    int code = 0;
    if (json_unpack_ex(json, &problem, 0, "{s:i, s:i, s:s, s:s, s:s, s:s}", "protocol", &protocol,
                       "exit", &exit_code, "build_id", &build, "plan_digest", &digest, "message",
                       &message, "strategy", &strategy) != 0) {
        code = as_fail(error, AS_ERR_DATA, "%s: %s", path, problem.text);
    } else {
        done->exit = exit_code;
        snprintf(done->build_id, sizeof done->build_id, "%s", build);
        snprintf(done->plan_digest, sizeof done->plan_digest, "%s", digest);
        snprintf(done->message, sizeof done->message, "%s", message);
        done->strategy = strdup(strategy);
    }
    json_decref(json);
    return code;
}
