/* aotc_cusim_memory.cpp: device memory with guard pages, the last error, kernel attributes. */
#include "aotc_cusim_runtime.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace {

/* One cudaMalloc: pages from map to map + map_bytes, of which the last one is a guard, as is the
 * first; the bytes end at the last guard (but for what keeps them aligned to 16). */
struct Allocation {
    unsigned char *map;
    size_t map_bytes;
    size_t bytes;
    int device;
};

std::map<uintptr_t, Allocation> allocations; /* by address */
std::set<void *> pinned;
std::map<const void *, size_t> attributes;   /* bytes of dynamic shared memory by kernel */
cudaError_t last_code = cudaSuccess, text_code = cudaSuccess;
std::string last_text;

/* What the device has; the launches until one fails (-1: none does), and its error. */
struct Device {
    int capability = AOTC_CUSIM_CAPABILITY;
    size_t shared = cusim::SMEM_MOST, memory = SIZE_MAX, taken = 0;
    int until = -1;
    cudaError_t failure = cudaSuccess;
} device;

size_t page()
{
    return static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

/* True if the range lies inside one allocation; else the error says so. */
bool inside(const void *p, size_t bytes, const char *what)
{
    const uintptr_t from = reinterpret_cast<uintptr_t>(p);
    auto it = allocations.upper_bound(from);
    if (it != allocations.begin()) {
        --it;
        if (from >= it->first && from - it->first <= it->second.bytes
            && bytes <= it->second.bytes - (from - it->first))
            return true;
    }
    char text[160];
    snprintf(text, sizeof text, "%s of %zu bytes: the range is not inside device memory from "
             "cudaMalloc", what, bytes);
    cusim::set_error(cudaErrorInvalidValue, text);
    return false;
}

}

namespace cusim {

void set_error(cudaError_t code, const char *text)
{
    if (last_code == cudaSuccess) {
        last_code = text_code = code;
        last_text = text;
    }
}

cudaError_t next_failure()
{
    if (device.until < 0 || device.until-- > 0)
        return cudaSuccess;
    const bool lost = device.failure == cudaErrorIllegalAddress
        || device.failure == cudaErrorLaunchFailure;
    device.until = lost ? 0 : -1;
    return device.failure;
}

size_t smem_allowed(const void *function)
{
    const auto it = attributes.find(function);
    return it == attributes.end() ? SMEM_DEFAULT : it->second;
}

bool allocation_near(const void *p, uintptr_t *begin, uintptr_t *end)
{
    const uintptr_t at = reinterpret_cast<uintptr_t>(p);
    for (const auto &a : allocations) {
        const uintptr_t map = reinterpret_cast<uintptr_t>(a.second.map);
        if (at >= map && at < map + a.second.map_bytes) {
            *begin = a.first;
            *end = a.first + a.second.bytes;
            return true;
        }
    }
    return false;
}

}

cudaError_t cudaMalloc(void **p, size_t bytes)
{
    const cudaError_t forbidden = cusim::outside_captures("cudaMalloc");
    if (forbidden != cudaSuccess)
        return forbidden;
    const size_t size = page(), payload = (bytes + size - 1) / size * size;
    void *map = bytes > device.memory || device.taken > device.memory - bytes ? MAP_FAILED : mmap(
        nullptr, payload + 2 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char *const first = static_cast<unsigned char *>(map) + size;
    if (map != MAP_FAILED && payload > 0
        && mprotect(first, payload, PROT_READ | PROT_WRITE) != 0) {
        munmap(map, payload + 2 * size);
        map = MAP_FAILED;
    }
    if (map == MAP_FAILED) {
        cusim::set_error(cudaErrorMemoryAllocation, "out of memory");
        return cudaErrorMemoryAllocation;
    }
    device.taken += bytes;
    memset(first, 0xff, payload);
    /* CUDA aligns to 256.  Only arenas and images, whose sizes are multiples of 64, count on it:
     * other buffers are aligned to 16, so that they end right at the guard. */
    const size_t alignment = bytes % 64 == 0 ? 256 : 16;
    unsigned char *const at = first + (payload - (bytes + alignment - 1) / alignment * alignment);
    allocations[reinterpret_cast<uintptr_t>(at)] = {static_cast<unsigned char *>(map),
                                                    payload + 2 * size, bytes,
                                                    cusim::current_device()};
    *p = at;
    return cudaSuccess;
}

cudaError_t cudaFree(void *p)
{
    if (p == nullptr)
        return cudaSuccess;
    const cudaError_t forbidden = cusim::outside_captures("cudaFree");
    if (forbidden != cudaSuccess)
        return forbidden;
    const auto it = allocations.find(reinterpret_cast<uintptr_t>(p));
    if (it == allocations.end())
        return cudaErrorInvalidValue;
    device.taken -= it->second.bytes;
    munmap(it->second.map, it->second.map_bytes);
    allocations.erase(it);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **p, size_t bytes)
{
    const cudaError_t forbidden = cusim::outside_captures("cudaMallocHost");
    if (forbidden != cudaSuccess)
        return forbidden;
    *p = malloc(bytes > 0 ? bytes : 1);
    if (*p == nullptr)
        return cudaErrorMemoryAllocation;
    pinned.insert(*p);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p)
{
    const cudaError_t forbidden = cusim::outside_captures("cudaFreeHost");
    if (forbidden != cudaSuccess)
        return forbidden;
    if (p != nullptr && pinned.erase(p) == 0)
        return cudaErrorInvalidValue;
    free(p);
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *found, const void *p)
{
    auto it = allocations.upper_bound(reinterpret_cast<uintptr_t>(p));
    *found = {cudaMemoryTypeUnregistered, -1, nullptr, nullptr};
    if (it != allocations.begin()
        && reinterpret_cast<uintptr_t>(p) - std::prev(it)->first <= std::prev(it)->second.bytes)
        *found = {cudaMemoryTypeDevice, std::prev(it)->second.device, const_cast<void *>(p),
                  nullptr};
    else if (pinned.count(const_cast<void *>(p)) != 0)
        *found = {cudaMemoryTypeHost, 0, nullptr, const_cast<void *>(p)};
    return cudaSuccess;
}

namespace {

cudaError_t copy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    if ((to_device && !inside(to, bytes, "cudaMemcpy to the device"))
        || (from_device && !inside(from, bytes, "cudaMemcpy from the device")))
        return cudaErrorInvalidValue;
    if (bytes > 0)
        memmove(to, from, bytes);
    return cudaSuccess;
}

cudaError_t fill(void *to, int value, size_t bytes)
{
    if (!inside(to, bytes, "cudaMemset"))
        return cudaErrorInvalidValue;
    memset(to, value, bytes);
    return cudaSuccess;
}

}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind)
{
    const cudaError_t forbidden = cusim::outside_captures("cudaMemcpy");
    return forbidden != cudaSuccess ? forbidden : copy(to, from, bytes, kind);
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    const cudaError_t forbidden = cusim::outside_captures("cudaMemset");
    return forbidden != cudaSuccess ? forbidden : fill(to, value, bytes);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    return cusim::submit(stream, [=] { return copy(to, from, bytes, kind); });
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    return cusim::submit(stream, [=] { return fill(to, value, bytes); });
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int)
{
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = device.capability / 10; break;
    case cudaDevAttrComputeCapabilityMinor: *value = device.capability % 10; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(device.shared); break;
    default: return cudaErrorInvalidValue;
    }
    return cudaSuccess;
}

void aotc_cusim_set_device(int capability, size_t shared, size_t memory)
{
    device.capability = capability != 0 ? capability : AOTC_CUSIM_CAPABILITY;
    device.shared = shared != 0 && shared < cusim::SMEM_MOST ? shared : cusim::SMEM_MOST;
    device.memory = memory != 0 ? device.taken + memory : SIZE_MAX;
}

void aotc_cusim_fail_launch(int after, int code)
{
    device.until = code != 0 ? after : -1;
    device.failure = static_cast<cudaError_t>(code);
}

cudaError_t cudaFuncSetAttribute(const void *function, cudaFuncAttribute attribute, int value)
{
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0
        || static_cast<size_t>(value) > device.shared) {
        cusim::set_error(cudaErrorInvalidValue, "cudaFuncSetAttribute: more shared memory than a "
                         "block can have on this device");
        return cudaErrorInvalidValue;
    }
    attributes[function] = static_cast<size_t>(value);
    return cudaSuccess;
}

cudaError_t cudaGetLastError()
{
    const cudaError_t code = last_code;
    last_code = cudaSuccess;
    return code;
}

cudaError_t cudaPeekAtLastError()
{
    return last_code;
}

const char *cudaGetErrorString(cudaError_t error)
{
    if (error != cudaSuccess && error == text_code)
        return last_text.c_str();
    switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "invalid configuration argument";
    case cudaErrorNoDevice: return "no CUDA-capable device is detected";
    case cudaErrorInvalidResourceHandle: return "invalid resource handle";
    case cudaErrorIllegalAddress: return "an illegal memory access was encountered";
    case cudaErrorMisalignedAddress: return "misaligned address";
    case cudaErrorLaunchFailure: return "unspecified launch failure";
    case cudaErrorInvalidDevice: return "invalid device ordinal";
    case cudaErrorNotReady: return "device not ready";
    case cudaErrorStreamCaptureUnsupported:
        return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
        return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureUnjoined: return "capture: work that is not joined";
    case cudaErrorStreamCaptureImplicit:
        return "operation would make the legacy stream depend on a capturing blocking stream";
    case cudaErrorCapturedEvent:
        return "operation not permitted on an event last recorded in a capturing stream";
    }
    return "unknown error";
}
