#include "cli/option_names.h"

#include <stdio.h>
#include <string.h>

#include "as_text.h"

#define MOST_OPTIONS 64

/* Whether the word after `word` is the value of the option that `word` is. */
static bool takes_next(const char *word, const struct argp_option *accepted)
{
    for (const struct argp_option *o = accepted; o->name != NULL; o++) {
        bool long_name = strncmp(word, "--", 2) == 0 && strcmp(word + 2, o->name) == 0;
        bool short_name = word[0] == '-' && word[1] == o->key && word[2] == '\0';
        if (o->arg != NULL && (long_name || short_name))
            return true;
    }
    return false;
}

bool as_option_names_known(int argc, char **argv, const struct argp_option *accepted)
{
    const char *names[MOST_OPTIONS] = {"help", "usage"};
    size_t count = 2;
    for (const struct argp_option *o = accepted; o->name != NULL && count < MOST_OPTIONS; o++)
        names[count++] = o->name;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        char wanted[64];
        if (takes_next(argv[i], accepted)) {
            i++;
            continue;
        }
        if (strncmp(argv[i], "--", 2) != 0)
            continue;
        snprintf(wanted, sizeof wanted, "%.*s", (int)strcspn(argv[i] + 2, "="), argv[i] + 2);
        bool known = false;
        for (size_t j = 0; j < count; j++)
            known |= strncmp(names[j], wanted, strlen(wanted)) == 0;
        if (known)
            continue;
        const char *nearest = as_nearest(wanted, names, count);
        fprintf(stderr, "%s: there is no option --%s%s%s%s; --help lists them\n", argv[0], wanted,
                nearest != NULL ? " (did you mean --" : "", nearest != NULL ? nearest : "",
                nearest != NULL ? "?)" : "");
        return false;
    }
    return true;
}
