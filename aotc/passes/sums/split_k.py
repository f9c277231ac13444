"""Rewrite rule ``split_k``: a fold, such as the sum of a product, is made in parts, side by side,
and then of those.

    ["split_k", "matmul_sum", {"parts": 4}]

    c[m, n] = sum(k) x[m, k] * w[k, n]

becomes, with K/4 terms in each part and the constant cut the same way,

    c_parts[s, m, n] = sum(k) x[m, s*K/4 + k] * w4[s, k, n]
    c[m, n]          = sum(s) c_parts[s, m, n]

Work items of a small product with a long sum are few, as are those of a sum of everything: where
the machine has more workers than those, the parts keep them busy.  The order of additions follows
from the rewrite alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from aotc.errors import ScheduleError
from aotc.ir.category import Factors, dot_dtypes, factor_pairs, is_grouped
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Axis, Const, Expr, Load, axes_of, loads, substitute
from aotc.ir.program import Buffer, Compute, Program, Step, free_name, make_const, update
from aotc.ir.simplify import simplify

RULE = "split_k"
FOLDS = ("sum", "prod", "max", "min")  # of parts as of single terms


@dataclass(frozen=True)
class LongSum:
    """A fold that can be cut: the factors of a product (None: it is none) and the axis, the
    longest that it runs over, of constant extent ``terms``."""

    factors: Factors | None
    axis: Axis
    terms: int


def match_sum(program: Program, c: Compute) -> LongSum | None:
    """The LongSum of a compute, or None."""
    if len(c.outs) != 1 or DTYPES[c.body.dtype].size < 4 or c.fold not in FOLDS or (
            c.acc not in ("", c.body.dtype)):
        return None
    sums = [(r.extent.value, r) for r in c.raxes if isinstance(r.extent, Const)]
    if not sums or len(sums) != len(c.raxes):
        return None
    terms, axis = max(sums, key=lambda x: x[0])
    if terms < 2 or not all(_can_cut(program, n, axis) for n in loads(c.body)):
        return None
    grouped = is_grouped(dot_dtypes(c.body))
    pairs = () if grouped else factor_pairs(c.axes, c.raxes, c.fold, c.body)
    const = [all(n.buffer in program.consts for n in loads(f.b)) for f in pairs]
    return LongSum(pairs[max(range(len(pairs)), key=const.__getitem__)] if pairs else None, axis,
                   terms)


def _can_cut(program: Program, load: Load, axis: Axis) -> bool:
    """True if a load stays one when the axis is cut: of a constant, whose dimension is cut too
    where the axis alone indexes it."""
    array = program.consts.get(load.buffer)
    if array is None or axis not in load.index:
        return True
    at = [d for d, i in enumerate(load.index) if axis in axes_of(i)]
    return len(at) == 1 and axis.extent == Const(array.shape[at[0]])


def candidates(program: Program) -> tuple[str, ...]:
    """Names of the computes that the rule fits, in program order."""
    return tuple(c.out for c in program.steps
                 if isinstance(c, Compute) and match_sum(program, c) is not None)


def faults_of(program: Program, name: str, parameters: Mapping[str, Any]) -> list[str]:
    """What speaks against the rule for the compute that writes ``name``."""
    where, c = f"rewrites: {RULE} {name}", program.producer.get(name)
    m = match_sum(program, c) if isinstance(c, Compute) and c.out == name else None
    if m is None:
        legal = ", ".join(candidates(program)) or "no compute of this program"
        return [f"{where}: no sum, product, maximum or minimum of constant length; choose from "
                f"{legal}"]
    parts = parameters.get("parts")
    legal_parts = [n for n in range(2, m.terms + 1) if m.terms % n == 0]
    if set(parameters) != {"parts"} or isinstance(parts, bool) or parts not in legal_parts:
        return [f"{where}: parameters are {{\"parts\": one of "
                f"{', '.join(map(str, legal_parts))}}}"]
    return []


def rewrite(program: Program, name: str, parameters: Mapping[str, Any]) -> Program:
    """The Program with the sum of the compute that writes ``name`` in parts.  ScheduleError if it
    does not match."""
    faults = faults_of(program, name, parameters)
    c = program.producer[name]
    m = match_sum(program, c) if isinstance(c, Compute) else None
    if faults or not isinstance(c, Compute) or m is None:
        raise ScheduleError(faults)
    parts = parameters["parts"]
    each = m.terms // parts
    s = _free_axis(c, "part", parts)
    k = Axis(m.axis.name, Const(each))
    program, body = _cut_constants(program, c.body, m.axis, s, k)
    body = simplify(substitute(body, {m.axis: s * each + k}))
    made = free_name(program.buffers, f"{name}_parts")
    raxes = tuple(k if r == m.axis else r for r in c.raxes)
    shape = (Const(parts), *program.buffers[name].shape)
    first = replace(c, outs=(made,), axes=(s, *c.axes), raxes=raxes, body=body)
    then = replace(c, raxes=(s,), body=Load(made, (s, *c.axes), c.acc_dtype))
    steps: list[Step] = []
    for step in program.steps:
        steps += [first, then] if step is c else [step]
    return update(program, steps=tuple(steps), buffers={
        **program.buffers, made: Buffer(made, shape, c.acc_dtype, "temp")})


def _cut_constants(program: Program, body: Expr, axis: Axis, s: Axis,
                   k: Axis) -> tuple[Program, Expr]:
    """The Program with the constants that ``body`` reads along ``axis`` reshaped, parts and steps
    in a dimension each, and the body that reads those."""
    known: dict[Load, Load] = {}
    for load in dict.fromkeys(loads(body)):
        if load.buffer not in program.consts or axis not in load.index:
            continue
        at, array = load.index.index(axis), program.consts[load.buffer]
        shape = (*array.shape[:at], array.shape[at] // k.extent.value, k.extent.value,
                 *array.shape[at + 1:]) if isinstance(k.extent, Const) else array.shape
        name = free_name(program.buffers, f"{load.buffer}_parts")
        const = make_const(name, array.reshape(shape), program.buffers[load.buffer].onnx)
        program = replace(program, consts={**program.consts, name: array.reshape(shape)},
                          buffers={**program.buffers, name: const})
        known[load] = Load(name, (*load.index[:at], s, k, *load.index[at + 1:]), load.dtype)
    return program, substitute(body, known)


def _free_axis(c: Compute, name: str, extent: int) -> Axis:
    taken = {a.name for a in (*c.axes, *c.raxes)}
    number = 1
    while (found := name if number == 1 else f"{name}{number}") in taken:
        number += 1
    return Axis(found, Const(extent))


__all__ = ["RULE", "LongSum", "candidates", "faults_of", "match_sum", "rewrite"]
