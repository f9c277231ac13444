/* aotc_rt.h: the types that every bundle shares.  C11; C++17 may include it.
 *
 * Two bundles in one program include either copy: the types are the same.  All functions that
 * are not inline here carry their bundle's prefix, so no two bundles clash when linked. */
#ifndef AOTC_RT_H
#define AOTC_RT_H

#include <stddef.h>
#include <stdint.h>

#define AOTC_RT_VERSION 2
/* AOTC_FREESTANDING: no file system, no threads, no allocation, no libm; of the C library only
 * memcpy, memset, memcmp. */
#if defined(AOTC_FREESTANDING)
#define AOTC_NO_FILES
#define AOTC_NO_THREADS
#define AOTC_NO_LIBM
#endif
/* Of the arena and the weights image: a cache line, and what a microcontroller's words need. */
#if defined(AOTC_FREESTANDING) && (defined(__arm__) || defined(__riscv) && __riscv_xlen == 32)
#define AOTC_ALIGNMENT 8
#else
#define AOTC_ALIGNMENT 64
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* begin declarations (the Python runtime reads them too) */
typedef enum aotc_status {
    AOTC_OK = 0,
    AOTC_NULL_POINTER = 1,
    AOTC_BAD_DIMENSION = 2,
    AOTC_BAD_SHAPE = 3,
    AOTC_ARENA_TOO_SMALL = 4,
    AOTC_ARENA_MISALIGNED = 5,
    AOTC_WEIGHTS_MISSING = 6,
    AOTC_WEIGHTS_TRUNCATED = 7,
    AOTC_WEIGHTS_MAGIC = 8,
    AOTC_WEIGHTS_VERSION = 9,
    AOTC_WEIGHTS_CHECKSUM = 10,
    AOTC_WEIGHTS_WRONG_MODEL = 11,
    AOTC_WEIGHTS_MISALIGNED = 12,
    AOTC_INDEX_OUT_OF_RANGE = 13,
    AOTC_POOL_REFUSED = 14,
    AOTC_CPU_UNSUPPORTED = 15,
    AOTC_OUT_OF_MEMORY = 16,
    AOTC_NOT_AVAILABLE = 17,
    AOTC_CUDA_ERROR = 18,
    AOTC_SHAPE_MISMATCH = 19,
    AOTC_ILLEGAL_ACCESS = 20,
    AOTC_TENSOR_MISALIGNED = 21,
    AOTC_CONTEXT_BUSY = 22,
    AOTC_WRONG_DEVICE = 23,
    AOTC_CAPTURE_REFUSED = 24,
    AOTC_GRAPH_MISMATCH = 25
} aotc_status;

typedef enum aotc_dtype {
    AOTC_F64 = 0,
    AOTC_F32 = 1,
    AOTC_I64 = 2,
    AOTC_I32 = 3,
    AOTC_I16 = 4,
    AOTC_I8 = 5,
    AOTC_U64 = 6,
    AOTC_U32 = 7,
    AOTC_U16 = 8,
    AOTC_U8 = 9,
    AOTC_BOOL = 10, /* one byte, 0 or 1 */
    AOTC_F16 = 11   /* IEEE 754 binary16: the bits, as uint16_t */
} aotc_dtype;

/* One dimension: its size, or -1 if it depends on the arguments of run; then lo..hi are the
 * smallest and the largest it can be, and text says how it is computed. */
typedef struct aotc_dim {
    int64_t size;
    int64_t lo;
    int64_t hi;
    const char *text;
} aotc_dim;

/* name is the model's own (UTF-8), c_name the argument's in run; tensors are row-major. */
typedef struct aotc_tensor_info {
    const char *name;
    const char *c_name;
    aotc_dtype dtype;
    int32_t rank;
    const aotc_dim *dims;
} aotc_tensor_info;

/* A dimension that is an argument of run, and its range; hi is INT64_MAX without an upper bound. */
typedef struct aotc_symbol_info {
    const char *name;
    const char *c_name;
    int64_t lo;
    int64_t hi;
} aotc_symbol_info;

/* One set of kernels: the target it was compiled for and the decisions behind it (SHA-256). */
typedef struct aotc_variant_info {
    const char *target;
    const char *schedule_hash;
} aotc_variant_info;

/* What the manifest says, for programs.  Hashes are SHA-256 in hexadecimal; graph is the model's
 * own name.  arena_bytes_max and slab_bytes_per_worker are -1 where a dimension without a bound
 * decides; variants stand widest first. */
typedef struct aotc_model_info {
    const char *name;
    const char *graph;
    const char *model_hash;
    const char *weights_hash;
    const aotc_tensor_info *inputs;
    const aotc_tensor_info *outputs;
    const aotc_symbol_info *symbols;
    const aotc_variant_info *variants;
    int32_t input_count;
    int32_t output_count;
    int32_t symbol_count;
    int32_t variant_count;
    uint64_t weights_bytes;
    int64_t arena_bytes_max;
    int64_t slab_bytes_per_worker;
    int32_t format_version;
} aotc_model_info;

/* Work items begin..end-1; worker is 0..workers-1 and no two calls that run at the same time
 * for one frame have the same worker. */
typedef void (*aotc_task)(void *frame, int64_t begin, int64_t end, int worker);

/* A thread pool.  parallel_for runs every item of 0..n-1 exactly once, in any split, and returns
 * when all are done; it must not return AOTC_OK otherwise.  Bring your own or take the built-in
 * one (NAME_pool_create).  Results do not depend on the pool. */
typedef struct aotc_pool {
    int workers;
    aotc_status (*parallel_for)(void *self, aotc_task fn, void *frame, int64_t n);
    void *self;
} aotc_pool;

/* An opened weights image; read-only, any number of contexts share it. */
typedef struct aotc_weights {
    const uint8_t *payload;
    size_t payload_bytes;
    void *memory;
    size_t memory_bytes;
} aotc_weights;

/* One caller's state: run may be called from many threads at once, each with its own context.
 * variant is the set of kernels it uses; detail names the argument, node or rule behind the last
 * status that was not AOTC_OK, or is null where text does. */
typedef struct aotc_context {
    const uint8_t *weights;
    uint8_t *arena;
    size_t arena_bytes;
    aotc_pool pool;
    int32_t variant;
    const char *detail;
    char text[256];
} aotc_context;
/* end declarations */

/* English text of a status; never NULL. */
static inline const char *aotc_strerror(aotc_status status)
{
    switch (status) {
    case AOTC_OK: return "ok";
    case AOTC_NULL_POINTER: return "a required pointer is null";
    case AOTC_BAD_DIMENSION: return "a dimension is outside its range";
    case AOTC_BAD_SHAPE: return "the dimensions do not fit together";
    case AOTC_ARENA_TOO_SMALL: return "the arena is too small for these dimensions";
    case AOTC_ARENA_MISALIGNED: return "the arena is not aligned to 64 bytes";
    case AOTC_WEIGHTS_MISSING: return "the weights file cannot be opened";
    case AOTC_WEIGHTS_TRUNCATED: return "the weights image has the wrong size";
    case AOTC_WEIGHTS_MAGIC: return "not a weights image";
    case AOTC_WEIGHTS_VERSION: return "the weights image has another format version or byte order";
    case AOTC_WEIGHTS_CHECKSUM: return "the weights image is damaged";
    case AOTC_WEIGHTS_WRONG_MODEL: return "the weights image belongs to another model";
    case AOTC_WEIGHTS_MISALIGNED: return "the weights image is not aligned to 64 bytes";
    case AOTC_INDEX_OUT_OF_RANGE: return "an index lies outside its table";
    case AOTC_POOL_REFUSED: return "the thread pool could not be made or refused the work";
    case AOTC_CPU_UNSUPPORTED: return "the CPU lacks instructions this bundle was compiled for";
    case AOTC_OUT_OF_MEMORY: return "out of memory";
    case AOTC_NOT_AVAILABLE: return "not available in this build";
    case AOTC_SHAPE_MISMATCH: return "the data gives another shape than the model declares";
    case AOTC_ILLEGAL_ACCESS: return "the accelerator refuses an access";
    case AOTC_TENSOR_MISALIGNED: return "a tensor is not aligned for the kernels that read it";
    case AOTC_CONTEXT_BUSY: return "the context serves another call that has not ended";
    case AOTC_WRONG_DEVICE: return "something belongs to another device";
    case AOTC_CAPTURE_REFUSED: return "the call cannot be captured in a CUDA graph";
    case AOTC_GRAPH_MISMATCH: return "the CUDA graph was captured for another call";
    case AOTC_CUDA_ERROR: return "CUDA reports an error";
    }
    return "unknown status";
}

#ifdef __cplusplus
}
#endif
#endif
