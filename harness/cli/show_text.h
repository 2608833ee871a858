/* What the text of assay show is put together with. */
#ifndef AS_SHOW_TEXT_H
#define AS_SHOW_TEXT_H

#include "cli/show.h"
#include "words.h"

static inline const char *bold(const struct as_show *show)
{
    return show->colour ? "\033[1m" : "";
}

static inline const char *red(const struct as_show *show)
{
    return show->colour ? "\033[31m" : "";
}

static inline const char *plain(const struct as_show *show)
{
    return show->colour ? "\033[0m" : "";
}

static inline void heading(const struct as_show *show, const char *text, const char *note)
{
    fprintf(show->stream, "\n%s%s%s%s%s\n", bold(show), text, plain(show),
            note[0] != '\0' ? ": " : "", note);
}

static inline int print(const struct as_show *show, struct as_columns *columns,
                        struct as_error *error)
{
    return as_columns_print(columns, show->stream, "  ", bold(show), plain(show), error);
}

/* A row of cells that are texts. */
static inline void add_row(struct as_columns *columns, const char *const *cells, size_t count)
{
    for (size_t i = 0; i < count; i++)
        as_columns_add(columns, cells[i]);
}

#define ADD_ROW(columns, ...)                            \
    add_row(columns, (const char *const[]){__VA_ARGS__}, \
            sizeof((const char *const[]){__VA_ARGS__}) / sizeof(const char *))

/* The tables, each with its heading. */
int as_show_throughput(const struct as_show *show, struct as_error *error);
int as_show_latency(const struct as_show *show, struct as_error *error);
int as_show_parts(const struct as_show *show, struct as_error *error);
int as_show_steps(const struct as_show *show, struct as_error *error);
int as_show_time(const struct as_show *show, struct as_error *error);
int as_show_counters(const struct as_show *show, struct as_error *error);

#endif
