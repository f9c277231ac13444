/* Where decision trees end, several of them at a time and without branches on the data.  A node is
 * two words: the bits of a threshold; a column of x and, `shift` bits higher, how many nodes
 * further on its first child is, the second one behind it for elements above the threshold.  A leaf
 * is its own child: the walk ends once nobody moves.
 * Sizes that fit a memory are ptrdiff_t here: small machines compute those faster, and in less
 * code. */

#include <stddef.h>
#include <string.h>

#define AOTC_LANES 16 /* walks side by side: their loads do not wait for each other */

static inline AOTC_ELEMENT aotc_threshold(const AOTC_WORD *nodes, AOTC_WORD at)
{
    AOTC_ELEMENT out;
    memcpy(&out, nodes + 2 * at, sizeof out);
    return out;
}

/* ends: the leaves of AOTC_LANES walks.  Walk k goes down from root `k * next_root` on row
 * `k * next_row` of x; those from `live` on do what the first one does. */
static inline void aotc_walk(AOTC_WORD *ends, const AOTC_ELEMENT *x, ptrdiff_t next_row,
                             const AOTC_WORD *nodes, const int32_t *roots, ptrdiff_t next_root,
                             ptrdiff_t live, int shift)
{
    const AOTC_WORD columns = ((AOTC_WORD)1 << shift) - 1;
    AOTC_WORD at[AOTC_LANES], moved;
    const AOTC_ELEMENT *rows[AOTC_LANES];
    for (ptrdiff_t k = 0; k < AOTC_LANES; k++) {
        at[k] = (AOTC_WORD)roots[k < live ? k * next_root : 0];
        rows[k] = x + (k < live ? k * next_row : 0);
    }
    do {
        moved = 0;
        for (int k = 0; k < AOTC_LANES; k++) {
            const AOTC_WORD here = at[k], word = nodes[2 * here + 1], child = word >> shift;
            const AOTC_WORD above = rows[k][word & columns] > aotc_threshold(nodes, here);
            at[k] = here + child + above;
            moved |= child;
        }
    } while (moved);
    memcpy(ends, at, sizeof at);
}

/* How many of `count` rows are walked tree by tree, in sets of AOTC_LANES of them, whose nodes stay
 * in the cache; what is left takes fewer walks row by row, through several trees at a time. */
static inline ptrdiff_t aotc_tree_by_tree(ptrdiff_t count, ptrdiff_t trees)
{
    const ptrdiff_t left = count & (AOTC_LANES - 1);
    return left * ((trees + AOTC_LANES - 1) / AOTC_LANES) < trees ? count - left : count;
}
