"""How weights in groups come to the memory of a block as they are stored: 16 bytes of neighbouring
columns at a time, of a step's rows of codes, and of the zero points and scales of its groups."""

from dataclasses import dataclass

from aotc.ir.block_statements import ACCESS, Fetch, StepGroups, Sums
from aotc.ir.expr import Binary, Const, Expr, Var, all_hold, compare, substitute
from aotc.ir.numbers.grouped import Grouping
from aotc.ir.simplify import simplify
from aotc.ir.statements import OWN, Body, Box, Let, Range, Spread
from aotc.sched.expand.block.block_steps import B_STEPS, BlockSteps

_VALID = Var(f"{OWN}valid", "bool")
_ALWAYS = Const(True, "bool")


@dataclass(frozen=True)
class BlockCodes:
    """B of one Contract, in bytes."""

    at: BlockSteps

    @property
    def grouping(self) -> Grouping:
        assert self.at.grouping is not None, self.at.c.row
        return self.at.grouping

    @property
    def span(self) -> int:
        """Terms of a group in a step: a single group may end anywhere."""
        size, bk = self.grouping.size, self.at.bk
        return bk if bk % size else size

    def groups(self, totals: Sums) -> StepGroups:
        """How a step of B lies in the block's memory."""
        span = self.span
        return StepGroups(self.grouping, totals, span,
                          None if self._steps == 1 else self._ends(self.at.step))

    @property
    def _steps(self) -> int:
        """Steps of a group."""
        return -(-self.grouping.size // self.at.bk)

    def _ends(self, step: Expr) -> Expr:
        """The condition that a step is the last one of a group, or of all."""
        return Binary("or", compare("eq", simplify(step % self._steps), self._steps - 1),
                      compare("eq", simplify(step + 1), self.at.steps))

    def fetched(self) -> Body:
        """All of the next step, to the block's memory."""
        at, g = self.at, self.grouping
        per, extra = 8 // g.bits, g.zeros + g.planes
        codes, beside = at.bk // per, at.bk // self.span
        own = self.span // per  # rows of codes of a group
        inside = simplify(at.k0 % g.size) // per if self._steps > 1 else Const(0)
        group, row = at.k0 // g.size, at.k
        here = self._copies(codes, simplify((group + row // own) * g.rows + inside + row % own),
                            row, at.k0 + row * per, None)
        if self._steps > 1:
            last = self._ends(at.next)
            rule = Binary("or", compare("lt", row, 1), last) if g.zeros else last
        else:
            rule = None
        return (*here, *self._copies(
            beside * extra, simplify((group + row // extra) * g.rows + g.codes + row % extra),
            codes + row, at.k0 + row // extra * g.size, rule))

    def _copies(self, rows: int, source: Expr, to: Expr, term: Expr, rule: Expr | None) -> Body:
        """Copies of so many rows of bytes, each from a row of the panels to one of the step; term:
        the first one that a row is of."""
        at, c, panel = self.at, self.at.c, self.at.row.panel
        column = simplify(at.n * panel)
        rules = [*([] if at.whole("sum") else [compare("lt", simplify(term), at.kc)]),
                 *([] if at.whole("columns") else [compare("lt", at.n0 + column, c.n.hi)]),
                 *([] if rule is None else [rule])]
        valid = all_hold(rules)
        first = simplify(substitute(c.b.offset, {c.n.axis: at.n0 + column}))
        place = Box(c.b.buffer, simplify(first + source * panel + at.quarter * ACCESS))
        box, turned = at.step_places(at.next)[1], simplify(column + at.quarter * ACCESS)
        if at.swizzle[1] is not None and to == at.k:  # what lies beside codes is not turned
            turned = simplify(at.swizzle[1].column(to, turned))
        spot = Box(B_STEPS, box.offset + to * box.strides[0] + turned)
        fetch = Fetch(spot, place, ACCESS, _ALWAYS if valid is None else _VALID, "u8")
        ranges = (Range(at.n, Const(0), Const(at.nr // panel)),
                  Range(at.k, Const(0), Const(rows)),
                  Range(at.quarter, Const(0), Const(panel // ACCESS)))
        return (Spread(ranges, "threads", at.threads, (
            *(() if valid is None else (Let(_VALID, valid),)), fetch)),)


__all__ = ["BlockCodes"]
