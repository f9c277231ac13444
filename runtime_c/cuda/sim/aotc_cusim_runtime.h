/* aotc_cusim_runtime.h: the part of the CUDA runtime API that bundles use, over host memory.
 *
 * Streams run everything at once, so all work is done when a call returns; on a stream that is
 * captured it is noted, and done when the graph is launched.  Meanwhile calls that a capture
 * forbids (those that wait, and those that ask for memory or free it) fail and end it, as in CUDA.
 * cudaMalloc gives memory filled with 0xff (NaN as a float) that ends at a guard page: an access
 * behind it is caught.  Copies check that their device side lies inside one allocation. */
#ifndef AOTC_CUSIM_RUNTIME_H
#define AOTC_CUSIM_RUNTIME_H

#include <cstddef>
#include <cstdint>
#include <functional>

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
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorMisalignedAddress = 716,
    cudaErrorLaunchFailure = 719,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorStreamCaptureUnjoined = 904,
    cudaErrorStreamCaptureImplicit = 906,
    cudaErrorCapturedEvent = 907
};

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3
};

enum cudaMemoryType {
    cudaMemoryTypeUnregistered = 0,
    cudaMemoryTypeHost = 1,
    cudaMemoryTypeDevice = 2,
    cudaMemoryTypeManaged = 3
};

struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
    void *devicePointer, *hostPointer;
};

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8 };

enum cudaDeviceAttr {
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97
};

enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone = 0,
    cudaStreamCaptureStatusActive = 1,
    cudaStreamCaptureStatusInvalidated = 2
};

enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal = 0,
    cudaStreamCaptureModeThreadLocal = 1,
    cudaStreamCaptureModeRelaxed = 2
};

enum { cudaStreamDefault = 0, cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventDisableTiming = 2 };

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;

extern "C" { /* as in CUDA */

cudaError_t cudaMalloc(void **p, size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaMallocHost(void **p, size_t bytes);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *p);
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemset(void *to, int value, size_t bytes);
cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute attribute, int value);

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream = nullptr);

/* The error of the last launch or call that failed; GetLast forgets it.  Until then launches do
 * nothing, so that the first error is the one that is reported. */
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

/* The text of an error: of the last one, everything the simulator knows about it. */
const char *cudaGetErrorString(cudaError_t error);

/* A stream belongs to the device that is current when it is made, and takes work while that one
 * is: else it is cudaErrorInvalidResourceHandle. */
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);

inline cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

/* A graph is what was captured, in order. */
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                          unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);

/* Events tell the time that this thread of the CPU has run for when they are recorded, which has
 * nothing to do with what a GPU takes.  The functions want events from cudaEventCreate, and for a
 * time those that were recorded: else it is cudaErrorInvalidResourceHandle. */
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end);

inline cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

/* The same time in kernels, one cycle a nanosecond. */
long long clock64();

/* The order in which blocks and threads take their turns from now on: "forward", "reverse" or
 * "random" with a seed, "random:7"; null or anything else is forward. */
void aotc_cusim_set_order(const char *order);

/* From now on the device is of this compute capability (90: 9.0), gives a block so many bytes of
 * shared memory and has so many bytes of memory left; 0: as it was compiled, without an end. */
void aotc_cusim_set_device(int capability, size_t shared, size_t memory);

/* The launch after so many others fails with this error: once, or, where it costs the device (an
 * address, a launch failure), so does all that follows.  0 with code 0: none. */
void aotc_cusim_fail_launch(int after, int code);

/* So many devices there are from now on, all alike. */
void aotc_cusim_set_devices(int count);

/* While a stream is held, what was started on it counts as not done: its events are
 * cudaErrorNotReady. */
void aotc_cusim_hold_stream(void *stream, int held);

/* Events that were made and not destroyed. */
int64_t aotc_cusim_events(void);

/* Calls of what waits, asks for memory or frees it that came while a stream was captured; pieces of
 * work that were captured, of all graphs. */
int64_t aotc_cusim_refused_calls(void);
int64_t aotc_cusim_captured(void);

}

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

namespace cusim {

/* Do some work on a stream now, or note it where the stream is captured. */
typedef std::function<cudaError_t()> Work;
cudaError_t submit(cudaStream_t stream, const Work &work);

/* cudaSuccess, or, for a call that a capture of this thread forbids, its error, which ends the
 * capture.  what: its name. */
cudaError_t outside_captures(const char *what);

/* The device that is current, whether work may go to a stream, and whether it is held. */
int current_device();
bool takes_work(cudaStream_t stream);
bool is_captured(cudaStream_t stream);
bool is_held(cudaStream_t stream);

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
