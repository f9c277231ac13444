"""Products whose sum is run in slices: where many rows meet weights that no cache holds.

With the whole sum in one go, a work item reads all its rows again for every panel of the weights,
or all panels again for every few rows.  In slices, a slice of all its rows stays in the cache while
the weights stream by once; what has been summed so far waits in scratch, one register tile behind
the other.  A window's taps read the same rows, so that its panels alone decide: where one does not
stay in the cache beside them, every tap is a slice.  Columns may be read in place, not in panels,
as long as there are no taps.

Where work items are single register tiles, of a block of threads each, a product of few rows and
columns has fewer of them than there are workers, and each sums for long while most workers wait.
In parts (``passes.sums.split_k``) there are as many more, and one kernel more, which adds up.  So
with other folds that make few numbers of many.
"""

from collections.abc import Iterator

from aotc.ir.category import Factors
from aotc.ir.expr import Axis, Binary, Const, Load, walk
from aotc.ir.program import Compute, Program, Rewrite, static_shape
from aotc.ir.schedule import Group, Loops
from aotc.passes.sums.split_k import RULE, LongSum, match_sum
from aotc.sched.cost.part_cost import fold_seconds, product_seconds
from aotc.sched.model.size import estimate, estimate_volume
from aotc.sched.model.stages import Stage
from aotc.sched.model.tile_model import Widths
from aotc.sched.model.units import unit_slice_faults
from aotc.target.base import Machine, Target, Ukernel


def sliceable(target: Target, row: Ukernel, loops: Loops, f: Factors) -> bool:
    """True if a contraction's row, operands and sum allow slices: rows read in place, panels or
    columns in place, static reduction axes, vectors of a fixed length."""
    in_floats = row.category == "contraction" or "expanded" in row.tile and f.a.dtype == "f32"
    return (target.part_loads and in_floats and row.tile["mr"] > 1
            and loops.get("a") == "rows"
            and (loops.get("b") == "panel" or loops.get("b") == "direct" and not tap_axes(f, loops))
            and all(isinstance(r.extent, Const) for r in f.k))


def choose_slices(target: Target, row: Ukernel, loops: Loops, f: Factors,
                  lane: Axis) -> tuple[int, int, dict[str, int]] | None:
    """(rows, columns, {axis: steps of the sum}) of a work item and its slices; None if the sum runs
    whole: it is short, the rows fit into the cache at once, the weights do, or a window's panel
    does or serves too few rows to be read from there.  These are conditions of what fits, as those
    of a level of memory are: slices move together what the whole sum does, and what falls out of a
    cache between two panels is no term of the cost, which could not tell them apart."""
    level, tuning = target.machine.near, target.tuning
    m, n = estimate_volume(a.extent for a in f.m), estimate(lane.extent)
    k = estimate_volume(a.extent for a in f.k)
    mr, nr = row.tile["mr"], row.tile["nr"]
    if not sliceable(target, row, loops, f) or k < 2 * tuning.slice_steps:
        return None
    if "expanded" in row.tile:
        return _expanded(target, row, loops, f, lane)
    if 4 * k * n <= 2 * level.capacity:
        return None
    taps = tap_axes(f, loops)
    if taps and (4 * k * nr <= level.capacity * level.usable or m < 4 * mr):
        return None
    if not taps and 4 * k * m <= level.capacity // 2:
        return None
    rows = -(-min(m, tuning.slice_rows) // mr) * mr
    panels = balanced(-(-n // nr), tuning.slice_panels, target.machine.workers, -(-m // rows))
    steps = tuning.slice_steps if loops["b"] == "panel" else tuning.slice_in_place
    return rows, panels * nr, dict.fromkeys(taps, 1) | {loops["k"]: steps}


def _expanded(target: Target, row: Ukernel, loops: Loops, f: Factors,
              lane: Axis) -> tuple[int, int, dict[str, int]]:
    """The same where panels are expanded: slices of whole groups, so that no more is in scratch at
    a time."""
    m, n, tuning = estimate_volume(a.extent for a in f.m), estimate(lane.extent), target.tuning
    rows = -(-min(m, tuning.expanded_rows) // row.tile["mr"]) * row.tile["mr"]
    panels = balanced(-(-n // row.tile["nr"]), tuning.slice_panels, target.machine.workers,
                      -(-m // rows))
    steps = tuning.slice_steps + -tuning.slice_steps % group_steps(f)
    return rows, panels * row.tile["nr"], {loops["k"]: steps}


def group_steps(f: Factors) -> int:
    """Steps of the sum in a group of grouped weights, the lane operand of Factors."""
    assert isinstance(f.b, Load), f
    found = [n.b for n in walk(f.b.index[0]) if isinstance(n, Binary) and n.op == "floordiv"]
    return int(found[0].value) if found and isinstance(found[0], Const) else 1


def tap_axes(f: Factors, loops: Loops) -> list[str]:
    """Names of a sum's axes around the innermost one that are no single step."""
    return [r.name for r in f.k if r.extent != Const(1) and r.name != loops["k"]]


def balanced(panels: int, most: int, workers: int, blocks: int = 1) -> int:
    """Panels of one work item, at most ``most``: as many as let the workers end together.  blocks:
    of rows, each of which meets all panels."""
    def longest(per_item):
        return -(-blocks * -(-panels // per_item) // workers) * per_item

    return min(range(1, most + 1), key=lambda p: (longest(p), -p))


def slice_faults(target: Target, g: Group, s: Stage, f: Factors | None, row: Ukernel) -> list[str]:
    """What is wrong with the Group's ``split`` of stage ``s``, a contraction with Factors ``f``."""
    split, loops = g.split.get(s.name), g.loops.get(s.name, {})
    if not split:
        return []
    where = f"group {g.name}: split of {s.name}"
    if "unit" in row.tile:
        return [f"{where}: {x}" for x in unit_slice_faults(g, s, loops, f)]
    if f is None or not sliceable(target, row, loops, f):
        return [f"{where}: sums run in slices where a contraction reads rows, and panels or "
                "columns, with static reduction axes, on vectors of a fixed length; remove it"]
    taps = tap_axes(f, loops)
    wrong = [a for a, n in split.items() if not isinstance(n, int) or n < 1
             or a != loops["k"] and (a not in taps or n > 1)]
    choose = f"choose {loops['k']} and a positive number of steps" + "".join(
        f", {t} by 1" for t in taps)
    if "expanded" in row.tile and not wrong and split.get(loops["k"], 0) % group_steps(f):
        return [f"{where}: {loops['k']!r} by {split[loops['k']]!r}; choose a multiple of "
                f"{group_steps(f)}, whole groups"]
    return [f"{where}: {a!r} by {split[a]!r}; {choose}" for a in wrong] or [
        f"{where}: {a!r} is missing; {choose}" for a in sorted({*taps, loops["k"]} - set(split))]


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


# ---------------------------------------------------------------- parts

def choose_split_k(program: Program, target: Target,
                   taken: set[str]) -> tuple[Rewrite, ...]:
    """The rewrites ``split_k`` of a Program, in program order, but of the computes ``taken``; none
    where work items are not single tiles, shared by threads."""
    if not target.machine.threads or target.machine.item_tiles != 1:
        return ()
    found = []
    for c in program.steps:
        if isinstance(c, Compute) and c.out not in taken and static_shape(
                program.shape(c.out)) is not None:
            m = match_sum(program, c)
            parts = 1 if m is None else _parts(program, target, c, m)
            if parts > 1:
                found.append((RULE, c.out, {"parts": parts}))
    return tuple(found)


def _parts(program: Program, target: Target, c: Compute, m: LongSum) -> int:
    """Of how many parts a sum takes least time, 1 if it had better stay whole."""
    f = m.factors
    if f is None:
        return min((n for n in range(1, m.terms // 2 + 1) if m.terms % n == 0),
                   key=lambda n: fold_seconds(program, target.machine, c, n))
    if estimate_volume(a.extent for a in f.m) == 1:
        return 1  # of a single row threads share the sum already
    return min(_divisors(m.terms), key=lambda n: product_seconds(program, target, m, f, n))


def _divisors(terms: int) -> Iterator[int]:
    """1, and parts of a sum of so many terms whose steps can be fetched four at a time."""
    yield 1
    yield from (n for n in range(2, terms // 4 + 1) if terms % (4 * n) == 0)
