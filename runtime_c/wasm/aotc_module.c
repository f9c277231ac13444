/* What the ES module of a bundle calls: one context over the weights that are linked in, memory by
 * addresses.  A bundle's copy starts with the lines that set AOTC_NAME and AOTC_HEADER. */
#include "aotc_os.h"

#include AOTC_HEADER

#define EXPORT(name) __attribute__((export_name("aotc_" #name)))

extern unsigned char __heap_base; /* the linker's: memory from here on is the module's to give */

static aotc_weights weights;
static aotc_context context;

EXPORT(heap) const void *aotc_module_heap(void);
EXPORT(open) aotc_status aotc_module_open(void);
EXPORT(arena) size_t aotc_module_arena(const int64_t *syms);
EXPORT(init) aotc_status aotc_module_init(void *arena, size_t bytes);
EXPORT(input_shape) aotc_status aotc_module_input_shape(int i, const int64_t *syms, int64_t *to);
EXPORT(output_shape) aotc_status aotc_module_output_shape(int i, const int64_t *syms, int64_t *to);
EXPORT(run) aotc_status aotc_module_run(const int64_t *syms, const void *const *ins,
                                        void *const *outs);
EXPORT(text) const char *aotc_module_text(aotc_status status);
EXPORT(detail) const char *aotc_module_detail(void);

const void *aotc_module_heap(void)
{
    return &__heap_base;
}

aotc_status aotc_module_open(void)
{
    return AOTC_NAME(weights_embedded)(&weights);
}

size_t aotc_module_arena(const int64_t *syms)
{
    return AOTC_NAME(arena_size_of)(syms, 1);
}

aotc_status aotc_module_init(void *arena, size_t bytes)
{
    return AOTC_NAME(init)(&context, &weights, arena, bytes, NULL);
}

aotc_status aotc_module_input_shape(int i, const int64_t *syms, int64_t *to)
{
    return AOTC_NAME(input_shape)(i, syms, to);
}

aotc_status aotc_module_output_shape(int i, const int64_t *syms, int64_t *to)
{
    return AOTC_NAME(output_shape)(i, syms, to);
}

aotc_status aotc_module_run(const int64_t *syms, const void *const *ins, void *const *outs)
{
    return AOTC_NAME(run_buffers)(&context, syms, ins, outs);
}

const char *aotc_module_text(aotc_status status)
{
    return AOTC_NAME(strerror)(status);
}

const char *aotc_module_detail(void)
{
    return AOTC_NAME(detail)(&context);
}
