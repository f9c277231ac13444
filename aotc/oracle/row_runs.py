"""The statements of rows in registers executed in numpy: what a team holds is an array of its own
in every row."""

from collections.abc import Callable

from aotc.ir.kernel.row_statements import HeldRow, RowShare, RowTeams
from aotc.ir.statements import Alloc, Spread
from aotc.oracle.stream_runs import StreamRuns


class RowRuns(StreamRuns):
    """The statements of ``row_statements.py``."""

    spread: Callable[[Spread], None]

    def row_teams(self, s: RowTeams) -> None:
        self.spread(Spread(s.ranges, "groups", s.size, s.body))

    def held_row(self, s: HeldRow) -> None:
        self.alloc(Alloc(s.name, s.dtype, s.elements))

    def row_share(self, s: RowShare) -> None:
        self.spread(Spread(s.ranges, "group", s.size, s.body))


__all__ = ["RowRuns"]
