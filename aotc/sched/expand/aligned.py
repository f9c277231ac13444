"""Quotients of the lane axis that are the same in all lanes of a vector: where vectors begin at
multiples of their lanes, none crosses a multiple of a divisor that is whole vectors long.

The columns of a product that are split into heads (``n // 32`` with vectors of 8) are so stored a
vector at a time instead of lane by lane.
"""

from dataclasses import replace
from typing import TypeVar

from aotc.ir.expr import Axis, Binary, Const, Expr, rewrite
from aotc.ir.kernel.plan_stages import Contract, Nest
from aotc.ir.simplify import simplify
from aotc.ir.statements import FIRST, Range
from aotc.sched.expand.expansion import Expansion

S = TypeVar("S", Contract, Nest)


def divide_by_vectors(stage: S, r: Range, expansion: Expansion) -> S:
    """The Contract or Nest with such quotients of its lane axis, of Range ``r``, taken of the first
    lane of its vector (the axis's name behind ``FIRST``), which no lane moves.  Vectors of a length
    known at run time begin anywhere."""
    lanes = stage.micro.lanes if isinstance(stage, Contract) else stage.lanes
    if lanes == 1 or not expansion.vectors.fixed or not (
            _in_panels(stage) or simplify(r.lo % lanes) == Const(0)):
        return stage
    first = Axis(FIRST + r.axis.name, r.axis.extent)

    def visit(e: Expr) -> Expr | None:
        if not isinstance(e, Binary) or e.op != "floordiv" or e.a != r.axis:
            return None
        whole = isinstance(e.b, Const) and e.b.value % lanes == 0
        return Binary("floordiv", first, e.b) if whole else None

    return replace(stage, puts=tuple(
        replace(p, offset=rewrite(p.offset, visit), value=rewrite(p.value, visit))
        for p in stage.puts))


def _in_panels(stage: Contract | Nest) -> bool:
    """True for a Contract whose columns begin with a panel of weights, which is whole vectors."""
    return isinstance(stage, Contract) and stage.b.mode == "panel"
