/* A heap of int64 numbers that stand for elements, for kernels that order: the file that includes
 * this defines before
 *     aotc_keys                                what the numbers stand for
 *     aotc_before(keys, a, b)                  element a comes before element b: a total order
 * The root is the element that comes last.  No memory of its own, no recursion. */
#ifndef AOTC_HEAP_H
#define AOTC_HEAP_H

#include <stdint.h>

/* Put `number` at `at` in the heap of `n` and let it sink to where it belongs. */
static void aotc_sink(const aotc_keys *keys, int64_t *heap, int64_t at, int64_t n, int64_t number)
{
    int64_t child;
    while ((child = 2 * at + 1) < n) {
        if (child + 1 < n && aotc_before(keys, heap[child], heap[child + 1]))
            child++;
        if (!aotc_before(keys, number, heap[child]))
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = number;
}

static void aotc_make_heap(const aotc_keys *keys, int64_t *heap, int64_t n)
{
    for (int64_t at = n / 2 - 1; at >= 0; at--)
        aotc_sink(keys, heap, at, n, heap[at]);
}

/* Take the root away from a heap of `n`; it stays behind the n - 1 that are left. */
static void aotc_pop(const aotc_keys *keys, int64_t *heap, int64_t n)
{
    const int64_t last = heap[n - 1];
    heap[n - 1] = heap[0];
    if (n > 1)
        aotc_sink(keys, heap, 0, n - 1, last);
}

#endif
