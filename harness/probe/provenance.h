/* Where a report comes from: machine, build, moment. Written as attributes of the parent's spool. */
#ifndef AS_PROVENANCE_H
#define AS_PROVENANCE_H

#include "spool.h"

/* What this binary was built from; set by the build. */
extern const char as_build_version[]; /* "0.1.0" */
extern const char as_build_commit[];  /* git's, "unknown" outside a checkout */
extern const char as_build_flags[];   /* compiler and its flags */

/* CPU, kernel, governor, load, build, command line, date. Unknown ones are left out. */
void as_provenance_write(struct as_spool *spool, const char *command_line);

/* The first line of a small file without its newline, or false. */
bool as_provenance_read_line(const char *path, char *line, size_t size);

/* This boot's id, or "unknown". */
void as_provenance_boot(char *boot, size_t size);

#endif
