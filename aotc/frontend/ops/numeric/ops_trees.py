"""Ensembles of decision trees, walked level by level: where every tree stands is a tensor of node
numbers, which tables of constants take one step down.  A leaf's children are the leaf itself, so
trees of any depth take the same number of steps."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import const
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.graph import Node
from aotc.ir.dtypes import DTYPES, Array
from aotc.ir.expr import Axis, Binary, Const, Expr, Unary, Where, as_expr, compare
from aotc.ir.program import static_shape

ML = "ai.onnx.ml"
MEMBER = 6  # a mode of nodes: is the feature one of a set?
_COMPARE = ("le", "lt", "ge", "gt", "eq", "ne")  # the modes before it
_FOLD = ("sum", "sum", "min", "max")  # aggregate_function: average, sum, min, max
DEEPEST = 256


@dataclass(frozen=True)
class _Forest:
    """Tables by node number, inner nodes first, then leaves: ``feature``, ``split``, ``mode``,
    ``missing`` (a NaN takes the true branch), ``true``, ``false`` (children), ``target``,
    ``weight`` of leaves; ``sets`` [node, k]: members, padded with NaN; ``roots``; ``depth``."""

    feature: Array
    split: Array
    mode: Array
    missing: Array
    true: Array
    false: Array
    target: Array
    weight: Array
    sets: Array
    roots: Array
    depth: int


@op("TreeEnsemble", since=5, domain=ML)
def tree_ensemble(node: Node, b: Builder) -> Result:
    x, how = b.input(0), node.attr("aggregate_function", 1)
    b.need(x, "f")
    if x.rank != 2 or not 0 <= how < len(_FOLD):
        raise b.bad(f"features [N, F] and an aggregate function of 0 to {len(_FOLD) - 1} expected")
    if node.attr("post_transform", 0):
        raise b.unsupported("a post_transform", "leave it out and append the operator to the model")
    forest = _forest(node, b, DTYPES[x.dtype].numpy)
    trees = len(forest.roots)
    tables = {n: b.const(getattr(forest, n), f"{node.label}_{n}") for n in (
        "feature", "split", "mode", "missing", "true", "false", "target", "weight", "sets",
        "roots")}
    shape = (x.shape[0], Const(trees))
    at = b.map(shape, lambda i: b.at(tables["roots"], i[1:]), [x], tag="at")
    for _ in range(forest.depth):
        at = _step(b, x, forest, tables, at)
    return _gathered(b, x, tables, at, how, trees)


def _step(b: Builder, x: Val, forest: _Forest, tables: Mapping[str, Val], at: Val) -> Val:
    """Where every tree stands one level further down."""
    nodes = len(forest.mode)
    b.nonempty(x.shape[1], at.shape, "a feature to look at")

    def body(index: Index) -> Expr:
        here = b.checked(b.at(at, index), nodes, "a branch leads to a node")

        def of(name: str) -> Expr:
            return b.at(tables[name], (here,))
        column = b.checked(of("feature"), x.shape[1], "a feature is a column of the input")
        value = b.at(x, (index[0], column))
        tests = {mode: compare(_COMPARE[mode], value, of("split"))
                 for mode in sorted(set(forest.mode.tolist()) - {MEMBER})}
        if MEMBER in forest.mode:
            tests[MEMBER] = _any(compare("eq", value, b.at(tables["sets"], (here, Const(k))))
                                 for k in range(forest.sets.shape[1]))
        (_, taken), *others = tests.items()
        for mode, test in others:
            taken = Where(compare("eq", of("mode"), Const(mode)), test, taken)
        if forest.missing.any():
            lost = Binary("and", compare("ne", of("missing"), Const(0)), Unary("isnan", value))
            taken = Binary("or", taken, lost)
        return Where(taken, of("true"), of("false"))
    return b.map(at.shape, body, [at, x], tag="at")


def _any(tests: Iterable[Expr]) -> Expr:
    out: Expr = Const(False, "bool")
    for test in tests:
        out = Binary("or", out, test)
    return out


def _gathered(b: Builder, x: Val, tables: Mapping[str, Val], at: Val, how: int, trees: int) -> Val:
    """[N, targets]: the weights of the leaves that are about each target, put together."""
    axes = b.axes((x.shape[0], Const(b.node.attr("n_targets", 1))))
    tree = Axis("t", Const(trees))
    leaf = b.checked(b.load(at, (axes[0], tree)), tables["target"].shape[0],
                     "a tree ends in a leaf")
    weight = b.at(tables["weight"], (leaf,))
    end = np.finfo(DTYPES[x.dtype].numpy).max  # what a target without a leaf gets
    nothing = {"sum": 0, "min": end, "max": -end}
    mine = compare("eq", b.at(tables["target"], (leaf,)), axes[1])
    fold = _FOLD[how]
    total = b.compute(axes, Where(mine, weight, const(nothing[fold], x.dtype)), (tree,), fold,
                      "" if how else "sum")
    return total if how else b.map(
        total.shape, lambda i: b.at(total, i) / const(trees, x.dtype), [total])


def _forest(node: Node, b: Builder, dtype: np.dtype[Any]) -> _Forest:
    """The _Forest of a node's attributes; ModelError for numbers that no node, leaf, feature or
    target has."""
    def ints(name: str) -> Array:
        return np.array(node.attr(name), np.int64).reshape(-1)
    mode = ints("nodes_modes")
    weight = np.asarray(node.attr("leaf_weights"), dtype).reshape(-1)
    nodes, leaves = len(mode), len(weight)
    targets = ints("leaf_targetids")
    split = np.asarray(node.attr("nodes_splits"), dtype).reshape(-1)
    missing = np.array(node.attr("nodes_missing_value_tracks_true") or [0] * nodes, np.int64)
    columns = {n: ints(f"nodes_{n}") for n in (
        "featureids", "truenodeids", "trueleafs", "falsenodeids", "falseleafs")}
    lengths = {len(c) for c in (*columns.values(), split, missing)}
    if not nodes or len(targets) != leaves or lengths != {nodes}:
        raise b.bad(f"lists of {nodes} nodes and {leaves} leaves differ in length")
    limits: list[tuple[Array, int | Expr, str]] = [
        (columns["featureids"], b.input(0).shape[1], "feature"), (mode, MEMBER + 1, "mode"),
        (targets, node.attr("n_targets", 1), "target"), (ints("tree_roots"), nodes, "root")]
    own = np.arange(nodes, nodes + leaves)
    children: dict[str, Array] = {}
    for side in ("true", "false"):
        ids, is_leaf = columns[f"{side}nodeids"], columns[f"{side}leafs"] != 0
        limits += [(ids[is_leaf], leaves, "leaf"), (ids[~is_leaf], nodes, "node")]
        children[side] = np.concatenate([np.where(is_leaf, ids + nodes, ids), own])
    for values, count, what in limits:
        known = static_shape((as_expr(count),))
        if known is not None and ((values < 0) | (values >= known[0])).any():
            raise b.bad(f"a {what} outside 0..{known[0] - 1}")

    def longer(array: Array, fill: int = 0) -> Array:
        return np.concatenate([array, np.full(leaves, fill, array.dtype)])
    return _Forest(longer(columns["featureids"]), longer(split), longer(mode), longer(missing),
                   children["true"], children["false"],
                   np.concatenate([np.full(nodes, -1), targets]),
                   np.concatenate([np.zeros(nodes, dtype), weight]),
                   _sets(node, b, mode, nodes + leaves, dtype), ints("tree_roots"),
                   _depth(b, ints("tree_roots"), children["true"], children["false"], nodes))


def _sets(node: Node, b: Builder, mode: Array, rows: int, dtype: np.dtype[Any]) -> Array:
    """[node, k]: members of the nodes that ask for them, listed one after the other, a NaN behind
    each."""
    members = node.attr("membership_values")
    ends = [] if members is None else np.flatnonzero(np.isnan(members)).tolist()
    asking = np.flatnonzero(mode == MEMBER)
    if len(ends) != len(asking):
        raise b.bad(f"{len(ends)} sets of members for {len(asking)} nodes that ask for one")
    starts = [0, *(e + 1 for e in ends)]
    sizes = [e - s for s, e in zip(starts, ends)]
    table = np.full((rows, max(sizes, default=0)), np.nan, dtype)
    for k, s, n in zip(asking, starts, sizes):
        table[k, :n] = members[s:s + n]
    return table


def _depth(b: Builder, roots: Array, true: Array, false: Array, nodes: int) -> int:
    """Steps from a root to the last leaf."""
    level, depth = np.unique(roots), 0
    while (level < nodes).any():
        level = np.unique(np.concatenate([true[level], false[level]]))
        depth += 1
        if depth > DEEPEST:
            raise b.bad(f"a tree more than {DEEPEST} nodes deep, or one that never ends")
    return depth
