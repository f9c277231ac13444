"""How much a group computes and how many bytes it must move: what a profile divides by time."""

from collections.abc import Iterable, Mapping, Sequence

from aotc.ir.category import is_dot
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Axis, Binary, Const, Expr, Load, Unary, axes_of, minimum, walk
from aotc.ir.program import Program
from aotc.ir.schedule import Schedule
from aotc.ir.simplify import simplify
from aotc.sched.model.size import estimate_volume
from aotc.sched.model.stages import Stage
from aotc.sched.model.stored_sizes import physical_elements
from aotc.target.base import Target


def group_flops(stages: Sequence[Stage]) -> Expr:
    """Floating-point operations of one call, as an expression in the symbols: every operator node
    counts once per point it is evaluated at, a fold's step once per element (so a product that is
    summed counts two).  Taps in the padding count too, recomputed halos do not."""
    total: Expr = Const(0)
    for s in stages:
        points = _volume(s.axes)
        if s.fold != "none":
            per = _operations(s.body) + (1 if isinstance(s.fold, str) else len(s.acc))
            total = total + points * _volume(s.raxes) * per
        per = sum(_operations(o.value) for o in s.outputs)
        total = total + points * per
    return simplify(total)


def group_bytes(program: Program, schedule: Schedule, stages: Sequence[Stage], reads: Sequence[str],
                writes: Sequence[str]) -> Expr:
    """Bytes that one call must at least move, as an expression in the symbols: every element of
    the tensors ``reads`` and ``writes`` once, and no more of a table than the rows looked up."""
    loads: dict[str, list[Load]] = {}
    for n in (n for s in stages for n in s.loads()):
        loads.setdefault(n.buffer, []).append(n)
    total: Expr = Const(0)
    for b in (*reads, *writes):
        elements = physical_elements(program, schedule, b)
        if b in loads and b not in writes:
            touched: Expr = Const(0)
            for n in loads[b]:
                touched = touched + _volume(sorted(axes_of(n), key=lambda a: a.name))
            elements = minimum(elements, touched)
        total = total + elements * DTYPES[program.dtype(b)].size
    return simplify(total)


def plain_part(stages: Sequence[Stage], rows: Mapping[str, str], target: Target) -> float:
    """Part (0 to 1) of a group's time that stages on plain loops are estimated to take: they do one
    element at a time, every other row a vector of them.  rows: {stage name: row}.  0 where the
    target has no vectors."""
    if target.lanes < 2:
        return 0.0
    work, pace = {True: 0.0, False: 0.0}, {"contraction": 4.0, "dot": 4.0}
    for s in stages:
        row = target.row(rows[s.name])
        steps = estimate_volume(r.extent for r in s.raxes) * (
            1 + _operations(s.body)) if s.fold != "none" else 0
        steps += sum(1 + _operations(o.value) for o in s.outputs)
        points = float(estimate_volume(a.extent for a in s.axes))
        work[row.category == "loops"] += points * steps / pace.get(row.category, 1.0)
    return work[True] / (work[True] + work[False] / target.lanes) if work[True] else 0.0


def _volume(axes: Iterable[Axis]) -> Expr:
    n: Expr = Const(1)
    for a in axes:
        n = n * a.extent
    return simplify(n)


def _operations(expr: Expr) -> int:
    """Operator nodes with a floating-point result, shared ones once, and products of 8-bit
    integers; index arithmetic is none."""
    return sum(isinstance(e, (Binary, Unary)) and DTYPES[e.dtype].kind == "f" for e in walk(expr)
               ) + (isinstance(expr, Binary) and expr.op == "mul" and is_dot(expr))
