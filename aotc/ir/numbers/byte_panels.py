"""Panels of grouped weights as a work item expands them for rows of integers, in bytes.

Rows are signed numbers of 8 bits, stored 128 larger as u8, and an instruction adds up four products
of a u8 and an s8; or of 16 bits, of which one adds up two products.  Of each group a panel of NR
columns has

    i32[NR]            what its products start from: -128 times the sum of the group's numbers, or 0
    f32[NR]            its scales
    i8[size/4, NR, 4]  its numbers, codes less zero points, four neighbours along the sum side by
                       side, and zeros behind the last step of the sum; i16[size/2, NR, 2] for rows
                       of 16 bits
"""

from dataclasses import dataclass

from aotc.ir.numbers.grouped import Grouping

LANE = 4  # bytes of a lane of sums, and of the neighbours along the sum that it takes at a time
HEAD = 8  # bytes of a column before its numbers


def group_room(g: Grouping, step: int) -> int:
    """Bytes of a group of one column, whose numbers lie by ``step`` neighbours along the sum."""
    return HEAD + g.size * LANE // step


@dataclass(frozen=True)
class PanelPlaces:
    """Of a group of a panel of ``nr`` columns: bytes before its scales and before its numbers,
    neighbours along the sum that lie side by side, numbers of so many, and bytes of all."""

    scales: int
    numbers: int
    step: int
    side: int
    group: int

    @classmethod
    def of(cls, g: Grouping, nr: int, step: int) -> "PanelPlaces":
        """The PanelPlaces of a grouping."""
        return cls(HEAD // 2 * nr, HEAD * nr, step, step * nr, group_room(g, step) * nr)


def panel_room(g: Grouping, depth: int, step: int) -> int:
    """Bytes of one column of ``depth`` steps of the sum."""
    return -(-depth // g.size) * group_room(g, step)


def panel_fault(g: Grouping, step: int) -> str | None:
    """Why weights have no such panel; None if they have one."""
    if step == LANE and g.bits == 8 and g.zeros:
        return "weights that are numbers of 8 bits, without zero points"
    return None if g.size % step == 0 else f"groups of a multiple of {step}"


__all__ = ["HEAD", "LANE", "PanelPlaces", "group_room", "panel_fault", "panel_room"]
