"""The layouts of a finished Schedule: where every stored tensor's elements are, why, and what it
costs to bring them there.

A *conversion* is data that changes its order at run time between two tensors in memory: a kernel of
its own (``move``), or one that computes and reads one order and stores another (``inside``: its
producer does it while it is at it).  Constants are converted at compile time (``offline``).
``packing``: an operand is copied in the order a micro-kernel wants into the worker's scratch,
tile by tile; nothing of it is stored.  Nothing is decided here.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from aotc.ir.access import is_unit, layout_from_json, offset_of, stride
from aotc.ir.category import Axes, is_zero
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Axis, Const, Expr, Load, Shape, Where, axes_of, loads
from aotc.ir.program import Compute, Program
from aotc.ir.schedule import Group, Schedule
from aotc.ir.simplify import simplify
from aotc.ir.stage_choice import StageChoice
from aotc.passes.layout_rule import RULE
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.judge.judge import Judge
from aotc.sched.lowering.kernel_names import kernel_names
from aotc.sched.model.digit_stage import loop_stage
from aotc.sched.model.size import estimate, estimate_volume
from aotc.sched.model.stages import Output, Stage, factors_for, find_factors, group_stages
from aotc.sched.model.stored_sizes import physical_elements
from aotc.target.base import Target


@dataclass(frozen=True)
class StoredTensor:
    """One tensor in memory.  ``layout``: its dimensions from outermost to innermost, named after
    the loops that make it (for a constant: that read it).  ``role``: input, output, temp, const."""

    buffer: str
    role: str
    dtype: str
    shape: tuple[int, ...]
    layout: str
    bytes: int
    why: tuple[str, ...]


@dataclass(frozen=True)
class Conversion:
    """``kind``: move, inside, packing or offline; ``at``: input, output (one end is the caller's
    memory) or between; ``bytes`` read and written, ``seconds`` by the cost model (0 offline)."""

    kernel: str
    kind: str
    at: str
    source: str
    target: str
    bytes: int
    seconds: float


@dataclass(frozen=True)
class Report:
    stored: tuple[StoredTensor, ...]
    conversions: tuple[Conversion, ...]

    def between(self) -> tuple[Conversion, ...]:
        """The conversions at run time that touch neither an input nor an output of the model and
        are not packing: those a choice of layouts could avoid."""
        return tuple(c for c in self.conversions
                     if c.kind in ("move", "inside") and c.at == "between")

    def totals(self) -> dict[str, dict[str, float]]:
        """{kind and place: {"number", "bytes", "seconds"}}, plain data."""
        out: dict[str, dict[str, float]] = {}
        for c in self.conversions:
            key = c.kind if c.kind in ("packing", "offline") else f"{c.kind}, {c.at}"
            row = out.setdefault(key, {"number": 0, "bytes": 0, "seconds": 0.0})
            row["number"] += 1
            row["bytes"] += c.bytes
            row["seconds"] += c.seconds
        return out


class _View:
    """The rewritten Program under its Schedule, with what every kernel reads and writes."""

    def __init__(self, program: Program, schedule: Schedule, target: Target) -> None:
        self.original, self.schedule, self.target = program, schedule, target
        self.program = apply_rewrites(program, schedule.rewrites)
        names = kernel_names(self.program, schedule.groups)
        self.stages = [(name, g, s) for name, g in zip(names, schedule.groups)
                       if isinstance(self.program.producer[g.anchor], Compute)
                       for s in group_stages(self.program, g)]
        self.saved = {b for g in schedule.groups for b in g.outputs}
        self.judge = Judge(self.program, target)

    def offset(self, buffer: str, index: Shape) -> Expr:
        layout = layout_from_json(self.schedule.layouts.get(buffer))
        return offset_of(index, self.program.shape(buffer), layout)

    def bytes(self, buffer: str) -> int:
        return estimate(physical_elements(self.program, self.schedule, buffer)) * DTYPES[
            self.program.dtype(buffer)].size

    def in_memory(self, buffer: str) -> bool:
        return buffer in self.saved or self.program.buffers[buffer].role in ("input", "const")

    def at(self, *buffers: str) -> str:
        roles = {self.program.buffers[b].role for b in buffers}
        return "input" if "input" in roles else "output" if "output" in roles else "between"


def layout_report(program: Program, schedule: Schedule, target: Target) -> Report:
    """The Report of a checked Schedule."""
    v = _View(program, schedule, target)
    used = dict.fromkeys(n.buffer for _, _, s in v.stages for n in s.loads()) | dict.fromkeys(
        o.buffer for _, _, s in v.stages for o in s.outputs)
    order = [*v.program.inputs, *(b for b in used if b in v.saved or b in v.program.consts)]
    stored = tuple(StoredTensor(b, v.program.buffers[b].role, v.program.dtype(b),
                                tuple(estimate(d) for d in v.program.shape(b)), layout_text(v, b),
                                v.bytes(b), _why(v, b)) for b in order if b in used)
    return Report(stored, tuple(_offline(v, used)) + tuple(
        c for name, g, s in v.stages for c in _conversions(v, name, g, s)))


# ---------------------------------------------------------------- where and why

def layout_text(v: _View, buffer: str) -> str:
    """Stored dimensions, outermost first, with the names of loops."""
    layout = layout_from_json(v.schedule.layouts.get(buffer))
    names = _names(v.program, buffer)
    rewritten = {b: p for rule, b, p in v.schedule.rewrites if rule == RULE}
    if buffer in rewritten and buffer in v.original.buffers and not rewritten[buffer].get("copy"):
        first = layout_from_json(rewritten[buffer]["primitives"])
        if layout.is_identity:
            return first.text(_names(v.original, buffer))
    return layout.text(names) or "-"


def _names(program: Program, buffer: str) -> list[str]:
    """Names of a buffer's dimensions: the loops of its producer, else plain loops of a reader."""
    step = program.producer.get(buffer)
    rank = len(program.shape(buffer))
    if isinstance(step, Compute):
        return [a.name for a in step.axes]
    for s in program.consumers.get(buffer, ()):
        for n in s.loads if isinstance(s, Compute) else ():
            if n.buffer == buffer:
                return [next((a.name for a in sorted(axes_of(i), key=lambda a: a.name)), f"d{d}")
                        if not isinstance(i, Const) else f"d{d}" for d, i in enumerate(n.index)]
    return [f"d{d}" for d in range(rank)]


def _why(v: _View, buffer: str) -> tuple[str, ...]:
    """What the kernels at a tensor gain from its order, in words."""
    role = v.program.buffers[buffer].role
    out = ["the caller's memory"] if role in ("input", "output") else []
    if any(rule == RULE and buffer in (b, f"{b}_stored") for rule, b, _ in v.schedule.rewrites):
        out.append("the schedule's rewrites say so")
    for name, g, s in v.stages:
        choice = g.choice(s.name)
        s = loop_stage(s, choice)
        lane = next((a for a in s.axes + s.raxes if a.name == choice.lanes), None)
        for n in (n for n in s.loads() if n.buffer == buffer):
            out += _reader(v, name, s, n, choice, lane)
        for o in (o for o in s.outputs if o.buffer == buffer):
            if lane is not None and is_unit(v.offset(buffer, o.index), lane):
                out.append(f"{name} stores its lanes ({lane.name}) side by side")
    return tuple(dict.fromkeys(out)) or ("nothing asks for another order",)


def _reader(v: _View, name: str, s: Stage, load: Load, choice: StageChoice,
            lane: Axis | None) -> list[str]:
    f = find_factors(s, choice.lanes) if choice.b == "panel" else None
    if f is not None and load in loads(f.b):
        return [f"{name} reads panels along {choice.lanes}"]
    k = next((r for r in s.raxes if r.name == choice.k), None)
    if k is not None and choice.a == "rows" and is_unit(v.offset(load.buffer, load.index), k):
        return [f"{name} reads its rows in place along {k.name}"]
    if lane is not None and is_unit(v.offset(load.buffer, load.index), lane):
        return [f"{name} reads its lanes ({lane.name}) side by side"]
    return []


# ---------------------------------------------------------------- conversions

def _offline(v: _View, used: Iterable[str]) -> Iterator[Conversion]:
    """Constants that are stored in another order than the model has them."""
    for b in used:
        layout = layout_from_json(v.schedule.layouts.get(b))
        if b in v.program.consts and not layout.is_identity:
            yield Conversion("-", "offline", "between", b, b, v.bytes(b), 0.0)


def _conversions(v: _View, name: str, g: Group, s: Stage) -> Iterator[Conversion]:
    choice, machine = g.choice(s.name), v.target.machine
    near = machine.outside(machine.registers).bandwidth
    packed = [x for x, how in (("a", choice.a), ("b", choice.b)) if how == "packed"]
    if packed:
        f = factors_for(s, choice.lanes)
        for operand in packed:
            e = f.a if operand == "a" else f.b
            size = 4 * estimate_volume(x.extent for x in axes_of(e))
            source = next((n.buffer for n in sorted(s.loads(), key=lambda n: n.buffer)
                           if n in loads(e)), "-")
            yield Conversion(name, "packing", "between", source, f"{operand} of {s.name}",
                             2 * size, 2 * size / near)
    for o in s.outputs:
        if not v.in_memory(o.buffer) or s.raxes:
            continue
        turned = [n for n in loads(o.value) if _turns(v, s, n, o)]
        if turned:
            size = sum(v.bytes(n.buffer) for n in turned)
            place = v.at(o.buffer, *(n.buffer for n in turned))
            if _copied(o.value) is None:  # it is read and stored anyway, but element by element
                yield Conversion(name, "inside", place, turned[0].buffer, o.buffer, size,
                                 size / near)
            else:
                yield Conversion(name, "move", place, turned[0].buffer, o.buffer,
                                 size + v.bytes(o.buffer), v.judge.priced(g).seconds)


def _copied(e: Expr) -> Load | None:
    """The Load that a value is, behind a guard or not; None if it computes."""
    if isinstance(e, Where) and (is_zero(e.b) or isinstance(e.b, Const)):
        e = e.a
    return e if isinstance(e, Load) else None


def _turns(v: _View, s: Stage, load: Load, output: Output) -> bool:
    """True if a Load of a tensor in memory, one element per point, runs along another axis than
    the output does: both have a unit-stride axis, and neither axis has unit stride in both."""
    if not v.in_memory(load.buffer) or load.buffer in v.program.consts:
        return False
    if {a for a in s.axes if estimate(a.extent) > 1} - axes_of(load):
        return False  # a broadcast: fewer elements than points
    there, here = v.offset(load.buffer, load.index), v.offset(output.buffer, output.index)
    inner = _innermost(here, s.axes)
    return inner is not None and _innermost(there, s.axes) is not None and not is_unit(
        there, inner)


def _innermost(offset: Expr, axes: Axes) -> Axis | None:
    """The axis of unit stride (extent above 1), None if there is none."""
    found = [a for a in axes if estimate(a.extent) > 1 and (
        step := stride(offset, a)) is not None and simplify(step) == Const(1)]
    return found[0] if found else None


# ---------------------------------------------------------------- text and data

def report_lines(report: Report) -> list[str]:
    """The Report as text, one line per tensor and conversion."""
    lines = ["tensors in memory"]
    for t in report.stored:
        shape = ", ".join(map(str, t.shape))
        lines.append(f"  {t.role:6} {t.buffer} {t.dtype}[{shape}] {t.bytes} bytes")
        lines.append(f"         {t.layout}: {'; '.join(t.why)}")
    lines.append("conversions")
    for c in report.conversions:
        if c.kind != "offline":
            lines.append(f"  {c.kernel} {c.kind} ({c.at}): {c.source} -> {c.target}, {c.bytes} "
                         f"bytes, {c.seconds * 1e6:.1f} us")
    for key, row in report.totals().items():
        lines.append(f"  total {key}: {row['number']}, {row['bytes']} bytes, "
                     f"{row['seconds'] * 1e6:.1f} us")
    if not report.conversions:
        lines.append("  none")
    return lines


__all__ = ["Conversion", "Report", "StoredTensor", "layout_report", "report_lines"]
