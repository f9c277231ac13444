"""Rewrite rule ``polyphase``: resampling without a look-up per element.

    ("polyphase", "resize_3", {})

A map that reads places which a table holds gathers every element by itself:

    y[r, i] = x[r, t0[i]] * w0[i] + x[r, t1[i]] * w1[i]

Where it scales the last dimension by a rational factor ``up / down``, the table holds
``(down*i + shift) // up``, cut off at both ends of ``x``: elements of one phase ``i % up`` read
every ``down``-th element.  The rule repeats the ends of ``x`` and sorts the weights by phase
(enlarged by two, ``t0[i] = (i - 1) // 2``):

    e[r, k] = where(k < 1, x[r, 0], where(k > n, x[r, n - 1], x[r, k - 1]))
    y[r, i] = e[r, (i + 1) // 2] * v0[i % 2] + e[r, (i + 3) // 2] * v1[i % 2]

Every element is computed from the same numbers in the same order.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import numpy as np

from aotc.ir.dtypes import Array
from aotc.ir.expr import Axis, Const, Expr, Load, Where, axes_of, compare, loads, rewrite
from aotc.ir.program import Buffer, Compute, Program, Step, free_name, make_const, update
from aotc.ir.simplify import simplify
from aotc.oracle.evaluate import eval_compute
from aotc.passes.compute_rule import ComputeRule

LARGEST = 16  # number of phases that is looked for
FURTHEST = 2  # times as large as the result: what the copy with its ends may be


@dataclass(frozen=True)
class Resampling:
    """A map that scales the last dimension of ``source`` by ``up / down`` along its innermost axis
    ``axis``.  shifts: {place of a load in that dimension: its shift}; weights: constants that are
    read at the axis; low, high: elements that ``source`` is short of on either side."""

    source: str
    axis: Axis
    up: int
    down: int
    shifts: Mapping[Expr, int]
    weights: tuple[str, ...]
    low: int
    high: int


def resamplings(program: Program) -> Iterator[tuple[str, Resampling]]:
    """(name, Resampling) of every compute that the rule is for, along its innermost axis."""
    for s in program.steps:
        found = find_resampling(program, s) if isinstance(s, Compute) else None
        if found is not None:
            yield s.outs[0], found


def find_resampling(program: Program, s: Compute) -> Resampling | None:
    """The Resampling of a map along its innermost axis; None if it is none."""
    if s.fold != "none" or len(s.outs) != 1 or not s.axes or not isinstance(
            s.axes[-1].extent, Const):
        return None
    axis, size = s.axes[-1], s.axes[-1].extent.value
    resampled = [n for n in s.loads if _is_resampled(program, n, axis)]
    sources = {n.buffer for n in resampled}
    if len(sources) != 1 or any(n.buffer in sources and n not in resampled for n in s.loads):
        return None
    if not any(loads(n.index[-1]) for n in resampled):
        return None  # divided only: there is nothing to look up
    (source,) = sources
    extent = program.shape(source)[-1]
    if not isinstance(extent, Const) or extent.value < 2:
        return None
    common = gcd(size, extent.value)
    up, down, shifts = size // common, extent.value // common, {}
    if not 1 < up <= LARGEST or down > FURTHEST * up:
        return None
    for place in dict.fromkeys(n.index[-1] for n in resampled):
        shift = _shift(_values(program, place, axis), up, down, extent.value)
        if shift is None:
            return None
        shifts[place] = shift
    inner = {n.buffer for place in shifts for n in loads(place)}
    weights = tuple(dict.fromkeys(n.buffer for n in s.loads if n.buffer in program.consts
                                  and _at(n, axis) and n.buffer not in inner))
    first = min(v // up for v in shifts.values())
    last = max((down * (size - 1) + v) // up for v in shifts.values())
    return Resampling(source, axis, up, down, shifts, weights, max(0, -first),
                      max(0, last - (extent.value - 1)))


def _at(n: Load, axis: Axis) -> bool:
    """True for a Load at ``[axis]``, or at numbers behind it."""
    return n.index[:1] == (axis,) and all(isinstance(i, Const) for i in n.index[1:])


def _is_resampled(program: Program, n: Load, axis: Axis) -> bool:
    """True for a Load of what is no constant, whose last dimension alone ``axis`` moves, looked up
    by constants or divided."""
    if n.buffer in program.consts or not n.index or axes_of(n.index[-1]) != {axis}:
        return False
    return not any(axis in axes_of(i) for i in n.index[:-1]) and n.index[-1] != axis and all(
        x.buffer in program.consts for x in loads(n.index[-1]))


def _values(program: Program, place: Expr, axis: Axis) -> Array:
    """A place of ``_is_resampled`` at every point of the axis."""
    step = Compute(("place",), (axis,), (), "none", place)
    values = eval_compute(step, None, program.consts.__getitem__, {})
    assert isinstance(values, np.ndarray)
    return values


def _shift(places: Array, up: int, down: int, extent: int) -> int | None:
    """v of ``places[i] = (down*i + v) // up`` cut off at 0 and ``extent - 1``; None if they are
    others."""
    i = np.arange(places.size)
    inside = (places > 0) & (places < extent - 1)
    if not inside.any():
        return None
    shift = int((places * up - down * i)[inside].max())
    want = np.clip((down * i + shift) // up, 0, extent - 1)
    return shift if np.array_equal(places, want) else None


FITS = ComputeRule("polyphase", find_resampling,
                   "map that scales its last dimension by a table", {})
faults_of = FITS.faults_of


def rewrite_resampling(program: Program, name: str,
                       parameters: Mapping[str, Any]) -> Program:
    """The Program in which ``name`` reads a source with its ends repeated, by phase."""
    s, r = FITS.matched(program, name, parameters)
    buffers, consts = dict(program.buffers), dict(program.consts)

    edged = free_name(buffers, f"{name}_edged")
    made = _with_ends(program, r, edged)
    buffers[edged] = Buffer(edged, tuple(a.extent for a in made.axes), made.body.dtype)
    by_phase = {}
    for w in r.weights:
        by_phase[w] = new = free_name(buffers, f"{w}_by_phase")
        consts[new] = _by_phase(program.consts[w], r.up)
        buffers[new] = make_const(new, consts[new])

    def visit(n: Expr) -> Expr | None:
        if not isinstance(n, Load):
            return None
        if n.buffer in by_phase and _at(n, r.axis):
            index = (r.axis % r.up, *n.index[1:], r.axis // r.up)
            new = by_phase[n.buffer]
            return Load(new, index[:consts[new].ndim], n.dtype)
        if n.buffer != r.source:
            return None
        place = (r.axis * r.down + (r.shifts[n.index[-1]] + r.up * r.low)) // r.up
        return Load(edged, (*n.index[:-1], place), n.dtype)

    phased = replace(s, body=simplify(rewrite(s.body, visit)))
    steps: list[Step] = []
    for x in program.steps:
        steps += [made, phased] if x is s else [x]
    return update(program, steps=tuple(steps), buffers=buffers, consts=consts)


def _with_ends(program: Program, r: Resampling, name: str) -> Compute:
    """The compute of the source with its ends repeated."""
    *outer, extent = program.shape(r.source)
    axes = tuple(Axis(f"i{d}", e) for d, e in enumerate(
        (*outer, simplify(extent + (r.low + r.high)))))
    *around, k = axes

    def at(place: Expr) -> Load:
        return Load(r.source, (*around, place), program.dtype(r.source))

    body: Expr = at(simplify(k - r.low))
    if r.high:
        body = Where(compare("ge", k, simplify(extent + r.low)), at(simplify(extent - 1)), body)
    if r.low:
        body = Where(compare("lt", k, Const(r.low)), at(Const(0)), body)
    step = program.producer.get(r.source)
    return Compute((name,), axes, (), "none", body, origin=step.origin if step else ())


def _by_phase(weights: Array, up: int) -> Array:
    """[phase, .., place] of a table [up*place + phase, ..]; without the places where no phase
    depends on them, to the bit."""
    table = np.moveaxis(weights.reshape(-1, up, *weights.shape[1:]), 0, -1).copy()
    bits = table.view(np.dtype(f"u{table.itemsize}"))
    return table[..., 0].copy() if (bits == bits[..., :1]).all() else table


__all__ = ["Resampling", "faults_of", "find_resampling", "resamplings", "rewrite_resampling"]
