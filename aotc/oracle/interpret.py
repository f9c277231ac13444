"""The second oracle: (Program, Schedule) executed literally in numpy, tile by tile.

For each tile of a group, every stage computes exactly the box that its readers read, into a window
of exactly that size; reading outside a window is an error.  Stored buffers live in the bytes of
their arena slot under their Layout, so places that overlap while both are live corrupt
results, as they would in C.  Memory starts poisoned (NaN, all bits set), and every element of a
stored buffer must be written.  What ``evaluate`` says of the Program, this must say too.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from aotc.errors import FaultError, InterpreterError
from aotc.ir.dtypes import DTYPES, Array
from aotc.ir.expr import Axis, Const, Expr, Load, Shape, rewrite
from aotc.ir.layout import Layout, Unfold
from aotc.ir.library import Run
from aotc.ir.program import Compute, LibCall, Program, Whole
from aotc.ir.schedule import Group, Schedule, Slot
from aotc.oracle.eval_expr import EvalScope, Read, Window, index_value
from aotc.oracle.evaluate import (
    COMBINE,
    Arrays,
    Box,
    Feeds,
    RunBody,
    eval_compute,
    infer_syms,
    input_arrays,
    run_region,
    run_step,
)
from aotc.oracle.frames import FrameNode, first_index, group_frames, last_index

Frames = dict[str, tuple[FrameNode, ...]]
Windows = dict[str, Window]  # of scratch: what this tile has


def interpret(program: Program, schedule: Schedule, feeds: Mapping[str, Array],
              sym_values: Mapping[str, int] | None = None,
              libcalls: Mapping[str, Run] | None = None,
              backwards: bool = False) -> dict[str, Array]:
    """Outputs ``{buffer name: array}`` of a Program run as its Schedule says.

    feeds, sym_values, libcalls: as for ``evaluate``.  backwards: run the tiles of every group in
    reverse order (tiles are independent, so the result must be the same bits).
    Raises InterpreterError, naming group and tile, where a stage reads what no stage of the tile
    computed, a stored buffer is read before it is stored or stays partly unwritten; ValueError
    for wrong inputs.  The ``rewrites`` must have been applied to ``program`` already, those of
    bodies too (``passes.rewrites.apply_schedule_rewrites``).
    """
    arrays = input_arrays(program, feeds)
    syms = infer_syms(program, arrays, sym_values)
    memory = StoredBuffers(program, schedule, syms, arrays)
    for group in schedule.groups:
        call = program.producer[group.anchor]
        if len(group.computes) > 1 and isinstance(call, LibCall):
            _run_new_entries(program, group, memory)
        elif not isinstance(call, Compute):
            _run_call(program, call, memory, _runner(schedule, call, libcalls, backwards), libcalls)
        else:
            _run_group(program, group, memory, backwards)
    return {name: memory.logical(name) for name in program.outputs}


def _runner(schedule: Schedule, call: Whole, libcalls: Mapping[str, Run] | None,
            backwards: bool) -> RunBody:
    """What runs a body of a region: by its own Schedule."""
    def run(number: int, body: Program, feeds: Feeds, syms: Mapping[str, int]) -> Arrays:
        assert not isinstance(call, LibCall), call
        own = schedule.regions[call.name][number]
        return interpret(body, own, feeds, syms, libcalls, backwards)
    return run


def _run_call(program: Program, call: Whole, memory: "StoredBuffers", run_body: RunBody,
              libcalls: Mapping[str, Run] | None) -> None:
    """A group that is a library call or a region: whole, from stored tensors to stored tensors."""
    arrays = {b: memory.logical(b) for b in call.inputs}
    if isinstance(call, LibCall):
        results = run_step(program, call, arrays, memory.syms, libcalls or {})
    else:
        results = run_region(program, call, arrays, memory.syms, run_body)
    for name, array in zip(call.outs, results):
        memory.put(name, array)


def _run_new_entries(program: Program, group: Group, memory: "StoredBuffers") -> None:
    """A group of calls that put new entries into tensors, with maps that make those."""
    made: dict[str, Array] = {}
    for step in (program.producer[c] for c in group.computes):
        arrays = {b: made[b] if b in made else memory.logical(b) for b in step.inputs}
        made |= zip(step.outs, run_step(program, step, arrays, memory.syms, {}))
    for name in group.outputs:
        memory.put(name, made[name])


# ---------------------------------------------------------------- memory

class StoredBuffers:
    """Stored buffers in physical order: the caller's arrays, weights, and the arena's bytes."""

    def __init__(self, program: Program, schedule: Schedule, syms: Mapping[str, int],
                 inputs: Mapping[str, Array]) -> None:
        self.program, self.syms = program, syms
        self.layouts = {b: Layout.from_json(data) for b, data in schedule.layouts.items()}
        self.arrays: dict[str, Array] = {}
        self.stored: set[str] = set()
        self.written: dict[str, Array] = {}
        for name, array in itertools.chain(inputs.items(), program.consts.items()):
            self.arrays[name] = self.layout(name).apply(array)
            self.stored.add(name)
        starts = self.slot_starts(schedule.buffers)
        arena = np.full(starts[-1], 0xFF, np.uint8)
        for name, slot in () if schedule.order else schedule.buffers.items():
            if slot.each:
                continue  # room for a part at a time, or copies of a constant
            at = starts[slot.slot] + slot.offset
            part = arena[at:at + self.bytes(name)]
            self.arrays[name] = part.view(self.dtype(name)).reshape(self.physical(name))

    def slot_starts(self, places: Mapping[str, Slot]) -> list[int]:
        """Where every slot begins in the arena, and where the last one ends (bytes)."""
        sizes = [0] * max((p.slot + p.span for p in places.values()), default=0)
        for name, p in places.items():
            part = -(-(p.offset + self.bytes(name)) // (64 * p.span)) * 64
            for i in range(p.slot, p.slot + p.span):
                sizes[i] = max(sizes[i], part)
        return list(itertools.accumulate(sizes, initial=0))

    def layout(self, name: str) -> Layout:
        return self.layouts.get(name, Layout())

    def dtype(self, name: str) -> np.dtype[Any]:
        return DTYPES[self.program.dtype(name)].numpy

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(index_value(d, self.syms) for d in self.program.shape(name))

    def physical(self, name: str) -> tuple[int, ...]:
        return tuple(index_value(d, {}) for d in self.layout(name).shape(self.shape(name)))

    def bytes(self, name: str) -> int:
        return int(np.prod(self.physical(name), dtype=np.int64)) * self.dtype(name).itemsize

    def array(self, name: str) -> Array:
        """The physical array; private memory if the Schedule gives no place."""
        if name not in self.arrays:
            raw = np.full(self.bytes(name), 0xFF, np.uint8)
            self.arrays[name] = raw.view(self.dtype(name)).reshape(self.physical(name))
        return self.arrays[name]

    def read(self, name: str) -> Array:
        if name not in self.stored:
            raise InterpreterError(f"{name} is read, but no earlier group stores it")
        return self.array(name)

    def logical(self, name: str) -> Array:
        return self.layout(name).unapply(self.read(name), self.shape(name))

    def put(self, name: str, array: Array) -> None:
        self.array(name)[...] = self.layout(name).apply(array)
        self.stored.add(name)

    def located(self, e: Expr, scratch: Set[str]) -> Expr:
        """``e`` with every load of a stored buffer moved to where its layout keeps the element;
        scratch is always row-major."""
        def visit(n: Expr) -> Expr | None:
            if not isinstance(n, Load) or n.buffer in scratch:
                return None
            layout = self.layout(n.buffer)
            if layout.is_identity:
                return None
            return Load(n.buffer, layout.index(n.index, self.program.shape(n.buffer)), n.dtype)
        return rewrite(e, visit)

    def write(self, name: str, index: Shape, scope: EvalScope, values: Array) -> None:
        """Store ``values`` at logical ``index`` (expressions over the scope's axes)."""
        shape, layout = self.program.shape(name), self.layout(name)
        at = tuple(np.broadcast_to(scope.value(i), values.shape) for i in index)
        self.written.setdefault(name, np.zeros(self.shape(name), bool))[at] = True
        if any(isinstance(p, Unfold) for p in layout.primitives):
            whole = self.logical_draft(name)  # an element has several places: fill all of them
            whole[at] = values
            self.array(name)[...] = layout.apply(whole)
            return
        place = tuple(np.broadcast_to(scope.value(i), values.shape)
                      for i in layout.index(index, shape))
        self.array(name)[place] = values

    def logical_draft(self, name: str) -> Array:
        return self.layout(name).unapply(self.array(name), self.shape(name))

    def finish(self, group: Group) -> None:
        """After a group: its outputs are stored, and completely."""
        for name in group.outputs:
            mask = self.written.pop(name, np.zeros(self.shape(name), bool))
            if not mask.all():
                where = np.argwhere(~mask)[0].tolist()
                raise InterpreterError(
                    f"group {group.name}: {mask.size - mask.sum()} elements of {name} are never "
                    f"written, the first at {where}")
            self.stored.add(name)


# ---------------------------------------------------------------- groups, tile by tile

def _run_group(program: Program, group: Group, memory: StoredBuffers, backwards: bool) -> None:
    frames, anchor = group_frames(program, group)
    scratch = {b for nodes in frames.values() for n in nodes for b in n.reads}
    placed = {n.name: replace(n.compute, body=memory.located(n.compute.body, scratch))
              for nodes in frames.values() for n in nodes}
    axes = next(n for n in frames[anchor] if n.name == anchor).compute.axes
    items = [list(steps) for _, steps in itertools.groupby(
        _tiles(group, axes, memory.syms), lambda tile: _item(group, axes, tile))]
    memory.stored -= set(group.outputs)
    for item in reversed(items) if backwards else items:
        kept: Windows = {}
        for tile in item:
            try:
                kept = _run_tile(group, frames, anchor, placed, memory, tile, kept)
            except FaultError as err:
                at = ", ".join(f"{a.name} {lo}..{lo + n - 1}" for a, (lo, n) in zip(axes, tile))
                raise InterpreterError(f"group {group.name}, tile {at}: {err}") from err
    memory.finish(group)


def _item(group: Group, axes: Sequence[Axis], tile: Box) -> tuple[int, ...]:
    """The work item that a tile belongs to: tiles that differ along a run alone share one."""
    return tuple(lo // group.run.get(a.name, 1) for a, (lo, _) in zip(axes, tile))


def _tiles(group: Group, axes: Sequence[Axis], syms: Mapping[str, int]) -> Iterator[Box]:
    """Boxes ((lo, size), ...) of the anchor's axes, in the order of the Schedule's loops."""
    if group.flat:
        yield from _flat_tiles(group, axes, syms)
        return
    names = {a.name: k for k, a in enumerate(axes)}
    unknown = [n for n in itertools.chain(group.tile, group.parallel) if n not in names]
    if unknown:
        raise InterpreterError(f"group {group.name}: {', '.join(unknown)} are no axes of "
                               f"{group.anchor}; its axes are {', '.join(names)}")
    order = list(group.parallel) + [n for n in group.tile if n not in group.parallel]
    order.sort(key=lambda n: n in group.run)  # steps are what a work item does inside
    extents = [index_value(a.extent, syms) for a in axes]
    steps = [range(0, extents[names[n]], group.tile[n]) for n in order]
    for origin in itertools.product(*steps):
        box = [(0, n) for n in extents]
        for name, lo in zip(order, origin):
            k = names[name]
            box[k] = (lo, min(group.tile[name], extents[k] - lo))
        yield tuple(box)


def _flat_tiles(group: Group, axes: Sequence[Axis], syms: Mapping[str, int]) -> Iterator[Box]:
    """The same where some axes are counted through as one: lines of consecutive points."""
    own = [a for a in axes if a.name in group.flat]
    whole = Axis(group.flat_axis, prod((a.extent for a in own), start=Const(1)))
    rest = tuple(a for a in axes if a not in own)
    sizes = [index_value(a.extent, syms) for a in own]
    for (first, count), *others in _tiles(replace(group, flat=()), (whole, *rest), syms):
        other, end = dict(zip(rest, others)), first + count
        while first < end:
            at = dict(zip(own, map(int, np.unravel_index(first, sizes))))
            n = min(end - first, sizes[-1] - at[own[-1]])
            line = {a: (at[a], n if a is own[-1] else 1) for a in own}
            yield tuple((other | line)[a] for a in axes)
            first += n


def _run_tile(group: Group, frames: Frames, anchor: str, placed: Mapping[str, Compute],
              memory: StoredBuffers, tile: Box, kept: Windows) -> Windows:
    """One tile; ``kept``: {buffer: its window in the step before} of this work item.  Returns the
    windows of stages that slide."""
    boxes, asked = _boxes(group, frames, anchor, tile, memory.syms, kept)
    windows: Windows = {}
    scratch = {b for nodes in frames.values() for n in nodes for b in n.reads}

    def read(name: str) -> Array | Window:
        if name not in scratch:
            return memory.read(name)
        if name not in windows:
            raise FaultError(f"{name} is read, but this tile computes none of it")
        return windows[name]

    for frame, nodes in frames.items():
        box = boxes.get(frame)
        if box is None:
            continue
        for n in nodes:
            compute = placed[n.name]
            values = _values(group, n, compute, box, read, memory.syms)
            scope = EvalScope(dict(zip(compute.axes, box)), None, memory.syms)
            for out, value in zip(n.outs, values):
                if out in scratch and n.name == frame:
                    windows[out] = _joined(kept.get(out), value, box, asked.get(out))
                if out in group.outputs:
                    memory.write(out, n.index, scope, value)
    return kept | {b: w for b, w in windows.items() if b in asked}


def _joined(before: Window | None, value: Array, box: Box, asked: Box | None) -> Window:
    """(array, where it starts) of a window: what was computed just now, behind what an earlier step
    has left of what is ``asked`` for."""
    if before is None or asked is None:
        return value, tuple(lo for lo, _ in box)
    old, start = before
    d = _moved(before, [(lo, end - lo + 1) for lo, end in asked])
    left = max(0, asked[d][0] - start[d])
    old = old[(slice(None),) * d + (slice(left, None),)]
    at = tuple(start[i] + left if i == d else lo for i, (lo, _) in enumerate(box))
    return np.concatenate([old, value], axis=d), at


def _moved(window: Window, box: Iterable[tuple[int, int]]) -> int:
    """The dimension along which a box differs from the window of the step before."""
    array, start = window
    return next((d for d, (at, n, (lo, size)) in enumerate(zip(start, array.shape, box))
                 if (at, n) != (lo, size)), 0)


def _boxes(group: Group, frames: Frames, anchor: str, tile: Box, syms: Mapping[str, int],
           kept: Windows) -> tuple[dict[str, Box], dict[str, Box]]:
    """({frame: ((lo, size), ...)}, {buffer that slides: what is asked of it}): the tile for the
    anchor, for others what later frames read and, if they slide, no earlier step has computed."""
    boxes: dict[str, Box] = {}
    demand: dict[str, Box] = {}  # (first, last) per dimension
    slid: dict[str, Box] = {}
    for frame, nodes in reversed(frames.items()):
        if frame == anchor:
            box = tile
        else:
            asked = [demand[o] for o in nodes[0].outs if o in demand]
            if not asked:
                continue
            box = tuple((lo, end - lo + 1) for lo, end in _join(asked))
            if any(group.choice(n.name).reuse == "slide" for n in nodes):
                slid |= {o: _join(asked) for o in nodes[0].outs}
                box = _rest(box, kept.get(nodes[0].outs[0]))
        boxes[frame] = box
        variables: dict[str, Any] = {}
        for a, (lo, size) in zip(nodes[0].compute.axes, box):
            variables |= {first_index(a).name: lo, last_index(a).name: lo + size - 1}
        scope = EvalScope({}, None, syms, variables)
        for n in nodes:
            for b, dims in n.reads.items():
                need = tuple((int(scope.value(lo)), int(scope.value(end))) for lo, end in dims)
                if all(lo <= end for lo, end in need):
                    demand[b] = need if b not in demand else _join([demand[b], need])
    return boxes, slid


def _rest(box: Box, before: Window | None) -> Box:
    """The part of a box behind a window that is there already; they differ along one dimension."""
    if before is None:
        return box
    d = _moved(before, box)
    done = before[1][d] + before[0].shape[d]
    return tuple((max(lo, done), lo + size - max(lo, done)) if i == d else (lo, size)
                 for i, (lo, size) in enumerate(box))


def _join(boxes: Iterable[Box]) -> Box:
    return tuple((min(lo for lo, _ in dims), max(end for _, end in dims))
                 for dims in zip(*boxes))


def _arrays(values: Array | tuple[Array, ...]) -> tuple[Array, ...]:
    return values if isinstance(values, tuple) else (values,)


def _values(group: Group, node: FrameNode, compute: Compute, box: Box, read: Read,
            syms: Mapping[str, int]) -> tuple[Array, ...]:
    """Arrays of a node over its box; a reduction split folds piece by piece, each partial
    result rounded to the accumulator's dtype."""
    split = group.choice(node.name).split
    if not split or not isinstance(compute.fold, str):
        return _arrays(eval_compute(compute, box, read, syms))
    ranges = []
    for a in compute.raxes:
        extent = index_value(a.extent, syms)
        step = split.get(a.name, max(extent, 1))
        ranges.append([(lo, min(step, extent - lo)) for lo in range(0, extent, step)])
    total: Array | None = None
    for part in itertools.product(*ranges):
        value, = _arrays(eval_compute(compute, box + part, read, syms))
        total = value if total is None else COMBINE[compute.fold](total, value)
    if total is None:
        total, = _arrays(eval_compute(compute, box, read, syms))
    return (total.astype(DTYPES[compute.body.dtype].numpy),)
