/* aotc_scatter.h: y is x with rows of updates put into it, in order, so that what hits twice has a
 * meaning: of `join` 0 the last one counts, 1 adds, 2 multiplies, 3 and 4 take the larger and the
 * smaller (NaN if either is one).  places: where in y each row's first element belongs; a row that
 * would not lie inside y is left out.  A block has a slice of y and looks at all places, one a
 * thread at a time; what hits its slice it lists in order, and every element that is hit belongs to
 * one thread. */
#ifndef AOTC_SCATTER_H
#define AOTC_SCATTER_H

#include "aotc_block.h"

#define AOTC_LISTED 1024 /* updates that are looked at together: threads of a block, at most */
#define AOTC_WIDE 32     /* elements of a row from which on threads share it */

/* What becomes of an element a where b is put. */
template <class T>
AOTC_DEVICE T aotc_joined(T a, T b, int64_t join)
{
    switch (join) {
    case 1: return (T)((uint64_t)a + (uint64_t)b);
    case 2: return (T)((uint64_t)a * (uint64_t)b);
    case 3: return a > b ? a : b;
    case 4: return a < b ? a : b;
    default: return b;
    }
}

#define AOTC_JOINED_FLOATS(type)                                    \
    AOTC_DEVICE type aotc_joined(type a, type b, int64_t join)      \
    {                                                               \
        switch (join) {                                             \
        case 1: return a + b;                                       \
        case 2: return a * b;                                       \
        case 3: return a > b || a != a ? a : b;                     \
        case 4: return a < b || a != a ? a : b;                     \
        default: return b;                                          \
        }                                                           \
    }

AOTC_JOINED_FLOATS(float)
AOTC_JOINED_FLOATS(double)

/* Where in y update `i` of rows of `width` elements, cut into pieces of `part`, belongs; -1 if
 * nowhere. */
AOTC_DEVICE int64_t aotc_place(const int64_t *places, int64_t i, int64_t width, int64_t part,
                               int64_t total)
{
    const int64_t row = i * part / width, at = places[row];
    return at < 0 || at > total - width ? -1 : at + (i * part - row * width);
}

template <class T>
AOTC_DEVICE void aotc_scatter(const T *x, const int64_t *places, const T *updates, T *y,
                              int64_t total, int64_t count, int64_t elements, int64_t join,
                              int64_t slice, int64_t slices)
{
    AOTC_STATIC_SMEM(int64_t, where, AOTC_LISTED);
    AOTC_STATIC_SMEM(int64_t, which, AOTC_LISTED);
    const int64_t width = count > 0 ? elements / count : 0, part = width < AOTC_WIDE ? 1 : width;
    const int64_t each = (total + slices - 1) / slices, first = slice * each;
    const int64_t end = first + each < total ? first + each : total;
    for (int64_t i = first + threadIdx.x; i < end; i += blockDim.x)
        y[i] = x[i];
    aotc_syncthreads();
    for (int64_t base = 0; base < elements; base += (int64_t)blockDim.x * part) {
        const int64_t mine = base / part + threadIdx.x;
        const bool there = mine * part < elements;
        const int64_t at = there ? aotc_place(places, mine, width, part, total) : -1;
        const bool hits = at >= 0 && at < end && at + part > first;
        uint32_t hit = 0;
        const uint32_t ahead = aotc_block_prefix(hits, &hit);
        if (hits) {
            where[ahead] = at;
            which[ahead] = mine * part;
        }
        aotc_syncthreads();
        if (part > 1) { /* element i of the slice belongs to the thread i % threads */
            for (uint32_t h = 0; h < hit; ++h) {
                const int64_t low = where[h] > first ? where[h] : first;
                const int64_t high = where[h] + part < end ? where[h] + part : end;
                const unsigned turn = (unsigned)((low - first) % blockDim.x);
                const unsigned wait = (threadIdx.x + blockDim.x - turn) % blockDim.x;
                for (int64_t i = low + wait; i < high; i += blockDim.x)
                    y[i] = aotc_joined(y[i], updates[which[h] + (i - where[h])], join);
            }
        } else if (threadIdx.x < hit) { /* to the thread of the first update that hits it */
            const int64_t own = where[threadIdx.x];
            bool leads = true;
            for (uint32_t h = 0; h < threadIdx.x && leads; ++h)
                leads = where[h] != own;
            for (uint32_t h = threadIdx.x; leads && h < hit; ++h)
                if (where[h] == own)
                    y[own] = aotc_joined(y[own], updates[which[h]], join);
        }
        aotc_syncthreads();
    }
}

#endif
