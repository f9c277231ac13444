/* aotc_rvv.h: what kernels use beside the intrinsics of the RISC-V vector extension 1.0.
 *
 * Right for every vector length from 128 bits on; the functions take the number of live lanes, vl,
 * and leave the others unspecified unless they say so.  aotc_rvv_math.h is included once per
 * register group: names end in _m1, _m2, _m4.
 * max and min give NaN if either argument is NaN, like the ONNX operators. */
#ifndef AOTC_RVV_H
#define AOTC_RVV_H

#if !defined(__riscv_v)
#error "compile with -march=rv64gcv"
#elif !defined(__has_include)
#error "the compiler has no RISC-V vector intrinsics: use clang 19 or gcc 14, or a newer one"
#elif !__has_include(<riscv_vector.h>)
#error "the compiler has no RISC-V vector intrinsics: use clang 19 or gcc 14, or a newer one"
#else
#include <riscv_vector.h>
#endif

#include <stddef.h>
#include "aotc_vec.h" /* with AOTC_LANES 1: what scalar code calls */

#define AOTC_VL_MAX 256 /* most lanes of a step that passes them through an array */
#define AOTC_BYTES(floats) ((ptrdiff_t)sizeof(float) * (ptrdiff_t)(floats))
#define AOTC_RVV static inline AOTC_MAY_BE_UNUSED __attribute__((always_inline))

/* Lanes for a step that has arrays of AOTC_VL_MAX elements. */
AOTC_RVV size_t aotc_capped(int64_t n)
{
    return n < AOTC_VL_MAX ? (size_t)n : (size_t)AOTC_VL_MAX;
}

/* True if n lanes fit into vectors of so many registers. */
AOTC_RVV int aotc_fits(int64_t n, int64_t registers)
{
    return n <= registers * ((int64_t)__riscv_vlenb() / (int64_t)sizeof(float));
}

/* 0, told anew wherever it stands: a vector of it is made there, not before a loop and kept in
 * registers that the loop has not. */
AOTC_RVV float aotc_zero_here(void)
{
    float zero = 0.0f;
    __asm__ volatile("" : "+f"(zero));
    return zero;
}

#define AOTC_GROUP 1
#define AOTC_MASK vbool32_t
#include "aotc_rvv_math.h"
#define AOTC_GROUP 2
#define AOTC_MASK vbool16_t
#include "aotc_rvv_math.h"
#define AOTC_GROUP 4
#define AOTC_MASK vbool8_t
#include "aotc_rvv_math.h"

/* Pack n columns that lie along k: dst[k*nr + j] = src[j*step + k] for 0 <= j < n. */
AOTC_RVV void aotc_rvv_pack_columns(const float *src, int64_t step, int64_t n, int64_t depth,
                                    float *dst, int64_t nr)
{
    size_t vl;
    for (int64_t j = 0; j < n; j += (int64_t)vl) {
        vl = __riscv_vsetvl_e32m4((size_t)(n - j));
        for (int64_t k = 0; k < depth; ++k)
            __riscv_vse32(dst + k * nr + j, __riscv_vlse32_v_f32m4(src + j * step + k,
                                                                   AOTC_BYTES(step), vl), vl);
    }
}

#endif
