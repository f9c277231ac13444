"""The statements of rows that threads have in registers from one fold or map to the next
(``HeldRows``).

    stmt = RowTeams | HeldRow | RowShare
"""

from dataclasses import dataclass

from aotc.ir.statements import Body, Range, Stmt, text_of


@dataclass(frozen=True)
class RowTeams(Stmt):
    """``body`` for the rows that are the points of ``ranges``, each by ``size`` threads side by
    side.  Those of more than a warp have one row at most, and all threads of the work item wait
    for each other where such a team has a ``Total``."""

    ranges: tuple[Range, ...]
    size: int
    body: Body

    def lines(self) -> list[str]:
        rows = ", ".join(map(str, self.ranges)) or "one row"
        return [f"{rows}, by {self.size} threads each", *text_of(self.body)]


@dataclass(frozen=True)
class HeldRow(Stmt):
    """``name``: up to ``elements`` of a row in the registers of its team, ``width`` neighbours of
    each of ``turns`` points of a ``RowShare`` in those of a thread."""

    name: str
    dtype: str
    elements: int
    turns: int
    width: int

    def lines(self) -> list[str]:
        return [f"registers {self.name} of a row of {self.elements} {self.dtype}, "
                f"{self.turns} x {self.width} a thread"]


@dataclass(frozen=True)
class RowShare(Stmt):
    """``body`` for the points of one range, up to ``turns`` of them by each of the ``size`` threads
    of a team: those at every so-many-th place, the same ones in all statements of a row, whose
    held elements it reads and stores by their number in the row."""

    ranges: tuple[Range, ...]
    size: int
    turns: int
    body: Body

    def lines(self) -> list[str]:
        return [f"each thread its {self.turns} of {self.ranges[0]}", *text_of(self.body)]


__all__ = ["HeldRow", "RowShare", "RowTeams"]
