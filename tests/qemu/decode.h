/* decode.h: what an RV64GCV instruction costs, as far as its bits tell. */
#ifndef DECODE_H
#define DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum insn_kind {
    SCALAR,  /* everything outside the vector extension */
    VSET,    /* vsetvli, vsetivli, vsetvl */
    VECTOR,  /* micro-ops as below */
    ELEMENTS /* a strided or indexed access: it moves its elements one by one */
};

/* Micro-ops of a vector instruction: registers of a group of LMUL * scale_up / scale_down, to the
 * power of two if squared, times fields; or fixed, if that is not 0. */
typedef struct insn_cost {
    enum insn_kind kind;
    unsigned fixed;
    unsigned scale_up;    /* a numerator for LMUL */
    unsigned width_bytes; /* of an access with its own element width: LMUL * width / SEW */
    unsigned fields;      /* segments */
    bool squared;         /* reads every register of a group for each that it writes */
    bool multiply_add;
    bool whole_register;  /* a load or store of whole registers, whatever vtype says */
    bool stack_based;     /* a scalar access relative to sp */
    unsigned loaded;      /* bytes, of scalar accesses */
    unsigned stored;
    int vtype;            /* that a vset leaves behind; -1: it comes from a register */
} insn_cost;

enum { SP = 2 };

static inline unsigned bits(uint32_t word, unsigned from, unsigned count)
{
    return word >> from & ((1u << count) - 1);
}

static inline insn_cost decode_compressed(uint32_t word)
{
    static const unsigned bytes[8] = {0, 8, 4, 8, 0, 8, 4, 8};
    insn_cost cost = {.kind = SCALAR};
    const unsigned quadrant = bits(word, 0, 2), function = bits(word, 13, 3);
    if (quadrant == 1 || function == 0 || function == 4) {
        return cost; /* arithmetic and jumps */
    }
    if (function < 4) {
        cost.loaded = bytes[function];
    } else {
        cost.stored = bytes[function];
    }
    cost.stack_based = quadrant == 2;
    return cost;
}

static inline insn_cost decode_vector_memory(uint32_t word)
{
    static const unsigned widths[8] = {1, 0, 0, 0, 0, 2, 4, 8};
    enum { UNIT_STRIDE = 0, WHOLE = 8, MASK = 11 };
    insn_cost cost = {.kind = VECTOR, .scale_up = 1, .fields = bits(word, 29, 3) + 1};
    const unsigned variant = bits(word, 20, 5);
    if (bits(word, 26, 2) != UNIT_STRIDE) {
        cost.kind = ELEMENTS;
    } else if (variant == WHOLE) {
        cost.fixed = cost.fields;
        cost.whole_register = true;
    } else if (variant == MASK) {
        cost.fixed = 1;
    } else {
        cost.width_bytes = widths[bits(word, 12, 3)];
    }
    return cost;
}

/* Integer operands: OPIVV, OPIVI, OPIVX. */
static inline insn_cost decode_opi(uint32_t word)
{
    enum { VECTORS = 0, IMMEDIATE = 3 };
    insn_cost cost = {.kind = VECTOR, .scale_up = 1, .fields = 1};
    const unsigned operation = word >> 26, form = bits(word, 12, 3);
    if (operation == 0x27 && form == IMMEDIATE) {
        cost.fixed = bits(word, 15, 5) + 1; /* vmv1r.v to vmv8r.v */
    } else if ((operation == 0x0c || operation == 0x0e) && form == VECTORS) {
        cost.squared = true; /* vrgather.vv, vrgatherei16.vv */
    } else if (operation >= 0x2c && operation <= 0x2f) {
        cost.scale_up = 2; /* narrowing shifts and clips read two groups */
    }
    return cost;
}

/* Multiplication, masks and moves: OPMVV, OPMVX. */
static inline insn_cost decode_opm(uint32_t word)
{
    enum { VECTORS = 2 };
    insn_cost cost = {.kind = VECTOR, .scale_up = 1, .fields = 1};
    const unsigned operation = word >> 26, form = bits(word, 12, 3);
    const bool mask_to_mask = operation == 0x14 && bits(word, 15, 5) < 16; /* vmsbf, vmsif, vmsof */
    if (operation == 0x10 || mask_to_mask
        || (form == VECTORS && operation >= 0x18 && operation <= 0x1f)) {
        cost.fixed = 1; /* scalar moves, vcpop, vfirst; mask logic */
    } else if (form == VECTORS && operation == 0x17) {
        cost.squared = true; /* vcompress */
    } else if (operation >= 0x30) {
        cost.scale_up = 2; /* widening: writes two groups */
    }
    cost.multiply_add = operation >= 0x3c || operation == 0x29 || operation == 0x2b
        || operation == 0x2d || operation == 0x2f;
    return cost;
}

/* Floating point: OPFVV, OPFVF. */
static inline insn_cost decode_opf(uint32_t word)
{
    insn_cost cost = {.kind = VECTOR, .scale_up = 1, .fields = 1};
    const unsigned operation = word >> 26, conversion = bits(word, 15, 5);
    const bool sum = operation == 0x31 || operation == 0x33; /* widening reductions */
    if (operation == 0x10) {
        cost.fixed = 1; /* vfmv.f.s, vfmv.s.f */
    } else if ((operation == 0x12 && conversion >= 0x08) || (operation >= 0x30 && !sum)) {
        cost.scale_up = 2; /* widening and narrowing */
    }
    cost.multiply_add = (operation >= 0x28 && operation <= 0x2f) || operation >= 0x3c;
    return cost;
}

static inline insn_cost decode_vset(uint32_t word)
{
    insn_cost cost = {.kind = VSET, .vtype = -1};
    if (bits(word, 31, 1) == 0) {
        cost.vtype = (int)bits(word, 20, 11);
    } else if (bits(word, 30, 2) == 3) {
        cost.vtype = (int)bits(word, 20, 10);
    }
    return cost;
}

static inline insn_cost decode_scalar_memory(uint32_t word, unsigned bytes, bool store)
{
    insn_cost cost = {.kind = SCALAR, .stack_based = bits(word, 15, 5) == SP};
    cost.loaded = store ? 0 : bytes;
    cost.stored = store ? bytes : 0;
    return cost;
}

/* ``size``: 2 or 4 bytes; a compressed instruction is in the low half of the word. */
static inline insn_cost decode(uint32_t word, size_t size)
{
    enum { LOAD = 0x03, LOAD_FP = 0x07, STORE = 0x23, STORE_FP = 0x27, ATOMIC = 0x2f, OP_V = 0x57 };
    const unsigned opcode = bits(word, 0, 7), width = bits(word, 12, 3);
    if (size == 2) {
        return decode_compressed(word);
    }
    switch (opcode) {
    case LOAD:
        return decode_scalar_memory(word, 1u << (width & 3), false);
    case STORE:
        return decode_scalar_memory(word, 1u << (width & 3), true);
    case LOAD_FP:
    case STORE_FP:
        if (width == 0 || width > 4) {
            return decode_vector_memory(word);
        }
        return decode_scalar_memory(word, 1u << width, opcode == STORE_FP);
    case ATOMIC:
        return decode_scalar_memory(word, 1u << width, true);
    case OP_V:
        switch (width) {
        case 0: case 3: case 4:
            return decode_opi(word);
        case 1: case 5:
            return decode_opf(word);
        case 2: case 6:
            return decode_opm(word);
        default:
            return decode_vset(word);
        }
    default:
        return (insn_cost){.kind = SCALAR};
    }
}

#endif
