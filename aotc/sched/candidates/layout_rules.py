"""Layouts of stored tensors that are settled before groups are formed: where everything around a
tensor has a use for the same one, and it costs no more than what is found without.

Every sum of products and every window at a tensor (and at those that elementwise paths join with
it) has a use for a layout, which comes with the tile that its micro-kernels compute:

- ``last``: channels innermost.  A register tile of a contraction reads its rows along the
  contracted dimension and stores whole vectors of outputs.
- ``blocks``: channels in blocks of a vector (``N C/16 H W C%16``).  Windows over many channels and
  groups of one block touch a piece of every pixel: in blocks the piece is contiguous.
- ``rows``: as it is, columns innermost.  Groups of few channels run lanes over the columns.

``last`` is what ``loops.py`` finds by itself.  What the kernels that make and read the tensor cost
either way is asked of the one cost: blocks between windows whose other ends are rows, say, make
both go across.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence

from aotc.ir.category import category, factor_pairs
from aotc.ir.expr import Axis, Const, Expr, Load, axes_of
from aotc.ir.layout import Layout
from aotc.ir.program import Compute, Program, Rewrite, Step
from aotc.ir.simplify import split_linear
from aotc.passes.layout_rule import layout_rewrite
from aotc.sched.choose.layout_choices import blocked_layout, channels_last
from aotc.sched.judge.neighbourhood import Neighbourhoods
from aotc.sched.model.elementwise import elementwise_class, elementwise_inputs
from aotc.sched.model.size import estimate
from aotc.sched.model.stages import contraction_factors
from aotc.sched.rows.settled_choices import called_buffers
from aotc.sched.rows.winograd_stages import transform_lanes
from aotc.target.base import Target

Use = tuple[str, int]  # kind, channel dimension of a tensor


def settle_layouts(near: Neighbourhoods, free: Collection[str] = frozenset()) -> dict[str, Layout]:
    """{buffer: Layout} of the temps that cost no more so than in what is found without.  free:
    inputs and outputs that may be stored in any order, as those of an operator that is measured by
    itself; nothing is around them to be asked, and they get what suits the operator."""
    program, target = near.program, near.target
    if target.lanes < 2 or target.machine.threads:
        return {b: Layout() for b in free}
    out, seen, called = {}, set(), called_buffers(program)
    for b in program.buffers:
        if b in seen or program.buffers[b].role != "temp" and b not in free:
            continue
        members = [m for m in elementwise_class(program, b)
                   if program.buffers[m].role == "temp" or m in free]
        seen.update(members)
        must = any(m in free for m in members)
        layout: Layout | None = None
        if called.isdisjoint(members):  # those are row-major
            layout = _agreed(program, target, members, must)
        if must:
            out.update(dict.fromkeys(members, layout or Layout()))
        elif layout is not None and near.seconds_around(members, layout) <= near.seconds_around(
                members, None):
            out.update(dict.fromkeys(members, layout))
    return out


def split_settled(layouts: Mapping[str, Layout]) -> tuple[tuple[Rewrite, ...], dict[str, Layout]]:
    """(rewrites, layouts) of a choice: what changes the loops of a Program is a rewrite."""
    plain = {b: x for b, x in layouts.items() if x.permutation() is not None}
    return tuple(layout_rewrite(b, x) for b, x in layouts.items() if b not in plain), plain


def _agreed(program: Program, target: Target, members: Sequence[str], must: bool) -> Layout | None:
    """The layout on which everything around a class of tensors agrees; None if it does not.  A
    product next to a window is no case of agreement: of blocks its sum would be cut into as many
    taps.  must: what makes and reads them goes with the channels of a product."""
    shape = program.shape(members[0])
    uses = {u for b in members for u in _uses(program, target, b)}
    kinds, dims = {kind for kind, _ in uses}, {d for _, d in uses}
    if "last" in kinds and must:
        return channels_last(len(shape), min(d for kind, d in uses if kind == "last"))
    if kinds == {"rows"}:
        return Layout()
    if kinds == {"blocks"} and (must or len(dims) == 1):
        return blocked_layout(shape, min(dims), target.lanes) or (
            channels_last(len(shape), min(dims)) if must else None)
    return None


def _uses(program: Program, target: Target, buffer: str) -> Iterator[Use]:
    """(kind, channel dimension) of everything that makes or reads a tensor, except elementwise."""
    step = program.producer.get(buffer)
    if step is not None and not elementwise_inputs(program, step):
        yield from _made(program, target, step)
    elif isinstance(step, Compute):
        yield from _turned(program, target, step)
    for s in program.consumers.get(buffer, ()):
        if not isinstance(s, Compute) or buffer in elementwise_inputs(program, s):
            continue
        for n in s.loads:
            if n.buffer == buffer:
                yield _read(program, target, s, n)


def _turned(program: Program, target: Target, step: Compute) -> Iterator[Use]:
    """Uses of what an elementwise step reads at its own points in another order, a tensor whose
    maker then stores this one: those of the maker."""
    for n in step.loads:
        source = program.producer.get(n.buffer)
        if source is None or len(set(n.index)) < len(n.index) or set(n.index) != set(step.axes) or (
                n.index == step.axes):
            continue
        for kind, d in _made(program, target, source):
            yield kind, step.axes.index(n.index[d])


def _made(program: Program, target: Target, step: Step) -> Iterator[Use]:
    """Uses of a producer for its output; of what it moves or reshapes, those of the source."""
    if not isinstance(step, Compute):
        yield "other", 0
        return
    if step.fold == "none" and isinstance(step.body, Load):
        source = program.producer.get(step.body.buffer)
        for kind, d in (_made(program, target, source) if source is not None else ()):
            found = axes_of(step.body.index[d]) & set(step.axes)
            yield (kind, step.axes.index(next(iter(found)))) if len(found) == 1 else ("other", 0)
        return
    kind, channel = _use(program, target, step)
    yield (kind, step.axes.index(channel)) if channel in step.axes else ("other", 0)


def _read(program: Program, target: Target, step: Compute, load: Load) -> Use:
    """The use of a reader for one of its operands."""
    kind, channel = _use(program, target, step)
    if kind == "other":
        return kind, 0
    if factor_pairs(step.axes, step.raxes, step.fold, step.body):
        dims = [d for d, i in enumerate(load.index) if axes_of(i) & set(step.raxes)
                and not _slides(step, i)]
    else:
        dims = [d for d, i in enumerate(load.index) if i == channel]
    return (kind, dims[0]) if dims else ("other", 0)


def _slides(step: Compute, index: Expr) -> bool:
    """True for ``stride * output + tap``: a window, not a choice among channels."""
    return bool(axes_of(index) & set(step.axes)) and not _in_groups(step, index)


def _in_groups(step: Compute, index: Expr) -> bool:
    """True for ``group * size + channel`` with as many channels as the groups are apart: every
    element counts once."""
    own, taps = axes_of(index) & set(step.axes), axes_of(index) & set(step.raxes)
    if len(own) != 1 or len(taps) != 1:
        return False
    parts, size = split_linear(index, next(iter(own))), next(iter(taps)).extent
    return parts is not None and parts[0] == size != Const(1)


def _use(program: Program, target: Target, step: Compute) -> tuple[str, Axis | None]:
    """(kind, channel axis of the output) of a compute."""
    transformed = transform_lanes(program).get(step.outs[0])
    if transformed is not None:
        return "last", transformed
    f = contraction_factors(program, step)
    if f is not None:
        lane = max(f.n, key=lambda a: (estimate(a.extent), step.axes.index(a)))
        q, lanes = estimate(lane.extent), target.lanes
        last = step.axes[-1]
        if 2 * q <= lanes and last in f.m and estimate(last.extent) >= lanes:
            return "rows", lane
        grouped = any(_in_groups(step, i) for n in step.loads for i in n.index
                      if n.buffer not in program.consts)
        return ("blocks" if grouped and q == lanes else "last"), lane
    values = (step.body,)
    if category(step.axes, step.raxes, step.fold, step.body, values) == "window":
        plain = [i for n in step.loads if n.buffer not in program.consts for i in n.index
                 if isinstance(i, Axis) and i in step.axes and i.extent != Const(1)]
        if plain:
            return "blocks", max(plain, key=step.axes.index)
    return "other", None


__all__ = ["settle_layouts", "split_settled"]
