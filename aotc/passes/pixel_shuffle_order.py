"""Channels that a pixel shuffle takes apart are made in runs.

A pixel shuffle reads ``t[n, c*4 + h % 2 * 2 + w % 2, h // 2, w // 2]``: neighbours along ``c``,
over which the lanes of what follows run, lie four apart.  Where ``t`` is a product with constant
weights (and maps of it), its channels are made in the order that the shuffle wants, by an order of
the weights: ``t[n, (h % 2 * 2 + w % 2)*C + c, h // 2, w // 2]``.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from aotc.ir.dtypes import Array
from aotc.ir.expr import Axis, Binary, Const, Expr, Load, axes_of, substitute
from aotc.ir.program import Compute, Program, update
from aotc.ir.simplify import lower, simplify, split_linear, to_poly, upper
from aotc.passes.unshuffle_channels import TurnedConstants, whole_loads


def order_pixel_shuffles(program: Program) -> Program:
    """Program in which products make channels in the order in which shuffles read them.  The same
    object if there is nothing to change."""
    done: set[str] = set()
    for s in program.steps:
        for load, dim, apart in _interleaved(program, s) if isinstance(s, Compute) else ():
            if load.buffer in done:
                continue
            done.add(load.buffer)
            chain = _chain(program, load.buffer, dim)
            if chain is not None and _read_apart(program, chain, apart):
                program = _in_order(program, chain, apart)
    return program


def _interleaved(program: Program, s: Compute) -> Iterator[tuple[Load, int, int]]:
    """(load of a temp, dimension, step) of the loads of a compute that step through a dimension
    along an axis, with other axes between."""
    if s.out in program.outputs:
        return
    for n in whole_loads(s.body):
        if program.buffers[n.buffer].role != "temp":
            continue
        for d, index in enumerate(n.index):
            step = next((k for a in s.axes if (k := _step(index, a, program.shape(n.buffer)[d]))),
                        0)
            if step:
                yield n, d, step


def _step(index: Expr, axis: Axis, extent: Expr) -> int:
    """K of an index ``axis*K + s`` with 0 <= s < K that reaches all of ``extent``, s made of
    remainders of other axes; 0 for others, such as ``head*K + channel`` or ``group*K + r // n``,
    where channels are runs."""
    parts = split_linear(index, axis) if axis in axes_of(index) else None
    if parts is None or not isinstance(parts[0], Const) or not axes_of(parts[1]) or not all(
            len(m) == 1 and isinstance(m[0], Binary) and m[0].op == "mod"
            for m in to_poly(parts[1])):
        return 0
    k, low, high = parts[0].value, lower(parts[1]), upper(parts[1])
    whole = isinstance(axis.extent, Const) and extent == Const(axis.extent.value * k)
    return k if k > 1 and whole and low == 0 and high == k - 1 else 0


def _chain(program: Program, buffer: str, dim: int) -> dict[str, int] | None:
    """{temp: dimension of the channels} of ``buffer`` and all it is made from channel by channel;
    None if the channels come from anything but constants."""
    found: dict[str, int] = {}
    todo = [(buffer, dim)]
    while todo:
        b, d = todo.pop()
        if b in found:
            if found[b] != d:
                return None
            continue
        s = program.producer.get(b)
        if not isinstance(s, Compute) or len(s.outs) > 1 or not isinstance(s.fold, str) or (
                b in program.results or isinstance(s.body, Load)):
            return None
        found[b], own = d, s.axes[d]
        at: dict[Expr, Expr] = {}
        for n in whole_loads(s.body):
            dims = [k for k, i in enumerate(n.index) if own in axes_of(i)]
            if not dims:
                continue
            if len(dims) > 1 or n.index[dims[0]] != own:
                return None
            at[n] = Const(0, n.dtype)
            if n.buffer not in program.consts:
                todo.append((n.buffer, dims[0]))
        if own in axes_of(substitute(s.body, at)):
            return None
    return found


def _read_apart(program: Program, chain: dict[str, int], apart: int) -> bool:
    """True if others read the temps of a chain with that step only, and not for outputs."""
    for b, d in chain.items():
        for s in program.consumers.get(b, ()):
            if not isinstance(s, Compute):
                return False
            for n in (n for n in s.loads if n.buffer == b):
                if s.out in chain and n.index[d] == s.axes[chain[s.out]]:
                    continue
                if s.out in chain or s.out in program.outputs or not any(
                        _step(n.index[d], a, program.shape(b)[d]) == apart for a in s.axes):
                    return False
    return True


def _in_order(program: Program, chain: dict[str, int], apart: int) -> Program:
    """The Program with the channels of a chain in runs: ``axis*apart + s`` is ``s*C + axis``."""
    state = TurnedConstants(program)
    first = next(iter(chain))
    channels = program.shape(first)[chain[first]]
    assert isinstance(channels, Const)
    old = np.arange(channels.value)
    order = old % apart * (channels.value // apart) + old // apart
    steps = tuple(_turned(state, s, chain, order) if isinstance(s, Compute) and s.out in chain
                  else _reading(program, s, chain, apart) if isinstance(s, Compute) else s
                  for s in program.steps)
    return update(program, steps=steps, buffers=state.buffers, consts=state.consts)


def _turned(state: TurnedConstants, s: Compute, chain: dict[str, int], order: Array) -> Compute:
    """A compute of the chain with its constants in the new order."""
    own = s.axes[chain[s.out]]
    to: dict[Expr, Expr] = {
        n: Load(state.turned(n.buffer, n.index.index(own), order), n.index, n.dtype)
        for n in whole_loads(s.body) if n.buffer in state.consts and own in n.index}
    return replace(s, body=substitute(s.body, to))


def _reading(program: Program, s: Compute, chain: dict[str, int], apart: int) -> Compute:
    """A compute with its loads of the chain where the channels are now."""
    to: dict[Expr, Expr] = {}
    for n in s.loads:
        if n.buffer in chain:
            d, extent = chain[n.buffer], program.shape(n.buffer)[chain[n.buffer]]
            axis = next(a for a in s.axes if _step(n.index[d], a, extent))
            inner = split_linear(n.index[d], axis)
            assert inner is not None
            at = simplify(inner[1] * axis.extent + axis)
            to[n] = Load(n.buffer, (*n.index[:d], at, *n.index[d + 1:]), n.dtype)
    return replace(s, body=simplify(substitute(s.body, to))) if to else s


__all__ = ["order_pixel_shuffles"]
