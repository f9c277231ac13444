"""Winograd forms of convolution as a rewriting of Programs: matrices, recognition, new computes.

A stride-1 convolution along an axis, y[o] = sum(r) x[o + r - p] * w[r], is computed for ``m``
outputs at once from ``m + r - 1`` inputs: Y = A^T [(G w) . (B^T d)], exact over the rationals.
``rewrite`` turns one compute into three: the input transform V (constant matrices over a few
inputs), M (a batched contraction over the channels, one per point) and the output transform under
the old name.  Which axes are transformed is the caller's choice; the others stay taps of M.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from aotc.errors import ScheduleError
from aotc.ir.category import is_zero, zero_outside
from aotc.ir.conditions import conjuncts
from aotc.ir.dtypes import Array
from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Expr,
    Load,
    Where,
    all_hold,
    axes_of,
    compare,
    substitute,
)
from aotc.ir.program import Buffer, Compute, Program, Step, free_name, make_const, update
from aotc.ir.schedule import WINOGRAD_TILES
from aotc.ir.simplify import simplify, split_linear
from aotc.passes.digits import static_extent

# points of the interpolation, best first: small, then their reciprocals; infinity is implied
_POINTS = (0, 1, -1, 2, -2, Fraction(1, 2), Fraction(-1, 2))
MAX_POINTS = len(_POINTS) + 1
TILES = WINOGRAD_TILES


@dataclass(frozen=True)
class Forms:
    """Matrices of F(m, r) as f64 arrays: ``at`` [m, n], ``g`` [n, r], ``bt`` [n, n], n = m+r-1."""

    at: Array
    g: Array
    bt: Array


@cache
def exact_forms(m: int, r: int) -> tuple[tuple[tuple[Fraction, ...], ...], ...]:
    """(A^T, G, B^T) of F(m, r) as nested tuples of Fractions, from Lagrange interpolation."""
    n = m + r - 1
    points = [Fraction(p) for p in _POINTS[:n - 1]]
    at = [[p ** i for p in points] + [Fraction(i == m - 1)] for i in range(m)]
    g, bt = [], []
    for p in points:
        others = [q for q in points if q != p]
        scale = Fraction(1)
        for q in others:
            scale *= p - q
        row = _product(others)
        # integers in B^T where that costs nothing: its rows are multiplied while the model runs
        up = max(c.denominator for c in row)
        g.append([p ** k / scale / up for k in range(r)])
        bt.append([c * up for c in row] + [Fraction(0)])
    g.append([Fraction(k == r - 1) for k in range(r)])
    bt.append(_product(points))
    return tuple(tuple(tuple(row) for row in x) for x in (at, g, bt))


def _product(roots: Iterable[Fraction]) -> list[Fraction]:
    """Coefficients of the product of (x - root), the constant first."""
    out = [Fraction(1)]
    for root in roots:
        out = [(out[k - 1] if k else Fraction(0)) - (out[k] * root if k < len(out) else 0)
               for k in range(len(out) + 1)]
    return out


@cache
def forms(m: int, r: int) -> Forms:
    """The Forms of F(m, r)."""
    return Forms(*(np.array([[float(c) for c in row] for row in x]) for x in exact_forms(m, r)))


# ---------------------------------------------------------------- recognition

@dataclass(frozen=True)
class SlidingAxis:
    """One sliding axis: output axis, reduction axis (the taps), dimension of the data, and the
    constant in ``data index = out + tap + shift``."""

    out: Axis
    tap: Axis
    dim: int
    shift: int


@dataclass(frozen=True)
class Convolution:
    """A compute seen as a convolution: the data's load and the conditions of its zero fill, the
    constant weights' load, sliding axes by the name of their output axis, the channel axis summed
    over, and the output axis that only the weights have."""

    compute: Compute
    data: Load
    conds: tuple[Expr, ...]
    weights: Load
    windows: dict[str, SlidingAxis]
    channel: Axis
    columns: Axis


def find_convolution(program: Program, compute: Step) -> Convolution | None:
    """The Convolution that a compute is, by its expression alone; None if it is none."""
    c = compute
    if not isinstance(c, Compute) or c.fold != "sum" or c.body.dtype != "f32" or not (
            isinstance(c.body, Binary) and c.body.op == "mul"):
        return None
    for a, b in ((c.body.a, c.body.b), (c.body.b, c.body.a)):
        data, conds = _guarded_load(a)
        if data is None or not isinstance(b, Load) or b.buffer not in program.consts:
            continue
        found = _match(c, data, conds, b)
        if found is not None:
            return found
    return None


def _guarded_load(e: Expr) -> tuple[Load | None, tuple[Expr, ...]]:
    """(Load, conjuncts) of a Load, or of one that is zero where a condition fails."""
    if isinstance(e, Where) and is_zero(e.b) and isinstance(e.a, Load):
        return e.a, tuple(conjuncts(e.cond))
    return (e, ()) if isinstance(e, Load) else (None, ())


def _match(c: Compute, data: Load, conds: tuple[Expr, ...], weights: Load) -> Convolution | None:
    plain = [i for i in weights.index if isinstance(i, Axis)]
    if len(plain) != len(weights.index) or len(set(plain)) != len(plain) or not all(
            r in plain for r in c.raxes):
        return None
    columns = [a for a in c.axes if a in plain]
    channels = [i for i in data.index if i in c.raxes]
    if len(columns) != 1 or len(channels) != 1 or any(columns[0] in axes_of(i)
                                                      for i in data.index):
        return None
    windows = {}
    for dim, index in enumerate(data.index):
        w = _window(c, data, conds, dim, index)
        if w is not None and w.out != columns[0]:
            windows[w.out.name] = w
    if not windows:
        return None
    return Convolution(c, data, conds, weights, windows, channels[0], columns[0])


def _window(c: Compute, data: Load, conds: tuple[Expr, ...], dim: int,
            index: Expr) -> SlidingAxis | None:
    """The Window of one dimension: out + tap + constant, static taps, and both nowhere else."""
    here = axes_of(index)
    outs, taps = [a for a in c.axes if a in here], [r for r in c.raxes if r in here]
    if len(here) != 2 or len(outs) != 1 or len(taps) != 1:
        return None
    out, tap = outs[0], taps[0]
    shift = simplify(index - out - tap)
    if not isinstance(shift, Const) or not isinstance(tap.extent, Const):
        return None
    if any(here & axes_of(i) for d, i in enumerate(data.index) if d != dim):
        return None
    for cond in conds:
        if not here & axes_of(cond):
            continue
        if axes_of(cond) - here or not _slides(cond, out, tap):
            return None
    return SlidingAxis(out, tap, dim, shift.value)


def _slides(cond: Expr, out: Axis, tap: Axis) -> bool:
    """A comparison that sees the two axes through their sum only."""
    if not isinstance(cond, Binary) or cond.a.dtype != "i64":
        return False
    diff = simplify(cond.a - cond.b)
    a, b = split_linear(diff, out), split_linear(diff, tap)
    return a is not None and b is not None and a[0] == b[0]


# ---------------------------------------------------------------- rewriting

def faults_of(program: Program, compute: str, tile: Any) -> list[str]:
    """What is wrong with the rewriting of one compute, with the legal choices; empty if nothing."""
    where = f"rewrites: winograd of {compute}"
    step = program.producer.get(compute)
    if step is None:
        return [f"{where}: the program has no such compute"]
    conv = find_convolution(program, step)
    if conv is None:
        return [f"{where}: no convolution with constant weights, stride 1 and static taps; "
                "remove it"]
    if not isinstance(tile, dict) or not tile:
        return [f"{where}: {tile!r}; give the outputs per tile of some of its axes "
                + ", ".join(conv.windows)]
    faults = []
    for name, m in tile.items():
        if name not in conv.windows:
            faults.append(f"{where}: axis {name!r}; choose from {', '.join(conv.windows)}")
            continue
        legal = legal_tiles(conv.windows[name])
        if m not in legal or isinstance(m, bool):
            faults.append(f"{where}: {m!r} outputs per tile along {name}; choose from "
                          + (", ".join(map(str, legal)) or "none"))
    return faults


def legal_tiles(window: SlidingAxis) -> tuple[int, ...]:
    """Outputs per tile that there are points for."""
    r = static_extent(window.tap)
    return tuple(m for m in TILES if r > 1 and m + r - 1 <= MAX_POINTS)


def rewrite(program: Program, compute: str, tile: Mapping[str, int]) -> Program:
    """The Program with one convolution in its Winograd form; ``tile``: {output axis: m}.

    ScheduleError for what is no convolution.  Buffers NAME_v and NAME_m and the transformed
    weights are new; weights nobody else reads are dropped.
    """
    conv = find_convolution(program, program.producer[compute])
    if conv is None:
        raise ScheduleError(faults_of(program, compute, tile))
    parts = _Parts(program, conv, {n: tile[n] for n in conv.windows if n in tile})
    v, m, y = parts.input_transform(), parts.products(), parts.output_transform()
    steps: list[Step] = []
    for s in program.steps:
        steps += [v, m, y] if s is conv.compute else [s]
    buffers = dict(program.buffers)
    for s in (v, m):
        buffers[s.out] = Buffer(s.out, tuple(simplify(a.extent) for a in s.axes), "f32")
    buffers |= {n: make_const(n, a) for n, a in parts.consts.items()}
    return update(program, steps=tuple(steps), buffers=buffers,
                  consts=program.consts | parts.consts)


class _Parts:
    """The three computes of one rewriting and the constants they read."""

    def __init__(self, program: Program, conv: Convolution, tile: Mapping[str, int]) -> None:
        self.program, self.conv, self.tile = program, conv, tile
        self.consts: dict[str, Array] = {}
        self.windows = [conv.windows[n] for n in tile]
        self.points = {w: Axis(f"{w.out.name}_x", Const(self.count(w))) for w in self.windows}
        self.tiles = {w: Axis(f"{w.out.name}_t", simplify(
            (w.out.extent + (tile[w.out.name] - 1)) // tile[w.out.name])) for w in self.windows}
        by_dim = {w.dim: w for w in self.windows}
        # dimensions of V behind the points: the data's own, a transformed one counts tiles
        data = conv.data
        self.lead = {d: Axis(_axis_name(i, d), program.shape(data.buffer)[d])
                     for d, i in enumerate(data.index) if d not in by_dim and i != conv.channel}
        self.v_name = self.fresh(f"{conv.compute.out}_v")
        self.m_name = self.fresh(f"{conv.compute.out}_m")

    def count(self, w: SlidingAxis) -> int:
        return self.tile[w.out.name] + static_extent(w.tap) - 1

    def fresh(self, name: str) -> str:
        return free_name(self.program.buffers, name)

    def matrix(self, kind: str, w: SlidingAxis) -> str:
        """Name of the constant matrix ``at`` or ``bt`` of a window, one per form."""
        m, r = self.tile[w.out.name], static_extent(w.tap)
        array = getattr(forms(m, r), kind).astype(np.float32)
        name = f"winograd_{kind}_{m}_{r}"
        while name in self.program.buffers and not (
                name in self.program.consts
                and np.array_equal(self.program.consts[name], array)):
            name += "_"
        self.consts[name] = array
        return name

    def input_transform(self) -> Compute:
        """V[points.., lead.., tiles.., channel] = sum over a tile's inputs, zero outside."""
        conv, index = self.conv, list(self.conv.data.index)
        within = {w: Axis(f"{w.out.name}_i", Const(self.count(w))) for w in self.windows}
        conds = []
        for d, a in self.lead.items():
            index[d] = a
        for w in self.windows:
            at = simplify(self.tiles[w] * self.tile[w.out.name])
            here = {w.out: at, w.tap: within[w]}
            index[w.dim] = simplify(substitute(conv.data.index[w.dim], here))
            conds += [simplify(substitute(c, here)) for c in conv.conds if w.out in axes_of(c)]
            if not self._covered(w):
                end = simplify(w.out.extent + static_extent(w.tap) - 1)
                conds.append(compare("lt", simplify(at + within[w]), end))
        conds = [c for c in conds if c != Const(True, "bool")]
        body = zero_outside(Load(conv.data.buffer, tuple(index), "f32"), all_hold(conds))
        for w in self.windows:
            body = Binary("mul", body, Load(self.matrix("bt", w), (self.points[w], within[w]),
                                            "f32"))
        axes = (*self.points.values(), *self.lead.values(), *self.tiles.values(), conv.channel)
        return Compute((self.v_name,), axes, tuple(within.values()), "sum", body,
                       origin=conv.compute.origin)

    def _covered(self, w: SlidingAxis) -> bool:
        """True if the last tile reads nothing, or only zeros, behind the last input it needs."""
        m, r, n = self.tile[w.out.name], static_extent(w.tap), w.out.extent
        behind = -n.value % m if isinstance(n, Const) else m - 1
        for v in range(r - 1, behind + r - 1):
            at: dict[Expr, Expr] = {w.out: simplify(n + v), w.tap: Const(0)}
            if not any(simplify(substitute(c, at)) == Const(False, "bool")
                       for c in self.conv.conds):
                return False
        return True

    def products(self) -> Compute:
        """M[points.., other outputs.., tiles.., columns] = sum over channels and taps left."""
        conv, c = self.conv, self.conv.compute
        gone = {w.tap for w in self.windows}
        sliding = {w.out for w in self.windows}
        raxes = tuple(r for r in c.raxes if r not in gone)
        others = tuple(a for a in c.axes if a not in sliding and a != conv.columns)
        lead = tuple(conv.data.index[d] for d in self.lead)
        load = Load(self.v_name, (*self.points.values(), *lead, *self.tiles.values(),
                                  conv.channel), "f32")
        conds = [x for x in conv.conds if not axes_of(x) & sliding]
        weights = Load(self.fold_weights(raxes), (*self.points.values(), *raxes, conv.columns),
                       "f32")
        body = Binary("mul", zero_outside(load, all_hold(conds)), weights)
        axes = (*self.points.values(), *others, *self.tiles.values(), conv.columns)
        return Compute((self.m_name,), axes, raxes, "sum", body, origin=c.origin)

    def fold_weights(self, raxes: tuple[Axis, ...]) -> str:
        """Name of U = G w G^T, computed in f64: [points.., reduction axes.., columns]."""
        conv = self.conv
        u = self.folded((*self.points.values(), *raxes, conv.columns))
        text = "".join(f"_{n}{m}" for n, m in self.tile.items())
        name = f"{conv.weights.buffer}_u{text}"
        while name in self.program.buffers and not (
                name in self.program.consts and np.array_equal(self.program.consts[name], u)):
            name += "_"
        self.consts[name] = u
        return name

    def folded(self, wanted: tuple[Axis, ...]) -> Array:
        """U along the axes ``wanted``.  Of weights that are one number in memory, which outline a
        Program whose values nobody asks for, it is one, too."""
        w = self.program.consts[self.conv.weights.buffer]
        if w.size > 1 and not any(w.strides):
            return np.broadcast_to(w[(0,) * w.ndim], [static_extent(a) for a in wanted])
        order, u = list(self.conv.weights.index), w.astype(np.float64)
        for window in self.windows:
            g = forms(self.tile[window.out.name], static_extent(window.tap)).g
            at = order.index(window.tap)
            u = np.moveaxis(np.tensordot(g, u, axes=(1, at)), 0, at)
            order[at] = self.points[window]
        return np.ascontiguousarray(
            u.transpose([order.index(a) for a in wanted]).astype(np.float32))

    def output_transform(self) -> Compute:
        """The old compute's values: constant matrices over the points of the tile they lie in."""
        conv, c = self.conv, self.conv.compute
        sliding = {w.out for w in self.windows}
        others = tuple(a for a in c.axes if a not in sliding and a != conv.columns)
        tiles = tuple(simplify(w.out // self.tile[w.out.name]) for w in self.windows)
        index = (*self.points.values(), *others, *tiles, conv.columns)
        body: Expr = Load(self.m_name, index, "f32")
        for w in self.windows:
            row = simplify(w.out % self.tile[w.out.name])
            body = Binary("mul", body, Load(self.matrix("at", w), (row, self.points[w]), "f32"))
        return replace(c, raxes=tuple(self.points.values()), body=body)


def stages_of(program: Program, compute: str) -> tuple[Compute, Compute, Compute]:
    """The computes (V, M, Y) that one rewriting made of ``compute``."""
    def made(name: str) -> Compute:
        step = program.producer[name]
        assert isinstance(step, Compute), name
        return step

    y = made(compute)
    m = made(*(b for b in y.inputs if b not in program.consts))
    return made(*(b for b in m.inputs if b not in program.consts)), m, y


def stages_of_forms(program: Program) -> dict[str, str]:
    """{stage of a form: the convolution it belongs to} of all forms that a Program has."""
    return {s.out: c for rule, c, _ in program.rewrites if rule == "winograd"
            for s in stages_of(program, c)}


def _axis_name(index: Expr, dim: int) -> str:
    return index.name if isinstance(index, Axis) else f"dim{dim}"


__all__ = ["Convolution", "Forms", "TILES", "SlidingAxis", "exact_forms", "faults_of",
           "find_convolution", "forms", "legal_tiles", "rewrite", "stages_of_forms", "stages_of"]
