/* Kernels that a core of the accelerator cannot run, and the same without the mistake. */
#include "aotc_dsa.h"

#include <stdlib.h>

enum { COUNT = 16 };

static const int64_t one[] = {1};

static void load(aotc_dsa_core *core, float *to, const float *from, int64_t count)
{
    const int64_t extent[] = {count};
    aotc_dsa_load(core, 0, to, from, sizeof *to, 1, extent, one, one);
}

/* Twice each number; bug: which mistake is made, 0 for none. */
static void twice(aotc_dsa *machine, int bug, const float *in, float *out)
{
    const int64_t extent[] = {COUNT};
    aotc_dsa_core *const core = aotc_dsa_begin(machine, "twice", 5, 32, AOTC_DSA_CLUSTERS);
    float *const x = aotc_dsa_local(core, "x", 0, COUNT * sizeof *x);
    float *const y = aotc_dsa_local(core, "y", bug == 1 ? 100 : bug == 2 ? AOTC_DSA_LB_BYTES : 128,
        COUNT * sizeof *y);
    load(core, bug == 3 ? (float *)(void *)((char *)x + 2) : x, in, bug == 4 ? COUNT - 1 : COUNT);
    if (bug != 5) {
        aotc_dsa_wait(core, bug == 6 ? 1 : 0);
    }
    for (int i = 0; i < COUNT; i++) {
        const float *const from = bug == 7 ? x + AOTC_DSA_LB_BYTES / sizeof *x
            : bug == 8 ? x - AOTC_DSA_LB_BYTES / sizeof *x * 5 : x;
        aotc_dsa_put_f32(core, y + i, 2 * aotc_dsa_get_f32(core, from + i));
    }
    if (bug == 9) {
        load(core, y, in, COUNT);
    }
    aotc_dsa_store(core, 1, out, bug == 10 ? y + 1 : y, sizeof *y, 1, extent, one, one);
    if (bug == 11) {
        aotc_dsa_put_f32(core, y, 0);
    }
    if (bug != 12) {
        aotc_dsa_wait(core, 1);
    }
    if (bug == 13) {
        aotc_dsa_far_put_f32(core, y, 0);
    }
    if (bug == 14) {
        aotc_dsa_load(core, 0, x, (const char *)in + 1, sizeof *x, 1, one, one, one);
    }
    aotc_dsa_end(core);
    if (bug == 15) {
        aotc_dsa_get_f32(core, x);
    }
}

/* A product of the matrix engine; bug: as above, of its operands. */
static void times(aotc_dsa *machine, int bug, const float *in, float *out)
{
    aotc_dsa_core *const core = aotc_dsa_begin(machine, "times", 5, 32, AOTC_DSA_CLUSTERS);
    float *const x = aotc_dsa_local(core, "x", 0, COUNT * sizeof *x);
    float *const y = aotc_dsa_local(core, "y", 128, COUNT * sizeof *y);
    float acc[4] = {0};
    const void *rows[] = {bug == 20 ? in : bug == 21 ? (float *)(void *)((char *)x + 2) : x,
        bug == 22 ? x + AOTC_DSA_LB_BYTES / sizeof *x : bug == 23 ? NULL : x + 4};
    aotc_dsa_product p = {2, bug == 24 ? AOTC_DSA_ROWS + 1 : 2, 2, sizeof *x, sizeof *x, 0, 1,
        bug == 25 ? 9 : 4, 1, 2, 0, 2};
    load(core, x, in, COUNT);
    if (bug != 26) {
        aotc_dsa_wait(core, 0);
    }
    aotc_dsa_multiply(core, &p, rows, bug == 27 ? x + 12 : x, acc);
    for (int i = 0; i < 4; i++) {
        out[i] = acc[i];
    }
    const float *const first = aotc_dsa_reads(core, bug == 28 ? x + 14 : x, 4);
    float *const last = aotc_dsa_writes(core, bug == 29 ? y + 14 : y, 4);
    if (bug == 30) {
        load(core, y, in, 4);
        aotc_dsa_writes(core, y, 4);
    }
    memcpy(last, first, 4 * sizeof *last);
    out[4] = aotc_dsa_get_f32(core, bug == 31 ? y + 4 : y);
    aotc_dsa_end(core);
}

/* Run it; text: AOTC_DSA_TEXT bytes for what is refused.  Returns 0 without memory. */
int run(int bug, const float *in, float *out, char *text);

int run(int bug, const float *in, float *out, char *text)
{
    void *const memory = aligned_alloc(64, AOTC_DSA_BYTES);
    if (memory == NULL) {
        return 0;
    }
    aotc_dsa *const machine = aotc_dsa_open(memory, (aotc_dsa_kept){NULL, 0, 0, NULL, 0, 0});
    (bug < 20 ? twice : times)(machine, bug, in, out);
    memcpy(text, machine->refusal, AOTC_DSA_TEXT);
    free(memory);
    return 1;
}
