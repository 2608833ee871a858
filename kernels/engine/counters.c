#include "engine/counters.h"

const struct as_counter_info as_counter_info[] = {
#define AS_COUNTER_ROW(name, unit, meaning) \
    {#name, unit, meaning, offsetof(struct as_counters, name)},
    AS_COUNTER_LIST(AS_COUNTER_ROW)
#undef AS_COUNTER_ROW
};

const size_t as_counter_count = sizeof as_counter_info / sizeof as_counter_info[0];
