"""Levels of precision that products may have, each one of its own."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from aotc.ir.dtypes import BF16, HALF, TF32
from aotc.ir.program import Program, Rewrite
from aotc.ir.schedule import WEIGHT_BITS, Schedule
from aotc.passes.precision import integer_rows, store_halves
from aotc.passes.precision.rounding_table import ROUNDING, rewrite_precision


@dataclass(frozen=True)
class Level:
    """precision: one of ``PRECISION``; rows: what those become that weights of few bits are
    multiplied by, "s16" or "s8", or "" where they stay f32."""

    precision: str
    rows: str = ""

    @property
    def row_bits(self) -> int:
        """Of an element of its rows, which are integers."""
        return int(self.rows[1:])

    def __str__(self) -> str:
        return f"{self.precision}, rows {self.rows}" if self.rows else self.precision


Levels = Mapping[str, Level]  # of computes
# rules that round anything: those, and tensors that are stored as the model declares them
ROUNDS = (*ROUNDING, store_halves.RULE)
ROWS = ("s16", "s8")  # of grouped weights, the most exact first
# what a budget of error chooses from, the least rounded first
LEVELS = (Level(TF32), Level(HALF), Level(BF16), *(
    Level(p, rows) for p in WEIGHT_BITS for rows in ("", *ROWS)))


def uniform_levels(program: Program, level: Level) -> Levels:
    """The same Level for every compute."""
    return {out: level for s in program.steps for out in s.outs}


def has_rounding(schedule: Schedule) -> bool:
    """True if a Schedule, or one of a body, has a rewrite that rounds anything."""
    return any(rule in ROUNDS for rule, *_ in schedule.rewrites) or any(
        has_rounding(own) for bodies in schedule.regions.values() for own in bodies)


def computes_by_level(levels: Levels) -> Iterable[tuple[Level, frozenset[str]]]:
    """(Level, computes that have it), in the order of ``levels``."""
    for level in dict.fromkeys(levels.values()):
        yield level, frozenset(c for c, own in levels.items() if own == level)


def levels_of(rewrites: Iterable[Rewrite]) -> Levels:
    """Of the products whose operands rewrites round."""
    found: dict[str, Level] = {}
    for rule, compute, p in rewrites:
        precision = rewrite_precision(rule, p)
        if precision is not None:
            found[compute] = Level(precision)
        elif rule == integer_rows.RULE:  # of weights that the model brought, whatever their bits
            found[compute] = replace(found.get(compute, Level("int8w")), rows=f"s{p['bits']}")
    return found


__all__ = ["LEVELS", "ROUNDS", "ROWS", "Level", "Levels", "computes_by_level", "uniform_levels",
           "levels_of", "has_rounding"]
