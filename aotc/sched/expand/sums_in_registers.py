"""Which register tiles write their sums where they are used, in named vectors, instead of calling
a micro-kernel that leaves them in memory."""

from aotc.ir.access import stride
from aotc.ir.dtypes import HALVES
from aotc.ir.expr import Axis, Binary, Cast, Const, Expr, Load, Unary, Where, walk
from aotc.ir.kernel.plan_stages import Contract
from aotc.ir.numbers.narrow import FLOAT_LANES
from aotc.ir.simplify import are_equal
from aotc.sched.expand.expansion import Expansion
from aotc.sched.model.size import sum_terms

_LIGHT = ("add", "sub", "mul", "min", "max")


def writes_out_sums(c: Contract, expansion: Expansion) -> bool:
    """True if the sums of the Contract's tiles are written where they are used: a unit leaves its
    own in memory."""
    return bool(c.slices) and not c.micro.unit or keeps_sums_in_registers(c, expansion)


def keeps_sums_in_registers(c: Contract, expansion: Expansion) -> bool:
    """True if the Contract's epilogue reads the sums of a tile in registers."""
    return may_use_registers(c, expansion) and expansion.how(c, "sums") == "registers"


def may_use_registers(c: Contract, expansion: Expansion) -> bool:
    """True if the Contract's epilogue may be written out per accumulator: it stores along the
    lanes and does arithmetic only, so that accumulators and what it needs fit into registers.
    Sums in parts join each other in memory."""
    nodes = [n for p in c.puts for n in walk(p.value)]
    return (expansion.vectors.tiles and c.acc.dtype == "f32" and not c.micro.part
            and all(p.guard is None and p.value.dtype in FLOAT_LANES
                    and are_equal(stride(p.offset, c.n.axis) or Const(0), Const(1)) for p in c.puts)
            and all(_light(n, c.n.axis) for n in nodes))


def rereads(c: Contract, expansion: Expansion) -> bool:
    """True if tiles may read some vectors of columns again for every multiply-add."""
    return bool(expansion.vectors.registers) and set(c.micro.dtypes) == {"f32"} and not c.micro.unit


def vectors_without_register(c: Contract, expansion: Expansion, rows: int) -> int:
    """Vectors of columns that find no register beside the sums of so many rows, the other columns
    and an element of A."""
    held = rows * c.micro.nv + c.micro.nv + 1
    return min(c.micro.nv, max(0, held - expansion.vectors.registers))


def unrolls(c: Contract, expansion: Expansion) -> bool:
    """True if several steps of a tile's sums may be written out: on vectors of any length."""
    return not expansion.vectors.fixed and not c.micro.narrow


def steps_written(c: Contract, expansion: Expansion) -> dict[str, int]:
    """How the steps of a tile's sums are written: ``reread`` and ``unroll`` of ``Tile``."""
    found = dict[str, int]()
    if rereads(c, expansion):
        found["reread"] = min(expansion.how(c, "reread"), c.micro.nv)
    if unrolls(c, expansion):
        found["unroll"] = expansion.how(c, "unroll")
    return found


def terms(c: Contract) -> int:
    """Terms of a Contract's longest sum; ``ENDLESS`` and more where that is not known."""
    return sum_terms(r.axis for r in c.sums)


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


__all__ = ["keeps_sums_in_registers", "may_use_registers", "one_tap", "plain_rows",
           "rereads", "steps_written", "terms", "unrolls", "vectors_without_register",
           "writes_out_sums"]
