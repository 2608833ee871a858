#include "check/stamps.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "as_clock.h"
#include "as_file.h"
#include "as_hash.h"
#include "as_memory.h"
#include "as_text.h"
#include "check/checker.h"
#include "device/cpu/cpu_device.h"

/* A file of stamps is some hundred lines of 200 bytes; anything near this is not one. */
#define MOST_BYTES (4u << 20)

#define HEADER "assay check stamps 1\n"

#define OLD_SECONDS (30 * 24 * 3600)

/* Time for one case, which takes milliseconds. */
#define CHECK_SECONDS 60

/* Processes that check at once, at most. */
#define MOST_WORKERS 8

/* ---- classes ------------------------------------------------------------------------------ */

static int64_t power_of_two(int64_t size)
{
    int64_t power = 1;
    while (power < size && power < ((int64_t)1 << 62))
        power *= 2;
    return size <= 0 ? 0 : power;
}

struct assay_problem as_problem_class(const struct assay_problem *problem)
{
    struct assay_problem class = *problem;
    for (int32_t i = 0; i < class.nodes; i++) {
        struct assay_shape *shape = &class.node[i];
        shape->tokens = power_of_two(shape->tokens);
        shape->context = power_of_two(shape->context);
        shape->sequences = shape->kv_tokens = shape->kv_rows = 0;
    }
    return class;
}

void as_problem_class_words(const struct assay_problem *problem, char *words, size_t size)
{
    struct as_text text = {0};
    as_text_addf(&text, "%s", as_problem_name(problem));
    for (int32_t i = 0; i < problem->nodes; i++) {
        const struct assay_shape *s = &problem->node[i];
        as_text_addf(&text, "; %s %s/%s/%s t<=%" PRId64 " n=%" PRId64 " k=%" PRId64,
                     assay_op(s->op)->name, assay_dtype(s->weights)->name,
                     assay_dtype(s->activations)->name, assay_dtype(s->kv)->name,
                     power_of_two(s->tokens), s->n, s->k);
        if (s->heads > 0)
            as_text_addf(&text, " h=%d/%dx%d c<=%" PRId64 " b=%d r=%d p=%d m=%d", (int)s->heads,
                         (int)s->kv_heads, (int)s->head_dim, power_of_two(s->context),
                         (int)s->block_size, (int)s->rotary, (int)s->pairing, (int)s->causal);
        as_text_addf(&text, " %a %a %a", (double)s->epsilon, (double)s->theta, (double)s->scale);
    }
    snprintf(words, size, "%s", text.data != NULL ? text.data : "");
    as_text_free(&text);
}

/* ---- the file ----------------------------------------------------------------------------- */

struct stamps {
    char path[1024]; /* "" without a cache folder */
    char machine[256];
    char *text; /* the file as read, "" where there is none */
};

static void read_stamps(struct stamps *stamps)
{
    size_t size;
    free(stamps->text);
    stamps->text = NULL;
    if (stamps->path[0] == '\0' ||
        as_read_file(&stamps->text, &size, stamps->path, MOST_BYTES, NULL) != 0)
        return;
    /* A file cut short or written by something else counts for nothing. */
    if (strncmp(stamps->text, HEADER, strlen(HEADER)) != 0 || strlen(stamps->text) != size ||
        size == 0 || stamps->text[size - 1] != '\n') {
        free(stamps->text);
        stamps->text = NULL;
    }
}

static void open_stamps(struct stamps *stamps, const struct assay_device *device)
{
    char name[128];
    *stamps = (struct stamps){0};
    snprintf(stamps->machine, sizeof stamps->machine, "%s, features %x, %d threads", device->name,
             device->features, (int)device->threads);
    snprintf(name, sizeof name, "checks/%.16s-%016" PRIx64 ".txt", as_build_id(),
             as_hash64(stamps->machine, strlen(stamps->machine), 0));
    if (as_cache_path(stamps->path, sizeof stamps->path, name, NULL) != 0)
        stamps->path[0] = '\0';
    read_stamps(stamps);
}

/* The build id behind the last variant asked for: needs come in long runs of one variant. */
struct last_id {
    const struct assay_variant *variant;
    char id[80];
};

/* The line's first word: a checksum over all that a stamp depends on. */
static void key_of(const struct stamps *stamps, const struct as_check_need *need,
                   struct last_id *last, char key[17])
{
    char words[1024];
    if (last->variant != need->variant)
        as_build_id_of(need->variant, last->id, sizeof last->id);
    last->variant = need->variant;
    as_problem_class_words(&need->problem, words, sizeof words);
    uint64_t hash = as_hash64(last->id, strlen(last->id), 1);
    hash = as_hash64(stamps->machine, strlen(stamps->machine), hash);
    hash = as_hash64(need->variant->name, strlen(need->variant->name), hash);
    hash = as_hash64(words, strlen(words), hash);
    snprintf(key, 17, "%016" PRIx64, hash);
}

static bool stamped(const struct stamps *stamps, const char key[17])
{
    for (const char *line = stamps->text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, 16) == 0 && line[16] == ' ')
            return true;
    }
    return false;
}

/* ---- checking ----------------------------------------------------------------------------- */

struct item {
    const struct as_check_need *need;
    char key[17];
    bool stamped;
};

struct job {
    struct assay_device *device;
    struct item *item;
    size_t items;
    as_check_watch watch;
    void *watch_context;
};

/* Takes every `step`th item from `next` on; `next` and the results live in memory that the child
 * shares, `item` i has result i / step. */
struct progress {
    size_t next;
    struct as_check_result result[];
};

struct worker {
    const struct job *job;
    size_t first, step;
    struct progress *progress;
    size_t bytes;
    struct as_isolation isolation;
};

static void report(const struct job *job, size_t done)
{
    char words[400] = "";
    if (job->watch == NULL)
        return;
    if (done < job->items) {
        snprintf(words, sizeof words, "%s on ", job->item[done].need->variant->name);
        size_t length = strlen(words);
        as_problem_words(&job->item[done].need->problem, words + length, sizeof words - length);
    }
    job->watch(job->watch_context, words, done, job->items);
}

static int check_items(void *context, struct as_isolated *isolated, void *shared)
{
    const struct worker *worker = context;
    const struct job *job = worker->job;
    struct progress *progress = shared;
    struct as_checker checker;
    int code = 0;
    as_checker_open(&checker, job->device, isolated);
    for (; code == 0 && progress->next < job->items; progress->next += worker->step) {
        const struct item *item = &job->item[progress->next];
        struct as_check_result *result = &progress->result[progress->next / worker->step];
        if (item->stamped)
            continue;
        if (worker->first == 0)
            report(job, progress->next);
        as_check_begin(result);
        code = as_checker_class(&checker, item->need->variant, &item->need->problem, result);
        as_check_end(result);
    }
    as_checker_close(&checker);
    return code;
}

static void start_worker(struct worker *worker, struct as_error *error)
{
    bool stay = worker->job->device->backend != ASSAY_CPU || as_isolated_inline();
    as_isolate_start(&worker->isolation, check_items, worker, worker->progress, worker->bytes,
                     as_isolated_seconds(CHECK_SECONDS), stay, error);
}

/* Waits, and starts a new child after each that died, behind the check that killed it. */
static int finish_worker(struct worker *worker, struct as_error *error)
{
    for (;;) {
        bool died;
        char how[600];
        int code = as_isolate_end(&worker->isolation, &died, how, sizeof how, error);
        if (!died || worker->progress->next >= worker->job->items)
            return code;
        struct as_check_result *result =
            &worker->progress->result[worker->progress->next / worker->step];
        result->passed = false;
        snprintf(result->reason, sizeof result->reason, "%s %s",
                 worker->job->item[worker->progress->next].need->variant->name, how);
        worker->progress->next += worker->step;
        start_worker(worker, error);
    }
}

/* Truth is computed by one thread: several workers at once keep the machine busy. */
static int check_all(const struct job *job, struct as_check_result *results, struct as_error *error)
{
    struct worker worker[MOST_WORKERS] = {0};
    size_t workers = job->device->backend != ASSAY_CPU ? 1 : (size_t)as_cpu_count();
    workers = workers > MOST_WORKERS ? MOST_WORKERS : workers;
    int code = 0;
    as_isolate_rest(job->device);
    for (size_t w = 0; w < workers; w++) {
        size_t bytes =
            sizeof(struct progress) + (job->items / workers + 1) * sizeof(struct as_check_result);
        worker[w] = (struct worker){.job = job, .first = w, .step = workers, .bytes = bytes};
        worker[w].progress = as_calloc(error, bytes, 1, "the checks' results");
        if (worker[w].progress == NULL) {
            code = AS_ERR_MEMORY;
            break;
        }
        worker[w].progress->next = w;
        start_worker(&worker[w], error);
    }
    for (size_t w = 0; w < workers && worker[w].progress != NULL; w++) {
        int failed = finish_worker(&worker[w], error);
        code = code != 0 ? code : failed;
        for (size_t i = w; i < job->items; i += workers)
            results[i] = worker[w].progress->result[i / workers];
        free(worker[w].progress);
    }
    report(job, job->items);
    return code;
}

/* Every build leaves a file of its own: those that no run has added to for a month go. */
static void remove_old(const char *path)
{
    char folder[1024], old[1400];
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    DIR *entries = opendir(folder);
    time_t now = time(NULL);
    for (struct dirent *entry; entries != NULL && (entry = readdir(entries)) != NULL;) {
        struct stat info;
        size_t length = strlen(entry->d_name);
        if (length < 4 || strcmp(entry->d_name + length - 4, ".txt") != 0)
            continue;
        snprintf(old, sizeof old, "%s/%s", folder, entry->d_name);
        if (stat(old, &info) == 0 && now - info.st_mtime > OLD_SECONDS)
            unlink(old);
    }
    if (entries != NULL)
        closedir(entries);
}

/* Adds the new stamps to what the file holds by now. A cache that cannot be written is not an
 * error: it only makes the next run slower. */
static void store(struct stamps *stamps, const struct job *job,
                  const struct as_check_result *results)
{
    struct as_text text = {0};
    bool news = false;
    read_stamps(stamps);
    as_text_addf(&text, "%s", stamps->text != NULL ? stamps->text : HEADER);
    for (size_t i = 0; i < job->items; i++) {
        const struct item *item = &job->item[i];
        char words[1024];
        if (item->stamped || !results[i].passed || stamped(stamps, item->key))
            continue;
        as_problem_class_words(&item->need->problem, words, sizeof words);
        as_text_addf(&text, "%s %s | %s | %.3g of the allowed error, RMS %.3g ulp\n", item->key,
                     item->need->variant->name, words, results[i].ratio, results[i].rms_ulp);
        news = true;
    }
    if (news && !text.failed && stamps->path[0] != '\0') {
        if (stamps->text == NULL)
            remove_old(stamps->path);
        as_write_file(stamps->path, text.data, text.length, NULL);
    }
    as_text_free(&text);
}

/* Different needs, by key. */
static size_t collect(const struct stamps *stamps, const struct as_check_need *needs, size_t count,
                      struct item *item)
{
    size_t items = 0;
    struct last_id last = {0};
    for (size_t i = 0; i < count; i++) {
        char key[17];
        key_of(stamps, &needs[i], &last, key);
        size_t j = 0;
        while (j < items && strcmp(item[j].key, key) != 0)
            j++;
        if (j < items)
            continue;
        item[items].need = &needs[i];
        memcpy(item[items].key, key, sizeof key);
        item[items].stamped = stamped(stamps, key);
        items++;
    }
    return items;
}

int as_check_needed(struct assay_device *device, const struct as_check_need *needs, size_t count,
                    as_check_watch watch, void *watch_context, struct as_check_summary *summary,
                    struct as_error *error)
{
    uint64_t start = as_clock_ns();
    struct stamps stamps;
    struct job job = {.device = device, .watch = watch, .watch_context = watch_context};
    *summary = (struct as_check_summary){0};
    job.item = as_calloc(error, count, sizeof job.item[0], "the checks");
    if (job.item == NULL)
        return AS_ERR_MEMORY;
    open_stamps(&stamps, device);
    job.items = collect(&stamps, needs, count, job.item);
    struct as_check_result *results =
        as_calloc(error, job.items, sizeof *results, "the checks' results");
    int code = results == NULL ? AS_ERR_MEMORY : 0;
    summary->needed = job.items;
    for (size_t i = 0; i < job.items; i++)
        summary->stamped += job.item[i].stamped;
    if (code == 0 && summary->stamped < summary->needed) {
        code = check_all(&job, results, error);
        store(&stamps, &job, results);
    }
    for (size_t i = 0; code == 0 && i < job.items; i++) {
        bool passed = job.item[i].stamped || results[i].passed;
        summary->passed += passed;
        if (!passed && summary->failed++ == 0)
            memcpy(summary->reason, results[i].reason, sizeof summary->reason);
    }
    summary->seconds = (double)(as_clock_ns() - start) * 1e-9;
    free(results);
    free(job.item);
    free(stamps.text);
    return code;
}
