/* device.cu: device memory and the last error, for tests that call kernels from Python. */
#include "aotc_cuda.h"

extern "C" void *device_alloc(size_t bytes)
{
    void *p = nullptr;
    return cudaMalloc(&p, bytes) == cudaSuccess ? p : nullptr;
}

extern "C" int device_free(void *p)
{
    return (int)cudaFree(p);
}

extern "C" int copy_in(void *device, const void *host, size_t bytes)
{
    return (int)cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice);
}

extern "C" int copy_out(void *host, const void *device, size_t bytes)
{
    return (int)cudaMemcpy(host, device, bytes, cudaMemcpyDeviceToHost);
}

extern "C" const char *error_text(int code)
{
    return cudaGetErrorString((cudaError_t)code);
}

extern "C" int last_error(void)
{
    return (int)cudaGetLastError();
}

extern "C" int device_count(void)
{
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}
