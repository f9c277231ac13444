"""HeldRows as statements of a block of threads: each team has a row from the first load of it to
the last store."""

from dataclasses import dataclass, field, replace

from aotc.ir.block_statements import Neighbours
from aotc.ir.contents import nodes, substitute_axes, with_expressions
from aotc.ir.expr import Axis, Const, Expr, Load, Var, rewrite
from aotc.ir.kernel.plan_stages import HeldRows, Nest, points
from aotc.ir.kernel.row_statements import HeldRow, RowShare, RowTeams
from aotc.ir.simplify import simplify
from aotc.ir.statements import (
    Accumulate,
    Barrier,
    Body,
    First,
    Let,
    Put,
    Range,
    Start,
    Stmt,
    Store,
    Total,
)
from aotc.sched.expand.expansion import Expansion


def held_rows(s: HeldRows, expansion: Expansion, lanes: int, followed: bool = True) -> Body:
    """The statements of rows that teams hold; if ``followed`` by others that use the memory of a
    team's folds, too, all wait behind."""
    at = _Row(s, expansion, dict(s.made))
    for nest in s.nests:
        at.take(nest)
        (at.map if nest.fold == "none" else at.fold)(nest)
    behind: Body = (Barrier(),) if s.size > lanes and followed else ()
    return (RowTeams(s.rows, s.size, tuple(at.body)), *behind)


@dataclass
class _Row:
    """Statements of one row.  ``made``: {buffer: dtype} of the rows that nests make for later ones;
    ``held``: {load, or buffer that is made: what has its element at work, or the number of the
    row}."""

    run: HeldRows
    expansion: Expansion
    made: dict[str, str]
    body: list[Stmt] = field(default_factory=list)
    held: dict[Load | str, Expr] = field(default_factory=dict)

    def take(self, nest: Nest) -> None:
        """The loads that this nest is the first to make."""
        read = {*nodes(nest)}
        for x in self.run.loads:
            if x in read and x not in self.held:
                put = self.registers(x.dtype, x)
                reads = tuple(r for n in self.run.nests if n.wide for r in n.wide.reads if r == x)
                self.share(replace(nest, wide=nest.wide and replace(
                    nest.wide, reads=reads[:1], writes=())), (Store((put,)),))
                self.held[x] = Load(put.buffer, (put.offset,), x.dtype)

    def registers(self, dtype: str, value: Expr) -> Put:
        """Registers for a row of elements, and the store of one's ``value`` into them.  Their name
        says nothing of the tensor: kernels of others have the same function."""
        name = self.expansion.fresh("held_row")
        most = points((self.run.lane,))
        assert most is not None, self.run
        self.body.append(HeldRow(name, dtype, most, self.turns, self.run.width))
        return Put(name, simplify(self.run.lane.axis - self.run.lane.lo), value)

    @property
    def turns(self) -> int:
        """Points of a thread's share."""
        most = points((self.run.lane,))
        assert most is not None, self.run
        return -(-most // (self.run.size * self.run.width))

    def share(self, nest: Nest, body: Body) -> None:
        """``body`` for the elements of a row."""
        lane, width = self.run.lane, self.run.width
        if nest.wide is not None:
            part = Axis(self.expansion.fresh("part"), simplify(
                (lane.axis.extent + (width - 1)) // width))
            first = simplify(lane.lo + part * width)
            body = (Neighbours(lane.axis, first, nest.wide, body),)
            lane = Range(part, Const(0), simplify((lane.hi - lane.lo) // width))
        self.body.append(RowShare((lane,), self.run.size, self.turns, body))

    def known(self, nest: Nest) -> Nest:
        """A nest with what is held in place of its loads."""
        def instead(e: Expr) -> Expr | None:
            return self.held.get(e, self.held.get(e.buffer)) if isinstance(e, Load) else None
        found: Nest = with_expressions(nest, lambda e: rewrite(e, instead))
        wide = found.wide and replace(found.wide, reads=tuple(
            x for x in nest.wide.reads if instead(x) is None) if nest.wide else ())
        return replace(found, wide=wide)

    def fold(self, nest: Nest) -> None:
        """What the threads of a team fold is a number of the row that all of them know."""
        nest, old = self.known(nest), nest.acc[0]
        acc = Var(self.expansion.fresh(old.name), old.dtype)
        self.body.append(Start(acc, nest.fold_name))
        self.share(replace(nest, wide=nest.wide and replace(nest.wide, writes=())), (
            Accumulate(nest.fold_name, ((acc, nest.body),)),))
        self.body.append(Total(acc, nest.fold_name, acc, threads=self.run.size))
        own = {b for b, *_ in self.run.own}
        stored: list[Put] = []
        for p in substitute_axes(nest.puts, {old: acc}):
            number = Var(self.expansion.fresh("of_row"), p.value.dtype)
            self.body.append(Let(number, p.value))
            self.held[p.buffer] = number
            stored += [] if p.buffer in own else [replace(p, value=number)]
        if stored:
            self.body.append(First(self.run.size, (Store(tuple(stored)),)))

    def map(self, nest: Nest) -> None:
        nest, own = self.known(nest), {b for b, *_ in self.run.own}
        puts = [p for p in nest.puts if p.buffer not in own]
        for p in nest.puts:
            if p.buffer in self.made:
                puts.append(self.registers(self.made[p.buffer], p.value))
                self.held[p.buffer] = Load(puts[-1].buffer, (puts[-1].offset,), p.value.dtype)
        written = {p.buffer for p in puts}
        self.share(replace(nest, wide=nest.wide and replace(nest.wide, writes=tuple(
            b for b in nest.wide.writes if b in written))), (Store(tuple(puts)),))


__all__ = ["held_rows"]
