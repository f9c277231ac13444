/* aotc_fixed.h: integers times a fraction, by a multiplier of 32 bits and a shift, without floats.
 * Shifts of negative numbers take copies of the sign, as gcc and clang do. */
#ifndef AOTC_FIXED_H
#define AOTC_FIXED_H

#include "aotc_compiler.h"

#include <stdint.h>

#if -1 >> 1 != -1
#error "this compiler shifts negative numbers in a way of its own"
#endif

#if defined(__GNUC__)
#define AOTC_FIXED static inline AOTC_MAY_BE_UNUSED __attribute__((always_inline))
#else
#define AOTC_FIXED static inline
#endif

/* The upper 32 bits of the product of two numbers. */
AOTC_FIXED int32_t aotc_high(int32_t x, int32_t y)
{
#if defined(__thumb__) && !defined(__thumb2__)
    /* no instruction has them: by halves of 16 bits, in 32 */
    const uint32_t a = (uint32_t)x & 0xffffu, b = (uint32_t)y & 0xffffu;
    const int32_t c = x >> 16, d = y >> 16;
    const int32_t low = c * (int32_t)b + (int32_t)(a * b >> 16);
    const int32_t middle = (int32_t)a * d + (low & 0xffff);
    return c * d + (low >> 16) + (middle >> 16);
#else
    return (int32_t)((int64_t)x * y >> 32);
#endif
}

/* (x * multiplier + 2^(shift - 1)) >> shift: to the nearest, halves up.  31 <= shift <= 62, and the
 * multiplier is positive. */
AOTC_FIXED int32_t aotc_rescale(int32_t x, int32_t multiplier, int shift)
{
    if (shift < 33) {
        return (int32_t)(((int64_t)x * multiplier + ((int64_t)1 << (shift - 1))) >> shift);
    }
    return (aotc_high(x, multiplier) + (int32_t)(1u << (shift - 33))) >> (shift - 32);
}

/* x / 2^shift, rounded down. */
AOTC_FIXED int32_t aotc_shift(int32_t x, int shift)
{
    return x >> shift;
}

#endif
