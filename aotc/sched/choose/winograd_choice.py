"""Which convolutions of a Program get a Winograd form: errors, cost, memory.  Nothing is measured,
so the choice is the same on every machine."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from aotc.ir.layout import Layout, Reorder
from aotc.ir.program import Compute, Program, Rewrite, static_shape
from aotc.ir.simplify import upper
from aotc.passes.digits import static_extent
from aotc.passes.rewrites import apply_rewrites
from aotc.passes.unfold import CHANNELS
from aotc.passes.winograd import TILES, Convolution, Window, find_convolution, legal_tiles
from aotc.sched.cost.winograd_errors import ERRORS
from aotc.sched.model.product_rows import pick_row
from aotc.sched.model.size import estimate, estimate_volume
from aotc.target.base import Target

Winograd = str | int | tuple[Rewrite, ...]  # one of ``WINOGRAD``, or rewrites as they are
SLIDING = 2  # axes transformed at once: with three, the transforms outgrow the registers
ERROR_FACTOR, ERROR_SHARE = 4, 2e-5  # of a direct convolution's error; of the output's range
SPAN = 1e3  # of channels' magnitudes in constants: the largest by the one in the middle
GROWTH, GROWTH_BYTES = 1.0, 4 << 20  # what transformed weights may add to the model's


@dataclass(frozen=True)
class Candidate:
    """A form for one compute, from the simplest to the fastest that pay: seconds estimated, bytes
    of weights, and both without it."""

    compute: str
    tile: dict[str, int]
    seconds: float
    bytes: int
    direct: float
    direct_bytes: int

    def over(self, other: "Candidate | None") -> "_Gain":
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
    def worth(self):
        return self.seconds / max(1, self.bytes)


def choose_winograd(program: Program, target: Target,
                    winograd: Winograd = "auto", rate: float = 1.0,
                    only: Collection[str] | None = None) -> tuple[Rewrite, ...]:
    """The rewrites of a Schedule: ``(("winograd", compute, {axis: outputs per tile}), ...)``, and
    before them ``("layout", input, primitives)`` for each of the model's inputs that a form reads
    through a copy with the channels side by side.

    winograd: one of ``WINOGRAD``, or a tuple of rewrites to take as they are.  rate: of the direct
    products, whose operands are narrower than those of the forms, in flops of those; only: of these
    convolutions (None: of all).
    """
    if isinstance(winograd, tuple):
        return winograd
    if winograd == "off" or not target.rows("transform"):
        return ()
    copies = _copies(program)
    forms = _forms(apply_rewrites(program, tuple(copies.values())), target, winograd,
                   lambda conv: rate if only is None or conv.compute.out in only else 1.0)
    served = {compute for _, compute, _ in forms}
    return tuple(c for b, c in copies.items() if any(
        conv.compute.out in served for conv in _convolutions(program)
        if conv.data.buffer == b)) + forms


def _is_tame(program, conv):
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


def _spread(array):
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


def _convolutions(program):
    found = (find_convolution(program, s) for s in program.steps if isinstance(s, Compute))
    return [conv for conv in found if conv is not None]


def _copies(program):
    """{input: rewrite}: inputs of the model that hold the many channels of a convolution apart in
    memory, and the copy that has them side by side."""
    found = {}
    for conv in _convolutions(program):
        b, index = conv.data.buffer, conv.data.index
        if not _channels_inside(program, conv) and conv.channel in index and (
                estimate(conv.channel.extent) >= CHANNELS and static_shape(program.shape(b))):
            at = index.index(conv.channel)
            order = [d for d in range(len(index)) if d != at] + [at]
            layout = Layout((Reorder(tuple(order)),))
            found.setdefault(b, ("layout", b, {"primitives": layout.to_json()}))
    return found


def _forms(program, target, winograd, rate):
    """The forms alone; ``rate(convolution)``: of its direct products."""
    most = max(TILES) if winograd == "auto" else winograd
    weights = sum(a.nbytes for a in program.consts.values())
    options = []
    for conv in _convolutions(program):
        if _channels_inside(program, conv) and (winograd != "auto" or _is_tame(program, conv)):
            options.append(_candidates(program, target, conv, most, winograd == "auto", weights,
                                       rate(conv)))
    taken = _within(options, GROWTH * weights + GROWTH_BYTES)
    return tuple(("winograd", s.outs[0], taken[s.outs[0]]) for s in program.steps
                 if s.outs[0] in taken)


def _within(options, left):
    """{compute: tile}: forms for as many layers as ``left`` bytes allow.  Every step takes the form
    that saves most time per byte over what its layer has by then, so that small forms everywhere
    come before a large one that uses up the memory."""
    at, taken = [-1] * len(options), {}
    while True:
        steps = [(c.over(x[at[i]] if at[i] >= 0 else None), -i, k) for i, x in enumerate(options)
                 for k, c in enumerate(x) if k > at[i]]
        steps = [step for step in steps if step[0].bytes <= left]
        if not steps:
            return taken
        gain, i, k = max(steps, key=lambda step: (step[0].worth, *step[1:]))
        at[-i], left = k, left - gain.bytes
        taken[options[-i][k].compute] = options[-i][k].tile


def _channels_inside(program, conv):
    """False where the channels of the caller's own tensor lie apart in memory."""
    last = conv.data.index[-1] == conv.channel
    return last or program.buffers[conv.data.buffer].role != "input"


def _candidates(program, target, conv, most, check_error, weights, rate):
    """Forms that pay and are exact enough, each faster than the one before it."""
    windows = list(conv.windows.values())[-SLIDING:]
    direct, direct_bytes = _direct_cost(program, target, conv, weights, rate)
    out, limit = [], direct
    for m in TILES:
        if m > most or any(m not in legal_tiles(w) for w in windows):
            continue
        if check_error and not exact_enough(conv, windows, m):
            continue
        if target.machine.managed and _least_scratch(target, conv, windows, m) > (
                target.machine.near.capacity):
            continue
        seconds, size = _form_cost(target, conv, windows, m, weights)
        if seconds < target.tuning.winograd_gain * limit:
            tile = {w.out.name: m for w in windows}
            out.append(Candidate(conv.compute.out, tile, seconds, size, direct, direct_bytes))
            limit = seconds
    return out


def form_share(program: Program, target: Target, rewrite: Rewrite) -> float:
    """Estimated time of a chosen form, ("winograd", compute, {axis: outputs per tile}), per time of
    the direct convolution; ``program``: without it."""
    _, compute, tile = rewrite
    conv = find_convolution(program, program.producer[compute])
    assert conv is not None, compute  # a form was chosen for it
    windows = [w for w in conv.windows.values() if w.out.name in tile]
    weights = sum(a.nbytes for a in program.consts.values())
    form = _form_cost(target, conv, windows, max(tile.values()), weights)[0]
    return form / _direct_cost(program, target, conv, weights)[0]


def exact_enough(conv: Convolution, windows: Sequence[Window], m: int) -> bool:
    """True if the form's rounding errors are within the budget, by the table of errors."""
    sizes = {static_extent(w.tap) for w in windows}
    table = ERRORS.get((m, min(sizes), len(windows))) if len(sizes) == 1 else None
    if table is None:
        return False
    terms = _summed(conv) // prod(static_extent(w.tap) for w in windows)
    known = min((c for c in table if c >= terms), default=max(table))
    form, direct = (e * max(1, terms / known) for e in table[known])
    return form <= max(ERROR_FACTOR * direct, ERROR_SHARE)


def _summed(conv):
    return estimate_volume(r.extent for r in conv.compute.raxes)


def _direct_cost(program, target, conv, weights, rate=1.0):
    c, columns = conv.compute, estimate(conv.columns.extent)
    rows = estimate_volume(a.extent for a in c.axes) // columns
    size = program.consts[conv.weights.buffer].nbytes
    return _contraction_cost(target, 1, rows, _summed(conv), columns) / rate + _stream(
        target, size, weights), size


def _form_cost(target, conv, windows, m, weights):
    """(seconds, bytes of weights) of one form."""
    columns = estimate(conv.columns.extent)
    points = prod(m + w.tap.extent.value - 1 for w in windows)
    rows = _rows(conv, windows, m)
    summed = _summed(conv) // prod(w.tap.extent.value for w in windows)
    channels = estimate(conv.channel.extent)
    size = 4 * points * summed * columns
    lanes = sum(-(-n // target.lanes) * target.lanes for n in (channels, columns))
    transforms = points * rows * lanes * target.tuning.winograd_transform[m] / (
        target.machine.flops)
    return transforms + _contraction_cost(target, points, rows, summed, columns) + _stream(
        target, size, weights), size


def _rows(conv, windows, m):
    """Rows of a form's products: its tiles, and points along the axes that no window slides on."""
    sliding = {w.out for w in windows}
    return prod(-(-estimate(w.out.extent) // m) for w in windows) * estimate_volume(
        a.extent for a in conv.compute.axes if a not in sliding and a != conv.columns)


def _least_scratch(target, conv, windows, m):
    """Bytes of the transformed input and the products of a form's smallest work item: one row of
    tiles as long as it may become, one panel of columns."""
    points = prod(m + w.tap.extent.value - 1 for w in windows)
    tiles = prod(-(-(upper(w.out.extent) or 1 << 62) // m) for w in windows[1:])
    row = pick_row(target, _rows(conv, windows, m), estimate(conv.columns.extent))
    return 4 * points * tiles * (estimate(conv.channel.extent) + row.tile["nr"])


def _contraction_cost(target, batch, rows, depth, columns):
    """Seconds of products in register tiles: what is padded, what each call costs, and a panel of
    weights that does not fit the cache of a core and streams past every tile."""
    tile, machine = pick_row(target, rows, columns).tile, target.machine
    calls = batch * -(-rows // tile["mr"]) * -(-columns // tile["nr"])
    flops = 2 * calls * tile["mr"] * tile["nr"] * depth
    seconds = (flops + calls * machine.tuning.winograd_call) / machine.flops
    panel = 4 * depth * tile["nr"]
    if panel > machine.near.capacity:
        seconds += calls * panel / machine.outside(machine.near).bandwidth
    return seconds


def _stream(target, size, weights):
    """Seconds to read weights: they stay outside scratch's memory only if all of the model's do."""
    machine = target.machine
    last = machine.outside(machine.near)
    memory = last if weights <= last.capacity * last.usable else machine.memory
    return size / memory.bandwidth


__all__ = ["Candidate", "choose_winograd", "exact_enough", "form_share"]
