/* Offers the nearest name for an option that does not exist, which argp itself does not. */
#ifndef AS_OPTION_NAMES_H
#define AS_OPTION_NAMES_H

#include <argp.h>
#include <stdbool.h>

/* Whether every long option in argv begins the name of an accepted one (argp completes names). If
 * not, the first that does not is named on standard error, with the nearest that exists. */
bool as_option_names_known(int argc, char **argv, const struct argp_option *accepted);

#endif
