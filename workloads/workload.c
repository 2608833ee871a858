#include "workload.h"

#include <inttypes.h>
#include <string.h>

#include "parse.h"

void as_workload_free(struct as_workload *workload)
{
    if (workload == NULL)
        return;
    as_awl_free_arena(workload);
    free(workload->requests);
    free(workload);
}

int as_workload_limit(struct as_workload *workload, size_t n, struct as_error *error)
{
    if (n == 0)
        return as_fail(error, AS_ERR_USAGE,
                       "cannot limit the workload %s to 0 rows; keep at least 1",
                       workload->header.name);
    if (n >= workload->count)
        return 0;
    for (size_t i = 0; i < n; i++) {
        const struct as_workload_request *request = &workload->requests[i];
        if (request->after == AS_WORKLOAD_NO_REQUEST || request->after < n)
            continue;
        return as_fail(error, AS_ERR_USAGE,
                       "cannot limit the workload %s to its first %zu rows: \"%s\" (line %" PRIu64
                       ") waits for \"%s\" (line %" PRIu64 "), which would be cut; limit to at "
                       "least %zu",
                       workload->header.name, n, request->id, request->line,
                       workload->requests[request->after].id,
                       workload->requests[request->after].line, request->after + 1);
    }
    workload->count = n;
    return 0;
}

static void add_request(struct as_workload_totals *totals,
                        const struct as_workload_request *request)
{
    switch (request->form) {
    case AS_WORKLOAD_TEXT:
        totals->text++;
        totals->prompt_bytes += strlen(request->text);
        break;
    case AS_WORKLOAD_MESSAGES:
        totals->messages++;
        for (size_t i = 0; i < request->message_count; i++)
            totals->prompt_bytes += strlen(request->messages[i].content);
        break;
    case AS_WORKLOAD_TOKENS: totals->tokens++; break;
    case AS_WORKLOAD_LENGTH: totals->length++; break;
    }
    totals->prompt_tokens += request->length;
    totals->output_tokens += request->output.n;
    totals->exact += request->output.exact;
    totals->with_blocks += request->block_count > 0;
    totals->sampled += request->sampling.present;
    totals->cancelled += request->cancel_ns != AS_WORKLOAD_NO_TIME;
}

void as_workload_sum(const struct as_workload *workload, struct as_workload_totals *totals)
{
    *totals = (struct as_workload_totals){.first_ns = AS_WORKLOAD_NO_TIME,
                                          .last_ns = AS_WORKLOAD_NO_TIME};
    for (size_t i = 0; i < workload->count; i++) {
        const struct as_workload_request *request = &workload->requests[i];
        add_request(totals, request);
        if (request->at_ns == AS_WORKLOAD_NO_TIME) {
            totals->chained++;
            continue;
        }
        if (totals->timed == 0 || request->at_ns < totals->first_ns)
            totals->first_ns = request->at_ns;
        if (totals->timed == 0 || request->at_ns > totals->last_ns)
            totals->last_ns = request->at_ns;
        totals->timed++;
    }
}
