/* Where decision trees end, several of them at a time and without branches on the data.  A node is
 * two words: the bits of a threshold; a column of x and, `shift` bits higher, how many nodes
 * further on its first child is, the second one behind it for elements above the threshold.  A leaf
 * is its own child: the walk ends once nobody moves. */

#include <string.h>

#define AOTC_LANES 16 /* walks side by side: their loads do not wait for each other */

static inline AOTC_ELEMENT aotc_threshold(const AOTC_WORD *nodes, AOTC_WORD at)
{
    AOTC_ELEMENT out;
    memcpy(&out, nodes + 2 * at, sizeof out);
    return out;
}

/* at: the node that every walk starts from, then the leaf it ends in; x: the row of each. */
static inline void aotc_walk(AOTC_WORD *at, const AOTC_ELEMENT *const *x, const AOTC_WORD *nodes,
                             int64_t shift)
{
    const AOTC_WORD columns = ((AOTC_WORD)1 << shift) - 1;
    AOTC_WORD moved;
    do {
        moved = 0;
        for (int k = 0; k < AOTC_LANES; k++) {
            const AOTC_WORD here = at[k], word = nodes[2 * here + 1], child = word >> shift;
            const AOTC_WORD above = x[k][word & columns] > aotc_threshold(nodes, here);
            at[k] = here + child + above;
            moved |= child;
        }
    } while (moved);
}

/* Rows of x for walks of several rows through one tree; past the last row the first one again. */
static inline void aotc_rows(const AOTC_ELEMENT **rows, const AOTC_ELEMENT *x, int64_t left,
                             int64_t columns)
{
    for (int64_t k = 0; k < AOTC_LANES; k++)
        rows[k] = x + (k < left ? k : 0) * columns;
}

/* True if `left` rows take fewer walks tree by tree than row by row. */
static inline int aotc_by_tree(int64_t left, int64_t trees)
{
    return left >= AOTC_LANES || left * ((trees + AOTC_LANES - 1) / AOTC_LANES) >= trees;
}
