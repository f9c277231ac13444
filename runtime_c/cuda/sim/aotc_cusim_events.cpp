/* aotc_cusim_events.cpp: events and the clock of the device. */
#include "aotc_cusim_runtime.h"

#include <ctime>
#include <set>

/* Nanoseconds at which it was recorded, -1: it was not. */
struct CUevent_st {
    int64_t at;
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

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    *event = *events.insert(new CUevent_st{-1}).first;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    if (events.erase(event) == 0)
        return cudaErrorInvalidResourceHandle;
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t)
{
    if (events.count(event) == 0)
        return cudaErrorInvalidResourceHandle;
    event->at = nanoseconds();
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    return events.count(event) == 0 ? cudaErrorInvalidResourceHandle : cudaPeekAtLastError();
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end)
{
    if (events.count(start) == 0 || events.count(end) == 0 || start->at < 0 || end->at < 0)
        return cudaErrorInvalidResourceHandle;
    *milliseconds = static_cast<float>(static_cast<double>(end->at - start->at) * 1e-6);
    return cudaSuccess;
}
