/* never.c: never, compiled by aotc for c
 * Checks the arguments, lays out the arena and calls the kernels in order. */
#include "never_internal.h"

#include <string.h>

const uint8_t never_weights_hash[32] = {
    0x90, 0x18, 0x39, 0x7b, 0xa9, 0x44, 0x5b, 0xbc,
    0x09, 0xe0, 0x1f, 0xfe, 0xa8, 0xa2, 0xee, 0xc3,
    0x52, 0xf9, 0xbf, 0xbc, 0x95, 0x09, 0x9a, 0x52,
    0x24, 0x4d, 0x66, 0x73, 0x11, 0xcd, 0x7a, 0xfd,
};
const uint64_t never_payload_bytes = UINT64_C(0);
const uint64_t never_untouched[][2] = {
    {0, 0},
};

/* ---- what the inputs and outputs are ---- */

static const aotc_dim input_0_dims[] = {
    {2, 2, 2, "2"},
    {-1, 1, INT64_MAX, "x_bytes"},
};

static const aotc_dim input_1_dims[] = {
    {2, 2, 2, "2"},
};

static const aotc_dim output_0_dims[] = {
    {2, 2, 2, "2"},
    {-1, 2, INT64_MAX, "x_bytes * 2"},
};

static const aotc_dim output_1_dims[] = {
    {2, 2, 2, "2"},
    {1, 1, 1, "1"},
    {-1, 1, INT64_MAX, "x_bytes"},
};

static const aotc_tensor_info input_info[] = {
    {"x", "x", AOTC_U8, 2,
        input_0_dims},
    {"i", "i", AOTC_I64, 1,
        input_1_dims},
};

const aotc_tensor_info *never_inputs(void)
{
    return input_info;
}

static const aotc_tensor_info output_info[] = {
    {"y", "y", AOTC_U8, 2,
        output_0_dims},
    {"r", "r", AOTC_U8, 3,
        output_1_dims},
};

const aotc_tensor_info *never_outputs(void)
{
    return output_info;
}

static const aotc_symbol_info symbol_info[] = {
    {"x_bytes", "x_bytes", 1, INT64_MAX},
};

static const char *const symbol_rules[] = {
    "x_bytes must be at least 1",
};

/* Store the dimensions; AOTC_BAD_DIMENSION and a text if one is outside its range. */
static aotc_status set_symbols(never_frame *f, const int64_t *syms, const char **detail)
{
    if (syms == NULL) {
        *detail = "dimensions";
        return AOTC_NULL_POINTER;
    }
    for (size_t i = 0; i < sizeof symbol_info / sizeof symbol_info[0]; i++) {
        if (syms[i] < symbol_info[i].lo || syms[i] > symbol_info[i].hi) {
            *detail = symbol_rules[i];
            return AOTC_BAD_DIMENSION;
        }
    }
    f->sym_x_bytes = syms[0];
    /* bounds of sizes: as long as they are small enough no index can overflow */
    const double sizes[] = {
        ((double)f->sym_x_bytes * 2.0),
        ((double)f->sym_x_bytes * 4.0),
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (!(sizes[i] < 4611686018427387904.0)) {
            *detail = "dimensions: a tensor would be larger than memory can be";
            return AOTC_BAD_DIMENSION;
        }
    }
    return AOTC_OK;
}

aotc_status never_input_shape(int index, const int64_t *syms, int64_t *shape)
{
    never_frame frame;
    const never_frame *f = &frame;
    const char *detail = "";
    memset(&frame, 0, sizeof frame);
    const aotc_status status = set_symbols(&frame, syms, &detail);
    if (status != AOTC_OK) {
        return status;
    }
    if (shape == NULL) {
        return AOTC_NULL_POINTER;
    }
    switch (index) {
    case 0:
        shape[0] = 2;
        shape[1] = f->sym_x_bytes;
        return AOTC_OK;
    case 1:
        shape[0] = 2;
        return AOTC_OK;
    default:
        return AOTC_BAD_DIMENSION;
    }
}

aotc_status never_output_shape(int index, const int64_t *syms, int64_t *shape)
{
    never_frame frame;
    const never_frame *f = &frame;
    const char *detail = "";
    memset(&frame, 0, sizeof frame);
    const aotc_status status = set_symbols(&frame, syms, &detail);
    if (status != AOTC_OK) {
        return status;
    }
    if (shape == NULL) {
        return AOTC_NULL_POINTER;
    }
    switch (index) {
    case 0:
        shape[0] = 2;
        shape[1] = (f->sym_x_bytes * 2);
        return AOTC_OK;
    case 1:
        shape[0] = 2;
        shape[1] = 1;
        shape[2] = f->sym_x_bytes;
        return AOTC_OK;
    default:
        return AOTC_BAD_DIMENSION;
    }
}

/* ---- the arena: slots one after another, then one slab of scratch per worker ---- */

/* Bytes a call needs with the kernels for c; with a base also the addresses. */
static int64_t lay_out(never_frame *f, uint8_t *base, int workers)
{
    int64_t at = 0;
    f->slab = base == NULL ? NULL : base + at;
    f->slab_stride = 64;
    return aotc_behind(at, workers, f->slab_stride);
}

size_t never_arena_size_of(const int64_t *syms, int workers)
{
    never_frame f = {0};
    const char *detail = "";
    int64_t bytes = AOTC_ALIGNMENT;
    if (workers < 1 || set_symbols(&f, syms, &detail) != AOTC_OK) {
        return 0;
    }
    bytes = aotc_max(bytes, lay_out(&f, NULL, workers));
    /* more than there are addresses: no arena has that */
    return bytes < INT64_MAX && (int64_t)(size_t)bytes == bytes ? (size_t)bytes : 0;
}

size_t never_arena_size(int64_t x_bytes, int workers)
{
    const int64_t syms[] = {x_bytes};
    return never_arena_size_of(syms, workers);
}

/* ---- the kernels, in call order ---- */

/* Run n work items of one kernel, on the pool if there is more than one. */
static aotc_status launch(never_context *ctx, never_frame *f, aotc_task kernel, int64_t n)
{
    if (n > 1 && ctx->pool.workers > 1) {
        const aotc_status status = ctx->pool.parallel_for(ctx->pool.self, kernel, f, n);
        if (status != AOTC_OK) {
            ctx->detail = "parallel_for";
            return status;
        }
    } else if (n > 0) {
        kernel(f, 0, n, 0);
    }
    return AOTC_OK;
}

static aotc_status compute(never_context *ctx, never_frame *f)
{
    aotc_status status;
    /* r_2 u8[2, 1, x_bytes] */
    status = launch(ctx, f, never_k000, 1);
    if (status != AOTC_OK) {
        return status;
    }
    /* y u8[2, x_bytes * 2] */
    status = launch(ctx, f, never_k001, 2);
    if (status != AOTC_OK) {
        return status;
    }
    return AOTC_OK;
}

/* ---- sets of kernels, the widest first ---- */

/* True if this CPU can run the kernels for c. */
static int runs_here(void)
{
    return 1;
}

static const struct {
    int (*runs_here)(void);
    int64_t (*lay_out)(never_frame *f, uint8_t *base, int workers);
    aotc_status (*compute)(never_context *ctx, never_frame *f);
    const char *needs;
} variants[] = {
    {runs_here, lay_out, compute, "needs c"},
};

static const aotc_variant_info variant_info[] = {
    {"c", "10c26cfb72d6b0c98d77d9d657af482779c36b9c7718ffb3e10320829347f585"},
};

const aotc_model_info *never_info(void)
{
    static const aotc_model_info info = {
        "never", "never",
        "2117ae56140974eaa61847570c1d041050449a68ddaff6a26dbb429fcef70e6b",
        "9018397ba9445bbc09e01ffea8a2eec352f9bfbc95099a52244d667311cd7afd",
        input_info, output_info,
        symbol_info, variant_info,
        2, 2,
        1, 1,
        UINT64_C(64),
        0,
        64, 1
    };
    return &info;
}

const char *never_strerror(aotc_status status)
{
    return aotc_strerror(status);
}

/* ---- contexts ---- */

/* The variant asked for, or the first that runs here for -1; -1 if there is none. */
static int choose_variant(int wanted)
{
    for (int i = 0; i < (int)(sizeof variants / sizeof variants[0]); i++) {
        if ((wanted < 0 || wanted == i) && variants[i].runs_here()) {
            return i;
        }
    }
    return -1;
}

aotc_status never_init(never_context *ctx, const never_weights *w, void *arena,
    size_t arena_bytes, const aotc_pool *pool)
{
    return never_init_variant(ctx, w, arena, arena_bytes, pool, -1);
}

aotc_status never_init_variant(never_context *ctx, const never_weights *w,
    void *arena, size_t arena_bytes, const aotc_pool *pool, int variant)
{
    if (ctx == NULL) {
        return AOTC_NULL_POINTER;
    }
    memset(ctx, 0, sizeof *ctx);
    ctx->detail = "";
    if (w == NULL || w->payload == NULL) {
        ctx->detail = "weights: open them first";
        return AOTC_NULL_POINTER;
    }
    if (arena == NULL) {
        ctx->detail = "arena";
        return AOTC_NULL_POINTER;
    }
    if (((uintptr_t)arena & (AOTC_ALIGNMENT - 1)) != 0) {
        ctx->detail = "arena";
        return AOTC_ARENA_MISALIGNED;
    }
    if (pool != NULL && (pool->workers < 1 || pool->parallel_for == NULL)) {
        ctx->detail = "pool: it has no workers or no parallel_for";
        return AOTC_POOL_REFUSED;
    }
    const int last = (int)(sizeof variants / sizeof variants[0]) - 1;
    if (variant > last) {
        ctx->detail = "variant: the bundle has no such set of kernels";
        return AOTC_NOT_AVAILABLE;
    }
    ctx->variant = choose_variant(variant);
    if (ctx->variant < 0) {
        ctx->detail = variants[variant < 0 ? last : variant].needs;
        return AOTC_CPU_UNSUPPORTED;
    }
    ctx->weights = w->payload;
    ctx->arena = arena;
    ctx->arena_bytes = arena_bytes;
    ctx->pool.workers = 1;
    if (pool != NULL) {
        ctx->pool = *pool;
    }
    return AOTC_OK;
}

const char *never_detail(const never_context *ctx)
{
    return ctx == NULL ? "" : ctx->detail == NULL ? ctx->text : ctx->detail;
}

/* ---- run ---- */

/* Fill the frame, or say what is wrong; nothing has been computed then. */
static aotc_status prepare(never_context *ctx, never_frame *f, const int64_t *syms,
    const void *const *ins, void *const *outs)
{
    memset(f, 0, sizeof *f);
    ctx->detail = "";
    if (ctx->weights == NULL || ctx->arena == NULL) {
        ctx->detail = "context: call never_init first";
        return AOTC_NULL_POINTER;
    }
    const aotc_status status = set_symbols(f, syms, &ctx->detail);
    if (status != AOTC_OK) {
        return status;
    }
    for (int i = 0; i < 2; i++) {
        if (ins == NULL || ins[i] == NULL) {
            ctx->detail = input_info[i].name;
            return AOTC_NULL_POINTER;
        }
        f->in[i] = ins[i];
    }
    for (int i = 0; i < 2; i++) {
        if (outs == NULL || outs[i] == NULL) {
            ctx->detail = output_info[i].name;
            return AOTC_NULL_POINTER;
        }
        f->out[i] = outs[i];
    }
    const int64_t need = variants[ctx->variant].lay_out(f, ctx->arena, ctx->pool.workers);
    if ((uint64_t)need > (uint64_t)ctx->arena_bytes) {
        ctx->detail = "arena: never_arena_size tells what a call needs";
        return AOTC_ARENA_TOO_SMALL;
    }
    f->weights = ctx->weights;
    return AOTC_OK;
}

/* After a fault on the way: no half of a result may pass for one. */
static void clear_outputs(const never_frame *f)
{
    memset(f->out[0], 0, (size_t)2 * (size_t)((f->sym_x_bytes * 2)) * sizeof(uint8_t));
    memset(f->out[1], 0, (size_t)2 * (size_t)1 * (size_t)(f->sym_x_bytes) * sizeof(uint8_t));
}

aotc_status never_run_buffers(never_context *ctx, const int64_t *syms,
    const void *const *ins, void *const *outs)
{
    never_frame frame;
    never_frame *const f = &frame;
    if (ctx == NULL) {
        return AOTC_NULL_POINTER;
    }
    aotc_status status = prepare(ctx, f, syms, ins, outs);
    if (status != AOTC_OK) {
        return status;
    }
    status = variants[ctx->variant].compute(ctx, f);
    if (status != AOTC_OK) {
        clear_outputs(f);
    }
    return status;
}

aotc_status never_run(never_context *ctx,
    int64_t x_bytes,
    const uint8_t *x,
    const int64_t *i,
    uint8_t *y,
    uint8_t *r)
{
    const int64_t syms[] = {x_bytes};
    const void *const ins[] = {x, i};
    void *const outs[] = {y, r};
    return never_run_buffers(ctx, syms, ins, outs);
}
