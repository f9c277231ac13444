/* right_kernels.cu: kernels by hand that use everything the simulator knows, all of them right. */
#include "aotc_cuda.h"

/* ------------------------------------------------------------ C = A * B, tiles of 64x64x16 */

/* 256 threads, 4x4 elements each; B's tiles come by cp.async, one ahead. */
__global__ void __launch_bounds__(256) sgemm(int m, int n, int k, const float *__restrict__ a,
                                             const float *__restrict__ b, float *__restrict__ c)
{
    AOTC_DYN_SMEM(unsigned char, smem);
    const aotc_shared<float> a_tile = aotc_slice<float>(smem, 0, 16 * 68);
    const aotc_shared<float> b_tiles = aotc_slice<float>(smem, 16 * 68 * 4, 2 * 16 * 64);
    const int t = (int)threadIdx.x, row0 = (int)blockIdx.y * 64, col0 = (int)blockIdx.x * 64;
    const int br = t / 16, bc = t % 16 * 4;
    float acc[4][4] = {};
    aotc_cp_async16(b_tiles + br * 64 + bc, b + (size_t)br * n + col0 + bc, br < k);
    aotc_cp_commit();
    for (int k0 = 0, stage = 0; k0 < k; k0 += 16, stage ^= 1) {
        for (int i = t; i < 64 * 16; i += 256) {
            const int row = row0 + i / 16, kk = k0 + i % 16;
            a_tile[i % 16 * 68 + i / 16] = row < m && kk < k ? a[(size_t)row * k + kk] : 0.0f;
        }
        const int next = k0 + 16 + br;
        if (k0 + 16 < k) {
            aotc_cp_async16(b_tiles + (stage ^ 1) * 1024 + br * 64 + bc,
                            b + (size_t)next * n + col0 + bc, next < k);
            aotc_cp_commit();
            aotc_cp_wait<1>();
        } else {
            aotc_cp_wait<0>();
        }
        aotc_syncthreads();
        for (int kk = 0; kk < 16; kk++) {
            const aotc_f32x4 av = aotc_load4(a_tile + kk * 68 + t / 16 * 4);
            const aotc_f32x4 bv = aotc_load4(b_tiles + stage * 1024 + kk * 64 + t % 16 * 4);
            const float as[4] = {av.x, av.y, av.z, av.w}, bs[4] = {bv.x, bv.y, bv.z, bv.w};
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++)
                    acc[i][j] += as[i] * bs[j];
        }
        aotc_syncthreads();
    }
    for (int i = 0; i < 4; i++) {
        const int row = row0 + t / 16 * 4 + i, col = col0 + t % 16 * 4;
        if (row < m)
            aotc_store4(c + (size_t)row * n + col,
                        {acc[i][0], acc[i][1], acc[i][2], acc[i][3]});
    }
}

/* ------------------------------------------------------------------ the same on tensor cores */

/* 64x64x32 tiles of halves, four warps of 32x32; extents are multiples of the tile. */
__global__ void __launch_bounds__(128) hgemm(int n, int k, const float *__restrict__ a,
                                             const float *__restrict__ b, float *__restrict__ c)
{
    AOTC_STATIC_SMEM(aotc_half, a_tile, 64 * 40);
    AOTC_STATIC_SMEM(aotc_half, b_tile, 32 * 72);
    const int t = (int)threadIdx.x, lane = t % 32, wm = t / 64 * 32, wn = t / 32 % 2 * 32;
    const int row0 = (int)blockIdx.y * 64, col0 = (int)blockIdx.x * 64;
    float acc[2][4][4] = {};
    for (int k0 = 0; k0 < k; k0 += 32) {
        for (int i = t; i < 64 * 32; i += 128) {
            a_tile[i / 32 * 40 + i % 32] =
                aotc_to_half(a[(size_t)(row0 + i / 32) * k + k0 + i % 32]);
            b_tile[i / 64 * 72 + i % 64] =
                aotc_to_half(b[(size_t)(k0 + i / 64) * n + col0 + i % 64]);
        }
        aotc_syncthreads();
        for (int kk = 0; kk < 32; kk += 16) {
            uint32_t af[2][4], bf[2][4];
            for (int i = 0; i < 2; i++) {
                const int row = lane % 16, column = lane / 16 * 8;
                aotc_ldmatrix_x4(af[i], a_tile + (wm + i * 16 + row) * 40 + kk + column);
                aotc_ldmatrix_x4_trans(bf[i], b_tile + (kk + row) * 72 + wn + i * 16 + column);
            }
            for (int i = 0; i < 2; i++)
                for (int j = 0; j < 4; j++)
                    aotc_mma_m16n8k16_f16f32(acc[i][j], af[i], bf[j / 2][j % 2 * 2],
                                             bf[j / 2][j % 2 * 2 + 1]);
        }
        aotc_syncthreads();
    }
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 4; j++)
            for (int e = 0; e < 4; e++) {
                const int row = row0 + wm + i * 16 + lane / 4 + e / 2 * 8;
                c[(size_t)row * n + col0 + wn + j * 8 + lane % 4 * 2 + e % 2] = acc[i][j][e];
            }
}

/* ------------------------------------------------------------------ softmax of rows */

__device__ inline float warp_max(float x)
{
    for (int d = 16; d > 0; d /= 2)
        x = fmaxf(x, aotc_shfl_xor(x, d));
    return x;
}

__device__ inline float warp_sum(float x)
{
    for (unsigned d = 16; d > 0; d /= 2)
        x += aotc_shfl_down(x, d);
    return aotc_shfl_idx(x, 0);
}

/* One block of 128 threads per row: shuffles within the warps, shared memory between them. */
__global__ void softmax(int n, const float *__restrict__ x, float *__restrict__ y)
{
    AOTC_STATIC_SMEM(float, partial, 4);
    const int t = (int)threadIdx.x;
    const float *const xs = x + (size_t)blockIdx.x * n;
    float *const ys = y + (size_t)blockIdx.x * n;
    float most = -INFINITY, sum = 0.0f;
    for (int i = t; i < n; i += 128)
        most = fmaxf(most, xs[i]);
    most = warp_max(most);
    if (t % 32 == 0)
        partial[t / 32] = most;
    aotc_syncthreads();
    most = fmaxf(fmaxf(partial[0], partial[1]), fmaxf(partial[2], partial[3]));
    aotc_syncthreads();
    for (int i = t; i < n; i += 128)
        sum += ys[i] = expf(xs[i] - most);
    sum = warp_sum(sum);
    if (t % 32 == 0)
        partial[t / 32] = sum;
    aotc_syncthreads();
    sum = partial[0] + partial[1] + partial[2] + partial[3];
    for (int i = t; i < n; i += 128)
        ys[i] /= sum;
}

/* ------------------------------------------------------------------ small things */

/* A 2-D block reverses its elements through shared memory, lanes exchanging under aotc_syncwarp;
 * counts those above zero by ballots and an atomic. */
__global__ void reverse(const float *__restrict__ x, float *__restrict__ y, int *positive)
{
    AOTC_DYN_SMEM(float, buffer);
    const int t = (int)(threadIdx.y * blockDim.x + threadIdx.x);
    const int size = (int)(blockDim.x * blockDim.y);
    const unsigned above = aotc_ballot(x[t] > 0.0f);
    buffer[t] = x[t];
    aotc_syncwarp();
    const float partner = buffer[t ^ 1];
    aotc_syncwarp();
    buffer[t] = partner; /* neighbours have changed places */
    aotc_syncthreads();
    y[t] = buffer[size - 1 - t];
    if (t % 32 == 0) {
        int count = 0;
        for (unsigned bits = above; bits != 0; bits &= bits - 1)
            count++;
        atomicAdd(positive, count);
    }
}

/* Every float through half precision and back. */
__global__ void through_half(int n, const float *x, float *y)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        y[i] = aotc_from_half(aotc_to_half(x[i]));
}

/* Block and grid indices in three dimensions. */
__global__ void indices(int *y)
{
    const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
    const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    const unsigned t = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    y[block * threads + t] = (int)(block * threads + t);
}

/* Where each block and thread came in the order of turns. */
__global__ void turns(int *next, int *y)
{
    y[blockIdx.x * blockDim.x + threadIdx.x] = atomicAdd(next, 1);
}

/* ------------------------------------------------------------------ entries for the tests */

extern "C" int run_sgemm(int m, int n, int k, const float *a, const float *b, float *c)
{
    AOTC_LAUNCH(sgemm, dim3((unsigned)n / 64, (unsigned)(m + 63) / 64), dim3(256),
                16 * 68 * 4 + 2 * 16 * 64 * 4, nullptr, m, n, k, a, b, c);
    return (int)cudaGetLastError();
}

extern "C" int run_hgemm(int m, int n, int k, const float *a, const float *b, float *c)
{
    AOTC_LAUNCH(hgemm, dim3((unsigned)n / 64, (unsigned)m / 64), dim3(128), 0, nullptr, n, k, a, b,
                c);
    return (int)cudaGetLastError();
}

extern "C" int run_softmax(int rows, int n, const float *x, float *y)
{
    AOTC_LAUNCH(softmax, dim3((unsigned)rows), dim3(128), 0, nullptr, n, x, y);
    return (int)cudaGetLastError();
}

extern "C" int run_reverse(int n, const float *x, float *y, int *positive)
{
    AOTC_LAUNCH(reverse, 1, dim3((unsigned)n / 4, 4), (size_t)n * 4, nullptr, x, y, positive);
    return (int)cudaGetLastError();
}

extern "C" int run_through_half(int n, const float *x, float *y)
{
    AOTC_LAUNCH(through_half, (unsigned)(n + 255) / 256, 256, 0, nullptr, n, x, y);
    return (int)cudaGetLastError();
}

extern "C" int run_indices(int *y)
{
    AOTC_LAUNCH(indices, dim3(2, 3, 4), dim3(8, 2, 4), 0, nullptr, y);
    return (int)cudaGetLastError();
}

extern "C" int run_turns(int *next, int *y)
{
    AOTC_LAUNCH(turns, 6, 64, 0, nullptr, next, y);
    return (int)cudaGetLastError();
}
