"""Rows in the registers of teams of threads -> CUDA text: what a thread has of a row is an array,
which unrolled loops leave in registers."""

from dataclasses import replace
from typing import Any

from aotc.emit.c.loop_text import BracedLines, indent
from aotc.emit.c.scalars import Scalars
from aotc.emit.simt.neighbour_writer import pack_type, without_places
from aotc.emit.simt.simt_writer import WARP, flat_count, unflatten
from aotc.emit.simt.stream_writer import StreamWriter
from aotc.emit.text.env import Env
from aotc.ir.block_statements import Neighbours
from aotc.ir.contents import names_in, with_expressions
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Binary, Const, Expr, Load, Var, rewrite
from aotc.ir.kernel.plan_stages import points
from aotc.ir.kernel.row_statements import HeldRow, RowShare, RowTeams
from aotc.ir.program import FOLD_STEP
from aotc.ir.simplify import simplify
from aotc.ir.statements import OWN, Body, First, Put, Spread, Stmt, Store, Total


class RowWriter(StreamWriter):
    """CUDA text of all statements of a kernel.  ``rows_held``: what is in registers, by name;
    ``turn``: the C text of which point of its share a thread is at; ``live``: C condition that a
    team has a row ("": all do); ``in_rows``: teams have some; ``folds``: Totals of teams so far,
    which take turns with two places in the block's memory."""

    turn, live, folds, in_rows = "0", "", 0, False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.rows_held: dict[str, HeldRow] = {}

    def row_teams(self, s: RowTeams) -> list[str]:
        self.rows_held, self.folds, self.in_rows = {}, 0, True
        if s.size <= WARP:
            return self.spread(Spread(s.ranges, "groups", s.size, s.body))
        before, rows, kind, extents = flat_count(s.ranges, self.names)
        teams, most = self.threads // s.size, points(s.ranges)
        assert most is not None and most <= teams, s
        team = at = self.names.fresh("row")
        lines = [f"const {kind} {team} = threadIdx.x / {s.size};"]
        if rows != f"{teams}u" or self.threads % s.size:
            self.live, at = self.names.fresh("live"), self.names.fresh("there")
            lines += [f"const bool {self.live} = {team} < {rows};",
                      f"const {kind} {at} = {self.live} ? {team} : 0;"]
        binds = unflatten(s.ranges, extents, at, kind, self.names, names_in(s.body))
        if not any(at in x for x in binds):
            lines = lines[:-1]
        body = self.body(s.body)
        self.live, self.in_rows = "", False
        return BracedLines([*before, *lines, *binds, *body])

    def held_row(self, s: HeldRow) -> list[str]:
        self.rows_held[s.name] = s
        kind = DTYPES[s.dtype].c if s.width == 1 else pack_type(s.dtype, s.width)
        return [f"{kind} {s.name.removeprefix(OWN)}[{s.turns}];"]

    def row_share(self, s: RowShare) -> list[str]:
        (r,) = s.ranges
        before, total, kind, extents = flat_count(s.ranges, self.names)
        at = self.names.fresh("at")
        self.turn = self.names.fresh("turn") if s.turns > 1 else "0"
        first = "threadIdx.x" + f" % {s.size}" * (s.size < self.threads)
        turned = f" + {self.turn} * {s.size}" * (s.turns > 1)
        body = tuple(map(self._registers, s.body))
        inside = unflatten(s.ranges, extents, at, kind, self.names, _used_names(body))
        bound = bool(inside)
        known = self.env
        if not any(isinstance(x, Neighbours) for x in body):
            self.env, self.packed = self.at_element(""), self.packs("")
        inside += self._loaded(body) or self.inside(body)
        self.env, self.packed = known, {}
        there = [self.live] * bool(self.live)
        there += [f"{at} < {total}"] * (simplify(r.hi - r.lo) != Const(s.size * s.turns))
        if there:
            inside = [f"if ({' && '.join(there)}) {{", *indent(inside), "}"]
        named = bound or any(x.startswith(at) for x in there)
        lines = [f"const {kind} {at} = {first}{turned};"] * named + inside
        if s.turns > 1:
            lines = [f"AOTC_UNROLL for (int32_t {self.turn} = 0; {self.turn} < {s.turns}; "
                     f"++{self.turn}) {{", *indent(lines), "}"]
            return [*before, *lines] if not before else BracedLines([*before, *lines])
        return BracedLines([*before, *lines])

    def _registers(self, s: Stmt) -> Stmt:
        """A statement with names for what it reads of registers; there are no places in them."""
        def instead(e: Expr) -> Expr | None:
            return Var(e.buffer, e.dtype) if isinstance(
                e, Load) and e.buffer in self.rows_held else None
        if isinstance(s, Neighbours):
            return replace(s, body=tuple(map(self._registers, s.body)))
        return without_places(with_expressions(s, lambda e: rewrite(e, instead)), self.rows_held)

    def _loaded(self, body: Body) -> list[str]:
        """Neighbours that are loaded into registers as they are; none where more is done."""
        (s,) = body
        if not isinstance(s, Neighbours) or s.wide.writes:
            return []
        match s.body:
            case (Store((Put(name, _, Load() as x),)),) if (x,) == s.wide.reads:
                return self.at_first(s, x.buffer, x.index[0], f"{self.packs('')[name]} = "
                                     f"aotc_load_pack<{s.wide.width}>", ");")
        return []

    def packs(self, element: str) -> dict[str, str]:
        of = f".of[{element}]" if element else ""
        return {b: f"{b.removeprefix(OWN)}[{self.turn}]{of}" for b in self.rows_held}

    def at_element(self, element: str) -> Env:
        known = super().at_element(element)
        held: dict[Expr, str] = {Var(b, self.rows_held[b].dtype): text
                                 for b, text in self.packs(element).items()}
        return {**known, "vars": {**known["vars"], **held}} if held else known

    def first(self, s: First) -> list[str]:
        if not self.live:
            return super().first(s)
        return [f"if ({self.live} && threadIdx.x % {s.size} == 0) {{",
                *indent(self.inside(s.body)), "}"]

    def total(self, s: Total) -> list[str]:
        """The parts of a team's warps join in their order, in every thread of it."""
        if s.threads <= WARP or not self.in_rows:
            return super().total(s)
        names, acc, c = self.names, s.var.name, DTYPES[s.var.dtype].c
        parts, part, first = names.fresh("parts"), names.fresh("part"), names.fresh("first")
        warps, at = s.threads // WARP, self.base + self.folds % 2 * 8 * (self.threads // WARP)
        self.folds += 1
        x = Var("x", s.var.dtype)
        step = Scalars({**self.env, "vars": {**self.env["vars"], x: f"{parts}[{first} + {part}]"}},
                       names)
        update = step.text(Binary(FOLD_STEP[s.fold], s.var, x))
        return [*super().total(s), "{", *indent([
            f"const aotc_shared<{c}> {parts} = aotc_slice<{c}>(shared, {at}, "
            f"{self.threads // WARP});", f"if (threadIdx.x % {WARP} == 0)",
            f"    {parts}[threadIdx.x / {WARP}] = {acc};", "aotc_syncthreads();",
            f"const uint32_t {first} = threadIdx.x / {s.threads} * {warps};",
            f"{acc} = {parts}[{first}];",
            f"AOTC_UNROLL for (uint32_t {part} = 1; {part} < {warps}; ++{part})",
            f"    {acc} = {update};"]), "}"]


def _used_names(body: Body) -> set[str]:
    """Names that the text of a share uses: of neighbours in registers alone no place."""
    (s,) = body
    if isinstance(s, Neighbours) and not (s.wide.reads or s.wide.writes) and (
            s.axis.name not in names_in(s.body)):
        return {*names_in(s.body)}
    return {*names_in(s)}


__all__ = ["RowWriter"]
