"""Digits of loops: axes that accesses take apart are split, so that every index is affine again.

Under a layout with ``C/16 .. C%16`` a reduction over ``c`` reads ``x[.., c // 16, .., c % 16]``.
Two loops ``c_0, c_1`` with ``c = c_0 * 16 + c_1`` read ``x[.., c_0, .., c_1]``; a constant that
they index with ``c_0 * 16 + c_1`` gets a dimension for each, which moves no byte of it.
"""

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace

from aotc.ir.expr import Axis, Binary, Const, Expr, Load, loads, rewrite, substitute, walk
from aotc.ir.program import Compute, Fold, Program, free_name, make_const, update
from aotc.ir.simplify import simplify, to_poly

Digits = tuple[tuple[Axis, int], ...]  # (axis, its weight), outermost first


def split_reductions(c: Compute) -> Compute:
    """The compute with every reduction axis split whose digits its Loads ask for, if their radices
    divide each other and the extent; the order of the terms of a fold is free.  A ``Fold`` of
    several states runs in order, which nested loops keep, and may use the axis itself."""
    for r in c.raxes:
        digits = axis_digits(c.body, r, {a.name for a in c.axes + c.raxes})
        if not digits:
            continue
        value: Expr = Const(0)
        for axis, weight in digits:
            value = value + axis * weight
        whole: dict[Expr, Expr] = {r: simplify(value)}
        fold = c.fold
        if isinstance(fold, Fold):
            fold = replace(fold, update=tuple(
                simplify(substitute(e, whole)) for e in fold.update))
        at = c.raxes.index(r)
        c = replace(c, raxes=c.raxes[:at] + tuple(a for a, _ in digits) + c.raxes[at + 1:],
                    fold=fold, body=simplify(substitute(c.body, whole)))
    return c


def axis_digits(body: Expr, axis: Axis, names: Iterable[str]) -> Digits:
    """((Axis, weight), ...) outermost first, in whose digits the Loads of ``body`` take ``axis``
    apart; () if they do not, or if the radices do not divide each other and the extent.  The new
    axes have none of ``names``."""
    radices = _radices(body, axis)
    if not radices or not isinstance(axis.extent, Const) or any(
            b % a for a, b in zip(radices, radices[1:] + [axis.extent.value])):
        return ()
    taken, digits = set(names), []
    bounds = [1] + radices + [axis.extent.value]
    for k, (lo, hi) in enumerate(zip(bounds[::-1][1:], bounds[::-1])):
        name = free_name(taken, f"{axis.name}_{k}")
        taken.add(name)
        digits.append((Axis(name, Const(hi // lo)), lo))
    return tuple(digits)


def _radices(body: Expr, axis: Axis) -> list[int]:
    """Divisors and moduli (above 1) by which Loads take ``axis`` apart, rising: r // d counts d,
    (r // d) % m counts d and d*m."""
    found = set()
    for load in loads(body):
        for index in load.index:
            for n in walk(index):
                if isinstance(n, Binary) and n.op in ("floordiv", "mod") and isinstance(
                        n.b, Const):
                    inner, scale = n.a, 1
                    if isinstance(inner, Binary) and inner.op == "floordiv" and isinstance(
                            inner.b, Const):
                        scale, inner = inner.b.value, inner.a
                    if inner == axis:
                        found.add(scale * n.b.value)
    return sorted(d for d in found if 1 < d < getattr(axis.extent, "value", 0))


def split_consts(program: Program, names: Set[str]) -> Program:
    """``program`` with constants' dimensions split where every reader indexes them by the same
    digits, one of the computes ``names`` among them: ``w[o_0 * 16 + o_1]`` is ``w[o_0, o_1]``."""
    wanted: dict[str, list[tuple[bool, tuple[Digits | None, ...]]]] = {}
    for s in program.steps:
        for n in (s.loads if isinstance(s, Compute) else ()):
            if n.buffer in program.consts:
                wanted.setdefault(n.buffer, []).append(
                    (s.outs[0] in names, tuple(_factors(i, d) for i, d in zip(
                        n.index, program.consts[n.buffer].shape))))
        if not isinstance(s, Compute):
            for b in s.inputs:
                wanted.setdefault(b, []).append((False, ()))
    splits = {}
    for b, found in wanted.items():
        shapes = {tuple(tuple(static_extent(x) for x, _ in f) if f else None for f in factors)
                  for _, factors in found}
        if len(shapes) == 1 and any(new for new, _ in found) and any(next(iter(shapes))):
            splits[b] = next(iter(shapes))
    return _with_split_consts(program, splits) if splits else program


def static_extent(axis: Axis) -> int:
    """The number of points of a loop; 0 where it depends on symbols."""
    return axis.extent.value if isinstance(axis.extent, Const) else 0


def _factors(index: Expr, extent: int) -> Digits | None:
    """((axis, weight), ...) outermost first, if ``index`` is a mixed-radix number of at least two
    axes that counts all of ``extent``; else None."""
    digits = []
    for mono, c in to_poly(index).items():
        if len(mono) != 1 or not isinstance(mono[0], Axis) or not isinstance(
                mono[0].extent, Const):
            return None
        digits.append((mono[0], c))
    digits.sort(key=lambda x: -x[1])
    if len(digits) < 2 or digits[-1][1] != 1:
        return None
    whole: list[tuple[Axis | None, int]] = [*digits[1:], (None, 1)]
    if any(w != v * (static_extent(x) if x else 1) for (_, w), (x, v) in zip(digits, whole)):
        return None
    return tuple(digits) if static_extent(digits[0][0]) * digits[0][1] == extent else None


def _with_split_consts(program: Program,
                       splits: Mapping[str, tuple[tuple[int, ...] | None, ...]]) -> Program:
    consts, buffers = dict(program.consts), dict(program.buffers)
    for b, factors in splits.items():
        shape = [n for f, d in zip(factors, consts[b].shape) for n in (f or (d,))]
        consts[b] = consts[b].reshape(shape)
        buffers[b] = make_const(b, consts[b], buffers[b].onnx)

    def visit(node: Expr) -> Expr | None:
        if not isinstance(node, Load) or node.buffer not in splits:
            return None
        index: list[Expr] = []
        for i, d in zip(node.index, program.consts[node.buffer].shape):
            index += [a for a, _ in _factors(i, d) or ((i, 1),)]
        return Load(node.buffer, tuple(index), node.dtype)

    steps = tuple(replace(s, body=rewrite(s.body, visit)) if isinstance(s, Compute)
                  and set(splits) & set(s.inputs) else s for s in program.steps)
    return update(program, steps=steps, buffers=buffers, consts=consts)
