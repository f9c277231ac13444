/* aotc_clock.h: nanoseconds since some moment, by POSIX or by Win32.  It stands before the headers
 * of the system, as aotc_os.h does. */
#ifndef AOTC_CLOCK_H
#define AOTC_CLOCK_H

#include "aotc_os.h"

#if defined(_WIN32)

#if !defined(WIN32_LEAN_AND_MEAN)
#define WIN32_LEAN_AND_MEAN
#endif
#include <windows.h>

static inline int64_t aotc_nanoseconds(void)
{
    LARGE_INTEGER ticks, second;
    QueryPerformanceCounter(&ticks);
    QueryPerformanceFrequency(&second);
    return ticks.QuadPart / second.QuadPart * 1000000000 +
           ticks.QuadPart % second.QuadPart * 1000000000 / second.QuadPart;
}

#else

#include <time.h>

static inline int64_t aotc_nanoseconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + (int64_t)t.tv_nsec;
}

#endif
#endif
