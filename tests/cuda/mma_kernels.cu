/* mma_kernels.cu: the matrix instructions of aotc_cuda.h, each alone and in a product whose operands
 * come by cp.async and ldmatrix. */
#include "aotc_cuda.h"

/* ------------------------------------------------------------ one instruction of one warp */

/* Registers of lane l: a[4*l..], b[2*l..], c[4*l..]; c is the result, too. */
#define ONE(mma, sum) \
    __global__ void one_##mma(const uint32_t *a, const uint32_t *b, sum *c) \
    { \
        const int l = (int)threadIdx.x; \
        const uint32_t fa[4] = {a[4 * l], a[4 * l + 1], a[4 * l + 2], a[4 * l + 3]}; \
        sum fc[4] = {c[4 * l], c[4 * l + 1], c[4 * l + 2], c[4 * l + 3]}; \
        aotc_mma_##mma(fc, fa, b[2 * l], b[2 * l + 1]); \
        for (int i = 0; i < 4; i++) \
            c[4 * l + i] = fc[i]; \
    } \
    extern "C" int run_one_##mma(const uint32_t *a, const uint32_t *b, sum *c) \
    { \
        AOTC_LAUNCH(one_##mma, 1, 32, 0, nullptr, a, b, c); \
        return (int)cudaGetLastError(); \
    }
ONE(m16n8k16_f16f32, float)
ONE(m16n8k16_bf16f32, float)
ONE(m16n8k8_tf32f32, float)
ONE(m16n8k32_s8s8, int32_t)
ONE(m16n8k32_s8u8, int32_t)
ONE(m16n8k32_u8s8, int32_t)
ONE(m16n8k32_u8u8, int32_t)

/* Lane l's registers r[4*l..] of 32 rows of 16 bytes; trans: of the transposed tiles. */
template <class T, bool TRANS>
__global__ void matrices(const T *rows, uint32_t *r)
{
    enum : int { N = 16 / sizeof(T) };
    AOTC_STATIC_SMEM(T, tile, 32 * N);
    const int l = (int)threadIdx.x;
    uint32_t got[4];
    for (int i = 0; i < N; i++)
        tile[l * N + i] = rows[l * N + i];
    aotc_syncwarp();
    if constexpr (TRANS)
        aotc_ldmatrix_x4_trans(got, tile + l * N);
    else
        aotc_ldmatrix_x4(got, tile + l * N);
    for (int i = 0; i < 4; i++)
        r[4 * l + i] = got[i];
}

#define MATRICES(name, T, trans) \
    extern "C" int run_##name(const T *rows, uint32_t *r) \
    { \
        AOTC_LAUNCH((matrices<T, trans>), 1, 32, 0, nullptr, rows, r); \
        return (int)cudaGetLastError(); \
    }
MATRICES(matrices_8, uint8_t, false)
MATRICES(matrices_16, uint16_t, false)
MATRICES(matrices_32, float, false)
MATRICES(transposed_16, uint16_t, true)

/* ------------------------------------------------------------ C = A * B through shared memory */

/* What differs between operands: where they lie in global and in shared memory, and the sums. */
struct F16 {
    typedef uint16_t Stored;
    typedef aotc_half Shared;
    typedef float Sum;
};
struct Bf16 {
    typedef uint16_t Stored;
    typedef aotc_bf16 Shared;
    typedef float Sum;
};
struct Tf32 {
    typedef float Stored;
    typedef float Shared;
    typedef float Sum;
};
struct S8 {
    typedef int8_t Stored;
    typedef int8_t Shared;
    typedef int32_t Sum;
};

#define MULTIPLY(type, mma) \
    AOTC_DEVICE void multiply(type, type::Sum(&c)[4], const uint32_t (&a)[4], uint32_t b0, \
                              uint32_t b1) \
    { \
        aotc_mma_##mma(c, a, b0, b1); \
    }
MULTIPLY(F16, m16n8k16_f16f32)
MULTIPLY(Bf16, m16n8k16_bf16f32)
MULTIPLY(Tf32, m16n8k8_tf32f32)
MULTIPLY(S8, m16n8k32_s8s8)

/* Two warps, 16x16 of C each; a stage has 64 bytes of 32 rows of A and of 16 columns of B, which
 * lies by columns: b[n][k].  Its chunks of 16 bytes are swizzled.  k is a multiple of 16 bytes. */
template <class Type>
__global__ void __launch_bounds__(64) product(int n, int k, const typename Type::Stored *a,
                                              const typename Type::Stored *b,
                                              typename Type::Sum *c)
{
    typedef typename Type::Shared T;
    enum : int { CHUNK = 16 / sizeof(T), BK = 4 * CHUNK, A = 32 * BK, B = 16 * BK, STAGES = 3 };
    AOTC_STATIC_SMEM(T, as, STAGES * A);
    AOTC_STATIC_SMEM(T, bs, STAGES * B);
    const int t = (int)threadIdx.x, lane = t % 32, warp = t / 32;
    const int m0 = (int)blockIdx.y * 32, n0 = (int)blockIdx.x * 16;
    const auto place = [](int row, int chunk) {
        return row * BK + (chunk ^ row / 2 % 4) * CHUNK;
    };
    const auto copy = [&](int step) {
        const int stage = step % STAGES, at = step * BK + t % 4 * CHUNK;
        for (int i = t / 4; i < 32; i += 16)
            aotc_cp_async16(as + (stage * A + place(i, t % 4)), a + (m0 + i) * k + at, at < k);
        aotc_cp_async16(bs + (stage * B + place(t / 4, t % 4)), b + (n0 + t / 4) * k + at, at < k);
    };
    typename Type::Sum acc[2][4] = {};
    for (int s = 0; s < STAGES - 1; s++) {
        copy(s);
        aotc_cp_commit();
    }
    for (int step = 0; step * BK < k; step++) {
        aotc_cp_wait<STAGES - 2>();
        aotc_syncthreads();
        copy(step + STAGES - 1);
        aotc_cp_commit();
        for (int half = 0; half < 2; half++) {
            uint32_t fa[4], fb[4];
            const int row = warp * 16 + lane % 16, column = lane % 8 + lane / 16 * 8;
            aotc_ldmatrix_x4(fa, as + (step % STAGES * A + place(row, half * 2 + lane / 16)));
            aotc_ldmatrix_x4(fb, bs + (step % STAGES * B + place(column, half * 2 + lane / 8 % 2)));
            if constexpr (sizeof(T) == 4) {
                aotc_round_tf32(fa);
                aotc_round_tf32(fb);
            }
            for (int j = 0; j < 2; j++)
                multiply(Type(), acc[j], fa, fb[2 * j], fb[2 * j + 1]);
        }
    }
    for (int j = 0; j < 2; j++)
        for (int i = 0; i < 4; i++)
            c[(m0 + warp * 16 + lane / 4 + i / 2 * 8) * n + n0 + j * 8 + lane % 4 * 2 + i % 2] =
                acc[j][i];
}

#define PRODUCT(name, Type) \
    extern "C" int run_product_##name(int m, int n, int k, const Type::Stored *a, \
                                      const Type::Stored *b, Type::Sum *c) \
    { \
        AOTC_LAUNCH(product<Type>, dim3((unsigned)n / 16, (unsigned)m / 32), 64, 0, nullptr, n, k, \
                    a, b, c); \
        return (int)cudaGetLastError(); \
    }
PRODUCT(f16, F16)
PRODUCT(bf16, Bf16)
PRODUCT(tf32, Tf32)
PRODUCT(s8, S8)

/* Every float through tf32. */
__global__ void through_tf32(int n, const float *x, uint32_t *y)
{
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n)
        y[i] = aotc_to_tf32(x[i]);
}

extern "C" int run_through_tf32(int n, const float *x, uint32_t *y)
{
    AOTC_LAUNCH(through_tf32, (unsigned)(n + 255) / 256, 256, 0, nullptr, n, x, y);
    return (int)cudaGetLastError();
}

/* Elements of 2 bytes, four at a time, and zeros from n on. */
__global__ void copied_by_8(int n, const uint16_t *x, uint16_t *y)
{
    AOTC_STATIC_SMEM(aotc_half, tile, 128);
    const int at = 4 * (int)threadIdx.x;
    aotc_cp_async8(tile + at, x + at, at < n);
    aotc_cp_commit();
    aotc_cp_wait<0>();
    for (int i = at; i < at + 4; i += 2) {
        const aotc_half lo = tile[i], hi = tile[i + 1];
        const uint32_t both = aotc_pack_half2(lo, hi);
        y[i] = (uint16_t)both;
        y[i + 1] = (uint16_t)(both >> 16);
    }
}

extern "C" int run_copied_by_8(int n, const uint16_t *x, uint16_t *y)
{
    AOTC_LAUNCH(copied_by_8, 1, 32, 0, nullptr, n, x, y);
    return (int)cudaGetLastError();
}
