/* planted_bugs.cu: small kernels with one mistake each, which the simulator must report, and the
 * same without it.  BUG is a template argument, so that both share every other line. */
#include "aotc_cuda.h"

/* Neighbours exchange through shared memory. */
template <bool BUG>
__global__ void missing_barrier(const float *x, float *y)
{
    AOTC_STATIC_SMEM(float, s, 64);
    const int t = (int)threadIdx.x;
    s[t] = x[t];
    if (!BUG)
        aotc_syncthreads();
    y[t] = s[63 - t];
}

/* A buffer is filled again while others may still be reading it. */
template <bool BUG>
__global__ void missing_second_barrier(const float *x, float *y)
{
    AOTC_STATIC_SMEM(float, s, 64);
    const int t = (int)threadIdx.x;
    float sum = 0.0f;
    for (int round = 0; round < 3; round++) {
        s[t] = x[t] * (float)round;
        aotc_syncthreads();
        sum += s[63 - t];
        if (!BUG)
            aotc_syncthreads();
    }
    y[t] = sum;
}

/* Lanes of one warp exchange. */
template <bool BUG>
__global__ void missing_warp_barrier(const float *x, float *y)
{
    AOTC_STATIC_SMEM(float, s, 64);
    const int t = (int)threadIdx.x;
    s[t] = x[t];
    if (!BUG)
        aotc_syncwarp();
    y[t] = s[t ^ 1];
}

template <bool BUG>
__global__ void missing_wait(const float *x, float *y)
{
    AOTC_STATIC_SMEM(float, s, 256);
    const int t = (int)threadIdx.x;
    aotc_cp_async16(s + 4 * t, x + 4 * t);
    aotc_cp_commit();
    if (!BUG)
        aotc_cp_wait<0>();
    aotc_syncthreads();
    y[t] = s[t];
}

/* The second copy stops in its midst; what it has marked by then is nothing to the next launch. */
template <bool BUG>
__global__ void overlapping_copies(const float *x, float *y)
{
    AOTC_STATIC_SMEM(float, s, 256);
    const int t = (int)threadIdx.x;
    if (BUG)
        aotc_cp_async4(s + 4 * t + 2, x + t);
    aotc_cp_async16(s + 4 * t, x + 4 * t);
    aotc_cp_commit();
    aotc_cp_wait<0>();
    aotc_syncthreads();
    y[t] = s[t];
}

/* Double buffering that waits for one group too few. */
template <bool BUG>
__global__ void wait_for_the_wrong_group(const float *x, float *y)
{
    AOTC_STATIC_SMEM(float, s, 128);
    const int t = (int)threadIdx.x;
    for (int i = 0; i < 2; i++) {
        aotc_cp_async4(s + 64 * i + t, x + 64 * i + t);
        aotc_cp_commit();
    }
    aotc_cp_wait<BUG ? 1 : 0>();
    aotc_syncthreads();
    y[t] = s[64 + t];
}

template <bool BUG>
__global__ void uninitialised_read(const float *x, float *y)
{
    AOTC_STATIC_SMEM(float, s, 65);
    const int t = (int)threadIdx.x;
    s[t] = x[t];
    if (!BUG && t == 0)
        s[64] = 0.0f;
    aotc_syncthreads();
    y[t] = s[t + 1];
}

/* What an earlier block left in shared memory does not count. */
template <bool BUG>
__global__ void left_by_another_block(const float *x, float *y)
{
    AOTC_DYN_SMEM(float, s);
    const int t = (int)threadIdx.x;
    if (!BUG || blockIdx.x == 0)
        s[t] = x[t];
    aotc_syncthreads();
    y[t] = s[t];
}

template <bool BUG>
__global__ void divergent_barrier(const float *x, float *y)
{
    AOTC_STATIC_SMEM(float, s, 64);
    const int t = (int)threadIdx.x;
    s[t] = x[t];
    if (!BUG || t < 32)
        aotc_syncthreads();
    y[t] = s[t];
}

/* All threads come to a barrier, but to different ones. */
template <bool BUG>
__global__ void two_barriers(const float *x, float *y)
{
    const int t = (int)threadIdx.x;
    if (t < 32 || !BUG)
        aotc_syncthreads();
    else
        aotc_syncthreads();
    y[t] = x[t];
}

template <bool BUG>
__global__ void out_of_bounds(const float *x, float *y)
{
    AOTC_DYN_SMEM(unsigned char, smem);
    const aotc_shared<float> s = aotc_slice<float>(smem, 0, 64);
    const aotc_shared<float> other = aotc_slice<float>(smem, 256, 64);
    const int t = (int)threadIdx.x;
    other[t] = 0.0f;
    s[t] = x[t];
    y[t] = s[BUG ? t + t / 63 : t];
}

template <bool BUG>
__global__ void misaligned_vector(const float *x, float *y)
{
    AOTC_STATIC_SMEM(float, s, 68);
    const int t = (int)threadIdx.x;
    s[t] = x[t];
    if (t < 4)
        s[64 + t] = 0.0f;
    aotc_syncthreads();
    y[t] = aotc_load4(s + t / 4 * 4 + (BUG ? 1 : 0)).x;
}

template <bool BUG>
__global__ void missing_lanes(const float *x, float *y)
{
    const int t = (int)threadIdx.x;
    float v = x[t];
    if (!BUG || t % 32 < 16)
        v += aotc_shfl_xor(v, 1);
    y[t] = v;
}

template <bool BUG>
__global__ void early_exit(const float *x, float *y)
{
    const int t = (int)threadIdx.x;
    if (BUG && t == 40)
        return;
    y[t] = (float)aotc_ballot(x[t] > 0.0f);
}

template <bool BUG>
__global__ void past_the_end(const float *x, float *y)
{
    const int t = (int)threadIdx.x;
    y[t] = x[t + (BUG ? 960 : 0)]; /* x has 1000 elements */
}

template <bool BUG>
__global__ void null_pointer(const float *x, float *y)
{
    const float *volatile null = nullptr; /* volatile: compilers must not know */
    y[threadIdx.x] = (BUG ? null : x)[threadIdx.x];
}

template <bool BUG>
__global__ void division_by_zero(const float *x, float *y)
{
    const int t = (int)threadIdx.x;
    y[t] = (float)(100 / (BUG ? t - 5 : t + 1)) + x[t];
}

#define CASE(kernel)                                                               \
    if (strcmp(name, #kernel) == 0) {                                              \
        if (bug)                                                                   \
            AOTC_LAUNCH(kernel<true>, blocks, threads, smem_bytes, nullptr, x, y);  \
        else                                                                       \
            AOTC_LAUNCH(kernel<false>, blocks, threads, smem_bytes, nullptr, x, y); \
        return (int)cudaGetLastError();                                            \
    }

extern "C" int run(const char *name, int bug, unsigned blocks, unsigned threads,
                   size_t smem_bytes, const float *x, float *y)
{
    CASE(missing_barrier)
    CASE(missing_second_barrier)
    CASE(missing_warp_barrier)
    CASE(missing_wait)
    CASE(wait_for_the_wrong_group)
    CASE(overlapping_copies)
    CASE(uninitialised_read)
    CASE(left_by_another_block)
    CASE(divergent_barrier)
    CASE(two_barriers)
    CASE(out_of_bounds)
    CASE(misaligned_vector)
    CASE(missing_lanes)
    CASE(early_exit)
    CASE(past_the_end)
    CASE(null_pointer)
    CASE(division_by_zero)
    return -1;
}

extern "C" int allow_smem(size_t bytes)
{
    AOTC_ALLOW_SMEM(left_by_another_block<false>, bytes);
    return (int)cudaGetLastError();
}
