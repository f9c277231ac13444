"""A Program for some of its extents only: what a variant of a Schedule may assume."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

import numpy as np

from aotc.ir.dtypes import Array
from aotc.ir.expr import Axis, Const, Expr, Sym, rewrite
from aotc.ir.program import Branch, Compute, Fold, LibCall, Loop, Program, Step, update
from aotc.ir.simplify import simplify

Box = Mapping[str, tuple[int, int | None]]  # symbol -> lowest and highest extent
Visit = Callable[[Expr], Expr]
SMALL = 4096  # bytes of constants that are kept as they are


def restrict_to_box(program: Program, box: Box) -> Program:
    """The Program of calls whose symbols lie in ``box``, ranges inside the symbols' own: it has
    those ranges (decisions count with the middle of them), and a number instead of a symbol that
    the box leaves one only; steps whose results nothing reads then are gone.  Names are the same.
    Itself where the box is all there is: a symbol that never had but one value stays one in all
    parts of a Schedule, whose decisions may be the same."""
    syms = {s: _narrowed(s, *box[s.name]) for s in program.syms if s.name in box}
    if all(old == new for old, new in syms.items()):
        return program
    found: dict[Expr, Expr] = {}
    instead = {s: Const(n.lo) if n.lo == n.hi and s.lo != s.hi else n for s, n in syms.items()}

    def visit(e: Expr) -> Expr:
        new = rewrite(e, node, found)
        return e if new == e else simplify(new)

    def node(e: Expr) -> Expr | None:
        if isinstance(e, Axis):
            return replace(e, extent=visit(e.extent))
        return instead.get(e) if isinstance(e, Sym) else None

    return update(_program(program, visit, syms))


def with_usual_extents(program: Program, usual: Mapping[str, int]) -> Program:
    """The Program whose decisions count with these values of its symbols."""
    syms = {s: replace(s, usual=usual[s.name]) for s in program.syms if s.name in usual}
    found: dict[Expr, Expr] = {}

    def visit(e: Expr) -> Expr:
        return rewrite(e, node, found)

    def node(e: Expr) -> Expr | None:
        if isinstance(e, Axis):
            return replace(e, extent=visit(e.extent))
        return syms.get(e) if isinstance(e, Sym) else None

    return _program(program, visit, syms)


def _narrowed(sym: Sym, lo: int, hi: int | None) -> Sym:
    if (lo, hi) == (sym.lo, sym.hi):
        return sym
    likely = sym.likely if hi is None else min(sym.likely, hi)
    return replace(sym, lo=lo, hi=hi, likely=max(likely, lo) if sym.likely else 0,
                   usual=0 if hi is None else (lo + hi) // 2)


def _program(program: Program, visit: Visit, syms: Mapping[Sym, Sym]) -> Program:
    return replace(
        program, syms=tuple(syms.get(s, s) for s in program.syms),
        buffers={n: replace(b, shape=_all(visit, b.shape)) for n, b in program.buffers.items()},
        checks=tuple(replace(c, cond=visit(c.cond)) for c in program.checks),
        aliases=tuple(replace(a, kept=visit(a.kept), filled=visit(a.filled))
                      for a in program.aliases),
        steps=tuple(_step(s, visit, syms) for s in program.steps))


def _all(visit: Visit, exprs: Iterable[Expr]) -> tuple[Expr, ...]:
    return tuple(map(visit, exprs))


def _step(s: Step, visit: Visit, syms: Mapping[Sym, Sym]) -> Step:
    if isinstance(s, LibCall):
        return replace(s, numbers=_all(visit, s.numbers))
    if isinstance(s, Loop):
        return replace(s, trip=visit(s.trip), body=_program(s.body, visit, syms))
    if isinstance(s, Branch):
        one, two = (_program(b, visit, syms) for b in s.bodies)
        return replace(s, bodies=(one, two))
    return _compute(s, visit)


def _compute(c: Compute, visit: Visit) -> Compute:
    def axes(found: Iterable[Axis]) -> tuple[Axis, ...]:
        return tuple(replace(a, extent=visit(a.extent)) for a in found)

    fold = c.fold if isinstance(c.fold, str) else Fold(
        c.fold.states, _all(visit, c.fold.init), _all(visit, c.fold.update))
    return replace(c, axes=axes(c.axes), raxes=axes(c.raxes), fold=fold, body=visit(c.body))


def outline_constants(consts: Mapping[str, Array]) -> dict[str, Array]:
    """Constants, zeros of their shape that take no memory instead of large ones of f32: what a
    Program says whose values nobody asks for."""
    return {b: np.broadcast_to(np.float32(0), a.shape)
            if a.dtype == np.float32 and a.nbytes > SMALL else a for b, a in consts.items()}


__all__ = ["Box", "SMALL", "outline_constants", "with_usual_extents", "restrict_to_box"]
