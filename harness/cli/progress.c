#include "cli/progress.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "as_clock.h"

#define WIDTH 24

void as_progress_begin(struct as_progress *progress, bool quiet)
{
    *progress = (struct as_progress){.quiet = quiet, .terminal = isatty(STDERR_FILENO) == 1};
}

static void show_bar(struct as_progress *progress, size_t done, size_t total)
{
    char bar[WIDTH + 1];
    size_t filled = total == 0 ? 0 : done * WIDTH / total;
    for (size_t i = 0; i < WIDTH; i++)
        bar[i] = i < filled ? '#' : '.';
    bar[WIDTH] = '\0';
    double seconds = (double)(as_clock_ns() - progress->started) * 1e-9;
    if (total == 0)
        fprintf(stderr, "\r\033[K%s ...", progress->what);
    else
        fprintf(stderr, "\r\033[K[%s] %zu/%zu requests, %.0f s  %s", bar, done, total, seconds,
                progress->what);
    fflush(stderr);
}

void as_progress_show(void *context, const char *what, size_t done, size_t total)
{
    struct as_progress *progress = context;
    if (progress->quiet)
        return;
    bool fresh = strncmp(progress->what, what, sizeof progress->what - 1) != 0;
    if (fresh) {
        snprintf(progress->what, sizeof progress->what, "%s", what);
        progress->started = as_clock_ns();
    }
    if (progress->terminal)
        show_bar(progress, done, total);
    else if (fresh)
        fprintf(stderr, "%s\n", what);
}

void as_progress_end(struct as_progress *progress)
{
    if (!progress->quiet && progress->terminal && progress->what[0] != '\0')
        fprintf(stderr, "\r\033[K");
}
