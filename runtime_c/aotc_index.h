/* aotc_index.h: int64 arithmetic of shapes and offsets.  Division rounds toward minus infinity,
 * so the remainder has the divisor's sign; by zero, which an extent may be, both are 0. */
#ifndef AOTC_INDEX_H
#define AOTC_INDEX_H

#include <stdint.h>

#if !defined(AOTC_SCALAR) && defined(__CUDACC__)
#define AOTC_SCALAR static __host__ __device__ inline
#elif !defined(AOTC_SCALAR)
#define AOTC_SCALAR static inline
#endif

AOTC_SCALAR int64_t aotc_floordiv(int64_t a, int64_t b)
{
    if (b == 0)
        return 0;
    const int64_t q = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}

AOTC_SCALAR int64_t aotc_floormod(int64_t a, int64_t b)
{
    if (b == 0)
        return 0;
    const int64_t r = a % b;
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

AOTC_SCALAR int64_t aotc_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

AOTC_SCALAR int64_t aotc_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* The integer part of the square root, bit by bit; 0 below 0. */
AOTC_SCALAR int64_t aotc_isqrt(int64_t n)
{
    uint64_t rest = n > 0 ? (uint64_t)n : 0, root = 0;
    for (uint64_t bit = UINT64_C(1) << 62; bit != 0; bit >>= 2) {
        if (rest >= root + bit) {
            rest -= root + bit;
            root = (root >> 1) + bit;
        } else {
            root >>= 1;
        }
    }
    return (int64_t)root;
}

/* The next multiple of 64. */
AOTC_SCALAR int64_t aotc_round64(int64_t n)
{
    return (n + 63) / 64 * 64;
}

/* at + count * bytes (none is negative), INT64_MAX where that is larger.  By halves of 32 bits,
 * since a division of 64 costs a small core a kilobyte. */
AOTC_SCALAR int64_t aotc_behind(int64_t at, int32_t count, int64_t bytes)
{
    const int64_t low = (bytes & UINT32_MAX) * count;
    const int64_t high = (bytes >> 32) * count + (low >> 32);
    if (high > INT32_MAX || count * bytes > INT64_MAX - at) {
        return INT64_MAX;
    }
    return at + count * bytes;
}

#endif
