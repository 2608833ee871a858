/* The table of a strategy's fields; private to strategies/. */
#ifndef AS_STRATEGY_FIELDS_H
#define AS_STRATEGY_FIELDS_H

#include <stddef.h>

#include "strategies/strategy.h"

/* A word that a field may hold. Those of the contract that this build does not serve yet carry
 * the reason, so that the message says more than "unknown". */
struct as_word {
    const char *word;
    int32_t value;
    const char *refused; /* NULL where it is served */
};

enum as_field_kind { AS_FIELD_WORD, AS_FIELD_NUMBER, AS_FIELD_TEXT, AS_FIELD_LIST };

struct as_strategy_field {
    const char *name;
    enum as_field_kind kind;
    size_t offset;               /* of the int32_t, or of the text */
    const struct as_word *words; /* WORD: ends with a NULL word */
    int32_t low, high;           /* NUMBER: bounds, both allowed */
    int32_t initial;             /* when the file does not say */
};

extern const struct as_strategy_field as_strategy_fields[];
extern const size_t as_strategy_field_count;

const struct as_strategy_field *as_strategy_field(const char *name);

/* Why this build does not serve the field `name` of the strategy space, or NULL when there is no
 * such field at all. */
const char *as_strategy_unserved(const char *name);

/* Sets a field from its text; `where` begins the message ("naive.yaml line 7"). */
int as_strategy_set(struct as_strategy *strategy, const struct as_strategy_field *field,
                    const char *value, const char *where, struct as_error *error);

/* Sets the variants of an op or cover, separated by commas; an empty list removes the entry. */
int as_strategy_set_kernel(struct as_strategy *strategy, const char *name, const char *variants,
                           int32_t line, const char *where, struct as_error *error);

#endif
