/* Check stamps: what has passed once on this machine, in this build, need not be checked again.
 *
 * A stamp is a line in "$XDG_CACHE_HOME/assay/checks/<build>-<machine>.txt"; its key is the build
 * id of the file that holds the variant, the device's name, features and threads, the variant and
 * the class of the problem. Files are replaced by rename; where two processes write at once, one's
 * new stamps may be lost, and are earned again. Without a cache folder everything is checked every
 * time. */
#ifndef AS_STAMPS_H
#define AS_STAMPS_H

#include "check/check.h"

/* The class of a problem: op or cover, dtypes, fixed dimensions, tokens and context rounded up to
 * powers of two. What depends on the batch is 0. */
struct assay_problem as_problem_class(const struct assay_problem *problem);

/* All that tells classes apart, in one line. Always NUL-terminated; fits in 1024 bytes. */
void as_problem_class_words(const struct assay_problem *problem, char *words, size_t size);

/* The build id of the running executable in hexadecimal: the linker's, else a checksum of the
 * file. Static storage. */
const char *as_build_id(void);

/* The same of the file, executable or shared object, that `address` was loaded from. */
void as_build_id_of(const void *address, char *id, size_t size);

/* A variant that is about to run a problem. */
struct as_check_need {
    const struct assay_variant *variant;
    struct assay_problem problem;
};

struct as_check_summary {
    size_t needed;  /* different pairs of variant and class */
    size_t passed;  /* of these, stamped ones included */
    size_t stamped; /* passed before, by the cache */
    size_t failed;
    char reason[1024]; /* of the first that failed */
    double seconds;
};

/* Called before each check and once at the end; may be NULL. */
typedef void (*as_check_watch)(void *context, const char *what, size_t done, size_t needed);

/* Checks what has no stamp, stamps what passes. Returns 0 when all could be checked, whether they
 * passed or not. */
int as_check_needed(struct assay_device *device, const struct as_check_need *needs, size_t count,
                    as_check_watch watch, void *watch_context, struct as_check_summary *summary,
                    struct as_error *error);

#endif
