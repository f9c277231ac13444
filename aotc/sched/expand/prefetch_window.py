"""What the next blocks of a window read, fetched while this one is computed.

A window with lanes over channels comes back to a pixel's cache lines for every vector of channels:
no hardware sees a stream in that.  Read from beyond a worker's own cache, a depthwise 3x3 over
256x256x64 took 3.9 ms on AVX2 and 1.2 ms with these; from within it, the same with and without.
"""

from aotc.ir.access import affine_stride, stride
from aotc.ir.expr import Axis, Const, Load, axes_of, substitute, walk
from aotc.ir.kernel.plan_stages import Nest
from aotc.ir.simplify import simplify
from aotc.ir.statements import Prefetch
from aotc.sched.expand.expansion import Expansion


def prefetch_ahead_of_block(nest: Nest, lane: Axis, axis: Axis,
                            expansion: Expansion) -> list[Prefetch]:
    """Prefetches of one vector of lanes of a blocked window: its share of the lines that lie a page
    behind this block in the lowest row it reads.  lane, axis: of the lanes and of the block."""
    found = find_streamed(nest, lane, axis, expansion)
    if found is None or not (ahead := expansion.how(nest, "ahead")):
        return []
    source, per_lane, lines = found
    lowest = {r.axis: Const(0) if r.axis.name == nest.taps else simplify(r.axis.extent - 1)
              for r in nest.reduce}
    first = simplify(substitute(source.index[0], {**lowest, lane: Const(0)})
                     + lane * per_lane + ahead)
    line = expansion.line
    return [Prefetch(source.buffer, simplify(first + i * line), far=True) for i in range(lines)]


def find_streamed(nest: Nest, lane: Axis, axis: Axis,
                  expansion: Expansion) -> tuple[Load, int, int] | None:
    """(the only load of a blocked window whose source other kernels wrote, elements that each lane
    moves on by from block to block, cache lines that a vector does); None where it does not advance
    by whole lines, or nothing is fetched ahead."""
    if not expansion.vectors.prefetches or nest.lanes == 1 or not isinstance(lane.extent, Const):
        return None
    found = [x for x in dict.fromkeys(walk(nest.body)) if isinstance(x, Load) and _streams(
        x, lane, axis, expansion)]
    if len(found) != 1:
        return None
    step = simplify(affine_stride(found[0].index[0], axis) * nest.block)
    if not isinstance(step, Const):
        return None
    per_lane, left = divmod(step.value, lane.extent.value)
    lines, part = divmod(per_lane * nest.lanes, expansion.line)
    if left or part or lines < 1:
        return None
    return found[0], per_lane, lines


def _streams(e: Load, lane: Axis, axis: Axis, expansion: Expansion) -> bool:
    """True for a load that other kernels wrote, of lanes side by side, at a known step from block
    to block."""
    if e.dtype != "f32" or e.buffer in expansion.own or any(
            isinstance(n, Load) for n in walk(e.index[0])) or axis not in axes_of(e.index[0]):
        return False
    return stride(e.index[0], lane) == Const(1) and isinstance(stride(e.index[0], axis), Const)


__all__ = ["prefetch_ahead_of_block", "find_streamed"]
