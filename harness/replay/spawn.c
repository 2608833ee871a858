#define _GNU_SOURCE
#include "replay/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "as_memory.h"

extern char **environ;

/* Vendor libraries must not bring teams of their own: assay's threads each call them for a slice. */
static const char *const fixed[] = {"OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1"};

static bool is_fixed(const char *entry)
{
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) {
        size_t name = strcspn(fixed[i], "=") + 1;
        if (strncmp(entry, fixed[i], name) == 0)
            return true;
    }
    return false;
}

static char **child_environment(struct as_error *error)
{
    size_t count = 0, kept = 0;
    while (environ[count] != NULL)
        count++;
    char **list = as_calloc(error, count + 3, sizeof *list, "the child's environment");
    if (list == NULL)
        return NULL;
    for (size_t i = 0; i < count; i++)
        if (!is_fixed(environ[i]))
            list[kept++] = environ[i];
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++)
        list[kept++] = (char *)(uintptr_t)fixed[i];
    return list;
}

static int start(const char *program, const char *folder, int output, pid_t *child,
                 struct as_error *error)
{
    char *arguments[] = {(char *)"assay", (char *)"child", (char *)(uintptr_t)folder, NULL};
    char **environment = child_environment(error);
    if (environment == NULL)
        return AS_ERR_MEMORY;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    int failed = posix_spawn(child, program, &actions, NULL, arguments, environment);
    posix_spawn_file_actions_destroy(&actions);
    free(environment);
    if (failed == 0)
        return 0;
    errno = failed;
    return as_fail_errno(error, AS_ERR_IO, "cannot start %s child %s", program, folder);
}

/* Reads what is there and hands on whole lines; false at the end of the stream. */
static bool follow(int input, char *line, size_t size, size_t *used,
                   void (*progress)(void *context, size_t done, size_t total), void *context)
{
    ssize_t got = read(input, line + *used, size - 1 - *used);
    if (got < 0)
        return errno == EINTR || errno == EAGAIN;
    if (got == 0)
        return false;
    *used += (size_t)got;
    line[*used] = '\0';
    for (char *end; (end = strchr(line, '\n')) != NULL;) {
        size_t done, total;
        if (progress != NULL && sscanf(line, "progress %zu %zu", &done, &total) == 2)
            progress(context, done, total);
        *used -= (size_t)(end + 1 - line);
        memmove(line, end + 1, *used + 1);
    }
    if (*used == size - 1)
        *used = 0; /* a line longer than any of ours is none of ours */
    return true;
}

int as_spawn_child(const char *program, const char *folder,
                   void (*progress)(void *context, size_t done, size_t total), void *context,
                   const volatile sig_atomic_t *interrupted, struct as_child_end *end,
                   struct as_error *error)
{
    int stream[2];
    pid_t child;
    if (pipe2(stream, O_CLOEXEC) != 0)
        return as_fail_errno(error, AS_ERR_IO, "cannot open a pipe to a child");
    int code = start(program, folder, stream[1], &child, error);
    close(stream[1]);
    if (code != 0) {
        close(stream[0]);
        return code;
    }
    char line[256];
    size_t used = 0;
    bool open = true, killed = false;
    while (open) {
        struct pollfd ready = {.fd = stream[0], .events = POLLIN};
        int events = poll(&ready, 1, 200);
        if (*interrupted && !killed) {
            kill(child, SIGKILL);
            killed = true;
        }
        if (events > 0)
            open = follow(stream[0], line, sizeof line, &used, progress, context);
    }
    close(stream[0]);
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            return as_fail_errno(error, AS_ERR_IO, "cannot wait for a child");
    *end = (struct as_child_end){.exit = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                                 .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0};
    return 0;
}
