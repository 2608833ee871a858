#include "replay/validity.h"

#include <stdio.h>
#include <stdlib.h>

#include "as_memory.h"
#include "statistics.h"

struct load {
    double *lag, *ttft;
    size_t lags, ttfts;
    uint64_t first_scheduled, last_scheduled, first_sent, last_sent;
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void collect(struct load *load, const struct as_row_request *const *row, size_t rows)
{
    load->first_scheduled = load->first_sent = UINT64_MAX;
    for (size_t i = 0; i < rows; i++) {
        const struct as_row_request *r = row[i];
        if (r->sent == AS_UNKNOWN_U64 || r->scheduled == AS_UNKNOWN_U64)
            continue;
        load->lag[load->lags++] = r->sent > r->scheduled ? (double)(r->sent - r->scheduled) : 0;
        load->first_scheduled = least(load->first_scheduled, r->scheduled);
        load->last_scheduled = most(load->last_scheduled, r->scheduled);
        load->first_sent = least(load->first_sent, r->sent);
        load->last_sent = most(load->last_sent, r->sent);
        if (r->first_token != AS_UNKNOWN_U64)
            load->ttft[load->ttfts++] = (double)(r->first_token - r->sent);
    }
}

static bool judge(struct load *load, char *reason, size_t size)
{
    as_sort_f64(load->lag, load->lags);
    as_sort_f64(load->ttft, load->ttfts);
    double lag = as_percentile(load->lag, load->lags, AS_P99);
    double ttft = load->ttfts == 0 ? 0 : as_percentile(load->ttft, load->ttfts, AS_P50);
    double limit = ttft * 0.01 > 1e6 ? ttft * 0.01 : 1e6;
    double wanted = (double)(load->last_scheduled - load->first_scheduled);
    double took = (double)(load->last_sent - load->first_sent);
    if (lag > limit) {
        snprintf(reason, size,
                 "requests were sent late: p99 of the lag is %.2f ms, the limit %.2f ms (1 ms or "
                 "1 %% of the median TTFT); give the engine one thread fewer or lower the load",
                 lag * 1e-6, limit * 1e-6);
        return false;
    }
    if (wanted > 0 && (took > wanted * 1.01 || took < wanted * 0.99)) {
        snprintf(reason, size, "the achieved rate is off by %.1f %%, the limit is 1 %%",
                 (wanted / took - 1) * 100);
        return false;
    }
    return true;
}

bool as_open_loop_valid(const struct as_row_request *const *row, size_t rows, char *reason,
                        size_t reason_size)
{
    struct load load = {.lag = as_calloc(NULL, rows, sizeof(double), "lags"),
                        .ttft = as_calloc(NULL, rows, sizeof(double), "lags")};
    bool valid = true;
    if (load.lag == NULL || load.ttft == NULL) {
        snprintf(reason, reason_size, "out of memory while judging the load");
        valid = false;
    } else {
        collect(&load, row, rows);
        if (load.lags >= 2)
            valid = judge(&load, reason, reason_size);
    }
    free(load.lag);
    free(load.ttft);
    return valid;
}
