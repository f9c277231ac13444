"""What groups cost, as a decider asks it: each distinct group is tiled and judged once.

A Judge answers for one Program on one target, with the layouts that its groups want before any are
connected.  Nothing is looked up by name: what can be a kernel is what ``group_stages``, analysis of
reads and ``check_schedule`` accept.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from math import isfinite

from aotc.errors import ScheduleError
from aotc.ir.access import dim_order
from aotc.ir.expr import Expr, Load, rewrite, show
from aotc.ir.layout import Layout
from aotc.ir.program import Compute, Program
from aotc.ir.schedule import REGISTER, STREAM, Group, Schedule
from aotc.passes.winograd import stages_of_forms
from aotc.sched.accelerator.kernels import add_in_place, fitted_tile
from aotc.sched.choose.block_threads import choose_threads
from aotc.sched.choose.connect import connect
from aotc.sched.choose.gensor import (
    Budget,
    Construction,
    TileSpace,
    construct,
    grow_tile,
    ladder,
)
from aotc.sched.choose.loops import choose_loops
from aotc.sched.choose.runs import NamedRun, Run, best_run, with_run
from aotc.sched.choose.slices import streamed_fold
from aotc.sched.choose.stores_across_lanes import lanes_across
from aotc.sched.choose.tile import choose_tiles
from aotc.sched.choose.winograd_kernels import join_transforms
from aotc.sched.cost.accesses import access_costs
from aotc.sched.cost.decided import decided_cost, usual_product
from aotc.sched.cost.group_cost import Aligned, Cost, group_cost, pressure_seconds, resident_buffers
from aotc.sched.cost.stream_cost import stream_rows, stream_seconds
from aotc.sched.judge.axis_extents import Fixed, blocked_axes, nearly_equal
from aotc.sched.judge.placed_groups import all_placed, has_products, placed_tiles
from aotc.sched.judge.text_choice_cost import copy_said, written_seconds
from aotc.sched.memory.scratch import bounded_tile
from aotc.sched.model.group_model import group_model
from aotc.sched.model.group_numbers import GroupModel, Widths
from aotc.sched.model.size import estimate
from aotc.sched.model.stages import (
    Stage,
    contraction_factors,
    find_call,
    group_stages,
    merge_stages,
)
from aotc.sched.model.tilegraph import merge_groups
from aotc.sched.rows.stream_stages import find_stream, is_stream
from aotc.sched.text_choices.choose_writing import kernel_faults
from aotc.target.base import Target

MAX_STAGES = 64  # of one group: bounds generated code and deciding time


@dataclass(frozen=True)
class Verdict:
    """What is known of a group: predicted seconds, tile of its anchor, level of its scratch, why;
    ``legal`` False: it cannot be a kernel.  run: ((axis, extent), numbers of the stages that
    slide) or ().  states: that were looked at for the tile."""

    legal: bool
    seconds: float = float("inf")
    tile: tuple[tuple[str, int], ...] = ()
    level: str = ""
    memory_bytes: int = 0
    why: str = ""
    run: NamedRun | None = None
    states: int = 0


class Judge:
    """Verdicts on groups of one Program on one target, each distinct one given once.  start: groups
    for which tensors lie in memory as they want (None: those connected at register level).
    together: of those of several stages with products that threads share, and no other merges."""

    def __init__(self, program: Program, target: Target, start: Sequence[Group] | None = None,
                 together: bool = False) -> None:
        self.program, self.target, self.together = program, target, together
        self.free = resident_buffers(program, target.machine)
        # how tensors lie in memory, about
        self.start = connect(program) if start is None else tuple(start)
        _, self.layouts = choose_loops(program, target, join_transforms(
            program, target.machine, self.start))
        self.orders = {b: dim_order(layout, len(program.shape(b)))
                       for b, layout in self.layouts.items()}
        # stages of rewritten computes have a kernel of their own, whose tiles others choose, and
        # so have library calls
        self.own = stages_of_forms(program).keys() | {
            s.outs[0] for s in program.steps if not isinstance(s, Compute)}
        self.known: dict[int, Verdict] = {}
        self.alone: dict[int, float] = {}
        self.refused: set[tuple[int, int, Hashable]] = set()  # merges that are not legal
        self.pairs: dict[tuple[int, int], tuple[Group, Group, tuple[Group, float] | None]] = {}
        self.numbers: dict[Hashable, int] = {}
        self.signatures: dict[int, tuple[Group, int]] = {}
        self.kinds: dict[str, int] = {}
        self.texts: dict[tuple[str, ...], int] = {}

    def verdict(self, group: Group) -> Verdict:
        """Verdict of a group; its tile and level are found here.  A library call takes the same
        time wherever it stands, so none is counted."""
        if find_call(self.program, group) is not None:
            return Verdict(True, 0.0)
        key = self.signature(group)
        if key not in self.known:
            self.known[key] = self._judged(group)
        return self.known[key]

    def number(self, value: Hashable) -> int:
        """A number for a value that can be hashed: equal values have the same."""
        return self.numbers.setdefault(value, len(self.numbers))

    def merge(self, a: Group, b: Group) -> tuple[Group, float] | None:
        """(Group, seconds gained) of two groups in one kernel, tiled; None if it is not legal."""
        pair = id(a), id(b)
        if pair not in self.pairs:  # holding the groups keeps their ids their own
            self.pairs[pair] = a, b, self._merge(a, b)
        return self.pairs[pair][2]

    def _merge(self, a: Group, b: Group) -> tuple[Group, float] | None:
        key = self.signature(a), self.signature(b), self._between(a, b)
        if key in self.refused:
            return None
        group = merge_groups(self.program, a, b, self.target.machine.homes[0].name)
        merge_stages(self.program, a, b, group)
        if self.together and not has_products(self.program, self.target, group):
            return None
        found = self.verdict(group)
        if not found.legal:
            self.refused.add(key)
            return None
        parts = self._alone(a, group) + self._alone(b, group)
        tuning = self.target.tuning
        gone = [b for b in a.outputs if b not in group.outputs]
        gain = parts - found.seconds + min(tuning.slack * parts, pressure_seconds(
            self.program, self.target.machine, gone))
        if gain < tuning.merge_gain * parts:  # a worse state: it must not win a tie
            gain = min(gain, -1e-9)
        return group, gain

    def _alone(self, part: Group, whole: Group) -> float:
        """Seconds of a part of a group, with the work items that it gets as a kernel where those of
        the whole are priced so."""
        if not has_products(self.program, self.target, whole):
            return self.verdict(part).seconds
        key = self.signature(part)
        if key not in self.alone:
            self.alone[key] = self.verdict(part).seconds
            if isfinite(self.alone[key]) and len(group_stages(self.program, part)) == 1:
                with_rows, layouts = self._with_rows(part)
                self.alone[key] = self.priced(choose_tiles(
                    self.program, self.target, (with_rows,), layouts)[0]).seconds
        return self.alone[key]

    def priced(self, group: Group) -> Cost:
        """Cost of a finished group, at the work items it has."""
        given = group
        group, layouts = self._with_rows(group)
        model = group_model(self.program, group, self.orders, access_costs(
            self.program, self.target, group, layouts), self.target.tuning)
        stages = group_stages(self.program, group)
        machine, item = self.target.machine, model.variables(group.tile)
        fixed = {a: (t,) if t == n else tuple(sorted({min(t << i, n) for i in range(48)}))
                 for a, t, n in zip(model.axes, item, model.extents)}
        space = TileSpace(model, machine, machine.depth, fixed=fixed, strict=False, free=self.free)
        outer = [grow_tile(space, i, item, model.extents) for i in range(space.depth - 1)]
        cost = decided_cost(model, stages, group, self.target, self.free, outer=outer)
        cost = add_in_place(cost, model, machine, item, group)
        return replace(cost, seconds=cost.seconds + written_seconds(
            self.program, self.target, copy_said(group, given),
            {b: x.to_json() for b, x in layouts.items()}))

    def _between(self, a: Group, b: Group) -> tuple[tuple[int, ...], ...]:
        """How ``b`` reads ``a``: positions of the buffers among what ``a`` makes."""
        made = {o: i for i, o in enumerate(o for c in a.computes
                                           for o in self.program.producer[c].outs)}
        return tuple(tuple(made.get(x, -1) for x in self.program.producer[c].inputs)
                     for c in b.computes)

    def finished(self, group: Group) -> Group:
        """The group as the Schedule has it: levels of its scratch, tile, why."""
        v = self.verdict(group)
        if is_stream(group):
            return group
        connect = {b: lv if lv == REGISTER else v.level for b, lv in group.connect.items()}
        if all(lv == REGISTER for lv in connect.values()):
            return group
        tile, why = dict(v.tile), f"{v.why}; tile of {v.states} states"
        return with_run(self.program, replace(group, connect=connect, tile=tile,
                                              parallel=tuple(tile), why=why), v.run)

    def signature(self, group: Group) -> int:
        """The number of what decides a verdict, without names of buffers: equal layers have equal
        ones."""
        if id(group) not in self.signatures:  # holding the group keeps its id its own
            self.signatures[id(group)] = group, self.number(self._signed(group))
        return self.signatures[id(group)][1]

    def _signed(self, group: Group) -> Hashable:
        number: dict[str, int] = {}
        out = []
        inside, outputs = set(group.computes), set(group.outputs)
        for c in group.computes:
            step = self.program.producer[c]
            assert isinstance(step, Compute), c  # all others are in no group that is merged
            places: list[Hashable] = []
            for b in step.inputs:
                if b in number:
                    places.append(number[b])
                    continue
                maker = self.program.producer.get(b)
                number[b] = len(number)
                places.append((number[b], self._kind(b),
                               maker is not None and maker.outs[0] in inside))
            for o in step.outs:
                number.setdefault(o, len(number))
            out.append((self._text(step), tuple(places), tuple(
                (number[o], o in outputs, group.connect.get(o), self.orders.get(o))
                for o in step.outs), c == group.anchor))
        return tuple(out)

    def _kind(self, buffer: str) -> int:
        """The number of what matters of a buffer by itself."""
        if buffer not in self.kinds:
            b = self.program.buffers[buffer]
            self.kinds[buffer] = self.number((
                b.dtype, tuple(map(show, b.shape)), b.role,
                tuple(buffer in f for f in self.free), self.orders.get(buffer)))
        return self.kinds[buffer]

    def _text(self, step: Compute) -> int:
        """The number of a compute's text with its buffers numbered."""
        if step.outs not in self.texts:
            number = {b: f"${i}" for i, b in enumerate(step.inputs)}
            self.texts[step.outs] = self.number((
                _numbered(step.body, number), str(step.fold), step.acc,
                tuple((a.name, show(a.extent)) for a in step.axes),
                tuple((a.name, show(a.extent)) for a in step.raxes)))
        return self.texts[step.outs]

    def _judged(self, group: Group) -> Verdict:
        try:
            stages = group_stages(self.program, group)
            if is_stream(group):
                return self._streamed(group)
            if len(stages) > MAX_STAGES:
                return Verdict(False, why=f"{len(stages)} stages")
            if has_products(self.program, self.target, group):
                return self._placed(group) if self.together else Verdict(
                    False, why="products of a block of threads are joined when halves are known")
            group, layouts = self._with_rows(group)
            model = group_model(self.program, group, self.orders, access_costs(
                self.program, self.target, group, layouts), self.target.tuning)
            return self._costed(group, layouts, stages, model)
        except ScheduleError as err:
            return Verdict(False, why=str(err))

    def _placed(self, group: Group) -> Verdict:
        """Of a group whose products find their rows where earlier stages have left them: the
        cheapest legal tile."""
        found = []
        for tile in placed_tiles(self.program, self.target, group):
            tiled = replace(group, tile=tile, parallel=tuple(tile))
            with_rows, layouts = self._with_rows(tiled)
            if all_placed(self.program, self.target, with_rows):
                found.append((self.priced(tiled), tile, with_rows, layouts))
        for cost, tile, with_rows, layouts in sorted(found, key=lambda x: x[0].seconds):
            verdict = Verdict(True, cost.seconds, tuple(tile.items()),
                              self.target.machine.homes[0].name, cost.levels[0][2], str(cost))
            if self._accepted(with_rows, layouts, verdict):
                return verdict
        return Verdict(False, why="its products do not find their rows in the memory of a block")

    def _streamed(self, group: Group) -> Verdict:
        """Of a group that streams: its rows make its tile."""
        found = find_stream(self.program, group)
        rows = None if found is None else stream_rows(self.program, self.target, found)
        if found is None or rows is None:
            return Verdict(False, why="it does not stream on rows of the target")
        return Verdict(True, stream_seconds(self.target.machine, found, rows), level=STREAM)

    def _costed(self, group: Group, layouts: Mapping[str, Layout], stages: Sequence[Stage],
                model: GroupModel) -> Verdict:
        machine = self.target.machine
        fixed, grains, aligned = self._shape(stages, model)
        several = len(stages) > 1
        # what one stage alone is cut into others decide: its seconds are asked, no walk is worth it
        walked = self.target.tuning.walk_states if several else 0
        if several:
            fixed |= lanes_across(self.program, self.target, group, stages[model.anchor], layouts)
            fixed = self._whole_lanes(group.choice(stages[model.anchor].name).lanes, model) | fixed

        def constructed(fixed: Fixed) -> Construction:
            return construct(model, machine, Budget(walked), depth=machine.depth,
                             fixed=fixed, grains=grains, strict=several, aligned=aligned,
                             free=self.free)

        blocked = blocked_axes(model, self.target, group) if several else {}
        try:
            found = constructed(blocked | fixed)
        except ScheduleError:  # too wide: cut them after all
            found = constructed(fixed)
        tile, cost = self._evened(model, found, grains, aligned)
        if several:
            tile, cost = self._lengthened(model, found, tile, cost, blocked | fixed, aligned)
        plain = self._verdict(model, tile, cost)
        if not several:
            return plain
        outer = found.state.tiles[:-1]

        def bounded(verdict: Verdict) -> Verdict:
            return self._bounded(group, model, verdict, grains, fixed, aligned, outer)

        def along(run: Run) -> Verdict:
            return replace(self._verdict(model, run.tile, run.cost),
                           run=((run.axis, run.extent), run.slide))

        def fits(run: Run) -> bool:
            """A tile for the largest extents; managed scratch has it cut afterwards."""
            return machine.managed or run.cost.seconds >= cost.seconds or bounded(along(run)).legal
        run = None if machine.threads else best_run(
            model, machine, (*outer, tile), aligned, self.free, grains, fits)
        choices = [] if run is None or run.cost.seconds >= cost.seconds else [along(run)]
        for result in map(bounded, [*choices, plain]):
            if result.legal and self._accepted(group, layouts, result):
                return replace(result, states=found.states)
        return Verdict(False, why="check_schedule refuses it")

    def _whole_lanes(self, lanes: str, model: GroupModel) -> dict[str, Widths]:
        """{axis: its extents in a tile}: where threads share work items, an output along the lanes
        for each of the target's lanes, or all where there are fewer."""
        if not self.target.machine.threads or lanes not in model.axes:
            return {}
        extent, least = model.extents[model.axes.index(lanes)], self.target.lanes
        return {lanes: tuple(n for n in ladder(extent, least) if n >= min(extent, least))}

    def _bounded(self, group: Group, model: GroupModel, verdict: Verdict, grains: Mapping[str, int],
                 whole: Collection[str], aligned: Sequence[Aligned],
                 outer: Sequence[Widths]) -> Verdict:
        """The Verdict with a tile whose scratch fits its level whatever the dimensions are, at
        what that one costs: small tiles may compute much again."""
        memory = self.target.machine.near
        room = self.target.machine.room(memory)
        if self.target.machine.threads:
            room /= 2  # micro-kernels stage operands there, too
        given = dict(verdict.tile)
        lanes = group.choice(model.stages[model.anchor].name).lanes
        if lanes and not self.target.machine.managed:
            # whole vectors, and the columns that products before the anchor compute together
            nr = max((a.nr for a in aligned), default=self.target.lanes)
            grains = {**grains, lanes: max(grains.get(lanes, 1), nr)}
        if self.target.machine.on_copies:
            tiles = [fitted_tile(model, self.target.machine, given, whole)]
        else:
            tiles = [bounded_tile(self.program, t, replace(group, tile=given), room, grains, whole)
                     for t in self._grown_or_not()]
        fitting = [t for t in tiles if t is not None]
        if not fitting or fitting[0] != given and verdict.run:
            return Verdict(False, why=f"its scratch may not fit {memory.name}")

        def costed(tile: dict[str, int]) -> Verdict:
            if tile == given:
                return verdict
            item = model.variables(tile)
            tiles = (*(tuple(map(max, t, item)) for t in outer), item)
            cost = group_cost(model, self.target.machine, tiles, 1, aligned, self.free)
            return replace(self._verdict(model, item, cost), tile=tuple(tile.items()))
        return min(map(costed, fitting), key=lambda v: v.seconds)

    def _grown_or_not(self) -> tuple[Target, ...]:
        """The target, and where threads share work items one that makes them no larger than they
        were found."""
        machine = self.target.machine
        alone = replace(self.target, machine=replace(machine, row_points=1))
        return (self.target, alone) if machine.threads else (self.target,)

    def _verdict(self, model: GroupModel, tile: Widths, cost: Cost) -> Verdict:
        named = tuple((a, t) for a, t, n in zip(model.axes[:model.rank], tile, model.extents)
                      if t < n)
        return Verdict(True, cost.seconds, named, self._level(model, tile),
                       cost.levels[0][2], str(cost))

    def _evened(self, model: GroupModel, found: Construction, grains: Mapping[str, int],
                aligned: Sequence[Aligned]) -> tuple[Widths, Cost]:
        """(tile of a work item, Cost): the constructed one, or cut into as many nearly equal ones
        where that is predicted to be faster."""
        *outer, tile = found.state.tiles
        best, cost = tile, found.cost
        for i, (a, n) in enumerate(zip(model.axes[:model.rank], model.extents)):
            for t in nearly_equal(n, tile[i], self.target.machine.workers, grains.get(a, 1)):
                new = best[:i] + (t,) + best[i + 1:]
                found_cost = group_cost(model, self.target.machine, (*outer, new),
                                        found.state.vthreads, aligned, self.free)
                if found_cost.seconds < cost.seconds:
                    best, cost = new, found_cost
        return best, cost

    def _lengthened(self, model: GroupModel, found: Construction, tile: Widths, cost: Cost,
                    fixed: Collection[str], aligned: Sequence[Aligned]) -> tuple[Widths, Cost]:
        """(tile, Cost) of as many points that takes no longer by the model and lies in fewer pages:
        what a CPU fetches ahead and translates ends with them."""
        *outer, _ = found.state.tiles
        page, alike = self.target.tuning.page, self.target.tuning.alike
        best, pages = tile, model.traffic(tile, unit=page)
        free = [i for i in range(model.rank) if model.axes[i] not in fixed]
        for a, b in permutations(free, 2):
            n = model.extents[a]
            part = tile[a] * tile[b] // n
            if tile[a] == n or part * n != tile[a] * tile[b]:
                continue
            new = tuple(n if i == a else part if i == b else t for i, t in enumerate(tile))
            there = group_cost(model, self.target.machine, (*(tuple(map(max, t, new))
                               for t in outer), new), found.state.vthreads, aligned, self.free)
            moved = model.traffic(new, unit=page)
            if there.seconds <= cost.seconds * (1 + alike) and moved < pages:
                best, cost, pages = new, there, moved
        return best, cost

    def _level(self, model: GroupModel, tile: Widths) -> str:
        """The fastest memory whose usable part holds all scratch of a work item."""
        live = sum(n for b, n, _, _ in model.lifetimes(tile) if b in model.scratch)
        machine = self.target.machine
        return next((x.name for x in machine.homes if live <= x.capacity * x.usable),
                    machine.scratch)

    def _shape(self, stages: Sequence[Stage],
               model: GroupModel) -> tuple[Fixed, dict[str, int], tuple[Aligned, ...]]:
        """(fixed, grains, aligned): lanes of contractions stay whole, so that upstream stages run
        once; reductions are streamed in slices; row axes step by the micro-kernel's rows."""
        fixed: Fixed = {}
        grains: dict[str, int] = {}
        aligned = []
        for number, s in enumerate(stages):
            f = contraction_factors(self.program, s)
            sizes = {a: estimate(a.extent) for a in s.axes + s.raxes}
            for r in s.raxes:
                fixed[f"{s.name}.{r.name}"] = (sizes[r],)
            found = None if f is None else usual_product(self.program, self.target, number, s)
            if f is None or found is None:
                fixed |= streamed_fold(self.target.machine, s)
                continue
            stream = max(f.k, key=lambda r: sizes[r])
            steps = min(self.target.tuning.stream_steps, sizes[stream])
            fixed[f"{s.name}.{stream.name}"] = (steps,)
            aligned.append(found)
            lane = s.axes[found.lane]
            if number == model.anchor:
                grains = {a.name: found.mr for a in f.m[-1:]}
                if len(stages) > 1:
                    fixed[lane.name] = (sizes[lane],)
                else:
                    grains[lane.name] = found.nr
        anchor = stages[model.anchor]
        if len(stages) > 1 and anchor.fold == "none" and len(anchor.axes) > 1:
            last = anchor.axes[-1]  # columns stay whole, for the lanes
            fixed[last.name] = (estimate(last.extent),)
        return {a: n for a, n in fixed.items() if a in model.axes}, grains, tuple(aligned)

    def _with_rows(self, group: Group) -> tuple[Group, dict[str, Layout]]:
        """(the group with rows and loops, layouts): as they come out if its neighbours stay."""
        inside = {o for c in group.computes for o in self.program.producer[c].outs}
        scratch = inside - set(group.outputs)
        given = {b: self.layouts.get(b, Layout(())) for c in group.computes
                 for b in (*self.program.producer[c].inputs, *self.program.producer[c].outs)
                 if b not in scratch and self.program.buffers[b].role == "temp"}
        (group,), layouts = choose_loops(self.program, self.target, (group,), given)
        return group, layouts

    def _accepted(self, group: Group, layouts: Mapping[str, Layout], verdict: Verdict) -> bool:
        """True if the group with rows chosen is a legal kernel when it is tiled."""
        tile = dict(verdict.tile)
        connect = {b: lv if lv == REGISTER else verdict.level
                   for b, lv in group.connect.items()}
        group, = choose_threads(self.program, self.target, (with_run(self.program, replace(
            group, connect=connect, tile=tile, parallel=tuple(tile)), verdict.run),))
        schedule = Schedule(self.target.name, (group,),
                            {b: x.to_json() for b, x in layouts.items()})
        return not kernel_faults(self.program, schedule, self.target, group)


def _numbered(expr: Expr, number: Mapping[str, str]) -> str:
    """Text of an expression with buffers replaced by their numbers."""
    return show(rewrite(expr, lambda n: Load(number[n.buffer], n.index, n.dtype)
                        if isinstance(n, Load) else None))


__all__ = ["Judge", "Verdict"]
