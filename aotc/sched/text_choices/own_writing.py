"""How stages are written whose work items are one thread's."""

from collections.abc import Sequence

from aotc.ir.expr import Const, Expr
from aotc.ir.kernel.plan_kernels import Size
from aotc.ir.kernel.plan_stages import Contract, Nest
from aotc.ir.stage_choice import TEXTS
from aotc.ir.statements import Range
from aotc.sched.cost.block_cost import pick_cheapest
from aotc.sched.cost.step_cost import pays_in_registers, reread_cost, unroll_cost
from aotc.sched.expand.contracts import MADE, packs_lanes, stored_contract
from aotc.sched.expand.digit_loops import split_innermost_loop
from aotc.sched.expand.epilogues import has_polynomials, may_pair_sums
from aotc.sched.expand.expansion import Expansion
from aotc.sched.expand.nests import is_blocked, is_long, stands_beside, whole_vectors
from aotc.sched.expand.prefetch_lookups import find_tables_ahead, name_places
from aotc.sched.expand.prefetch_tiles import (
    epilogue_places,
    has_known_rows,
    has_rows_in_pieces,
    panel_follows,
)
from aotc.sched.expand.prefetch_window import find_streamed
from aotc.sched.expand.row_tails import ends_anywhere
from aotc.sched.expand.sums_in_registers import (
    may_use_registers,
    rereads,
    terms,
    unrolls,
)
from aotc.sched.expand.transposed_stores import with_turned
from aotc.sched.model.size import float_nodes
from aotc.target.base import Target
from aotc.target.tuning import Tuning

Found = dict[str, int | str]


def own_product(c: Contract, alone: bool, expansion: Expansion, tuning: Tuning) -> Found:
    """The choices of a product that its Contract leaves open.  alone: it is the only stage of its
    kernel.

    Rows that are packed once per tile serve all panels.  Sums in registers beside other stages
    stand apart: compilers keep what those use again and again (constants of an exponential) in
    registers, too, and then spill sums in the loop over k.  Eight stages of mobilevit_s in one
    function took 1.2 times as long."""
    found: Found = {"order": usual_order(c)}
    if not alone:
        found["apart"] = int(bool(c.slices) or _uses_registers(c, expansion, tuning))
    if c.micro.narrow:
        if c.a.mode == "packed":
            found["copied_run"] = tuning.copied_run
        if may_pair_sums(c,
                         expansion):  # coefficients of polynomials leave registers for one vector
            found["columns"] = 1 if has_polynomials(c) else c.micro.nv
        return found
    if may_use_registers(stored := stored_contract(c, expansion), expansion):
        found["sums"] = "registers" if _uses_registers(stored, expansion, tuning) else "memory"
    found |= _product_fetches(c, expansion, tuning)
    if ends_anywhere(c, expansion):
        found["tails"] = 1
    if rereads(c, expansion):
        found["reread"] = _reread(c, expansion, tuning)
    if unrolls(c, expansion):  # rows whose elements lie side by side are read several at a time
        unit = c.a.mode == "packed" or c.a.stride == Const(1)
        found["unroll"] = _unroll(tuning) if unit else 1
    if packs_lanes(c) and not expansion.vectors.fixed:
        found["registers"] = expansion.vectors.groups[0]
    return found


def usual_order(c: Contract) -> str:
    """Which loop of a product is the outermost, unless results shall wait for whole rows."""
    inside = c.a.mode == "packed" and c.b.mode not in MADE and not c.writing.transposed_rows
    return "rows" if inside else "columns"


def _uses_registers(c: Contract, expansion: Expansion, tuning: Tuning) -> bool:
    """True if the epilogue of a product may be written out and is worth it."""
    return may_use_registers(c, expansion) and pays_in_registers(
        terms(c), float_nodes(p.value for p in c.puts), tuning)


def _product_fetches(c: Contract, expansion: Expansion, tuning: Tuning) -> Found:
    """What a product fetches before it is needed, of what it could."""
    found: Found = {}
    length = c.k.axis.extent
    if epilogue_places(c, expansion):
        found["fetch_epilogue"] = int(terms(c) >= tuning.fetch_sum)
    if panel_follows(c, expansion):
        found |= {"fetch_panel": 1, "panel_step": tuning.fetch_slowest}
    if has_known_rows(c, expansion):
        found["fetch_tiles"] = tuning.fetch_tiles * _at_most(length, tuning.fetch_row)
    if has_rows_in_pieces(c, expansion):
        found["fetch_rows"] = tuning.fetch_rows * _at_most(length, tuning.fetch_piece)
    return found


def _at_most(length: Expr, most: int) -> bool:
    return isinstance(length, Const) and length.value <= most


def _reread(c: Contract, expansion: Expansion, tuning: Tuning) -> int:
    """Vectors of columns that the sums of a tile leave no register for."""
    registers, ways = expansion.vectors.registers, range(c.micro.nv + 1)
    costs = [reread_cost(c.micro.mr, c.micro.nv, registers, n, tuning) for n in ways]
    return pick_cheapest(ways, costs, 0)


def _unroll(tuning: Tuning) -> int:
    """Steps that micro-kernels write out: the fewest of those that take as long."""
    low, high = TEXTS["unroll"]
    ways = range(int(low), int(high) + 1)
    return pick_cheapest(ways, [unroll_cost(n, tuning) for n in ways], tuning.slack)


def own_fold(nests: Sequence[Nest], expansion: Expansion, tuning: Tuning) -> Found:
    """The choices of a stage that all of its Nests share: values as wide as registers allow, loops
    without divisions, vectors side by side, in as few passes as there can be, and how far ahead
    looked up rows and a window's blocks are fetched."""
    found = _registers(nests, expansion, tuning)
    if any(split_innermost_loop(n, expansion) is not n for n in nests):
        found["quotients"] = 1
    if any(_looks_ahead(n, expansion) for n in nests):
        found |= {"lookup_rows": tuning.lookup_rows, "lookup_lines": tuning.lookup_lines}
    beside = [x for nest in nests for x in _vectors_beside(nest, expansion)]
    if beside:
        vectors = [n for nest, n in beside if is_long(nest, tuning.columns_from)]
        found["columns"] = min(range(tuning.columns_most, 1, -1), key=lambda w: sum(
            v // min(v, w) + v % min(v, w) for v in vectors)) if vectors else 1
        found["columns_from"] = tuning.columns_from
    lines = [n for nest in nests for n in _lines_ahead(nest, expansion)]
    if lines:
        found["ahead"] = tuning.window_ahead * (min(lines) <= tuning.window_lines)
    return found


def _registers(nests: Sequence[Nest], expansion: Expansion, tuning: Tuning) -> Found:
    """Registers of a vector value where vectors have any length: all that there are, but for those
    that the accumulators of a block need."""
    if expansion.vectors.fixed:
        return {}
    found, widest = dict[str, int | str](), expansion.vectors.groups[0]
    for nest in nests:
        if is_blocked(nest):
            found["block_registers"] = min(widest, tuning.block_registers)
        elif nest.vector and (nest.block == 1 or nest.folds_lanes):
            found["registers"] = widest
    return found


def _lanes(nest: Nest) -> Range | None:
    """The Range of a Nest's lanes, where vectors of it are taken one by one or side by side."""
    return None if nest.block > 1 else next(
        (r for r in nest.ranges if r.axis.name == nest.vector), None)


def _looks_ahead(nest: Nest, expansion: Expansion) -> bool:
    """True for rows of a table that may be fetched ahead."""
    lane = _lanes(nest)
    return lane is not None and bool(find_tables_ahead(
        nest, lane, [r for r in nest.ranges if r is not lane], expansion))


def _vectors_beside(nest: Nest, expansion: Expansion) -> list[tuple[Nest, int]]:
    """(a fold, its whole vectors that may stand side by side): one of them, or none."""
    lane = _lanes(nest)
    if lane is None:
        return []
    looked, _ = name_places(nest, lane, expansion)
    return [(looked, whole_vectors(looked, lane))] if stands_beside(looked, lane, expansion) else []


def _lines_ahead(nest: Nest, expansion: Expansion) -> list[int]:
    """Lines that each vector of a blocked window fetches of its next blocks: one number, or none
    where it cannot."""
    if nest.block == 1 or nest.fold == "none":
        return []
    lane, axis = (next((r.axis for r in nest.ranges if r.axis.name == name), None)
                  for name in (nest.vector, nest.block_axis))
    found = find_streamed(nest, lane, axis,
                          expansion) if lane is not None and axis is not None else None
    return [] if found is None else [found[2]]


def choose_transposed_rows(c: Contract, target: Target, slab: Size) -> int | None:
    """Rows of a product's results, which lie across the lanes, that wait in scratch behind ``slab``
    bytes; 0 in memory that has no room for them, None where panels run inside its rows."""
    said, machine = c.writing, target.machine
    if (said.order or usual_order(c)) == "rows" or said.transposed_rows is not None:
        return None if said.order == "rows" else said.transposed_rows
    rows = target.tuning.turned_rows
    turned = with_turned(c, "turned", rows).turned
    assert turned is not None
    full = machine.managed and isinstance(slab, int) and (
        slab + 4 * turned.rows * c.micro.nr > machine.near.capacity)
    return 0 if full else rows


__all__ = ["choose_transposed_rows", "own_fold", "own_product", "usual_order"]
