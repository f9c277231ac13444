/* topk: the places of the first k of n elements in order; of equal ones the earlier comes first,
 * NaN counts as the largest number.  Time n log k: `order` itself is the heap of the k best.
 * A bundle's copy starts with lines that define AOTC_LIBRARY(x), AOTC_ELEMENT, AOTC_ISNAN(x). */

typedef struct {
    const AOTC_ELEMENT *x;
    int largest;
} aotc_keys;

/* Both orders are total: what compares equal is ordered by place. */
static inline int aotc_before(const aotc_keys *keys, int64_t a, int64_t b)
{
    const AOTC_ELEMENT x = keys->x[a], y = keys->x[b];
    if (keys->largest ? x > y : x < y)
        return 1;
    if (keys->largest ? x < y : x > y)
        return 0;
    const int nan_x = AOTC_ISNAN(x), nan_y = AOTC_ISNAN(y);
    if (nan_x != nan_y)
        return keys->largest ? nan_x : nan_y;
    return a < b;
}

#include "aotc_heap.h"

void AOTC_LIBRARY(topk)(const AOTC_ELEMENT *x, int64_t *order, int64_t n, int64_t k,
                        int64_t largest)
{
    const aotc_keys keys = {x, largest != 0};
    if (k <= 0)
        return;
    for (int64_t i = 0; i < k; i++)
        order[i] = i;
    aotc_make_heap(&keys, order, k);
    for (int64_t i = k; i < n; i++)
        if (aotc_before(&keys, i, order[0]))
            aotc_sink(&keys, order, 0, k, i);
    for (int64_t left = k; left > 1; left--)
        aotc_pop(&keys, order, left);
}
