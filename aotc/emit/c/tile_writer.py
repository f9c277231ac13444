"""Statements -> C text of a CPU's kernels: register tiles, their operands and their sums."""

from dataclasses import replace
from typing import Any

from aotc.emit.bundle.library_sources import call_lines
from aotc.emit.c.arrays import address
from aotc.emit.c.lane_writer import Lanes, LaneWriter
from aotc.emit.c.loop_text import BracedLines, indent, loops
from aotc.emit.c.register_tile import (
    COUNTED,
    INTEGERS,
    Elements,
    RegisterTileText,
    byte_words,
    tile_words,
)
from aotc.emit.c.scalars import CONDITION, Scalars
from aotc.emit.text.cexpr import c_index, c_size, constant, plus
from aotc.emit.text.dialect import environment
from aotc.ir.contents import names_in, substitute_axes, with_expressions
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Axis, Const, Expr, Load, rewrite, substitute
from aotc.ir.kernel.plan_stages import Call
from aotc.ir.numbers.byte_panels import PanelPlaces
from aotc.ir.simplify import simplify
from aotc.ir.statements import ACC_TILE, SUMS, Alloc, Box, Fill, Range, Store
from aotc.ir.tile_statements import (
    Expand,
    Pack,
    Point,
    RowCounters,
    RowTable,
    Tile,
    Vector,
    dot_step,
    is_narrow,
)
from aotc.target.micro_kernels import MOVED, TILES


class Writer(LaneWriter):
    """C text of one kernel's statements."""

    # ------------------------------------------------------------ memory

    def alloc(self, s: Alloc) -> list[str]:
        aligned = " __attribute__((aligned(64)))" if self.env["dialect"].lanes > 1 else ""
        return [f"{DTYPES[s.dtype].c} {self.env['buffer'](s.name)}[{s.elements}]{aligned};"]

    def fill(self, s: Fill) -> list[str]:
        value = constant(s.value)
        place = self._place(Box(s.buffer, s.offset))
        size = DTYPES[s.value.dtype].size
        count = s.count if size == 1 else simplify(s.count * size)
        return [f"memset({place}, {value}, {c_size(count)});"]

    def pack(self, s: Pack) -> list[str]:
        block = Scalars(self.env, self.names)
        source = self._place(Box(s.source, s.offset), block)
        args = (source, c_index(s.step, 0), c_index(s.columns, 0), c_index(s.depth, 0),
                self.env["buffer"](s.to), s.width)
        if s.group == 1:
            return block.lines + [self.env["dialect"].pack_columns(*args)]
        how = f"aotc_pack_{COUNTED[s.group]}" + "_across" * s.across
        return block.lines + [f"{how}({', '.join(map(str, args))});"]

    def expand(self, s: Expand) -> list[str]:
        block, g = Scalars(self.env, self.names), s.grouping
        source = self._place(Box(s.source, s.offset), block)
        how = {"u8": "aotc_expand_bytes", "i16": "aotc_expand_words"}.get(s.dtype, "aotc_expand")
        return block.lines + [
            f"{how}({self.env['buffer'](s.to)}, {source}, {c_index(s.depth, 0)}, {s.width}, "
            f"{g.bits}, {g.size}, {g.planes}, {int(g.zeros)});"]

    def point(self, s: Point) -> list[str]:
        block = Scalars(self.env, self.names)
        head = f"const {DTYPES[s.dtype].c} *const {self.env['buffer'](s.name)} ="
        *ways, (_, at) = s.ways
        last = self._place(at, block)
        texts = [f"{c_index(cond, 4)} ? {self._place(b, block)}" for cond, b in ways
                 if cond is not None]
        if len(texts) < 2:
            return [*block.lines, f"{' '.join([head, *texts])}{' :' if texts else ''} {last};"]
        return [*block.lines, f"{head} {texts[0]}", *(f"    : {t}" for t in texts[1:]),
                f"    : {last};"]

    def _place(self, at: Box, block: Scalars | None = None) -> str:
        """C text of the address of an element, an additive expression."""
        return address(self.env, at.buffer, at.offset, block.text if block else c_index)

    # ------------------------------------------------------------ rows

    def row_counters(self, s: RowCounters) -> list[str]:
        return [f"int64_t {r.axis.name}_row = {c_index(r.lo, 0)};" for r in s.rows]

    def row_table(self, s: RowTable) -> list[str]:
        taps = 1
        for t in s.taps:
            taps *= constant(t.axis.extent)
        count = c_index(s.count, 11)
        lines = [f"int64_t {a.name}_at[{s.mr}];" for a in s.values]
        lines += [f"const {self.row_type(s.dtype)} *a_row[{taps * s.mr}];"]
        # the counters stand for the axes
        s = substitute_axes(s, {r.axis: replace(r.axis, name=f"{r.axis.name}_row") for r in s.rows})
        values = [f"{a.name.removesuffix('_row')}_at[i] = {a.name};" for a in s.values]
        fill = self.body(s.body)
        block = Scalars(self.env, self.names)
        at = self._place(Box(s.buffer, s.offset), block)
        if s.guard is not None:
            outside = self.env["buffer"](s.outside) if s.outside else self.zeros
            at = f"{block.text(s.guard, CONDITION)} ? {at} : {outside}"
        index = simplify(_flat(s.taps) * s.mr)
        slot = "i" if not s.taps else f"{c_index(index, 12)} + i"
        fill += block.lines + loops(s.taps, [f"a_row[{slot}] = {at};"],
                                     names_in((s.offset, s.guard, index)))
        more = _next_row(s.rows, f"m0 + i + 1 < {count}")
        if s.body and s.mr > 1:  # they are packed once, the last one serves those behind it
            fill = [f"if (m0 + i < {count}) {{", *indent(fill), "} else {",
                    "    a_row[i] = a_row[i - 1];", "}"]
        kind = "int64_t" if s.body else "int"
        return [*lines, f"for ({kind} i = 0; i < {s.mr}; ++i) {{",
                *indent([*values, *fill, *more]), "}"]

    def row_type(self, dtype: str) -> str:
        """C type of what the pointers to rows point to."""
        return DTYPES[dtype].c

    zeros = "aotc_zeros"  # what a row outside of the padded tensor is

    # ------------------------------------------------------------ sums

    def tile(self, s: Tile) -> list[str]:
        return self._tile_in_place(s) if s.in_place else self._tile_call(s)

    def _tile_call(self, s: Tile) -> list[str]:
        """A call of the micro-kernel that leaves the sums in ``acc_tile``."""
        name, _ = ukernel_name(s, self.env["dialect"])
        function = f"{self.env['prefix']}_{name}"
        if is_narrow(s.micro.dtypes):
            return [f"{function}({c_index(s.taps, 0)}, {c_index(s.kc, 0)}, a_row, b_col, "
                    "acc_tile);"]
        tail = [x or none for x, none in zip(self._argument(s), ("NULL", "0"))]
        taps, kc, ak, *b = (c_index(e, 0) for e in (
            s.taps, s.kc, s.a.step, s.b.step, s.b.tap_step, s.b.left))
        return [f"{function}({taps}, {kc}, a_row, {ak}, b_col, {', '.join((*b, *tail))}, "
                "acc_tile);"]

    def _tile_in_place(self, s: Tile) -> list[str]:
        """The sums in an array of vectors."""
        self.tile_vectors = s.micro.nv
        say, block = self.env["dialect"], Scalars(self.env, self.names)
        params = ukernel_name(s, say)[1]
        if s.a.places:
            rows = [self._place(replace(r, offset=simplify(r.offset + s.a.first)), block)
                    for r in s.a.places]
        else:
            first = "" if s.a.first == Const(0) else f" + {c_index(s.a.first, 13)}"
            tap = f"tap0 * {s.micro.mr}"
            at = [plus(tap, i) if s.a.many_taps else f"{i}" for i in range(s.summed)]
            rows = [f"a_row[{x}]{first}" for x in at]
        one = s.taps == Const(1)
        step = "" if params["unit"] else f" * {c_index(s.a.step, 13)}"
        ahead = self._argument(s) if s.ahead else ["", ""]
        sums: dict[str, Any] = {
            "tile": RegisterTileText(
                s.summed, s.micro.nv, s.micro.lanes, f"a_rows[i][k0{step}]", tuple(rows), s.reread),
            "masked": params["masked"], "column": params["column"],
            "taps": "" if one else c_index(s.taps, 11), "kc": c_index(s.kc, 11),
            "ldb": c_index(s.b.step, 0),
            "panel": "b_col" if one else f"b_col + tap0 * {c_index(s.b.tap_step, 13)}",
            "n": c_index(s.b.left, 12), "next": ahead[0], "ahead": ahead[1]}
        text = environment(say.folder).get_template("contraction_tile.j2").render(sums)
        return block.lines + text.rstrip("\n").split("\n")

    def _argument(self, s: Tile) -> list[str]:
        """C texts of the dialect's ``argument`` of a micro-kernel: what the sums start from, or
        what is fetched meanwhile and how much of it per step of k."""
        if not self.env["dialect"].vectors.prefetches:
            return [self._place(s.start) if s.start else "NULL"]
        if s.ahead is None:
            return ["", ""]
        at, step = s.ahead
        return [self._place(at), c_index(step, 0)]

    def vector(self, s: Vector) -> list[str]:
        """C lines of what is done with one vector of columns."""
        s = _named_by_first(_sums_by_first(s))
        name, say = s.axis.name, self.env["dialect"]
        count, head = "", list[str]()
        if s.live is not None:
            count = c_index(s.live, 0)
            if not isinstance(s.live, Const):
                head, count = [f"const int64_t left = {count};"], "left"
        lanes = Lanes(s.axis, say, count)
        used = s.axis != s.first and name in names_in(s.body)
        lines = [f"const int64_t {name} = {c_index(s.first, 0)};"] if used else []
        self.lanes = lanes
        lines += self.body(s.body) if lines else self.inside(s.body)
        self.lanes = None
        lines = [*head, *lines]
        one = sum(not line.startswith(" ") for line in lines) == 1
        return lines if one else BracedLines(lines)

    def call(self, s: Call) -> list[str]:
        return call_lines(s, self.env, self.names)


def _sums_by_first(s: Vector) -> Vector:
    """The Vector with its sums, of which whole vectors are taken, at its first column."""
    def at_first(e: Expr) -> Expr:
        return simplify(substitute(e, {s.axis: s.first}))

    def placed(e: Expr) -> Expr | None:
        if not isinstance(e, Load) or e.buffer not in (ACC_TILE, SUMS):
            return None
        return replace(e, index=(at_first(e.index[0]),))

    body = tuple(replace(x, puts=tuple(
        replace(p, offset=at_first(p.offset)) if p.buffer == SUMS else p for p in x.puts))
        if isinstance(x, Store) else x for x in s.body)
    return replace(s, body=with_expressions(body, lambda e: rewrite(e, placed)))


def _named_by_first(s: Vector) -> Vector:
    """The Vector with the name of its first column, where that has one, for its axis."""
    if not isinstance(s.first, Axis) or s.first.name in names_in(s.body):
        return s
    old, new = s.axis.name, s.first.name

    def renamed(e: Expr) -> Expr | None:  # the first lane's variable too, whose extent differs
        return replace(e, name=new) if isinstance(e, Axis) and e.name == old else None

    axis = replace(s.axis, name=new)
    return replace(s, axis=axis, first=axis,
                   body=with_expressions(s.body, lambda e: rewrite(e, renamed)))


def _flat(ranges: tuple[Range, ...]) -> Expr:
    at: Expr = Const(0)
    for r in ranges:
        at = at * r.axis.extent + r.axis
    return simplify(at)


def _next_row(rows: tuple[Range, ...], more: str) -> list[str]:
    """Statements that step to the next row where there are ``more``: the row axes, each its
    counter, counted like an odometer, no division."""
    step: list[str] = []
    for r in rows:
        name, inner = r.axis.name, step
        step = [f"++{name};"]
        if inner:
            step = [f"if (++{name} == {c_index(r.hi, 11)}) {{",
                    *indent([f"{name} = {c_index(r.lo, 0)};", *inner]), "}"]
    return [f"if ({more}) {{", *indent(step), "}"] if step else []


def ukernel_name(s: Tile, say: Any) -> tuple[str, dict[str, Any]]:
    """Name of the micro-kernel instance a Tile calls, and its template parameters.  Vectors of any
    length never touch columns that do not exist: no instance of its own for those."""
    m = s.micro
    unit, fetches = s.a.step == Const(1), s.ahead is not None
    masked = s.b.masked and say.vectors.fixed
    base, column = m.row.replace("__", "_"), Elements.of(m.dtypes.b)
    name = base + ("" if unit else "_strided") + ("_masked" if masked else "") + (
        "_parts" if m.part else "") + column.suffix
    name += (f"_{s.live}rows" if s.live else "") + (f"_reread{s.reread}" if s.reread else "") + (
        f"_unroll{s.unroll}" if s.unroll > 1 else "")
    params = {"mr": m.mr, "nv": m.nv, "lanes": m.lanes, "nr": m.nr, "unit": unit,
              "summed": s.summed, "masked": masked, "unroll": s.unroll,
              "groups": say.vectors.sum_groups(m.mr)}
    dots, g = dot_step(m.dtypes.a), m.grouping
    if g is not None:
        name += f"_{g.bits}bits{g.size}_{g.planes}" + ("_zeros" if g.zeros else "")
        return name, params | {"grouping": g, "panel": PanelPlaces.of(g, m.nr, dots),
                               "counted": COUNTED[dots], "integers": INTEGERS.get(m.dtypes.a)}
    if dots > 1:
        if m.template == TILES:
            return name, params | tile_words(m.mr, m.nr, m.dtypes)
        return name, params | {"step": dots * m.nr} | byte_words(
            m.dtypes.a, m.template == MOVED)
    name += "_alone" if say.vectors.prefetches and not fetches else ""
    first, step = ("k_lo", "k0") if unit else ("k_lo * ak", "k0 * ak")
    rows = tuple(f"a[{i}] + {first}" for i in range(s.summed)) if m.part else ()
    return name, params | {
        "part": m.part, "column": column, "fetches": fetches, "tile": RegisterTileText(
            s.summed, m.nv, m.lanes, f"{'a_rows' if m.part else 'a'}[i][{step}]", rows, s.reread)}


__all__ = ["Writer", "ukernel_name"]
