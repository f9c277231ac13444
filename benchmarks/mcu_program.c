/* The least program that calls a bundle: what it links is what a firmware's flash and memory take.
 * NAME(f), AOTC_HEADER and ARENA come from the command line. */
#include AOTC_HEADER
#include "aotc_board.h"

static _Alignas(AOTC_ALIGNMENT) uint8_t arena[ARENA];
static aotc_weights weights;
static aotc_context context;
/* where a firmware has its tensors: addresses alone, no memory is counted for them */
extern const void *const inputs[];
extern void *const outputs[];
const void *const inputs[8] = {heap_start};
void *const outputs[8] = {heap_start};

int main(void)
{
    aotc_status status = NAME(weights_embedded)(&weights);
    if (status == AOTC_OK) {
        status = NAME(init)(&context, &weights, arena, sizeof arena, NULL);
    }
    if (status == AOTC_OK) {
        status = NAME(run_buffers)(&context, NULL, inputs, outputs);
    }
    return status != AOTC_OK;
}
