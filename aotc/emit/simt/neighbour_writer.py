"""Neighbours that one thread has at once -> CUDA text: packs in registers, which are loaded before
a loop over their elements and stored behind it."""

from collections.abc import Collection
from dataclasses import replace

from aotc.emit.c.arrays import address, element
from aotc.emit.c.loop_text import BracedLines, indent
from aotc.emit.c.scalars import LocalNames, Scalars
from aotc.emit.simt.simt_writer import BlockWriter
from aotc.emit.text.cexpr import c_index
from aotc.emit.text.env import Env
from aotc.ir.block_statements import Neighbours
from aotc.ir.contents import names_in, with_expressions
from aotc.ir.dtypes import DTYPES
from aotc.ir.expr import Const, Expr, Var, rewrite, substitute
from aotc.ir.simplify import simplify
from aotc.ir.statements import Stmt, Store, walk_body


class NeighbourWriter(BlockWriter):
    """CUDA text of the statements of a block of threads, those that have several neighbours among
    them.  ``packed``: {buffer: the element at work of the pack that is stored there}.
    ``store_call``: the function that stores a pack outside of the block's memory."""

    store_call = "aotc_store_pack"

    def __init__(self, env: Env, names: LocalNames, threads: int, base: int) -> None:
        super().__init__(env, names, threads, base)
        self.packed: dict[str, str] = {}

    def neighbours(self, s: Neighbours) -> list[str]:
        width, e = s.wide.width, self.names.fresh("element")
        outside = self.env
        self.env = self.at_element(e)
        puts = {p.buffer: p for x in walk_body(s.body) if isinstance(x, Store) for p in x.puts
                if p.buffer in s.wide.writes}
        reads = {x: self.names.fresh("p") for x in s.wide.reads}
        writes = {b: self.names.fresh("p") for b in puts}
        before = [x for load, name in reads.items() for x in self.at_first(
            s, load.buffer, load.index[0],
            f"const {pack_type(load.dtype, width)} {name} = aotc_load_pack<{width}>", ");")]
        before += [f"{pack_type(p.value.dtype, width)} {writes[b]};" for b, p in puts.items()]
        own: dict[Expr, Expr] = {x: Var(self.names.fresh("x"), x.dtype) for x in reads}
        self.packed = {b: f"{name}.of[{e}]" for b, name in writes.items()} | self.packs(e)
        body = tuple(without_places(x, writes) for x in with_expressions(
            s.body, lambda x: rewrite(x, own.get)))
        inner = [f"const int64_t {s.axis.name} = {c_index(s.first, 12)} + {e};"] * (
            s.axis.name in names_in(body))
        inner += [f"const {DTYPES[x.dtype].c} {own[x]} = {name}.of[{e}];"
                  for x, name in reads.items()]
        inner += self.inside(body)
        self.packed, self.env = {}, outside
        loop = [f"AOTC_UNROLL for (int32_t {e} = 0; {e} < {width}; ++{e}) {{", *indent(inner), "}"]
        return BracedLines(before + loop + [x for b, p in puts.items() for x in self.at_first(
            s, b, p.offset, NeighbourWriter.store_call if b in self.env.get("scratch", ()) else
            self.store_call, f", {writes[b]});")])

    def packs(self, element: str) -> dict[str, str]:
        """What else is in registers, as of ``packed``."""
        return {}

    def at_element(self, element: str) -> Env:
        """What is known of the neighbour of a number, beside its place."""
        return self.env

    def at_first(self, s: Neighbours, buffer: str, offset: Expr, head: str, tail: str) -> list[str]:
        """Lines that call a function with the address of the first of neighbours in a buffer."""
        block = Scalars(self.env, self.names)
        first = simplify(substitute(offset, {s.axis: s.first}))
        text = address(self.env, buffer, first, block.text)
        return [*block.lines, f"{head}({text}{tail}"]

    def store(self, s: Store) -> list[str]:
        if not self.packed:
            return super().store(s)
        block = Scalars(self.env, self.names, [p.value for p in s.puts])
        lines = [f"{self.packed.get(p.buffer) or element(self.env, p.buffer, p.offset, block.text)}"
                 f" = {block.text(p.value)};" for p in s.puts]
        return block.lines + lines


def pack_type(dtype: str, width: int) -> str:
    return f"aotc_pack<{DTYPES[dtype].c}, {width}>"


def without_places(s: Stmt, packed: Collection[str]) -> Stmt:
    """A statement whose stores into packs have no place: the element at work is theirs."""
    if not isinstance(s, Store):
        return s
    return Store(tuple(replace(p, offset=Const(0)) if p.buffer in packed else p for p in s.puts))


__all__ = ["NeighbourWriter", "pack_type", "without_places"]
