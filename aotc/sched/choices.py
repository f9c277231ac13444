"""What a Schedule may say of a stage's loops."""

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


__all__ = ["choices_of", "row_faults"]
