/* A bundle's own test on a board without an operating system.  A bundle's copy starts with the
 * lines that set AOTC_NAME and AOTC_HEADER.
 *
 * Where the folder it runs in has a file "inputs", its runs are called and the outputs written to
 * the file "outputs"; else those of AOTC_RECORDING are called and compared with the outputs that
 * it holds.  Both are laid out as aotc_test.c says.  Of the last run it prints the instructions and
 * the bytes of stack. */
#include AOTC_HEADER
#include "aotc_board.h"

#define RELATIVE 1e-3f /* of the expected value */
#ifdef AOTC_LOW_PRECISION
#define OF_THE_LARGEST 3e-2f /* of the largest expected value in the tensor */
#else
#define OF_THE_LARGEST 1e-4f
#endif
#define ABSOLUTE 1e-6f

enum { MAX_RANK = 64, STACK = 16384, STACK_WORDS = STACK / 4 };
static const uint32_t unused_stack = 0xA5C35AE7u;

typedef struct tensor {
    const aotc_tensor_info *info;
    uint32_t elements;
    uint32_t bytes;
    unsigned char *data;
} tensor;

typedef struct recording {
    const unsigned char *at;
    uint32_t left;
    int has_outputs;
    int32_t outputs; /* a file, or -1 */
} recording;

static unsigned char *heap;

static _Noreturn void stop(const char *why)
{
    board_print(why);
    board_print("\n");
    board_exit(1);
}

static void *allocate(uint32_t bytes)
{
    const uintptr_t at = ((uintptr_t)heap + AOTC_ALIGNMENT - 1) / AOTC_ALIGNMENT * AOTC_ALIGNMENT;
    if (bytes > (uintptr_t)heap_end - at) {
        stop("the board's memory is too small for the tensors, the arena and the recording");
    }
    heap = (unsigned char *)(at + bytes);
    return (void *)at;
}

static uint32_t dtype_bytes(aotc_dtype dtype)
{
    static const uint8_t sizes[] = {8, 4, 8, 4, 2, 1, 8, 4, 2, 1, 1, 2};
    return sizes[dtype];
}

static const unsigned char *take(recording *r, uint32_t bytes)
{
    const unsigned char *p = r->at;
    if (bytes > r->left) {
        stop("the recording is too short");
    }
    r->at += bytes;
    r->left -= bytes;
    return p;
}

static tensor make_tensor(const aotc_tensor_info *info, const int64_t *shape)
{
    tensor t = {info, 1, 0, NULL};
    for (int32_t i = 0; i < info->rank; i++) {
        t.elements *= (uint32_t)shape[i];
    }
    t.bytes = t.elements * dtype_bytes(info->dtype);
    t.data = allocate(t.bytes + 1);
    return t;
}

static float magnitude(float x)
{
    return x < 0 ? -x : x;
}

static float element(const unsigned char *data, uint32_t i)
{
    float x;
    memcpy(&x, data + 4 * i, 4);
    return x;
}

/* 1 if got is close enough to want; says how many elements are not. */
static int compare(const tensor *got, const unsigned char *want)
{
    uint32_t bad = 0;
    float largest = 0;
    board_print("  ");
    board_print(got->info->name);
    if (got->info->dtype != AOTC_F32) {
        bad = memcmp(got->data, want, got->bytes) != 0;
        board_print(bad != 0 ? ": DIFFERS\n" : ": equal\n");
        return bad == 0;
    }
    for (uint32_t i = 0; i < got->elements; i++) {
        const float w = magnitude(element(want, i));
        largest = w > largest && w < __builtin_inff() ? w : largest;
    }
    for (uint32_t i = 0; i < got->elements; i++) {
        const float g = element(got->data, i), w = element(want, i);
        const float most = ABSOLUTE + OF_THE_LARGEST * largest + RELATIVE * magnitude(w);
        bad += !(g == w || (g != g && w != w) || magnitude(g - w) <= most);
    }
    board_print(": ");
    board_number(bad);
    board_print(" of ");
    board_number(got->elements);
    board_print(" elements wrong\n");
    return bad == 0;
}

/* Fills what is not used of the stack, and tells later how much of it was. */
static uint32_t *stack_end;

static __attribute__((noinline)) void paint_stack(void)
{
    uint32_t *const top = __builtin_frame_address(0);
    stack_end = top - STACK_WORDS;
    for (uint32_t *p = stack_end; p < top - 64; p++) {
        BOARD_KEEP(p);
        *p = unused_stack;
    }
}

static __attribute__((noinline)) uint32_t used_stack(void)
{
    const uint32_t *p = stack_end;
    while (p < stack_end + STACK_WORDS && *p == unused_stack) {
        p++;
    }
    return 4 * (uint32_t)(stack_end + STACK_WORDS - p);
}

static int call(const aotc_weights *w, const int64_t *syms, tensor *in, tensor *out)
{
    const void *ins[AOTC_INPUTS + 1];
    void *outs[AOTC_OUTPUTS + 1];
    const uint32_t bytes = (uint32_t)AOTC_NAME(arena_size_of)(syms, 1);
    void *const arena = allocate(bytes);
    aotc_context context;
    for (int i = 0; i < AOTC_INPUTS; i++) {
        ins[i] = in[i].data;
    }
    for (int i = 0; i < AOTC_OUTPUTS; i++) {
        memset(out[i].data, 0xAA, out[i].bytes);
        outs[i] = out[i].data;
    }
    memset(arena, 0xFF, bytes); /* NaN: what is read before it is written shows */
    aotc_status status = AOTC_NAME(init)(&context, w, arena, bytes, NULL);
    if (status == AOTC_OK) {
        paint_stack();
        board_start();
        status = AOTC_NAME(run_buffers)(&context, syms, ins, outs);
        const uint64_t instructions = board_count();
        board_print("  instructions ");
        board_number((uint32_t)instructions);
        board_print("\n  stack ");
        board_number(used_stack());
        board_print("\n");
    }
    if (status != AOTC_OK) {
        board_print(AOTC_NAME(strerror)(status));
        board_print(": ");
        board_print(AOTC_NAME(detail)(&context));
        board_print("\n");
    }
    return status == AOTC_OK;
}

/* Inputs and outputs of one run; 0 if its dimensions are outside their range. */
static int make_tensors(const int64_t *syms, tensor *in, tensor *out, recording *r)
{
    int64_t shape[MAX_RANK];
    for (int i = 0; i < AOTC_INPUTS; i++) {
        if (AOTC_NAME(input_shape)(i, syms, shape) != AOTC_OK) {
            return 0;
        }
        in[i] = make_tensor(&AOTC_NAME(inputs)()[i], shape);
        memcpy(in[i].data, take(r, in[i].bytes), in[i].bytes);
    }
    for (int i = 0; i < AOTC_OUTPUTS; i++) {
        if (AOTC_NAME(output_shape)(i, syms, shape) != AOTC_OK) {
            return 0;
        }
        out[i] = make_tensor(&AOTC_NAME(outputs)()[i], shape);
    }
    return 1;
}

static int write_output(const int64_t *syms, int i, const tensor *t, int32_t file)
{
    int64_t shape[MAX_RANK];
    const uint32_t rank = (uint32_t)t->info->rank;
    return AOTC_NAME(output_shape)(i, syms, shape) == AOTC_OK
           && board_move(SYS_WRITE, file, shape, rank * sizeof shape[0])
           && board_move(SYS_WRITE, file, t->data, t->bytes);
}

static int test_run(const aotc_weights *w, recording *r)
{
    int64_t syms[AOTC_SYMBOLS + 1] = {0};
    tensor in[AOTC_INPUTS + 1], out[AOTC_OUTPUTS + 1];
    unsigned char *const free_heap = heap;
    memcpy(syms, take(r, AOTC_SYMBOLS * sizeof syms[0]), AOTC_SYMBOLS * sizeof syms[0]);
    if (!make_tensors(syms, in, out, r)) {
        stop("the recorded dimensions are outside their range");
    }
    int good = call(w, syms, in, out);
    for (int i = 0; i < AOTC_OUTPUTS; i++) {
        if (r->outputs >= 0) {
            good = good && write_output(syms, i, &out[i], r->outputs);
        } else if (r->has_outputs) {
            const unsigned char *want = take(r, out[i].bytes);
            good = good && compare(&out[i], want);
        }
    }
    heap = free_heap;
    return good;
}

/* The file of that name, whole; NULL if there is none. */
static unsigned char *read_file(const char *path, uint32_t *bytes)
{
    const int32_t file = board_open(path, READ_BINARY);
    if (file < 0) {
        return NULL;
    }
    *bytes = board_file_bytes(file);
    unsigned char *data = allocate(*bytes);
    if (!board_move(SYS_READ, file, data, *bytes)) {
        stop("a file cannot be read");
    }
    board_close(file);
    return data;
}

int main(void)
{
    aotc_weights w;
    recording r = {NULL, 0, 0, -1};
    uint64_t count = 0;
    heap = (unsigned char *)heap_start;
    const aotc_status status = AOTC_NAME(weights_embedded)(&w);
    if (status != AOTC_OK) {
        stop(AOTC_NAME(strerror)(status));
    }
    r.at = read_file("inputs", &r.left);
    if (r.at != NULL) {
        r.outputs = board_open("outputs", WRITE_BINARY);
    } else {
        r.at = read_file(AOTC_RECORDING, &r.left);
        r.has_outputs = 1;
    }
    if (r.at == NULL || memcmp(take(&r, 8), "AOTCTST1", 8) != 0) {
        stop("no recording");
    }
    memcpy(&count, take(&r, sizeof count), sizeof count);
    int good = 1;
    for (uint64_t k = 0; k < count; k++) {
        board_print("run ");
        board_number((uint32_t)k);
        board_print("\n");
        good = test_run(&w, &r) && good;
    }
    if (r.outputs >= 0) {
        board_close(r.outputs);
    }
    good = good && r.left == 0;
    board_print(good ? "passed\n" : "FAILED\n");
    return good ? 0 : 1;
}
