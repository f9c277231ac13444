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

/* Copy 4 or 16 bytes (both sides aligned to as many) from global to shared memory, or fill them
 * with zeros if not valid (src is not read then).  The data is there after the aotc_cp_wait that
 * covers its commit, for the thread that copied; for others after a barrier behind that. */
template <class T>
AOTC_DEVICE void aotc_cp_async4(T *dst, const T *src, bool valid = true)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(aotc_smem_address(dst)),
                 "l"(src), "r"(valid ? 4 : 0)
                 : "memory");
}

template <class T>
AOTC_DEVICE void aotc_cp_async16(T *dst, const T *src, bool valid = true)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(aotc_smem_address(dst)),
                 "l"(src), "r"(valid ? 16 : 0)
                 : "memory");
}

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

/* ------------------------------------------------------------ half precision, tensor cores */

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

/* Two of them in one register, lo in the low bits. */
AOTC_DEVICE uint32_t aotc_pack_half2(aotc_half lo, aotc_half hi)
{
    return static_cast<uint32_t>(__half_as_ushort(lo)) |
           static_cast<uint32_t>(__half_as_ushort(hi)) << 16;
}

/* Load four 8x8 tiles of elements of 16 bits: lanes 8i..8i+7 give the rows (16 bytes, aligned to
 * 16) of tile i; of tile i, lane l receives elements 2*(l%4) and 2*(l%4)+1 of row l/4 in r[i]
 * (trans: of the transposed tile). */
AOTC_DEVICE void aotc_ldmatrix_x4(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(aotc_smem_address(row))
                 : "memory");
}

AOTC_DEVICE void aotc_ldmatrix_x4_trans(uint32_t (&r)[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(aotc_smem_address(row))
                 : "memory");
}

/* C (16x8, float) += A (16x16, by rows) * B (16x8, by columns) over a warp, A and B of f16 or bf16.
 * With g = lane/4 and t = lane%4, a lane holds
 *     c[0..1] = C[g][2t..2t+1]     c[2..3] = C[g+8][2t..2t+1]
 *     a[0] = A[g][2t..2t+1]        a[1] = A[g+8][2t..2t+1]
 *     a[2] = A[g][2t+8..2t+9]      a[3] = A[g+8][2t+8..2t+9]
 *     b0 = B[2t..2t+1][g]          b1 = B[2t+8..2t+9][g] */
#define AOTC_MMA_M16N8K16(type) \
    AOTC_DEVICE void aotc_mma_m16n8k16_##type##f32(float (&c)[4], const uint32_t (&a)[4], \
                                                   uint32_t b0, uint32_t b1) \
    { \
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." #type "." #type ".f32 " \
                     "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)); \
    }
AOTC_MMA_M16N8K16(f16)
AOTC_MMA_M16N8K16(bf16)

#endif
#endif
