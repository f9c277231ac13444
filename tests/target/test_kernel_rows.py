"""Rows say what they are in typed records: a wrong one is refused when it is built."""

from dataclasses import replace

import pytest

from aotc.ir.category import grouped_dtypes
from aotc.target import TARGETS
from aotc.target.kernel_rows import (
    GroupedWeights,
    NestRow,
    ProductRow,
    RegisterTile,
    SharedTile,
    Staging,
)
from aotc.target.micro_kernels import contraction, dot, dot_digits, dot_grouped

WIDE = contraction("test", 8, 4, 3)
BYTES = dot("test", 8, 4, 2)
GROUPS = dot_grouped("test", 8, 4, 2)
TILED = TARGETS["cuda"].product_row("contraction_f32_32x64__simt")
STAGED = TILED.staging


@pytest.mark.parametrize("build, wrong", [
    (lambda: replace(WIDE, name=""), "needs a name"),
    (lambda: replace(WIDE, category="dot"), "dots of narrower"),
    (lambda: replace(BYTES, category="contraction"), "of floats summed in f32"),
    (lambda: replace(WIDE, a="f31"), "element types are"),
    (lambda: replace(WIDE, b=()), "element types are"),
    (lambda: replace(WIDE, template=""), "a template, or a unit"),
    (lambda: replace(WIDE, unit="matrix", near="LB"), "a template, or a unit"),
    (lambda: replace(WIDE, unit="matrix", template=""), "memory of its operands"),
    (lambda: replace(WIDE, rate=0.0), "rate 0.0"),
    (lambda: replace(WIDE, load_cost=-1.0), "load_cost -1.0"),
    (lambda: replace(WIDE, even_rows=-1), "even_rows -1"),
    (lambda: replace(BYTES, grouped=GroupedWeights()), "grouped weights, and only they"),
    (lambda: replace(GROUPS, grouped=None), "grouped weights, and only they"),
    (lambda: RegisterTile(0, 1, 8), "one row"),
    (lambda: GroupedWeights(steps=0), "steps 0"),
    (lambda: replace(TILED.shared, teams=3), "cannot share 64 steps"),
    (lambda: replace(TILED.shared, thread=(4, 0)), "(4, 0) sums of a thread"),
    (lambda: SharedTile(steps=0, threads=32), "0 steps of the sum"),
    (lambda: replace(STAGED, usual=9), "9 steps, out of 2 to 8"),
    (lambda: replace(STAGED, ways=("moved",)), "some of copy, value"),
    (lambda: Staging(2, 2, 2, ("copy",), (0, 4)), "at least one word"),
    (lambda: Staging(2, 1, 2, ("copy",), (4, 4)), "2 steps, out of 1 to 2"),
    (lambda: Staging(2, 2, 2, ("copy",), (4, 12), True), "powers of two of 16 bytes"),
    (lambda: SharedTile(8, 32, staging=Staging(2, 2, 2, ("copy",), (4, 4))), "one of both"),
    (lambda: NestRow("", "map", ("f32",)), "needs a name"),
    (lambda: NestRow("n", "dot", ("f32",)), "category 'dot' of a nest"),
    (lambda: NestRow("n", "map", ("i4",)), "which no buffer has"),
    (lambda: NestRow("n", "map"), "lanes store some dtypes"),
    (lambda: NestRow("n", "map", ("f32",), 4), "windows and moves have some"),
])
def test_a_wrong_row_is_refused(build, wrong):
    with pytest.raises(ValueError) as err:
        build()
    assert wrong in str(err.value)


@pytest.mark.parametrize("rows, wrong", [
    ((WIDE, WIDE), "several rows named"), ((contraction("test", 4, 4, 3),), "vectors of 4 lanes"),
    ((TILED,), "vectors of 32 lanes"),
    ((replace(WIDE, shared=SharedTile(steps=1, threads=32)),), "threads share a tile")])
def test_a_target_takes_rows_of_its_own_vectors(rows, wrong):
    target = TARGETS["x86-64-v3"]
    with pytest.raises(ValueError) as err:
        replace(target, ukernels=(*target.ukernels, *rows))
    assert wrong in str(err.value)


def test_weights_of_four_bits_are_a_type_of_their_own():
    digits = dot_digits("test", 8)
    assert GROUPS.products == (grouped_dtypes("f32", 8), grouped_dtypes("f32", 4))
    assert digits.takes(grouped_dtypes("f32", 4))
    assert not digits.takes(grouped_dtypes("f32", 8))
    assert not digits.takes(None)


def test_a_row_is_found_by_its_kind():
    target = TARGETS["x86-64-v3"]
    assert isinstance(target.product_row("contraction_f32_4x24__avx2"), ProductRow)
    for name in ("map_f32__avx2", "no such row"):
        with pytest.raises(KeyError):
            target.product_row(name)
