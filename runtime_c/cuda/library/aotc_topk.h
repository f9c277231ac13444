/* aotc_topk.h: the places of the first k of n elements in order; of equal ones the earlier comes
 * first, NaN counts as the largest number.  A block finds the key of the last one digit by digit,
 * from the highest (radix selection), takes what lies before it, and sorts that. */
#ifndef AOTC_TOPK_H
#define AOTC_TOPK_H

#include "aotc_block.h"
#include "aotc_order.h"

#define AOTC_DIGITS 16 /* of a digit of four bits; two words of counts of a byte each */
#define AOTC_FULL 255  /* what such a count holds */

/* counts[d] += how many digits d the threads of a block have; `low`, `high`: counts of a byte each
 * for digits 0..7, 8..15. */
AOTC_DEVICE void aotc_add_digits(aotc_shared<uint32_t> parts, uint64_t low, uint64_t high,
                                 uint32_t counts[AOTC_DIGITS])
{
    AOTC_UNROLL for (int d = 0; d < AOTC_DIGITS; ++d) {
        const uint32_t mine = (uint32_t)((d < 8 ? low : high) >> 8 * (d % 8)) & AOTC_FULL;
        const uint32_t warp = aotc_warp_sum(mine);
        if (threadIdx.x % AOTC_WARP == 0)
            parts[threadIdx.x / AOTC_WARP * AOTC_DIGITS + d] = warp;
    }
    aotc_syncthreads();
    AOTC_UNROLL for (int d = 0; d < AOTC_DIGITS; ++d)
        for (unsigned w = 0; w < blockDim.x / AOTC_WARP; ++w)
            counts[d] += parts[w * AOTC_DIGITS + d];
    aotc_syncthreads();
}

/* The key of the last of the first `*open` elements; `*open`: how many of that key are among
 * them. */
template <class Key, class Word>
AOTC_DEVICE Word aotc_last_key(const Key &key, Word none, int64_t n, int64_t *open)
{
    AOTC_STATIC_SMEM(uint32_t, parts, AOTC_WARPS * AOTC_DIGITS);
    Word last = none;
    for (int shift = 8 * (int)sizeof(Word) - 4; shift >= 0; shift -= 4) {
        uint32_t counts[AOTC_DIGITS] = {0};
        for (int64_t base = 0; base < n; base += (int64_t)blockDim.x * AOTC_FULL) {
            uint64_t low = 0, high = 0;
            for (int64_t i = base + threadIdx.x;
                 i < n && i < base + (int64_t)blockDim.x * AOTC_FULL; i += blockDim.x) {
                const Word mine = (Word)(key(i) ^ last) >> shift;
                const uint64_t one = (uint64_t)(mine < AOTC_DIGITS) << 8 * (mine % 8);
                low += mine & 8 ? 0 : one;
                high += mine & 8 ? one : 0;
            }
            aotc_add_digits(parts, low, high, counts);
        }
        int digit = 0;
        int64_t left = *open;
        AOTC_UNROLL for (int d = 0; d < AOTC_DIGITS - 1; ++d)
            if (digit == d && counts[d] < left) {
                left -= counts[d];
                ++digit;
            }
        *open = left;
        last |= (Word)digit << shift;
    }
    return last;
}

template <class T>
AOTC_DEVICE void aotc_topk(const T *x, int64_t *order, int64_t n, int64_t k, int64_t largest)
{
    const auto key = [=](int64_t i) {
        auto rank = aotc_rank(x[i]);
        return largest ? (decltype(rank))~rank : rank;
    };
    int64_t open = k;
    if (k <= 0)
        return;
    const auto last = aotc_last_key(key, aotc_rank((T)0) ^ aotc_rank((T)0), n, &open);
    int64_t before = 0, equal = 0; /* elements before `last` so far, and with its key */
    for (int64_t base = 0; base < n && before + (equal < open ? equal : open) < k;
         base += blockDim.x) {
        const int64_t i = base + threadIdx.x;
        const bool less = i < n && key(i) < last, same = i < n && key(i) == last;
        uint32_t all = 0;
        const uint32_t ahead = aotc_block_prefix((uint32_t)less | (uint32_t)same << 16, &all);
        const int64_t equals = equal + (ahead >> 16);
        if (less || (same && equals < open))
            order[before + (ahead & 0xffff) + (equals < open ? equals : open)] = i;
        before += all & 0xffff;
        equal += all >> 16;
    }
    aotc_syncthreads();
    aotc_sort(key, order, k);
}

#endif
