/* Shared by the tests of this room. */
#ifndef TEST_WORKLOADS_HELPERS_H
#define TEST_WORKLOADS_HELPERS_H

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "workload.h"

#define HEADER "{\"assay_workload\":1}\n"

/* A row with the given text behind its id and arrival. */
#define ROW(rest) "{\"id\":\"a\",\"at_ns\":1," rest "}\n"

/* Parses text that must be good; the caller frees. */
static inline struct as_workload *must_parse(const char *text)
{
    struct as_error error = {0};
    struct as_workload *workload = NULL;
    int code = as_workload_parse(&workload, text, strlen(text), "test.jsonl", &error);
    cr_assert(eq(int, code, 0), "%s", error.message);
    cr_assert(workload != NULL);
    return workload;
}

/* Parses bytes that must be refused with AS_ERR_DATA and a message that names the file. */
static inline void must_refuse(const char *bytes, size_t size, struct as_error *error)
{
    struct as_workload *workload = NULL;
    *error = (struct as_error){0};
    int code = as_workload_parse(&workload, bytes, size, "test.jsonl", error);
    cr_assert(eq(int, code, AS_ERR_DATA), "got %d: %.*s", code, (int)size, bytes);
    cr_assert(workload == NULL);
    cr_assert(eq(int, error->code, code));
    cr_assert(strncmp(error->message, "test.jsonl: line ", 17) == 0, "%s", error->message);
}

/* Messages are printed on terminals: no control characters, whatever the file held. */
static inline bool is_tame(const char *message)
{
    for (const unsigned char *byte = (const unsigned char *)message; *byte != '\0'; byte++)
        if (*byte < 0x20 || *byte == 0x7f)
            return false;
    return true;
}

#endif
