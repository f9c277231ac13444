"""Small Programs whose generated text fits a golden file."""

import numpy as np
from te_programs import Maker, ax, padded, relu, softmax

from aotc.ir.expr import Const, Sym


def dense():
    """relu(x w + b)"""
    m = Maker("dense")
    m.input("x", 7, 5)
    m.const("w", np.ones((5, 6), np.float32))
    m.const("b", np.ones(6, np.float32))
    i, j, k = ax("row", 7), ax("col", 6), ax("k", 5)
    m.step("xw", (i, j), m.ref("x", i, k) * m.ref("w", k, j), (k,), "sum")
    m.step("y", (i, j), relu(m.ref("xw", i, j) + m.ref("b", j)))
    return m.done("y")


def rows():
    """softmax of rows, any number of them"""
    m = Maker("rows")
    m.input("x", Sym("n", 1, 100), 20)
    softmax(m, "y", "x")
    return m.done("y")


def pool(channels=4):
    """3x3 maximum, stride two, padded by one"""
    m = Maker("pool")
    m.input("x", channels, 9, 9)
    c, y, x, i, j = ax("c", channels), ax("oh", 5), ax("ow", 5), ax("kh", 3), ax("kw", 3)
    value = padded(m, "x", (c, y * 2 + i - 1, x * 2 + j - 1), {1: 9, 2: 9})
    value = type(value)(value.cond, value.a, Const(float("-inf"), "f32"))
    m.step("y", (c, y, x), value, (i, j), "max")
    return m.done("y")
