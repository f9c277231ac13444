"""Register tiles whose epilogue runs on the accumulators: the sums are written where they are used,
and what no row moves (a bias) is loaded once per vector of columns.

Full tiles store straight from registers.  Tiles at the edges (rows or columns that do not exist) go
through memory and the loops of every other epilogue.
"""

from collections.abc import Callable, Mapping
from typing import Any

from aotc.emit.c.nests import indent, store_lines
from aotc.emit.c.register_tile import register_tile
from aotc.emit.c.scalars import Names, Scalars
from aotc.emit.c.slice_loops import before, more
from aotc.emit.text.cexpr import ATOM, c_index
from aotc.emit.text.dialect import Dialect, Operand, environment
from aotc.emit.text.env import KernelEnv
from aotc.ir.access import stride
from aotc.ir.expr import (
    Axis,
    Binary,
    Cast,
    Const,
    Expr,
    Load,
    Unary,
    Var,
    Where,
    axes_of,
    minimum,
    substitute,
    walk,
)
from aotc.ir.narrow import FLOAT_LANES
from aotc.ir.plan import Contract, Range
from aotc.ir.simplify import same, simplify, upper

MOST_NODES = 24  # of an epilogue that is written out for every accumulator
# Longer sums share the micro-kernel and keep the C short: beside the 24 * 256 multiply-adds of a
# 6x64 tile the way of its 24 vectors through memory is less than one in a hundred instructions.
LONGEST_SUM = 256
Shared = tuple[dict[Expr, Operand], list[str]]  # what all rows of a tile share, lines before
_LIGHT = ("add", "sub", "mul", "min", "max")


def written_out(c: Contract, say: Dialect) -> bool:
    """True if the sums of the Contract's tiles are written where they are used."""
    return bool(c.slices) or in_registers(c, say)


def in_registers(c: Contract, say: Dialect) -> bool:
    """True if the Contract's epilogue is worth writing out per accumulator: it stores along the
    lanes and does arithmetic only, so that accumulators and what it needs fit into registers."""
    nodes = [n for p in c.puts for n in walk(p.value)]
    return (say.tiles and terms(c) <= LONGEST_SUM and c.acc.dtype == "f32" and sum(
        n.dtype == "f32" for n in nodes) <= MOST_NODES
            and all(p.guard is None and p.value.dtype in FLOAT_LANES
                    and same(stride(p.offset, c.n.axis) or Const(0), Const(1)) for p in c.puts)
            and all(_light(n, c.n.axis) for n in nodes))


def terms(c: Contract) -> int:
    """Terms of a Contract's longest sum; more than ``LONGEST_SUM`` where that is not known."""
    n = 1
    for r in c.slice_taps + c.taps + (c.k,):
        n *= upper(r.axis.extent) or LONGEST_SUM + 1
    return n


def _light(e: Expr, lane: Axis) -> bool:
    if isinstance(e, Load):
        step = stride(e.index[0], lane)
        return e.dtype == "f32" and step in (Const(0), Const(1)) and not any(
            isinstance(n, Load) for n in walk(e.index[0]))
    if isinstance(e, Where) and e.dtype in FLOAT_LANES or isinstance(e, Cast) and (
            e.dtype == "f32" or e.dtype == "f16" and e.x.dtype != "f32"):
        return False
    if e.dtype == "f32" and isinstance(e, (Unary, Binary)):
        return e.op in _LIGHT or e.op in ("neg", "abs")
    return True


def plain_rows(c: Contract) -> bool:
    """True if a row's pointer follows from its number: no table of rows and taps is needed."""
    return c.a.mode == "rows" and len(c.m) == 1 and c.a.guard is None and _one_tap(c)


def _one_tap(c: Contract) -> bool:
    return all(t.axis.extent == Const(1) for t in c.taps)


def row_pointers(c: Contract, env: KernelEnv, names: Names) -> tuple[list[str], list[str]]:
    """(lines, C texts) of the pointers to the rows of a tile; rows past the end repeat the last."""
    if not plain_rows(c):
        many = c.a.mode == "rows" and not _one_tap(c)
        kept = [f"(void){r.axis.name}_at;" for r in c.m]  # not every epilogue looks at them
        slice_at = f" + k_lo * {c_index(c.a.stride, 13)}" if c.slices else ""
        return kept, [f"a_row[{f'tap0 * {c.mr} + ' if many else ''}{i}]{slice_at}"
                      for i in range(c.mr)]
    r, texts = c.m[0], []
    block = Scalars(env, names)
    for i in range(c.mr):
        at = Var("m0", "i64") + i
        if i and "rows" not in c.whole:
            at = minimum(at, Var("rows", "i64") - 1)
        at = simplify(substitute(c.a.offset, {r.axis: r.lo + at, **{t.axis: t.lo for t in c.taps}}))
        if c.slices:
            at = simplify(at + Var("k_lo", "i64") * c.a.stride)
        texts.append(f"{env['buffer'](c.a.buffer)} + {block.text(at, 13)}")
    return block.lines, texts


def _columns(c: Contract) -> tuple[list[str], bool]:
    """C texts of the live lanes of each vector of a full tile ("" = all), and whether every tile is
    one: a single panel has as many columns as it has, other last panels may be cut."""
    nr, n = c.nv * c.lanes, simplify(c.n.hi - c.n.lo)
    if "columns" in c.whole:
        return [""] * c.nv, True
    if not isinstance(n, Const) or n.value > nr:
        return [""] * c.nv, False
    left = [n.value - j * c.lanes for j in range(c.nv)]
    return ["" if x >= c.lanes else str(max(x, 0)) for x in left], True


def tile_lines(c: Contract, env: KernelEnv, names: Names, sums: Mapping[str, Any],
               fallback: list[str], known: Callable[[Dialect, str], Shared]) -> list[str]:
    """C lines of one register tile.  sums: parameters of ``contraction_tile.j2``; fallback: lines
    of an epilogue that reads ``acc_tile``; known(block lane): what all rows share."""
    text = environment(env["dialect"].folder).get_template("contraction_tile.j2").render(sums)
    lines = text.rstrip("\n").split("\n")
    lines, ends = _sliced(c, env, lines)
    return lines + _ended(c, env, _stored(c, env, names, fallback, known), ends)


def _sliced(c: Contract, env: KernelEnv, lines: list[str]) -> tuple[list[str], list[str]]:
    """(lines of the sums, lines that keep them for the next slice): those of the slices before are
    added to a slice's own."""
    if not c.slices:
        return lines, []
    size, nr = c.mr * c.nv * c.lanes, c.nv * c.lanes
    panel = simplify(Var("n0", "i64") - c.n.lo)
    at = (f"float *const sums_at = {env['buffer'](c.slices)} + ({c_index(panel, ATOM)} / {nr}"
          f" * ((rows + {c.mr - 1}) / {c.mr}) + m0 / {c.mr}) * {size};")
    sums = [s for row in register_tile(c.mr, c.nv, c.lanes) for s in row.sums]
    join = [f"{s.name} += aotc_load(sums_at + {s.at});" for s in sums]
    keep = [f"aotc_store(sums_at + {s.at}, {s.name});" for s in sums]
    return [at, *lines, f"if ({before(c)}) {{", *indent(join), "}"], keep


def _ended(c: Contract, env: KernelEnv, stores: list[str], keep: list[str]) -> list[str]:
    if not keep:
        return stores
    return [f"if ({more(c)}) {{"] + indent(keep) + ["} else {"] + indent(stores) + ["}"]


def _stored(c: Contract, env: KernelEnv, names: Names, fallback: list[str],
            known: Callable[[Dialect, str], Shared]) -> list[str]:
    """The epilogue of one tile: from registers where that is possible."""
    counts, whole_columns = _columns(c)
    registers = in_registers(c, env["dialect"])
    stores = [x for j, count in enumerate(counts) if count != "0" and registers
              for x in _vector_stores(c, env, names, j, count, known)]
    nr = c.nv * c.lanes
    conditions = ([] if "rows" in c.whole else [f"m0 + {c.mr} <= rows"]) + (
        [] if whole_columns else [f"n0 + {nr} <= {c_index(c.n.hi, 11)}"])
    if registers and not conditions:
        return stores
    macros: Any = environment(env["dialect"].folder).get_template("contraction_sums.j2").module
    spill = macros.spill(register_tile(c.mr, c.nv, c.lanes), "acc_tile").rstrip("\n").split("\n")
    spill = [f"float acc_tile[{c.mr * nr}] __attribute__((aligned(64)));"] + spill
    if not registers:
        return spill + fallback
    return [f"if ({' && '.join(conditions)}) {{"] + indent(stores) + ["} else {"] + indent(
        spill + fallback) + ["}"]


def _vector_stores(c: Contract, env: KernelEnv, names: Names, j: int, count: str,
                   known: Callable[[Dialect, str], Shared]) -> list[str]:
    """The epilogue of vector ``j`` of every row of a full tile."""
    lane, say = c.n.axis, env["dialect"]
    used = {a for p in c.puts for e in (p.offset, p.value) for a in axes_of(e)}
    shared, lines = known(say, count)
    first = f"n0 + {j * c.lanes}" if j else "n0"
    lines = [f"const int64_t {lane.name} = {first};", f"(void){lane.name};"] + lines
    for i in range(c.mr):
        rows = [f"const int64_t {r.axis.name} = {row_value(c, r, str(i))};" for r in c.m
                if r.axis in used]
        if c.turned:
            rows.append(f"const int64_t i = {i};")
        body = store_lines(c.puts, lane, say, count, env, names, {c.acc: f"sum{i}_{j}"}, shared,
                           True)
        lines += ["{"] + indent(rows + body) + ["}"] if rows else body
    return ["{"] + indent(lines) + ["}"]


def row_value(c: Contract, r: Range, i: str) -> str:
    """C text of a row axis's value in row ``i`` of a tile."""
    if not plain_rows(c):
        return f"{r.axis.name}_at[{i}]"
    parts = [c_index(r.lo, 12)] * (r.lo != Const(0)) + ["m0"] + [i] * (i != "0")
    return " + ".join(parts)
