"""Rewrite rule ``integer_rows``: the rows that grouped weights are multiplied by become signed
numbers of 8 or 16 bits with a scale for every row, so that products are added up in integers, group
by group.

    ["integer_rows", "matmul_sum", {"bits": 8}]

    scale[m]    = max over k of |x[m, k]| / 127, of 16 bits / 32767
    code[m, k]  = round(x[m, k] / scale[m]), of 8 bits stored 128 larger as a u8, from 0 to 255
    out[m, n]   = (sum over k of code[m, k] * w[k, n]) * scale[m]

Products of one tensor share its codes.  A NaN in a row makes all its results NaN, an infinity makes
them infinite or NaN.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from aotc.ir.category import Factors, dot_dtypes, factor_pairs, is_grouped
from aotc.ir.expr import (
    Axis,
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Unary,
    axes_of,
    binary,
    substitute,
)
from aotc.ir.numbers.grouped import MIDDLE, grouped_weights, integer_value
from aotc.ir.program import Buffer, Compute, Program, Step, free_name, update
from aotc.ir.simplify import simplify
from aotc.passes.compute_rule import ComputeRule

RULE = "integer_rows"
BITS = {8: "u8", 16: "i16"}  # of a code, and what it is stored as


def match_rows(program: Program, c: Compute) -> tuple[Load, int] | None:
    """(the Load of the rows, its dimension along the sum) of a product of f32 and grouped weights
    whose rows lie in one tensor; None for others."""
    dtypes = dot_dtypes(c.body)
    if len(c.outs) != 1 or c.fold != "sum" or dtypes is None or not is_grouped(dtypes) or (
            dtypes.a != "f32"):
        return None
    found = (whole_rows(program, f) for f in factor_pairs(c.axes, c.raxes, c.fold, c.body))
    return next((m for m in found if m is not None), None)


def whole_rows(program: Program, f: Factors) -> tuple[Load, int] | None:
    """(the Load of a product's rows, its dimension along the sum) if a row of results takes a whole
    row of one computed tensor; None if not."""
    long = [r for r in f.k if r.extent != Const(1)]
    if not isinstance(f.a, Load) or f.a.buffer in program.consts or len(long) != 1:
        return None
    along = [d for d, i in enumerate(f.a.index) if long[0] in axes_of(i)]
    whole = len(along) == 1 and f.a.index[along[0]] == long[0] and (
        program.shape(f.a.buffer)[along[0]] == long[0].extent)
    return (f.a, along[0]) if whole else None


FITS = ComputeRule(RULE, match_rows, "product of one tensor's rows and grouped weights",
                   {"bits": tuple(BITS)})
candidates, faults_of = FITS.candidates, FITS.faults_of


def rewrite(program: Program, name: str, parameters: Mapping[str, Any]) -> Program:
    """The Program with the rule applied to the compute that writes ``name``.  ScheduleError if it
    does not match."""
    c, (load, along) = FITS.matched(program, name, parameters)
    assert isinstance(c.body, Binary), c
    weights = c.body.b if grouped_weights(c.body.b) else c.body.a
    bits = parameters["bits"]
    program, codes, scale = _coded(program, load.buffer, along, bits)
    one = dict.fromkeys(c.raxes, Const(0))  # those beside the sum have one step
    outer = tuple(simplify(substitute(i, one))
                  for i in load.index[:along] + load.index[along + 1:])
    total = free_name(program.buffers, f"{name}_integers")
    product = replace(c, outs=(total,), body=Binary(
        "mul", integer_value(Load(codes, load.index, BITS[bits])), weights))
    scaled = Compute(c.outs, c.axes, (), "none", Binary(
        "mul", Load(total, c.axes, "f32"), Load(scale, outer, "f32")), origin=c.origin)
    steps: list[Step] = []
    for s in program.steps:
        steps += [product, scaled] if s is c else [s]
    buffers = {**program.buffers, total: Buffer(total, program.shape(name), "f32")}
    return update(program, steps=tuple(steps), buffers=buffers)


def _coded(program: Program, buffer: str, along: int, bits: int) -> tuple[Program, str, str]:
    """(the Program with the codes of a tensor, their name, that of the scales).  A second product
    of the tensor finds those of the first."""
    largest = (1 << bits - 1) - 1
    old = program.buffers[buffer]
    axes = tuple(Axis(f"i{d}", e) for d, e in enumerate(old.shape))
    outer, k = axes[:along] + axes[along + 1:], axes[along]
    x = Load(buffer, axes, "f32")
    top, scale, codes = (f"{buffer}_{what}{bits}_{along}" for what in ("top", "scale", "codes"))
    known = program.producer.get(codes)
    if isinstance(known, Compute) and known == _codes(
            codes, x, scale, outer, axes, known.origin, bits):
        return program, codes, scale
    top, scale, codes = (free_name(program.buffers, n) for n in (top, scale, codes))
    made = program.producer.get(buffer)
    origin = (made or program.consumers[buffer][0]).origin
    new: tuple[Step, ...] = (
        Compute((top,), outer, (k,), "max", Unary("abs", x), origin=origin),
        Compute((scale,), outer, (), "none",
                Binary("mul", Load(top, outer, "f32"), Const(1 / largest, "f32")), origin=origin),
        _codes(codes, x, scale, outer, axes, origin, bits))
    steps: list[Step] = [] if made is not None else [*new]
    for s in program.steps:
        steps += [s, *new] if s is made else [s]
    lengths = tuple(a.extent for a in outer)
    buffers = {**program.buffers, top: Buffer(top, lengths, "f32"),
               scale: Buffer(scale, lengths, "f32"), codes: Buffer(codes, old.shape, BITS[bits])}
    return replace(program, steps=tuple(steps), buffers=buffers), codes, scale


def _codes(name: str, x: Load, scale: str, outer: tuple[Axis, ...], axes: tuple[Axis, ...],
           origin: tuple[str, ...], bits: int) -> Compute:
    code: Expr = Unary("round", Binary("div", x, Load(scale, outer, "f32")))
    code = code + Const(MIDDLE, "f32") if bits == 8 else code
    low = 0 if bits == 8 else -(1 << bits - 1)
    ends = Const(float(low), "f32"), Const(float(low + (1 << bits) - 1), "f32")
    body = Cast(BITS[bits], binary("min", binary("max", code, ends[0]), ends[1]))
    return Compute((name,), axes, (), "none", body, origin=origin)


__all__ = ["BITS", "RULE", "candidates", "faults_of", "match_rows", "rewrite", "whole_rows"]
