/* votes: what trees say about all targets, summed in their order.  A leaf's first word is its row
 * of `weights`.  Walks go side by side on several rows, or through several trees; both ways give
 * the same sums.
 * A bundle's copy starts with lines that define AOTC_LIBRARY(x), AOTC_ELEMENT and AOTC_WORD, the
 * unsigned integer of its size. */

#include "aotc_walk.h"

typedef struct {
    const AOTC_WORD *nodes;
    const AOTC_ELEMENT *weights;
    ptrdiff_t targets;
    int shift;
} aotc_forest;

static inline void aotc_add(AOTC_ELEMENT *restrict sums, ptrdiff_t next_sum, const AOTC_ELEMENT *x,
                            ptrdiff_t next_row, const aotc_forest *forest, const int32_t *trees,
                            ptrdiff_t next_tree, ptrdiff_t live)
{
    AOTC_WORD ends[AOTC_LANES];
    aotc_walk(ends, x, next_row, forest->nodes, trees, next_tree, live, forest->shift);
    for (ptrdiff_t k = 0; k < live; k++) {
        const ptrdiff_t leaf = (ptrdiff_t)forest->nodes[2 * ends[k]];
        for (ptrdiff_t i = 0; i < forest->targets; i++)
            sums[k * next_sum + i] += forest->weights[leaf * forest->targets + i];
    }
}

void AOTC_LIBRARY(votes)(const AOTC_ELEMENT *x, const AOTC_WORD *nodes, const int32_t *trees,
                         const AOTC_ELEMENT *weights, AOTC_ELEMENT *sums, int64_t rows,
                         int64_t width, int64_t count_of_trees, int64_t targets, int64_t shift)
{
    const aotc_forest forest = {nodes, weights, (ptrdiff_t)targets, (int)shift};
    const ptrdiff_t count = (ptrdiff_t)rows, columns = (ptrdiff_t)width, all = forest.targets;
    const ptrdiff_t own = (ptrdiff_t)count_of_trees, whole = aotc_tree_by_tree(count, own);
    for (ptrdiff_t i = 0; i < count * all; i++)
        sums[i] = 0;
    for (ptrdiff_t t = 0; t < own; t++)
        for (ptrdiff_t r = 0; r < whole; r += AOTC_LANES)
            aotc_add(sums + r * all, all, x + r * columns, columns, &forest, trees + 2 * t, 0,
                     aotc_at_most(whole - r));
    for (ptrdiff_t r = whole; r < count; r++)
        for (ptrdiff_t t = 0; t < own; t += AOTC_LANES)
            aotc_add(sums + r * all, 0, x + r * columns, 0, &forest, trees + 2 * t, 1,
                     aotc_at_most(own - t));
}
