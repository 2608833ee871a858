/* The process that replays: one strategy, one repetition, one pass. */
#ifndef AS_CHILD_H
#define AS_CHILD_H

/* Runs the job in `folder`. Progress goes to standard output as lines "progress DONE TOTAL".
 * Returns the exit code of design: 0, or 2 with the reason in done.json. */
int as_child_run(const char *folder);

#endif
