"""Rewrite rule ``unfold``: convolutions over few channels and over the model's own inputs, the
first layers of image models.

    c[n, oc, oh, ow] = sum(ic, kh, kw) where(inside, x[n, ic, oh*s + kh - p, ow*s + kw - p], 0)
                                       * w[oc, ic, kh, kw]

With three channels no reduction axis is long enough to read rows in place, and an input has its
channels outermost, whatever their number, so every register tile would be packed element by
element.  The rule stores the input once, padded and with the channels innermost, and joins the
innermost window axis and the channels to one reduction axis:

    u[n, ih, iw, ic] = where(inside, x[n, ic, ih - p, iw - p], 0)
    c[n, oc, oh, ow] = sum(kh, j) u[n, oh*s + kh, ow*s + j//C, j%C] * w2[oc, kh, j]

``u`` is read through rows of unit stride (ow*s*C + j), its guards are gone, and the weights are
transposed at compile time.  A tensor that is stored so already, by its layout, is read where it is.

Where the steps along a row are no neighbours (a dilated or a transposed convolution) only the copy
is made: its rows are read along the channels.

Convolutions in groups index the channels with ``g*size + ic``: the copy gets a dimension for the
groups, outside the windows, so that the channels of one group lie side by side from pixel to pixel:

    u[n, g, ih, iw, ic] = where(inside, x[n, g*size + ic, ih - p, iw - p], 0)
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aotc.ir.category import factor_pairs, zero_filled
from aotc.ir.conditions import conjuncts, same_condition
from aotc.ir.dtypes import Array
from aotc.ir.expr import (
    Axis,
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Where,
    axes_of,
    compare,
    loads,
    substitute,
)
from aotc.ir.program import Buffer, Compute, Program, free_name, make_const, update
from aotc.ir.read_boxes import interval
from aotc.ir.simplify import simplify, split_linear
from aotc.passes.compute_rule import ComputeRule

Channel = tuple[int, Axis, Axis | None]  # (dimension, reduction axis, axis of the groups)
CHANNELS = 8  # from so many on, rows are read along the channels themselves
SHORTEST = 8  # a joined axis below this is not worth the copy


@dataclass(frozen=True)
class UnfoldWindow:
    """One window dimension of the input: index = ``rest`` (output axes) + ``tap``, from ``first``
    on; ``extent`` of the padded copy."""

    dim: int
    index: Expr
    first: int
    extent: Expr


@dataclass(frozen=True)
class UnfoldMatch:
    """What ``unfold`` needs of a compute: the data and the weight Load, the dimension of the data
    that holds the channels (``at``), its windows (innermost last), the channel axis, that of the
    groups (None without any) and the tap that joins the channels (None: they stay as they are)."""

    data: Load
    weight: Load
    swapped: bool
    at: int
    channel: Axis
    group: Axis | None
    tap: Axis | None
    windows: tuple[UnfoldWindow, ...]


def match_unfold(program: Program, c: Compute) -> UnfoldMatch | None:
    """The Match of a compute, or None."""
    for f in factor_pairs(c.axes, c.raxes, c.fold, c.body) if c.body.dtype == "f32" else ():
        data, guard = zero_filled(f.a)
        weight = f.b
        if data is None or not isinstance(weight, Load) or data.buffer in program.consts or (
                weight.buffer not in program.consts):
            continue
        if len(set(weight.index)) != len(weight.index) or not all(
                isinstance(i, Axis) for i in weight.index):
            continue
        channels = _channels(c, data, weight)
        windows = _windows(program, c, data, [x[0] for x in channels])
        if len(channels) != 1 or not windows or not _inside(program, data, guard, windows):
            continue
        at, channel, group = channels[0]
        taps = [r for r in axes_of(windows[-1].index) if r in c.raxes]
        if len(taps) != 1 or channel not in weight.index or taps[0] not in weight.index:
            continue
        parts = split_linear(windows[-1].index, taps[0])
        tap = taps[0] if parts is not None and parts[0] == Const(1) else None
        joined = _static(channel) * (1 if tap is None else _static(tap))
        few = data.buffer in program.inputs or (
            tap is not None and _static(channel) < CHANNELS and group is None)
        if _static(channel) < 2 or not few or joined < SHORTEST:
            continue
        swapped = isinstance(c.body, Binary) and c.body.a is weight
        return UnfoldMatch(data, weight, swapped, at, channel, group, tap, windows)
    return None


def _channels(c: Compute, data: Load, weight: Load) -> list[Channel]:
    """[(dimension, reduction axis, group axis or None)] of the data's index over the channels, or
    over those of one group: the weights have a dimension for the groups, and none for the outputs
    of a window that is as wide as its step."""
    own: list[Channel] = [(d, i, None) for d, i in enumerate(data.index)
                          if isinstance(i, Axis) and i in c.raxes]
    grouped = [_grouped(c, d, i) for d, i in enumerate(data.index)]
    return own or [x for x in grouped if x is not None and x[2] in weight.index]


def _grouped(c: Compute, dim: int, index: Expr) -> Channel | None:
    """(dim, reduction axis, group axis) of ``group * size + channel``; None for others."""
    own, sums = axes_of(index) & set(c.axes), axes_of(index) & set(c.raxes)
    if len(own) != 1 or len(sums) != 1 or loads(index):
        return None
    (group,), (channel,) = own, sums
    size = channel.extent
    whole = isinstance(size, Const) and size.value > 1 and simplify(
        group * size + channel) == simplify(index)
    return (dim, channel, group) if whole else None


def _static(axis: Axis) -> int:
    return axis.extent.value if isinstance(axis.extent, Const) else 1


def _windows(program: Program, c: Compute, data: Load,
             channels: Sequence[int]) -> tuple[UnfoldWindow, ...]:
    """The Windows of a Load, or () if its other dimensions (but ``channels``) are not plain axes or
    windows begin nowhere in particular."""
    out = []
    for d, i in enumerate(data.index):
        if isinstance(i, (Axis, Const)) or d in channels:
            continue
        if loads(i) or not axes_of(i) & set(c.raxes):
            return ()
        lo, hi = interval(i, {})
        first = None if lo is None else simplify(lo)
        if not isinstance(first, Const) or hi is None:
            return ()
        out.append(UnfoldWindow(d, i, first.value, simplify(hi - first.value + 1)))
    return tuple(out)


def _inside(program: Program, data: Load, guard: Expr | None,
            windows: Iterable[UnfoldWindow]) -> bool:
    """True if ``guard`` says no more than that the windows' indices lie inside the tensor."""
    wanted = [simplify(i) for i in _bounds(program, data, {w.dim: w.index for w in windows})]
    given = conjuncts(guard) if guard is not None else []
    return all(any(same_condition(g, w) for w in wanted) for g in given)


def _bounds(program: Program, data: Load, index: Mapping[int, Expr]) -> Iterator[Expr]:
    """0 <= i < extent for every {dimension: i}."""
    for d, i in index.items():
        yield compare("ge", i, Const(0))
        yield compare("lt", i, program.shape(data.buffer)[d])


FITS = ComputeRule("unfold", match_unfold, "convolution over few channels or an input", {})
unfold_candidates, faults_of = FITS.candidates, FITS.faults_of


def rewrite(program: Program, name: str, parameters: Mapping[str, Any]) -> Program:
    """The Program with the rule applied to the compute that writes ``name``.  ScheduleError if it
    does not match."""
    c, m = FITS.matched(program, name, parameters)
    copy, where_is = _padded_copy(program, c, m)
    digits: dict[Axis, Expr] = {}
    arrays: dict[str, Array] = {}
    joined: tuple[Axis, ...] = ()
    weight = m.weight
    if m.tap is not None:
        both = Axis(f"{m.tap.name}_{m.channel.name}", Const(_static(m.tap) * _static(m.channel)))
        count = Const(_static(m.channel))
        digits = {m.tap: both // count, m.channel: both % count}
        array, weight = _weights(program, c, m, m.tap, both)
        arrays, joined = {weight.buffer: array}, (both,)
    index = tuple(simplify(substitute(e, digits)) for e in where_is)
    stored = copy.body == Load(m.data.buffer, copy.axes, m.data.dtype)
    load = Load(m.data.buffer if stored else copy.out, index, m.data.dtype)
    columns = weight if weight.dtype == "f32" else Cast("f32", weight)
    body = Binary("mul", columns, load) if m.swapped else Binary("mul", load, columns)
    raxes = tuple(r for r in c.raxes if r not in digits) + joined
    shape = tuple(a.extent for a in copy.axes)
    at = program.steps.index(c)
    steps = program.steps[:at] + (() if stored else (copy,)) + (
        replace(c, raxes=raxes, body=body),) + program.steps[at + 1:]
    buffers = {copy.out: Buffer(copy.out, shape, m.data.dtype)} | {
        n: make_const(n, a) for n, a in arrays.items()}
    return update(program, steps=steps, buffers={**program.buffers, **buffers},
                  consts={**program.consts, **arrays})


def _padded_copy(program: Program, c: Compute, m: UnfoldMatch) -> tuple[Compute, list[Expr]]:
    """(the Compute that stores the input padded, channels innermost; its index in ``c``)."""
    windows = {w.dim: w for w in m.windows}
    axes: list[Axis] = []
    where_is: list[Expr] = []
    source = list(m.data.index)
    # the channels come last; those of a group leave the groups' dimension where they were
    order = [d for d in range(len(source)) if d != m.at or m.group is not None]
    for d in order + [m.at] * (m.group is None):
        i = m.data.index[d]
        if d == m.at and m.group is not None:
            axes.append(Axis(f"i{d}", m.group.extent))
            where_is.append(m.group)
        elif d in windows:
            w = windows[d]
            axes.append(Axis(f"i{d}", w.extent))
            source[d] = axes[-1] + w.first
            where_is.append(i - w.first)
        else:
            axes.append(Axis(f"i{d}", i.extent if isinstance(i, Axis) else Const(1)))
            source[d] = axes[-1] if isinstance(i, Axis) else i
            where_is.append(i if isinstance(i, Axis) else Const(0))
    if m.group is not None:
        axes.append(Axis("ic", m.channel.extent))
        where_is.append(m.channel)
        source[m.at] = axes[m.at] * m.channel.extent + axes[-1]
    index = tuple(simplify(e) for e in source)
    value: Expr = Load(m.data.buffer, index, m.data.dtype)
    for cond in _bounds(program, m.data, {d: index[d] for d in windows}):
        cond = simplify(cond)
        if cond != Const(True, "bool"):
            value = _guarded(cond, value)
    name = free_name(program.buffers, f"{c.out}_unfolded")
    return Compute((name,), tuple(axes), (), "none", value, origin=c.origin), where_is


def _guarded(cond: Expr, value: Expr) -> Expr:
    if isinstance(value, Where):
        return replace(value, cond=Binary("and", value.cond, cond))
    return Where(cond, value, Const(0, value.dtype))


def _weights(program: Program, c: Compute, m: UnfoldMatch, tap: Axis,
             joined: Axis) -> tuple[Array, Load]:
    """(array, Load) of the weights with tap and channel joined to the last dimension."""
    index = m.weight.index
    rest = [i for i in index if i not in (tap, m.channel)]
    order = [index.index(i) for i in (*rest, tap, m.channel)]
    array = np.ascontiguousarray(program.consts[m.weight.buffer].transpose(order))
    array = array.reshape(*array.shape[:-2], -1)
    name = f"{m.weight.buffer}_{c.out}_unfolded"
    return array, Load(name, (*rest, joined), m.weight.dtype)
