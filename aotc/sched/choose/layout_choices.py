"""Which layouts a stored tensor may sensibly have: templates tied to lanes and tiles (ALT, 3.3).

``layout_choices`` lists them as values, the plain one first.

    c = layout_choices(program, "relu_1", target)       # Layout() , N H W C, N C/16 H W C%16, ..
"""


from collections.abc import Iterator, Sequence

from aotc.ir.category import factor_pairs
from aotc.ir.expr import Const, Expr, Load, Shape, axes_of
from aotc.ir.layout import Layout, Movement, Pad, Reorder, Split, unfold_for_tile
from aotc.ir.program import Compute, Program
from aotc.ir.read_boxes import interval
from aotc.ir.simplify import simplify, split_linear
from aotc.sched.model.elementwise import elementwise_class
from aotc.target.base import Target

LANES = (1, 2, 4)  # o_t in lanes, twice that (what searches found most often), four times
Sliding = tuple[int, int, int, int, int, int]  # as ``_window`` says
TILES = (4, 8, 16)  # outputs along a spatial dimension, or the divisor next to them


def layout_choices(program: Program, buffer: str, target: Target) -> tuple[Layout, ...]:
    """Layouts (row-major first, no two alike) worth trying for a temp of ``program``: what is
    contracted over innermost, its channels in blocks of lanes, and for a temp that a window slides
    over, tiles that overlap as its windows do.  Only ``(Layout(),)`` for the caller's memory, for
    what a library call touches, and for constants: those follow the loops that read them."""
    b, step = program.buffers[buffer], program.producer.get(buffer)
    if b.role != "temp" or len(b.shape) < 2 or is_called(program, buffer) or (
            step is not None and len(step.outs) > 1):
        return (Layout(),)
    out = {Layout(): None}
    for d in channel_dims(program, buffer):
        for layout in [channels_last(len(b.shape), d)] + [
                blocked_layout(b.shape, d, k * target.lanes) for k in LANES]:
            if layout is not None:
                out.setdefault(layout)
    for layout in _window_tiles(program, buffer):
        out.setdefault(layout)
    return tuple(out)


def is_called(program: Program, buffer: str) -> bool:
    """True if a library call or a region works on a buffer, which is row-major then."""
    maker = program.producer.get(buffer)
    near = (*(() if maker is None else (maker,)), *program.consumers.get(buffer, ()))
    return any(not isinstance(s, Compute) for s in near)


def channels_last(rank: int, dim: int) -> Layout:
    """``dim`` innermost, the others in order; row-major if it is already."""
    perm = tuple(d for d in range(rank) if d != dim) + (dim,)
    return Layout() if perm == tuple(range(rank)) else Layout((Reorder(perm),))


def blocked_layout(shape: Shape, dim: int, block: int) -> Layout | None:
    """``N C/b H W C%b``; None if ``block`` does not divide a static extent or leaves one block."""
    n = shape[dim]
    if block < 2 or not isinstance(n, Const) or n.value % block or n.value == block:
        return None
    rank = len(shape)
    inner = tuple(d for d in range(rank + 1) if d != dim + 1) + (dim + 1,)
    primitives = (Split(dim, (-1, block)),)
    return Layout(primitives if inner == tuple(range(rank + 1)) else (
        *primitives, Reorder(inner)))


def nearest_divisor(extent: int, value: int) -> int:
    """The divisor of ``extent`` nearest to ``value``; of two equally near the smaller."""
    divisors = [d for d in range(1, extent + 1) if extent % d == 0]
    return min(divisors, key=lambda d: (abs(d - value), d))


def channel_dims(program: Program, buffer: str) -> list[int]:
    """Dimensions that a reader contracts over or a product writes along its lanes, those first that
    most readers contract over; of the whole elementwise class."""
    votes: dict[int, int] = {}
    for b in elementwise_class(program, buffer) or (buffer,):
        for s in (s for s in program.consumers.get(b, ()) if isinstance(s, Compute)):
            for n in s.loads:
                if n.buffer == b:
                    for d in _contracted(s, n):
                        votes[d] = votes.get(d, 0) + 2
        maker = program.producer.get(b)
        for d in _written(maker) if isinstance(maker, Compute) else ():
            votes[d] = votes.get(d, 0) + 1
    return sorted(votes, key=lambda d: (-votes[d], d))


def _contracted(step: Compute, load: Load) -> list[int]:
    """Dimensions of a Load that a sum of products indexes by a reduction axis alone."""
    if not factor_pairs(step.axes, step.raxes, step.fold, step.body):
        return []
    return [d for d, i in enumerate(load.index) if axes_of(i) and axes_of(i) <= set(step.raxes)]


def _written(step: Compute) -> list[int]:
    """Dimensions of the output that run along the lanes of a sum of products."""
    return [step.axes.index(a) for f in factor_pairs(step.axes, step.raxes, step.fold, step.body)
            for a in f.n][:1]


# ---------------------------------------------------------------- overlapped tiles

def _window_tiles(program: Program, buffer: str) -> Iterator[Layout]:
    """Overlapped tiles for readers whose windows slide over static dimensions: the last two that
    they do, tiles of the same number of outputs, the channel innermost."""
    shape = program.shape(buffer)
    for s in (s for s in program.consumers.get(buffer, ()) if isinstance(s, Compute)):
        for n in s.loads:
            if n.buffer != buffer or not _contracted(s, n):
                continue
            windows = [w for w in (_window(s, n.index[d], d, shape[d])
                                   for d in range(len(shape))) if w is not None][-2:]
            if not windows:
                continue
            for tile in TILES:
                layout = _tiled(windows, shape, _contracted(s, n)[0], tile)
                if layout is not None:
                    yield layout


def _window(step: Compute, index: Expr, dim: int, extent: Expr) -> Sliding | None:
    """(dim, outputs, step, taps' reach, before, after) of a sliding index; None for others."""
    own = axes_of(index) & set(step.axes)
    if len(own) != 1 or not axes_of(index) & set(step.raxes) or not isinstance(extent, Const):
        return None
    axis = next(iter(own))
    parts = split_linear(simplify(index), axis)
    if parts is None or not isinstance(axis.extent, Const) or not isinstance(parts[0], Const):
        return None
    lo, hi = interval(parts[1], {})
    if lo is None or hi is None:
        return None
    lo, hi = simplify(lo), simplify(hi)
    if not isinstance(lo, Const) or not isinstance(hi, Const) or parts[0].value < 1:
        return None
    v, n = parts[0].value, axis.extent.value
    over = v * (n - 1) + hi.value - (extent.value - 1)
    return dim, n, v, hi.value - lo.value + 1, max(0, -lo.value), max(0, over)


def _tiled(windows: Sequence[Sliding], shape: Shape, channel: int, tile: int) -> Layout | None:
    outputs = {w[0]: nearest_divisor(w[1], tile) for w in windows}
    if any(outputs[d] in (1, n) for d, n, *_ in windows):
        return None
    primitives: list[Movement] = []
    at, dims = 0, {}
    for d, _, _, _, before, after in windows:
        if before or after:
            primitives.append(Pad(d, before, after))
    tiles, inner, rest = [], [], []
    sliding = {w[0]: w for w in windows}
    for d in range(len(shape)):
        if d in sliding:
            _, _, v, reach, _, _ = sliding[d]
            primitives.append(unfold_for_tile(at, outputs[d], reach, v))
            tiles.append(at)
            inner.append(at + 1)
            at += 2
        else:
            dims[d] = at
            if d != channel:
                rest.append(at)
            at += 1
    order = rest + tiles + inner + [dims[channel]]
    return Layout((*primitives, Reorder(tuple(order))))


__all__ = ["blocked_layout", "channel_dims", "channels_last", "is_called", "layout_choices",
           "nearest_divisor"]
