"""What may vary in a site: forms, and per form the knobs of its groups.

A *form* is what sets the computes and kernels: the decisions of the scheduler, another (or no)
Winograd form of its convolution, a padded copy of its input or none, fewer connections, another
layout of a tensor on its border.  A *knob* is one choice inside: micro-kernel row, lane axis,
operand mode, blocked axis, the extent of a tile along an axis, which tiled axis comes first, how
far a work item runs along it, threads of a block, how a stage's statements are written ("": by
rule).  Where work items are blocks of threads, a product's tile and a block's threads follow from
the row and the tile unless they are turned themselves.
Knobs are named by position (``group.stage.what``), so a point means the same in equal sites.
Legal is what ``check_group`` accepts; nothing here knows what an operator is.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from aotc.errors import ScheduleError
from aotc.ir.access import is_unit, layout_from_json, offset_of
from aotc.ir.expr import Axis, Const, Expr, Load, Shape, depends_on_data
from aotc.ir.layout import Layout, LayoutJson
from aotc.ir.program import Program, Rewrite
from aotc.ir.schedule import Group, Schedule
from aotc.ir.stage_choice import FIELDS, FOLDS, LOOPS, MAPS, OWN, TEXTS, Legal, StageChoice
from aotc.passes.rewrites import apply_rewrites
from aotc.sched.check.choices import choices_of, row_legal
from aotc.sched.choose.block_threads import choose_threads
from aotc.sched.choose.gensor import ladder
from aotc.sched.choose.loops import window_block
from aotc.sched.choose.order import patch_items
from aotc.sched.choose.tile import choose_tiles
from aotc.sched.cost.row_cost import row_waste
from aotc.sched.model.size import estimate, estimate_volume
from aotc.sched.model.stages import Stage, factors_for, group_stages
from aotc.sched.rows.panels import panel_layout
from aotc.sched.rows.transforms import find_transform
from aotc.sched.text_choices.choose_writing import kernel_faults
from aotc.target.base import Target
from aotc.target.kernel_rows import ProductRow
from aotc.tuner.space.sites import Site
from aotc.tuner.space.trial import Candidate, Values

RUNGS = 9  # extents of a tile that are tried along one axis
FEW = 8  # numbers of a choice, each of which is tried
SHORTEST = 4  # an axis below this is not worth lanes
Place = Callable[[str, Shape], Expr]  # (buffer, index) -> where that element lies
# what a stage does, whose lanes run along an axis, for another value of a choice to be worth trying
# (``where`` of its field)
WHERE: dict[str, Callable[[Stage, str, Place], bool]] = {
    "": lambda s, lanes, at: True,
    "lookups": lambda s, lanes, at: any(depends_on_data(i) for n in s.loads() for i in n.index),
    "across": lambda s, lanes, at: not any(is_unit(at(o.buffer, o.index), a)
                                           for o in s.outputs for a in s.axes if a.name == lanes)}
Tried = tuple[Sequence[Any], Any]  # values that are tried of a choice, and that of the form's group
NONE: Tried = (), ""
BY_RULE = ""  # the value of a choice of writing that a Schedule leaves out


@dataclass(frozen=True)
class Knob:
    """``choices``: JSON values; ``base``: the one that the form's own groups have."""

    name: str
    choices: tuple[Any, ...]
    base: Any


@dataclass(frozen=True)
class Form:
    """A site's computes and kernels before any knob is turned.  ``name``: "" for the untuned one;
    ``program``: with ``rewrites`` applied; ``layouts``: primitives of every buffer it touches."""

    name: str
    rewrites: tuple[Rewrite, ...]
    program: Program = field(repr=False)
    groups: tuple[Group, ...] = field(repr=False)
    layouts: dict[str, LayoutJson] = field(hash=False, repr=False)


def untuned_form(site: Site) -> Form:
    """The Form a site has in the untuned Schedule."""
    return Form("", site.rewrites, apply_rewrites(site.piece, site.rewrites), site.groups,
                site.layouts)


class Space:
    """The knobs of one form of a site, and what a point of them means."""

    def __init__(self, site: Site, form: Form, target: Target) -> None:
        self.site, self.form, self.target = site, form, target
        self.stages = [group_stages(form.program, g) for g in form.groups]
        self.knobs = tuple(k for i in range(len(form.groups)) for k in self._group_knobs(i)
                           if len(k.choices) > 1)
        self.base = tuple((k.name, k.base) for k in self.knobs)
        read = Counter(b for of in self.stages for s in of for b in {n.buffer for n in s.loads()})
        self.shared = site.fixed | {b for b, n in read.items() if n > 1}

    def candidate(self, values: Values) -> Candidate | None:
        """The Candidate of {knob name: choice}; None where it is not legal.  A knob that is not
        named stays at its base."""
        found = self.unchecked(values)
        return found if found is not None and self.legal(found) else None

    def unchecked(self, values: Values) -> Candidate | None:
        """The Candidate of {knob name: choice}, perhaps not a legal one; None if the choices
        contradict each other."""
        changed = tuple((k.name, values.get(k.name, k.base)) for k in self.knobs
                        if values.get(k.name, k.base) != k.base)
        try:
            groups, layouts = self._turned(dict(changed))
        except ScheduleError:
            return None
        return Candidate(self.site.key, (self.form.name, changed), self.form.program, groups,
                         layouts)

    def legal(self, candidate: Candidate) -> bool:
        """True if ``check_group`` accepts every group of an unchecked Candidate, and its scratch
        fits."""
        schedule = Schedule(self.target.name, candidate.groups, candidate.layouts)
        return not any(kernel_faults(self.form.program, schedule, self.target, g)
                       for g in candidate.groups)

    def seeds(self) -> list[dict[str, Any]]:
        """[{knob name: choice}] worth trying first: on every product the row that pads a work item
        least; uncut work items, but of blocks of threads, of which there must be many; both."""
        rows: dict[str, Any] = {}
        for i, g in enumerate(self.form.groups):
            for n, s in enumerate(self.stages[i]):
                rows |= self._least_waste(f"{i}.{n}.row", g, s)
        whole = {k.name: k.choices[-1] for k in self.knobs
                 if ".tile." in k.name and k.choices[-1] != k.base}
        found = [rows] if self.target.machine.threads else [rows, rows | whole, whole]
        return [f for i, f in enumerate(found) if f and f not in found[:i]]

    def _least_waste(self, name: str, g: Group, s: Stage) -> dict[str, Any]:
        knob = next((k for k in self.knobs if k.name == name), None)
        if knob is None:
            return {}
        lane = g.choices[s.name].lanes
        cut = g.tile if g.anchor in s.computes else {}
        size = {a.name: min(cut.get(a.name, 1 << 60), estimate(a.extent)) for a in s.axes}
        f = factors_for(s, lane)
        m = prod(size[a.name] for a in f.m)
        best = min(knob.choices, key=lambda u: row_waste(
            self.target.product_row(u), m, size[lane], self.target.tuning))
        return {name: best} if best != knob.base else {}

    # ------------------------------------------------------------ knobs

    def _group_knobs(self, i: int) -> Iterator[Knob]:
        g = self.form.groups[i]
        anchor = next(s for s in self.stages[i] if g.anchor in s.computes)
        for n, s in enumerate(self.stages[i]):
            yield from self._stage_knobs(f"{i}.{n}", g, s)
        steps = self._steps(i, g, anchor)
        for a in anchor.axes:
            if a.extent != Const(1):
                base = min(g.tile.get(a.name, estimate(a.extent)), estimate(a.extent))
                yield Knob(f"{i}.tile.{a.name}",
                           _rungs(estimate(a.extent), steps.get(a.name, 1), base), base)
        if len([a for a in anchor.axes if a.extent != Const(1)]) > 1:
            names = tuple(a.name for a in anchor.axes if a.extent != Const(1))
            yield Knob(f"{i}.first", ("", *names), "")
        if g.patch:  # 0: work items go in plain order
            yield Knob(f"{i}.patch", (0, 1), 1)
        if g.flat:  # 0: work items end where lines do
            yield Knob(f"{i}.flat", (0, 1), 1)
        if g.threads and not any(self.target.row(u).threads for u in g.rows.values()):
            most, lanes = self.target.machine.threads_max, self.target.lanes
            yield Knob(f"{i}.threads", tuple(sorted({g.threads, *(
                lanes << n for n in range(16) if lanes << n <= most)})), g.threads)
        for a in anchor.axes:
            if a.name in g.run:  # how far a work item walks; 0: it does not
                base, step = g.run[a.name], g.tile[a.name]
                far = _rungs(max(estimate(a.extent) // step, base // step, 1), 1, base // step)
                yield Knob(f"{i}.run", (0, *(n * step for n in far)), base)

    def _stage_knobs(self, at: str, g: Group, s: Stage) -> Iterator[Knob]:
        for key, f in FIELDS.items():
            if f.metadata["tries"]:
                values, base = TRIES[f.metadata["tries"]](self, g, s, key)
                yield Knob(f"{at}.{key}", tuple(dict.fromkeys(values)), base)

    def _rows(self, g: Group, s: Stage, key: str) -> Tried:
        """Rows of the same products, for as many rows of a matrix, that read weights in panels of
        their own width, or by columns, whatever that is."""
        row, choice = self.target.row(g.choices[s.name].row), g.choice(s.name)
        if not isinstance(row, ProductRow) or row.category != "contraction" and not (
                row.shares_layout):
            return NONE
        f = factors_for(s, choice.lanes)
        m = estimate_volume(a.extent for a in f.m)
        return [u.name for u in (*self.target.rows("contraction"), *self.target.rows("dot"))
                if u.products == row.products and u.shares_layout == row.shares_layout
                and u.serves(m)], row.name

    def _axes(self, g: Group, s: Stage, key: str) -> Tried:
        """Long axes of a nest along which some access walks memory."""
        row, base = self.target.row(g.choices[s.name].row), g.choice(s.name).lanes
        axes = s.axes + (s.raxes if s.fold in ("sum", "max", "min") else ())
        found = [a.name for a in axes if a.name == base or (
            estimate(a.extent) >= SHORTEST and self._unit_stride(s, a))]
        return (found, base) if row.category in (*MAPS, *FOLDS) and base in found else NONE

    def _blocks(self, g: Group, s: Stage, key: str) -> Tried:
        """Windows whose outputs are computed one by one, or several together."""
        row = self.target.row(g.choices[s.name].row)
        block = "block" if g.choice(s.name).block else ""
        return (("", "block"), block) if row.category == "window" else NONE

    def _values(self, g: Group, s: Stage, key: str) -> Tried:
        """Of a choice of a product or a fold, or of blocks of threads alone, where others mean
        something."""
        row, choice = self.target.row(g.choices[s.name].row), g.choice(s.name)
        notes = FIELDS[key].metadata
        blocks = not notes["rows"]
        known = (blocks or row.category in OWN) and key in choices_of(self.target, g, s.name)
        if not known or not WHERE[notes["where"]](s, choice.lanes, self._place):
            return NONE
        if key not in TEXTS:
            return notes["legal"], getattr(choice, key)
        base = choice.said.get(key, BY_RULE)
        legal = row_legal(row).get(key, TEXTS[key])
        return (BY_RULE, *_written(legal, 2 if blocks else 4), base), base

    def _unit_stride(self, s: Stage, axis: Axis) -> bool:
        """True if some access walks memory element by element along the axis."""
        places = [(n.buffer, n.index) for n in s.loads()] + [
            (o.buffer, o.index) for o in s.outputs]
        return any(is_unit(self._place(b, index), axis) for b, index in places)

    def _place(self, buffer: str, index: Shape) -> Expr:
        """Where an element lies, of a buffer that is stored."""
        return offset_of(index, self.form.program.shape(buffer), layout_from_json(
            self.form.layouts.get(buffer)))

    def _steps(self, i: int, g: Group, anchor: Stage) -> dict[str, int]:
        """{axis: unit its tiles are multiples of}."""
        steps: dict[str, int] = {}
        for s in self.stages[i]:
            t = find_transform(self.form.program, s)
            for name, n in t.blocks.items() if t is not None else ():
                steps[name] = max(steps.get(name, 1), n)
        choice = g.choice(anchor.name)
        row = self.target.row(g.choices[anchor.name].row)
        product = isinstance(row, ProductRow) and row.category == "contraction"
        if choice.lanes and (product or not g.threads):  # threads take outputs in any order
            steps.setdefault(choice.lanes, self.target.lanes)
        if isinstance(row, ProductRow) and product:
            f = factors_for(anchor, choice.lanes)
            steps.setdefault(f.m[-1].name if f.m else "", row.tile.mr)
        return steps

    # ------------------------------------------------------------ a point

    def _turned(self, values: Values) -> tuple[tuple[Group, ...], dict[str, LayoutJson]]:
        """(groups, layouts) with the knobs of ``values`` turned."""
        layouts, groups = dict(self.form.layouts), []
        for i, g in enumerate(self.form.groups):
            choices = dict(g.choices)
            for n, s in enumerate(self.stages[i]):
                choices[s.name] = self._turn_stage(f"{i}.{n}", s, g.choice(s.name), layouts, values)
            turned = replace(g, choices=choices, why="")
            if g.threads:
                turned = self._turn_block(i, g, turned, layouts, values)
            else:
                turned = self._turn_tile(i, turned, values)
            groups.append(turned)
        return tuple(groups), layouts

    def _turn_block(self, i: int, before: Group, g: Group, layouts: Mapping[str, LayoutJson],
                    values: Values) -> Group:
        """A group for a block of threads, with its stages turned: on another row a product gets the
        tile that its decider makes, before that is turned; and threads follow."""
        through = bool(values.get(f"{i}.flat", 1))
        if len(self.stages[i]) == 1 and (g.rows != before.rows or not through):
            settled = {b: layout_from_json(x) for b, x in layouts.items()}
            g, = choose_tiles(self.form.program, self.target, (replace(
                g.by_axes, threads=0),), settled, through)
        if g.flat == before.flat:
            tiled = self._turn_tile(i, replace(g, patch={}), values)
            same = (tiled.tile, tiled.parallel) == (g.tile, g.parallel)
            g = replace(tiled, patch=g.patch) if same else patch_items(
                self.form.program, self.target.machine, tiled, next(
                    s for s in self.stages[i] if g.anchor in s.computes))
        elif any(k.startswith((f"{i}.tile.", f"{i}.first")) for k in values):
            raise ScheduleError([f"group {g.name}: a tile of axes that it does not have"])
        g = g if values.get(f"{i}.patch", 1) else replace(g, patch={})
        threads = values.get(f"{i}.threads", before.threads if (g.rows, g.tile) == (
            before.rows, before.tile) else 0)
        return choose_threads(self.form.program, self.target, (replace(g, threads=threads),))[0]

    def _turn_stage(self, at: str, s: Stage, choice: StageChoice, layouts: dict[str, LayoutJson],
                    values: Values) -> StageChoice:
        """The choice of a stage with the knobs at ``at`` turned; a repacked weight's layout goes
        to ``layouts``."""
        if values.get(f"{at}.row", choice.row) != choice.row:
            choice = replace(choice, row=values[f"{at}.row"])
            if choice.b == "panel" and not self.target.product_row(choice.row).shares_layout:
                choice = self._repack(s, choice, layouts)
        turned = {key: values[f"{at}.{key}"] for key in LOOPS
                  if f"{at}.{key}" in values and key != "block"}
        choice = choice.with_said({k: None if v == BY_RULE else v for k, v in turned.items()})
        if self.target.row(choice.row).category == "window" and (
                f"{at}.block" in values or "lanes" in turned):
            block = "block" if choice.block else ""
            return self._turn_window(s, choice, values.get(f"{at}.block", block))
        return choice

    def _turn_window(self, s: Stage, choice: StageChoice, how: str) -> StageChoice:
        plain = [u.name for u in self.target.rows("window") if u.block == 1]
        wide = [u.name for u in self.target.rows("window") if u.block > 1]
        lane = next(a for a in s.axes + s.raxes if a.name == choice.lanes)
        found = window_block(s, lane, self.target.tuning.window_taps) if how and wide else None
        if found is not None:
            return replace(choice, row=wide[0], block=found[0].name)
        return replace(choice, row=plain[-1] if plain else choice.row, block="")

    def _repack(self, s: Stage, choice: StageChoice, layouts: dict[str, LayoutJson]) -> StageChoice:
        """Weights in panels of another row's width; one that others read stays and is repacked
        while the kernel runs."""
        f = factors_for(s, choice.lanes)
        assert isinstance(f.b, Load), s.name  # so a panel says
        if f.b.buffer in self.shared:
            return replace(choice, b="packed")
        lane = next(a for a in f.n if a.name == choice.lanes)
        k = next(r for r in f.k if r.name == choice.k)
        shape = self.form.program.consts[f.b.buffer].shape
        row = self.target.product_row(choice.row)
        layouts[f.b.buffer] = panel_layout(f.b.index, lane, f.k, k, row.tile.nr,
                                           shape).to_json()
        return choice

    def _turn_tile(self, i: int, g: Group, values: Values) -> Group:
        anchor = next(s for s in self.stages[i] if g.anchor in s.computes)
        names = [a.name for a in anchor.axes]
        turned = [n for n in names if f"{i}.tile.{n}" in values]
        first = values.get(f"{i}.first", "")
        if not turned and not first and f"{i}.run" not in values:
            return g
        extent = {a.name: estimate(a.extent) for a in anchor.axes}
        static = {a.name: isinstance(a.extent, Const) for a in anchor.axes}
        row, lane = self.target.row(g.choices[anchor.name].row), g.choice(
            anchor.name).lanes
        tile = dict(g.tile)
        for n in turned:
            want = values[f"{i}.tile.{n}"]
            if n == lane and isinstance(row, ProductRow) and (
                    row.category == "contraction" or row.shares_layout):
                want = -(-want // row.tile.nr) * row.tile.nr
            tile[n] = want
        tile = {n: tile[n] for n in names if n in tile and not (
            static[n] and tile[n] >= extent[n])}
        order = [n for n in g.parallel if n in tile] + [n for n in tile if n not in g.parallel]
        order = [n for n in order if n == first] + [n for n in order if n != first]
        run = {n: values.get(f"{i}.run", far) for n, far in g.run.items() if n in tile}
        run = {n: -(-far // tile[n]) * tile[n] for n, far in run.items() if far}
        reuse = {s: how for s, how in g.reuses.items() if run or how != "slide"}
        balance = {n: tile[n] if n in run else step for n, step in g.balance.items()
                   if n in tile and tile[n] % step == 0}
        return replace(g.with_reuses(reuse), tile=tile, parallel=tuple(order), run=run,
                       balance=balance)


# which values are tried of a choice (``tries`` of its field)
TRIES: dict[str, Callable[[Space, Group, Stage, str], Tried]] = {
    "rows": Space._rows, "axes": Space._axes, "blocks": Space._blocks, "values": Space._values}


def _written(legal: Legal, step: int) -> tuple[int | str, ...]:
    """Values of a choice that are tried: its texts, or the least number and powers of ``step``; of
    powers of 2 each number where there are few."""
    if isinstance(legal[0], str):
        return legal
    low, high = map(int, legal)
    if step == 2 and high <= FEW:
        return tuple(range(low, high + 1))
    return tuple(n for n in (low, *(step ** i for i in range(16))) if low <= n <= high)


def _rungs(extent: int, unit: int, base: int) -> tuple[int, ...]:
    """At most RUNGS extents of a tile from 1 (or ``unit``) to the whole, about evenly spaced on a
    logarithmic scale, the base among them."""
    rungs = [r for r in ladder(extent, unit) if r % unit == 0 or r in (extent, base)]
    if len(rungs) > RUNGS:
        step = (len(rungs) - 1) / (RUNGS - 1)
        rungs = [rungs[round(i * step)] for i in range(RUNGS)]
    return tuple(sorted({*rungs, base, extent}))


def settled_layouts(layouts: Mapping[str, LayoutJson], names: Iterable[str]) -> dict[str, Layout]:
    """{buffer: Layout} of the buffers whose layout is not to be chosen."""
    return {b: layout_from_json(layouts.get(b)) for b in names}


__all__ = ["Form", "Knob", "Space", "settled_layouts", "untuned_form"]
