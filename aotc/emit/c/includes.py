"""What a file of kernels includes and declares, asked of their statements."""

from collections.abc import Iterable
from dataclasses import dataclass

from aotc.ir.contents import nodes
from aotc.ir.dtypes import BF16, HALF, HALVES
from aotc.ir.kernel.plan_kernels import Kernel
from aotc.ir.kernel.plan_stages import Call
from aotc.ir.numbers.fixed_point import match_rescaled, match_shifted
from aotc.ir.numbers.narrow import SHORT
from aotc.ir.plan import Plan
from aotc.ir.simplify import upper
from aotc.ir.statements import For, Stmt, walk_body
from aotc.ir.tile_statements import Expand, RowTable, Tile, Vector
from aotc.target.micro_kernels import TILES


@dataclass(frozen=True)
class Needs:
    """``halves``: floats of 16 bits in lanes; ``bf16``: bf16 among them; ``narrow``: integers in
    lanes; ``fixed``: those that a multiplier and a shift scale; ``groups``: grouped weights;
    ``library``: library kernels; ``tiles``: matrix tiles; ``zeros``: f32 elements of the row that
    stands for rows outside of a padded tensor."""

    halves: bool = False
    bf16: bool = False
    narrow: bool = False
    fixed: bool = False
    groups: bool = False
    library: bool = False
    tiles: bool = False
    zeros: int = 0


def find_needs(kernels: Iterable[Kernel]) -> Needs:
    """What the statements of kernels need."""
    bodies = tuple(k.body for k in kernels)
    inner = [s for body in bodies for s in walk_body(body)]
    lanes = [s for s in inner if isinstance(s, For) and s.kind == "lanes" or isinstance(s, Vector)]
    dtypes = _dtypes(*bodies)
    return Needs(
        bool(dtypes & set(HALVES)) or any(
            isinstance(s, Tile) and HALF in s.micro.dtypes for s in inner), BF16 in dtypes,
        bool(_dtypes(*lanes) & {*SHORT, "i32"}),
        any(match_rescaled(n) or match_shifted(n) for n in nodes(bodies)),
        any(isinstance(s, Expand) for s in inner),
        any(isinstance(s, Call) for s in inner),
        any(map(uses_tiles, inner)),
        max((_reach(s) for s in inner if isinstance(s, RowTable)), default=0) if not any(
            isinstance(s, Tile) and s.micro.unit for s in inner) else 0)


def uses_tiles(s: Stmt) -> bool:
    """True for sums on matrix tiles, which a thread has to be given."""
    return isinstance(s, Tile) and s.micro.template == TILES


def has_groups(plan: Plan) -> bool:
    """True if a Plan reads grouped weights."""
    return any(isinstance(s, Expand) or isinstance(s, Tile) and s.micro.grouping is not None
               for k in plan.kernels for s in walk_body(k.body))


def _dtypes(*bodies: object) -> set[str]:
    return {n.dtype for n in nodes(bodies)}


def _reach(s: RowTable) -> int:
    """Zeros that a guarded row may read."""
    if s.guard is None or s.outside or s.reach is None:
        return 0
    most = upper(s.reach)
    assert most is not None, s  # such rows are legal only where there is a bound
    return most


__all__ = ["Needs", "has_groups", "find_needs", "uses_tiles"]
