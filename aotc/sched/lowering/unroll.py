"""Stages that multiply small constant matrices onto a tensor (``rows/transforms.py``), written out.

They become straight-line code per point of the other axes: the matrices' numbers stand in it, zeros
are gone, one axis is summed at a time, and what two results share is computed once.
"""

from collections.abc import Iterator, Mapping, Sequence

from aotc.ir.access import linearise
from aotc.ir.category import is_zero
from aotc.ir.conditions import conjuncts
from aotc.ir.dtypes import Array
from aotc.ir.expr import (
    Axis,
    Const,
    Expr,
    Unary,
    Var,
    Where,
    all_hold,
    axes_of,
    compare,
    substitute,
    walk,
)
from aotc.ir.kernel.plan_stages import Unrolled
from aotc.ir.schedule import Group
from aotc.ir.simplify import are_equal, simplify
from aotc.ir.statements import Let, Put, Range
from aotc.passes.digits import static_extent
from aotc.sched.items.context import Context
from aotc.sched.model.boxes import Box, starts_at_multiple, unit_of
from aotc.sched.model.stages import Stage
from aotc.sched.rows.transforms import Matrix, Transform, find_transform
from aotc.target.kernel_rows import NestRow


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

    def __init__(self, group: Group, axis: Axis, size: int, lo: Expr, last: Expr) -> None:
        hi = simplify(last + 1)
        self.base: Expr
        if are_equal(axis.extent, Const(size)) and are_equal(lo, Const(0)):
            self.base, self.ranges = Const(0), []
        else:
            count = simplify((axis.extent + (size - 1)) // size)
            step = Axis(f"{axis.name}_block", count)
            self.base = simplify(step * size)
            self.ranges = [Range(step, simplify(lo // size), simplify((hi + (size - 1)) // size))]
        self.tests = [("lt", _end(group, axis, hi, size))]
        if not starts_at_multiple(group, lo, size):
            self.tests.append(("ge", lo))

    def at(self, u: int) -> Expr:
        return simplify(self.base + u)

    def guard(self, u: int) -> Expr | None:
        """Condition under which step u exists; None if it always does."""
        conds = [simplify(compare(op, self.at(u), bound)) for op, bound in self.tests]
        return all_hold([c for c in conds if c != Const(True, "bool")])


def _end(group: Group, axis: Axis, hi: Expr, size: int) -> Expr:
    """What bounds the steps of the last block: the end of the whole axis where tiles end between
    blocks."""
    if not isinstance(hi, Axis) and simplify(hi % size) == Const(0):
        return axis.extent
    for name in group.tile:
        t = unit_of(group, name)
        if isinstance(hi, Axis) and hi.name == f"{name}_hi" and t % size == 0:
            return simplify(hi.extent - 1)
        for lo in axes_of(hi):
            if lo.name == f"{name}_lo" and are_equal(hi, lo + t) and t % size == 0:
                return simplify(lo.extent + (t - 1))
    return hi


class _Code:
    """Collects the statements of one point."""

    def __init__(self, ctx: Context, stage: Stage, t: Transform,
                 steps: Mapping[Axis, _Block]) -> None:
        self.ctx, self.stage, self.t, self.steps = ctx, stage, t, steps
        self.flags: dict[Var, Expr] = {}
        self.out: list[Let | Put] = []
        self.count = 0

    def written_out(self) -> list[Let | Put]:
        """Let and Put in order.  One tap after the other, the last first: its inputs are loaded,
        combined, and gone before the next row's are needed."""
        self.combine((), self.t.matrices)
        self.drop_unused()
        return self.out

    def drop_unused(self) -> None:
        """Without names that nothing reads: where the axis is shorter than the matrix."""
        read: set[Var | Axis] = set()
        kept: list[Let | Put] = []
        for s in reversed(self.out):
            if isinstance(s, Put) or s.var in read:
                kept.append(s)
                read.update(n for n in walk(s.value) if isinstance(n, Var))
        self.out = kept[::-1]
        self.flags = {v: c for v, c in self.flags.items() if v in read}

    def combine(self, fixed: tuple[int, ...],
                matrices: Sequence[Matrix]) -> dict[tuple[int, ...], Expr]:
        """Values of all outputs of ``matrices`` at the taps ``fixed`` of those before them:
        {row numbers: Expr}."""
        if not matrices:
            return {(): self.load(fixed)}
        first, rest = matrices[0], matrices[1:]
        inner = [self.combine(fixed + (k,), rest) for k in range(static_extent(first.tap))]
        done: dict[tuple[int, ...], Expr] = {}
        for rows in inner[0]:
            inputs = [x[rows] for x in inner]
            for u, value in enumerate(self.linear(first.values, inputs)):
                done[(u,) + rows] = value
                if not fixed:
                    self.store((u,) + rows, value)
        return done

    def name(self, value: Expr, stem: str) -> Expr:
        """A variable bound to the value; plain variables and zeros stay."""
        if isinstance(value, (Var, Const)):
            return value
        self.count += 1
        var = Var(f"{stem}_{self.count}", "f32")
        self.out.append(Let(var, value))
        return var

    def load(self, taps: tuple[int, ...]) -> Expr:
        """The data at constant taps, its conditions as flags computed once per point."""
        at: dict[Axis, Expr] = {m.tap: Const(k) for m, k in zip(self.t.matrices, taps)}
        at |= {a: b.base for a, b in self.steps.items()}
        e = simplify(substitute(self.t.data, at))
        if isinstance(e, Where):
            cond = all_hold([self.flag(c) for c in conjuncts(e.cond)])
            assert cond is not None, e  # a condition is of one at least
            e = Where(cond, e.a, e.b)
        return self.name(linearise(e, self.ctx.place), "d")

    def flag(self, cond: Expr) -> Var:
        for var, known in self.flags.items():
            if known == cond:
                return var
        var = Var(f"in_{len(self.flags) + 1}", "bool")
        self.flags[var] = cond
        return var

    def linear(self, matrix: Array, inputs: Sequence[Expr]) -> list[Expr]:
        """The products of a matrix with a vector of values, named; pairs of columns and of rows
        that agree up to signs share their sums and differences."""
        rows = [{k: float(c) for k, c in enumerate(row) if c and not is_zero(inputs[k])}
                for row in matrix]
        values = dict(enumerate(inputs))
        self._pair_columns(rows, values)
        results: dict[int, Expr] = {}
        for i, j in _row_pairs(rows):
            even = {k: c for k, c in rows[i].items() if rows[j][k] == c}
            odd = {k: c for k, c in rows[i].items() if rows[j][k] != c}
            e, o = (self.name(_sum(x, values), "e") for x in (even, odd))
            results[i], results[j] = e + o, e - o
        for i, row in enumerate(rows):
            if i not in results:
                results[i] = _sum(row, values)
        return [self.name(results[i], "y") for i in range(len(rows))]

    def _pair_columns(self, rows: Sequence[dict[int, float]], values: dict[int, Expr]) -> None:
        """Columns equal up to the sign in every row become their sum and their difference."""
        taken: set[int] = set()
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

    def store(self, rows: tuple[int, ...], value: Expr) -> None:
        """Put the outputs of one point of the block, under a condition where it may not exist."""
        at, guards = {}, []
        for m, u in zip(self.t.matrices, rows):
            at[m.rows] = self.steps[m.rows].at(u)
            guards.append(self.steps[m.rows].guard(u))
        conds = [c for c in guards if c is not None]
        place, acc = self.ctx.place, {self.stage.acc[0]: value}
        for o in self.stage.outputs:
            index = tuple(simplify(substitute(i, at)) for i in o.index)
            v = substitute(linearise(simplify(substitute(o.value, at)), place), acc)
            self.out.append(Put(o.buffer, place(o.buffer)(index), v, all_hold(conds)))


def _row_pairs(rows: Sequence[Mapping[int, float]]) -> Iterator[tuple[int, int]]:
    """Disjoint pairs of rows with the same magnitudes, some signs equal and some not."""
    taken: set[int] = set()
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


def _sum(terms: Mapping[int, float], values: Mapping[int, Expr]) -> Expr:
    """c1*x1 + c2*x2 + ..., a term without a multiplication first."""
    order = sorted(terms.items(), key=lambda t: (t[1] != 1.0, abs(t[1]) != 1.0, t[0]))
    if not order:
        return Const(0, "f32")
    k, c = order[0]
    x = values[k]
    total = x if c == 1.0 else Unary("neg", x) if c == -1.0 else Const(c, "f32") * x
    for k, c in order[1:]:
        x = values[k]
        if abs(c) == 1.0:
            total = total + x if c > 0 else total - x
        else:
            total = total + Const(c, "f32") * x
    return total


__all__ = ["lower_unrolled"]
