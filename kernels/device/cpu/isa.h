/* Instruction sets by function, never by file: a variant's file is compiled for plain x86-64 and
 * only the functions marked here use more. The variant names the feature it needs, and the
 * registry keeps it from processors that lack it. */
#ifndef CPU_ISA_H
#define CPU_ISA_H

#include <immintrin.h>

/* ASSAY_CPU_AVX2. */
#define CPU_AVX2 __attribute__((target("avx2,fma,f16c")))

/* Helpers must be inlined into functions of the same target, or vectors would go through memory. */
#define CPU_AVX2_INLINE static inline __attribute__((always_inline, target("avx2,fma,f16c")))

/* In front of a loop over an array of vectors whose bounds are constants after inlining: left to
 * itself, gcc at times unrolls too late to keep the array in registers. */
#define CPU_UNROLL _Pragma("GCC unroll 16")

#endif
