"""What a group costs whose rows, loops and work items are decided."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from aotc.ir.access import dim_order
from aotc.ir.block_statements import LEAST_COPY
from aotc.ir.category import PRODUCTS, Factors
from aotc.ir.dtypes import ELEMENTS
from aotc.ir.layout import Layout
from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.ir.stage_choice import StageChoice
from aotc.sched.cost.accesses import access_costs
from aotc.sched.cost.group_cost import Aligned, Cost, Free, group_cost
from aotc.sched.cost.panel_cost import panel_levels
from aotc.sched.cost.product_rows import exact_dtypes, pick_row
from aotc.sched.cost.row_cost import row_rate
from aotc.sched.cost.run_cost import run_cost
from aotc.sched.cost.wave_cost import spread_over_waves
from aotc.sched.model.group_model import group_model
from aotc.sched.model.group_numbers import GroupModel, Widths
from aotc.sched.model.size import estimate, estimate_volume
from aotc.sched.model.stages import Stage, contraction_factors, factors_for, group_stages
from aotc.sched.rows.dots import typed_rows
from aotc.target.base import Target
from aotc.target.kernel_rows import ProductRow

Split = Mapping[str, Mapping[str, int]]
Tails = Mapping[str, tuple[int, ...]]  # of stages: rows of their smaller register tiles


class Decided:
    """A group with rows and loops, of which any tile can be asked.  layouts: of stored buffers;
    free: as for ``group_cost``."""

    def __init__(self, program: Program, target: Target, group: Group,
                 layouts: Mapping[str, Layout], free: Free) -> None:
        orders = {b: dim_order(layouts[b], len(program.shape(b)))
                  for c in group.computes for s in (program.producer[c],)
                  for b in (*s.inputs, *s.outs) if b in layouts}
        self.machine, self.free = target.machine, free
        self.model = group_model(program, group, orders, access_costs(
            program, target, group, layouts), target.tuning)
        stages = group_stages(program, group)
        self.aligned = aligned_products(stages, group, target)
        self.rows = product_rows(stages, group, target)

    def scratch(self, tile: Mapping[str, int]) -> int:
        """Bytes of what the stages of a work item hand each other."""
        return sum(n for b, n, _, _ in self.model.lifetimes(self.model.variables(tile))
                   if b in self.model.scratch)

    def cost(self, tile: Mapping[str, int], split: Split | None = None) -> Cost:
        """The Cost in work items of ``tile``, {axis: extent}; outside all of it is in each.  split:
        as a Group's, how its sums are sliced."""
        item = self.model.variables(tile, split)
        tiles = (*(self.model.extents,) * (self.machine.depth - 1), item)
        again = () if split is None else panel_levels(self.model, self.machine, item, self.aligned)
        cost = group_cost(self.model, self.machine, tiles, aligned=self.aligned, free=self.free,
                          more=again)
        return spread_over_waves(cost, self.model, self.machine, item, self.aligned, self.rows)


def decided_cost(model: GroupModel, stages: Sequence[Stage], group: Group, target: Target,
                 free: Free = (), tails: Tails | None = None,
                 outer: Sequence[Widths] | None = None) -> Cost:
    """The Cost of a group whose tile, run and rows are decided.  free: as for ``group_cost``;
    tails: of stages whose number of rows nobody knows; outer: tiles of the memories outside that
    of a work item (None: all of it in each)."""
    machine, item = target.machine, model.variables(group.tile)
    aligned = aligned_products(stages, group, target, tails)
    tiles = (*((model.extents,) * (machine.depth - 1) if outer is None else outer), item)
    run = run_cost(model, machine, tiles[:-1], item, group.run, aligned,
                   free) if group.run else None
    if run is not None:
        return run
    cost = group_cost(model, machine, tiles, aligned=aligned, free=free)
    return cost if not machine.threads else spread_over_waves(
        cost, model, machine, item, aligned, product_rows(stages, group, target))


def product_rows(stages: Sequence[Stage], group: Group, target: Target) -> tuple[ProductRow, ...]:
    """The rows of a decided group's products that threads share."""
    rows = [target.row(group.choices[s.name].row) for s in stages]
    return tuple(r for r in rows if isinstance(r, ProductRow) and r.shared is not None)


def aligned_products(stages: Sequence[Stage], group: Group, target: Target,
                     tails: Tails | None = None) -> tuple[Aligned, ...]:
    """How the products of a decided group lie on their rows."""
    rows = [target.row(group.choices[s.name].row) for s in stages]
    return tuple(_aligned(n, s, group, target, (tails or {}).get(s.name, ()))
                 for n, (s, row) in enumerate(zip(stages, rows))
                 if row.category in PRODUCTS)


def _aligned(number: int, s: Stage, g: Group, target: Target, tails: tuple[int, ...]) -> Aligned:
    lanes, row = g.choices[s.name].lanes, target.product_row(g.choices[s.name].row)
    f = factors_for(s, lanes)
    return replace(_on_row(number, s, f, lanes, row, target), tails=tails,
                   deep=_deep(s, g.choices[s.name], row))


def _on_row(number: int, s: Stage, f: Factors, lanes: str, row: ProductRow,
            target: Target) -> Aligned:
    """A product on a row, by what the row says of itself."""
    place = {a.name: i for i, a in enumerate(s.axes)}
    once = row.expands_panels
    rows, columns = (ELEMENTS[d].size for d in (row.a, row.a if once else f.b.dtype))
    return Aligned(number, tuple(place[a.name] for a in f.m), place[lanes], row.tile.mr,
                   row.tile.nr, row_rate(row, target.tuning),
                   expand=0.0 if row.grouped is None else row.grouped.expand, once=once,
                   sizes=(rows, columns))


def _deep(s: Stage, choice: StageChoice, row: ProductRow) -> float:
    """``Aligned.deep`` of a sum on a row: tap by tap where rows are read in place and not joined,
    else in one."""
    whole = choice.a != "rows" or row.joins_taps and all(
        estimate(r.extent) * ELEMENTS[row.a].size % LEAST_COPY == 0 for r in s.raxes
        if r.name == choice.k)
    terms = estimate_volume(r.extent for r in s.raxes if whole or r.name == choice.k)
    return -(-terms // row.steps) * row.steps / terms


def usual_product(program: Program, target: Target, number: int, s: Stage) -> Aligned | None:
    """How a product that has no row yet would lie on the one that it usually gets, its longest axis
    along the lanes; None for other stages."""
    f = contraction_factors(program, s)
    if f is None or not target.rows("contraction"):
        return None
    sizes = {a: estimate(a.extent) for a in f.n}
    lane = max(f.n, key=sizes.__getitem__)
    row = pick_row(target, estimate_volume(a.extent for a in f.m), sizes[lane],
                   typed_rows(program, target, s), exact=exact_dtypes(program, target, f))
    return _on_row(number, s, f, lane.name, row, target)


__all__ = ["Decided", "Tails", "aligned_products", "decided_cost", "usual_product"]
