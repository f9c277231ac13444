/* append: every one of `rows` rows of x with the next row of new elements put into it from place
 * `start` on; places and lengths count elements.  A row that has no room for them is left as it is.
 * Where y is x, nothing else is read or written.  Time: the new elements.
 * A bundle's copy starts with lines that define AOTC_LIBRARY(x) and AOTC_ELEMENT. */

#include <string.h>

void AOTC_LIBRARY(append)(const AOTC_ELEMENT *x, const AOTC_ELEMENT *added, AOTC_ELEMENT *y,
                          int64_t total, int64_t elements, int64_t rows, int64_t start)
{
    const int64_t room = rows > 0 ? total / rows : 0, width = rows > 0 ? elements / rows : 0;
    if (y != x && total > 0)
        memcpy(y, x, (size_t)total * sizeof *y);
    if (width <= 0 || start < 0 || start > room - width)
        return;
    for (int64_t r = 0; r < rows; r++)
        memcpy(y + r * room + start, added + r * width, (size_t)width * sizeof *y);
}
