"""Panels of grouped weights as a work item expands them for rows of bytes.

Rows are signed numbers of 8 bits, stored 128 larger as u8, and an instruction adds up four products
of a u8 and an s8.  Of each group a panel of NR columns has

    i32[NR]            -128 times the sum of the group's numbers: what its products start from
    f32[NR]            its scales
    i8[size/4, NR, 4]  its numbers, codes less zero points, four neighbours along the sum side by
                       side, and zeros behind the last step of the sum
"""

from dataclasses import dataclass

from aotc.ir.numbers.grouped import Grouping

STEP = 4  # neighbours along the sum side by side
HEAD = 8  # bytes of a column before its numbers
MIDDLE = 128  # by which rows are larger


def group_room(g: Grouping) -> int:
    """Bytes of a group of one column."""
    return HEAD + g.size


@dataclass(frozen=True)
class PanelPlaces:
    """Bytes of a group of a panel of ``nr`` columns: before its scales, before its numbers, of four
    steps of those, and of all."""

    scales: int
    numbers: int
    four: int
    group: int

    @classmethod
    def of(cls, g: Grouping, nr: int) -> "PanelPlaces":
        """The PanelPlaces of a grouping."""
        return cls(STEP * nr, HEAD * nr, STEP * nr, group_room(g) * nr)


def panel_room(g: Grouping, depth: int) -> int:
    """Bytes of one column of ``depth`` steps of the sum."""
    return -(-depth // g.size) * group_room(g)


def panel_fault(g: Grouping) -> str | None:
    """Why weights have no such panel; None if they have one."""
    if g.bits == 8 and g.zeros:
        return "weights that are numbers of 8 bits, without zero points"
    return None if g.size % STEP == 0 else f"groups of a multiple of {STEP}"


__all__ = ["HEAD", "MIDDLE", "STEP", "PanelPlaces", "group_room", "panel_fault", "panel_room"]
