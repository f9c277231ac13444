/* aotc_cusim_mma.cpp: what lanes receive from ldmatrix, and halves. */
#include "aotc_cusim.h"

#include <cstring>

namespace cusim {

/* Of tile i, whose rows lanes 8i..8i+7 give, a lane has bytes 4 * (lane % 4) on of row lane / 4. */
void load_matrix(Site site, uint32_t (&r)[4], const void *row)
{
    const Slot *const slots = exchange(site, row, 16);
    for (unsigned tile = 0; tile < 4; tile++)
        memcpy(&r[tile], slots[8 * tile + lane() / 4].bytes + lane() % 4 * 4, 4);
}

void load_transposed(Site site, uint32_t (&r)[4], const void *row)
{
    const Slot *const slots = exchange(site, row, 16);
    const unsigned column = lane() / 4, pair = lane() % 4 * 2;
    for (unsigned tile = 0; tile < 4; tile++) {
        uint16_t element[2];
        for (unsigned e = 0; e < 2; e++)
            memcpy(&element[e], slots[8 * tile + pair + e].bytes + column * 2, 2);
        r[tile] = static_cast<uint32_t>(element[0]) | static_cast<uint32_t>(element[1]) << 16;
    }
}

float tf32_of(uint32_t r, unsigned)
{
    if (r & 0x1fffu)
        fault(cudaErrorLaunchFailure, "an operand of an mma of tf32 has the bits 0x%08x: an "
              "aotc_to_tf32 or aotc_round_tf32 is missing", r);
    return __int_as_float(static_cast<int>(r));
}

}

/* ------------------------------------------------------------------ half precision */

float aotc_from_half(aotc_half x)
{
    const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
    const uint32_t exponent = x.bits >> 10 & 31u, mantissa = x.bits & 0x3ffu;
    if (exponent == 0) /* zero or subnormal: so many times 2^-24 */
        return (sign ? -1.0f : 1.0f) * static_cast<float>(mantissa) * 5.9604644775390625e-8f;
    const uint32_t wide = exponent == 31 ? 255u : exponent + 112u;
    return __int_as_float(static_cast<int>(sign | wide << 23 | mantissa << 13));
}

aotc_half aotc_to_half(float x)
{
    const uint32_t bits = static_cast<uint32_t>(__float_as_int(x));
    const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return {static_cast<uint16_t>(sign | 0x7e00u)}; /* NaN */
    if (magnitude >= 0x477ff000u)
        return {static_cast<uint16_t>(sign | 0x7c00u)}; /* 65520 and more: infinity */
    if (magnitude < 0x38800000u) { /* below 2^-14: adding 0.5 aligns the bits, and rounds */
        const float aligned = __int_as_float(static_cast<int>(magnitude)) + 0.5f;
        return {static_cast<uint16_t>(sign | (__float_as_int(aligned) - 0x3f000000))};
    }
    const uint32_t odd = magnitude >> 13 & 1u; /* to nearest, halves to even */
    return {static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13))};
}
