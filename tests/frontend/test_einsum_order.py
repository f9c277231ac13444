"""Einsum of several operands: two by two where that takes sums out of others, else in one."""

import numpy as np
import pytest
from frontend_cases import EXECUTORS, one_node, program_of, run, same

from aotc.frontend.einsum import order_products

# equation: (extents by label, steps)
CASES = {
    "ij,jk,kl->il": (dict(i=16, j=24, k=24, l=8), 2),
    "bi,oij,bj->bo": (dict(b=5, o=16, i=20, j=24), 2),
    "bij,bjk,bki->b": (dict(b=3, i=20, j=24, k=28), 2),
    "ab,bc,cd,de->ae": (dict(a=9, b=10, c=11, d=12, e=13), 3),
    "abc,ai,bj,ck->ijk": (dict(a=6, b=7, c=8, i=9, j=10, k=11), 3),
    "ij,jk,kl->": (dict(i=16, j=24, k=24, l=8), 2),
    "...ij,...jk,kl->...il": (dict(z=3, i=16, j=24, k=24, l=8), 2),
    "bik,k,bjk->bij": (dict(b=4, i=16, j=16, k=24), 1),  # that only scales is no product
    "bik,k,kj,jl->bil": (dict(b=4, i=16, j=16, k=24, l=9), 2),
    "i,j,k->ijk": (dict(i=30, j=30, k=30), 1),  # nothing to sum
    "ai,bi,ci->abc": (dict(a=16, b=16, c=16, i=16), 1),  # no sum before the last
    "iij,jk,kl->l": (dict(i=12, j=14, k=15, l=16), 2),  # a diagonal
    "ij,jk,kl ->li": (dict(i=2, j=3, k=4, l=2), 1),  # small
}


def arrays_of(equation, sizes, dtype):
    r = np.random.default_rng()
    terms = equation.split("->")[0].replace(" ", "").replace("...", "z" if "z" in sizes else "")
    shapes = [tuple(sizes[c] for c in t) for t in terms.split(",")]
    if np.dtype(dtype).kind == "i":
        return [r.integers(-2**31, 2**31, s).astype(dtype) for s in shapes]
    return [r.standard_normal(s).astype(dtype) for s in shapes]


@pytest.mark.parametrize("equation", CASES)
def test_steps_give_what_one_gives(equation):
    sizes, steps = CASES[equation]
    model, feeds = one_node("Einsum", arrays_of(equation, sizes, np.float32),
                            dict(equation=equation))
    program = program_of(model)
    assert len(program.steps) == steps
    same(run(program, feeds), EXECUTORS["onnxruntime"](model, feeds), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("dtype", (np.int32, np.int64))
def test_integers_wrap_around_in_any_order(dtype):
    equation = "ab,bc,cd,de->ae"
    arrays = arrays_of(equation, CASES[equation][0], dtype)
    model, feeds = one_node("Einsum", arrays, dict(equation=equation))
    with np.errstate(over="ignore"):
        want = arrays[0] @ arrays[1] @ arrays[2] @ arrays[3]
    np.testing.assert_array_equal(run(program_of(model), feeds)[0], want)


def test_extents_that_are_not_known_are_no_reason_for_one_nest():
    equation, sizes = "bi,oij,bj->bo", CASES["bi,oij,bj->bo"][0]
    model, feeds = one_node("Einsum", arrays_of(equation, sizes, np.float32),
                            dict(equation=equation), shapes={"in0": ("n", 20), "in2": ("n", 24)})
    program = program_of(model)
    assert len(program.steps) == 2
    same(run(program, feeds), EXECUTORS["onnxruntime"](model, feeds), rtol=1e-4, atol=1e-3)


def test_the_cheaper_order_is_taken():
    sizes = dict(i=100, j=2, k=100, l=2)
    chain = [("i", "j"), ("j", "k"), ("k", "l")]
    first, last = order_products(chain, ("i", "l"), sizes)
    assert first == ((1, 2), ("j", "l")) and sorted(last[0]) == [0, 3]
    sizes = dict(i=2, j=100, k=2, l=100)
    assert order_products(chain, ("i", "l"), sizes)[0] == ((0, 1), ("i", "k"))
