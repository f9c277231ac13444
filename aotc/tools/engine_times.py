"""``aotc show MODEL timeline``: when engines and workers are busy, as text and as a picture."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from aotc.errors import UnsupportedError
from aotc.options import Dims, Options
from aotc.pipeline import run_pipeline
from aotc.runtime.compile_bundle import Progress
from aotc.sched.accelerator.clock import COMPUTE, Span, Timeline, timeline
from aotc.sched.model.size import typical_extent
from aotc.svg import draw_path, draw_rect, draw_svg, draw_text
from aotc.target.base import Machine, Memory

WIDTH, LEFT, ROW, TOP, FULL = 1000, 90, 9, 40, 60
COLOURS = {"load": "#1764ab", "store": "#b3261e", "fetch": "#6baed6", "keep": "#fc8d72",
           "bring": "#00a0a0",           COMPUTE: "#3a8a4d"}
UNIT = "#7b4fa3"  # the colour of units
LANES = {"load": 0, "fetch": 0, "store": 1, "keep": 1, "bring": 1}  # of a worker's row; others: 2
SMALLEST = 0.5  # of a picture's units: shorter spans join their neighbours


def show_timeline(model: Any, target: str, dims: Dims = None, out: str | Path | None = None,
                  progress: Progress | None = None, **decisions: Any) -> str:
    """Text: seconds of a call, how busy engines and workers are, bytes of each engine, the longest
    kernels.  out: path of an SVG picture.  UnsupportedError where nothing copies, or for rounds
    that data decides; OSError if ``out`` cannot be written."""
    work = run_pipeline(Options(model, target=target, dims=dims, stop_after="plan",
                                progress=progress, **decisions))
    plan, machine = work.plans.main.plan, work.target.machine
    if not machine.engines:
        raise UnsupportedError(f"timeline: {work.target.name} has no engines that copy; choose "
                               "--target dsa:stcp920")
    found = timeline(plan, machine, {s.name: typical_extent(s) for s in plan.syms})
    if out is not None:
        Path(out).write_text(picture(found, machine, plan.name), encoding="utf-8")
    return "\n".join(lines(found, machine))


def lines(found: Timeline, machine: Machine) -> Iterator[str]:
    """The text of a Timeline."""
    yield (f"{found.seconds * 1e3:.3f} ms a call by the model, {len(found.ends)} kernels on "
           f"{found.workers} workers")
    for e in machine.engines:
        yield (f"  {e.name} {e.source} -> {e.target}: {found.moved(e.name)} bytes, busy "
               f"{found.busy(e.name):.1%}")
    yield (f"  {COMPUTE}: {found.moved(COMPUTE)} bytes stored by stages, busy "
           f"{found.busy(COMPUTE):.1%}")
    for u in machine.units:
        yield (f"  {u.name}: {found.moved(u.name)} bytes of operands, busy "
               f"{found.busy(u.name):.1%}")
    starts = (0.0, *found.ends)
    longest = sorted(zip(found.names, starts, found.ends), key=lambda k: k[1] - k[2])[:10]
    for name, start, end in longest:
        yield f"  {name}: {(end - start) * 1e3:.3f} ms"


def picture(found: Timeline, machine: Machine, title: str) -> str:
    """SVG text: a row for each worker with what its engines and itself do, and below them the
    share of each memory near the workers that is taken while each kernel runs."""
    scale = (WIDTH - LEFT - 20) / (found.seconds or 1.0)
    below = TOP + ROW * found.workers + 20
    parts = [draw_text(LEFT, 20, f"{title}: {found.seconds * 1e3:.3f} ms", "start")]
    colours = COLOURS | dict.fromkeys((u.name for u in machine.units), UNIT)
    for i, (what, colour) in enumerate(colours.items()):
        parts.append(draw_rect(WIDTH - 500 + 70 * i, 12, 10, 10, colour))
        parts.append(draw_text(WIDTH - 485 + 70 * i, 21, what, "start"))
    for worker in range(found.workers):
        parts.append(draw_text(LEFT - 6, TOP + ROW * worker + ROW - 2, f"worker {worker}", "end"))
    for s in _joined(found.spans, SMALLEST / scale):
        lane = LANES.get(s.what, 2)
        parts.append(draw_rect(LEFT + s.start * scale, TOP + ROW * s.worker + 2.5 * lane,
                               max((s.end - s.start) * scale, 0.1), 2.3,
                               colours.get(s.what, "#888")))
    none = (0,) * len(found.ends)
    stays = found.kept.get(machine.near.name, none)
    parts += _taken(found, machine.near, tuple(map(sum, zip(found.scratch, stays))), below)
    for store in machine.stores:
        below += FULL + 20
        parts += _taken(found, store, found.kept.get(store.name, none), below)
    high = below + FULL + 20
    return draw_svg(WIDTH, high, 8, parts)


def _taken(found: Timeline, memory: Memory, sizes: Sequence[int], below: int) -> list[str]:
    """How much of a memory is taken in each turn, under ``below``."""
    scale = (WIDTH - LEFT - 20) / (found.seconds or 1.0)
    parts = [draw_text(LEFT - 6, below + FULL / 2, memory.name, "end")]
    for start, end, size in zip((0.0, *found.ends), found.ends, sizes):
        high = FULL * size / memory.capacity
        parts.append(draw_rect(LEFT + start * scale, below + FULL - high, (end - start) * scale,
                               high, "#c8a951"))
    return [*parts, draw_path(f"M{LEFT},{below} H{WIDTH - 20} M{LEFT},{below + FULL} "
                              f"H{WIDTH - 20}", "#888")]


def _joined(spans: tuple[Span, ...], gap: float) -> Iterator[Span]:
    """Spans of one worker and kind, in order; what a gap below ``gap`` parts is one."""
    last: dict[tuple[str, int], Span] = {}
    for s in spans:
        key = s.what, s.worker
        before = last.get(key)
        if before is not None and s.start - before.end < gap:
            s = Span(s.what, s.worker, before.kernel, before.start, s.end, before.bytes + s.bytes)
        elif before is not None:
            yield before
        last[key] = s
    yield from last.values()


__all__ = ["lines", "picture", "show_timeline"]
