"""How stages are written whose work items are one thread's."""

from collections.abc import Sequence

from aotc.ir.expr import Const
from aotc.ir.plan import Contract, Nest
from aotc.ir.stage_choice import TEXTS
from aotc.ir.statements import Range
from aotc.ir.tile_statements import is_narrow
from aotc.sched.cost.block_cost import cheapest
from aotc.sched.cost.step_cost import reread_cost, unroll_cost
from aotc.sched.expand.ahead import streamed
from aotc.sched.expand.contracts import MADE, packs_lanes
from aotc.sched.expand.digit_loops import by_digits
from aotc.sched.expand.epilogues import has_polynomials, sums_beside
from aotc.sched.expand.fetches import epilogue_places, in_pieces, in_short_rows, panel_follows
from aotc.sched.expand.in_place import rereads, unrolls, written_out
from aotc.sched.expand.lookups import places_named, tables_ahead
from aotc.sched.expand.making import Making
from aotc.sched.expand.nests import is_blocked, stands_beside, whole_vectors
from aotc.sched.expand.row_tails import ends_anywhere
from aotc.target.tuning import Tuning

Found = dict[str, int | str]


def own_product(c: Contract, alone: bool, making: Making) -> Found:
    """The choices of a product that its Contract leaves open.  alone: it is the only stage of its
    kernel.

    Rows that are packed once per tile serve all panels.  Sums in registers beside other stages
    stand apart: compilers keep what those use again and again (constants of an exponential) in
    registers, too, and then spill sums in the loop over k.  Eight stages of mobilevit_s in one
    function took 1.2 times as long."""
    found: Found = {"order": "rows" if c.a.mode == "packed" and c.b.mode not in MADE else "columns"}
    if not alone:
        found["apart"] = int(written_out(c, making))
    if is_narrow(c.dtypes):
        if c.a.mode == "packed":
            found["copied_run"] = making.tuning.copied_run
        if sums_beside(c, making):  # coefficients of polynomials leave registers for one vector
            found["columns"] = 1 if has_polynomials(c) else c.nv
        return found
    if epilogue_places(c, making):
        found["fetch_epilogue"] = 1
    if panel_follows(c, making):
        found["fetch_panel"] = 1
    if in_short_rows(c, making):
        found["fetch_tiles"] = making.tuning.fetch_tiles
    if in_pieces(c, making):
        found["fetch_rows"] = making.tuning.fetch_rows
    if ends_anywhere(c, making):
        found["tails"] = 1
    if rereads(c, making):
        found["reread"] = _reread(c, making)
    if unrolls(c, making):  # rows whose elements lie side by side are read several at a time
        unit = c.a.mode == "packed" or c.a.stride == Const(1)
        found["unroll"] = _unroll(making.tuning) if unit else 1
    if packs_lanes(c) and not making.vectors.fixed:
        found["registers"] = making.vectors.groups[0]
    return found


def _reread(c: Contract, making: Making) -> int:
    """Vectors of columns that the sums of a tile leave no register for."""
    registers, ways = making.vectors.registers, range(c.nv + 1)
    return cheapest(ways, [reread_cost(c.mr, c.nv, registers, n, making.tuning) for n in ways], 0)


def _unroll(tuning: Tuning) -> int:
    """Steps that micro-kernels write out: the fewest of those that take as long."""
    low, high = TEXTS["unroll"]
    ways = range(int(low), int(high) + 1)
    return cheapest(ways, [unroll_cost(n, tuning) for n in ways], tuning.slack)


def own_fold(nests: Sequence[Nest], making: Making) -> Found:
    """The choices of a stage that all of its Nests share: values as wide as registers allow, loops
    without divisions, vectors side by side, in as few passes as there can be, and how far ahead
    looked up rows and a window's blocks are fetched."""
    found, tuning = _registers(nests, making), making.tuning
    if any(by_digits(n, making) is not n for n in nests):
        found["quotients"] = 1
    if any(_looks_ahead(n, making) for n in nests):
        found |= {"lookup_rows": tuning.lookup_rows, "lookup_lines": tuning.lookup_lines}
    vectors = [n for nest in nests for n in _vectors_beside(nest, making)]
    if vectors:
        found["columns"] = min(range(tuning.columns_most, 1, -1), key=lambda w: sum(
            v // min(v, w) + v % min(v, w) for v in vectors))
    if any(_ahead(nest, making) for nest in nests):
        found["ahead"] = tuning.window_ahead
    return found


def _registers(nests: Sequence[Nest], making: Making) -> Found:
    """Registers of a vector value where vectors have any length: all that there are, but for those
    that the accumulators of a block need."""
    if making.vectors.fixed:
        return {}
    found, widest = dict[str, int | str](), making.vectors.groups[0]
    for nest in nests:
        if is_blocked(nest):
            found["block_registers"] = min(widest, making.tuning.block_registers)
        elif nest.vector and (nest.block == 1 or nest.folds_lanes):
            found["registers"] = widest
    return found


def _lanes(nest: Nest) -> Range | None:
    """The Range of a Nest's lanes, where vectors of it are taken one by one or side by side."""
    return None if nest.block > 1 else next(
        (r for r in nest.ranges if r.axis.name == nest.vector), None)


def _looks_ahead(nest: Nest, making: Making) -> bool:
    """True for rows of a table that may be fetched ahead."""
    lane = _lanes(nest)
    return lane is not None and bool(tables_ahead(
        nest, lane, [r for r in nest.ranges if r is not lane], making))


def _vectors_beside(nest: Nest, making: Making) -> list[int]:
    """Whole vectors of a fold that may stand side by side: one number, or none."""
    lane = _lanes(nest)
    if lane is None:
        return []
    looked, _ = places_named(nest, lane, making)
    return [whole_vectors(looked, lane)] if stands_beside(looked, lane, making) else []


def _ahead(nest: Nest, making: Making) -> bool:
    """True for a blocked window whose next blocks may be fetched."""
    if nest.block == 1 or nest.fold == "none":
        return False
    lane, axis = (next((r.axis for r in nest.ranges if r.axis.name == name), None)
                  for name in (nest.vector, nest.block_axis))
    return lane is not None and axis is not None and (
        streamed(nest, lane, axis, making) is not None)


__all__ = ["own_fold", "own_product"]
