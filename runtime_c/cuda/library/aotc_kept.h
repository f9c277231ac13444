/* aotc_kept.h: the places of the flags that are set, as many as there is room for (`most`), then
 * zeros; `total` is how many there are.  A block looks at a piece of the flags at a time: each
 * thread counts those of a run of neighbours, and puts them behind those of the threads before. */
#ifndef AOTC_KEPT_H
#define AOTC_KEPT_H

#include "aotc_block.h"

#define AOTC_RUN 8 /* flags of a thread */

template <class T>
AOTC_DEVICE void aotc_kept(const T *flags, int64_t *place, int64_t *total, int64_t n, int64_t most)
{
    int64_t done = 0;
    for (int64_t base = 0; base < n; base += (int64_t)blockDim.x * AOTC_RUN) {
        const int64_t first = base + (int64_t)threadIdx.x * AOTC_RUN;
        uint32_t set = 0, count = 0, all = 0;
        for (int i = 0; i < AOTC_RUN; ++i) {
            const bool one = first + i < n && flags[first + i];
            set |= (uint32_t)one << i;
            count += one;
        }
        int64_t at = done + aotc_block_prefix(count, &all);
        for (int i = 0; i < AOTC_RUN; ++i)
            if (set >> i & 1) {
                if (at < most)
                    place[at] = first + i;
                ++at;
            }
        done += all;
    }
    for (int64_t i = done + threadIdx.x; i < most; i += blockDim.x)
        place[i] = 0;
    if (threadIdx.x == 0)
        *total = done;
}

#endif
