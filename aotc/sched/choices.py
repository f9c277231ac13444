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
from aotc.target.base import Target
from aotc.target.kernel_rows import KernelRow, ProductRow

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
    floats = isinstance(row, ProductRow) and row.in_floats
    known = (_ALONE | _SHARED if target.machine.threads else _ALONE)[
        "contraction" if floats else row.category]
    block = ("block",) if row.block > 1 else ()
    vectors = target.vectors
    alone, staged = not target.machine.threads, row.staging is not None
    none = {x for x, there in (("stages", staged), ("unroll", not vectors.fixed),
                               ("reread", vectors.registers > 0), ("quotients", alone),
                               *((k, not vectors.fixed) for k in ("registers", "block_registers")),
                               *((k, alone and vectors.prefetches) for k in LOOKUPS),
                               *((k, staged) for k in FETCHES)) if not there}
    return tuple(c for c in known if c not in none) + block


def row_faults(row: KernelRow, loops: Loops) -> list[str]:
    """Values of choices that a row cannot have, though others can."""
    staging, faults, stages = row.staging, [], loops.get("stages")
    if staging is None:
        return []
    if isinstance(stages, int) and not staging.least <= stages <= staging.most:
        faults.append(f"stages {stages}; {row.name} takes {staging.least} to {staging.most}")
    return faults + [f"{key} {loops[key]!r}; {row.name} takes {' or '.join(staging.ways)}"
                     for key in ("a_fetch", "b_fetch") if loops.get(key, staging.ways[0])
                     not in staging.ways and loops[key] in CHOICES[key]]


__all__ = ["choices_of", "row_faults"]
