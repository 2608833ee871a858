#define _GNU_SOURCE
#include "check/isolate.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "as_memory.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/team.h"

/* Where the result lies in the shared memory. */
#define RESULT_AT as_align_up(sizeof(struct as_isolated), 64)

void as_isolated_doing(struct as_isolated *isolated, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(isolated->doing, sizeof isolated->doing, format, arguments);
    va_end(arguments);
}

static void nothing(void *context, const struct assay_exec *exec)
{
    (void)context;
    (void)exec;
}

void as_isolate_rest(struct assay_device *device)
{
    if (device->backend == ASSAY_CPU)
        as_team_run(as_cpu_device_team(device), nothing, NULL);
}

unsigned as_isolated_seconds(unsigned usual)
{
    const char *text = getenv("ASSAY_CHECK_SECONDS");
    long seconds = text != NULL ? strtol(text, NULL, 10) : 0;
    return seconds > 0 && seconds < 1000000 ? (unsigned)seconds : usual;
}

bool as_isolated_inline(void)
{
    return getenv("ASSAY_CHECK_INLINE") != NULL;
}

void as_isolate_again(const struct as_isolated *isolated)
{
    if (isolated->forked)
        alarm(isolated->seconds);
}

static void describe_death(int status, const struct as_isolated *isolated, unsigned seconds,
                           char *how, size_t size)
{
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
        snprintf(how, size,
                 "did not end within %u s (does every thread reach every barrier?) while %s",
                 seconds, isolated->doing);
    else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
        snprintf(how, size, "was killed (out of memory?) while %s", isolated->doing);
    else if (WIFSIGNALED(status))
        snprintf(how, size, "died of SIG%s (memory outside its operands was touched?) while %s",
                 sigabbrev_np(WTERMSIG(status)), isolated->doing);
    else
        snprintf(how, size, "ended the process with code %d while %s", WEXITSTATUS(status),
                 isolated->doing);
}

/* In the child: a crash is the parent's to report, and nobody outlives the parent. */
static void settle(unsigned seconds)
{
    static const int deadly[] = {SIGSEGV, SIGBUS,  SIGFPE, SIGILL,
                                 SIGABRT, SIGALRM, SIGINT, SIGTERM};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_DUMPABLE, 0);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (size_t i = 0; i < sizeof deadly / sizeof deadly[0]; i++)
        signal(deadly[i], SIG_DFL);
    alarm(seconds);
}

static void work_here(struct as_isolation *isolation,
                      int (*work)(void *context, struct as_isolated *isolated, void *result),
                      void *context, struct as_error *error)
{
    struct as_isolated here = {0};
    isolation->code = work(context, &here, isolation->result);
    if (isolation->code != 0)
        as_fail(error, isolation->code, "%s", here.error.message);
}

void as_isolate_start(struct as_isolation *isolation,
                      int (*work)(void *context, struct as_isolated *isolated, void *result),
                      void *context, void *result, size_t result_size, unsigned seconds,
                      bool inline_only, struct as_error *error)
{
    *isolation = (struct as_isolation){.child = -1,
                                       .bytes = RESULT_AT + result_size,
                                       .result = result,
                                       .result_size = result_size,
                                       .seconds = seconds};
    void *shared = inline_only ? MAP_FAILED
                               : mmap(NULL, isolation->bytes, PROT_READ | PROT_WRITE,
                                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared != MAP_FAILED) {
        isolation->shared = shared;
        memcpy((char *)shared + RESULT_AT, result, result_size);
        isolation->child = fork();
    }
    if (isolation->child == 0) {
        struct as_isolated *isolated = shared;
        settle(seconds);
        isolated->forked = true;
        isolated->seconds = seconds;
        isolated->code = work(context, isolated, (char *)shared + RESULT_AT);
        isolated->finished = true;
        _exit(0);
    }
    if (isolation->child < 0)
        work_here(isolation, work, context, error);
}

int as_isolate_end(struct as_isolation *isolation, bool *died, char *how, size_t how_size,
                   struct as_error *error)
{
    const struct as_isolated *isolated = isolation->shared;
    int status = 0, code = isolation->code;
    *died = false;
    if (isolation->child > 0) {
        while (waitpid(isolation->child, &status, 0) < 0 && errno == EINTR)
            continue;
        memcpy(isolation->result, (char *)isolation->shared + RESULT_AT, isolation->result_size);
        code = isolated->finished ? isolated->code : 0;
        *died = !isolated->finished;
        if (*died && WIFSIGNALED(status) &&
            (WTERMSIG(status) == SIGINT || WTERMSIG(status) == SIGTERM)) {
            *died = false; /* it was asked to stop, as was the whole of assay */
            code = as_fail(error, AS_ERR_IO, "interrupted while %s", isolated->doing);
        }
    }
    if (*died)
        describe_death(status, isolated, isolation->seconds, how, how_size);
    if (isolation->child > 0 && code != 0 && isolated->finished)
        as_fail(error, code, "%s", isolated->error.message);
    if (isolation->shared != NULL)
        munmap(isolation->shared, isolation->bytes);
    *isolation = (struct as_isolation){.child = -1};
    return code;
}
