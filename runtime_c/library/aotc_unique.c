/* unique: which of n rows of m elements are different.  `place`: the first row of every kind, in
 * ascending order (row by row, element by element; all NaNs are one value behind every number) or,
 * with sorted = 0, in that of appearance; `counts`: how many rows there are of it; `inverse`: the
 * kind of every row; `total`: how many kinds there are, also where there is room for fewer
 * (`most`).  `work`: n numbers of working memory.  Time n log n comparisons.
 * A bundle's copy starts with lines that define AOTC_LIBRARY(x), AOTC_ELEMENT, AOTC_ISNAN(x). */

typedef struct {
    const AOTC_ELEMENT *x;
    int64_t m;
} aotc_keys;

/* -1, 0, 1: row a is less than, equal to, greater than row b. */
static inline int compare_rows(const aotc_keys *keys, int64_t a, int64_t b)
{
    const AOTC_ELEMENT *x = keys->x + a * keys->m, *y = keys->x + b * keys->m;
    for (int64_t i = 0; i < keys->m; i++) {
        if (x[i] < y[i])
            return -1;
        if (x[i] > y[i])
            return 1;
        const int nan_x = AOTC_ISNAN(x[i]), nan_y = AOTC_ISNAN(y[i]);
        if (nan_x != nan_y)
            return nan_x ? 1 : -1;
    }
    return 0;
}

static inline int aotc_before(const aotc_keys *keys, int64_t a, int64_t b)
{
    const int order = compare_rows(keys, a, b);
    return order != 0 ? order < 0 : a < b;
}

#include "aotc_heap.h"

/* One more kind, first seen in `row`. */
static int64_t add_kind(int64_t row, int64_t count, int64_t *place, int64_t *counts, int64_t most)
{
    if (count < most) {
        place[count] = row;
        counts[count] = 0;
    }
    return count + 1;
}

void AOTC_LIBRARY(unique)(const AOTC_ELEMENT *x, int64_t *place, int64_t *inverse,
                          int64_t *counts, int64_t *total, int64_t *work, int64_t n, int64_t m,
                          int64_t most, int64_t sorted)
{
    const aotc_keys keys = {x, m};
    int64_t count = 0, first = 0;
    for (int64_t i = 0; i < n; i++)
        work[i] = i;
    aotc_make_heap(&keys, work, n);
    for (int64_t left = n; left > 1; left--)
        aotc_pop(&keys, work, left);
    /* Equal rows stand together now, their first one in front: give every row its first. */
    for (int64_t i = 0; i < n; i++) {
        if (i == 0 || compare_rows(&keys, work[i - 1], work[i]) != 0) {
            first = work[i];
            if (sorted)
                count = add_kind(first, count, place, counts, most);
        }
        inverse[work[i]] = sorted ? count - 1 : first;
    }
    if (!sorted) /* a first row comes before all that are like it, so its number is known by then */
        for (int64_t i = 0; i < n; i++) {
            if (inverse[i] == i) {
                work[i] = count;
                count = add_kind(i, count, place, counts, most);
            }
            inverse[i] = work[inverse[i]];
        }
    for (int64_t i = 0; i < n; i++)
        if (inverse[i] < most)
            counts[inverse[i]]++;
    for (int64_t i = count; i < most; i++)
        place[i] = counts[i] = 0;
    *total = count;
}
