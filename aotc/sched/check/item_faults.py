"""What is wrong with how a group's work items go along an axis, in a run, or balanced, and along
several that are counted through as one."""

from aotc.ir.program import Program
from aotc.ir.schedule import Group
from aotc.sched.model.boxes import patch_counts
from aotc.sched.model.stages import Stage, find_factors, group_stages
from aotc.target.base import Machine, Target


def item_faults(machine: Machine, anchor: Stage, g: Group) -> list[str]:
    """Faults of ``run``, ``balance`` and ``patch`` of a group whose tile is right; [] if there are
    none."""
    return [*_run(machine, g), *_balance(machine, g), *_patch(machine, anchor, g)]


def _run(machine: Machine, g: Group) -> list[str]:
    """What a work item walks along: one tiled axis, in whole steps, on one thread."""
    if not g.run:
        return []
    if machine.threads or len(g.run) > 1:
        return [f"group {g.name}: run of {', '.join(g.run)}; a work item makes steps along one "
                "axis, where it is one thread's; remove it"]
    return [f"group {g.name}: run {a}/{n!r}; choose a tiled axis and a multiple of its tile: "
            + (", ".join(f"{x}/{t}" for x, t in g.tile.items()) or "none")
            for a, n in g.run.items() if a not in g.tile or not isinstance(n, int)
            or n < 1 or n % g.tile[a]]


def _balance(machine: Machine, g: Group) -> list[str]:
    """One tiled axis, of which tiles are whole steps, on workers that are threads."""
    if not g.balance:
        return []
    (axis, step), *more = g.balance.items()
    if more or machine.threads or machine.managed:
        return [f"group {g.name}: balance of {', '.join(g.balance)}; work items are made smaller "
                "along one axis, where a worker is a thread with caches; remove it"]
    tile = g.tile.get(axis)
    if tile is None or not isinstance(step, int) or step < 1 or tile % step or (
            step != tile and axis in g.run):
        return [f"group {g.name}: balance {axis}/{step!r}; choose a tiled axis and what its tile "
                "is a multiple of, of a run's axis its tile: "
                + (", ".join(f"{x}/{t}" for x, t in g.tile.items()) or "none")]
    return []


def _patch(machine: Machine, anchor: Stage, g: Group) -> list[str]:
    """One of the two innermost axes that are cut, whose tiles are bands of whole patches, where
    work items run in no order."""
    if not g.patch:
        return []
    said = ", ".join(f"{a}/{n!r}" for a, n in g.patch.items())
    if machine.in_order or not machine.threads:
        return [f"group {g.name}: patch {said}; a worker takes neighbouring work items, in the "
                "order of parallel: remove it"]
    counts = patch_counts(anchor, g)
    if len(g.patch) == 1 and all(a in counts and isinstance(n, int) and 1 < n <= counts[a]
                                 and counts[a] % n == 0 for a, n in g.patch.items()):
        return []
    return [f"group {g.name}: patch {said}; name one of two innermost tiled axes of known extents, "
            "and what divides its tiles: "
            + (", ".join(f"{a} has {n}" for a, n in counts.items()) or "there are none")]


def flat_faults(program: Program, target: Target, g: Group) -> list[str]:
    """Faults of ``flat``: it is all row axes of a product that is alone in its group and that
    threads share, a tile at a time."""
    stages = group_stages(program, g.by_axes) if g.flat else ()
    if not stages:
        return []
    where, s = f"group {g.name}: flat {', '.join(g.flat)}", stages[0]
    row = next((u for u in target.ukernels if u.name == g.choice(s.name).row), None)
    if len(stages) > 1 or row is None or row.staging is None:
        return [f"{where}; only the rows of a product alone in its group, on a row whose tiles "
                "threads share, are counted through: remove it"]
    f = find_factors(s, g.choice(s.name).lanes)
    rows = () if f is None else tuple(a.name for a in s.axes if a in f.m)
    return [] if f is None or g.flat == rows else [
        f"{where}; name all axes of the product's rows, outermost first: {', '.join(rows)}"]


__all__ = ["flat_faults", "item_faults"]
