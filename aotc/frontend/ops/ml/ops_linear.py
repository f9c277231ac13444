"""Linear models and support vector machines."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from aotc.frontend.building.bodies import Made, loop
from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import const
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.graph import Node
from aotc.frontend.ops.ml.scores import (
    ML,
    NONE,
    best_labels,
    labels_of,
    one_column,
    rows_of,
    times,
    transform_of,
    transformed,
    two_columns,
    two_labels,
    votes_above,
)
from aotc.frontend.ops.numeric.ops_nn import sigmoid
from aotc.frontend.ops.numeric.ops_reduce import fold_axes
from aotc.ir.dtypes import Array
from aotc.ir.expr import Axis, Binary, Const, Expr, Unary, Where, compare, maximum, minimum

_POWERS = 16  # degrees of a polynomial kernel that are multiplied out
_SURE = 1e-7  # how near to 0 or 1 the probability of one class against another comes
_ROUNDS = 100  # of the iteration that couples those probabilities
_CLOSE = 0.005  # when it ends, divided by the number of classes


# ---------------------------------------------------------------- linear models

@op("LinearRegressor", domain=ML)
def linear_regressor(node: Node, b: Builder) -> Result:
    """One target is left as it is by all post_transforms but PROBIT, as ONNX Runtime has it."""
    targets, how = node.attr("targets", 1), transform_of(b)
    scores = _affine(b, rows_of(b, b.input(0)), targets, _floats(b, "intercepts"))
    return one_column(b, scores, how) if targets == 1 else transformed(b, scores, how)


@op("LinearClassifier", domain=ML)
def linear_classifier(node: Node, b: Builder) -> Result:
    """(labels, scores): the label is that of the largest score before the post_transform."""
    x, how = rows_of(b, b.input(0)), transform_of(b)
    labels = labels_of(b, "classlabels_ints", "classlabels_strings")
    shift, classes = _floats(b, "intercepts"), labels.size or 0
    count = len(shift) or classes
    scores = _affine(b, x, count, shift)
    if count == classes:
        return best_labels(b, labels, scores), transformed(b, scores, how, out=1)
    if (count, classes) != (1, 2):
        raise b.bad(f"{count} scores for {classes} class labels")
    return two_labels(b, labels, scores, 0.0), two_columns(b, scores, how, True, out=1)


def _floats(b: Builder, name: str) -> Array:
    return np.array(b.node.attr(name) or (), np.float32)


def _affine(b: Builder, x: Val, count: int, shift: Array, attribute: str = "coefficients") -> Val:
    """[N, count]: rows times the coefficients, plus ``shift`` (of none, one or ``count``)."""
    factors = _floats(b, attribute)
    if count < 1 or not len(factors) or len(factors) % count or len(shift) not in (0, 1, count):
        raise b.bad(f"{len(factors)} coefficients and {len(shift)} intercepts for {count} scores")
    total = times(b, x, _constant(b, factors.reshape(count, -1), attribute), "sum")
    if not shift.any():
        return total
    by = _constant(b, np.broadcast_to(shift, count), "shift")
    return b.map(total.shape, lambda i: b.at(total, i) + b.at(by, i[1:]), [total], "scores")


def _constant(b: Builder, array: Array, tag: str) -> Val:
    return b.const(array, f"{b.node.label}_{tag}")


# ---------------------------------------------------------------- support vector machines

@op("SVMRegressor", domain=ML)
def svm_regressor(node: Node, b: Builder) -> Result:
    """[N, 1]; a post_transform changes nothing, as ONNX Runtime has it."""
    x, supports = rows_of(b, b.input(0)), node.attr("n_supports", 0)
    rho = _floats(b, "rho")[:1]
    if supports < 1:
        total = _affine(b, x, 1, rho)
    else:
        near = _kernels(b, x, supports)
        total = _affine(b, near, 1, rho)
    if not node.attr("one_class", 0):
        return total

    def side(i: Index) -> Expr:
        return Where(compare("gt", b.at(total, i), const(0, "f32")), const(1, "f32"),
                     const(-1, "f32"))
    return b.map(total.shape, side, [total])


@op("SVMClassifier", domain=ML)
def svm_classifier(node: Node, b: Builder) -> Result:
    """(labels, scores): with support vectors one score per pair of classes, or probabilities of
    classes where the model has them; without, a score per class."""
    x, how = rows_of(b, b.input(0)), transform_of(b)
    labels = labels_of(b, "classlabels_ints", "classlabels_strings")
    classes, counts = labels.size or 0, node.attr("vectors_per_class") or ()
    if not sum(counts):
        return _linear_machine(b, x, labels, how)
    if len(counts) != classes or classes < 2:
        raise b.bad(f"support vectors of {len(counts)} classes for {classes} class labels")
    pairs = _pairs(b, counts)
    scores = _affine_pairs(b, _kernels(b, x, sum(counts)), pairs)
    votes = votes_above(b, scores, _constant(b, pairs.first, "first"),
                        _constant(b, pairs.second, "second"), classes)
    label = best_labels(b, labels, votes)
    if len(_floats(b, "prob_a")):
        return label, transformed(b, _probabilities(b, scores, pairs, classes), how, out=1)
    if classes == 2:
        return label, two_columns(b, scores, how, how != NONE, out=1)
    return label, transformed(b, scores, how, out=1)


def _linear_machine(b: Builder, x: Val, labels: Val, how: str) -> Result:
    """Without support vectors: rows of coefficients, one per class."""
    classes = labels.size or 0
    scores = _affine(b, x, classes, _floats(b, "rho")[:1])
    return best_labels(b, labels, scores), transformed(b, scores, how, out=1)


def _kernels(b: Builder, x: Val, supports: int) -> Val:
    """[N, supports]: the kernel between rows and support vectors."""
    vectors = _floats(b, "support_vectors")
    if not len(vectors) or len(vectors) % supports:
        raise b.bad(f"{len(vectors)} numbers for {supports} support vectors")
    others = _constant(b, vectors.reshape(supports, -1), "vectors")
    given = (*_floats(b, "kernel_params").tolist(), 0.0, 0.0, 0.0)
    gamma, shift, degree = given[:3]
    kind = b.node.attr("kernel_type", "LINEAR")
    if kind == "RBF":
        b.require("eq", x.shape[1], others.shape[1], "support vectors have the input's features")
        n, s = b.axes((x.shape[0], others.shape[0]))
        f, = b.axes(others.shape[1:], ["f"])
        apart = b.load(x, (n, f)) - b.load(others, (s, f))
        far = b.compute((n, s), apart * apart, (f,), "sum", "distance")
        return b.map(far.shape, lambda i: Unary("exp", const(-gamma, "f32") * b.at(far, i)),
                     [far], "kernel")
    product = times(b, x, others, "product")
    if kind == "LINEAR":
        return product

    def bent(i: Index) -> Expr:
        e = const(gamma, "f32") * b.at(product, i) + const(shift, "f32")
        return Unary("tanh", e) if kind == "SIGMOID" else _power(e, degree)
    if kind not in ("POLY", "SIGMOID"):
        raise b.bad(f"kernel_type {kind!r} is none of LINEAR, POLY, RBF, SIGMOID")
    return b.map(product.shape, bent, [product], "kernel")


def _power(e: Expr, degree: float) -> Expr:
    if degree != int(degree) or not 1 <= degree <= _POWERS:
        return Binary("pow", e, const(degree, e.dtype))
    out = e
    for _ in range(int(degree) - 1):
        out = out * e
    return out


@dataclass(frozen=True)
class _Pairs:
    """Pairs of classes in their order: ``first``, ``second`` i64[P]; ``factors`` [P, supports] of
    kernels in their scores."""

    first: Array
    second: Array
    factors: Array


def _pairs(b: Builder, counts: tuple[int, ...]) -> _Pairs:
    """Row j - 1 of the coefficients is about class i < j against j, row i about j against i."""
    classes, supports = len(counts), sum(counts)
    given = _floats(b, "coefficients")
    if len(given) != (classes - 1) * supports or min(counts) < 0:
        raise b.bad(f"{len(given)} coefficients for {supports} support vectors of {classes} "
                    "classes")
    rows, starts = given.reshape(classes - 1, supports), np.cumsum((0, *counts))
    both = [(i, j) for i in range(classes) for j in range(i + 1, classes)]
    factors = np.zeros((len(both), supports), np.float32)
    for k, (i, j) in enumerate(both):
        one, two = slice(starts[i], starts[i + 1]), slice(starts[j], starts[j + 1])
        factors[k, one], factors[k, two] = rows[j - 1, one], rows[i, two]
    first, second = np.array(both).T
    return _Pairs(first, second, factors)


def _affine_pairs(b: Builder, near: Val, pairs: _Pairs) -> Val:
    """[N, P]: the score of every pair."""
    rho = _floats(b, "rho")
    if len(rho) < len(pairs.first):
        raise b.bad(f"{len(rho)} numbers rho for {len(pairs.first)} pairs of classes")
    total, by = times(b, near, _constant(b, pairs.factors, "factors"), "sum"), _constant(
        b, rho[:len(pairs.first)], "rho")
    return b.map(total.shape, lambda i: b.at(total, i) + b.at(by, i[1:]), [total], "scores")


# ---------------------------------------------------------------- probabilities of classes

def _probabilities(b: Builder, scores: Val, pairs: _Pairs, classes: int) -> Val:
    """[N, classes] from the scores [N, P]: a logistic function says how likely the first class of a
    pair is against the second; those are coupled by the iteration of Wu, Lin and Weng (2004), with
    the number of rounds and the end of libsvm's."""
    a, shift = _floats(b, "prob_a"), _floats(b, "prob_b")
    if min(len(a), len(shift)) < len(pairs.first):
        raise b.bad(f"{len(a)} and {len(shift)} numbers for {len(pairs.first)} pairs of classes")
    slope, by = _constant(b, a, "slope"), _constant(b, shift, "by")

    def likely(i: Index) -> Expr:
        e = b.at(scores, i) * b.at(slope, i[1:]) + b.at(by, i[1:])
        return minimum(maximum(sigmoid(Unary("neg", e)), const(_SURE, "f32")),
                       const(1 - _SURE, "f32"))
    pair = b.map(scores.shape, likely, [scores], "pair")
    matrix = _coupled(b, pair, pairs, classes)
    start = b.map((scores.shape[0], Const(classes)), lambda i: const(1 / classes, "f32"), [scores],
                  "start")
    on = b.map((scores.shape[0],), lambda i: const(1, "i32"), [scores], "open")

    def one(turn: Expr, before: Sequence[Val], parts: Sequence[Val]) -> Made:
        p, unfinished = before
        return _round(b, matrix, p, unfinished, classes)
    (found, _), _, _ = loop(b, "coupling", Const(_ROUNDS), [start, on], [], [], one)
    return found


def _coupled(b: Builder, pair: Val, pairs: _Pairs, classes: int) -> Val:
    """[N, classes, classes]: the matrix of the quadratic form that the probabilities minimise."""
    number = np.zeros((classes, classes), np.int64)
    number[pairs.first, pairs.second] = number[pairs.second, pairs.first] = np.arange(
        len(pairs.first))
    numbers, shape = _constant(b, number, "pairs"), (pair.shape[0], *[Const(classes)] * 2)

    def against(i: Index) -> Expr:
        """How likely the second index's class is against the third's; 0 against itself."""
        place = b.checked(b.at(numbers, i[1:]), len(pairs.first), "two classes are a pair")
        e = b.at(pair, (i[0], place))
        return Where(compare("eq", i[1], i[2]), const(0, "f32"),
                     Where(compare("lt", i[1], i[2]), e, const(1, "f32") - e))
    likely = b.map(shape, against, [pair], "likely")
    squares = fold_axes(b, likely, [1], "sum", lambda e, _: e * e, "squares", keep=False)

    def form(i: Index) -> Expr:
        return Where(compare("eq", i[1], i[2]), b.at(squares, i[:2]),
                     Unary("neg", b.at(likely, (i[0], i[2], i[1])) * b.at(likely, i)))
    return b.map(shape, form, [likely, squares], "form")


def _round(b: Builder, matrix: Val, p: Val, unfinished: Val, classes: int) -> Made:
    """One round: each probability in turn is set to what is best for it, all scaled to sum 1.
    Rows that are close enough stay as they are."""
    n, k = b.axes(p.shape)
    j = Axis("j", Const(classes))
    qp = b.compute((n, k), b.load(matrix, (n, k, j)) * b.load(p, (n, j)), (j,), "sum", "qp")

    def part(e: Expr, i: Index) -> Expr:
        return e * b.at(qp, i)
    pqp = fold_axes(b, p, [1], "sum", part, "pqp", keep=False)

    def off(e: Expr, i: Index) -> Expr:
        return Unary("abs", e - b.at(pqp, i[:1]))
    error = fold_axes(b, qp, [1], "max", off, "error", keep=False)

    def going(i: Index) -> Expr:
        close = compare("lt", b.at(error, i), const(_CLOSE / classes, "f32"))
        return Where(close, const(0, "i32"), b.at(unfinished, i))
    on = b.map(unfinished.shape, going, [error, unfinished], "on")
    new, now, whole = p, qp, pqp
    for t in range(classes):
        new, now, whole = _turn(b, matrix, new, now, whole, t)

    def kept(i: Index) -> Expr:
        return Where(compare("ne", b.at(on, i[:1]), const(0, "i32")), b.at(new, i), b.at(p, i))
    after = b.map(p.shape, kept, [p, new, on], "kept")
    left = fold_axes(b, on, [0], "max", None, "left", keep=False)
    again = b.map((), lambda i: compare("ne", b.at(left, i), const(0, "i32")), [left], "again")
    return [after, on], [], again


def _turn(b: Builder, matrix: Val, p: Val, qp: Val, pqp: Val, t: int) -> tuple[Val, Val, Val]:
    """(p, Qp, pQp) once probability ``t`` has been set."""
    one = const(1, "f32")
    at = Const(t)

    def step(i: Index) -> Expr:
        return (b.at(pqp, i) - b.at(qp, (*i, at))) / b.at(matrix, (*i, at, at))
    by = b.map(pqp.shape, step, [pqp, qp, matrix], f"step{t}")

    def whole(i: Index) -> Expr:
        d = b.at(by, i)
        return (b.at(pqp, i) + d * (d * b.at(matrix, (*i, at, at))
                                    + const(2, "f32") * b.at(qp, (*i, at)))) / (
            (one + d) * (one + d))

    def product(i: Index) -> Expr:
        d = b.at(by, i[:1])
        return (b.at(qp, i) + d * b.at(matrix, (i[0], at, i[1]))) / (one + d)

    def share(i: Index) -> Expr:
        d = b.at(by, i[:1])
        e = b.at(p, i)
        return Where(compare("eq", i[1], at), e + d, e) / (one + d)
    return (b.map(p.shape, share, [p, by], f"p{t}"),
            b.map(qp.shape, product, [qp, by], f"qp{t}"),
            b.map(pqp.shape, whole, [pqp, by], f"pqp{t}"))
