"""Products whose sum is run in slices: where many rows meet weights that no cache holds.

With the whole sum in one go, a work item reads all its rows again for every panel of the weights,
or all panels again for every few rows.  In slices, a slice of all its rows stays in the cache while
the weights stream by once; what has been summed so far waits in scratch, one register tile behind
the other.  A window's taps read the same rows: of its sum every tap is a slice.  Columns may be
read in place, not in panels, as long as there are no taps.

How long slices are, and whether a sum is sliced at all, is asked of the cost (``panel_cost.py``
says what falls out of a cache between two uses); what usually fits is where the search begins.
"""

from collections.abc import Iterator

from aotc.ir.category import Factors
from aotc.ir.expr import Axis
from aotc.ir.stage_choice import StageChoice
from aotc.sched.model.group_numbers import Widths
from aotc.sched.model.size import estimate, estimate_volume
from aotc.sched.model.stages import Stage
from aotc.sched.rows.sliced_sums import group_steps, is_sliceable, tap_axes
from aotc.target.base import Machine, Target
from aotc.target.kernel_rows import ProductRow

Sliced = tuple[int, int, dict[str, int]]  # rows and columns of a work item, {axis: steps of a sum}
# steps, rows and panels, in halves of what usually fits
TRIED = ((2, 2, 2), (1, 2, 2), (4, 2, 2), (2, 1, 2), (2, 4, 2), (2, 2, 1), (2, 2, 4), (2, 2, 8))


def slice_candidates(target: Target, row: ProductRow, choice: StageChoice, f: Factors,
                     lane: Axis) -> list[Sliced]:
    """Ways to run a product's sum in slices; [] where it cannot be sliced or is short.  The first
    is what usually fits; others are smaller and larger, but where panels are expanded, of which
    whole groups are in scratch at a time."""
    tuning = target.tuning
    k = estimate_volume(a.extent for a in f.k)
    if not is_sliceable(target, row, choice, f) or k < 2 * tuning.slice_steps:
        return []
    m, n = estimate_volume(a.extent for a in f.m), estimate(lane.extent)
    mr, nr = row.tile.mr, row.tile.nr
    expanded = row.expands_panels
    group, most = (group_steps(f), tuning.expanded_rows) if expanded else (1, tuning.slice_rows)
    usual = tuning.slice_steps if choice.b == "panel" else tuning.slice_in_place
    found: dict[tuple[int, int, int], None] = {}
    for halves in TRIED[:1] if expanded else TRIED:
        steps, rows, panels = (max(1, x * of // 2) for x, of in zip(
            halves, (usual, most, tuning.slice_panels)))
        rows = -(-min(m, rows) // mr) * mr
        panels = balance_panels(-(-n // nr), panels, target.machine.workers, -(-m // rows))
        steps = min(steps + -steps % group, next(
            estimate(a.extent) for a in f.k if a.name == choice.k))
        found[rows, panels * nr, steps] = None
    taps = dict.fromkeys(tap_axes(f, choice), 1)
    return [(rows, columns, taps | {choice.k: steps}) for rows, columns, steps in found]


def leaves_cache(target: Target, row: ProductRow, choice: StageChoice, f: Factors,
                 lane: Axis) -> bool:
    """True if what the whole sum of a product reads again hardly stays in a worker's cache until
    then, neither weights nor rows, or a window's panel beside rows enough to read it from there:
    the search begins with slices then, and else with the whole sum."""
    level = target.machine.near
    m, k = (estimate_volume(a.extent for a in axes) for axes in (f.m, f.k))
    if 4 * k * estimate(lane.extent) <= 2 * level.capacity:
        return False
    if tap_axes(f, choice):
        return 4 * k * row.tile.nr > level.capacity * level.usable and m >= 4 * row.tile.mr
    return 4 * k * m > level.capacity // 2


def balance_panels(panels: int, most: int, workers: int, blocks: int = 1) -> int:
    """Panels of one work item, at most ``most``: as many as let the workers end together.  blocks:
    of rows, each of which meets all panels."""
    def longest(per_item: int) -> int:
        return -(-blocks * -(-panels // per_item) // workers) * per_item

    return min(_per_item(panels, most), key=lambda p: (longest(p), -p))


def _per_item(panels: int, most: int) -> Iterator[int]:
    """Numbers of panels, at most ``most``, of which fewer items are made than of any smaller
    one."""
    each = 1
    while each <= most:
        yield each
        items = -(-panels // each)
        if items <= 1:
            return
        each = -(-panels // (items - 1))


def streamed_fold(machine: Machine, s: Stage) -> dict[str, Widths]:
    """{variable of the reduction: extents it may have} of a Stage whose fold is so long that a line
    of each of its steps takes a large part of a worker's cache: it may read what it folds step by
    step and keep nothing of it.  {} for others, and for blocks of threads."""
    tuning = machine.tuning
    if not s.raxes or machine.threads or (estimate_volume(a.extent for a in s.raxes) * tuning.line
                                          <= tuning.long_fold * machine.near.capacity):
        return {}
    longest = max(s.raxes, key=lambda a: estimate(a.extent))
    return {f"{s.name}.{longest.name}": (1, estimate(longest.extent))}
