/* aotc_cusim_streams.cpp: devices, streams, what is captured on them, and graphs. */
#include "aotc_cusim_runtime.h"

#include <cstdio>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

struct CUgraph_st {
    std::vector<cusim::Work> work;
};

struct CUgraphExec_st {
    int device;
    std::vector<cusim::Work> work;
};

/* ``graph``: what is captured, null if nothing is; by which thread and how. */
struct CUstream_st {
    int device;
    unsigned flags;
    bool held, broken;
    CUgraph_st *graph;
    cudaStreamCaptureMode mode;
    std::thread::id thread;
};

namespace {

std::mutex guard; /* of what follows */
std::set<cudaStream_t> streams;
std::set<cudaGraph_t> graphs;
std::set<cudaGraphExec_t> execs;
int devices = 1;
bool null_stream_held = false;
int64_t refused = 0, captured = 0;
thread_local int device_now = 0;

typedef std::lock_guard<std::mutex> Guard;

bool is_stream(cudaStream_t stream)
{
    return stream == nullptr || streams.count(stream) != 0;
}

cudaError_t refusal(cudaError_t code, const char *what)
{
    char text[200];
    snprintf(text, sizeof text, "%s: not while a stream is captured", what);
    cusim::set_error(code, text);
    return code;
}

/* Where work for a stream goes: a graph, or null: it is done at once; or the error. */
cudaError_t place_of(cudaStream_t stream, CUgraph_st **graph)
{
    *graph = nullptr;
    if (!is_stream(stream))
        return cudaErrorInvalidResourceHandle;
    if (stream == nullptr) {
        for (cudaStream_t s : streams)
            if (s->graph != nullptr && (s->flags & cudaStreamNonBlocking) == 0) {
                s->broken = true;
                ++refused;
                return refusal(cudaErrorStreamCaptureImplicit, "work on the legacy stream");
            }
        return cudaSuccess;
    }
    if (stream->device != device_now)
        return cudaErrorInvalidResourceHandle;
    if (stream->graph != nullptr && stream->broken)
        return cudaErrorStreamCaptureInvalidated;
    *graph = stream->graph;
    return cudaSuccess;
}

}

namespace cusim {

cudaError_t submit(cudaStream_t stream, const Work &work)
{
    {
        const Guard held(guard);
        CUgraph_st *graph = nullptr;
        const cudaError_t error = place_of(stream, &graph);
        if (error != cudaSuccess) {
            set_error(error, cudaGetErrorString(error));
            return error;
        }
        if (graph != nullptr) {
            graph->work.push_back(work);
            ++captured;
            return cudaSuccess;
        }
    }
    return work();
}

cudaError_t outside_captures(const char *what)
{
    const Guard held(guard);
    bool any = false;
    for (cudaStream_t s : streams)
        if (s->graph != nullptr && s->mode != cudaStreamCaptureModeRelaxed
            && (s->mode == cudaStreamCaptureModeGlobal || s->thread == std::this_thread::get_id()))
            any = s->broken = true;
    if (!any)
        return cudaSuccess;
    ++refused;
    return refusal(cudaErrorStreamCaptureUnsupported, what);
}

int current_device()
{
    return device_now;
}

bool takes_work(cudaStream_t stream)
{
    const Guard held(guard);
    return is_stream(stream) && (stream == nullptr || stream->device == device_now);
}

bool is_captured(cudaStream_t stream)
{
    const Guard held(guard);
    return stream != nullptr && is_stream(stream) && stream->graph != nullptr;
}

bool is_held(cudaStream_t stream)
{
    const Guard held(guard);
    return stream == nullptr ? null_stream_held : is_stream(stream) && stream->held;
}

}

void aotc_cusim_set_devices(int count)
{
    devices = count;
}

void aotc_cusim_hold_stream(void *stream, int held)
{
    const Guard mine(guard);
    if (stream == nullptr)
        null_stream_held = held != 0;
    else
        static_cast<cudaStream_t>(stream)->held = held != 0;
}

int64_t aotc_cusim_refused_calls(void)
{
    const Guard held(guard);
    return refused;
}

int64_t aotc_cusim_captured(void)
{
    const Guard held(guard);
    return captured;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = devices;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= devices)
        return cudaErrorInvalidDevice;
    device_now = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = device_now;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    const Guard held(guard);
    *stream = *streams.insert(new CUstream_st{device_now, flags, false, false, nullptr,
        cudaStreamCaptureModeGlobal, {}}).first;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    const Guard held(guard);
    if (streams.erase(stream) == 0)
        return cudaErrorInvalidResourceHandle;
    delete stream->graph;
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    {
        const Guard held(guard);
        if (!is_stream(stream))
            return cudaErrorInvalidResourceHandle;
    }
    const cudaError_t forbidden = cusim::outside_captures("cudaStreamSynchronize");
    return forbidden != cudaSuccess ? forbidden : cudaPeekAtLastError();
}

cudaError_t cudaDeviceSynchronize()
{
    const cudaError_t forbidden = cusim::outside_captures("cudaDeviceSynchronize");
    return forbidden != cudaSuccess ? forbidden : cudaPeekAtLastError();
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode)
{
    const Guard held(guard);
    if (stream == nullptr)
        return refusal(cudaErrorStreamCaptureUnsupported, "capture of the legacy stream");
    if (!is_stream(stream))
        return cudaErrorInvalidResourceHandle;
    if (stream->graph != nullptr)
        return cudaErrorInvalidValue;
    stream->graph = new CUgraph_st;
    stream->broken = false;
    stream->mode = mode;
    stream->thread = std::this_thread::get_id();
    return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status)
{
    const Guard held(guard);
    if (!is_stream(stream))
        return cudaErrorInvalidResourceHandle;
    *status = stream == nullptr || stream->graph == nullptr ? cudaStreamCaptureStatusNone
        : stream->broken ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    const Guard held(guard);
    *graph = nullptr;
    if (stream == nullptr || !is_stream(stream) || stream->graph == nullptr)
        return cudaErrorInvalidValue;
    CUgraph_st *const made = stream->graph;
    stream->graph = nullptr;
    if (stream->broken) {
        delete made;
        cusim::set_error(cudaErrorStreamCaptureInvalidated,
                         cudaGetErrorString(cudaErrorStreamCaptureInvalidated));
        return cudaErrorStreamCaptureInvalidated;
    }
    graphs.insert(made);
    *graph = made;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                          unsigned long long)
{
    const cudaError_t forbidden = cusim::outside_captures("cudaGraphInstantiate");
    if (forbidden != cudaSuccess)
        return forbidden;
    const Guard held(guard);
    if (graphs.count(graph) == 0)
        return cudaErrorInvalidValue;
    *exec = *execs.insert(new CUgraphExec_st{device_now, graph->work}).first;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    std::vector<cusim::Work> work;
    {
        const Guard held(guard);
        if (execs.count(exec) == 0)
            return cudaErrorInvalidValue;
        CUgraph_st *graph = nullptr;
        const cudaError_t error = place_of(stream, &graph);
        if (error != cudaSuccess || exec->device != device_now)
            return error != cudaSuccess ? error : cudaErrorInvalidResourceHandle;
        if (graph != nullptr)
            return refusal(cudaErrorStreamCaptureUnsupported, "cudaGraphLaunch");
        work = exec->work;
    }
    for (const cusim::Work &part : work) {
        const cudaError_t error = part();
        if (error != cudaSuccess)
            return error;
    }
    return cudaPeekAtLastError();
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    const Guard held(guard);
    if (graphs.erase(graph) == 0)
        return cudaErrorInvalidValue;
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    const Guard held(guard);
    if (execs.erase(exec) == 0)
        return cudaErrorInvalidValue;
    delete exec;
    return cudaSuccess;
}
