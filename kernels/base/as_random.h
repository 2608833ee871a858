/* Counter-based random numbers: the value depends on (seed, stream, counter) alone, so any thread
 * may draw any element in any order. The mixer is splitmix64's finaliser (Steele et al., 2014)
 * applied twice, which passes where one round leaves visible structure between streams. */
#ifndef AS_RANDOM_H
#define AS_RANDOM_H

#include <math.h>
#include <stdint.h>

static inline uint64_t as_mix64(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline uint64_t as_random_u64(uint64_t seed, uint64_t stream, uint64_t counter)
{
    return as_mix64(as_mix64(as_mix64(seed) ^ stream) ^ counter);
}

/* Uniform in [0, 1), 53 bits. */
static inline double as_random_unit(uint64_t seed, uint64_t stream, uint64_t counter)
{
    return (double)(as_random_u64(seed, stream, counter) >> 11) * 0x1.0p-53;
}

/* Standard normal by Box and Muller; one value a counter. */
static inline double as_random_normal(uint64_t seed, uint64_t stream, uint64_t counter)
{
    double u = as_random_unit(seed, stream, 2 * counter);
    double v = as_random_unit(seed, stream, 2 * counter + 1);
    return sqrt(-2.0 * log(1.0 - u)) * cos(6.283185307179586 * v);
}

#endif
