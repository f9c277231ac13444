"""Which register tiles write their sums where they are used, in named vectors, instead of calling
a micro-kernel that leaves them in memory."""

from typing import Any

from aotc.ir.access import stride
from aotc.ir.dtypes import HALVES
from aotc.ir.expr import Axis, Binary, Cast, Const, Expr, Load, Unary, Where, walk
from aotc.ir.numbers.narrow import FLOAT_LANES
from aotc.ir.plan import Contract
from aotc.ir.schedule import CHOICES
from aotc.ir.simplify import same, upper
from aotc.ir.tile_statements import is_narrow
from aotc.sched.cost.block_cost import cheapest
from aotc.sched.cost.step_cost import reread_cost, unroll_cost
from aotc.sched.expand.making import Making
from aotc.target.tuning import Tuning

ENDLESS = 1 << 62
_LIGHT = ("add", "sub", "mul", "min", "max")


def written_out(c: Contract, making: Making) -> bool:
    """True if the sums of the Contract's tiles are written where they are used."""
    return bool(c.slices) or in_registers(c, making)


def in_registers(c: Contract, making: Making) -> bool:
    """True if the Contract's epilogue is worth writing out per accumulator: it stores along the
    lanes and does arithmetic only, so that accumulators and what it needs fit into registers."""
    nodes = [n for p in c.puts for n in walk(p.value)]
    tuning = making.tuning
    return (making.vectors.tiles and terms(c) <= tuning.inline_sum and c.acc.dtype == "f32"
            and sum(n.dtype == "f32" for n in nodes) <= tuning.epilogue_nodes
            and all(p.guard is None and p.value.dtype in FLOAT_LANES
                    and same(stride(p.offset, c.n.axis) or Const(0), Const(1)) for p in c.puts)
            and all(_light(n, c.n.axis) for n in nodes))


def usual_reread(c: Contract, making: Making, rows: int) -> int:
    """Vectors of columns that a tile of so many rows reads again for every multiply-add, because no
    register is left for them beside the sums, the other columns and an element of A."""
    registers = making.vectors.registers
    if c.dtypes != ("f32", "f32", "f32") or c.unit or not registers:
        return 0
    ways = range(c.nv + 1)
    return cheapest(ways, [reread_cost(rows, c.nv, registers, n, making.tuning) for n in ways], 0)


def usual_steps(c: Contract, making: Making) -> dict[str, int]:
    """How the steps of a tile's sums are written by rule, where that may be chosen.  Rows whose
    elements lie side by side are read several steps at a time on vectors of any length."""
    vectors, found = making.vectors, dict[str, int]()
    if vectors.registers and c.dtypes == ("f32", "f32", "f32") and not c.unit:
        found["reread"] = usual_reread(c, making, c.mr)
    if not vectors.fixed and not is_narrow(c.dtypes):
        unit = c.a.mode == "packed" or c.a.stride == Const(1)
        found["unroll"] = _usual_unroll(making.tuning) if unit else 1
    return found


def steps_written(c: Contract, making: Making) -> dict[str, Any]:
    """How the steps of a tile's sums are written: ``reread``, ``unroll`` and, where that is not by
    rule, the ``suffix`` of ``Tile``."""
    found = usual_steps(c, making)
    said = {k: making.how(c, k, v) for k, v in found.items()}
    if "reread" in said:
        said["reread"] = min(said["reread"], c.nv)
    return said | {"suffix": "".join(f"_{k}{v}" for k, v in said.items() if v != found[k])}


def _usual_unroll(tuning: Tuning) -> int:
    """Steps that micro-kernels write out: the fewest of those that take as long."""
    low, high = CHOICES["unroll"]
    ways = range(int(low), int(high) + 1)
    return cheapest(ways, [unroll_cost(n, tuning) for n in ways], tuning.slack)


def terms(c: Contract) -> int:
    """Terms of a Contract's longest sum; ``ENDLESS`` and more where that is not known."""
    n = 1
    for r in c.slice_taps + c.taps + (c.k,):
        n *= upper(r.axis.extent) or ENDLESS
    return n


def _light(e: Expr, lane: Axis) -> bool:
    if isinstance(e, Load):
        step = stride(e.index[0], lane)
        return e.dtype == "f32" and step in (Const(0), Const(1)) and not any(
            isinstance(n, Load) for n in walk(e.index[0]))
    if isinstance(e, Where) and e.dtype in FLOAT_LANES or isinstance(e, Cast) and (
            e.dtype == "f32" or e.dtype in HALVES and e.x.dtype != "f32"):
        return False
    if e.dtype == "f32" and isinstance(e, (Unary, Binary)):
        return e.op in _LIGHT or e.op in ("neg", "abs")
    return True


def plain_rows(c: Contract) -> bool:
    """True if a row's pointer follows from its number: no table of rows and taps is needed."""
    return c.a.mode == "rows" and len(c.m) == 1 and c.a.guard is None and one_tap(c)


def one_tap(c: Contract) -> bool:
    """True for a Contract with one tap."""
    return all(t.axis.extent == Const(1) for t in c.taps)


__all__ = ["in_registers", "one_tap", "plain_rows", "steps_written", "terms", "usual_reread",
           "usual_steps", "written_out"]
