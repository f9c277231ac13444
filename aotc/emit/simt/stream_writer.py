"""The statements of streams -> CUDA text: two products of a warp's whole rows, what is carried of
those between."""

from dataclasses import replace

from aotc.emit.c.half_lanes import KIND
from aotc.emit.c.loop_text import BracedLines
from aotc.emit.c.scalars import Scalars
from aotc.emit.simt.product_writer import MMA, ProductWriter, element_type, turn
from aotc.emit.simt.thread_sums import ThreadSums
from aotc.emit.text.cexpr import c_index
from aotc.ir.block_statements import BlockTile, Owned, Product, Sums, Swizzle
from aotc.ir.expr import Const, Var
from aotc.ir.kernel.stream_statements import Assign, CarryRows, HeldTile, JoinRows, RowNumbers
from aotc.ir.statements import Box


class StreamWriter(ProductWriter):
    """CUDA text of all statements of a kernel.  ``rows``: the numbers of rows that are carried in
    the product at work, ``streams``: whether it is a stream."""

    rows: tuple[Var, ...] = ()
    streams = False

    def product(self, s: Product) -> list[str]:
        self.rows, self.streams = (), self.row(s.row).category == "stream"
        return super().product(s)

    def share_of(self, sums: Sums) -> ThreadSums:
        """A warp of a stream has its rows whole, of whatever sums."""
        here = super().share_of(sums)
        if not self.streams:
            return here
        return replace(here, extents=("WM / 16", f"{sums.nr} / 8", "4"),
                       columns=(f"{sums.nr} / 4", here.columns[1]))

    def row_numbers(self, s: RowNumbers) -> list[str]:
        self.rows = (*self.rows, s.var)
        block = Scalars(self.env, self.names)
        text = block.text(s.value)
        return [*block.lines, f"float {s.var.name}[WM / 8];", "AOTC_UNROLL",
                "for (int32_t i = 0; i < WM / 8; ++i)", f"    {s.var.name}[i] = {text};"]

    def owned(self, s: Owned) -> list[str]:
        known = self.env
        if s.what == "rows" and self.rows:
            self.env = {**known, "vars": {**known["vars"], **{
                v: f"{v.name}[i]" for v in self.rows}}}
        lines = super().owned(s)
        self.env = known
        return lines

    def assign(self, s: Assign) -> list[str]:
        block = Scalars(self.env, self.names, [s.value])
        text = block.text(s.value)
        return [*block.lines, f"{self.env['vars'][s.var]} = {text};"]

    def block_tile(self, s: BlockTile) -> list[str]:
        if not self.streams:
            return super().block_tile(s)
        a, b = s.swizzle
        return self._tile(s, s.b, b, s.depth, a=self.now(s.a), a_turn=turn(a, "m"))

    def held_tile(self, s: HeldTile) -> list[str]:
        return self._tile(s, s.b, s.swizzle, s.held.nr, held=s.held.name)

    def _tile(self, s: BlockTile | HeldTile, b: Box, swizzle: Swizzle | None, depth: int,
              a: str = "", a_turn: str = "", held: str = "") -> list[str]:
        """The products of one step, of rows in the block's memory or ``held`` in registers."""
        row = self.row(s.row)
        assert row.stored != "f32" or swizzle is None or (swizzle.chunks, swizzle.rows) == (8, 1), s
        text = self.template(s.template).render(
            held=held, a=a, b=self.now(b), sums=s.sums.name, element=element_type(row.stored),
            kind=KIND.get(row.a, ""), mma=MMA.get("f32" + row.a, ""), depth=depth,
            columns=s.sums.nr, bn=c_index(b.strides[0], 0), a_turn=a_turn,
            b_turn=turn(swizzle, "n"), row_turn=turn(swizzle, "row"), by_columns=s.by_columns,
            rounds=s.rounds if isinstance(s, HeldTile) else s.rounded)
        return BracedLines(text.splitlines())

    def carry_rows(self, s: CarryRows) -> list[str]:
        scale = Scalars(self.env, self.names).text(Const(s.scale, "f32"))
        return [f"aotc_carry_rows({s.scores.name}, {s.into.name}, {s.greatest.name}, "
                f"{s.total.name}, {scale});"]

    def join_rows(self, s: JoinRows) -> list[str]:
        return [f"aotc_join_rows({s.total.name});"]


__all__ = ["StreamWriter"]
