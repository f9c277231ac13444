/* A bundle's own test: recorded inputs give the recorded outputs, the same bits on any number of
 * threads.  A bundle's copy starts with the lines that set AOTC_NAME and AOTC_HEADER.
 *
 *     test_NAME WEIGHTS RECORDING             compare with the recorded outputs
 *     test_NAME WEIGHTS RECORDING OUTPUTS     write the outputs there instead
 *
 * An OUTPUTS file holds every output's extents (i64 each), then its elements.
 * WEIGHTS is NAME_weights.bin, or - for the image that is linked in.
 *
 * The recording: magic "AOTCTST1", u64 count, then per run the dimensions (i64 each), the inputs
 * and the outputs, raw and in order.  Without recorded runs the inputs are zeros at the smallest
 * dimensions, and only the status and the bits across thread counts are compared.
 * AOTC_SHARED: for every output the input in whose buffer it lies, or -1.
 * AOTC_ON_DEVICE: the bundle runs on a GPU, whose memory tensors are copied to and from. */
#include "aotc_os.h"

#include AOTC_HEADER

#include "aotc_num.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RELATIVE 1e-3    /* of the expected value */
#ifdef AOTC_LOW_PRECISION
#define OF_THE_LARGEST 3e-2 /* of the largest expected value in the tensor */
#else
#define OF_THE_LARGEST 1e-4
#endif
#define HALF_RELATIVE 4e-3  /* both, in half precision: each operator rounds */
#define ABSOLUTE 1e-6

static const int thread_counts[] = {1, 2, 5};
enum { MAX_RANK = 64, THREAD_COUNTS = sizeof thread_counts / sizeof thread_counts[0] };

typedef struct tensor {
    const aotc_tensor_info *info;
    size_t elements;
    size_t bytes;
    unsigned char *data;
} tensor;

static size_t dtype_bytes(aotc_dtype dtype)
{
    static const size_t sizes[] = {8, 4, 8, 4, 2, 1, 8, 4, 2, 1, 1, 2};
    return sizes[dtype];
}

static void *allocate(size_t bytes)
{
    void *p = aotc_allocate(bytes);
    if (p == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(2);
    }
    return p;
}

static unsigned char *read_file(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    long size = -1;
    if (file != NULL && fseek(file, 0, SEEK_END) == 0) {
        size = ftell(file);
    }
    if (size < 0 || fseek(file, 0, SEEK_SET) != 0) {
        fprintf(stderr, "%s: cannot be read\n", path);
        exit(2);
    }
    unsigned char *data = allocate((size_t)size);
    *bytes = fread(data, 1, (size_t)size, file);
    fclose(file);
    return data;
}

/* The next bytes of the recording; ends the program if it is too short. */
static const unsigned char *take(const unsigned char **at, size_t *left, size_t bytes)
{
    const unsigned char *p = *at;
    if (bytes > *left) {
        fprintf(stderr, "the recording is too short\n");
        exit(2);
    }
    *at += bytes;
    *left -= bytes;
    return p;
}

static tensor make_tensor(const aotc_tensor_info *info, const int64_t *shape)
{
    tensor t = {info, 1, 0, NULL};
    for (int32_t i = 0; i < info->rank; i++) {
        t.elements *= (size_t)shape[i];
    }
    t.bytes = t.elements * dtype_bytes(info->dtype);
    t.data = allocate(t.bytes);
    memset(t.data, 0, t.bytes);
    return t;
}

static double element(const void *data, aotc_dtype dtype, size_t i)
{
    const unsigned char *at = (const unsigned char *)data + i * dtype_bytes(dtype);
    double x;
    float y;
    uint16_t bits;
    if (dtype == AOTC_F64) {
        memcpy(&x, at, sizeof x);
        return x;
    }
    if (dtype == AOTC_F16) {
        memcpy(&bits, at, sizeof bits);
        return (double)aotc_f16_to_f32(bits);
    }
    memcpy(&y, at, sizeof y);
    return (double)y;
}

/* 1 if got is close enough to want; prints the largest error. */
static int compare(const tensor *got, const unsigned char *want)
{
    const aotc_dtype dtype = got->info->dtype;
    double largest = 0, worst = 0;
    size_t bad = 0;
    const double relative = dtype == AOTC_F16 ? HALF_RELATIVE : RELATIVE;
    const double of_largest = dtype == AOTC_F16 ? HALF_RELATIVE : OF_THE_LARGEST;
    if (dtype != AOTC_F64 && dtype != AOTC_F32 && dtype != AOTC_F16) {
        bad = memcmp(got->data, want, got->bytes) != 0;
        printf("  %s: %s\n", got->info->name, bad ? "DIFFERS" : "equal");
        return bad == 0;
    }
    for (size_t i = 0; i < got->elements; i++) {
        const double w = fabs(element(want, dtype, i));
        largest = isfinite(w) && w > largest ? w : largest;
    }
    for (size_t i = 0; i < got->elements; i++) {
        const double g = element(got->data, dtype, i), w = element(want, dtype, i);
        const double error = fabs(g - w);
        if (g == w || (isnan(g) && isnan(w))) {
            continue;
        }
        worst = error > worst ? error : worst;
        bad += !(error <= ABSOLUTE + of_largest * largest + relative * fabs(w));
    }
    printf("  %s: max error %.3g, largest value %.3g, %zu of %zu elements wrong\n",
           got->info->name, worst, largest, bad, got->elements);
    return bad == 0;
}

typedef struct call {
    const int64_t *syms;
    tensor *in;
    tensor *out;
    int ins;
    int outs;
} call;

#if defined(AOTC_ON_DEVICE)

/* Device memory with a copy of n tensors (outputs: of what must not survive). */
static aotc_status to_device(void **device, const tensor *t, int n, int output)
{
    aotc_status status = AOTC_OK;
    for (int i = 0; i < n && status == AOTC_OK; i++) {
        if (output) {
            memset(t[i].data, 0xAA, t[i].bytes);
        }
        status = AOTC_NAME(device_alloc)(&device[i], t[i].bytes + 1);
        if (status == AOTC_OK) {
            status = AOTC_NAME(copy_in)(device[i], t[i].data, t[i].bytes, NULL);
        }
    }
    return status;
}

static aotc_status run_once(const call *c, const aotc_weights *w, int threads)
{
    void *ins[AOTC_INPUTS + 1] = {NULL}, *outs[AOTC_OUTPUTS + 1] = {NULL};
    AOTC_NAME(context) context;
    aotc_status status = AOTC_NAME(create)(&context, w);
    (void)threads; /* as many as the GPU has */
    if (status == AOTC_OK) {
        status = to_device(ins, c->in, c->ins, 0);
    }
    if (status == AOTC_OK) {
        status = to_device(outs, c->out, c->outs, 1);
    }
    if (status == AOTC_OK) {
        status = AOTC_NAME(run_buffers)(&context, c->syms, (const void *const *)ins, outs, NULL);
    }
    if (status == AOTC_OK) {
        status = AOTC_NAME(check)(&context, NULL);
    }
    for (int i = 0; i < c->outs && status == AOTC_OK; i++) {
        status = AOTC_NAME(copy_out)(c->out[i].data, outs[i], c->out[i].bytes, NULL);
    }
    if (status == AOTC_OK) {
        status = AOTC_NAME(synchronize)(NULL);
    }
    if (status != AOTC_OK) {
        printf("  %s: %s\n", AOTC_NAME(strerror)(status), AOTC_NAME(detail)(&context));
    }
    for (int i = 0; i < c->ins; i++) {
        AOTC_NAME(device_free)(ins[i]);
    }
    for (int i = 0; i < c->outs; i++) {
        AOTC_NAME(device_free)(outs[i]);
    }
    AOTC_NAME(destroy)(&context);
    return status;
}

#else

static aotc_status run_once(const call *c, const aotc_weights *w, int threads)
{
    const void **ins = allocate(sizeof *ins * (size_t)c->ins);
    void **outs = allocate(sizeof *outs * (size_t)c->outs);
    const size_t bytes = AOTC_NAME(arena_size_of)(c->syms, threads);
    void *arena = allocate(bytes);
    aotc_context context;
    aotc_pool pool;
    for (int i = 0; i < c->ins; i++) {
        ins[i] = c->in[i].data;
    }
    for (int i = 0; i < c->outs; i++) {
        memset(c->out[i].data, 0xAA, c->out[i].bytes);
        outs[i] = c->out[i].data;
    }
#if defined(AOTC_SHARED)
    static const int shared[] = {AOTC_SHARED};
    for (int i = 0; i < c->outs; i++) {
        if (shared[i] >= 0) { /* every run works on a copy of what is recorded */
            memcpy(outs[i], ins[shared[i]], c->out[i].bytes);
            ins[shared[i]] = outs[i];
        }
    }
#endif
    memset(arena, 0xFF, bytes); /* NaN: what is read before it is written shows */
    aotc_status status = AOTC_NAME(pool_create)(&pool, threads);
    if (status == AOTC_OK) {
        status = AOTC_NAME(init)(&context, w, arena, bytes, &pool);
        if (status == AOTC_OK) {
            status = AOTC_NAME(run_buffers)(&context, c->syms, ins, outs);
        }
        if (status != AOTC_OK) {
            printf("  %s: %s\n", AOTC_NAME(strerror)(status), AOTC_NAME(detail)(&context));
        }
        AOTC_NAME(pool_destroy)(&pool);
    }
    aotc_free(arena);
    aotc_free(outs);
    aotc_free(ins);
    return status;
}

#endif

/* Runs with every number of threads; 1 if all give the same bits, which stay in c->out. */
static int run_all(const call *c, const aotc_weights *w)
{
    int good = run_once(c, w, thread_counts[0]) == AOTC_OK;
    for (int k = 1; k < THREAD_COUNTS && good; k++) {
        call again = *c;
        again.out = allocate(sizeof *again.out * (size_t)c->outs);
        for (int i = 0; i < c->outs; i++) {
            again.out[i] = c->out[i];
            again.out[i].data = allocate(c->out[i].bytes);
        }
        good = run_once(&again, w, thread_counts[k]) == AOTC_OK;
        for (int i = 0; i < c->outs; i++) {
            if (good && memcmp(c->out[i].data, again.out[i].data, c->out[i].bytes) != 0) {
                printf("  %s: other bits with %d threads\n", c->out[i].info->name,
                       thread_counts[k]);
                good = 0;
            }
            aotc_free(again.out[i].data);
        }
        aotc_free(again.out);
    }
    return good;
}

/* The recording being read, and where outputs go if they are written instead of compared. */
typedef struct recording {
    const unsigned char *at;
    size_t left;
    int has_runs;
    FILE *outputs;
} recording;

/* Make the inputs and outputs for these dimensions; 0 if they are outside their range. */
static int make_tensors(call *c, recording *r)
{
    int64_t shape[MAX_RANK];
    for (int i = 0; i < c->ins; i++) {
        if (AOTC_NAME(input_shape)(i, c->syms, shape) != AOTC_OK) {
            return 0;
        }
        c->in[i] = make_tensor(&AOTC_NAME(inputs)()[i], shape);
        if (r->has_runs) {
            memcpy(c->in[i].data, take(&r->at, &r->left, c->in[i].bytes), c->in[i].bytes);
        }
    }
    for (int i = 0; i < c->outs; i++) {
        if (AOTC_NAME(output_shape)(i, c->syms, shape) != AOTC_OK) {
            return 0;
        }
        c->out[i] = make_tensor(&AOTC_NAME(outputs)()[i], shape);
    }
    return 1;
}

/* Extents and elements of one output to the file; 0 if they cannot be written. */
static int write_output(const call *c, int i, FILE *file)
{
    int64_t shape[MAX_RANK];
    const size_t rank = (size_t)c->out[i].info->rank;
    return AOTC_NAME(output_shape)(i, c->syms, shape) == AOTC_OK &&
           fwrite(shape, sizeof shape[0], rank, file) == rank &&
           fwrite(c->out[i].data, 1, c->out[i].bytes, file) == c->out[i].bytes;
}

static int test_run(const aotc_weights *w, const int64_t *syms, recording *r)
{
    tensor in[AOTC_INPUTS + 1], out[AOTC_OUTPUTS + 1];
    call c = {syms, in, out, AOTC_INPUTS, AOTC_OUTPUTS};
    if (!make_tensors(&c, r)) {
        printf("  the recorded dimensions are outside their range\n");
        return 0;
    }
    int good = r->outputs != NULL ? run_once(&c, w, 1) == AOTC_OK : run_all(&c, w);
    for (int i = 0; i < AOTC_OUTPUTS; i++) {
        if (r->outputs != NULL) {
            good = good && write_output(&c, i, r->outputs);
        } else if (r->has_runs) {
            const unsigned char *want = take(&r->at, &r->left, out[i].bytes);
            good = good && compare(&out[i], want);
        }
        aotc_free(out[i].data);
    }
    for (int i = 0; i < AOTC_INPUTS; i++) {
        aotc_free(in[i].data);
    }
    return good;
}

static int test_recording(const aotc_weights *w, recording *r)
{
    static const int64_t smallest[] = {AOTC_SMALLEST};
    int64_t syms[AOTC_SYMBOLS + 1] = {0};
    const size_t bytes = sizeof syms - sizeof syms[0];
    uint64_t count = 0;
    int good = 1;
    if (memcmp(take(&r->at, &r->left, 8), "AOTCTST1", 8) != 0) {
        fprintf(stderr, "not a recording\n");
        return 0;
    }
    memcpy(&count, take(&r->at, &r->left, sizeof count), sizeof count);
    r->has_runs = count != 0;
    for (uint64_t k = 0; k < count; k++) {
        printf("run %" PRIu64 "\n", k);
        memcpy(syms, take(&r->at, &r->left, bytes), bytes);
        good = test_run(w, syms, r) && good;
    }
    if (count == 0) {
        printf("run with zeros (nothing was recorded)\n");
        good = test_run(w, smallest, r);
    }
    return good && r->left == 0;
}

int main(int argc, char **argv)
{
    aotc_weights w;
    size_t bytes = 0;
    if (argc != 3 && argc != 4) {
        fprintf(stderr, "usage: %s WEIGHTS|- RECORDING [OUTPUTS]\n", argv[0]);
        return 2;
    }
    const aotc_status status = strcmp(argv[1], "-") == 0 ? AOTC_NAME(weights_embedded)(&w)
                                                         : AOTC_NAME(weights_open)(&w, argv[1]);
    if (status != AOTC_OK) {
        fprintf(stderr, "%s: %s\n", argv[1], AOTC_NAME(strerror)(status));
        return 1;
    }
    unsigned char *data = read_file(argv[2], &bytes);
    recording r = {data, bytes, 0, argc == 4 ? fopen(argv[3], "wb") : NULL};
    if (argc == 4 && r.outputs == NULL) {
        fprintf(stderr, "%s: cannot be written\n", argv[3]);
        return 2;
    }
    int good = test_recording(&w, &r);
    if (r.outputs != NULL) {
        good = fclose(r.outputs) == 0 && good;
    }
    aotc_free(data);
    AOTC_NAME(weights_close)(&w);
    printf("%s\n", good ? "passed" : "FAILED");
    return good ? 0 : 1;
}
