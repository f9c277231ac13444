/* scatter: y is x with rows of updates put into it, one after the other, so that what hits twice
 * has a meaning: of `join` 0 the last one counts, 1 adds, 2 multiplies, 3 and 4 take the larger and
 * the smaller (NaN if either is one).  places: where in y each row's first element belongs; a row
 * that would not lie inside y is left out.  Time: the elements of x and of the updates.
 * A bundle's copy starts with lines that define AOTC_LIBRARY(x), AOTC_ELEMENT, and AOTC_WRAPPING,
 * the type in which its sums and products cannot overflow. */

#include <string.h>

#define AOTC_STEP 8 /* elements of a row that compilers turn into vectors */

/* Rows of updates joined with what is there: `joined` of the old element `a` and the new `b`. */
#define AOTC_ROWS(name, joined) \
    static void name(const int64_t *places, const AOTC_ELEMENT *updates, AOTC_ELEMENT *y, \
                     int64_t total, int64_t count, int64_t width) \
    { \
        for (int64_t e = 0; e < count; e++) { \
            const AOTC_ELEMENT *restrict from = updates + e * width; \
            int64_t i = 0; \
            if (places[e] < 0 || places[e] > total - width) \
                continue; \
            AOTC_ELEMENT *restrict to = y + places[e]; \
            for (; i + AOTC_STEP <= width; i += AOTC_STEP) \
                for (int64_t k = i; k < i + AOTC_STEP; k++) { \
                    const AOTC_ELEMENT a = to[k], b = from[k]; \
                    to[k] = (AOTC_ELEMENT)(joined); \
                } \
            for (; i < width; i++) { \
                const AOTC_ELEMENT a = to[i], b = from[i]; \
                to[i] = (AOTC_ELEMENT)(joined); \
            } \
        } \
    }

AOTC_ROWS(put_rows, ((void)a, b))
AOTC_ROWS(add_rows, (AOTC_WRAPPING)a + (AOTC_WRAPPING)b)
AOTC_ROWS(multiply_rows, (AOTC_WRAPPING)a * (AOTC_WRAPPING)b)
AOTC_ROWS(larger_rows, AOTC_ISNAN(a) ? a : a > b ? a : b)
AOTC_ROWS(smaller_rows, AOTC_ISNAN(a) ? a : a < b ? a : b)

void AOTC_LIBRARY(scatter)(const AOTC_ELEMENT *x, const int64_t *places,
                           const AOTC_ELEMENT *updates, AOTC_ELEMENT *y, int64_t total,
                           int64_t count, int64_t elements, int64_t join)
{
    const int64_t width = count > 0 ? elements / count : 0;
    if (total > 0)
        memcpy(y, x, (size_t)total * sizeof *y);
    switch (join) {
    case 1: add_rows(places, updates, y, total, count, width); break;
    case 2: multiply_rows(places, updates, y, total, count, width); break;
    case 3: larger_rows(places, updates, y, total, count, width); break;
    case 4: smaller_rows(places, updates, y, total, count, width); break;
    default: put_rows(places, updates, y, total, count, width); break;
    }
}
