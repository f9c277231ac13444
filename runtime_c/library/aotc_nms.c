/* nms: non-maximum suppression.  For every batch and class the boxes in the order of their scores,
 * without those that overlap an earlier one by more than numbers[0] (intersection over union), at
 * most `*most` of them; with `threshold` only scores above numbers[1].  `picked`: rows of batch,
 * class, box, as many as there is room for; `total`: how many there are, or any number above
 * `room` where they do not fit.  `work`: n numbers of working memory.
 * A bundle's copy starts with lines that define AOTC_LIBRARY(x), AOTC_ELEMENT, AOTC_ISNAN(x). */

typedef struct {
    const AOTC_ELEMENT *scores;
} aotc_keys;

/* The root of the heap comes last, so here the best box does. */
static inline int aotc_before(const aotc_keys *keys, int64_t a, int64_t b)
{
    const AOTC_ELEMENT x = keys->scores[a], y = keys->scores[b];
    if (x != y)
        return x < y;
    return a > b;
}

#include "aotc_heap.h"

typedef struct {
    AOTC_ELEMENT low[2], high[2];
} rectangle;

static rectangle corners(const AOTC_ELEMENT *box, int centred)
{
    rectangle r;
    for (int k = 0; k < 2; k++) {
        const AOTC_ELEMENT a = box[k], b = box[k + 2], half = b * (AOTC_ELEMENT)0.5;
        r.low[k] = centred ? a - half : a < b ? a : b;
        r.high[k] = centred ? a + half : a < b ? b : a;
    }
    return r;
}

static AOTC_ELEMENT area(const rectangle *r)
{
    return (r->high[0] - r->low[0]) * (r->high[1] - r->low[1]);
}

/* Intersection over union; 0 where either has no area. */
static AOTC_ELEMENT overlap(const rectangle *one, const rectangle *two)
{
    const AOTC_ELEMENT areas[2] = {area(one), area(two)};
    AOTC_ELEMENT common = 1;
    if (areas[0] <= 0 || areas[1] <= 0)
        return 0;
    for (int k = 0; k < 2; k++) {
        const AOTC_ELEMENT low = one->low[k] > two->low[k] ? one->low[k] : two->low[k];
        const AOTC_ELEMENT high = one->high[k] < two->high[k] ? one->high[k] : two->high[k];
        common *= high > low ? high - low : 0;
    }
    return common / (areas[0] + areas[1] - common);
}

/* The boxes of one class, appended to `count` rows of `picked`; the new count, `room` + 1 where
 * there is no room for one. */
static int64_t pick(const AOTC_ELEMENT *boxes, const aotc_keys *keys, int64_t *heap, int64_t left,
                    AOTC_ELEMENT limit, int64_t most, int centred, const int64_t key[2],
                    int64_t *picked, int64_t count, int64_t room)
{
    const int64_t first = count;
    aotc_make_heap(keys, heap, left);
    for (; left > 0 && count - first < most; left--) {
        const int64_t at = heap[0];
        const rectangle mine = corners(boxes + 4 * at, centred);
        int stays = 1;
        for (int64_t i = first; stays && i < count; i++) {
            const rectangle other = corners(boxes + 4 * picked[3 * i + 2], centred);
            stays = overlap(&mine, &other) <= limit;
        }
        if (stays && count == room)
            return room + 1;
        if (stays) {
            picked[3 * count] = key[0];
            picked[3 * count + 1] = key[1];
            picked[3 * count++ + 2] = at;
        }
        aotc_pop(keys, heap, left);
    }
    return count;
}

void AOTC_LIBRARY(nms)(const AOTC_ELEMENT *boxes, const AOTC_ELEMENT *scores, const int64_t *most,
                       const AOTC_ELEMENT *numbers, int64_t *picked, int64_t *total,
                       int64_t *work, int64_t batches, int64_t classes, int64_t n, int64_t room,
                       int64_t threshold, int64_t centred)
{
    int64_t count = 0;
    for (int64_t i = 0; i < batches * classes && count <= room; i++) {
        const int64_t key[2] = {i / classes, i % classes};
        const aotc_keys keys = {scores + i * n};
        int64_t open = 0;
        for (int64_t j = 0; j < n; j++)
            if (!AOTC_ISNAN(keys.scores[j]) && (!threshold || keys.scores[j] > numbers[1]))
                work[open++] = j;
        count = pick(boxes + key[0] * n * 4, &keys, work, open, numbers[0], *most, centred != 0,
                     key, picked, count, room);
    }
    for (int64_t i = 3 * count; i < 3 * room; i++)
        picked[i] = 0;
    *total = count;
}
