/* A fixture model replayed: requests in, texts out, as a child of `run` would do it. The texts are
 * read from the recorded step rows, not from memory. */
#ifndef FIXTURE_RUN_H
#define FIXTURE_RUN_H

#include <criterion/criterion.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../fixtures/fixtures.c"
#include "../reports/helpers.h"
#include "preprocess/from_model.h"
#include "replay/session.h"

#define MAX_REQUESTS 8

struct request {
    const char *prompt;
    int output;
    double temperature;
};

struct answer {
    struct as_text text;
    uint32_t rows, tokens, preemptions;
    uint64_t requeue_ns;
    uint8_t outcome, finish;
};

struct replayed {
    struct answer answer[MAX_REQUESTS];
    struct as_session_summary summary;
    uint32_t steps, most_sequences, most_prefill; /* largest of a step */
};

/* A string of `times` bytes `byte` behind `prompt`. */
static UNUSED void repeat(char *prompt, char byte, size_t times)
{
    size_t length = strlen(prompt);
    memset(prompt + length, byte, times);
    prompt[length + times] = '\0';
}

/* The path of fixture `name`, written into the scratch folder. */
static UNUSED const char *write_named(const char *name)
{
    static char path[400];
    struct as_fixture fixture;
    struct as_error error = {0};
    snprintf(path, sizeof path, "%s/model.gguf", scratch);
    cr_assert(as_fixture_named(&fixture, name));
    cr_assert_eq(as_fixture_write(&fixture, path, &error), 0, "%s", error.message);
    return path;
}

static struct as_workload *workload_of(const struct request *request, size_t requests)
{
    struct as_text text = {0};
    struct as_error error = {0};
    struct as_workload *workload;
    as_text_addf(&text, "{\"assay_workload\": 1}\n");
    for (size_t i = 0; i < requests; i++) {
        char id[24];
        snprintf(id, sizeof id, "r%zu", i);
        json_t *row = json_pack("{s:s, s:i, s:s, s:{s:i}}", "id", id, "at_ns", 0, "text",
                                request[i].prompt, "out", "n", request[i].output);
        if (request[i].temperature > 0)
            json_object_set_new(
                row, "sampling",
                json_pack("{s:f, s:i}", "temperature", request[i].temperature, "seed", 7));
        char *line = json_dumps(row, 0);
        as_text_addf(&text, "%s\n", line);
        free(line);
        json_decref(row);
    }
    int code = as_workload_parse(&workload, text.data, text.length, "requests", &error);
    cr_assert_eq(code, 0, "%s", error.message);
    as_text_free(&text);
    return workload;
}

static void take_record(const struct as_record *record, struct as_decoder *decoder,
                        struct replayed *replayed)
{
    struct as_error error = {0};
    if (record->kind != AS_RECORD_ROW)
        return;
    if (record->table == AS_TABLE_STEPS) {
        const struct as_row_step *row = record->row;
        replayed->steps++;
        if (row->sequences > replayed->most_sequences)
            replayed->most_sequences = row->sequences;
        if (row->prefill_tokens > replayed->most_prefill)
            replayed->most_prefill = row->prefill_tokens;
    } else if (record->table == AS_TABLE_STEP_ROWS) {
        const struct as_row_step_row *row = record->row;
        struct answer *answer = &replayed->answer[row->request];
        answer->rows++;
        if (row->token == AS_UNKNOWN_U32)
            return;
        answer->tokens++;
        MUST(as_decoder_push(&decoder[row->request], (int32_t)row->token, &answer->text, &error));
    } else if (record->table == AS_TABLE_REQUESTS) {
        const struct as_row_request *row = record->row;
        replayed->answer[row->request].outcome = row->outcome;
        replayed->answer[row->request].finish = row->finish;
        replayed->answer[row->request].preemptions = row->preemptions;
        replayed->answer[row->request].requeue_ns = row->requeue_ns;
    }
}

static void read_back(const struct as_tokenizer *tokenizer, size_t requests,
                      struct replayed *replayed)
{
    struct as_error error = {0};
    struct as_decoder decoder[MAX_REQUESTS];
    struct as_record record;
    int code;
    for (size_t i = 0; i < MAX_REQUESTS; i++) {
        as_decoder_init(&decoder[i], tokenizer, false);
        as_text_add(&replayed->answer[i].text, "", 0);
    }
    struct as_spool_reader *reader = as_spool_reader_open(in_scratch(AS_SPOOL_ENGINE), &error);
    cr_assert_not_null(reader, "%s", error.message);
    while ((code = as_spool_next(reader, &record, &error)) == 1)
        take_record(&record, decoder, replayed);
    cr_assert_eq(code, 0, "%s", error.message);
    as_spool_reader_close(reader);
    for (size_t i = 0; i < requests; i++)
        MUST(as_decoder_flush(&decoder[i], &replayed->answer[i].text, &error));
}

/* Replays `requests` (at most MAX_REQUESTS), all there at the start. `set` ends in NULL. */
static UNUSED void replay(const char *model, const char *strategy, const char *const *set,
                          const struct request *request, size_t requests, struct replayed *replayed)
{
    struct as_error error = {0};
    struct as_bench bench;
    struct as_tokenizer *tokenizer;
    struct as_recorder *recorder;
    size_t sets = 0;
    while (set[sets] != NULL)
        sets++;
    *replayed = (struct replayed){0};
    const struct as_bench_options options = {
        .model = model, .strategy = strategy, .set = set, .sets = sets};
    const struct as_recorder_options recording = {.folder = scratch, .threads = 1};
    MUST(as_bench_open(&options, &bench, &error));
    MUST(as_tokenizer_from_model(bench.model, &tokenizer, &error));
    MUST(as_recorder_create(&recording, &recorder, &error));
    struct as_workload *workload = workload_of(request, requests);
    const struct as_session_options session = {.bench = &bench,
                                               .workload = workload,
                                               .tokenizer = tokenizer,
                                               .recorder = recorder,
                                               .mode = AS_MODE_OFFLINE};
    MUST(as_session_run(&session, &replayed->summary, &error));
    MUST(as_recorder_close(recorder, &error));
    read_back(tokenizer, requests, replayed);
    as_workload_free(workload);
    as_tokenizer_free(tokenizer);
    as_bench_close(&bench);
}

static UNUSED void drop_texts(struct replayed *replayed)
{
    for (size_t i = 0; i < MAX_REQUESTS; i++)
        as_text_free(&replayed->answer[i].text);
}

/* That request `i` was answered with `text`. */
static UNUSED void expect_text(const struct replayed *replayed, size_t i, const char *text,
                               const char *what)
{
    const struct answer *answer = &replayed->answer[i];
    cr_assert_eq(answer->outcome, AS_REPORT_OUTCOME_DONE, "%s: request %zu: %s", what, i,
                 replayed->summary.first_failure);
    cr_assert_str_eq(answer->text.data, text, "%s: request %zu gave \"%s\", wanted \"%s\"", what, i,
                     answer->text.data, text);
}

#endif
