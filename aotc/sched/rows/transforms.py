"""Stages that multiply small constant matrices onto a tensor:
``sum(i, j) x[.., i, j] * P[a, i] * Q[b, j]`` over small static axes.
"""

from dataclasses import dataclass
from math import prod

from aotc.ir.category import is_zero
from aotc.ir.dtypes import Array
from aotc.ir.expr import Axis, Binary, Const, Expr, Load, Where, axes_of, loads, substitute
from aotc.ir.program import Compute, Program
from aotc.ir.simplify import simplify, upper
from aotc.passes.digits import static_extent
from aotc.sched.model.stages import Stage

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


__all__ = ["Matrix", "Transform", "data_loads", "find_transform"]
