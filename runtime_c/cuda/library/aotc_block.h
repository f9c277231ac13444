/* aotc_block.h: what library kernels have in common that all threads of a block call. */
#ifndef AOTC_BLOCK_H
#define AOTC_BLOCK_H

#include "aotc_simt.h"

#define AOTC_WARP 32
#define AOTC_WARPS 32 /* of a block, at most */

/* The sum of the counts of the threads before this one; `total`: of all of them. */
AOTC_DEVICE uint32_t aotc_block_prefix(uint32_t count, uint32_t *total)
{
    AOTC_STATIC_SMEM(uint32_t, sums, AOTC_WARPS);
    const unsigned lane = threadIdx.x % AOTC_WARP, warp = threadIdx.x / AOTC_WARP;
    uint32_t upto = count, ahead = 0, all = 0;
    for (unsigned d = 1; d < AOTC_WARP; d *= 2) {
        const uint32_t before = aotc_shfl_up(upto, d);
        upto += lane >= d ? before : 0;
    }
    if (lane == AOTC_WARP - 1)
        sums[warp] = upto;
    aotc_syncthreads();
    for (unsigned w = 0; w < blockDim.x / AOTC_WARP; ++w) {
        ahead += w < warp ? sums[w] : 0;
        all += sums[w];
    }
    aotc_syncthreads();
    *total = all;
    return ahead + upto - count;
}

#endif
