/* aotc_cusim.h: a functional simulator of CUDA, for C++17 compilers on a CPU.
 *
 * It stands in for nvcc behind aotc_cuda.h: the same kernels compile with g++ and run one block
 * after the other, each thread of the block as a fiber.  It says whether kernels are right, never
 * how fast they are.  What it checks, and reports as the error of the launch with kernel, block
 * and thread:
 *
 *  - an access outside a shared buffer, or outside device memory from cudaMalloc (guard pages);
 *  - a shared element read before any thread of the block has written it;
 *  - a race: two threads touch a shared element, one of them writes, and no barrier lies between;
 *  - a cp.async whose data is read, or overwritten, before its aotc_cp_wait;
 *  - a barrier not reached by all threads of the block, a shuffle, ballot, ldmatrix or mma not
 *    reached by all lanes of the warp; misaligned vector accesses; launches beyond the limits.
 *
 * Not checked: races in global memory.  The order of blocks and threads can be changed instead:
 * aotc_cusim_set_order, or the environment variable AOTC_CUSIM_ORDER=forward|reverse|random[:seed].
 * aotc_cusim_runtime.h has the twins of the CUDA runtime's functions. */
#ifndef AOTC_CUSIM_H
#define AOTC_CUSIM_H

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <math.h>
#include <tuple>
#include <type_traits>

#include "aotc_cusim_runtime.h"
#include "aotc_cusim_shared.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define AOTC_DEVICE inline

#define threadIdx (cusim::current->index)
#define blockIdx (cusim::block.index)
#define blockDim (cusim::block.shape)
#define gridDim (cusim::block.grid)
#define warpSize 32

/* ------------------------------------------------------------------ launches */

namespace cusim {

/* Run body() for every thread of a grid.  A fault becomes cudaGetLastError(). */
void run_grid(const char *kernel, const void *function, dim3 grid, dim3 block, size_t smem_bytes,
              const std::function<void()> &body);

/* The same on a stream, or later, where it is captured. */
void start_grid(cudaStream_t stream, const char *kernel, const void *function, dim3 grid,
                dim3 block, size_t smem_bytes, const std::function<void()> &body);

template <class... Parameters, class... Arguments>
void launch(const char *name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
            size_t smem_bytes, cudaStream_t stream, Arguments... arguments)
{
    const std::tuple<Parameters...> values(arguments...);
    start_grid(stream, name, reinterpret_cast<const void *>(kernel), grid, block, smem_bytes,
               [values, kernel] { std::apply(kernel, values); });
}

}

#define AOTC_LAUNCH(kernel, grid, block, smem_bytes, stream, ...) \
    cusim::launch(#kernel, kernel, grid, block, smem_bytes, stream, ##__VA_ARGS__)

/* One kernel after the other. */
#define AOTC_LAUNCH_DEPENDENT AOTC_LAUNCH
#define aotc_grid_dependency_wait() ((void)0)
#define aotc_grid_launch_dependents() ((void)0)

#define AOTC_ALLOW_SMEM(kernel, bytes)                                                         \
    cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),                               \
                         cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes))

/* ------------------------------------------------------------------ shared memory */

template <class T>
using aotc_shared = cusim::shared<T>;

#define AOTC_DYN_SMEM(T, name) const aotc_shared<T> name = cusim::dynamic_smem<T>()

#define AOTC_STATIC_SMEM(T, name, count)                            \
    static const char name##_site = 0;                              \
    const aotc_shared<T> name = cusim::static_smem<T>(&name##_site, count)

template <class T, class S>
aotc_shared<T> aotc_slice(aotc_shared<S> base, size_t byte_offset, size_t count)
{
    return base.template slice<T>(byte_offset, count);
}

struct alignas(16) float4 {
    float x, y, z, w;
};
typedef float4 aotc_f32x4;

inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

inline aotc_f32x4 aotc_load4(aotc_shared<const float> from)
{
    from.require_alignment(16);
    return {from[0], from[1], from[2], from[3]};
}

inline void aotc_store4(aotc_shared<float> to, aotc_f32x4 value)
{
    to.require_alignment(16);
    to[0] = value.x;
    to[1] = value.y;
    to[2] = value.z;
    to[3] = value.w;
}

inline aotc_f32x4 aotc_load4(const float *from)
{
    cusim::require_global_alignment(from, 16);
    return {from[0], from[1], from[2], from[3]};
}

inline void aotc_store4(float *to, aotc_f32x4 value)
{
    cusim::require_global_alignment(to, 16);
    std::memcpy(to, &value, sizeof value);
}

template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) aotc_pack {
    T of[N];
};

template <int N, class T>
aotc_pack<T, N> aotc_load_pack(const T *from)
{
    cusim::require_global_alignment(from, alignof(aotc_pack<T, N>));
    aotc_pack<T, N> value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

template <int N, class T>
aotc_pack<typename cusim::shared<T>::Value, N> aotc_load_pack(cusim::shared<T> from)
{
    from.require_alignment(alignof(aotc_pack<typename cusim::shared<T>::Value, N>));
    aotc_pack<typename cusim::shared<T>::Value, N> value;
    for (int i = 0; i < N; i++)
        value.of[i] = from[i];
    return value;
}

template <class T, int N>
void aotc_store_pack(T *to, const aotc_pack<T, N> &value)
{
    cusim::require_global_alignment(to, alignof(aotc_pack<T, N>));
    std::memcpy(to, &value, sizeof value);
}

template <class T, int N>
void aotc_store_far(T *to, const aotc_pack<T, N> &value)
{
    aotc_store_pack(to, value);
}

template <class T, int N>
void aotc_store_pack(cusim::shared<T> to, const aotc_pack<T, N> &value)
{
    to.require_alignment(alignof(aotc_pack<T, N>));
    for (int i = 0; i < N; i++)
        to[i] = value.of[i];
}

struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
typedef uint4 aotc_u32x4;

/* So many bytes at an address that must be a multiple of them, to a number or a few. */
template <class To, class T>
To aotc_load_bytes(const T *from)
{
    cusim::require_global_alignment(from, sizeof(To));
    To value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

template <class To, class T>
To aotc_load_bytes(aotc_shared<T> from)
{
    from.require_alignment(sizeof(To));
    To value;
    std::memcpy(&value, from.read(sizeof(To) / sizeof(T)), sizeof value);
    return value;
}

template <class From>
aotc_u32x4 aotc_load16(From from)
{
    return aotc_load_bytes<aotc_u32x4>(from);
}

struct alignas(8) uint2 {
    uint32_t x, y;
};
typedef uint2 aotc_u32x2;

template <class From>
aotc_u32x2 aotc_load8(From from)
{
    return aotc_load_bytes<aotc_u32x2>(from);
}

template <class From>
uint32_t aotc_load_word(From from)
{
    return aotc_load_bytes<uint32_t>(from);
}

/* ------------------------------------------------------------------ bytes of words */

inline uint32_t aotc_bytes(uint32_t a, uint32_t b, uint32_t selector)
{
    const uint64_t both = static_cast<uint64_t>(b) << 32 | a;
    uint32_t out = 0;
    for (int i = 0; i < 4; ++i)
        out |= static_cast<uint32_t>(both >> 8 * (selector >> 4 * i & 7) & 255) << 8 * i;
    return out;
}

inline uint32_t aotc_and_xor(uint32_t a, uint32_t mask, uint32_t bits)
{
    return (a & mask) ^ bits;
}

/* A: type of the bytes of a. */
template <class A>
int32_t aotc_dot4(uint32_t a, uint32_t b, int32_t sum)
{
    for (int i = 0; i < 4; ++i)
        sum = static_cast<int32_t>(static_cast<uint32_t>(sum) +
                                   static_cast<uint32_t>(static_cast<A>(a >> 8 * i) *
                                                         static_cast<int8_t>(b >> 8 * i)));
    return sum;
}

inline int32_t aotc_dot4_u8s8(uint32_t a, uint32_t b, int32_t sum)
{
    return aotc_dot4<uint8_t>(a, b, sum);
}

inline int32_t aotc_dot4_s8s8(uint32_t a, uint32_t b, int32_t sum)
{
    return aotc_dot4<int8_t>(a, b, sum);
}

/* ------------------------------------------------------------------ barriers, warps */

#define aotc_syncthreads() cusim::block_barrier({"aotc_syncthreads", __FILE__, __LINE__})
#define aotc_syncwarp() cusim::warp_barrier({"aotc_syncwarp", __FILE__, __LINE__})

#define aotc_shfl_down(value, d) \
    cusim::shuffle({"aotc_shfl_down", __FILE__, __LINE__}, value, cusim::lane() + (d))
#define aotc_shfl_up(value, d) \
    cusim::shuffle({"aotc_shfl_up", __FILE__, __LINE__}, value, cusim::lane() - (d))
#define aotc_shfl_xor(value, d) \
    cusim::shuffle({"aotc_shfl_xor", __FILE__, __LINE__}, value, \
                   cusim::lane() ^ static_cast<unsigned>(d))
#define aotc_shfl_idx(value, lane)                              \
    cusim::shuffle({"aotc_shfl_idx", __FILE__, __LINE__}, value, \
                   static_cast<unsigned>(lane) % 32u)
#define aotc_ballot(condition) \
    cusim::ballot({"aotc_ballot", __FILE__, __LINE__}, condition)

namespace cusim {

/* The value of another lane; one's own if there is no such lane. */
template <class T>
T shuffle(Site site, T value, unsigned from)
{
    static_assert(std::is_arithmetic<T>::value, "shuffles move numbers of up to 8 bytes");
    const Slot *slots = exchange(site, &value, sizeof value);
    if (from < 32)
        std::memcpy(&value, slots[from].bytes, sizeof value);
    return value;
}

/* A shared element is read first: its value travels. */
template <class T>
T shuffle(Site site, Element<T> value, unsigned from)
{
    return shuffle(site, static_cast<T>(value), from);
}

unsigned ballot(Site site, bool condition);

}

/* ------------------------------------------------------------------ asynchronous copies */

#define AOTC_CP_ASYNC(size) \
    template <class T, class S> \
    void aotc_cp_async##size(aotc_shared<T> dst, const S *src, bool valid = true) \
    { \
        static_assert(sizeof(T) == sizeof(S), "elements keep their size when they are copied"); \
        dst.copy_later(src, size, valid); \
    }
AOTC_CP_ASYNC(4)
AOTC_CP_ASYNC(8)
AOTC_CP_ASYNC(16)

inline void aotc_cp_commit()
{
    cusim::commit_copies();
}

template <int N>
void aotc_cp_wait()
{
    cusim::wait_for_copies(N);
}

/* ------------------------------------------------------------------ small device functions */

inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}

inline float __expf(float x)
{
    return expf(x);
}

inline float __logf(float x)
{
    return logf(x);
}

inline float __fdividef(float a, float b)
{
    return a / b;
}

template <class T>
T __ldg(const T *p)
{
    return *p;
}

inline int __float_as_int(float x)
{
    int bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float __int_as_float(int bits)
{
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

/* Atomic: no fiber gives way in between. */
template <class T>
T atomicExch(T *at, T value)
{
    const T old = *at;
    *at = value;
    return old;
}

template <class T>
T atomicAdd(T *at, T value)
{
    const T old = *at;
    *at = old + value;
    return old;
}

template <class T>
T atomicMax(T *at, T value)
{
    const T old = *at;
    *at = value > old ? value : old;
    return old;
}

template <class T>
T atomicCAS(T *at, T expected, T value)
{
    const T old = *at;
    *at = old == expected ? value : old;
    return old;
}

#include "aotc_cusim_mma.h"

#endif
