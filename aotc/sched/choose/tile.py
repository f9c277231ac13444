"""Of step ``kernels`` of ``decide``: the box that one work item computes, per group.

A product's first tile is what fits: rows that a worker's own memory and its pages hold, cut for as
many items as there is work.  Larger and smaller ones are tried beside it, and slices of long sums,
and the cheapest by the one cost is taken; of what takes as long the first, since pages are no term
of the cost.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from operator import itemgetter

from aotc.ir.category import PRODUCTS, Factors
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Axis, Const
from aotc.ir.layout import Layout
from aotc.ir.program import Program, static_shape
from aotc.ir.schedule import Group
from aotc.ir.stage_choice import StageChoice
from aotc.sched.accelerator.kernels import copied_tile
from aotc.sched.choose.block_threads import choose_threads
from aotc.sched.choose.flat_rows import count_rows_through
from aotc.sched.choose.nest_tile import cut_nest
from aotc.sched.choose.order import order_items, patch_items
from aotc.sched.choose.slices import balance_panels, leaves_cache, slice_candidates
from aotc.sched.choose.stream_choice import stream_tile
from aotc.sched.choose.winograd_kernels import slab_tile
from aotc.sched.cost.decided import Decided
from aotc.sched.cost.group_cost import fork_join_seconds, resident_buffers
from aotc.sched.cost.row_cost import row_rate
from aotc.sched.model.size import estimate, estimate_volume
from aotc.sched.model.stages import Stage, contraction_factors, group_stages
from aotc.sched.rows.row_blocks import row_block
from aotc.sched.rows.stream_stages import is_stream
from aotc.sched.rows.winograd_stages import has_transform
from aotc.target.base import Target
from aotc.target.kernel_rows import ProductRow

Cut = tuple[dict[str, int], dict[str, dict[str, int]]]  # (tile, {stage: how its sum is sliced})
TRIED = ((1, 1), (1, 2), (2, 1), (1, 4), (4, 1))  # of the first tile's rows, and of its parts


def choose_tiles(program: Program, target: Target, groups: Sequence[Group],
                 layouts: Mapping[str, Layout] | None = None,
                 through: bool = True) -> tuple[Group, ...]:
    """Groups with ``tile``, ``parallel`` and ``threads`` filled.  layouts: of stored buffers;
    through: rows of products may be counted through (``flat``)."""
    return choose_threads(program, target, tuple(
        _tiled(program, target, g, layouts or {}, through) for g in groups))


def _tiled(program: Program, target: Target, g: Group, layouts: Mapping[str, Layout],
           through: bool) -> Group:
    stages = group_stages(program, g)
    if not stages or g.parallel:
        return g  # a library call, whose items are its own; or work items that are settled
    anchor = next(s for s in stages if g.anchor in s.computes)
    split: Mapping[str, Mapping[str, int]] = {}
    if is_stream(g):
        tile = stream_tile(program, target, g)
    elif has_transform(program, g):
        tile = slab_tile(program, target, g, stages, anchor, layouts)
    elif len(stages) > 1:
        tile = {}  # one work item: tiles of several stages are chosen with the group
    elif target.row(g.choices[anchor.name].row).category in PRODUCTS:
        g = count_rows_through(program, target, g, anchor) if through else g
        anchor, = group_stages(program, g)
        tile, split = _cheapest(program, target, g, layouts, _product_tiles(
            program, target, g, anchor))
        if not split:
            tile = _shared_columns(program, target, g, anchor, tile, layouts)
    else:
        tile = cut_nest(program, target, g, anchor, layouts)
    if target.machine.on_copies and len(stages) == 1:
        tile, split = copied_tile(program, target, g, anchor) or (tile, split)
    tile = {a.name: tile[a.name] for a in anchor.axes if a.name in tile}
    split = g.splits or split
    g = replace(g.with_splits(split), tile=tile, parallel=tuple(tile))
    return g if split else patch_items(program, target.machine, order_items(
        program, target.machine, g), anchor)


def _cheapest(program: Program, target: Target, g: Group, layouts: Mapping[str, Layout],
              kinds: Sequence[Sequence[Cut]]) -> Cut:
    """The (tile, split) of a group that costs least.  kinds: lists of them, of whole sums and of
    sliced ones; of each kind the first counts if it takes as long as the best, and the first kind
    unless the other one clearly takes less."""
    if len(kinds) == 1 and len(kinds[0]) == 1:
        return kinds[0][0]
    asked, tuning = Decided(program, target, g, layouts, resident_buffers(
        program, target.machine)), target.tuning
    best = [_first_alike([(asked.cost(*x).seconds, x) for x in found], 1 / (1 + tuning.slack))
            for found in kinds]
    return _first_alike(best, tuning.slice_gain)[1]


def _first_alike(found: Sequence[tuple[float, Cut]], gain: float) -> tuple[float, Cut]:
    """The first (seconds, x) of found, unless the least takes less than a share of it."""
    least = min(found, key=itemgetter(0))
    return least if least[0] < gain * found[0][0] else found[0]


def _product_tiles(program: Program, target: Target, g: Group, s: Stage) -> list[list[Cut]]:
    """[[(tile, {stage: how its sum is sliced}), ..], ..] that a product's work items may have, of
    whole sums and of sliced ones, what hardly fits last; one alone where an extent is a symbol's,
    and where a work item is one register tile."""
    f = contraction_factors(program, s)
    assert f is not None, s.name  # so its row says
    choice = g.choices[s.name]
    row = target.product_row(choice.row)
    mr, grow = row.tile.mr, target.tuning.symbols_grow
    lane = next(a for a in f.n if a.name == choice.lanes)
    outer = [a for a in s.axes if a != lane and a not in f.m]
    single = {a.name: 1 for a in outer if a.extent != Const(1)}
    sliced = [(single | {lane.name: columns} | row_block(f.m, rows, mr, grow), {s.name: steps})
              for rows, columns, steps in slice_candidates(target, row, choice, f, lane)]
    whole: list[Cut] = [] if row.expands_panels and sliced else [
        (single | cut | row_block(f.m, rows, mr, grow), {}) for rows, cut in _whole_sums(
            target, f, choice, row, lane, estimate_volume(a.extent for a in outer))]
    kinds = [sliced, whole] if leaves_cache(target, row, choice, f, lane) else [whole, sliced]
    kinds = [x for x in kinds if x]
    return kinds if all(isinstance(a.extent, Const) for a in s.axes) else [kinds[0][:1]]


def _whole_sums(target: Target, f: Factors, choice: StageChoice, row: ProductRow, lane: Axis,
                items: int) -> list[tuple[int, dict[str, int]]]:
    """[(rows, {lane: columns} if they are cut)] of work items of a product whose sum is not sliced;
    items: how many such products there are."""
    rows, parts = _first_blocks(target, f, choice, row, lane, items)
    tried = [(rows, parts)]
    if target.machine.item_tiles > 1:
        tried += [(max(row.tile.mr, rows * up // down), max(1, parts * more // less))
                  for up, down in TRIED for more, less in TRIED]
    panels, workers = -(-estimate(lane.extent) // row.tile.nr), target.machine.workers
    m, most = estimate_volume(a.extent for a in f.m), _worth(target, f, row, lane, items)
    found: list[tuple[int, dict[str, int]]] = []
    for rows, parts in dict.fromkeys((r, min(panels, p)) for r, p in tried):
        if not found or items * -(-m // rows) * parts <= most:
            columns = balance_panels(panels, -(-panels // parts), workers) * row.tile.nr
            found.append((rows, {lane.name: columns} if parts > 1 else {}))
    return found


def _worth(target: Target, f: Factors, row: ProductRow, lane: Axis, items: int) -> int:
    """As how many work items so many products on a row are worth handing to other workers."""
    work = 2 * estimate_volume(a.extent for a in (*f.m, lane, *f.k))
    return max(1, work * items // round(target.machine.grain_flops * max(
        1.0, row_rate(row, target.tuning))))


def _first_blocks(target: Target, f: Factors, choice: StageChoice, row: ProductRow, lane: Axis,
                  items: int) -> tuple[int, int]:
    """(rows of a work item, how many parts the columns are cut into) of so many products: where
    the search for a tile begins.  What is fitted here bounds that search and decides nothing but
    among tiles that cost alike."""
    nr, mr = row.tile.nr, row.tile.mr
    m, n = estimate_volume(a.extent for a in f.m), estimate(lane.extent)
    k = estimate_volume(a.extent for a in f.k)
    machine = target.machine
    want = -(-min(machine.items, _worth(target, f, row, lane, items)) // items)
    unique = next(estimate(a.extent) for a in f.k if a.name == choice.k) \
        if choice.a == "rows" else k
    least, size = machine.item_tiles * mr, DTYPES[f.a.dtype].size
    rows = max(least, machine.near.capacity // 2 // (size * unique))
    tuning = target.tuning
    pages = tuning.streamed_pages if k <= tuning.short_sum else tuning.stored_pages
    rows = min(rows, max(least, pages * max(1, tuning.page // (4 * n))))
    if row.expands_panels:  # so does each expand them
        rows = max(rows, min(m, tuning.expanded_rows))
    if choice.a == "rows" and choice.b == "packed":  # each block of rows packs columns again
        rows = max(rows, m if m < 2 * tuning.packed_rows else tuning.packed_rows)
    panels = -(-n // nr)
    n_tiles = 1
    if -(-m // rows) < want:
        # else every column block would pack the rows again
        if choice.a == "rows" or m <= least or row.shared is not None:
            n_tiles = min(panels, -(-want // -(-m // rows)))
        rows = min(rows, max(least, -(-m * n_tiles // want)))
    return rows, n_tiles


def _shared_columns(program: Program, target: Target, group: Group, stage: Stage,
                    tile: dict[str, int], layouts: Mapping[str, Layout]) -> dict[str, int]:
    """``tile`` of a product, cut along its columns where all of it would be one work item and one
    for each worker is predicted to take less time, what starting and awaiting the others takes
    included.  Rows that are few wait for the weights, whatever the arithmetic is:
    each worker fetches its own part, and in a loop finds it in its own cache again."""
    machine, sizes = target.machine, static_shape(tuple(a.extent for a in stage.axes))
    if machine.workers == 1 or machine.threads or machine.on_copies or sizes is None or prod(
            -(-n // tile.get(a.name, n)) for a, n in zip(stage.axes, sizes)) > 1:
        return tile
    nr = target.product_row(group.choices[stage.name].row).tile.nr
    lane = next(a for a in stage.axes if a.name == group.choices[stage.name].lanes)
    panels = -(-estimate(lane.extent) // nr)
    most = -(-panels // machine.workers)
    if most == panels:
        return tile
    shared = tile | {lane.name: nr * balance_panels(panels, most, machine.workers)}
    asked = Decided(program, target, group, layouts, resident_buffers(program, machine))
    taken = asked.cost(shared).seconds + fork_join_seconds(machine, machine.workers)
    return shared if taken < asked.cost(tile).seconds else tile
