/* trees: what trees say about each target, summed in their order: so many (`each`) of them for
 * each, one target after the other.  A leaf's threshold is what it says.  Walks go side by side on
 * several rows, or through several trees; both ways give the same sums.
 * A bundle's copy starts with lines that define AOTC_LIBRARY(x), AOTC_ELEMENT and AOTC_WORD, the
 * unsigned integer of its size. */

#include "aotc_walk.h"

static inline void aotc_add(AOTC_ELEMENT *restrict sums, ptrdiff_t next_sum, const AOTC_ELEMENT *x,
                            ptrdiff_t next_row, const AOTC_WORD *nodes, const int32_t *trees,
                            ptrdiff_t next_tree, ptrdiff_t live, int shift)
{
    AOTC_WORD ends[AOTC_LANES];
    aotc_walk(ends, x, next_row, nodes, trees, next_tree, live, shift);
    for (ptrdiff_t k = 0; k < live; k++)
        sums[k * next_sum] += aotc_threshold(nodes, ends[k]);
}

void AOTC_LIBRARY(trees)(const AOTC_ELEMENT *x, const AOTC_WORD *nodes, const int32_t *trees,
                         AOTC_ELEMENT *sums, int64_t rows, int64_t width, int64_t targets,
                         int64_t each, int64_t shift)
{
    const ptrdiff_t count = (ptrdiff_t)rows, columns = (ptrdiff_t)width;
    const ptrdiff_t all = (ptrdiff_t)targets, own = (ptrdiff_t)each;
    const ptrdiff_t whole = aotc_tree_by_tree(count, own);
    for (ptrdiff_t i = 0; i < count * all; i++)
        sums[i] = 0;
    for (ptrdiff_t target = 0; target < all; target++, trees += 2 * own, sums++) {
        for (ptrdiff_t t = 0; t < own; t++)
            for (ptrdiff_t r = 0; r < whole; r += AOTC_LANES)
                aotc_add(sums + r * all, all, x + r * columns, columns, nodes, trees + 2 * t, 0,
                         aotc_at_most(whole - r), (int)shift);
        for (ptrdiff_t r = whole; r < count; r++) {
            AOTC_ELEMENT sum = 0;
            for (ptrdiff_t t = 0; t < own; t += AOTC_LANES)
                aotc_add(&sum, 0, x + r * columns, 0, nodes, trees + 2 * t, 1,
                         aotc_at_most(own - t), (int)shift);
            sums[r * all] = sum;
        }
    }
}
