/* aotc_order.h: numbers that compare as elements do, and places in their order. */
#ifndef AOTC_ORDER_H
#define AOTC_ORDER_H

#include "aotc_simt.h"

#include <string.h>

/* aotc_rank(x): an unsigned number that compares as x does: all NaNs are one value behind every
 * number, -0 is 0. */
#define AOTC_RANK_OF_FLOAT(type, word)                              \
    AOTC_DEVICE word aotc_rank(type x)                              \
    {                                                               \
        const word sign = (word)1 << (8 * sizeof(word) - 1);        \
        word bits = 0;                                              \
        if (x != x)                                                 \
            return ~(word)0;                                        \
        if (x != 0)                                                 \
            memcpy(&bits, &x, sizeof bits);                         \
        return bits & sign ? (word)~bits : (word)(bits | sign);     \
    }

#define AOTC_RANK_OF_INTEGER(type, word, lowest) \
    AOTC_DEVICE word aotc_rank(type x) { return (word)x ^ (word)(lowest); }

AOTC_RANK_OF_FLOAT(float, uint32_t)
AOTC_RANK_OF_FLOAT(double, uint64_t)
AOTC_RANK_OF_INTEGER(int64_t, uint64_t, INT64_MIN)
AOTC_RANK_OF_INTEGER(int32_t, uint32_t, INT32_MIN)
AOTC_RANK_OF_INTEGER(int16_t, uint32_t, INT32_MIN)
AOTC_RANK_OF_INTEGER(int8_t, uint32_t, INT32_MIN)
AOTC_RANK_OF_INTEGER(uint64_t, uint64_t, 0)
AOTC_RANK_OF_INTEGER(uint32_t, uint32_t, 0)
AOTC_RANK_OF_INTEGER(uint16_t, uint32_t, 0)
AOTC_RANK_OF_INTEGER(uint8_t, uint32_t, 0)

/* Sort n places by the keys of their elements, equal ones by themselves, with all threads of a
 * block: a bitonic network that only ever moves what is larger to the end, so that it serves any n
 * (Batcher, "Sorting networks and their applications", 1968). */
template <class Key>
AOTC_DEVICE void aotc_sort_pair(const Key &key, int64_t *order, int64_t low, int64_t high)
{
    const int64_t a = order[low], b = order[high];
    const auto x = key(a), y = key(b);
    if (y < x || (y == x && b < a)) {
        order[low] = b;
        order[high] = a;
    }
}

template <class Key>
AOTC_DEVICE void aotc_sort(const Key &key, int64_t *order, int64_t n)
{
    for (int64_t half = 1; half < n; half *= 2) {
        const int64_t pairs = (n + 2 * half - 1) / (2 * half) * half;
        for (int64_t i = threadIdx.x; i < pairs; i += blockDim.x) {
            const int64_t at = i & (half - 1), low = 2 * i - at, high = low + 2 * (half - at) - 1;
            if (high < n)
                aotc_sort_pair(key, order, low, high);
        }
        aotc_syncthreads();
        for (int64_t step = half / 2; step > 0; step /= 2) {
            for (int64_t i = threadIdx.x; i < pairs; i += blockDim.x) {
                const int64_t low = 2 * i - (i & (step - 1));
                if (low + step < n)
                    aotc_sort_pair(key, order, low, low + step);
            }
            aotc_syncthreads();
        }
    }
}

#endif
