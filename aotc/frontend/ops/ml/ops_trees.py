"""Ensembles of decision trees.  A library kernel walks them (``packed.py``) where the target has
one and leaves' weights are summed; else they are walked level by level: where every tree stands is
a tensor of node numbers, which tables of constants take one step down (``forest.py``)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import cast, const
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.graph import Node
from aotc.frontend.ops.ml.forest import (
    MEMBER,
    MOST_WEIGHTS,
    Forest,
    by_target,
    forest_of_ensemble,
    forest_of_lists,
    voted,
    weights,
)
from aotc.frontend.ops.ml.packed import Packed, packed
from aotc.frontend.ops.ml.scores import (
    ML,
    best_labels,
    labels_of,
    one_column,
    rows_of,
    transform_of,
    transformed,
    two_columns,
    two_labels,
)
from aotc.ir.dtypes import DTYPES, INDEX, Array
from aotc.ir.expr import Axis, Binary, Const, Expr, Unary, Where, compare
from aotc.ir.program import static_shape

_COMPARE = ("le", "lt", "ge", "gt", "eq", "ne")  # the modes but MEMBER
AVERAGE = "average"
_FOLDS = (AVERAGE, "sum", "min", "max")  # aggregate_function of TreeEnsemble
_NARROW = 1 << 31  # nodes that i32 counts


@dataclass(frozen=True)
class _Reached:
    """``at`` [N, trees]: the leaf that every tree ends in; ``apart``: as many trees for each
    target, one target after the other, each about nothing else."""

    forest: Forest
    at: Val
    apart: bool


# ---------------------------------------------------------------- operators

@op("TreeEnsemble", since=5, domain=ML)
def tree_ensemble(node: Node, b: Builder) -> Result:
    x, how = b.input(0), node.attr("aggregate_function", 1)
    b.need(x, "f")
    if x.rank != 2 or not 0 <= how < len(_FOLDS):
        raise b.bad(f"features [N, F] and an aggregate function of 0 to {len(_FOLDS) - 1} expected")
    forest = forest_of_ensemble(b, x.shape[1], DTYPES[x.dtype].numpy)
    return _regressed(b, _totals(b, x, forest, _FOLDS[how]), forest.votes.targets)


@op("TreeEnsembleRegressor", domain=ML)
def tree_ensemble_regressor(node: Node, b: Builder) -> Result:
    x = rows_of(b, b.input(0), "")
    fold = str(node.attr("aggregate_function", "SUM")).lower()
    if fold not in _FOLDS:
        raise b.bad(f"aggregate_function {fold.upper()!r} is none of "
                    f"{', '.join(_FOLDS).upper()}")
    targets = node.attr("n_targets", 1)
    forest = forest_of_lists(b, x.shape[1], DTYPES[x.dtype].numpy, "target", targets)
    return _regressed(b, _totals(b, x, forest, fold), targets)


def _regressed(b: Builder, scores: Val, targets: int) -> Val:
    how = transform_of(b)
    return one_column(b, scores, how) if targets == 1 else transformed(b, scores, how)


@op("TreeEnsembleClassifier", domain=ML)
def tree_ensemble_classifier(node: Node, b: Builder) -> Result:
    """(labels, scores).  What leaves of two classes leave open is as ONNX Runtime has it."""
    x, how = rows_of(b, b.input(0), ""), transform_of(b)
    labels = labels_of(b, "classlabels_int64s", "classlabels_strings")
    classes = labels.size or 0
    forest = forest_of_lists(b, x.shape[1], DTYPES[x.dtype].numpy, "class", classes)
    about = np.unique(forest.votes.target)
    if classes <= 2 and len(about) <= 1:
        return _of_one_score(b, x, forest, labels, how)
    if _bases(b) or _all_voted_for(forest):
        some, sums = None, _summed(b, x, forest, "sum")
    else:
        _bounded(b, forest)
        reached = _walk(b, x, forest)
        some, sums = _some_vote(b, reached), _sums(b, x, reached, "sum")
    scores = _based(b, sums, classes)
    if classes == 2 and not _bases(b):
        return _of_two_scores(b, labels, scores, some, how)
    ranked = scores if some is None else b.map(scores.shape, lambda i: Where(
        b.at(some, i), b.at(scores, i), const(-np.inf, scores.dtype)), [scores, some], "ranked")
    return best_labels(b, labels, ranked), transformed(b, scores, how, out=1)


def _of_one_score(b: Builder, x: Val, forest: Forest, labels: Val, how: str) -> Result:
    """(labels, scores) of leaves that are all about the same one of one or two classes."""
    votes, classes, bases = forest.votes, labels.size or 0, _bases(b)
    positive = bool((votes.weight >= 0).all()) and classes == 2
    target = int(votes.target[0]) if len(votes.target) else 0
    every = _summed(b, x, forest, "sum")
    base = const(bases[min(target, len(bases) - 1)] if bases else 0, x.dtype)
    score = b.map((x.shape[0], Const(1)), lambda i: cast(
        "f32", b.at(every, (i[0], Const(target))) + base), [every], "score")
    limit = 0.5 if positive else 0.0
    if classes == 1:  # whether it is the one class
        yes = b.const(np.array([0, 1]), "is")
        return two_labels(b, yes, score, limit), one_column(b, score, how)
    label = two_labels(b, labels, score, limit)
    if target == 0:
        return label, two_columns(b, score, how, positive, out=1)
    both = b.map((x.shape[0], Const(2)), lambda i: Where(
        compare("eq", i[1], Const(1)), b.at(score, (i[0], Const(0))), const(0, "f32")), [score],
        "both")
    if bases or _all_voted_for(forest, [1]):
        return label, transformed(b, both, how, out=1)
    return label, _or_alone(b, _some_vote(b, _walk(b, x, forest)), transformed(b, both, how),
                            two_columns(b, score, how, positive))


def _or_alone(b: Builder, some: Val, both: Val, alone: Val) -> Val:
    """The scores [N, 2] of two classes, output 1: those of rows of which no leaf speaks of the
    second are ``alone``."""
    return b.map(both.shape, lambda i: Where(b.at(some, (i[0], Const(1))), b.at(both, i),
                                             b.at(alone, i)), [both, alone, some], out=1)


def _of_two_scores(b: Builder, labels: Val, scores: Val, some: Val | None, how: str) -> Result:
    """(labels, scores) of leaves that are about both classes: what counts is the score of the
    second, or that of the first where no leaf spoke of the second."""
    def second(i: Index) -> Expr:
        e = b.at(scores, (i[0], Const(1)))
        return e if some is None else Where(b.at(some, (i[0], Const(1))), e,
                                            b.at(scores, (i[0], Const(0))))
    sources = [v for v in (scores, some) if v is not None]
    counts = b.map((scores.shape[0], Const(1)), second, sources, "counts")
    label = two_labels(b, labels, counts, 0.0)
    if some is None:
        return label, transformed(b, scores, how, out=1)
    alone = two_columns(b, counts, how, False)
    return label, _or_alone(b, some, transformed(b, scores, how), alone)


# ---------------------------------------------------------------- walking

def _totals(b: Builder, x: Val, forest: Forest, fold: str) -> Val:
    """[N, targets]: what the leaves say about each target, put together, and the base values.  As
    in ONNX Runtime, one of several targets that no leaf of a row speaks of is 0, without its base
    value; where there is but one target, a leaf that does not speak of it says 0."""
    targets, some = forest.votes.targets, None
    fold, average = ("sum", True) if fold == AVERAGE else (fold, False)
    if targets == 1 or fold == "sum" and not _bases(b) or _all_voted_for(forest):
        total = _summed(b, x, forest, fold)
    else:
        _bounded(b, forest)
        reached = _walk(b, x, forest)
        some, total = _some_vote(b, reached), _sums(b, x, reached, fold)
    if average:
        every = total
        total = b.map(every.shape, lambda i: b.at(every, i) / const(len(forest.roots), x.dtype),
                      [every], "average")
    scores = _based(b, total, targets) if b.node.op != "TreeEnsemble" else total
    if some is None:
        return scores
    return b.map(scores.shape, lambda i: Where(b.at(some, i), b.at(scores, i),
                                               const(0, scores.dtype)), [scores, some], "said")


def _summed(b: Builder, x: Val, forest: Forest, fold: str) -> Val:
    """[N, targets]: the weights of the leaves that trees end in, put together by ``fold`` (sum,
    min, max): by a library kernel where there is one for it."""
    _bounded(b, forest)
    features = static_shape(x.shape[1:])
    walks = b.may_call("trees") and b.may_call("votes") and fold == "sum"
    pack = packed(forest, features[0]) if walks and features and features[0] else None
    if pack is None:
        return _sums(b, x, _walk(b, x, forest), fold)
    targets = forest.votes.targets
    given = _columns(b, x, pack), _table(b, pack.nodes, "nodes"), _table(b, pack.trees, "trees")
    shape = x.shape[0], Const(targets)
    if pack.weights is None:
        sums, = b.call("trees", given, (shape,), each=len(pack.trees) // targets, shift=pack.shift)
    else:
        weight = _table(b, pack.weights, "weights")
        sums, = b.call("votes", (*given, weight), (shape,), shift=pack.shift)
    return sums


def _columns(b: Builder, x: Val, pack: Packed) -> Val:
    """The columns that the nodes of a Packed look at: of ``x`` as it is, of ``x`` with infinity
    for NaN, and one that is below all thresholds."""
    features = x.shape[1]
    count = pack.plain + pack.filled

    def body(i: Index) -> Expr:
        if not count:
            return const(-np.inf, x.dtype)
        at = b.at(x, (i[0], i[1] - features * (count - 1)))
        out = Where(Unary("isnan", at), const(np.inf, x.dtype), at) if pack.filled else at
        if count == 2:
            out = Where(compare("lt", i[1], features), b.at(x, i), out)
        return Where(compare("lt", i[1], features * count), out, const(-np.inf, x.dtype))
    return b.map((x.shape[0], features * count + 1), body, [x], "columns")


def _walk(b: Builder, x: Val, forest: Forest) -> _Reached:
    """Where every tree ends."""
    sorted_ = by_target(forest)
    apart, forest = sorted_ is not None, sorted_ or forest
    tables = {name: _table(b, getattr(forest, name), name) for name in (
        "feature", "split", "mode", "missing", "child", "sets", "roots")}
    shape = (x.shape[0], Const(len(forest.roots)))
    at = b.map(shape, lambda i: b.index_at(tables["roots"], i[1:]), [x], tag="at")
    for _ in range(forest.depth):
        at = _step(b, x, forest, tables, at)
    return _Reached(forest, at, apart)


def _table(b: Builder, array: Array, name: str) -> Val:
    """A constant; numbers of nodes take 32 bits, as far as those reach."""
    narrow = array.dtype == np.int64 and array.size and array.max() < _NARROW
    return b.const(array.astype(np.int32) if narrow else array, f"{b.node.label}_{name}")


def _step(b: Builder, x: Val, forest: Forest, tables: dict[str, Val], at: Val) -> Val:
    """Where every tree stands one level further down."""
    nodes = len(forest.mode)
    b.nonempty(x.shape[1], at.shape, "a feature to look at")

    def body(index: Index) -> Expr:
        here = b.checked(b.at(at, index), nodes, "a branch leads to a node")

        def of(name: str) -> Expr:
            return b.at(tables[name], (here,))
        column = b.checked(cast(INDEX, of("feature")), x.shape[1],
                           "a feature is a column of the input")
        value = b.at(x, (index[0], column))
        tests = {mode: compare(_COMPARE[mode], value, of("split"))
                 for mode in sorted(set(forest.mode.tolist()) - {MEMBER})}
        if MEMBER in forest.mode:
            tests[MEMBER] = _any(compare("eq", value, b.at(tables["sets"], (here, Const(k))))
                                 for k in range(forest.sets.shape[1]))
        (_, taken), *others = tests.items()
        for mode, test in others:
            taken = Where(compare("eq", of("mode"), const(mode, tables["mode"].dtype)), test, taken)
        if forest.missing.any():
            lost = Binary("and", compare("ne", of("missing"), const(0, tables["missing"].dtype)),
                          Unary("isnan", value))
            taken = Binary("or", taken, lost)
        side = Where(taken, Const(0), Const(1))
        return b.index_at(tables["child"], (here, side))
    return b.map(at.shape, body, [at, x], tag="at")


def _any(tests: Iterable[Expr]) -> Expr:
    out: Expr = Const(False, "bool")
    for test in tests:
        out = Binary("or", out, test)
    return out


# ---------------------------------------------------------------- what leaves say

def _sums(b: Builder, x: Val, reached: _Reached, fold: str) -> Val:
    """[N, targets]: the weights of the leaves that are about each target, put together by ``fold``
    (sum, min, max)."""
    forest, targets = reached.forest, reached.forest.votes.targets
    end = np.inf if targets > 1 else 0.0  # of a target without a leaf
    nothing = {"sum": 0.0, "min": end, "max": -end}[fold]
    table = weights(forest, fold, nothing)
    axes = b.axes((x.shape[0], Const(targets)))
    if reached.apart:  # the one target of a leaf's tree
        tree = Axis("t", Const(len(forest.roots) // targets))
        own = table.min(1) if fold == "min" else table.max(1) if fold == "max" else table.sum(1)
        weight = _table(b, own, "weight")
        place: tuple[Expr, ...] = (_leaf(b, reached, (axes[0], axes[1] * tree.extent + tree)),)
    else:
        tree, weight = Axis("t", Const(len(forest.roots))), _table(b, table, "weight")
        place = (_leaf(b, reached, (axes[0], tree)), axes[1])
    return b.compute(axes, b.at(weight, place), (tree,), fold, "sum")


def _leaf(b: Builder, reached: _Reached, index: Index) -> Expr:
    return b.checked(b.load(reached.at, index), len(reached.forest.mode), "a tree ends in a leaf")


def _bounded(b: Builder, forest: Forest) -> None:
    size = len(forest.child) * forest.votes.targets
    if size > MOST_WEIGHTS:
        raise b.unsupported(f"{len(forest.child)} nodes about {forest.votes.targets} targets",
                            f"split the ensemble: at most {MOST_WEIGHTS} pairs of a node and a "
                            "target are compiled")


def _some_vote(b: Builder, reached: _Reached) -> Val:
    """bool [N, targets]: some leaf spoke of the target."""
    forest, at = reached.forest, reached.at
    flags = _table(b, voted(forest).astype(np.int32), "voted")
    axes = b.axes((at.shape[0], Const(forest.votes.targets)))
    tree = Axis("t", at.shape[1])
    most = b.compute(axes, b.at(flags, (_leaf(b, reached, (axes[0], tree)), axes[1])), (tree,),
                     "max", "some")
    return b.map(most.shape, lambda i: compare("ne", b.at(most, i), const(0, "i32")), [most],
                 "voted")


def _all_voted_for(forest: Forest, about: Sequence[int] = ()) -> bool:
    """True if some leaf speaks of every target (``about``: of these), whatever the features are."""
    table = voted(forest)
    leaves = [_leaves(forest, np.array([root])) for root in np.unique(forest.roots)]
    return all(any(table[own, t].all() for own in leaves)
               for t in about or range(forest.votes.targets))


def _leaves(forest: Forest, level: Array) -> Array:
    """The leaves below nodes."""
    for _ in range(forest.depth):
        level = np.unique(forest.child[level])
    return level


def _bases(b: Builder) -> list[float]:
    """The node's base values."""
    tensor = b.node.attr("base_values_as_tensor")
    values = b.node.attr("base_values", ()) if tensor is None else tensor.reshape(-1).tolist()
    return list(map(float, values))


def _based(b: Builder, scores: Val, targets: int) -> Val:
    """Scores [N, targets] as f32 with the base values added; ModelError unless there is one for
    all, or one for each."""
    bases = _bases(b)
    if len(bases) not in (0, 1, targets):
        raise b.bad(f"{len(bases)} base values for {targets} targets")
    dtype = scores.dtype
    base = b.const(np.array((bases or [0.0]) * (1 if len(bases) > 1 else targets),
                            DTYPES[dtype].numpy), f"{b.node.label}_base")

    def body(i: Index) -> Expr:
        e = b.at(scores, i)
        return cast("f32", e + b.at(base, i[1:]) if bases else e)
    return b.map(scores.shape, body, [scores], "scores")
