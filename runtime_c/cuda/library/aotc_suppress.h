/* aotc_suppress.h: non-maximum suppression of one class: the boxes of batch `*owner` in the order
 * of their scores, without those that overlap an earlier one by more than numbers[0] (intersection
 * over union), at most `*most` of them and as many as there is `room` for, then -1; with
 * `threshold` only scores above numbers[1].  In every round all threads of a block strike out what
 * overlaps the last one, and find the best that is left.  `open`: n flags of working memory. */
#ifndef AOTC_SUPPRESS_H
#define AOTC_SUPPRESS_H

#include "aotc_block.h"

template <class T>
struct aotc_rectangle {
    T low[2], high[2];
};

template <class T>
AOTC_DEVICE aotc_rectangle<T> aotc_corners(const T *box, bool centred)
{
    aotc_rectangle<T> r;
    for (int k = 0; k < 2; ++k) {
        const T a = box[k], b = box[k + 2], half = b * (T)0.5;
        r.low[k] = centred ? a - half : a < b ? a : b;
        r.high[k] = centred ? a + half : a < b ? b : a;
    }
    return r;
}

/* Intersection over union; 0 where either has no area. */
template <class T>
AOTC_DEVICE T aotc_overlap(const aotc_rectangle<T> &one, const aotc_rectangle<T> &two)
{
    const T mine = (one.high[0] - one.low[0]) * (one.high[1] - one.low[1]);
    const T other = (two.high[0] - two.low[0]) * (two.high[1] - two.low[1]);
    T common = 1;
    if (mine <= 0 || other <= 0)
        return 0;
    for (int k = 0; k < 2; ++k) {
        const T low = one.low[k] > two.low[k] ? one.low[k] : two.low[k];
        const T high = one.high[k] < two.high[k] ? one.high[k] : two.high[k];
        common *= high > low ? high - low : 0;
    }
    return common / (mine + other - common);
}

/* True if box `a` of score x comes before `b` of score y; -1 is none. */
template <class T>
AOTC_DEVICE bool aotc_better(T x, int64_t a, T y, int64_t b)
{
    return a >= 0 && (b < 0 || x > y || (x == y && a < b));
}

/* The best box of all threads of a block, -1 if none has one. */
template <class T>
AOTC_DEVICE int64_t aotc_block_best(T score, int64_t at)
{
    AOTC_STATIC_SMEM(T, scores, AOTC_WARPS);
    AOTC_STATIC_SMEM(int64_t, boxes, AOTC_WARPS);
    for (int d = AOTC_WARP / 2; d > 0; d /= 2) {
        const T x = aotc_shfl_xor(score, d);
        const int64_t other = aotc_shfl_xor(at, d);
        if (aotc_better(x, other, score, at)) {
            score = x;
            at = other;
        }
    }
    if (threadIdx.x % AOTC_WARP == 0) {
        scores[threadIdx.x / AOTC_WARP] = score;
        boxes[threadIdx.x / AOTC_WARP] = at;
    }
    aotc_syncthreads();
    at = -1;
    for (unsigned w = 0; w < blockDim.x / AOTC_WARP; ++w)
        if (aotc_better<T>(scores[w], boxes[w], score, at)) {
            score = scores[w];
            at = boxes[w];
        }
    aotc_syncthreads();
    return at;
}

template <class T>
AOTC_DEVICE void aotc_suppress(const T *scores, const int64_t *owner, const T *boxes,
                               const int64_t *most, const T *numbers, int64_t *picked,
                               uint8_t *open, int64_t n, int64_t room, int64_t threshold,
                               int64_t centred)
{
    const T *const own = boxes + *owner * n * 4;
    const int64_t wanted = *most < room ? *most : room;
    int64_t count = 0, last = -1;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
        open[i] = scores[i] == scores[i] && (!threshold || scores[i] > numbers[1]);
    while (count < wanted) {
        aotc_rectangle<T> chosen = {{0, 0}, {0, 0}};
        T best = 0;
        int64_t at = -1;
        if (last >= 0)
            chosen = aotc_corners(own + 4 * last, centred != 0);
        for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
            if (!open[i])
                continue;
            open[i] = last < 0 || (i != last && aotc_overlap(aotc_corners(
                own + 4 * i, centred != 0), chosen) <= numbers[0]);
            if (open[i] && aotc_better(scores[i], i, best, at)) {
                best = scores[i];
                at = i;
            }
        }
        last = aotc_block_best(best, at);
        if (last < 0)
            break;
        if (threadIdx.x == 0)
            picked[count] = last;
        ++count;
    }
    for (int64_t i = count + threadIdx.x; i < room; i += blockDim.x)
        picked[i] = -1;
}

#endif
