/* aotc_cuda.h: what CUDA kernels need beyond CUDA C++, under one spelling for two compilers.
 *
 * nvcc: inline functions around the instructions.  Any other C++17 compiler: the functional
 * simulator aotc_cusim.h of the aotc package, which runs the same sources on a CPU and checks
 * what the rules below ask for.
 *
 *  - Shared memory is declared with AOTC_DYN_SMEM or AOTC_STATIC_SMEM, and pointers to it have
 *    the type aotc_shared<T>: T * for nvcc, a checked pointer in the simulator.
 *  - A thread of a block may touch what another one wrote, or write what another one touched,
 *    only after aotc_syncthreads(), or aotc_syncwarp() within a warp.
 *  - All threads of a block come to the same aotc_syncthreads(); all 32 lanes of a warp come to
 *    the same shuffle, ballot, aotc_syncwarp, ldmatrix and mma.  Blocks are multiples of 32. */
#ifndef AOTC_CUDA_H
#define AOTC_CUDA_H

#ifndef __CUDACC__
#include "aotc_cusim.h"
#else

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stddef.h>
#include <stdint.h>

#define AOTC_DEVICE __device__ __forceinline__

/* ------------------------------------------------------------------ launches (host) */

/* Start kernel(args...) on a stream; whether it could be started is cudaGetLastError(). */
#define AOTC_LAUNCH(kernel, grid, block, smem_bytes, stream, ...) \
    kernel<<<grid, block, smem_bytes, stream>>>(__VA_ARGS__)

/* The same of a kernel that may be launched before the one in front of it on the stream has ended
 * (programmatic dependent launch, from compute capability 9.0 on): it calls
 * aotc_grid_dependency_wait() before it touches what an earlier kernel reads or writes. */
#define AOTC_LAUNCH_DEPENDENT(kernel, grid, block, smem_bytes, stream, ...) \
    aotc_launch_dependent(kernel, grid, block, smem_bytes, stream, ##__VA_ARGS__)

template <class... Parameters, class... Arguments>
inline void aotc_launch_dependent(void (*kernel)(Parameters...), dim3 grid, dim3 block,
                                  size_t smem_bytes, cudaStream_t stream, Arguments... arguments)
{
    cudaLaunchAttribute attribute = {};
    cudaLaunchConfig_t config = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = smem_bytes;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = 1;
    cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

/* Wait until all earlier kernels of the stream have ended and what they wrote is there. */
AOTC_DEVICE void aotc_grid_dependency_wait()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Once all blocks have come here, or ended, the next kernel may start and wait for this one. */
AOTC_DEVICE void aotc_grid_launch_dependents()
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}

/* A kernel that takes more than 48 KB of dynamic shared memory needs this once before its first
 * launch on a device; a cudaError_t. */
#define AOTC_ALLOW_SMEM(kernel, bytes)                                                         \
    cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),                               \
                         cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes))

/* ------------------------------------------------------------------ shared memory */

template <class T>
using aotc_shared = T *;

/* aotc_shared<T> name: the block's dynamic shared memory, aligned to 16 bytes. */
#define AOTC_DYN_SMEM(T, name)                                          \
    extern __shared__ __align__(16) unsigned char aotc_dynamic_smem[]; \
    T *const name = reinterpret_cast<T *>(aotc_dynamic_smem)

/* aotc_shared<T> name: a buffer of a constant number of elements, aligned to 16 bytes. */
#define AOTC_STATIC_SMEM(T, name, count)          \
    __shared__ __align__(16) T name##_smem[count]; \
    T *const name = name##_smem

/* A part of a shared buffer with bounds of its own: count elements of T from a byte offset. */
template <class T, class S>
AOTC_DEVICE aotc_shared<T> aotc_slice(S *base, size_t byte_offset, size_t /* count */)
{
    return reinterpret_cast<T *>(reinterpret_cast<unsigned char *>(base) + byte_offset);
}

/* Four floats at once, from or to shared or global memory; aligned to 16 bytes. */
typedef float4 aotc_f32x4;

AOTC_DEVICE aotc_f32x4 aotc_load4(const float *from)
{
    return *reinterpret_cast<const aotc_f32x4 *>(from);
}

AOTC_DEVICE void aotc_store4(float *to, aotc_f32x4 value)
{
    *reinterpret_cast<aotc_f32x4 *>(to) = value;
}

/* N neighbours of T in registers.  They are loaded and stored by accesses of 16 bytes, or of all
 * their bytes where those are fewer, and lie aligned to as many in shared or global memory. */
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) aotc_pack {
    T of[N];
};

template <int N, class T>
AOTC_DEVICE aotc_pack<T, N> aotc_load_pack(const T *from)
{
    return *reinterpret_cast<const aotc_pack<T, N> *>(from);
}

template <class T, int N>
AOTC_DEVICE void aotc_store_pack(T *to, const aotc_pack<T, N> &value)
{
    *reinterpret_cast<aotc_pack<T, N> *>(to) = value;
}

/* The same in global memory, packs of halves by stores of 16 bytes: a compiler takes those apart
 * that it has just rounded. */
template <class T, int N>
AOTC_DEVICE void aotc_store_far(T *to, const aotc_pack<T, N> &value)
{
    if constexpr (sizeof(T) > 2 || sizeof value % 16 != 0) {
        aotc_store_pack(to, value);
    } else {
        uint32_t words[sizeof value / 4];
        memcpy(words, &value, sizeof value);
#pragma unroll
        for (size_t i = 0; i < sizeof value / 4; i += 4)
            asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(
                             __cvta_generic_to_global(to + i * 4 / sizeof(T))),
                         "r"(words[i]), "r"(words[i + 1]), "r"(words[i + 2]), "r"(words[i + 3])
                         : "memory");
    }
}

/* 16 bytes as four words, the first in x, from shared or global memory; aligned to 16 bytes. */
typedef uint4 aotc_u32x4;

AOTC_DEVICE aotc_u32x4 aotc_load16(const void *from)
{
    return *static_cast<const aotc_u32x4 *>(from);
}

/* 8 bytes as two words, aligned to 8. */
typedef uint2 aotc_u32x2;

AOTC_DEVICE aotc_u32x2 aotc_load8(const void *from)
{
    return *static_cast<const aotc_u32x2 *>(from);
}

/* Four bytes as a word, aligned to 4, and four halves as floats, aligned to 8. */
AOTC_DEVICE uint32_t aotc_load_word(const void *from)
{
    return *static_cast<const uint32_t *>(from);
}

AOTC_DEVICE aotc_f32x4 aotc_load4_half(const uint16_t *from)
{
    const uint2 bits = *reinterpret_cast<const uint2 *>(from);
    const float2 low = __half22float2(reinterpret_cast<const __half2 &>(bits.x));
    const float2 high = __half22float2(reinterpret_cast<const __half2 &>(bits.y));
    return make_float4(low.x, low.y, high.x, high.y);
}

/* ------------------------------------------------------------------ bytes of words */

/* Byte i of the result is byte number (selector >> 4 * i & 7) of a, or behind those of b. */
AOTC_DEVICE uint32_t aotc_bytes(uint32_t a, uint32_t b, uint32_t selector)
{
    return __byte_perm(a, b, selector);
}

/* (a & mask) ^ bits, of constants, in one instruction. */
AOTC_DEVICE uint32_t aotc_and_xor(uint32_t a, uint32_t mask, uint32_t bits)
{
    uint32_t out;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(out) : "r"(a), "r"(mask), "r"(bits));
    return out;
}

/* a * b + c of two numbers of 16 bits in each. */
AOTC_DEVICE uint32_t aotc_fma_halves(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t out;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
    return out;
}

AOTC_DEVICE uint32_t aotc_fma_bf16s(uint32_t a, uint32_t b, uint32_t c)
{
    uint32_t out;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(c));
    return out;
}

/* sum + four products of an unsigned byte of a and a signed one of b. */
AOTC_DEVICE int32_t aotc_dot4_u8s8(uint32_t a, uint32_t b, int32_t sum)
{
    int32_t out;
    asm("dp4a.u32.s32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(sum));
    return out;
}

/* The same of signed bytes of both. */
AOTC_DEVICE int32_t aotc_dot4_s8s8(uint32_t a, uint32_t b, int32_t sum)
{
    int32_t out;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(out) : "r"(a), "r"(b), "r"(sum));
    return out;
}

/* ------------------------------------------------------------------ barriers, warps */

#define aotc_syncthreads() __syncthreads()
#define aotc_syncwarp() __syncwarp()

/* The value of lane + d, lane - d, lane ^ d, lane d; one's own where there is no such lane. */
template <class T>
AOTC_DEVICE T aotc_shfl_down(T value, unsigned d)
{
    return __shfl_down_sync(0xffffffffu, value, d);
}

template <class T>
AOTC_DEVICE T aotc_shfl_up(T value, unsigned d)
{
    return __shfl_up_sync(0xffffffffu, value, d);
}

template <class T>
AOTC_DEVICE T aotc_shfl_xor(T value, int d)
{
    return __shfl_xor_sync(0xffffffffu, value, d);
}

template <class T>
AOTC_DEVICE T aotc_shfl_idx(T value, int lane)
{
    return __shfl_sync(0xffffffffu, value, lane);
}

/* Bit i says whether lane i's condition holds. */
AOTC_DEVICE unsigned aotc_ballot(bool condition)
{
    return __ballot_sync(0xffffffffu, condition);
}

/* ------------------------------------------------------------------ asynchronous copies */

AOTC_DEVICE uint32_t aotc_smem_address(const void *p)
{
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

/* Copy 4, 8 or 16 bytes (both sides aligned to as many) of elements of any type from global to
 * shared memory, or fill them with zeros if not valid (src is not read then).  The data is there
 * after the aotc_cp_wait that covers its commit, for the thread that copied; for others after a
 * barrier behind that. */
#define AOTC_CP_ASYNC(size, cache) \
    template <class T, class S> \
    AOTC_DEVICE void aotc_cp_async##size(T *dst, const S *src, bool valid = true) \
    { \
        static_assert(sizeof(T) == sizeof(S), "elements keep their size when they are copied"); \
        asm volatile("cp.async." #cache ".shared.global [%0], [%1], " #size ", %2;" \
                     ::"r"(aotc_smem_address(dst)), "l"(src), "r"(valid ? size : 0) \
                     : "memory"); \
    }
AOTC_CP_ASYNC(4, ca)
AOTC_CP_ASYNC(8, ca)
AOTC_CP_ASYNC(16, cg)

/* Close a group of copies. */
AOTC_DEVICE void aotc_cp_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Wait for this thread's groups but the last N. */
template <int N>
AOTC_DEVICE void aotc_cp_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* ------------------------------------------------------------ narrow numbers, tensor cores */

typedef __half aotc_half;

/* To the nearest, halves to even. */
AOTC_DEVICE aotc_half aotc_to_half(float x)
{
    return __float2half_rn(x);
}

AOTC_DEVICE float aotc_from_half(aotc_half x)
{
    return __half2float(x);
}

/* Four floats as halves to shared memory, aligned to 8 bytes. */
AOTC_DEVICE void aotc_store_half4(aotc_half *to, aotc_f32x4 value)
{
    __half2 pairs[2] = {__floats2half2_rn(value.x, value.y), __floats2half2_rn(value.z, value.w)};
    *reinterpret_cast<uint2 *>(to) = *reinterpret_cast<uint2 *>(pairs);
}

typedef __nv_bfloat16 aotc_bf16;

/* The same of bf16. */
AOTC_DEVICE aotc_bf16 aotc_to_bf16(float x)
{
    return __float2bfloat16_rn(x);
}

AOTC_DEVICE void aotc_store_bf164(aotc_bf16 *to, aotc_f32x4 value)
{
    __nv_bfloat162 pairs[2] = {__floats2bfloat162_rn(value.x, value.y),
                               __floats2bfloat162_rn(value.z, value.w)};
    *reinterpret_cast<uint2 *>(to) = *reinterpret_cast<uint2 *>(pairs);
}

/* The bits of a float with the 10 bits of mantissa that tf32 has, to the nearest, halves away from
 * zero.  Three instructions on sm_80 to sm_120, which only clear the 13 last bits of a NaN: one
 * that has no others becomes an infinity.  What is rounded stays as it is. */
AOTC_DEVICE uint32_t aotc_to_tf32(float x)
{
    uint32_t bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

/* The same of four floats that aotc_ldmatrix_x4 has loaded. */
AOTC_DEVICE void aotc_round_tf32(uint32_t (&r)[4])
{
    for (int i = 0; i < 4; i++)
        r[i] = aotc_to_tf32(__uint_as_float(r[i]));
}

/* Two of them in one register, lo in the low bits. */
AOTC_DEVICE uint32_t aotc_pack_half2(aotc_half lo, aotc_half hi)
{
    return static_cast<uint32_t>(__half_as_ushort(lo)) |
           static_cast<uint32_t>(__half_as_ushort(hi)) << 16;
}

/* Two floats, each to the nearest, halves to even, as a pair of halves, or of bf16. */
AOTC_DEVICE uint32_t aotc_round_half2(float lo, float hi)
{
    const __half2 pair = __floats2half2_rn(lo, hi);
    return reinterpret_cast<const uint32_t &>(pair);
}

AOTC_DEVICE uint32_t aotc_round_bf162(float lo, float hi)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(lo, hi);
    return reinterpret_cast<const uint32_t &>(pair);
}

/* 2 to the power of x, by an instruction: off by 2 units in the last place at most, 0 for what is
 * no normal number. */
AOTC_DEVICE float aotc_exp2(float x)
{
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
}

/* Load four tiles of eight rows of 16 bytes, of elements of any type: lanes 8i..8i+7 give the rows
 * (aligned to 16) of tile i; of tile i, lane l receives bytes 4*(l%4)..4*(l%4)+3 of row l/4 in
 * r[i]: two elements of 16 bits, one of 32, four of 8. */
AOTC_DEVICE void aotc_ldmatrix_x4(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(aotc_smem_address(row))
                 : "memory");
}

/* The same of the transposed tiles of elements of 16 bits (no others): lane l receives elements
 * 2*(l%4) and 2*(l%4)+1 of column l/4. */
AOTC_DEVICE void aotc_ldmatrix_x4_trans(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(aotc_smem_address(row))
                 : "memory");
}

/* C (16x8) += A (16xK, by rows) * B (Kx8, by columns) over a warp.  A register of A or B has E
 * neighbours along K, the first in its low bits, and K is 8*E.  With g = lane/4 and t = lane%4, a
 * lane holds
 *     c[0..1] = C[g][2t..2t+1]     c[2..3] = C[g+8][2t..2t+1]
 *     a[0] = A[g][E*t..]           a[1] = A[g+8][E*t..]
 *     a[2] = A[g][E*(t+4)..]       a[3] = A[g+8][E*(t+4)..]
 *     b0 = B[E*t..][g]             b1 = B[E*(t+4)..][g]
 * which for A by rows, and for B by columns, is what aotc_ldmatrix_x4 loads.
 *
 *     aotc_mma_m16n8k16_f16f32, _bf16f32   E = 2, C float
 *     aotc_mma_m16n8k8_tf32f32             E = 1, C float; operands by aotc_to_tf32
 *     aotc_mma_m16n8k32_AB                 E = 4, C int32_t, which wraps around; A, B: s8 or u8
 *
 * Products of floats are exact; PTX says no order and no rounding of their sums. */
#define AOTC_MMA(shape, suffix, types, sum, constraint) \
    AOTC_DEVICE void aotc_mma_##shape##_##suffix(sum (&c)[4], const uint32_t (&a)[4], \
                                                 uint32_t b0, uint32_t b1) \
    { \
        asm volatile("mma.sync.aligned." #shape ".row.col." types \
                     " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                     : "+" constraint(c[0]), "+" constraint(c[1]), "+" constraint(c[2]), \
                       "+" constraint(c[3]) \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)); \
    }
AOTC_MMA(m16n8k16, f16f32, "f32.f16.f16.f32", float, "f")
AOTC_MMA(m16n8k16, bf16f32, "f32.bf16.bf16.f32", float, "f")
AOTC_MMA(m16n8k8, tf32f32, "f32.tf32.tf32.f32", float, "f")
AOTC_MMA(m16n8k32, s8s8, "s32.s8.s8.s32", int32_t, "r")
AOTC_MMA(m16n8k32, s8u8, "s32.s8.u8.s32", int32_t, "r")
AOTC_MMA(m16n8k32, u8s8, "s32.u8.s8.s32", int32_t, "r")
AOTC_MMA(m16n8k32, u8u8, "s32.u8.u8.s32", int32_t, "r")

#endif
#endif
