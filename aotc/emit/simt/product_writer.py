"""The statements of products -> CUDA text: sums in registers, steps of operands in the block's
memory.  A row's template is one register tile's multiply-adds."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from jinja2 import Template

from aotc.emit.c.arrays import address
from aotc.emit.c.half_lanes import KIND
from aotc.emit.c.integers import is_index
from aotc.emit.c.loop_text import BracedLines, indent
from aotc.emit.c.scalars import LocalNames, Scalars
from aotc.emit.simt.few_rows_text import few_rows_names
from aotc.emit.simt.group_text import few_group_names, group_names
from aotc.emit.simt.neighbour_writer import NeighbourWriter
from aotc.emit.simt.simt_writer import flat_count, unflatten
from aotc.emit.simt.thread_sums import MMA, ThreadSums, neighbour_columns, thread_sums
from aotc.emit.text.cexpr import c_index
from aotc.emit.text.env import Env
from aotc.ir.block_statements import (
    Arrived,
    BlockArray,
    BlockTile,
    Commit,
    Digits,
    Fetch,
    FewRowSums,
    Hold,
    JoinSums,
    Owned,
    Product,
    Recall,
    Registers,
    Rounded,
    Shares,
    Sums,
    Swizzle,
    TeamSums,
    TurnSums,
)
from aotc.ir.contents import names_in
from aotc.ir.dtypes import DTYPES, HALVES
from aotc.ir.expr import Cast, Const, Var
from aotc.ir.kernel.plan_stages import points
from aotc.ir.simplify import simplify
from aotc.ir.statements import OWN, Body, Box, For, Let, Range, Spread
from aotc.target.kernel_rows import ProductRow

_UNROLL = "AOTC_UNROLL"
_MOST = 8  # points of a thread that stand one behind the other


class ProductWriter(NeighbourWriter):
    """CUDA text of all statements of a kernel.  row: the one of a name; template: a file of the
    target's folder.  ``small``: names of numbers of 32 bits in the product at work, ``of``: its
    row, ``sums``: what each of its threads has."""

    def __init__(self, env: Env, names: LocalNames, threads: int, base: int,
                 row: Callable[[str], ProductRow], template: Callable[[str], Template]) -> None:
        super().__init__(env, names, threads, base)
        self.row, self.template = row, template
        self.of: ProductRow | None = None
        self.sums: ThreadSums | None = None
        self.summed: Var | None = None  # the sum of neighbours at work, and its C text
        self.summed_at = ""

    @property
    def here(self) -> ThreadSums:
        assert self.sums is not None, "statements of sums stand in a product"
        return self.sums

    def share_of(self, sums: Sums) -> ThreadSums:
        """What each thread has of sums."""
        return self.here

    def product(self, s: Product) -> list[str]:
        self.of = row = self.row(s.row)
        self.small = frozenset(a.name for a in s.counters)
        self.sums = None if row.staging is None else thread_sums(row, self.threads)
        numbers = [(a.name, str(n)) for a, n in s.constants]
        numbers += self.sums.numbers if self.sums else ()
        lines = ["enum : int32_t { " + ", ".join(f"{n} = {x}" for n, x in numbers) + " };"]
        lines += self.sums.names if self.sums else ()
        lines += self.body(s.body)
        self.small = frozenset()
        return BracedLines(lines)

    def block_array(self, s: BlockArray) -> list[str]:
        c, name = element_type(s.dtype), s.name.removeprefix(OWN)
        shape = "".join(f"[{n}]" for n in s.shape)
        note = f": {s.note}" if s.note else ""
        return [f"/* {name}{shape}{note} */",
                f"const aotc_shared<{c}> {name} = aotc_slice<{c}>(shared, {s.offset}, "
                f"{s.elements});"]

    def digits(self, s: Digits) -> list[str]:
        before, _, kind, extents = flat_count(s.ranges, self.names, bounded=False)
        # a single axis is the number itself, which needs no division without a sign
        at = c_index(s.at, 12) if len(s.ranges) == 1 else f"({kind}){c_index(s.at)}"
        return before + unflatten(s.ranges, extents, at, kind, self.names,
                                  {a.name for a in s.used}, self.small)

    def loop(self, s: For) -> list[str]:
        if s.axis.name not in self.small:
            return super().loop(s)
        name, hi = s.axis.name, c_index(s.hi, 11)
        turn = f"{name} += {s.step}" if s.step > 1 else f"++{name}"
        return [f"for (int32_t {name} = {c_index(s.lo, 0)}; {name} < {hi}; {turn}) {{",
                *indent(self.inside(s.body)), "}"]

    def lets(self, lets: Sequence[Let]) -> list[str]:
        """A number of 32 bits that is read needs no cast to 64; conditions end where they may."""
        first = lets[0]
        if len(lets) == 1 and first.value.dtype == "bool" and is_index(first.value):
            return [f"const int {first.var.name} = {c_index(first.value, 0)};"]
        return super().lets([replace(s, value=s.value.x) if s.var.name in self.small and isinstance(
            s.value, Cast) else s for s in lets])

    def spread(self, s: Spread) -> list[str]:
        """Points that threads have one of at most stand in no loop, a few that are copied stand one
        behind the other."""
        count = points(s.ranges) or 0
        known = all(isinstance(simplify(r.hi - r.lo), Const) for r in s.ranges)
        few = any(isinstance(x, Fetch) for x in s.body) and count <= _MOST * self.threads
        if not self.small or s.over != "threads" or not known or not few and count > self.threads:
            return super().spread(s)
        if count > self.threads:
            return self._unrolled_points(s.ranges, s.body, count, self.threads)
        _, total, kind, extents = flat_count(s.ranges, self.names)
        at = self.names.fresh("at")
        binds = unflatten(s.ranges, extents, at, kind, self.names, names_in(s.body), self.small)
        lines = [f"const {kind} {at} = threadIdx.x;", *binds, *self.body(s.body)]
        if count == self.threads:
            return BracedLines(lines)
        return [f"if (threadIdx.x < {total}) {{", *indent(lines), "}"]

    # ------------------------------------------------------------ operands

    def fetch(self, s: Fetch) -> list[str]:
        block, buffer = Scalars(self.env, self.names), s.source.buffer
        at = address(self.env, buffer, s.source.offset, block.text)
        bytes_ = s.width * DTYPES[s.dtype].size
        to = self._place(s.to)
        call = f"aotc_cp_async{bytes_}({to}, "
        if s.valid == Const(True, "bool"):
            return [*block.lines, f"{call}{at});"]
        valid, first = block.text(s.valid), address(self.env, buffer, Const(0), block.text)
        if s.fill:
            return [*block.lines, f"if ({valid})", *indent([f"{call}{at});"]), "else",
                    *indent([f"aotc_fill<{s.width}, {DTYPES[s.dtype].c}>({to}, {s.fill});"])]
        return [*block.lines, f"{call}{valid} ? {at} : {first}, {valid});"]

    def commit(self, s: Commit) -> list[str]:
        return ["aotc_cp_commit();"]

    def arrived(self, s: Arrived) -> list[str]:
        return [f"aotc_cp_wait<{s.but}>();"]

    def registers(self, s: Registers) -> list[str]:
        kind = _vector(s.width) if s.dtype == "f32" else DTYPES[s.dtype].c
        return [f"{kind} {s.name}[{s.share}];"]

    def shares(self, s: Shares) -> list[str]:
        return self._unrolled_points(s.ranges, s.body, s.of.points, s.of.threads)

    def _unrolled_points(self, ranges: Sequence[Range], body: Body, count: int,
                         threads: int) -> list[str]:
        """``body`` for the points of ranges, of which every thread has a known share."""
        _, _, kind, extents = flat_count(ranges, self.names)
        at = self.names.fresh("at")
        binds = unflatten(ranges, extents, at, kind, self.names, names_in(body), self.small)
        lines = self.body(body)
        if count % threads:
            lines = [f"if ({at} < {count}) {{", *indent(lines), "}"]
        return [_UNROLL, f"for (int32_t p = 0; p < {-(-count // threads)}; ++p) {{", *indent([
            f"const {kind} {at} = threadIdx.x + p * {threads};", *binds, *lines]), "}"]

    def hold(self, s: Hold) -> list[str]:
        if s.source is None:
            assert s.value is not None, s
            return [f"{s.name}[p] = {s.value.name};"]
        block = Scalars(self.env, self.names)
        valid = block.text(s.valid, 0)
        at = address(self.env, s.source.buffer, s.source.offset, block.text)
        load = f"{s.name}[p] = aotc_load4({at});"
        if s.valid == Const(True, "bool"):
            return [*block.lines, load]
        return [*block.lines, f"{s.name}[p] = {_vector(s.width)}{{}};", f"if ({valid})",
                *indent([load])]

    def recall(self, s: Recall) -> list[str]:
        return [f"const {self.ctype(s.axis)} {s.axis.name} = {s.name}[p];"]

    def rounded(self, s: Rounded) -> list[str]:
        kind = KIND[s.dtype]
        value = f"{s.name}[p]" if s.value is None else s.value.name
        if s.width > 1:
            return [f"aotc_store_{kind}4({self._place(s.to)}, {value});"]
        at = f"{self.env['buffer'](s.to.buffer)}[{c_index(s.to.offset, 0)}]"
        return [f"{at} = aotc_to_{kind}({value});"]

    def _place(self, box: Box) -> str:
        return f"{self.env['buffer'](box.buffer)} + ({c_index(box.offset, 0)})"

    # ------------------------------------------------------------ sums

    def sums_start(self, s: Sums) -> list[str]:
        note = f" /* {s.note} */" if s.note else ""
        extents = "".join(f"[{n}]" for n in self.share_of(s).extents)
        return [f"{DTYPES[s.dtype].c} {s.name}{extents} = {{}};{note}"]

    def block_tile(self, s: BlockTile) -> list[str]:
        row, busy = self.row(s.row), [self.here.busy] * bool(self.here.busy)
        own_a = own_b = ""
        if s.sums.teams > 1:
            own_a, own_b = " + team * SHARE", " + team * SHARE * BN"
            if s.count is not None:
                first = "" if s.first == Const(0) else f"{c_index(s.first, 12)} + "
                busy.append(f"{first}team * SHARE < {c_index(s.count, 11)}")
        a, b = s.swizzle
        block = Scalars(self.env, self.names)
        groups = {} if s.groups is None else group_names(s, s.groups, block)
        text = self.template(s.template).render({
            "a_turn": turn(a, "m"), "b_turn": turn(b, "n"), **groups},
            a=self.now(s.a, own_a), b=self.now(s.b, own_b), sums=s.sums.name,
            element=element_type(row.stored), element_b=element_type(row.stored_b),
            depth="SHARE" if s.sums.teams > 1 else "BK", mma=MMA.get(s.sums.dtype + row.a, ""),
            by_columns=s.by_columns, rounded=s.rounded)
        lines = [*block.lines, *text.splitlines()]
        return [f"if ({' && '.join(busy)}) {{", *indent(lines), "}"] if busy else lines

    def now(self, box: Box, own: str = "") -> str:
        at = "" if box.offset == Const(0) else c_index(box.offset, 12)
        at = (at + own).removeprefix(" + ") if own else at
        return self._rows(box.buffer) + (f" + ({at})" if at else "")

    def _rows(self, buffer: str) -> str:
        """An array in the block's memory; halves that other stages read and write as their bits,
        as what is multiplied."""
        there = self.env.get("scratch", {}).get(buffer)
        if there is None or there.dtype not in HALVES:
            return str(self.env["buffer"](buffer))
        return (f"aotc_slice<{element_type(there.dtype)}>(shared, {there.offset}, "
                f"{there.elements})")

    def few_row_sums(self, s: FewRowSums) -> list[str]:
        block = Scalars(self.env, self.names)
        a, b = (address(self.env, x.buffer, x.offset, block.text) for x in (s.a, s.b))
        row = self.row(s.row)
        names = few_rows_names if row.per_thread else few_group_names
        text = self.template(s.template).render(
            a=a, b=b, parts=self.env["buffer"](s.parts), **names(s, row, self.threads))
        return BracedLines([*block.lines, *text.splitlines()])

    def join_sums(self, s: JoinSums) -> list[str]:
        at = "".join(f"[{i}]" for i in "ijk"[:len(self.here.extents)])
        lines = [f"{s.into.name}{at} += {s.sums.name}{at};", f"{s.sums.name}{at} = 0.0f;"]
        for i, n in reversed([*zip("ijk", self.here.extents)]):
            lines = _unrolled(i, n, lines)
        return lines

    def team_sums(self, s: TeamSums) -> list[str]:
        others, name = self.env["buffer"](s.at), s.sums.name
        if s.what == "keep":
            inner = [f"{others}[(((team - 1) * TM + i) * TN + j) * OWNERS + owner] = {name}[i][j];"]
            busy = f" && {self.here.busy}" if self.here.busy else ""
            head = f"if (team > 0{busy}) {{"
        else:
            inner = _unrolled("s", "TEAMS - 1", [
                f"{name}[i][j] += {others}[((s * TM + i) * TN + j) * OWNERS + owner];"])
            head = "if (team == 0) {"
        return [head, *indent(_unrolled("i", "TM", _unrolled("j", "TN", inner))), "}"]

    def turn_sums(self, s: TurnSums) -> list[str]:
        return [f"aotc_turn_quads<{s.width // 2}>({s.sums.name});"]

    def at_element(self, element: str) -> Env:
        if self.summed is None:
            return self.env
        sum_ = self.summed_at.format(j=f"(j + {element})")
        return {**self.env, "vars": {**self.env["vars"], self.summed: sum_}}

    def _columns(self, s: Owned) -> list[str]:
        """The columns of a row that a thread has, several neighbours of them at a time."""
        assert s.sum is not None and self.of is not None, s
        here = self.share_of(s.sums)
        begin = "" if s.first == Const(0) else f"{c_index(s.first, 12)} + "
        self.summed, self.summed_at = s.sum, f"{s.sums.name}{here.element}"
        self.store_call = "aotc_store_far"  # a product has its kernel alone
        inner = [f"const int64_t {s.axis.name} = {begin}{neighbour_columns(self.of, s.width)};",
                 *self.inside(s.body)]
        self.summed, self.store_call = None, NeighbourWriter.store_call
        return [_UNROLL, f"for (int32_t j = 0; j < {here.columns[0]}; j += {s.width}) {{",
                *indent(inner), "}"]

    def owned(self, s: Owned) -> list[str]:
        if s.width > 1:
            return self._columns(s)
        rows = s.what == "rows"
        here = self.share_of(s.sums)
        index, (count, place) = ("i", here.rows) if rows else ("j", here.columns)
        first = "" if s.first == Const(0) else f"{c_index(s.first, 12)} + "
        kind = "int32_t" if s.axis.name in self.small else "int64_t"
        inner = [f"const {kind} {s.axis.name} = {first}{place};"] * (
            s.axis.name in names_in(s.body))
        known = self.env
        if s.sum is not None:
            sum_ = f"{s.sums.name}{here.element.format(j='j')}"
            self.env = {**known, "vars": {**known["vars"], s.sum: sum_}}
        inner += self.inside(s.body)
        self.env = known
        lines = _unrolled(index, count, inner)
        return [f"if ({here.owner}) {{", *indent(lines), "}"] if rows and here.owner else lines


def _unrolled(index: str, count: str, inner: Sequence[str]) -> list[str]:
    return [_UNROLL, f"for (int32_t {index} = 0; {index} < {count}; ++{index}) {{",
            *indent(inner), "}"]


def turn(swizzle: Swizzle | None, row: str) -> str:
    """C text of what turns the 16 bytes of a row of a number."""
    if swizzle is None:
        return ""
    by = f" / {swizzle.rows}" if swizzle.rows > 1 else ""
    return f" ^ {row}{by} % {swizzle.chunks}"


def element_type(dtype: str) -> str:
    return f"aotc_{KIND[dtype]}" if dtype in KIND else DTYPES[dtype].c


def _vector(width: int) -> str:
    return "aotc_f32x4" if width > 1 else "float"


__all__ = ["MMA", "ProductWriter", "element_type", "turn"]
