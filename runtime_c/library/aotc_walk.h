/* Where decision trees end, several of them at a time and without branches on the data.  A node is
 * two words: the bits of a threshold; a column of x and, `shift` bits higher, how many nodes
 * further on its first child is, the second one behind it for elements above the threshold.  A leaf
 * is its own child, so that walks may go on to the depth of the deepest.
 * Sizes that fit a memory are ptrdiff_t here: small machines compute those faster, and in less
 * code. */

#include <stddef.h>
#include <string.h>

#define AOTC_LANES 16 /* walks side by side: their loads do not wait for each other */
#define AOTC_DEEP 8   /* steps that are taken in any case; beyond, a few until all have ended */
#define AOTC_FEW 4

static inline AOTC_ELEMENT aotc_threshold(const AOTC_WORD *nodes, AOTC_WORD at)
{
    AOTC_ELEMENT out;
    memcpy(&out, nodes + 2 * at, sizeof out);
    return out;
}

/* Walks that stand `at` some node, each on a row of x, `depth` steps further down. */
static inline void aotc_steps(AOTC_WORD *at, const AOTC_ELEMENT *x, ptrdiff_t next_row,
                              const AOTC_WORD *nodes, int lanes, int depth, int shift)
{
    const AOTC_WORD columns = ((AOTC_WORD)1 << shift) - 1;
    for (; depth > 0; depth--) {
        const AOTC_ELEMENT *row = x;
#if defined(__GNUC__) && !defined(__OPTIMIZE_SIZE__)
#pragma GCC unroll 16
#endif
        for (int k = 0; k < lanes; k++, row += next_row) {
            const AOTC_WORD here = at[k], word = nodes[2 * here + 1];
            const AOTC_WORD above = row[word & columns] > aotc_threshold(nodes, here);
            at[k] = here + (word >> shift) + above;
        }
    }
}

/* True if all walks stand at leaves. */
static inline int aotc_ended(const AOTC_WORD *at, const AOTC_WORD *nodes, ptrdiff_t live, int shift)
{
    AOTC_WORD children = 0;
    for (ptrdiff_t k = 0; k < live; k++)
        children |= nodes[2 * at[k] + 1] >> shift;
    return children == 0;
}

/* ends: the leaves of `live` walks, at most AOTC_LANES.  Walk k goes down the tree that is
 * `k * next_tree` further on (a root and a depth for each), on row `k * next_row` of x. */
static inline void aotc_walk(AOTC_WORD *ends, const AOTC_ELEMENT *x, ptrdiff_t next_row,
                             const AOTC_WORD *nodes, const int32_t *trees, ptrdiff_t next_tree,
                             ptrdiff_t live, int shift)
{
    int depth = 0;
    for (ptrdiff_t k = 0; k < live; k++, trees += 2 * next_tree) {
        ends[k] = (AOTC_WORD)trees[0];
        if (trees[1] > depth)
            depth = trees[1];
    }
    for (int steps = AOTC_DEEP; depth > 0; depth -= steps, steps = AOTC_FEW) {
        const int next = depth < steps ? depth : steps;
        if (steps == AOTC_FEW && aotc_ended(ends, nodes, live, shift))
            return;
        if (live == AOTC_LANES) /* a number that compilers know */
            aotc_steps(ends, x, next_row, nodes, AOTC_LANES, next, shift);
        else
            aotc_steps(ends, x, next_row, nodes, (int)live, next, shift);
    }
}

/* How many of `count` rows are walked tree by tree, in sets of AOTC_LANES of them, whose nodes stay
 * in the cache; what is left has more walks side by side row by row, through several trees. */
static inline ptrdiff_t aotc_tree_by_tree(ptrdiff_t count, ptrdiff_t trees)
{
    const ptrdiff_t left = count & (AOTC_LANES - 1);
    return 2 * left < (trees < AOTC_LANES ? trees : AOTC_LANES) ? count - left : count;
}

static inline ptrdiff_t aotc_at_most(ptrdiff_t count)
{
    return count < AOTC_LANES ? count : AOTC_LANES;
}
