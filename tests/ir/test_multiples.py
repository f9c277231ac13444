"""Multiples of a constant."""

from aotc.ir.access import is_multiple
from aotc.ir.expr import Axis, Const, Sym, minimum

LO = Axis("lo", Const(96))
TILE = Axis("tile", Const(6))


def test_multiples():
    n = Sym("n", 1, 40)
    assert is_multiple(TILE * 16, 8) and is_multiple(n * 4 + TILE * 8, 4)
    assert not is_multiple(TILE * 16 + 4, 8) and not is_multiple(n * 4, 8)


def test_ends_of_tiles():
    hi = minimum(LO + 64, Const(96))
    assert is_multiple(hi - LO, 32, {LO: TILE * 64})
    assert not is_multiple(hi - LO, 64, {LO: TILE * 64})
    assert not is_multiple(hi - LO, 32) and not is_multiple(hi - LO, 32, {LO: TILE * 48})
