"""Products whose sum is run in slices: where many rows meet weights that no cache holds.

With the whole sum in one go, a work item reads all its rows again for every panel of the weights,
or all panels again for every few rows.  In slices, a slice of all its rows stays in the cache while
the weights stream by once; what has been summed so far waits in scratch, one register tile behind
the other.
"""

from aotc.ir.expr import Const
from aotc.sched.size import estimate, estimate_volume

LONGEST = 512  # of a slice: its sums are loaded and stored once per so many steps
ROWS = 256  # of a work item: so often its part of the weights is used
PANELS = 4  # of a work item at most, whose sums wait in scratch


def sliceable(target, row, loops, f):
    """True if a contraction's row, operands and sum allow slices: rows read in place, panels, one
    static reduction axis, vectors of a fixed length."""
    return (target.part_loads and row.category == "contraction" and row.tile["mr"] > 1
            and loops.get("a") == "rows" and loops.get("b") == "panel"
            and all(r.extent == Const(1) or r.name == loops.get("k") and isinstance(r.extent, Const)
                    for r in f.k))


def choose_slices(target, row, loops, f, lane):
    """(rows, columns, steps of the sum) of a work item and its slices; None if the sum runs whole:
    it is short, the rows fit into the cache at once, or the weights do."""
    level = target.machine.level(target.machine.scratch)
    m, n = estimate_volume(a.extent for a in f.m), estimate(lane.extent)
    k = estimate_volume(a.extent for a in f.k)
    if not sliceable(target, row, loops, f) or k < 2 * LONGEST or 4 * k * n <= 2 * level.capacity \
            or 4 * k * m <= level.capacity // 2:
        return None
    mr, nr = row.tile["mr"], row.tile["nr"]
    rows = -(-min(m, ROWS) // mr) * mr
    panels = balanced(-(-n // nr), PANELS, target.machine.workers, -(-m // rows))
    return rows, panels * nr, LONGEST


def balanced(panels, most, workers, blocks=1):
    """Panels of one work item, at most ``most``: as many as let the workers end together.  blocks:
    of rows, each of which meets all panels."""
    def longest(per_item):
        return -(-blocks * -(-panels // per_item) // workers) * per_item

    return min(range(1, most + 1), key=lambda p: (longest(p), -p))


def slice_faults(target, g, s, f, row):
    """What is wrong with the Group's ``split`` of stage ``s``, a contraction with Factors ``f``."""
    split, loops = g.split.get(s.name), g.loops.get(s.name, {})
    if not split:
        return []
    where = f"group {g.name}: split of {s.name}"
    if f is None or not sliceable(target, row, loops, f):
        return [f"{where}: sums run in slices where a contraction reads rows and panels, with one "
                "static reduction axis, on vectors of a fixed length; remove it"]
    wrong = [a for a, n in split.items() if a != loops["k"] or not isinstance(n, int) or n < 1]
    return [f"{where}: {a!r} by {split[a]!r}; choose {loops['k']} and a positive number of steps"
            for a in wrong]
