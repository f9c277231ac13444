"""Forests: what the attributes of the operators on trees say, as tables by node number.

Every node is a row, a leaf's children are the leaf itself: trees of any depth take the same number
of steps.  What leaves say about targets (or classes) is a table too."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aotc.frontend.building.builder import Builder
from aotc.ir.dtypes import Array
from aotc.ir.expr import Expr, as_expr
from aotc.ir.program import static_shape

MEMBER = 6  # a mode of nodes: is the feature one of a set?
MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ",
         "BRANCH_MEMBER")  # by number, as TreeEnsemble has them
LEAF = "LEAF"
DEEPEST = 256
MOST_WEIGHTS = 1 << 26  # elements of the table of weights


@dataclass(frozen=True)
class Forest:
    """Tables by node number: ``feature``, ``split``, ``mode``, ``missing`` (a NaN takes the true
    branch), ``child`` [node, 2] (true, false); ``sets`` [node, k]: members, padded with NaN;
    ``roots`` of the trees; ``depth``; ``votes``: what leaves say."""

    feature: Array
    split: Array
    mode: Array
    missing: Array
    child: Array
    sets: Array
    roots: Array
    depth: int
    votes: "Votes"


@dataclass(frozen=True)
class Votes:
    """Vote k is of the leaf ``node[k]`` about ``target[k]`` with ``weight[k]``; ``targets``: how
    many there are."""

    node: Array
    target: Array
    weight: Array
    targets: int


# ---------------------------------------------------------------- TreeEnsemble

def forest_of_ensemble(b: Builder, features: Expr, dtype: np.dtype[Any]) -> Forest:
    """The Forest of a TreeEnsemble: inner nodes first, then leaves.  ModelError for numbers that no
    node, leaf, feature or target has."""
    node = b.node

    def ints(name: str) -> Array:
        return np.array(node.attr(name), np.int64).reshape(-1)
    mode = ints("nodes_modes")
    weight = np.asarray(node.attr("leaf_weights"), dtype).reshape(-1)
    nodes, leaves, targets = len(mode), len(weight), node.attr("n_targets", 1)
    target = ints("leaf_targetids")
    split = np.asarray(node.attr("nodes_splits"), dtype).reshape(-1)
    missing = np.array(node.attr("nodes_missing_value_tracks_true") or [0] * nodes, np.int64)
    columns = {n: ints(f"nodes_{n}") for n in (
        "featureids", "truenodeids", "trueleafs", "falsenodeids", "falseleafs")}
    lengths = {len(c) for c in (*columns.values(), split, missing)}
    if not nodes or len(target) != leaves or lengths != {nodes}:
        raise b.bad(f"lists of {nodes} nodes and {leaves} leaves differ in length")
    limits: list[tuple[Array, int | Expr, str]] = [
        (columns["featureids"], features, "feature"), (mode, MEMBER + 1, "mode"),
        (target, targets, "target"), (ints("tree_roots"), nodes, "root")]
    own = np.arange(nodes, nodes + leaves)
    child = np.stack([own, own], 1)
    sides = []
    for side in ("true", "false"):
        ids, is_leaf = columns[f"{side}nodeids"], columns[f"{side}leafs"] != 0
        limits += [(ids[is_leaf], leaves, "leaf"), (ids[~is_leaf], nodes, "node")]
        sides.append(np.where(is_leaf, ids + nodes, ids))
    _check_limits(b, limits)

    def longer(array: Array) -> Array:
        return np.concatenate([array, np.zeros(leaves, array.dtype)])
    child = np.concatenate([np.stack(sides, 1), child])
    return Forest(longer(columns["featureids"]), longer(split), longer(mode), longer(missing),
                  child, _sets(b, mode, nodes + leaves, dtype), ints("tree_roots"),
                  _depth(b, ints("tree_roots"), child), Votes(own, target, weight, targets))


def _check_limits(b: Builder, limits: Sequence[tuple[Array, int | Expr, str]]) -> None:
    """ModelError unless all values lie below their limit, as far as that is known."""
    for values, count, what in limits:
        known = static_shape((as_expr(count),))
        if known is not None and ((values < 0) | (values >= known[0])).any():
            raise b.bad(f"a {what} outside 0..{known[0] - 1}")


def _sets(b: Builder, mode: Array, rows: int, dtype: np.dtype[Any]) -> Array:
    """[node, k]: members of the nodes that ask for them, listed one after the other, a NaN behind
    each."""
    members = b.node.attr("membership_values")
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


# ---------------------------------------------------------------- its predecessors

def forest_of_lists(b: Builder, features: Expr, dtype: np.dtype[Any], kind: str,
                    targets: int) -> Forest:
    """The Forest of a TreeEnsembleClassifier or Regressor, whose nodes are named by (tree, node)
    and whose votes are listed as ``kind`` (class or target).  ModelError for lists of different
    lengths and for what no node, feature or target has."""
    def floats(name: str) -> Array:
        tensor = b.node.attr(f"{name}_as_tensor")
        return np.asarray(b.node.attr(name, ()) if tensor is None else tensor, dtype).reshape(-1)

    def ints(name: str) -> Array:
        return np.array(b.node.attr(name) or (), np.int64)
    names = b.node.attr("nodes_modes") or ()
    unknown = sorted(set(names) - {*MODES[:MEMBER], LEAF})
    if unknown:
        raise b.bad(f"mode {unknown[0]!r} of a node is none of {', '.join(MODES[:MEMBER])}, {LEAF}")
    leaf = np.array([n == LEAF for n in names], bool)
    nodes = len(leaf)
    mode = np.array([0 if n == LEAF else MODES.index(n) for n in names], np.int64)
    trees, ids, feature, split = (ints("nodes_treeids"), ints("nodes_nodeids"),
                                  ints("nodes_featureids"), floats("nodes_values"))
    sides = [ints("nodes_truenodeids"), ints("nodes_falsenodeids")]
    missing = ints("nodes_missing_value_tracks_true")
    missing = missing if len(missing) else np.zeros(nodes, np.int64)
    if not nodes or {len(c) for c in (trees, ids, feature, split, missing, *sides)} != {nodes}:
        raise b.bad(f"lists of {nodes} nodes differ in length")
    feature = np.where(leaf, 0, feature)
    numbers = _Numbers(b, trees, ids)
    child = np.stack([np.where(leaf, np.arange(nodes), numbers.of(trees, s, ~leaf))
                      for s in sides], 1)
    target, weight = ints(f"{kind}_ids"), floats(f"{kind}_weights")
    voters = ints(f"{kind}_treeids"), ints(f"{kind}_nodeids")
    if {len(c) for c in (weight, *voters)} != {len(target)}:
        raise b.bad(f"lists of {len(target)} weights differ in length")
    _check_limits(b, [(feature, features, "feature"), (target, targets, kind)])
    roots = np.sort(np.unique(trees, return_index=True)[1])  # the first node listed of each tree
    return Forest(feature, split, mode, missing, child, np.zeros((nodes, 0), dtype), roots,
                  _depth(b, roots, child),
                  Votes(numbers.of(*voters, np.ones(len(target), bool)), target, weight, targets))


class _Numbers:
    """The places in the lists of nodes that are named by (tree, node)."""

    def __init__(self, b: Builder, trees: Array, ids: Array) -> None:
        self._b = b
        self._places = {key: k for k, key in enumerate(zip(trees.tolist(), ids.tolist()))}
        if len(self._places) != len(ids):
            raise b.bad("a node of a tree is listed twice")

    def of(self, trees: Array, ids: Array, where: Array) -> Array:
        """Their places ``where`` they are asked for, else 0; ModelError for one that there is
        not."""
        out = np.zeros(len(ids), np.int64)
        for k in np.flatnonzero(where):
            key = int(trees[k]), int(ids[k])
            if key not in self._places:
                raise self._b.bad(f"tree {key[0]} has no node {key[1]}")
            out[k] = self._places[key]
        return out


# ---------------------------------------------------------------- shape

def _depth(b: Builder, roots: Array, child: Array) -> int:
    """Steps from a root to the last leaf."""
    inner = child[:, 0] != np.arange(len(child))
    inner |= child[:, 1] != np.arange(len(child))
    level, depth = np.unique(roots), 0
    while inner[level].any():
        level = np.unique(child[level])
        depth += 1
        if depth > DEEPEST:
            raise b.bad(f"a tree more than {DEEPEST} nodes deep, or one that never ends")
    return depth


def _owners(forest: Forest) -> Array | None:
    """Which tree every node belongs to, -1 for those that no root leads to; None if trees share
    nodes."""
    owner = np.full(len(forest.child), -1)
    node, tree = forest.roots, np.arange(len(forest.roots))
    while len(node):
        if (owner[node] >= 0).any():
            return None
        owner[node] = tree
        if (owner[node] != tree).any():
            return None
        inner = (forest.child[node] != node[:, None]).any(1)
        pairs = np.unique(np.stack([tree[inner].repeat(2), forest.child[node[inner]].reshape(-1)]),
                          axis=1)
        tree, node = pairs
    return owner


def by_target(forest: Forest) -> Forest | None:
    """The Forest with its trees in the order of the one target that each is about, as many for
    each (a leaf without votes fills up); None where trees are about several targets, or few about
    some."""
    votes, owner = forest.votes, _owners(forest)
    if owner is None:
        return None
    if votes.targets == 1:  # also trees that say nothing of it
        return forest
    own, about = owner[votes.node], np.full(len(forest.roots), -1)
    heard = own >= 0
    about[own[heard]] = votes.target[heard]
    if (about[own[heard]] != votes.target[heard]).any():
        return None
    groups = [forest.roots[about == t] for t in range(votes.targets)]
    most = max(map(len, groups))
    if not most or most * votes.targets > 2 * len(forest.roots):
        return None
    extra = len(forest.child)
    roots = np.concatenate([np.concatenate([g, np.full(most - len(g), extra, g.dtype)])
                            for g in groups])
    forest = replace(forest, roots=roots)
    return _with_leaf(forest) if (roots == extra).any() else forest


def _with_leaf(forest: Forest) -> Forest:
    """The Forest with one more node: a leaf that no tree has, without votes."""
    def longer(array: Array) -> Array:
        return np.concatenate([array, np.zeros((1, *array.shape[1:]), array.dtype)])
    child = longer(forest.child)
    child[-1] = len(child) - 1
    return replace(forest, feature=longer(forest.feature), split=longer(forest.split),
                   mode=longer(forest.mode), missing=longer(forest.missing), child=child,
                   sets=longer(forest.sets))


def weights(forest: Forest, fold: str, nothing: float) -> Array:
    """[node, target]: votes put together by ``fold`` (sum, min, max), ``nothing`` where there is
    none."""
    votes = forest.votes
    join, start = {"sum": (np.add, 0), "min": (np.minimum, np.inf),
                   "max": (np.maximum, -np.inf)}[fold]
    out = np.full((len(forest.child), votes.targets), start, votes.weight.dtype)
    join.at(out, (votes.node, votes.target), votes.weight)
    out[~voted(forest)] = nothing
    return out


def voted(forest: Forest) -> Array:
    """bool [node, target]: leaves that say something about a target."""
    out = np.zeros((len(forest.child), forest.votes.targets), bool)
    out[forest.votes.node, forest.votes.target] = True
    return out
