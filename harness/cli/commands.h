/* The commands, one file each. `argv[0]` is "assay <command>"; the result is the exit code:
 * 0 yes, 1 a negative answer, 2 wrong use, bad data or a fault, 3 inconclusive, 4 environment
 * invalid. */
#ifndef AS_COMMANDS_H
#define AS_COMMANDS_H

int as_command_doctor(int argc, char **argv);
int as_command_kernels(int argc, char **argv);
int as_command_model(int argc, char **argv);
int as_command_recover(int argc, char **argv);
int as_command_run(int argc, char **argv);
int as_command_show(int argc, char **argv);
int as_command_verify(int argc, char **argv);
int as_command_workload(int argc, char **argv);

#endif
