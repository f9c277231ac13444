"""Rounding a view to 8 bits, and the largest and smallest of all elements of a view, run over the
points of the tensor behind it, Program -> Program.

A fold over everything is also done row by row first.

A view is a tensor under a bijection of its indices (a transpose, a reshape).  Rounded where it
lies, the tensor itself is stored in 8 bits and the view becomes a move, which costs nothing; a
fold over everything does not care for the order.  Unit strides are kept either way.
"""

from dataclasses import replace

from aotc.ir.expr import Axis, Const, Expr, Load, axes_of, loads, substitute
from aotc.ir.indices.remap import invert_map
from aotc.ir.program import Buffer, Compute, Program, Step, free_name, update
from aotc.ir.simplify import are_equal, simplify, upper

ROW = 64  # fewer elements are no work worth sharing


def round_before_views(program: Program) -> Program:
    """Program in which such computes read tensors at their own indices."""
    buffers = dict(program.buffers)
    steps: list[Step] = []
    for s in program.steps:
        if isinstance(s, Compute) and len(s.outs) == 1 and s.body.dtype in ("u8", "i8") and (
                s.fold == "none"):
            steps += _rounded(program, s, buffers)
        elif isinstance(s, Compute) and s.fold in ("max", "min") and isinstance(s.body, Load):
            steps += _by_rows(_folded(program, s), buffers)
        else:
            steps.append(s)
    return update(program, steps=tuple(steps), buffers=buffers)


def _source(program: Program, s: Compute,
            axes: tuple[Axis, ...]) -> tuple[Load, tuple[Axis, ...], dict[Axis, Expr]] | None:
    """(load, axes of its buffer, {axis: expression over them}) of the one tensor that the body
    reads at a true view of ``axes``; None if there is none."""
    found = [n for n in loads(s.body) if axes_of(n)]
    if len(found) != 1 or found[0].buffer in program.consts:
        return None
    index = found[0].index
    if all(isinstance(i, (Axis, Const)) for i in index) and [
            i for i in index if isinstance(i, Axis) and i.extent != Const(1)] == [
            a for a in axes if a.extent != Const(1)]:
        return None  # its own points already
    own = tuple(Axis(f"i{k}", e) for k, e in enumerate(program.shape(found[0].buffer)))
    h = invert_map(index, axes, own)
    return None if h is None else (found[0], own, h)


def _rounded(program: Program, s: Compute, buffers: dict[str, Buffer]) -> list[Compute]:
    found = _source(program, s, s.axes)
    if found is None:
        return [s]
    load, own, h = found
    # at once: axes of the view and of the tensor may be equal
    body = simplify(substitute(s.body, {**h, load: Load(load.buffer, own, load.dtype)}))
    name = free_name(buffers, f"{s.out}_own")
    buffers[name] = Buffer(name, tuple(a.extent for a in own), s.body.dtype)
    return [replace(s, outs=(name,), axes=own, body=body),
            replace(s, body=Load(name, load.index, s.body.dtype))]


def _folded(program: Program, s: Compute) -> Compute:
    """A fold of everything: all axes of the result have one point."""
    if not all(are_equal(a.extent, Const(1)) for a in s.axes):
        return s
    found = _source(program, s, s.raxes)
    if found is None:
        return s
    load, own, _ = found
    names = {a.name for a in s.axes}
    axes = tuple(Axis(f"r{k}" if f"r{k}" not in names else f"r{k}_", a.extent)
                 for k, a in enumerate(own))
    return replace(s, raxes=axes, body=Load(load.buffer, axes, load.dtype))


def _by_rows(s: Compute, buffers: dict[str, Buffer]) -> list[Compute]:
    """A fold of everything in two: of each row, which work items share and the kernel that makes
    the rows may do, and of what the rows gave.  Largest and smallest are the same in any order."""
    at, points = len(s.raxes), 1
    while at and points < ROW:
        at -= 1
        most = upper(s.raxes[at].extent)
        points *= ROW if most is None else most
    rows = s.raxes[:at]
    single = [are_equal(a.extent, Const(1)) for a in rows]
    if points < ROW or not isinstance(s.body, Load) or s.body.index != s.raxes or all(
            single) or not all(are_equal(a.extent, Const(1)) for a in s.axes):
        return [s]
    name = free_name(buffers, f"{s.out}_rows")
    buffers[name] = Buffer(name, tuple(a.extent for a in rows), s.body.dtype)
    return [replace(s, outs=(name,), axes=rows, raxes=s.raxes[at:]),
            replace(s, raxes=rows, body=Load(name, rows, s.body.dtype))]


__all__ = ["round_before_views"]
