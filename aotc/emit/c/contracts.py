"""C text of Contract stages: row pointers, packed operands, the micro-kernel call, the epilogue."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from aotc.emit.c.aligned import by_vectors
from aotc.emit.c.fetches import (
    fetch_lines,
    follows,
    next_lines,
    next_panel,
    share_lines,
    source_lines,
    stream_lines,
    unguarded_loads,
)
from aotc.emit.c.nests import fitted_loop, indent, lane_loop, loop, loops, of_width, store_lines
from aotc.emit.c.register_tile import Elements, dot_tile, register_tile
from aotc.emit.c.scalars import Names, Scalars
from aotc.emit.c.slice_loops import slice_offset, slice_taps
from aotc.emit.c.tiles import (
    Shared,
    plain_rows,
    row_pointers,
    row_value,
    tile_lines,
    written_out,
)
from aotc.emit.c.turns import turn_lines
from aotc.emit.c.vectors import Vectors
from aotc.emit.text.cexpr import c_index, constant
from aotc.emit.text.dialect import Dialect, Operand
from aotc.emit.text.env import KernelEnv
from aotc.ir.access import stride
from aotc.ir.expr import (
    Axis,
    Binary,
    Const,
    Expr,
    Load,
    Unary,
    Var,
    as_expr,
    axes_of,
    minimum,
    rewrite,
    substitute,
    walk,
)
from aotc.ir.plan import Contract, Put, Range
from aotc.ir.simplify import linear_in, simplify
from aotc.target.base import DOT_STEP


def ukernel_name(c: Contract, say: Dialect) -> tuple[str, dict[str, Any]]:
    """Name of the micro-kernel instance a Contract calls, and its template parameters.  Vectors of
    any length never touch columns that do not exist: no instance of its own for those."""
    unit = c.a.mode == "packed" or c.a.stride == Const(1)
    masked = c.b.mode == "direct" and "columns" not in c.whole and not say.strip_mined
    fetches = follows(c, say, c.row_count)
    base = c.row.replace("__", "_")
    column = Elements.of(c.dtypes[1])
    name = base + ("" if unit else "_strided") + ("_masked" if masked else "") + (
        "_parts" if c.part else "") + column.suffix
    params = {"mr": c.mr, "nr": c.nv * c.lanes, "unit": unit, "masked": masked}
    if c.dtypes[0] == "u8":
        tile, step = dot_tile(c.mr, c.nv, c.lanes), DOT_STEP * c.nv * c.lanes
        return name, params | {"tile": tile, "step": step}
    name += "_alone" if say.prefetches and not fetches else ""
    first = "k_lo" if unit else "k_lo * ak"
    return name, params | {
        "part": c.part, "column": column, "fetches": fetches, "tile": register_tile(
            c.mr, c.nv, c.lanes, tuple(f"a[{i}] + {first}" for i in range(c.mr)) if c.part else
            None, "" if unit else "ak", say.registers if column.as_stored else 0)}


def contract_lines(c: Contract, env: KernelEnv, names: Names) -> list[str]:
    """C lines of a Contract."""
    nr = c.nv * c.lanes
    head, row_step = row_counters(c)
    c, start = _started(c, env)
    fetched, rows = c, c.row_count
    c, turn, flush = turn_lines(c if c.turned else by_vectors(c, c.n, env), env)
    tile = written_out(c, env["dialect"])
    call = (_tile if tile else _tile_call)(c, env, names, nr, start)
    prepare = (row_table if c.a.mode == "rows" else _row_pack)(c, env, names, row_step)
    plain = tile and plain_rows(c)
    if plain:
        head, prepare = [], []
    call = fetch_lines(fetched, env, names, plain) + ([] if plain else source_lines(
        c, env, names)) + stream_lines(fetched, env, names, plain) + call
    tiles = [f"for (int64_t m0 = 0; m0 < rows; m0 += {c.mr}) {{"] + indent(prepare)
    panel = _lane_operand(c, env, names, nr)
    n_loop = f"for (int64_t n0 = {c_index(c.n.lo, 0)}; n0 < {c_index(c.n.hi, 11)}; n0 += {nr}) {{"
    if c.a.mode == "packed" and c.b.mode != "packed":
        body = head + tiles + indent([n_loop] + indent(panel + call) + ["}"]) + ["}"]
    else:
        body = [n_loop] + indent(panel + head + turn + tiles + indent(call + flush) + ["}"]) + ["}"]
    if c.slices:
        body = _slice_loops(c, body)
    first = [f"const int64_t rows = {c_index(rows, 0)};", *share_lines(c, env, rows)]
    return loops(c.outer, first + body)


def _slice_loops(c: Contract, body: list[str]) -> list[str]:
    """The loops over the slices of a sum: every tap, and steps of k in it."""
    size = c_index(c.k.axis.extent, 11)
    body = [f"for (int64_t k_lo = 0; k_lo < {size}; k_lo += {c.slice}) {{"] + indent(body) + ["}"]
    tap: Expr = Var("tap0", "i64")
    bound: list[str] = []
    for r in reversed(c.slice_taps):  # their numbers are digits of tap0's, the last one the lowest
        at = tap if r is c.slice_taps[0] else simplify(tap % r.axis.extent)
        bound[:0] = [f"const int64_t {r.axis.name} = {c_index(at, 0)};", f"(void){r.axis.name};"]
        tap = simplify(Binary("floordiv", tap, r.axis.extent))
    if not bound:
        return body
    count = slice_taps(c)
    return [f"for (int64_t tap0 = 0; tap0 < {count}; ++tap0) {{"] + indent(bound + body) + ["}"]


def row_counters(c: Contract) -> tuple[list[str], list[str]]:
    """(declarations, statements that step to the next row): the row axes counted like an odometer,
    no division."""
    head = [f"int64_t {r.axis.name}_row = {c_index(r.lo, 0)};" for r in c.m]
    step = []
    for i, r in enumerate(c.m):
        name = f"{r.axis.name}_row"
        if i == 0:
            step = [f"++{name};"]
        else:
            step = [f"if (++{name} == {c_index(r.hi, 11)}) {{",
                    f"    {name} = {c_index(r.lo, 0)};"] + indent(step) + ["}"]
    return head, step


def row_axes(c: Contract) -> list[str]:
    """Statements that bind the row axes' values of row i and remember them."""
    out = []
    for r in c.m:
        out += [f"const int64_t {r.axis.name} = {r.axis.name}_row;",
                f"{r.axis.name}_at[i] = {r.axis.name};"]
    return out


def row_table(c: Contract, env: KernelEnv, names: Names, step: Sequence[str], ctype: str = "float",
              outside: str = "aotc_zeros") -> list[str]:
    """Fill the pointer table of one register tile: one pointer per tap and row; rows past the
    end repeat the last one, guarded-off rows point to ``outside``: zeros."""
    taps = 1
    for t in c.taps:
        taps *= constant(t.axis.extent)
    lines = [f"int64_t {r.axis.name}_at[{c.mr}];" for r in c.m]
    lines += [f"const {ctype} *a_row[{taps * c.mr}];"]
    block = Scalars(env, names)
    at = f"{env['buffer'](c.a.buffer)} + {block.text(c.a.offset, 13)}"
    if c.a.guard is not None:
        at = f"{block.text(c.a.guard, 4)} ? {at} : {outside}"
    index = flat_index(c.taps)
    fill = loops(c.taps, [f"a_row[{_times(index, c.mr)} + i] = {at};"])
    fill = row_axes(c) + fill + ["if (m0 + i + 1 < rows) {"] + indent(step or [";"]) + ["}"]
    return lines + [f"for (int i = 0; i < {c.mr}; ++i) {{"] + indent(fill) + ["}"]


def _times(index: Expr, n: int) -> str:
    return c_index(simplify(index * n), 12)


def flat_index(ranges: Sequence[Range]) -> Expr:
    """Flat index over ranges that start at 0, row-major."""
    at = as_expr(0)
    for r in ranges:
        at = at * r.axis.extent + r.axis
    return simplify(at)


def _row_pack(c: Contract, env: KernelEnv, names: Names, step: Sequence[str]) -> list[str]:
    """Evaluate the rows of one register tile into scratch, reduction order taps then k."""
    inner = c.taps + (c.k,)
    total = as_expr(1)
    for r in inner:
        total = total * r.axis.extent
    block = Scalars(env, names, (c.a.packed,))
    value = block.text(c.a.packed)
    at = f"i * {c_index(simplify(total))} + {c_index(flat_index(inner), 13)}"
    at = f"{env['buffer'](c.a.buffer)}[{at}]"
    fill = loops(inner, block.lines + [f"{at} = {value};"])
    lines = [f"int64_t {r.axis.name}_at[{c.mr}];" for r in c.m]
    lines += [f"const float *a_row[{c.mr}];", f"for (int i = 0; i < {c.mr}; ++i) {{"]
    body = row_axes(c) + fill + [
        f"a_row[i] = {env['buffer'](c.a.buffer)} + i * {c_index(simplify(total))};",
        "if (m0 + i + 1 < rows) {"] + indent(step or [";"]) + ["}"]
    return lines + indent(body) + ["}"]


def _lane_operand(c: Contract, env: KernelEnv, names: Names, nr: int) -> list[str]:
    """Bind ``b_col``: the panel, the direct columns, or columns packed now."""
    lane = c.n.axis
    if c.b.mode in ("panel", "direct"):
        block = Scalars(env, names)
        offset = c.b.offset
        if c.b.mode == "direct":
            offset = offset + lane
        # n0, not the lane variable: the epilogue's loops declare that one
        at = block.text(simplify(substitute(offset, {lane: Axis("n0", lane.extent)})), 13)
        lines = block.lines + [
            f"const {Elements.of(c.dtypes[1]).ctype} *const b_col = "
            f"{env['buffer'](c.b.buffer)} + {at}" + slice_offset(c, nr) + ";"]
        if follows(c, env["dialect"], c.row_count):
            lines += next_lines(c, nr, _first_panel(c, env))
        return lines
    columns = _pack_columns(c, env, names, nr)
    if columns:
        return columns
    inner = c.taps + (c.k,)
    flat = flat_index(inner)
    end = simplify(minimum(Axis("n0", lane.extent) + nr, c.n.hi))
    part = Range(lane, Axis("n0", lane.extent), end)
    base = simplify(flat * nr)
    put = Put(c.b.buffer, simplify(base + lane - Axis("n0", lane.extent)), c.b.packed)
    offset_step = _lane_step(c, lane)
    if offset_step:
        say = of_width(env["dialect"], Const(nr))
        body = loops(inner, lane_loop(part, say, lambda count: store_lines(
            (put,), lane, say, count, env, names, {})))
    else:
        block = Scalars(env, names, (c.b.packed,))
        value = block.text(c.b.packed)
        body = loop(part, loops(inner, block.lines + [
            f"{env['buffer'](c.b.buffer)}[{c_index(put.offset, 0)}] = {value};"]))
    return body + [f"const float *const b_col = {env['buffer'](c.b.buffer)};"]


def _first_panel(c: Contract, env: KernelEnv) -> str:
    """C text of the address of the first panel of all."""
    zero = {r.axis: Const(0) for r in (*c.outer, c.n)}
    at = simplify(substitute(c.b.offset, zero))
    text = "" if at == Const(0) else f" + {Scalars(env, Names()).text(at, 13)}"
    return env["buffer"](c.b.buffer) + text


def _pack_columns(c: Contract, env: KernelEnv, names: Names, nr: int) -> list[str]:
    """Packing by transposed blocks, where the columns lie along k in memory; else nothing."""
    lane, value = c.n.axis, c.b.value
    if c.taps or not isinstance(value, Load) or stride(value.index[0], c.k.axis) != Const(1):
        return []
    parts = linear_in(value.index[0], lane)
    if parts is None:
        return []
    block = Scalars(env, names)
    first = simplify(substitute(value.index[0], {lane: Axis("n0", lane.extent),
                                                 c.k.axis: Const(0)}))
    at = block.text(first, 13)
    count = simplify(minimum(c.n.hi - Axis("n0", lane.extent), Const(nr)))
    return block.lines + [
        env["dialect"].pack_columns(
            f"{env['buffer'](value.buffer)} + {at}", c_index(parts[0], 0), c_index(count, 0),
            c_index(c.k.axis.extent, 0), env["buffer"](c.b.buffer), nr),
        f"const float *const b_col = {env['buffer'](c.b.buffer)};"]


def _lane_step(c: Contract, lane: Axis) -> bool:
    """True if the packed lane operand is read with unit stride along the lanes."""
    found = [stride(n.index[0], lane) for n in walk(c.b.packed) if isinstance(n, Load)]
    return bool(found) and all(s == Const(1) for s in found)


def _sizes(c: Contract, nr: int) -> tuple[Expr, Expr, Expr, Expr]:
    """(taps, k, step of b along k, step of b along taps) of a tile's sums."""
    taps, kc = as_expr(1), c.k.axis.extent
    for t in c.taps:
        taps = taps * t.axis.extent
    if c.a.mode == "packed":
        taps, kc = Const(1), simplify(taps * kc)
    ldb = Const(nr) if c.b.mode in ("panel", "packed") else c.b.stride
    return simplify(taps), kc, ldb, simplify(kc * ldb)


def _tile(c: Contract, env: KernelEnv, names: Names, nr: int, start: str) -> list[str]:
    """One register tile, its sums and its epilogue in registers."""
    taps, kc, ldb, tap_b = _sizes(c, nr)
    pointers, rows = row_pointers(c, env, names)
    params = ukernel_name(c, env["dialect"])[1]
    step = "" if params["unit"] else c_index(c.a.stride, 13)
    one = taps == Const(1)
    sums = {
        "tile": register_tile(c.mr, c.nv, c.lanes, rows, step, env["dialect"].registers
                              if params["column"].as_stored else 0),
        "masked": params["masked"], "column": params["column"],
        "taps": "" if one else c_index(taps, 11),
        "kc": f"aotc_min({c.slice}, {c_index(kc, 12)} - k_lo)" if c.slices else c_index(kc, 11),
        "ldb": c_index(ldb, 0),
        "panel": "b_col" if one else f"b_col + tap0 * {c_index(tap_b, 13)}",
        "n": f"{c_index(c.n.hi, 12)} - n0",
        **dict(zip(("next", "ahead"), _argument(c, env, taps, kc, start)))}
    return pointers + tile_lines(c, env, names, sums, epilogue_lines(c, env, names, nr),
                                 lambda say, count: _same_in_all_rows(c, say, env, names, count))


def _tile_call(c: Contract, env: KernelEnv, names: Names, nr: int, start: str) -> list[str]:
    name, params = ukernel_name(c, env["dialect"])
    taps, kc, ldb, tap_b = _sizes(c, nr)
    argument = [x or none for x, none in zip(_argument(c, env, taps, kc, start), ("NULL", "0"))]
    lines = [f"float acc_tile[{c.mr * nr}]" + (" __attribute__((aligned(64)));"
                                               if c.lanes > 1 else ";")]
    lines += [f"{env['prefix']}_{name}({c_index(taps, 0)}, {c_index(kc, 0)}, a_row, "
              f"{c_index(c.a.stride, 0)}, b_col, {c_index(ldb, 0)}, {c_index(tap_b, 0)}, "
              f"{c_index(c.n.hi, 12)} - n0, {', '.join(argument)}, acc_tile);"]
    return lines + epilogue_lines(c, env, names, nr)


def _started(c: Contract, env: KernelEnv) -> tuple[Contract, str]:
    """(the Contract, C text of the values its sums start from): what the epilogue adds to every
    row first, such as a bias, costs nothing in the micro-kernel."""
    if env["dialect"].prefetches:
        return c, ""
    lane, rows = c.n.axis, {r.axis for r in c.m}
    always = {x for p in c.puts for x in unguarded_loads(p.value)}
    found = set()

    def visit(e):
        if not isinstance(e, Binary) or e.op != "add" or c.acc not in (e.a, e.b):
            return None
        x = e.b if e.a == c.acc else e.a
        plain = x in always and not axes_of(x) & rows and not any(
            isinstance(n, Load) for n in walk(x.index[0]))
        if not plain or stride(x.index[0], lane) != Const(1):
            return None
        found.add(x)
        return Var("started", "f32")

    values = [rewrite(p.value, visit) for p in c.puts]
    if len(found) != 1 or any(n == c.acc for v in values for n in walk(v)):
        return c, "NULL"
    new = {Var("started", "f32"): c.acc}
    puts = tuple(Put(p.buffer, p.offset, substitute(v, new)) for p, v in zip(c.puts, values))
    load = found.pop()
    at = simplify(substitute(load.index[0], {lane: Axis("n0", lane.extent)}))
    return replace(c, puts=puts), f"{env['buffer'](load.buffer)} + {c_index(at, 13)}"


def _argument(c: Contract, env: KernelEnv, taps: Expr, kc: Expr, start: str) -> Sequence[str]:
    """C texts of the dialect's ``argument`` of a micro-kernel: what the sums start from, or what is
    fetched meanwhile and how much of it per step of k."""
    if not env["dialect"].prefetches:
        return [start]
    depth = Const(c.slice) if c.slices else simplify(taps * kc)
    rows = c.row_count
    return next_panel(c, rows, depth) if follows(c, env["dialect"], rows) else ["", ""]


def epilogue_lines(c: Contract, env: KernelEnv, names: Names, nr: int) -> list[str]:
    lane, say = c.n.axis, of_width(env["dialect"], minimum(c.n.axis.extent, Const(nr)))
    end = simplify(minimum(Axis("n0", lane.extent) + nr, c.n.hi))
    part = Range(lane, Axis("n0", lane.extent), end)
    if "columns" in c.whole:  # every tile is full: the lane loop has a constant trip count
        part = Range(lane, Axis("n0", lane.extent), Axis("n0", lane.extent) + nr)

    def body(say: Dialect, count: str, known: Mapping[Expr, Operand] | None = None) -> list[str]:
        at = f"acc_tile + i * {nr} + ({lane.name} - n0)"
        acc = {c.acc: names.fresh("acc")}
        first = [say.constant(acc[c.acc], say.load_tile(at)) if c.acc.dtype == "f32" else
                 f"const aotc_vm {acc[c.acc]} = aotc_load_i32({at});"]
        return first + store_lines(c.puts, lane, say, count, env, names, acc, known, True)

    def every_row(lines: list[str]) -> list[str]:
        return ["for (int64_t i = 0; i < live; ++i) {"] + indent(rows + lines) + ["}"]

    def strip(say: Dialect) -> list[str]:
        known, lines = _same_in_all_rows(c, say, env, names)
        return lines + every_row(body(say, "", known))

    computed = written_out(c, say) and plain_rows(c)
    rows = [f"const int64_t {r.axis.name} = "
            + (row_value(c, r, "i") if computed else f"{r.axis.name}_at[i]") + ";" for r in c.m]
    rows += [f"(void){r.axis.name};" for r in c.m]
    live = [f"const int64_t live = aotc_min({c.mr}, rows - m0);"]
    if say.strip_mined:
        return live + fitted_loop(part, say, strip, 2 if _has_polynomials(c) else say.groups[0])
    return live + every_row(lane_loop(part, say, lambda count: body(say, count)))


def _has_polynomials(c: Contract) -> bool:
    """True if the epilogue calls functions whose coefficients should stay in registers over the
    rows of a tile: with the widest vectors they would not fit."""
    return any(isinstance(n, Unary) and n.op in ("exp", "log", "erf", "tanh", "sin", "cos")
               for p in c.puts for n in walk(p.value))


def _same_in_all_rows(c: Contract, say: Dialect, env: KernelEnv, names: Names,
                      count: str = "") -> Shared:
    """({expression: Operand}, lines) of the epilogue's loads that no row axis moves: they are done
    once for all rows of a tile."""
    rows = {r.axis for r in c.m}
    found = dict.fromkeys(x for p in c.puts for x in unguarded_loads(p.value)
                          if not axes_of(x) & rows)
    block = Vectors(env, names, c.n.axis, say, count, found)
    block.many |= set(found)  # each has a name
    return {x: block.operand(x) for x in found}, block.lines
