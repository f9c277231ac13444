/* aotc_os.h: memory at multiples of 64 bytes, which systems call by different names.  It stands
 * before all other headers of a file: what is set here decides what the system's declare. */
#ifndef AOTC_OS_H
#define AOTC_OS_H

#include "aotc_compiler.h"

#if !defined(_DEFAULT_SOURCE)
#define _DEFAULT_SOURCE /* POSIX, and MAP_POPULATE where it exists */
#endif
#if defined(__APPLE__) && !defined(_DARWIN_C_SOURCE)
#define _DARWIN_C_SOURCE /* _SC_NPROCESSORS_ONLN, also where _POSIX_C_SOURCE is given */
#endif

#include "aotc_rt.h"

#if !defined(AOTC_FREESTANDING)

#include <stdlib.h>
#if defined(_WIN32)
#include <malloc.h>
#endif

/* Memory of at least so many bytes, NULL if there is none; aotc_free gives it back. */
static inline void *aotc_allocate(size_t bytes)
{
    const size_t whole = (bytes / AOTC_ALIGNMENT + 1) * AOTC_ALIGNMENT;
#if defined(_WIN32)
    return _aligned_malloc(whole, AOTC_ALIGNMENT);
#else
    return aligned_alloc(AOTC_ALIGNMENT, whole);
#endif
}

static inline void aotc_free(void *memory)
{
#if defined(_WIN32)
    _aligned_free(memory);
#else
    free(memory);
#endif
}

#endif

#endif
