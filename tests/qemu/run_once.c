/* run_once.c: calls a model once, between two marks that a plugin of the emulator looks for.
 * Two lines come before these: they set AOTC_NAME and AOTC_HEADER as in the bundle's own test.
 *
 *     PROGRAM WEIGHTS [DIMENSION...]
 *
 * Inputs are numbers in -1..1 that are the same on every run, integers are zeros.  The exit status
 * is 0 if the model ran. */
#include AOTC_HEADER

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANK = 64 };

/* Not static, so that their names stay. */
void cost_begin(void);
void cost_end(void);

__attribute__((noinline)) void cost_begin(void)
{
    __asm__ volatile("" ::: "memory");
}

__attribute__((noinline)) void cost_end(void)
{
    __asm__ volatile("" ::: "memory");
}

static void *allocate(size_t bytes)
{
    void *p = aligned_alloc(AOTC_ALIGNMENT, (bytes / AOTC_ALIGNMENT + 1) * AOTC_ALIGNMENT);
    if (p == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(2);
    }
    return p;
}

static void *make_tensor(const aotc_tensor_info *info, const int64_t *shape)
{
    size_t count = 1;
    uint32_t state = 1;
    for (int32_t i = 0; i < info->rank; i++) {
        count *= (size_t)shape[i];
    }
    void *data = allocate(count * sizeof(int64_t));
    memset(data, 0, count * sizeof(int64_t));
    for (size_t i = 0; info->dtype == AOTC_F32 && i < count; i++) {
        state = state * 1664525u + 1013904223u;
        ((float *)data)[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
    }
    return data;
}

int main(int argc, char **argv)
{
    const aotc_model_info *info = AOTC_NAME(info)();
    int64_t syms[MAX_RANK] = {0}, shape[MAX_RANK];
    const void *ins[MAX_RANK];
    void *outs[MAX_RANK];
    AOTC_NAME(weights) weights;
    AOTC_NAME(context) context;
    for (int i = 2; i < argc && i < MAX_RANK; i++) {
        syms[i - 2] = strtoll(argv[i], NULL, 10);
    }
    aotc_status status = argc < 2 ? AOTC_NULL_POINTER : AOTC_NAME(weights_open)(&weights, argv[1]);
    for (int i = 0; status == AOTC_OK && i < info->input_count; i++) {
        status = AOTC_NAME(input_shape)(i, syms, shape);
        ins[i] = make_tensor(&AOTC_NAME(inputs)()[i], shape);
    }
    for (int i = 0; status == AOTC_OK && i < info->output_count; i++) {
        status = AOTC_NAME(output_shape)(i, syms, shape);
        outs[i] = make_tensor(&AOTC_NAME(outputs)()[i], shape);
    }
    if (status == AOTC_OK) {
        const size_t bytes = AOTC_NAME(arena_size_of)(syms, 1);
        status = AOTC_NAME(init)(&context, &weights, allocate(bytes), bytes, NULL);
    }
    if (status == AOTC_OK) {
        cost_begin();
        status = AOTC_NAME(run_buffers)(&context, syms, ins, outs);
        cost_end();
    }
    if (status != AOTC_OK) {
        fprintf(stderr, "%s\n", AOTC_NAME(strerror)(status));
    }
    return status == AOTC_OK ? 0 : 1;
}
