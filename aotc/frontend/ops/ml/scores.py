"""What the operators of ai.onnx.ml share: features as rows of floats, class labels, and what
becomes of scores at the end (``post_transform``).

Where the standard is silent, results are those of ONNX Runtime, which exporters test with: one
score for two classes has two columns, and one target of a regression is left as it is."""

import math
from dataclasses import replace

import numpy as np

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.symbolic import cast, const
from aotc.frontend.building.values import Index, Val
from aotc.frontend.ops.numeric.ops_nn import sigmoid
from aotc.frontend.ops.numeric.ops_norm import softmax_over
from aotc.frontend.ops.numeric.ops_reduce import arg_best, fold_axes
from aotc.ir.dtypes import TEXT
from aotc.ir.expr import Const, Expr, Unary, Where, compare
from aotc.ir.program import static_shape

ML = "ai.onnx.ml"
NONE, LOGISTIC, SOFTMAX, SOFTMAX_ZERO, PROBIT = (
    "NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO", "PROBIT")
TRANSFORMS = (NONE, SOFTMAX, LOGISTIC, SOFTMAX_ZERO, PROBIT)  # by number, as TreeEnsemble has them
_TINY = 1e-7  # what SOFTMAX_ZERO takes for 0
_BEND = 0.147  # of the closed form that stands for the inverse of erf


def transform_of(b: Builder) -> str:
    """The node's ``post_transform``; ModelError for one that the standard does not have."""
    how = b.node.attr("post_transform", NONE)
    if isinstance(how, int):
        how = TRANSFORMS[how] if 0 <= how < len(TRANSFORMS) else str(how)
    if how not in TRANSFORMS:
        raise b.bad(f"post_transform {how!r} is none of {', '.join(TRANSFORMS)}")
    return str(how)


def rows_of(b: Builder, x: Val, dtype: str = "f32") -> Val:
    """``x`` as rows [N, F] of floats; a vector is one row.  ``dtype``: of the result, "" keeps
    f64."""
    b.need(x, "fiub")
    if x.rank not in (1, 2):
        raise b.bad(f"rows of features [N, F] expected, got {x}")
    to = dtype or ("f64" if x.dtype == "f64" else "f32")
    if x.rank == 2 and x.dtype == to:
        return x
    shape = x.shape if x.rank == 2 else (Const(1), *x.shape)
    return b.map(shape, lambda i: cast(to, b.at(x, i[-x.rank:])), [x], "rows")


def times(b: Builder, x: Val, matrix: Val, tag: str) -> Val:
    """x [N, F] times the transposed ``matrix`` [K, F]: [N, K]."""
    b.require("eq", x.shape[1], matrix.shape[1], "there is a coefficient for every feature")
    n, k = b.axes((x.shape[0], matrix.shape[0]))
    f, = b.axes(matrix.shape[1:], ["f"])
    return b.compute((n, k), b.load(x, (n, f)) * b.load(matrix, (k, f)), (f,), "sum", tag)


def labels_of(b: Builder, ints: str, strings: str) -> Val:
    """The class labels of the attributes with these names, i64[K]: numbers, or texts."""
    numbers, texts = b.node.attr(ints) or (), b.node.attr(strings) or ()
    if bool(numbers) == bool(texts):
        raise b.bad(f"either {ints} or {strings} must be given")
    name = f"{b.node.label}_labels"
    if texts:
        return b.constant(np.array([b.text(t) for t in texts]), name, TEXT)
    return b.const(np.array(numbers, np.int64), name)


def label_at(b: Builder, labels: Val, place: Expr) -> Expr:
    """The label of the class at ``place``, an index from data."""
    count = static_shape(labels.shape)
    assert count is not None, labels  # a constant
    return b.at(labels, (b.checked(place, count[0], "a class has a label"),))


def best_labels(b: Builder, labels: Val, scores: Val) -> Val:
    """[N]: the label of the largest score of a row, the first of equal ones."""
    best = arg_best(b, scores, 1, "g", keep=False, tag="best")
    return replace(b.map(best.shape, lambda i: label_at(b, labels, b.at(best, i)),
                         [best, labels]), stored=labels.stored)


def two_labels(b: Builder, labels: Val, scores: Val, limit: float) -> Val:
    """[N]: the second label where the one score of a row is above ``limit``, else the first."""
    def body(i: Index) -> Expr:
        e = b.at(scores, (*i, Const(0)))
        return Where(compare("gt", e, const(limit, e.dtype)), b.at(labels, (Const(1),)),
                     b.at(labels, (Const(0),)))
    return replace(b.map(scores.shape[:1], body, [scores, labels]), stored=labels.stored)


def two_columns(b: Builder, scores: Val, how: str, whole: bool, out: int = 0) -> Val:
    """The two columns of one score per row.  ``whole``: both are one, as probabilities are, else
    they are opposite; UnsupportedError for PROBIT."""
    if how == PROBIT:
        raise b.unsupported("PROBIT of one score for two classes", "give a score for each class")

    def body(i: Index) -> Expr:
        e = b.at(scores, (i[0], Const(0)))
        other = const(1, e.dtype) - e if whole and how != LOGISTIC else Unary("neg", e)
        if how == LOGISTIC:
            e, other = sigmoid(e), sigmoid(other)
        return Where(compare("eq", i[1], Const(0)), other, e)
    return b.map((scores.shape[0], Const(2)), body, [scores], out=out)


def one_column(b: Builder, scores: Val, how: str) -> Val:
    """The one score per row of a regression or of one class: only PROBIT changes it."""
    return b.map(scores.shape, lambda i: _probit(b.at(scores, i)) if how == PROBIT
                 else b.at(scores, i), [scores])


def transformed(b: Builder, scores: Val, how: str, out: int = 0) -> Val:
    """The scores [N, K] after a ``post_transform``, output ``out`` of the node."""
    if how in (LOGISTIC, PROBIT):
        fn = sigmoid if how == LOGISTIC else _probit
        return b.map(scores.shape, lambda i: fn(b.at(scores, i)), [scores], out=out)
    if how == SOFTMAX:
        return softmax_over(b, scores, [1], out=out)
    if how == SOFTMAX_ZERO:
        return _softmax_zero(b, scores, out)
    return b.map(scores.shape, lambda i: b.at(scores, i), [scores], out=out)


def _softmax_zero(b: Builder, scores: Val, out: int) -> Val:
    """A softmax in which scores of 0 stay (nearly) 0; halves where there is nothing else."""
    top = fold_axes(b, scores, [1], "max", None, "max", keep=False)

    def power(i: Index) -> Expr:
        e, most = b.at(scores, i), b.at(top, i[:1])
        some = compare("gt", Unary("abs", e), const(_TINY, e.dtype))
        return Where(some, Unary("exp", e - most), e * Unary("exp", Unary("neg", most)))
    powers = b.map(scores.shape, power, [scores], "exp")
    total = fold_axes(b, powers, [1], "sum", None, "sum", keep=False)

    def share(i: Index) -> Expr:
        whole = b.at(total, i[:1])
        none = compare("eq", whole, const(0, whole.dtype))
        return Where(none, const(0.5, whole.dtype), b.at(powers, i) / whole)
    return b.map(scores.shape, share, [scores], out=out)


def _probit(e: Expr) -> Expr:
    """The quantile of the normal distribution, through the closed form of the inverse of erf that
    implementations of ai.onnx.ml share."""
    def c(value: float) -> Const:
        return const(value, e.dtype)
    x = c(2) * e - c(1)
    log = Unary("log", (c(1) - x) * (c(1) + x))
    v = c(2 / (math.pi * _BEND)) + c(0.5) * log
    size = Unary("sqrt", Unary("sqrt", v * v - c(1 / _BEND) * log) - v)
    return c(math.sqrt(2)) * Where(compare("lt", x, c(0)), Unary("neg", size), size)


def votes_above(b: Builder, scores: Val, first: Val, second: Val, classes: int) -> Val:
    """[N, classes]: of the pairs of classes (``first`` [P], ``second`` [P]), how many are won: the
    first's where its score [N, P] is positive, else the second's."""
    n, k = b.axes((scores.shape[0], Const(classes)))
    p, = b.axes(scores.shape[1:], ["p"])
    e = b.load(scores, (n, p))
    winner = Where(compare("gt", e, const(0, e.dtype)), b.at(first, (p,)), b.at(second, (p,)))
    return b.compute((n, k), Where(compare("eq", winner, k), const(1, "i32"), const(0, "i32")),
                     (p,), "sum", "votes")

