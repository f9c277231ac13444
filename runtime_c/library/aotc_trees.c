/* trees: what trees say about each target, summed in their order: `trees / targets` of them for
 * each, one target after the other.  A leaf's threshold is what it says.  Full sets of rows go
 * through one tree after the other, whose nodes stay in the cache; what is left goes through
 * several trees at a time.  Both ways give the same sums.
 * A bundle's copy starts with lines that define AOTC_LIBRARY(x), AOTC_ELEMENT and AOTC_WORD, the
 * unsigned integer of its size. */

#include "aotc_walk.h"

static void aotc_tree_of_rows(const AOTC_ELEMENT *x, const AOTC_WORD *nodes, AOTC_WORD root,
                              AOTC_ELEMENT *sums, int64_t left, int64_t columns, int64_t targets,
                              int64_t shift)
{
    AOTC_WORD at[AOTC_LANES];
    const AOTC_ELEMENT *rows[AOTC_LANES];
    aotc_rows(rows, x, left, columns);
    for (int k = 0; k < AOTC_LANES; k++)
        at[k] = root;
    aotc_walk(at, rows, nodes, shift);
    for (int64_t k = 0; k < AOTC_LANES && k < left; k++)
        sums[k * targets] += aotc_threshold(nodes, at[k]);
}

static AOTC_ELEMENT aotc_trees_of_row(const AOTC_ELEMENT *x, const AOTC_WORD *nodes,
                                      const int32_t *roots, int64_t trees, int64_t shift)
{
    AOTC_WORD at[AOTC_LANES];
    const AOTC_ELEMENT *rows[AOTC_LANES];
    AOTC_ELEMENT sum = 0;
    aotc_rows(rows, x, 1, 0);
    for (int64_t t = 0; t < trees; t += AOTC_LANES) {
        for (int64_t k = 0; k < AOTC_LANES; k++)
            at[k] = (AOTC_WORD)roots[t + k < trees ? t + k : t];
        aotc_walk(at, rows, nodes, shift);
        for (int64_t k = 0; k < AOTC_LANES && t + k < trees; k++)
            sum += aotc_threshold(nodes, at[k]);
    }
    return sum;
}

void AOTC_LIBRARY(trees)(const AOTC_ELEMENT *x, const AOTC_WORD *nodes, const int32_t *roots,
                         AOTC_ELEMENT *sums, int64_t count, int64_t columns, int64_t trees,
                         int64_t targets, int64_t shift)
{
    const int64_t each = targets > 0 ? trees / targets : 0;
    int64_t whole = count - count % AOTC_LANES;
    if (whole < count && aotc_by_tree(count - whole, each))
        whole = count;
    for (int64_t i = 0; i < whole * targets; i++)
        sums[i] = 0;
    for (int64_t t = 0; t < each * targets; t++)
        for (int64_t r = 0; r < whole; r += AOTC_LANES)
            aotc_tree_of_rows(x + r * columns, nodes, (AOTC_WORD)roots[t],
                              sums + r * targets + t / each, count - r, columns, targets, shift);
    for (int64_t r = whole; r < count; r++)
        for (int64_t target = 0; target < targets; target++)
            sums[r * targets + target] = aotc_trees_of_row(
                x + r * columns, nodes, roots + target * each, each, shift);
}
