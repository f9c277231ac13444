/* aotc_cusim_events.cpp: events and the clock of the device. */
#include "aotc_cusim_runtime.h"

#include <ctime>
#include <set>

/* Its device; nanoseconds at which it was recorded, -1: it was not, and the stream; whether that
 * one was captured. */
struct CUevent_st {
    int device;
    int64_t at;
    cudaStream_t stream;
    bool captured;
};

namespace {

std::set<cudaEvent_t> events;

/* Launches run on the thread that starts them: what else the machine does costs them nothing. */
int64_t nanoseconds()
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<int64_t>(t.tv_sec) * 1000000000 + t.tv_nsec;
}

}

long long clock64()
{
    return nanoseconds();
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    *event = *events.insert(new CUevent_st{cusim::current_device(), -1, nullptr, false}).first;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    if (events.erase(event) == 0)
        return cudaErrorInvalidResourceHandle;
    delete event;
    return cudaSuccess;
}

int64_t aotc_cusim_events(void)
{
    return static_cast<int64_t>(events.size());
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    if (events.count(event) == 0 || event->device != cusim::current_device()
        || !cusim::takes_work(stream))
        return cudaErrorInvalidResourceHandle;
    event->stream = stream;
    event->captured = cusim::is_captured(stream);
    event->at = event->captured ? -1 : nanoseconds();
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    const cudaError_t forbidden = cusim::outside_captures("cudaEventQuery");
    if (forbidden != cudaSuccess)
        return forbidden;
    if (events.count(event) == 0)
        return cudaErrorInvalidResourceHandle;
    if (event->captured)
        return cudaErrorCapturedEvent;
    return event->at >= 0 && cusim::is_held(event->stream) ? cudaErrorNotReady
                                                           : cudaPeekAtLastError();
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    const cudaError_t forbidden = cusim::outside_captures("cudaEventSynchronize");
    if (forbidden != cudaSuccess)
        return forbidden;
    if (events.count(event) == 0)
        return cudaErrorInvalidResourceHandle;
    return event->captured ? cudaErrorCapturedEvent : cudaPeekAtLastError();
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    return events.count(event) == 0 || !cusim::takes_work(stream) ? cudaErrorInvalidResourceHandle
                                                                  : cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    if (events.count(start) == 0 || events.count(end) == 0 || start->at < 0 || end->at < 0)
        return cudaErrorInvalidResourceHandle;
    *milliseconds = static_cast<float>(static_cast<double>(end->at - start->at) * 1e-6);
    return cudaSuccess;
}
