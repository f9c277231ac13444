"""What register tiles read and write in rows that lie far apart, fetched before it is needed: no
hardware sees a stream in it.

The rows that an epilogue stores, and those it reads, such as a residual's, are fetched before the
tile's sums.  The next panel of weights is fetched by all row tiles of this one, and while the first
panel runs, short rows that other kernels wrote two tiles before they are read.  The pixels of a
grouped convolution with channels innermost, of which a group reads a piece, are fetched some rows
ahead: 4 groups of 16 channels over 8x56x56 pixels took 10.7 ms on AVX2 and 6.5 with this.
"""

from aotc.emit.c.ahead import LINE
from aotc.emit.c.nests import indent
from aotc.emit.c.register_tile import Elements
from aotc.emit.c.scalars import Names, Scalars
from aotc.emit.c.slice_loops import more, slice_offset
from aotc.emit.c.tiles import terms
from aotc.emit.text.cexpr import c_index, constant
from aotc.emit.text.dialect import Dialect
from aotc.emit.text.env import KernelEnv
from aotc.ir.access import affine_stride, stride
from aotc.ir.expr import (
    Axis,
    Const,
    Expr,
    Load,
    Var,
    Where,
    as_expr,
    axes_of,
    children,
    minimum,
    substitute,
    walk,
)
from aotc.ir.plan import Contract, Range
from aotc.ir.simplify import same, simplify, upper

SHORTEST_SUM = 64  # terms; with 16, nafnet, whose residuals follow such sums, takes the same time
LONGEST_PIECE = 64  # f32 elements of a pixel; of longer ones the lines after the first are a stream
SLOWEST = 2  # elements of the next panel per step of k: a line is fetched eight times by then
ROWS_AHEAD = 16  # two or three register tiles
# Rows of a product: 128x128 pixels of 48 channels times 48x48 weights, with the window behind them,
# take 0.70 of their time on AVX-512 (into the second cache: 0.87), bsrn 0.965, nafnet 0.98.  Four
# tiles ahead, and rows of up to 768 elements, are as fast.
TILES_AHEAD, LONGEST_ROW = 2, 128


def fetch_lines(c: Contract, env: KernelEnv, names: Names, plain: bool) -> list[str]:
    """C lines that fetch what the epilogue of the Contract's next tile reads and stores.  plain: a
    row axis is known from the row's number, else from a table."""
    places = _places(c, env)
    if not places:
        return []
    block, columns = Scalars(env, names), c.nv * c.lanes
    lines = [f"const int64_t {r.axis.name} = {_row(r, plain)};" for r in c.m
             if any(r.axis in axes_of(at) for _, at in places)]
    for buffer, offset in places:
        for column in _columns(c, offset, columns):
            at = block.text(simplify(substitute(offset, {c.n.axis: column})), 13)
            lines.append(f"AOTC_PREFETCH({env['buffer'](buffer)} + {at});")
    loop = [f"for (int64_t i = 0; i < {c.mr}; ++i) {{ /* for the epilogue */"]
    lines = block.lines + loop + indent(lines) + ["}"]
    if c.slices:  # after the last one
        lines = [f"if (!({more(c)})) {{", *indent(lines), "}"]
    return lines


def source_lines(c: Contract, env: KernelEnv, names: Names) -> list[str]:
    """C lines that fetch pieces of pixels which a window comes to ROWS_AHEAD rows later."""
    if not _in_pieces(c, env):
        return []
    piece, step = constant(c.k.axis.extent), affine_stride(c.a.offset, c.m[-1].axis)
    lowest = {t.axis: Const(0) if t is c.taps[-1] else simplify(t.axis.extent - 1)
              for t in c.taps}
    at = simplify(substitute(c.a.offset, lowest) + step * ROWS_AHEAD)
    aligned = constant(step) % LINE == 0 and piece % LINE == 0
    block = Scalars(env, names)
    lines = [f"const int64_t {r.axis.name} = {_row(r, False)};" for r in c.m
             if r.axis in axes_of(at)]
    lines += [f"AOTC_PREFETCH_FAR({env['buffer'](c.a.buffer)}, "
              f"{block.text(simplify(at + j))});"
              for j in [*range(0, piece, LINE)] + [piece - 1] * (not aligned)]
    loop = [f"for (int64_t i = 0; i < {c.mr}; ++i) {{ /* read {ROWS_AHEAD} rows later */"]
    return block.lines + loop + indent(lines) + ["}"]


def stream_lines(c: Contract, env: KernelEnv, names: Names, plain: bool) -> list[str]:
    """C lines that fetch the rows of a product that are read TILES_AHEAD register tiles later,
    while the first panel of columns runs.  plain: as for ``fetch_lines``."""
    most = upper(c.row_count)
    if not _streams(c, env) or most is not None and most <= TILES_AHEAD * c.mr:
        return []
    step = stride(c.a.offset, c.m[-1].axis)
    if not isinstance(step, Const):
        return []
    length, block = constant(c.k.axis.extent), Scalars(env, names)
    at = substitute(c.a.offset, {t.axis: t.lo for t in c.taps}) + step * (TILES_AHEAD * c.mr)
    used = [r for r in c.m if r.axis in axes_of(at)]
    if step.value == length:  # rows lie one behind the other
        at = substitute(at, {r.axis: r.lo + Var("m0", "i64") if plain else Var(
            f"{r.axis.name}_at[0]", "i64") for r in used})
        binds, count, by = [], c.mr * length, LINE
    else:
        binds = [f"const int64_t {r.axis.name} = {_row(r, plain)};" for r in used]
        count, by = c.mr, 1
    parts = [0] if by == LINE else [*range(0, length, LINE)]
    reach = Var("i", "i64") if by == LINE else Const(0)
    lines = [f"AOTC_PREFETCH_AT({env['buffer'](c.a.buffer)}, "
             f"{block.text(simplify(at + reach + j))});" for j in parts]
    loop = f"for (int64_t i = 0; i < {count}; i += {by}) {{ /* {TILES_AHEAD} tiles later */"
    lines = block.lines + [loop, *indent(binds + lines), "}"]
    if same(c.n.lo, Const(0)) and same(c.n.hi, c.n.axis.extent) and (
            upper(c.n.axis.extent) or LINE << 20) <= c.nv * c.lanes:
        return lines
    return [f"if (n0 == {c_index(c.n.lo, 9)}) {{", *indent(lines), "}"]


def _streams(c: Contract, env: KernelEnv) -> bool:
    """True for a product whose rows are short and come from other kernels."""
    return (env["dialect"].prefetches and c.lanes > 1 and c.dtypes[0] == "f32"
            and c.a.mode == "rows" and bool(c.m) and not c.slices and c.a.guard is None
            and all(t.axis.extent == Const(1) for t in c.taps) and c.a.stride == Const(1)
            and c.a.buffer not in env["own"] and isinstance(c.k.axis.extent, Const)
            and c.k.axis.extent.value <= LONGEST_ROW)


def follows(c: Contract, say: Dialect, rows: Expr) -> bool:
    """True if there is a next panel of columns, which row tiles can fetch.  A single row tile
    streams through the panels: hardware sees that (with fetches 1x512x24576 takes 1.13 of its time
    on AVX2, 4x512x24576 1.22)."""
    most = upper(rows)
    alone = not c.slices and not _around(c)[0] and (
        upper(c.n.axis.extent) or LINE << 20) <= c.nv * c.lanes
    return (say.prefetches and c.b.mode == "panel" and c.a.mode == "rows"
            and (most is None or most > c.mr) and not alone)


def share_lines(c: Contract, env: KernelEnv, rows: Expr) -> list[str]:
    """C lines that set ``ahead`` where the count of rows is known at run time only."""
    if not follows(c, env["dialect"], rows) or isinstance(rows, Const):
        return []
    nr = c.nv * c.lanes
    share = f"{nr * c.mr} / aotc_max(rows, 1) + 1"
    share = f"aotc_max({SLOWEST}, aotc_min({min(LINE, nr)}, {share}))"
    return [f"const int64_t ahead = rows > {c.mr} ? {share} : 0;"]


def next_lines(c: Contract, nr: int, start: str) -> list[str]:
    """C lines that bind ``b_next``, the panel that comes after ``b_col``: the next one of these
    columns, of the next slice, of the next step of the loop around, else of the next columns, which
    may be another work item's; behind the last one ``start`` (C text), the first of all, with which
    other rows begin.  While only the first was known, 16x256x256 products in items of
    three panels, 36 behind one another, took 1.07 of their time on AVX2."""
    depth = as_expr(1)
    for r in c.slice_taps + c.taps + (c.k,):
        depth = depth * r.axis.extent
    size = c_index(simplify(depth * nr), 13)
    done = c_index(simplify(Var("n0", "i64") - c.n.lo), 13)
    first, back = f"b_col - {done} / {nr} * {size}", slice_offset(c, nr).replace(" + ", " - ", 1)
    ways = [(f"n0 + {nr} < {c_index(c.n.hi, 11)}", f"b_col + {size}")]
    if c.slices:
        left = c.k.axis.extent - Var("k_lo", "i64")
        step = simplify(minimum(Const(c.slice), left)) if c.slice_taps else Const(c.slice)
        ways.append((more(c), f"{first} + {c_index(simplify(step * nr), 13)}"))
    around, goes_on = _around(c)
    if around is not None:
        ways.append((goes_on, f"{first}{back} + {c_index(around, 13)}"))
    else:
        last = f"n0 + {nr} < {c_index(c.n.axis.extent, 11)}", f"b_col + {size}{back}"
        ways = [*ways, last] if c.slices else [last]
    head = f"const {Elements.of(c.dtypes[1]).ctype} *const b_next ="
    if len(ways) == 1:
        return [f"{head} {ways[0][0]} ? {ways[0][1]} : {start};"]
    return [f"{'    :' if i else head} {cond} ? {place}"
            for i, (cond, place) in enumerate(ways)] + [f"    : {start};"]


def _around(c: Contract) -> tuple[Expr | None, str]:
    """(elements from a panel to the same one in the next step of the loop around the Contract, C
    text of the condition that there is one); (None, "") where no such loop moves the panels."""
    step = stride(c.b.offset, c.outer[-1].axis) if c.outer else None
    if not isinstance(step, Const) or step == Const(0):
        return None, ""
    w, *others = reversed(c.outer)
    conditions = [f"{w.axis.name} + 1 < {c_index(w.hi, 11)}"]
    if others and w.lo == Const(0) and same(w.hi, w.axis.extent) and same(
            stride(c.b.offset, others[0].axis) or Const(0), step * w.axis.extent):
        v = others[0]  # its next step begins right behind
        conditions.append(f"{v.axis.name} + 1 < {c_index(v.hi, 11)}")
    return step, " || ".join(conditions)


def next_panel(c: Contract, rows: Expr, depth: Expr) -> tuple[str, str]:
    """C texts of what a row tile fetches of the next panel, and of its elements per step of k: all
    row tiles share it evenly, since memory is no faster than it was (while the first three of 32
    fetched it, 128x768x12288 on AVX2 took 1.05 of its time), and into the second cache (8x512x24576
    takes 1.75 of its time if into the first one)."""
    nr, ahead, last = c.nv * c.lanes, "ahead", f"{c.nv * c.lanes} - ahead"
    if isinstance(rows, Const):
        ahead = max(SLOWEST, min(LINE, nr, -(-nr * c.mr // rows.value)))
        last = nr - ahead
    at = f"aotc_min(m0 / {c.mr} * {ahead}, {last})"
    return f"b_next + {at} * {c_index(simplify(depth), 13)}", str(ahead)


def _in_pieces(c: Contract, env: KernelEnv) -> bool:
    """True for a window whose rows are short pieces of pixels that other kernels wrote."""
    if not env["dialect"].prefetches or c.lanes == 1 or c.dtypes[0] != "f32":
        return False
    if c.a.mode != "rows" or not c.taps or c.slices or c.a.stride != Const(1) or (
            c.a.buffer in env["own"]):
        return False
    piece, step = c.k.axis.extent, stride(c.a.offset, c.m[-1].axis)
    return (isinstance(piece, Const) and isinstance(step, Const) and piece.value < step.value
            and piece.value <= LONGEST_PIECE)


def _row(r: Range, plain: bool) -> str:
    """C text of a row axis's value in row ``i``, the last one's in those past the end."""
    if not plain:
        return f"{r.axis.name}_at[i]"
    first = [] if r.lo == Const(0) else [c_index(r.lo, 12)]
    return " + ".join([*first, "aotc_min(m0 + i, rows - 1)"])


def _places(c: Contract, env: KernelEnv) -> list[tuple[str, Expr]]:
    """(buffer, offset) of the f32 elements that the epilogue reads and stores, of those that differ
    from row to row and run along the columns; none that an earlier stage of the kernel has just
    stored.  Stores in scratch too: resnet18, whose Winograd products
    store there, takes 0.95 of its time on AVX2 (1.03 in an hour when others used the machine)."""
    if not env["dialect"].prefetches or c.lanes == 1 or c.turned or terms(c) < SHORTEST_SUM:
        return []
    rows = {r.axis for r in c.m}
    found = dict.fromkeys((x.buffer, x.index[0]) for p in c.puts
                          for x in unguarded_loads(p.value) if x.buffer not in env["own"])
    found |= dict.fromkeys((p.buffer, p.offset) for p in c.puts
                           if p.guard is None and p.value.dtype == "f32")
    return [(buffer, at) for buffer, at in found
            if axes_of(at) & rows and stride(at, c.n.axis) == Const(1)
            and not any(isinstance(n, Load) for n in walk(at))]


def unguarded_loads(e: Expr) -> list[Load]:
    """The f32 loads of an expression that happen whatever the conditions in it say."""
    if isinstance(e, Load):
        return [e] if e.dtype == "f32" else []
    kids = (e.cond,) if isinstance(e, Where) else children(e)
    return [x for k in kids for x in unguarded_loads(k)]


def _columns(c: Contract, offset: Expr, columns: int) -> list[Expr]:
    """Columns of a tile, one in each cache line of a row, none that does not exist."""
    steps = [stride(offset, r.axis) for r in c.m]
    aligned = columns % (LINE // 2) == 0 and all(
        s is not None and simplify(s % LINE) == Const(0) for s in steps)
    first = Axis("n0", c.n.axis.extent)
    return [first + j if "columns" in c.whole or not j else minimum(first + j, c.n.hi - 1)
            for j in [*range(0, columns, LINE)] + [columns - 1] * (not aligned)]
