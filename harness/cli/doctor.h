/* What the doctor found, for the two files that look and the one that prints. */
#ifndef AS_DOCTOR_H
#define AS_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>

enum as_finding_state {
    AS_FOUND,   /* here */
    AS_MISSING, /* not here; something cannot be had */
    AS_DISTURBS /* here, and measurements suffer */
};

struct as_finding {
    const char *topic; /* "cpu", "memory", ... */
    char name[32];
    enum as_finding_state state;
    char text[400];   /* what was found, in words */
    char advice[240]; /* what to do; "" where there is nothing */
};

#define AS_MOST_FINDINGS 64

struct as_findings {
    struct as_finding finding[AS_MOST_FINDINGS];
    size_t count;
};

/* Adds a finding and returns it, for its advice; the last one is overwritten when full. */
struct as_finding *as_finding_add(struct as_findings *all, const char *topic, const char *name,
                                  enum as_finding_state state, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

void as_doctor_machine(struct as_findings *all);   /* doctor_machine.c: CPU, memory, clock, load */
void as_doctor_libraries(struct as_findings *all); /* doctor_libraries.c: GPU, libraries, disk */

#endif
