/* votes: what trees say about all targets, summed in their order.  A leaf's first word is its row
 * of `weights`.  Full sets of rows go through one tree after the other, whose nodes stay in the
 * cache; what is left goes through several trees at a time.  Both ways give the same sums.
 * A bundle's copy starts with lines that define AOTC_LIBRARY(x), AOTC_ELEMENT and AOTC_WORD, the
 * unsigned integer of its size. */

#include "aotc_walk.h"

typedef struct {
    const AOTC_WORD *nodes;
    const AOTC_ELEMENT *weights;
    int64_t targets, shift;
} aotc_forest;

/* Walks to their ends, then the weights of each of the first `live` leaves are added to sums, those
 * of the next walk `apart` elements further on. */
static void aotc_add_votes(const aotc_forest *f, AOTC_WORD *at, const AOTC_ELEMENT *const *rows,
                           AOTC_ELEMENT *sums, int64_t live, int64_t apart)
{
    aotc_walk(at, rows, f->nodes, f->shift);
    for (int64_t k = 0; k < AOTC_LANES && k < live; k++) {
        const AOTC_ELEMENT *said = f->weights + f->nodes[2 * at[k]] * (AOTC_WORD)f->targets;
        for (int64_t i = 0; i < f->targets; i++)
            sums[k * apart + i] += said[i];
    }
}

void AOTC_LIBRARY(votes)(const AOTC_ELEMENT *x, const AOTC_WORD *nodes, const int32_t *roots,
                         const AOTC_ELEMENT *weights, AOTC_ELEMENT *sums, int64_t count,
                         int64_t columns, int64_t trees, int64_t targets, int64_t shift)
{
    const aotc_forest forest = {nodes, weights, targets, shift};
    AOTC_WORD at[AOTC_LANES];
    const AOTC_ELEMENT *rows[AOTC_LANES];
    int64_t whole = count - count % AOTC_LANES;
    if (whole < count && aotc_by_tree(count - whole, trees))
        whole = count;
    for (int64_t i = 0; i < count * targets; i++)
        sums[i] = 0;
    for (int64_t t = 0; t < trees; t++)
        for (int64_t r = 0; r < whole; r += AOTC_LANES) {
            aotc_rows(rows, x + r * columns, count - r, columns);
            for (int k = 0; k < AOTC_LANES; k++)
                at[k] = (AOTC_WORD)roots[t];
            aotc_add_votes(&forest, at, rows, sums + r * targets, count - r, targets);
        }
    for (int64_t r = whole; r < count; r++) {
        aotc_rows(rows, x + r * columns, 1, 0);
        for (int64_t t = 0; t < trees; t += AOTC_LANES) {
            for (int64_t k = 0; k < AOTC_LANES; k++)
                at[k] = (AOTC_WORD)roots[t + k < trees ? t + k : t];
            aotc_add_votes(&forest, at, rows, sums + r * targets, trees - t, 0);
        }
    }
}
