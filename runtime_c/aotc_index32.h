/* aotc_index32.h: aotc_index.h's arithmetic in 32 bits, for kernels whose extents allow it. */
#ifndef AOTC_INDEX32_H
#define AOTC_INDEX32_H

#include "aotc_compiler.h"

#include <stdint.h>

#if defined(__GNUC__)
#define AOTC_INDEX32 static inline AOTC_MAY_BE_UNUSED __attribute__((always_inline))
#else
#define AOTC_INDEX32 static inline
#endif

AOTC_INDEX32 int32_t aotc_min32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

AOTC_INDEX32 int32_t aotc_max32(int32_t a, int32_t b)
{
    return a > b ? a : b;
}

AOTC_INDEX32 int32_t aotc_floordiv32(int32_t a, int32_t b)
{
    if (b == 0)
        return 0;
    const int32_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

AOTC_INDEX32 int32_t aotc_floormod32(int32_t a, int32_t b)
{
    if (b == 0)
        return 0;
    const int32_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

#endif
