"""Forests for the library kernels that walk trees (``ir/library.py``): every node compares one
element with one threshold, children lie side by side.

What nodes ask in other ways is asked of other columns: elements in which a NaN is an infinity, for
the nodes whose second branch a NaN takes, and a column that is below all thresholds, where leaves
stay."""

from dataclasses import dataclass

import numpy as np

from aotc.frontend.ops.ml.forest import Forest, by_target, weights
from aotc.ir.dtypes import Array

_LE, _LT, _GE, _GT = range(4)  # the modes that one threshold stands for


@dataclass(frozen=True)
class Packed:
    """``nodes`` [n, 2] and ``trees`` [trees, 2] as the library kernels have them, the column of a
    node in the lower ``shift`` bits of its word; ``plain``, ``filled``: columns of features as they
    are, and with infinity for NaN, are there, in this order, before the one that is below all
    thresholds; ``weights`` [leaves, targets], None where trees are about one target each, in their
    order."""

    nodes: Array
    trees: Array
    shift: int
    plain: bool
    filled: bool
    weights: Array | None


@dataclass(frozen=True)
class _Asked:
    """By node: ``split``; ``filled``: it looks at columns without NaN; ``child`` [node, 2]: for
    elements up to the threshold, above it; ``inner``: it has children."""

    split: Array
    filled: Array
    child: Array
    inner: Array


def packed(forest: Forest, features: int) -> Packed | None:
    """The Packed of a Forest over so many ``features`` whose leaves' weights are summed; None where
    no threshold says what a node asks, trees share many nodes, or a word has no room for a
    child."""
    apart = by_target(forest)
    forest = apart or forest
    asked = _asked(forest)
    order = None if asked is None else _order(forest, asked.inner, asked.child)
    if asked is None or order is None:
        return None
    table = weights(forest, "sum", 0.0)
    plain, filled = (bool((asked.inner & (asked.filled == f)).any()) for f in (False, True))
    columns = features * (plain + filled) + 1
    shift = int(columns - 1).bit_length()
    word = np.dtype(f"u{forest.split.itemsize}")
    at, step, trees = order
    if not len(at) or int(step.max()) >= 1 << 8 * word.itemsize - shift:
        return None
    column = forest.feature[at] + np.where(asked.filled[at] & plain, features, 0)
    column = np.where(asked.inner[at], column, columns - 1)
    leaf = ~asked.inner[at]
    said = table.sum(1)[at].view(word) if apart is not None else (
        np.cumsum(leaf) - 1).astype(word)
    first = np.where(leaf, said, asked.split[at].view(word))
    nodes = np.stack([first, column.astype(word) | step.astype(word) << shift], 1)
    return Packed(nodes, trees.astype(np.int32), shift, plain, filled,
                  None if apart is not None else table[at[leaf]])


def _asked(forest: Forest) -> _Asked | None:
    """What nodes ask, as comparisons with thresholds; None if there are none for them."""
    mode, split, missing = forest.mode, forest.split.copy(), forest.missing != 0
    inner = (forest.child != np.arange(len(forest.child))[:, None]).any(1)
    low = np.array(-np.inf, split.dtype)
    short, turned = np.isin(mode, (_LT, _GE)), np.isin(mode, (_GE, _GT))
    filled = ~missing ^ turned
    none = ~np.isin(mode, (_LE, _LT, _GE, _GT)) | np.isnan(split) | short & (split == low)
    split = np.where(short, np.nextafter(split, low), split)
    if (inner & (none | filled & (split == np.inf))).any():
        return None
    return _Asked(split, filled, np.where(turned[:, None], forest.child[:, ::-1], forest.child),
                  inner)


def _order(forest: Forest, inner: Array, child: Array) -> tuple[Array, Array, Array] | None:
    """(old numbers of nodes in their new order, how far on the children of each are, where each
    tree starts and its depth): tree after tree, level after level, children side by side.  Nodes
    that trees share are there once for each; None if they are many."""
    trees = len(forest.roots)
    node, tree = forest.roots, np.arange(trees)
    used, depth, found, seen = np.zeros(trees, np.int64), np.zeros(trees, np.int64), [], 0
    while len(node):
        seen += len(node)
        if seen > len(inner) + trees:
            return None
        count = np.bincount(tree, minlength=trees)
        place = used[tree] + _ranks(tree, count)
        used = used + count
        on = inner[node]
        step = np.zeros(len(node), np.int64)
        asking = tree[on]
        depth[np.unique(asking)] += 1
        step[on] = (used[asking] + 2 * _ranks(asking, np.bincount(asking, minlength=trees))
                    - place[on])
        found.append((tree, place, node, step))
        node, tree = child[node[on]].reshape(-1), asking.repeat(2)
    starts = np.cumsum(used) - used
    tree, place, node, step = (np.concatenate(c) for c in zip(*found))
    order = np.argsort(starts[tree] + place)
    return node[order], step[order], np.stack([starts, depth], 1)


def _ranks(group: Array, count: Array) -> Array:
    """The place of each element of sorted ``group`` among those of its value; ``count`` of each."""
    starts: Array = np.cumsum(count) - count
    ranks: Array = np.arange(len(group)) - starts[group]
    return ranks
