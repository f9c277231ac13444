"""Computes run over channels in the order in which they lie, where a shuffle changes the order.

What is done to each channel by itself does not care for the order, and a sum over all channels
neither; constants that go with a channel follow it.  So a shuffle before a depthwise window

    y[n, c, h, w] = sum(p, q) x[n, P(c), h + p, w + q] * k[c, p, q]
    z[n, o, h, w] = sum(c) y[n, c, h, w] * u[o, c]

comes out behind it, and ends in the constants of the product that reads it:

    y_own[n, c, h, w] = sum(p, q) x[n, c, h + p, w + q] * k_own[c, p, q],  k_own[P(c)] = k[c]
    z[n, o, h, w]     = sum(c) y_own[n, c, h, w] * u_own[o, c]

P is a permutation of constant size by any means: shuffles between groups, reversals, Gathers of
constant indices.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from aotc.ir.category import category
from aotc.ir.dtypes import Array
from aotc.ir.expr import (
    Axis,
    Const,
    Expr,
    Guarded,
    Load,
    Sym,
    axes_of,
    children,
    loads,
    substitute,
    walk,
)
from aotc.ir.program import Buffer, Compute, Program, Step, free_name, make_const, update
from aotc.ir.simplify import simplify
from aotc.oracle.evaluate import eval_compute
from aotc.passes.inline import inline_all, is_move


def unshuffle_channels(program: Program) -> Program:
    """Program in which folds and maps read tensors at ``c`` where they did at a permutation of
    ``c``.  The same object if there is nothing to change."""
    state = _Pass(program)
    for s in program.steps:
        state.steps += state.step(s) if isinstance(s, Compute) else [s]
    if not state.changed:
        return program
    return update(program, steps=tuple(state.steps), buffers=state.buffers, consts=state.consts)


@dataclass(frozen=True)
class _Permuted:
    """An axis of a compute under which all its tensors are read at one permutation.

    place: the permutation as an expression in ``axis``; order: as indices, i64[extent]; loads:
    {load of a tensor: the dimension that has it}; consts: the same of loads of constants at
    ``axis`` itself.
    """

    axis: Axis
    place: Expr
    order: Array
    loads: Mapping[Load, int]
    consts: Mapping[Load, int]


class TurnedConstants:
    """Buffers and constants of a Program, and its constants in other orders.  ``known``:
    {(constant, dimension, bytes of the order): its name in that order}."""

    def __init__(self, program: Program) -> None:
        self.program, self.buffers = program, dict(program.buffers)
        self.consts = dict(program.consts)
        self.known: dict[tuple[str, int, bytes], str] = {}

    def turned(self, name: str, dim: int, order: Array) -> str:
        """The constant with its channels where ``order`` has them: new[order[c]] = old[c]."""
        key = name, dim, order.tobytes()
        if key not in self.known:
            new = self.known[key] = self.name(f"{name}_own")
            self.consts[new] = np.take(self.consts[name], np.argsort(order), axis=dim)
            self.buffers[new] = make_const(new, self.consts[new])
        return self.known[key]

    def name(self, stem: str) -> str:
        """A name that no buffer has."""
        return free_name(self.buffers, stem)


class _Pass(TurnedConstants):
    """The pass in progress.  ``views``: {buffer: the permuting move that makes it}."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.steps: list[Step] = []
        self.views: dict[str, Compute] = {}
        self.changed = False

    def step(self, s: Compute) -> list[Compute]:
        inlined = replace(s, body=simplify(inline_all(s.body, self.views)))
        if _is_view(s, self.consts):
            self.views[s.out] = inlined
            return [s]
        new, moves = self._carried(inlined)
        if new is None:
            return [s]
        self.changed = True
        return [new, *moves]

    def _carried(self, s: Compute) -> tuple[Compute | None, list[Compute]]:
        """(``s`` over own channels, the moves that put its results in order); None if nothing can
        be done, or if a table would be looked up for every element that ``s`` reads."""
        moves: list[Compute] = []
        done = False
        for axis in s.axes + s.raxes:
            found = _permuted(s, axis, self.buffers, self.consts)
            if found is None or axis in s.axes and not self._may_move(s):
                continue
            done, s = True, self._in_order(s, found)
            if axis in s.axes:
                s, move = self._moved(s, found)
                moves.insert(0, move)
        if not done or any(loads(i) and all(n.buffer in self.consts for n in loads(i))
                           for n in s.loads if n.buffer not in self.consts for i in n.index):
            return None, []
        return s, moves

    def _may_move(self, s: Compute) -> bool:
        """True for what may hand its results on in another order: a fold per channel, or a map of
        a temp that other computes read."""
        if s.fold != "none":
            return category(s.axes, s.raxes, s.fold, s.body) in ("window", "reduction")
        return s.out not in self.program.results and all(
            isinstance(c, Compute) for c in self.program.consumers.get(s.out, ()))

    def _moved(self, s: Compute, p: _Permuted) -> tuple[Compute, Compute]:
        """The compute with its result in a buffer of its own, and the move from there."""
        name = self.name(f"{s.out}_own")
        old = self.buffers[s.out]
        self.buffers[name] = Buffer(name, old.shape, old.dtype)
        index = tuple(p.place if a == p.axis else a for a in s.axes)
        move = Compute(s.outs, s.axes, (), "none", Load(name, index, old.dtype), origin=s.origin)
        self.views[s.out] = move
        return replace(s, outs=(name,)), move

    def _in_order(self, s: Compute, p: _Permuted) -> Compute:
        """The compute with tensors read at the axis itself, and constants in that order."""
        to: dict[Expr, Expr] = {n: Load(n.buffer, (*n.index[:d], p.axis, *n.index[d + 1:]), n.dtype)
                                for n, d in p.loads.items()}
        to |= {n: Load(self.turned(n.buffer, d, p.order), n.index, n.dtype)
               for n, d in p.consts.items()}
        return replace(s, body=simplify(substitute(s.body, to)))


def _is_view(s: Compute, consts: Mapping[str, Array]) -> bool:
    """True for a move, and for one whose places are looked up in constants."""
    return is_move(s) or s.fold == "none" and len(s.outs) == 1 and isinstance(s.body, Load) and (
        s.body.buffer not in consts) and all(
        n.buffer in consts for i in s.body.index for n in loads(i))


def _permuted(s: Compute, axis: Axis, buffers: Mapping[str, Buffer],
              consts: Mapping[str, Array]) -> _Permuted | None:
    """The _Permuted of an axis of a compute; None if it is read as it is, otherwise than at one
    permutation, or if something depends on it that cannot follow."""
    if not isinstance(s.fold, str) or len(s.outs) != 1 or not isinstance(axis.extent, Const):
        return None
    data: dict[Load, int] = {}
    fixed: dict[Load, int] = {}
    for n in whole_loads(s.body):
        dims = [d for d, i in enumerate(n.index) if axis in axes_of(i)]
        if len(dims) == 1 and n.buffer not in consts and (
                buffers[n.buffer].shape[dims[0]] == axis.extent):
            data[n] = dims[0]
        elif len(dims) == 1 and n.index[dims[0]] == axis and n.buffer in consts:
            fixed[n] = dims[0]
    rest = substitute(s.body, {n: Const(0, n.dtype) for n in (*data, *fixed)})
    places = {n.index[d] for n, d in data.items()}
    if axis in axes_of(rest) or len(places) != 1 or axis in places:
        return None
    (place,) = places
    order = _order(place, axis, consts)
    return None if order is None else _Permuted(axis, place, order, data, fixed)


def whole_loads(e: Expr) -> tuple[Load, ...]:
    """The distinct Loads that are in no index of another."""
    found: dict[Load, None] = {}
    todo, seen = [e], set()
    while todo:
        n = todo.pop()
        if isinstance(n, Load):
            found[n] = None
        elif n not in seen:
            seen.add(n)
            todo += children(n)
    return tuple(found)


def _order(place: Expr, axis: Axis, consts: Mapping[str, Array]) -> Array | None:
    """The permutation that ``place`` is for the values of ``axis``; None if it is none."""
    if axes_of(place) != {axis} or any(isinstance(n, (Sym, Guarded)) for n in walk(place)) or any(
            n.buffer not in consts for n in loads(place)):
        return None
    found = eval_compute(Compute(("place",), (axis,), (), "none", place), None,
                         consts.__getitem__, {})
    order = np.asarray(found, np.int64)
    return order if np.array_equal(np.sort(order), np.arange(order.size)) else None


__all__ = ["TurnedConstants", "unshuffle_channels", "whole_loads"]
