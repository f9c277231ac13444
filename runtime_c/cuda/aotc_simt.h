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

/* The fold of all lanes of a warp, in each of them. */
AOTC_DEVICE float aotc_warp_sum(float x)
{
    for (int d = 16; d > 0; d /= 2)
        x += aotc_shfl_xor(x, d);
    return x;
}

AOTC_DEVICE float aotc_warp_max(float x)
{
    for (int d = 16; d > 0; d /= 2)
        x = aotc_fmax(x, aotc_shfl_xor(x, d));
    return x;
}

AOTC_DEVICE float aotc_warp_min(float x)
{
    for (int d = 16; d > 0; d /= 2)
        x = aotc_fmin(x, aotc_shfl_xor(x, d));
    return x;
}

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
