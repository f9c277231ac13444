/* aotc_simt.h: what generated CUDA kernels share: NaN rules, folds over a warp, checked indices. */
#ifndef AOTC_SIMT_H
#define AOTC_SIMT_H

#include "aotc_cuda.h"

#include "aotc_index.h"
#include "aotc_num.h"

#include <math.h>

#ifdef __CUDACC__
#define AOTC_UNROLL _Pragma("unroll")
#else
#define AOTC_UNROLL
#endif

/* acc[0..3] += a * b */
AOTC_DEVICE void aotc_madd4(float *acc, float a, aotc_f32x4 b)
{
    acc[0] += a * b.x;
    acc[1] += a * b.y;
    acc[2] += a * b.z;
    acc[3] += a * b.w;
}

/* NaN if either is NaN. */
AOTC_DEVICE float aotc_fmax(float a, float b)
{
    return a > b || a != a ? a : b;
}

AOTC_DEVICE float aotc_fmin(float a, float b)
{
    return a < b || a != a ? a : b;
}

/* aotc_warp_FOLD(x): the fold of x over all lanes of a warp, in each of them.  Sums and products of
   integers wrap around; narrower ones are folded as int32_t. */
#define AOTC_WARP_FOLD(fold, type, join)        \
    AOTC_DEVICE type aotc_warp_##fold(type x)   \
    {                                           \
        for (int d = 16; d > 0; d /= 2) {       \
            const type y = aotc_shfl_xor(x, d); \
            x = join;                           \
        }                                       \
        return x;                               \
    }

#define AOTC_WARP_INTEGERS(type, wide)                          \
    AOTC_WARP_FOLD(sum, type, (type)((wide)x + (wide)y))        \
    AOTC_WARP_FOLD(prod, type, (type)((wide)x * (wide)y))       \
    AOTC_WARP_FOLD(max, type, x > y ? x : y)                    \
    AOTC_WARP_FOLD(min, type, x < y ? x : y)

AOTC_WARP_FOLD(sum, float, x + y)
AOTC_WARP_FOLD(prod, float, x * y)
AOTC_WARP_FOLD(max, float, aotc_fmax(x, y))
AOTC_WARP_FOLD(min, float, aotc_fmin(x, y))
AOTC_WARP_FOLD(sum, double, x + y)
AOTC_WARP_FOLD(prod, double, x * y)
AOTC_WARP_FOLD(max, double, aotc_dmax(x, y))
AOTC_WARP_FOLD(min, double, aotc_dmin(x, y))
AOTC_WARP_INTEGERS(int32_t, uint32_t)
AOTC_WARP_INTEGERS(int64_t, uint64_t)
AOTC_WARP_INTEGERS(uint32_t, uint32_t)
AOTC_WARP_INTEGERS(uint64_t, uint64_t)

/* Report a broken rule by its number, from 1 on; the first launch that breaks one is told of. */
AOTC_DEVICE void aotc_fault(int32_t *fault, int32_t rule)
{
    volatile int32_t *const told = reinterpret_cast<volatile int32_t *>(fault);
    if (*told == 0)
        *told = rule + 1;
}

/* An index that comes from data: i where 0 <= i < n, else 0 and a fault. */
AOTC_DEVICE int64_t aotc_checked(int32_t *fault, int32_t rule, int64_t i, int64_t n)
{
    if (i >= 0 && i < n)
        return i;
    aotc_fault(fault, rule);
    return 0;
}

/* An extent that comes from data: i, and a fault unless it is n. */
AOTC_DEVICE int64_t aotc_expected(int32_t *fault, int32_t rule, int64_t i, int64_t n)
{
    if (i != n)
        aotc_fault(fault, rule);
    return i;
}

#endif
