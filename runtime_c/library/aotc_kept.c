/* kept: the places of the flags that are set, as many as there is room for (`most`), then zeros;
 * `total` is how many there are.
 * A bundle's copy starts with lines that define AOTC_LIBRARY(x) and AOTC_ELEMENT. */

void AOTC_LIBRARY(kept)(const AOTC_ELEMENT *flags, int64_t *place, int64_t *total, int64_t n,
                        int64_t most)
{
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        if (flags[i]) {
            if (count < most)
                place[count] = i;
            count++;
        }
    for (int64_t i = count; i < most; i++)
        place[i] = 0;
    *total = count;
}
