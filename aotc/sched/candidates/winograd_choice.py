"""Which convolutions of a Program get a Winograd form: errors, cost, memory.  What a form costs is
asked of the one cost, over the kernels that it and the convolution as it is make; nothing is
measured, so the choice is the same on every machine."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from aotc.ir.dtypes import Array
from aotc.ir.layout import Layout, Reorder
from aotc.ir.program import Compute, Program, Rewrite, static_shape
from aotc.ir.schedule import PRECISION
from aotc.ir.simplify import upper
from aotc.passes.digits import static_extent
from aotc.passes.images.unfold import CHANNELS
from aotc.passes.rewrites import apply_rewrites
from aotc.passes.winograd import TILES, Convolution, SlidingAxis, find_convolution, legal_tiles
from aotc.sched.choose.precision import choose_precision
from aotc.sched.cost.product_rows import pick_row
from aotc.sched.cost.winograd_errors import ERRORS
from aotc.sched.judge.neighbourhood import Neighbourhoods
from aotc.sched.model.size import estimate, estimate_volume
from aotc.sched.precision.levels import Levels
from aotc.target.base import Target

Winograd = str | int | tuple[Rewrite, ...]  # one of ``WINOGRAD``, or rewrites as they are
SLIDING = 2  # axes transformed at once: with three, the transforms outgrow the registers
ERROR_FACTOR, ERROR_SHARE = 4, 2e-5  # of a direct convolution's error; of the output's range
SPAN = 1e3  # of channels' magnitudes in constants: the largest by the one in the middle
GROWTH, GROWTH_BYTES = 1.0, 4 << 20  # what transformed weights may add to the model's


@dataclass(frozen=True)
class FormCandidate:
    """A form for one compute, from the simplest to the fastest that pay: seconds predicted, bytes
    of weights, and both without it."""

    compute: str
    tile: dict[str, int]
    seconds: float
    bytes: int
    direct: float
    direct_bytes: int

    def over(self, other: "FormCandidate | None") -> "_Gain":
        """What it brings beyond another form of the same compute (None: beyond none)."""
        if other is None:
            return _Gain(self.direct - self.seconds, self.bytes - self.direct_bytes)
        return _Gain(other.seconds - self.seconds, self.bytes - other.bytes)


@dataclass(frozen=True)
class _Gain:
    """Seconds saved for bytes of weights added."""

    seconds: float
    bytes: int

    @property
    def worth(self) -> float:
        return self.seconds / max(1, self.bytes)


def choose_winograd(near: Neighbourhoods, winograd: str | int = "auto",
                    precision: str = PRECISION[0],
                    levels: Levels | None = None) -> tuple[Rewrite, ...]:
    """The rewrites of a Schedule: ``(("winograd", compute, {axis: outputs per tile}), ...)``, and
    before them ``("layout", input, primitives)`` for each of the model's inputs that a form reads
    through a copy with the channels side by side.

    winograd: one of ``WINOGRAD``.  precision: of the operands of direct products, ``levels`` of
    those that have one of their own; forms are f32, and have to be faster than direct products of
    rounded operands.
    """
    program = near.program
    if winograd == "off" or not near.target.rows("transform"):
        return ()
    copies = _copies(program)
    if copies:
        near = Neighbourhoods(apply_rewrites(program, tuple(copies.values())), near.target)
    forms = _forms(near, winograd, choose_precision(near.program, near.target, precision, levels))
    served = {compute for _, compute, _ in forms}
    return tuple(c for b, c in copies.items() if any(
        conv.compute.out in served for conv in _convolutions(program)
        if conv.data.buffer == b)) + forms


def _is_tame(program: Program, conv: Convolution) -> bool:
    """True for a convolution whose data may be taken for finite and of one order of magnitude: the
    model has computed it by sums over several elements, and no constant on the way from those shows
    that magnitudes differ much between channels.  A form mixes all elements of a tile: an infinity
    that the caller gives spoils it, and small outputs beside large ones lose their digits."""
    seen, todo, consts = set(), [conv.data.buffer], {conv.weights.buffer}
    while todo:
        b = todo.pop()
        if b in seen:
            continue
        seen.add(b)
        if program.buffers[b].role == "input":
            return False
        step = program.producer.get(b)
        if not isinstance(step, Compute):
            continue
        consts |= {n.buffer for n in step.loads if n.buffer in program.consts}
        if step.fold in ("none", "max", "min"):
            todo += [n.buffer for n in step.loads if n.dtype == "f32"]
    return not any(_spread(program.consts[c]) > SPAN for c in consts)


def _spread(array: Array) -> float:
    """The largest of an f32 constant's magnitudes along any one of its dimensions, by the one in
    the middle; zeros do not count."""
    if array.dtype != np.float32 or not array.ndim:
        return 0.0
    size, most = np.abs(array), 0.0
    for d in range(array.ndim):
        along = size.max(axis=tuple(k for k in range(array.ndim) if k != d), initial=0.0)
        along = np.sort(along[along > 0])
        if along.size:
            most = max(most, float(along[-1]) / float(along[(along.size - 1) // 2]))
    return most


def _convolutions(program: Program) -> list[Convolution]:
    found = (find_convolution(program, s) for s in program.steps if isinstance(s, Compute))
    return [conv for conv in found if conv is not None]


def _copies(program: Program) -> dict[str, Rewrite]:
    """{input: rewrite}: inputs of the model that hold the many channels of a convolution apart in
    memory, and the copy that has them side by side."""
    found: dict[str, Rewrite] = {}
    for conv in _convolutions(program):
        b, index = conv.data.buffer, conv.data.index
        if not _channels_inside(program, conv) and conv.channel in index and (
                estimate(conv.channel.extent) >= CHANNELS and static_shape(program.shape(b))):
            at = index.index(conv.channel)
            order = [d for d in range(len(index)) if d != at] + [at]
            layout = Layout((Reorder(tuple(order)),))
            found.setdefault(b, ("layout", b, {"primitives": layout.to_json()}))
    return found


def _forms(near: Neighbourhoods, winograd: str | int,
           rounded: Iterable[Rewrite]) -> tuple[Rewrite, ...]:
    """The forms alone.  rounded: rewrites of direct products."""
    program, auto = near.program, winograd == "auto"
    most = max(TILES) if isinstance(winograd, str) else winograd
    weights = sum(a.nbytes for a in program.consts.values())
    direct: dict[str, tuple[Rewrite, ...]] = {}
    for r in rounded:
        direct[r[1]] = (*direct.get(r[1], ()), r)
    options = []
    for conv in _convolutions(program):
        tiles = tuple(_tiles(conv, most, auto))
        if tiles and _channels_inside(program, conv) and (not auto or _is_tame(program, conv)):
            options.append(_candidates(near, conv, tiles, direct.get(conv.compute.out, ())))
    taken = _within(options, GROWTH * weights + GROWTH_BYTES)
    return tuple(("winograd", s.outs[0], taken[s.outs[0]]) for s in program.steps
                 if s.outs[0] in taken)


def _within(options: Sequence[Sequence[FormCandidate]], left: float) -> dict[str, dict[str, int]]:
    """{compute: tile}: forms for as many layers as ``left`` bytes allow.  Every step takes the form
    that saves most time per byte over what its layer has by then, so that small forms everywhere
    come before a large one that uses up the memory."""
    at = [-1] * len(options)
    taken: dict[str, dict[str, int]] = {}
    while True:
        steps = [(c.over(x[at[i]] if at[i] >= 0 else None), -i, k) for i, x in enumerate(options)
                 for k, c in enumerate(x) if k > at[i]]
        steps = [step for step in steps if step[0].bytes <= left]
        if not steps:
            return taken
        gain, i, k = max(steps, key=lambda step: (step[0].worth, *step[1:]))
        at[-i], left = k, left - gain.bytes
        taken[options[-i][k].compute] = options[-i][k].tile


def _channels_inside(program: Program, conv: Convolution) -> bool:
    """False where the channels of the caller's own tensor lie apart in memory."""
    last = conv.data.index[-1] == conv.channel
    return last or program.buffers[conv.data.buffer].role != "input"


def _tiles(conv: Convolution, most: int, check_error: bool) -> Iterator[dict[str, int]]:
    """Tiles of the forms that there are and that are exact enough, smallest first."""
    windows = list(conv.windows.values())[-SLIDING:]
    for m in TILES:
        if m <= most and all(m in legal_tiles(w) for w in windows) and (
                not check_error or is_exact_enough(conv, windows, m)):
            yield {w.out.name: m for w in windows}


def _candidates(near: Neighbourhoods, conv: Convolution, tiles: Iterable[dict[str, int]],
                rounded: tuple[Rewrite, ...]) -> list[FormCandidate]:
    """Forms that pay, each faster than the one before it.  rounded: rewrites of the convolution if
    it gets none."""
    target, name, out = near.target, conv.compute.out, []
    direct = near.asked(name, rounded)
    limit = direct.seconds
    for tile in tiles:
        windows = [w for w in conv.windows.values() if w.out.name in tile]
        if target.machine.managed and _least_scratch(target, conv, windows, max(
                tile.values())) > target.machine.near.capacity:
            continue
        form = near.asked(name, (("winograd", name, tile),))
        if form.seconds < target.tuning.winograd_gain * limit:
            out.append(FormCandidate(name, tile, form.seconds, form.weights, direct.seconds,
                                     direct.weights))
            limit = form.seconds
    return out


def form_shares(program: Program, target: Target,
                rewrites: Iterable[Rewrite]) -> dict[str, float]:
    """{compute: predicted time of its form per time of the direct convolution} of chosen forms,
    ("winograd", compute, {axis: outputs per tile}); ``program``: without them."""
    near = Neighbourhoods(program, target)
    return {r[1]: near.asked(r[1], (r,)).seconds / near.asked(r[1]).seconds for r in rewrites}


def is_exact_enough(conv: Convolution, windows: Sequence[SlidingAxis], m: int) -> bool:
    """True if the form's rounding errors are within the budget, by the table of errors."""
    sizes = {static_extent(w.tap) for w in windows}
    table = ERRORS.get((m, min(sizes), len(windows))) if len(sizes) == 1 else None
    if table is None:
        return False
    terms = _summed(conv) // prod(static_extent(w.tap) for w in windows)
    known = min((c for c in table if c >= terms), default=max(table))
    form, direct = (e * max(1, terms / known) for e in table[known])
    return form <= max(ERROR_FACTOR * direct, ERROR_SHARE)


def _summed(conv: Convolution) -> int:
    return estimate_volume(r.extent for r in conv.compute.raxes)


def _rows(conv: Convolution, windows: Sequence[SlidingAxis], m: int) -> int:
    """Rows of a form's products: its tiles, and points along the axes that no window slides on."""
    sliding = {w.out for w in windows}
    return prod(-(-estimate(w.out.extent) // m) for w in windows) * estimate_volume(
        a.extent for a in conv.compute.axes if a not in sliding and a != conv.columns)


def _least_scratch(target: Target, conv: Convolution, windows: Sequence[SlidingAxis],
                   m: int) -> int:
    """Bytes of the transformed input and the products of a form's smallest work item: one row of
    tiles as long as it may become, one panel of columns."""
    points = prod(m + static_extent(w.tap) - 1 for w in windows)
    tiles = prod(-(-(upper(w.out.extent) or 1 << 62) // m) for w in windows[1:])
    row = pick_row(target, _rows(conv, windows, m), estimate(conv.columns.extent))
    return 4 * points * tiles * (estimate(conv.channel.extent) + row.tile.nr)


__all__ = ["FormCandidate", "choose_winograd", "is_exact_enough", "form_shares"]
