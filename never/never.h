/* never.h: never, compiled by aotc for c
 *
 * in  x: chars in u8[2, x_bytes]
 * in  i: i64[2]
 * out y: chars in u8[2, x_bytes * 2]
 * out r: chars in u8[2, 1, x_bytes]
 * dim x_bytes: 1..
 *
 * Open the weights once, make one context per concurrent caller, run as often as you like:
 *     never_weights w;
 *     never_context c;
 *     never_weights_open(&w, "never_weights.bin");
 *     never_init(&c, &w, arena, arena_bytes, NULL);
 *     never_run(&c, x_bytes, x, i, y, r);
 * Every function returns a status; nothing prints, aborts or allocates during run.  A status other
 * than AOTC_OK from run means: arguments refused, outputs untouched; or a fault was found on the
 * way (an index outside its table, a pool that refuses), then every output is filled with zeros.
 */
#ifndef NEVER_H
#define NEVER_H

#include "aotc_rt.h"

#if AOTC_RT_VERSION != 2
#error "never.h and aotc_rt.h come from different versions of aotc"
#endif

#define NEVER_INPUTS 2
#define NEVER_OUTPUTS 2
#define NEVER_SYMBOLS 1
#define NEVER_VARIANTS 1
#define NEVER_WEIGHTS_BYTES 64 /* of the weights image */
#define NEVER_X_BYTES_MIN 1
/* Bytes of arena that are enough for all dimensions, with that many workers. */
#define NEVER_ARENA_BYTES_MAX(workers) \
    ((size_t)UINT64_C(0) + (size_t)(workers) * 64u)

#ifdef __cplusplus
extern "C" {
#endif

/* begin declarations (the Python runtime reads them too) */
typedef aotc_weights never_weights;
typedef aotc_context never_context;

/* Map a weights file and check it: magic, version, size, checksum, and that it belongs here. */
aotc_status never_weights_open(never_weights *w, const char *path);

/* The same over an image in memory (aligned to 64 bytes), which must outlive the contexts. */
aotc_status never_weights_from_memory(never_weights *w, const void *image, size_t bytes);

/* The image linked into the library, checked too; AOTC_NOT_AVAILABLE if the bundle was compiled
 * with its weights in a file. */
aotc_status never_weights_embedded(never_weights *w);

void never_weights_close(never_weights *w);

/* Bytes of arena a call with these dimensions needs; 0 if a dimension is outside its range. */
size_t never_arena_size(int64_t x_bytes, int workers);

/* The same with the dimensions in an array (may be null if there are none). */
size_t never_arena_size_of(const int64_t *syms, int workers);

/* A context: weights (keep them open), an arena aligned to 64 bytes and a pool, or null for the
 * calling thread alone.  Neither is copied.  Whether the arena is large enough is seen in run. */
aotc_status never_init(never_context *ctx, const never_weights *w, void *arena,
    size_t arena_bytes, const aotc_pool *pool);

/* The same with kernels of one's own choice: an index into never_info()->variants, or -1 for
 * the widest this CPU can run.  AOTC_CPU_UNSUPPORTED if it cannot run them. */
aotc_status never_init_variant(never_context *ctx, const never_weights *w,
    void *arena, size_t arena_bytes, const aotc_pool *pool, int variant);

/* Compute the outputs.  Tensors are row-major and need no alignment; outputs must not overlap
 * each other or the inputs. */
aotc_status never_run(never_context *ctx,
    int64_t x_bytes,
    const uint8_t *x /* chars in u8[2, x_bytes] */,
    const int64_t *i /* i64[2] */,
    uint8_t *y /* chars in u8[2, x_bytes * 2] */,
    uint8_t *r /* chars in u8[2, 1, x_bytes] */);

/* The same with dimensions, inputs and outputs in arrays, in the order of never_run. */
aotc_status never_run_buffers(never_context *ctx, const int64_t *syms,
    const void *const *ins, void *const *outs);

/* Why the last call of init or run failed: the argument, rule or node.  "" if it did not. */
const char *never_detail(const never_context *ctx);

/* English text of a status; never null. */
const char *never_strerror(aotc_status status);

/* Names, shapes, sizes and hashes: what manifest.json says. */
const aotc_model_info *never_info(void);

/* The inputs and outputs, in order; NEVER_INPUTS and NEVER_OUTPUTS rows. */
const aotc_tensor_info *never_inputs(void);
const aotc_tensor_info *never_outputs(void);

/* Extents of one input or output at these dimensions, as many as its rank. */
aotc_status never_input_shape(int index, const int64_t *syms, int64_t *shape);
aotc_status never_output_shape(int index, const int64_t *syms, int64_t *shape);

/* The built-in thread pool: so many threads, the caller's included; 0 = one per processor. */
aotc_status never_pool_create(aotc_pool *pool, int threads);
void never_pool_destroy(aotc_pool *pool);

/* What a weights image must carry to belong to this code. */
extern const uint8_t never_weights_hash[32];
extern const uint64_t never_payload_bytes;
/* end declarations */

/* Ranges of the image's bytes of which a run touches little (large tables that are indexed by
 * data); one of length 0 ends them. */
extern const uint64_t never_untouched[][2];

#ifdef __cplusplus
}
#endif
#endif
