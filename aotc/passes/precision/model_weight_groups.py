"""Weights that a model brings as integers of few bits stay so, Program -> Program.

A model stores them as integers with scales, and perhaps zero points, per block along the sum or
for whole columns, and multiplies by what it makes of them.  ``blocked_weights`` names the computes
that make it, so that they are not evaluated, and ``with_groups`` puts the same numbers into
products as grouped weights (``ir/numbers/grouped.py``).  What integers, scales and blocks are is
read off the numbers: the integers of a group that span at most 15 are 4 bits, its scale is one
number all along it.

Whole columns become groups, too, for products of f32: few rows wait for a quarter of the memory,
and many share what is expanded.  Narrow products have rows of their own and want the numbers.
"""

from collections.abc import Collection
from dataclasses import replace

import numpy as np

from aotc.ir.category import dot_dtypes, factor_pairs
from aotc.ir.dtypes import Array, is_int
from aotc.ir.expr import Binary, Cast, Expr, loads, substitute, walk
from aotc.ir.numbers.group_bytes import group_bytes, scale_planes
from aotc.ir.numbers.grouped import LEAST, WHOLE, Grouping, grouped_value
from aotc.ir.program import Compute, Program, Step, static_shape, update, with_constant
from aotc.oracle.evaluate import eval_compute
from aotc.passes.digits import static_extent
from aotc.passes.fold import fold_constants
from aotc.passes.precision.group_weights import sum_axis

_WIDER = 1.25  # times as many bytes as the model has it in
_MOST = 1024  # steps of the sum in a group: with more, scales weigh nothing


def blocked_weights(program: Program, columns: bool) -> frozenset[str]:
    """Names of matrices that are integers by scales, all of them constant, one per block, or, if
    ``columns``, per column too."""
    constant = set(program.consts)
    for s in program.steps:  # scales in bf16 are widened first
        if isinstance(s, Compute) and constant.issuperset(s.inputs):
            constant.update(s.outs)
    return frozenset(s.out for s in program.steps if isinstance(s, Compute) and _is_scaled(
        program, s, constant) and (columns or _in_blocks(s)))


def fold_but_groups(program: Program, columns: bool) -> Program:
    """``fold_constants`` but for such matrices."""
    return fold_constants(program, kept=blocked_weights(program, columns))


def _in_blocks(c: Compute) -> bool:
    return any(isinstance(i, Binary) and i.op == "floordiv" for n in loads(c.body)
               for i in n.index)


def _is_scaled(program: Program, c: Compute, constant: Collection[str]) -> bool:
    if len(c.outs) != 1 or c.fold != "none" or c.out in program.outputs or len(c.axes) != 2 or (
            static_shape(a.extent for a in c.axes) is None):
        return False
    return _sides(c.body) is not None and all(b in constant for b in c.inputs)


def _sides(body: Expr) -> tuple[Expr, Expr] | None:
    """(integers as floats, scales) of a product in f32 of both; None for others."""
    if not isinstance(body, Binary) or body.op != "mul" or body.dtype != "f32":
        return None
    for number, scale in ((body.a, body.b), (body.b, body.a)):
        if any(is_int(n.dtype) for n in loads(number)) and not any(
                is_int(n.dtype) for n in loads(scale)) and any(
                isinstance(n, Cast) and is_int(n.x.dtype) for n in walk(number)):
            return number, scale
    return None


def with_groups(program: Program, columns: bool) -> Program:
    """The Program whose products read such matrices as grouped weights, where their blocks run
    along the sum; others are evaluated."""
    blocked = blocked_weights(program, columns)
    if not blocked:
        return program
    for made in [s for s in program.steps if isinstance(s, Compute) and s.out in blocked]:
        changed: dict[Step, Step] = {}
        for reader in program.consumers.get(made.out, ()):
            found = _grouped(program, made, reader) if isinstance(reader, Compute) else None
            if found is not None:
                program, changed[reader] = found
        if changed:
            program = update(program, steps=tuple(changed.get(s, s) for s in program.steps))
            if not program.consumers.get(made.out):
                program = update(program, steps=tuple(s for s in program.steps if s != made))
    return fold_constants(program)


def _grouped(program: Program, made: Compute, c: Compute) -> tuple[Program, Compute] | None:
    """(the Program with a constant of bytes, the product of that) for a product of ``made``."""
    read = [n for n in loads(c.body) if n.buffer == made.out]
    if len(read) != 1 or dot_dtypes(c.body) is not None or len(c.outs) != 1:
        return None
    for f in factor_pairs(c.axes, c.raxes, c.fold, c.body):
        k = sum_axis(f)
        if f.b != read[0] or k is None or len(f.n) != 1 or f.a.dtype != "f32" or (
                set(read[0].index) != {k, f.n[0]}):
            continue
        across = read[0].index[0] != k
        found = _as_groups(*(np.ascontiguousarray(x.T if across else x)
                             for x in _numbers(program, made)))
        if found is None:
            return None
        g, packed = found
        if packed.nbytes > _WIDER * sum(program.consts[b].nbytes for b in made.inputs):
            return None  # of 2 bits: as the model has it, it takes less
        program, name = with_constant(program, f"{made.out}_{g.bits}bits", packed)
        value = grouped_value(g, name, k, f.n[0])
        return program, replace(c, body=substitute(c.body, {read[0]: value}))
    return None


def _numbers(program: Program, made: Compute) -> tuple[Array, Array]:
    """(the integers, the scales) of a matrix, each in its shape."""
    sides = _sides(made.body)
    assert sides is not None, made  # one of ``blocked_weights``
    shape = tuple(map(static_extent, made.axes))
    one, two = (np.broadcast_to(np.asarray(eval_compute(
        replace(made, body=e), None, program.consts.__getitem__, {}), np.float32), shape)
        for e in sides)
    return one, two


def _as_groups(number: Array, scale: Array) -> tuple[Grouping, Array] | None:
    """(Grouping, bytes) of integers and scales f32[K, N]; None if they are no such."""
    if not np.array_equal(np.rint(number), number) or np.max(np.abs(number), initial=0) > 255 or (
            not np.isfinite(scale).all()):
        return None
    depth, size, whole = len(number), _MOST, number.astype(np.int32)
    if _constant(scale, depth):
        count = -(-depth // _MOST)
        size = -(-depth // count)
        size += -size % (LEAST if count == 1 else WHOLE)
    while size >= LEAST and not _constant(scale, size):
        size //= 2
    for bits in (4, 8):
        least, most = -(1 << bits - 1), (1 << bits - 1) - 1
        here = size
        while here >= LEAST:
            starts = np.arange(0, depth, here)
            low, high = (u.reduceat(whole, starts) for u in (np.minimum, np.maximum))
            middle = np.where(high > most, high - most, np.where(low < least, low - least, 0))
            fits = middle.min() >= -127 and middle.max() <= 128  # zero points are signed bytes
            if fits and (high - low).max() <= most - least:
                zeros, scales = bool(middle.any()), scale[starts]
                g = Grouping(bits, here, scale_planes(scales), zeros)
                codes = whole - np.repeat(middle, here, axis=0)[:depth]
                return g, group_bytes(g, codes.astype(np.int8), scales,
                                      (-middle).astype(np.int8) if zeros else None)
            here //= 2
    return None


def _constant(scale: Array, size: int) -> bool:
    """True if all steps of a group have the scale of its first."""
    return np.array_equal(scale, np.repeat(scale[::size], size, axis=0)[:len(scale)])


__all__ = ["blocked_weights", "fold_but_groups", "with_groups"]
