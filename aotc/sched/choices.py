"""What a Schedule may say of a stage's loops."""

from aotc.ir.expr import Const
from aotc.ir.schedule import (
    CHOICES,
    FETCHES,
    FOLD,
    LOOKUPS,
    NEST,
    PRODUCT,
    SHARED_FOLD,
    SHARED_PRODUCT,
    Group,
    Loops,
)
from aotc.ir.simplify import upper
from aotc.sched.model.stages import Stage
from aotc.target.base import Target, Ukernel

# by the category of its row: on machines whose work items are one thread's, and where threads
# share one
_ALONE = {"loops": ("quotients", "registers"), "contraction": ("lanes", "k", "a", "b", *PRODUCT),
          "dot": ("lanes", "k", "a", "b", "order", "apart", "copied_run", "columns", "registers"),
          "transform": ("lanes", "registers"),
          **dict.fromkeys(("map", "move"), ("lanes", "digits", *NEST)),
          **dict.fromkeys(("reduction", "window"), ("lanes", *FOLD))}
_SHARED = {"contraction": ("lanes", "k", "a", "b", *SHARED_PRODUCT),
           **dict.fromkeys(("reduction", "window"), ("lanes", *SHARED_FOLD))}


def choices_of(target: Target, group: Group, stage: str) -> tuple[str, ...]:
    """The names of the choices that ``loops`` of a stage may have; others mean nothing for its row
    or on this target."""
    row = target.row(group.ukernel[stage])
    # what is expanded to f32, micro-kernels of f32 read
    floats = row.category == "dot" and row.dtypes[0] == "f32" and "expanded" in row.tile
    known = (_ALONE | _SHARED if target.machine.threads else _ALONE)[
        "contraction" if floats else row.category]
    block = ("block",) if row.tile.get("block", 1) > 1 else ()
    vectors = target.vectors
    alone = not target.machine.threads
    none = {x for x, there in (("stages", "stages" in row.tile), ("unroll", not vectors.fixed),
                               ("reread", vectors.registers > 0), ("quotients", alone),
                               *((k, not vectors.fixed) for k in ("registers", "block_registers")),
                               *((k, alone and vectors.prefetches) for k in LOOKUPS),
                               *((k, "fetch" in row.tile) for k in FETCHES)) if not there}
    return tuple(c for c in known if c not in none) + block


def row_faults(row: Ukernel, loops: Loops) -> list[str]:
    """Values of choices that a row cannot have, though others can."""
    faults, stages, ways = [], loops.get("stages"), row.tile.get("fetch", ())
    if isinstance(stages, int) and "stages_range" in row.tile:
        low, high = row.tile["stages_range"]
        if not low <= stages <= high:
            faults.append(f"stages {stages}; {row.name} takes {low} to {high}")
    return faults + [f"{key} {loops[key]!r}; {row.name} takes {' or '.join(ways)}"
                     for key in ("a_fetch", "b_fetch") if ways and loops.get(key, ways[0])
                     not in ways and loops[key] in CHOICES[key]]


def sums_faults(target: Target, g: Group, s: Stage, row: Ukernel) -> list[str]:
    """Why the sums of a stage cannot stand where its ``loops`` say."""
    where, sliced = g.loops.get(s.name, {}).get("sums"), _in_slices(g, s, row)
    if where == "memory" and sliced:
        return ["sums in slices stand in registers; remove sums or split"]
    if where == "registers" and not target.vectors.tiles and not sliced:
        return [f"{target.name} has no sums in registers; sums: memory"]
    return []


def _in_slices(g: Group, s: Stage, row: Ukernel) -> bool:
    """True if a product's sums are cut into slices: its ``split`` is shorter than an axis, or each
    of several taps is one."""
    split = g.split.get(s.name, {})
    taps = any(r.name not in split and r.extent != Const(1) for r in s.raxes)
    return any((upper(r.extent) or n + 1) > n for r in s.raxes if (n := split.get(r.name))) or (
        bool(split) and taps and "unit" not in row.tile)


__all__ = ["choices_of", "row_faults", "sums_faults"]
