"""Products whose sum can be run in slices: which those are, and of what steps."""

from aotc.ir.category import Factors
from aotc.ir.expr import Binary, Const, Load, walk
from aotc.ir.stage_choice import StageChoice
from aotc.sched.model.size import estimate_volume
from aotc.target.base import Target
from aotc.target.kernel_rows import ProductRow


def is_sliceable(target: Target, row: ProductRow, choice: StageChoice, f: Factors) -> bool:
    """True if a contraction's row, operands and sum allow slices: rows read in place, panels or
    columns in place, static reduction axes, vectors of a fixed length."""
    return (target.part_loads and row.in_floats and row.tile.mr > 1
            and choice.a == "rows"
            and (choice.b == "panel" or choice.b == "direct" and not tap_axes(f, choice))
            and all(isinstance(r.extent, Const) for r in f.k))


def group_steps(f: Factors) -> int:
    """Steps of the sum in a group of grouped weights, the lane operand of Factors: all of them
    where there is one group."""
    assert isinstance(f.b, Load), f
    found = [n.b for n in walk(f.b.index[0]) if isinstance(n, Binary) and n.op == "floordiv"]
    if not found:
        return estimate_volume(a.extent for a in f.k)
    assert isinstance(found[0], Const), found[0]
    return int(found[0].value)


def tap_axes(f: Factors, choice: StageChoice) -> list[str]:
    """Names of a sum's axes around the innermost one that are no single step."""
    return [r.name for r in f.k if r.extent != Const(1) and r.name != choice.k]
