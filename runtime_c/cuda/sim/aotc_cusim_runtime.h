/* aotc_cusim_runtime.h: the part of the CUDA runtime API that bundles use, over host memory.
 *
 * Streams run everything at once, so all work is done when a call returns.  cudaMalloc gives
 * memory filled with 0xff (NaN as a float) that ends at a guard page: an access behind it is
 * caught.  Copies check that their device side lies inside one allocation. */
#ifndef AOTC_CUSIM_RUNTIME_H
#define AOTC_CUSIM_RUNTIME_H

#include <cstddef>
#include <cstdint>

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

enum cudaError_t {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorIllegalAddress = 700,
    cudaErrorMisalignedAddress = 716,
    cudaErrorLaunchFailure = 719
};

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3
};

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

enum cudaDeviceAttr {
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;

cudaError_t cudaMalloc(void **p, size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemset(void *to, int value, size_t bytes);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute attribute, int value);

template <class T>
cudaError_t cudaMalloc(T **p, size_t bytes)
{
    return cudaMalloc(reinterpret_cast<void **>(p), bytes);
}

template <class... P>
cudaError_t cudaFuncSetAttribute(void (*function)(P...), cudaFuncAttribute attribute, int value)
{
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(function), attribute, value);
}

inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t = nullptr)
{
    return cudaMemcpy(to, from, bytes, kind);
}

inline cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t = nullptr)
{
    return cudaMemset(to, value, bytes);
}

/* The error of the last launch or call that failed; GetLast forgets it.  Until then launches do
 * nothing, so that the first error is the one that is reported. */
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

/* The text of an error: of the last one, everything the simulator knows about it. */
const char *cudaGetErrorString(cudaError_t error);

inline cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    *stream = nullptr;
    return cudaSuccess;
}

inline cudaError_t cudaStreamDestroy(cudaStream_t)
{
    return cudaSuccess;
}

inline cudaError_t cudaStreamSynchronize(cudaStream_t)
{
    return cudaPeekAtLastError();
}

inline cudaError_t cudaDeviceSynchronize()
{
    return cudaPeekAtLastError();
}

inline cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : cudaErrorInvalidValue;
}

inline cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

/* Events tell the time that this thread of the CPU has run for when they are recorded, which has
 * nothing to do with what a GPU takes.  The functions want events from cudaEventCreate, and for a
 * time those that were recorded: else it is cudaErrorInvalidResourceHandle. */
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end);

/* The same time in kernels, one cycle a nanosecond. */
long long clock64();

/* The order in which blocks and threads take their turns from now on: "forward", "reverse" or
 * "random" with a seed, "random:7"; null or anything else is forward. */
extern "C" void aotc_cusim_set_order(const char *order);

/* From now on the device is of this compute capability (90: 9.0), gives a block so many bytes of
 * shared memory and has so many bytes of memory left; 0: as it was compiled, without an end. */
extern "C" void aotc_cusim_set_device(int capability, size_t shared, size_t memory);

/* The launch after so many others fails with this error: once, or, where it costs the device (an
 * address, a launch failure), so does all that follows.  0 with code 0: none. */
extern "C" void aotc_cusim_fail_launch(int after, int code);

namespace cusim {

/* The error that a launch is told to fail with, cudaSuccess for most. */
cudaError_t next_failure();

/* Bounds of the device allocation that holds p, or that ends or starts next to it; false if
 * there is none within a guard page of it. */
bool allocation_near(const void *p, uintptr_t *begin, uintptr_t *end);

/* Dynamic shared memory a kernel may have without, and with cudaFuncSetAttribute. */
constexpr size_t SMEM_DEFAULT = 48 << 10;
#ifndef AOTC_CUSIM_SMEM
#define AOTC_CUSIM_SMEM (227 << 10)
#endif
constexpr size_t SMEM_MOST = AOTC_CUSIM_SMEM;
#ifndef AOTC_CUSIM_CAPABILITY
#define AOTC_CUSIM_CAPABILITY 90
#endif
size_t smem_allowed(const void *function);

/* Keep an error for cudaGetLastError unless there is one already. */
void set_error(cudaError_t code, const char *text);

}

#endif
