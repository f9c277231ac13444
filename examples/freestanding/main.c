/* Classify digit images on a microcontroller: no operating system, no heap, no C library.
 *
 * Weights are linked in (they stay in flash), the arena is a static array, batches of images are
 * classified one after another.  One digit per line is printed. */
#include "board.h"
#include "digits.h"
#include "images.h"

static _Alignas(AOTC_ALIGNMENT) uint8_t arena[DIGITS_ARENA_BYTES_MAX(1)];
static float batch[DIGITS_BATCH_MAX][64];
static float logits[DIGITS_BATCH_MAX][10];
static int64_t digit[DIGITS_BATCH_MAX];

static int failed(const char *what, aotc_status status)
{
    board_print(what);
    board_print(": ");
    board_print(digits_strerror(status));
    board_print("\n");
    return 1;
}

int main(void)
{
    digits_weights weights;
    digits_context context;
    aotc_status status = digits_weights_embedded(&weights);
    if (status != AOTC_OK) {
        return failed("weights", status);
    }
    status = digits_init(&context, &weights, arena, sizeof arena, NULL);
    if (status != AOTC_OK) {
        return failed("init", status);
    }
    for (int first = 0; first < IMAGES; first += DIGITS_BATCH_MAX) {
        const int left = IMAGES - first, n = left < DIGITS_BATCH_MAX ? left : DIGITS_BATCH_MAX;
        for (int i = 0; i < n; i++) {
            for (int k = 0; k < 64; k++) {
                batch[i][k] = (float)images[first + i][k];
            }
        }
        status = digits_run(&context, n, batch[0], logits[0], digit);
        if (status != AOTC_OK) {
            return failed("run", status);
        }
        for (int i = 0; i < n; i++) {
            const char line[3] = {(char)('0' + digit[i]), '\n', '\0'};
            board_print(line);
        }
    }
    return 0;
}
