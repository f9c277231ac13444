"""Stages that multiply small constant matrices onto a tensor, written out.

``sum(i, j) x[.., i, j] * P[a, i] * Q[b, j]`` over small static axes becomes straight-line code per
point of the other axes: the matrices' numbers stand in it, zeros are gone, one axis is summed at
a time, and what two results share is computed once.
"""

from dataclasses import dataclass
from math import prod

from aotc.ir.access import linearise
from aotc.ir.category import is_zero
from aotc.ir.conditions import conjuncts
from aotc.ir.dtypes import Array
from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Expr,
    Load,
    Unary,
    Var,
    Where,
    all_of,
    axes_of,
    compare,
    loads,
    substitute,
    walk,
)
from aotc.ir.plan import Unrolled
from aotc.ir.program import Compute, Program
from aotc.ir.simplify import same, simplify, upper
from aotc.ir.statements import Let, Put, Range
from aotc.passes.digits import static_extent
from aotc.sched.lowering.context import Context
from aotc.sched.model.boxes import Box, starts_at_multiple, unit_of
from aotc.sched.model.stages import Stage
from aotc.target.kernel_rows import NestRow

MAX_SIDE = 8  # of a matrix
MAX_TERMS = 512  # elements of the data one point reads


@dataclass(frozen=True)
class Matrix:
    """A constant matrix: ``rows`` is the output axis its row follows (the axis itself, or the axis
    modulo ``block``), ``tap`` the reduction axis of its columns."""

    rows: Axis
    block: int
    tap: Axis
    values: Array


@dataclass(frozen=True)
class Transform:
    """A stage seen as constant matrices on ``data`` (a Load, or one with a zero fill)."""

    data: Expr
    matrices: tuple[Matrix, ...]

    @property
    def blocks(self) -> dict[str, int]:
        """{output axis name: how many of its neighbours are computed together}."""
        return {m.rows.name: m.block for m in self.matrices}


def find_transform(program: Program, stage: Stage | Compute) -> Transform | None:
    """The Transform that a stage (or a Compute) is; None if it is none."""
    if stage.fold != "sum" or stage.body.dtype != "f32":
        return None
    data: list[Expr] = []
    matrices: list[Matrix] = []
    for factor in _factors(stage.body):
        m = _matrix(program, stage, factor)
        if m is None:
            data.append(factor)
        else:
            matrices.append(m)
    taps = [m.tap for m in matrices]
    terms = prod(static_extent(tap) for tap in taps) if taps else 0
    if len(data) != 1 or set(taps) != set(stage.raxes) or len(set(taps)) != len(taps) or (
            terms > MAX_TERMS or len({m.rows for m in matrices}) != len(matrices)):
        return None
    load = data[0].a if isinstance(data[0], Where) and is_zero(data[0].b) else data[0]
    if not isinstance(load, Load) or load.dtype != "f32":
        return None
    # in the order of the data's memory: the last tap is the one summed first
    matrices.sort(key=lambda m: [m.tap in axes_of(i) for i in load.index].index(True)
                  if m.tap in axes_of(load) else -1)
    t = Transform(data[0], tuple(matrices))
    return t if _same_for_a_block(t) else None


def data_loads(stage: Stage) -> tuple[Load, ...]:
    """Loads of a transform stage (``find_transform``) but those of its matrices."""
    data = [n for f in _factors(stage.body) for n in loads(f)
            if not (n is f and len(f.index) == 2 and f.index[1] in stage.raxes)]
    return tuple(dict.fromkeys(data + [n for o in stage.outputs for n in loads(o.value)]))


def _factors(e: Expr) -> list[Expr]:
    if isinstance(e, Binary) and e.op == "mul":
        return _factors(e.a) + _factors(e.b)
    return [e]


def _matrix(program: Program, stage: Stage | Compute, e: Expr) -> Matrix | None:
    """The Matrix that a factor is, None for anything else."""
    if not isinstance(e, Load) or e.buffer not in program.consts or len(e.index) != 2:
        return None
    values, (row, tap) = program.consts[e.buffer], e.index
    if not isinstance(tap, Axis) or tap not in stage.raxes or (
            max(values.shape) > MAX_SIDE or tap.extent != Const(values.shape[1])):
        return None
    if isinstance(row, Binary) and row.op == "mod" and isinstance(row.b, Const):
        block, row = row.b.value, row.a
    else:
        block = upper(row.extent) if isinstance(row, Axis) else None
    if not isinstance(row, Axis) or row not in stage.axes or (
            block is None or block > values.shape[0]):
        return None
    return Matrix(row, block, tap, values[:block])


def _same_for_a_block(t: Transform) -> bool:
    """True if all outputs of a block read the same data."""
    for m in t.matrices:
        inside = Axis("inside", Const(m.block))
        at = substitute(t.data, {m.rows: Axis("block", m.rows.extent) * m.block + inside})
        if inside in axes_of(simplify(at)):
            return False
    return True


# ---------------------------------------------------------------- lowering

def lower_unrolled(ctx: Context, stage: Stage, row: NestRow, box: Box) -> Unrolled:
    """The Unrolled stage of a transform over its box."""
    t = find_transform(ctx.program, stage)
    assert t is not None, stage.name  # ``check_schedule`` refuses others
    lane = ctx.group.choices[stage.name].lanes
    steps = {a: _Block(ctx.group, a, t.blocks[a.name], *box[a])
             for a in stage.axes if a.name in t.blocks}
    ranges: list[Range] = []
    for a in sorted(stage.axes, key=lambda a: a.name == lane):  # the lanes innermost
        lo, end = box[a]
        ranges += steps[a].ranges if a in steps else [Range(a, lo, simplify(end + 1))]
    code = _Code(ctx, stage, t, steps)
    body = code.written_out()
    return Unrolled(row.name, tuple(ranges), tuple(code.flags.items()), tuple(body), lane,
                    ctx.target.lanes)


class _Block:
    """A blocked axis: its block loop, the axis's value at step u, and which steps need a test."""

    def __init__(self, group, axis, size, lo, last):
        hi = simplify(last + 1)
        if same(axis.extent, Const(size)) and same(lo, Const(0)):
            self.base, self.ranges = Const(0), []
        else:
            count = simplify((axis.extent + (size - 1)) // size)
            step = Axis(f"{axis.name}_block", count)
            self.base = simplify(step * size)
            self.ranges = [Range(step, simplify(lo // size), simplify((hi + (size - 1)) // size))]
        self.tests = [("lt", _end(group, axis, hi, size))]
        if not starts_at_multiple(group, lo, size):
            self.tests.append(("ge", lo))

    def at(self, u):
        return simplify(self.base + u)

    def guard(self, u):
        """Condition under which step u exists; None if it always does."""
        conds = [simplify(compare(op, self.at(u), bound)) for op, bound in self.tests]
        return all_of([c for c in conds if c != Const(True, "bool")])


def _end(group, axis, hi, size):
    """What bounds the steps of the last block: the end of the whole axis where tiles end between
    blocks."""
    if not isinstance(hi, Axis) and simplify(hi % size) == Const(0):
        return axis.extent
    for name in group.tile:
        t = unit_of(group, name)
        if isinstance(hi, Axis) and hi.name == f"{name}_hi" and t % size == 0:
            return simplify(hi.extent - 1)
        for lo in axes_of(hi):
            if lo.name == f"{name}_lo" and same(hi, lo + t) and t % size == 0:
                return simplify(lo.extent + (t - 1))
    return hi


class _Code:
    """Collects the statements of one point."""

    def __init__(self, ctx, stage, t, steps):
        self.ctx, self.stage, self.t, self.steps = ctx, stage, t, steps
        self.flags, self.out, self.count = {}, [], 0

    def written_out(self):
        """Let and Put in order.  One tap after the other, the last first: its inputs are loaded,
        combined, and gone before the next row's are needed."""
        self.combine((), self.t.matrices)
        self.drop_unused()
        return self.out

    def drop_unused(self):
        """Without names that nothing reads: where the axis is shorter than the matrix."""
        read, kept = set(), []
        for s in reversed(self.out):
            if isinstance(s, Put) or s.var in read:
                kept.append(s)
                read.update(n for n in walk(s.value) if isinstance(n, Var))
        self.out = kept[::-1]
        self.flags = {v: c for v, c in self.flags.items() if v in read}

    def combine(self, fixed, matrices):
        """Values of all outputs of ``matrices`` at the taps ``fixed`` of those before them:
        {row numbers: Expr}."""
        if not matrices:
            return {(): self.load(fixed)}
        first, rest = matrices[0], matrices[1:]
        inner = [self.combine(fixed + (k,), rest) for k in range(first.tap.extent.value)]
        done = {}
        for rows in inner[0]:
            inputs = [x[rows] for x in inner]
            for u, value in enumerate(self.linear(first.values, inputs)):
                done[(u,) + rows] = value
                if not fixed:
                    self.store((u,) + rows, value)
        return done

    def name(self, value, stem):
        """A variable bound to the value; plain variables and zeros stay."""
        if isinstance(value, (Var, Const)):
            return value
        self.count += 1
        var = Var(f"{stem}_{self.count}", "f32")
        self.out.append(Let(var, value))
        return var

    def load(self, taps):
        """The data at constant taps, its conditions as flags computed once per point."""
        at = {m.tap: Const(k) for m, k in zip(self.t.matrices, taps)}
        at |= {a: b.base for a, b in self.steps.items()}
        e = simplify(substitute(self.t.data, at))
        if isinstance(e, Where):
            conds = [self.flag(c) for c in conjuncts(e.cond)]
            e = Where(all_of(conds), e.a, e.b)
        return self.name(linearise(e, self.ctx.place), "d")

    def flag(self, cond):
        for var, known in self.flags.items():
            if known == cond:
                return var
        var = Var(f"in_{len(self.flags) + 1}", "bool")
        self.flags[var] = cond
        return var

    def linear(self, matrix, inputs):
        """The products of a matrix with a vector of values, named; pairs of columns and of rows
        that agree up to signs share their sums and differences."""
        rows = [{k: float(c) for k, c in enumerate(row) if c and not is_zero(inputs[k])}
                for row in matrix]
        values = dict(enumerate(inputs))
        self._pair_columns(rows, values)
        results = [None] * len(rows)
        for i, j in _row_pairs(rows):
            even = {k: c for k, c in rows[i].items() if rows[j][k] == c}
            odd = {k: c for k, c in rows[i].items() if rows[j][k] != c}
            e, o = (self.name(_sum(x, values), "e") for x in (even, odd))
            results[i], results[j] = e + o, e - o
        for i, row in enumerate(rows):
            if results[i] is None:
                results[i] = _sum(row, values)
        return [self.name(r, "y") for r in results]

    def _pair_columns(self, rows, values):
        """Columns equal up to the sign in every row become their sum and their difference."""
        taken = set()
        for a, b in [(a, b) for a in values for b in values if a < b]:
            if taken & {a, b} or not all((a in r) == (b in r) and abs(r.get(a, 0)) == abs(
                    r.get(b, 0)) for r in rows) or sum(a in r for r in rows) < 3:
                continue
            taken |= {a, b}
            plus, minus = max(values) + 1, max(values) + 2
            values[plus] = self.name(values[a] + values[b], "e")
            values[minus] = self.name(values[a] - values[b], "e")
            for r in rows:
                if a in r:
                    x, y = r.pop(a), r.pop(b)
                    r[plus if x == y else minus] = x
            taken |= {plus, minus}

    def store(self, rows, value):
        """Put the outputs of one point of the block, under a condition where it may not exist."""
        at, conds = {}, []
        for m, u in zip(self.t.matrices, rows):
            at[m.rows] = self.steps[m.rows].at(u)
            conds.append(self.steps[m.rows].guard(u))
        conds = [c for c in conds if c is not None]
        place, acc = self.ctx.place, {self.stage.acc[0]: value}
        for o in self.stage.outputs:
            index = tuple(simplify(substitute(i, at)) for i in o.index)
            v = substitute(linearise(simplify(substitute(o.value, at)), place), acc)
            self.out.append(Put(o.buffer, place(o.buffer)(index), v, all_of(conds)))


def _row_pairs(rows):
    """Disjoint pairs of rows with the same magnitudes, some signs equal and some not."""
    taken = set()
    for i in range(len(rows)):
        for j in range(i + 1, len(rows)):
            if taken & {i, j} or rows[i].keys() != rows[j].keys():
                continue
            equal = [rows[i][k] == rows[j][k] for k in rows[i]]
            opposite = [rows[i][k] == -rows[j][k] for k in rows[i]]
            if all(e or o for e, o in zip(equal, opposite)) and any(equal) and any(opposite) and (
                    len(equal) > 2):
                taken |= {i, j}
                yield i, j


def _sum(terms, values):
    """c1*x1 + c2*x2 + ..., a term without a multiplication first."""
    order = sorted(terms.items(), key=lambda t: (t[1] != 1.0, abs(t[1]) != 1.0, t[0]))
    if not order:
        return Const(0, "f32")
    total = None
    for k, c in order:
        x = values[k]
        if total is None:
            total = x if c == 1.0 else Unary("neg", x) if c == -1.0 else Const(c, "f32") * x
        elif abs(c) == 1.0:
            total = total + x if c > 0 else total - x
        else:
            total = total + Const(c, "f32") * x
    return total


__all__ = ["Matrix", "Transform", "find_transform", "lower_unrolled"]
