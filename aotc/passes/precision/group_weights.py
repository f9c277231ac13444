"""Rewrite rule ``group``: the constant weights of a product become 8 or 4 bits with a scale for
every group of neighbours along the sum (``ir/numbers/grouped.py``); rows, sums and all else stay
as they are.

    ["group", "matmul_sum", {"bits": 4, "size": 32, "stored": "bytes"}]

Groups are symmetric, without zero points.  A scale is a bf16, so that two bytes hold it: the
largest magnitude of its group over the largest code, or over the least one, whichever loses less.
Weights that a model has as f16 or bf16 are grouped like those of f32.
With "stored": "f32" the constant holds the same numbers as f32, for a target without rows that
read bytes.  Columns of several axes, as of a transposed convolution whose windows do not overlap,
become one.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from aotc.ir.category import Factors, dot_dtypes, factor_pairs
from aotc.ir.dtypes import HALVES, Array, from_bf16, is_finite, to_bf16, to_f32
from aotc.ir.expr import Axis, Binary, Const, Expr, Load, Shape, as_expr, loads
from aotc.ir.expr import rewrite as rewrite_expr
from aotc.ir.numbers.group_bytes import group_bytes, weights_of
from aotc.ir.numbers.grouped import BITS, LEAST, Grouping, grouped_value
from aotc.ir.program import Compute, Program, update, with_constant
from aotc.ir.simplify import simplify
from aotc.passes.compute_rule import ComputeRule
from aotc.passes.digits import static_extent
from aotc.passes.precision.narrow_operands import is_whole

RULE = "group"
SIZES = (32, 128)  # steps of the sum in a group
STORED = ("bytes", "f32")  # what the weights are stored as
FLOATS = ("f32", *HALVES)  # what they were
_PLANES = 2  # bytes of a scale
_COLUMNS = 1 << 20  # weights that are rounded at a time


def sum_axis(f: Factors) -> Axis | None:
    """The one reduction axis with several steps of a product whose weights may be grouped along it;
    None if there is another number of them, or too few steps."""
    long = [r for r in f.k if r.extent != Const(1)]
    static = len(long) == 1 and isinstance(long[0].extent, Const)
    return long[0] if static and static_extent(long[0]) >= LEAST else None


def match_weights(program: Program, c: Compute) -> tuple[Factors, Load, Axis] | None:
    """(the factors, the Load of the weights, the axis of the sum) of a compute whose weights may be
    grouped; None for others."""
    if dot_dtypes(c.body) is not None or c.body.dtype != "f32" or len(c.outs) != 1:
        return None
    for f in factor_pairs(c.axes, c.raxes, c.fold, c.body):
        load, k = f.b, sum_axis(f)
        if not isinstance(load, Load) or k is None or f.a.dtype != "f32" or (
                len(f.n) > 1 and not _may_move(program, c)):
            continue
        array = program.consts.get(load.buffer)
        one = set(load.index) <= {*f.n, *f.k, Const(0)}  # matrix
        if one and array is not None and load.dtype in FLOATS and (
                is_whole(f, load, array.shape)) and (
                any(x.buffer not in program.consts for x in loads(f.a))) and (
                is_finite(array, load.dtype)):
            return f, load, k
    return None


def _may_move(program: Program, c: Compute) -> bool:
    """True if the elements of a result may lie otherwise: expressions alone read it."""
    return c.out not in program.results and all(
        isinstance(s, Compute) for s in program.consumers.get(c.out, ()))


FITS = ComputeRule(RULE, match_weights,
                   "product of f32 with a constant matrix of finite floats",
                   {"bits": BITS, "size": SIZES, "stored": STORED})
candidates, faults_of = FITS.candidates, FITS.faults_of


def rewrite(program: Program, name: str, parameters: Mapping[str, Any]) -> Program:
    """The Program with the rule applied to the compute that writes ``name``.  ScheduleError if it
    does not match."""
    c, (f, load, k) = FITS.matched(program, name, parameters)
    array = to_f32(program.consts[load.buffer], load.dtype)
    order = [load.index.index(a) for a in (k, *f.n)]
    order += [d for d in range(array.ndim) if d not in order]
    turned = array.transpose(order)
    g = Grouping(parameters["bits"], parameters["size"], _PLANES)
    packed = round_weights(g, np.ascontiguousarray(turned.reshape(len(turned), -1)))
    value: Expr
    if parameters["stored"] == "f32":
        near = weights_of(g, packed, len(turned)).reshape(turned.shape)
        near = np.ascontiguousarray(near.transpose(np.argsort(order)))
        program, stored = with_constant(program, f"{load.buffer}_{g.bits}bits", near)
        value = Load(stored, load.index, "f32")
    else:
        program, stored = with_constant(program, f"{load.buffer}_{g.bits}bits", packed)
        program, c, lane = _one_axis(program, c, f)
        value = grouped_value(g, stored, k, lane)
    new = replace(c, body=Binary("mul", f.a, value))
    return update(program, steps=tuple(new if s is c else s for s in program.steps))


def _one_axis(program: Program, c: Compute, f: Factors) -> tuple[Program, Compute, Axis]:
    """(the Program, a product whose columns are one axis, that axis); who reads the product finds
    every element where it is now."""
    if len(f.n) == 1:
        return program, c, f.n[0]
    lane = Axis("_".join(a.name for a in f.n), Const(prod(map(static_extent, f.n))))

    def joined(index: Shape) -> Shape:
        at: dict[Axis, Expr] = dict(zip(c.axes, map(as_expr, index)))
        column: Expr = Const(0)
        for a in f.n:
            column = column * a.extent + at[a]
        return tuple(simplify(column) if a == f.n[0] else at[a] for a in c.axes
                     if a == f.n[0] or a not in f.n)

    def moved(e: Expr) -> Expr | None:
        return replace(e, index=joined(e.index)) if (
            isinstance(e, Load) and e.buffer == c.out) else None

    new = replace(c, axes=tuple(lane if a == f.n[0] else a for a in c.axes
                                if a == f.n[0] or a not in f.n))
    steps = tuple(new if s is c else replace(s, body=rewrite_expr(s.body, moved))
                  if isinstance(s, Compute) else s for s in program.steps)
    buffer = replace(program.buffers[c.out], shape=tuple(a.extent for a in new.axes))
    return replace(program, steps=steps, buffers={**program.buffers, c.out: buffer}), new, lane


def round_weights(g: Grouping, matrix: Array) -> Array:
    """u8[groups, rows, N]: finite weights f32[K, N] in groups."""
    depth, n = matrix.shape
    step = max(1, _COLUMNS // max(1, depth))
    out = np.zeros((-(-depth // g.size), g.rows, n), np.uint8)
    for first in range(0, n, step):
        out[:, :, first:first + step] = _rounded_columns(g, matrix[:, first:first + step])
    return out


def _rounded_columns(g: Grouping, matrix: Array) -> Array:
    depth, n = matrix.shape
    count, top = -(-depth // g.size), (1 << g.bits - 1) - 1
    w = np.zeros((count * g.size, n), np.float32)
    w[:depth] = matrix
    w = w.reshape(count, g.size, n)
    at = np.argmax(np.abs(w), axis=1)[:, None]
    largest = np.take_along_axis(w, at, 1)[:, 0]
    best: tuple[Array, Array, Array] | None = None
    for end in (top, -top - 1):
        ends = np.abs(largest) if end > 0 else largest
        scale = from_bf16(to_bf16(ends / np.float32(end)))[:, None]
        usable = scale != 0
        codes = np.where(usable, np.rint(w / np.where(usable, scale, 1)), 0)
        codes = np.clip(codes, -top - 1, top)
        error = np.sum((codes * scale - w).astype(np.float64) ** 2, axis=1)
        if best is None:
            best = codes, scale, error
        else:
            less = (error < best[2])[:, None]
            best = np.where(less, codes, best[0]), np.where(less, scale, best[1]), error
    assert best is not None, g
    return group_bytes(g, best[0].reshape(-1, n).astype(np.int8), best[1][:, 0])


__all__ = ["RULE", "SIZES", "candidates", "faults_of", "match_weights", "rewrite", "round_weights",
           "sum_axis"]
