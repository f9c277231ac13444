"""What a Schedule may say of a stage, by its row and the target."""

from collections.abc import Callable

from aotc.ir.schedule import Group
from aotc.ir.stage_choice import FIELDS, LOOPS, TEXTS, Legal, StageChoice, is_legal, show_legal
from aotc.sched.rows.exchange import exchange_row
from aotc.target.base import Target
from aotc.target.kernel_rows import KernelRow, ProductRow


def _is_blocked(target: Target, row: KernelRow) -> bool:
    return row.block > 1


def _counts_registers(target: Target, row: KernelRow) -> bool:
    return target.vectors.registers > 0


def _exchanges(target: Target, row: KernelRow) -> bool:
    return row.category == "contraction" and target.lanes > 1 and (
        exchange_row(target) is not None)


# what a choice may need of its target and row (``needs`` of its field)
FACTS: dict[str, Callable[[Target, KernelRow], bool]] = {
    "": lambda target, row: True,
    "any length": lambda target, row: not target.vectors.fixed,
    "registers": _counts_registers,
    "tiles": lambda target, row: target.vectors.tiles,
    "prefetches": lambda target, row: target.vectors.prefetches,
    "blocks": _is_blocked,
    "staging": lambda target, row: row.staging is not None,
    "exchanges": _exchanges,
}


def choices_of(target: Target, group: Group, stage: str) -> tuple[str, ...]:
    """The names of the choices that ``loops`` of a stage may have; others mean nothing for its row
    or on this target."""
    row = target.row(group.choices[stage].row)
    # what is expanded to f32, micro-kernels of f32 read
    floats = isinstance(row, ProductRow) and row.in_floats
    category = "contraction" if floats else row.category
    there = {name for name, holds in FACTS.items() if holds(target, row)}
    said = "shared" if target.machine.threads else "rows"
    return tuple(name for name in LOOPS for notes in (FIELDS[name].metadata,)
                 if category in notes[said] and notes["needs"] in there)


def row_legal(row: KernelRow) -> dict[str, Legal]:
    """{choice: values that a row can have}, where those are fewer than others can."""
    staging = row.staging
    return {} if staging is None else {"stages": (staging.least, staging.most),
                                       "a_fetch": staging.ways,
                                       "b_fetch": tuple(w for w in staging.ways if w != "place")}


def value_faults(row: KernelRow, choice: StageChoice) -> list[str]:
    """Values that a choice of how the statements of a stage are written cannot have."""
    own = row_legal(row)
    faults = []
    for name, value in choice.text.said.items():
        legal = own.get(name, TEXTS[name])
        if not is_legal(value, legal):
            takes = f"{row.name} takes" if name in own else "choose"
            faults.append(f"{name} {value!r}; {takes} {show_legal(legal)}")
    if choice.order == "rows" and choice.transposed_rows:
        faults.append(f"transposed_rows {choice.transposed_rows!r} in order 'rows', whose panels "
                      "run inside the loop over rows; choose 0, or order 'columns'")
    return faults


__all__ = ["FACTS", "choices_of", "row_legal", "value_faults"]
