"""Library kernels: what a ``LibCall`` may call, and each one's meaning in numpy.

A kernel works on tensors whose last ``inner`` dimensions belong to one item (all of them where it
is ``WHOLE``); the dimensions before them count independent items.
The C function (``runtime_c/library/aotc_NAME.c``) gets for one item

    a pointer per input, a pointer per output, the extents of ``sizes``, then the attributes and
    what a call has of ``numbers``

(all of them int64).  It allocates nothing: an output may be working memory only.  Of a kernel
that takes several items at a time (``rows``) their number comes before the extents.
How many results there are may depend on data; then a kernel writes no more than its outputs hold
and says in ``total`` how many there were, and what reads the outputs checks that number.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aotc.ir.access import volume
from aotc.ir.dtypes import Array
from aotc.ir.expr import Const, Shape
from aotc.ir.simplify import simplify

if TYPE_CHECKING:
    from aotc.ir.program import LibCall, Program

Attrs = Mapping[str, int]
Extents = tuple[int, ...]
Dim = tuple[int, int]  # (operand, dimension counted from the end)
Run = Callable[[Attrs, Sequence[Array], Sequence[Extents]], tuple[Array, ...]]
WHOLE = None  # an operand of any rank: the kernel has one item


@dataclass(frozen=True)
class LibraryKernel:
    """inner: dimensions of an item, per operand (inputs, then outputs).  outs: name and dtype of
    every output ("" is that of the first input).  sizes: ((operand,
    dimension counted from the end, or 0 for the number of its elements), ...).  attrs: names, in
    the order of the C arguments.  run: function(attrs, input arrays, output shapes) -> arrays, for
    all items at once.  alike: pairs of (operand, dimension counted from the end) that must be the
    same extent, because the C function is told one of them only.  numbers: names of index
    expressions that a call brings along, behind the attributes.  grows: its first output is its
    first input with some elements replaced, and may lie where that does (``Program.aliases``).
    rows: so many neighbouring items are one call of the function, fewer at the end; then operands
    that have items have the same number of them.  sliced: threads that share a work item have a
    slice of its one item, so that it is many work items: behind everything else their function is
    told its number and how many there are, and writes that part of the first output.
    hosted: there is a C source of it, else one for threads alone."""

    name: str
    inner: tuple[int | None, ...]
    outs: tuple[tuple[str, str], ...]
    sizes: tuple[Dim, ...]
    attrs: tuple[str, ...]
    run: Run
    alike: tuple[tuple[Dim, Dim], ...] = ()
    numbers: tuple[str, ...] = ()
    grows: bool = False
    rows: int = 1
    sliced: bool = False
    hosted: bool = True

    def out_dtypes(self, first: str) -> tuple[str, ...]:
        """The dtype of every output where the first input has the dtype ``first``."""
        return tuple(dtype or first for _, dtype in self.outs)

    def extents(self, shapes: Sequence[Shape]) -> Shape:
        """The extents the C function gets, of the operands' shapes."""
        return tuple(simplify(shapes[k][-d] if d else volume(shapes[k])) for k, d in self.sizes)


def grows(step: object) -> bool:
    """True for a call that puts new entries into a tensor where that lies."""
    row = LIBRARY.get(getattr(step, "kernel", ""))
    return row is not None and row.grows


def item(shape: Shape, inner: int | None) -> tuple[Shape, Shape]:
    """(dimensions that count items, dimensions of one item) of an operand's shape."""
    at = 0 if inner is WHOLE else len(shape) - inner
    return shape[:at], shape[at:]


def ranks(x: Array) -> Array:
    """int64 array of ``x``'s shape that compares as its elements do: equal elements have equal
    ranks, all NaNs are one value behind every number, -0 is 0."""
    flat = np.unique(x, return_inverse=True)[1]
    return flat.reshape(x.shape).astype(np.int64)


def _topk(attrs: Attrs, inputs: Sequence[Array], shapes: Sequence[Extents]) -> tuple[Array, ...]:
    """(order i64[.., k],): places of the first k elements of every row in order, the largest or
    smallest first, of equal ones the earlier first; NaN counts as the largest."""
    place = ranks(inputs[0])
    place = -place if attrs["largest"] else place
    order = np.argsort(place, axis=-1, kind="stable")
    return (order[..., :shapes[0][-1]],)


def _kept(attrs: Attrs, inputs: Sequence[Array], shapes: Sequence[Extents]) -> tuple[Array, ...]:
    """(place i64[r], total i64[]): the indices where the flags hold."""
    found = np.flatnonzero(inputs[0])
    return _filled(shapes[0], found), np.array(found.size, np.int64)


def _filled(shape: Extents, values: Array) -> Array:
    """int64 array of a shape: ``values`` as far as there is room, then zeros."""
    out = np.zeros(shape, np.int64)
    n = min(len(out), len(values))
    out[:n] = values[:n]
    return out


def _unique(attrs: Attrs, inputs: Sequence[Array], shapes: Sequence[Extents]) -> tuple[Array, ...]:
    """(place i64[r], inverse i64[n], counts i64[r], total i64[], work i64[n]) of rows [n, m]: the
    first row of every kind, in ascending order or that of appearance; the kind of every row; how
    many there are of each."""
    x = inputs[0]
    n, m = x.shape
    keys = np.stack([ranks(x[:, k]) for k in range(m)], 1) if m else np.zeros((n, 1), np.int64)
    _, first, kind, counts = np.unique(keys, True, True, True, axis=0)
    order = np.arange(first.size) if attrs["sorted"] else np.argsort(first)
    number = np.empty(first.size, np.int64)
    number[order] = np.arange(first.size)
    return (_filled(shapes[0], first[order]), number[kind.reshape(-1)],
            _filled(shapes[2], counts[order]), np.array(first.size, np.int64),
            np.zeros(n, np.int64))


def _nms(attrs: Attrs, inputs: Sequence[Array], shapes: Sequence[Extents]) -> tuple[Array, ...]:
    """(picked i64[r, 3], total i64[], work i64[n]): rows of batch, class, box, as
    NonMaxSuppression selects them from boxes [batch, n, 4] and scores [batch, class, n]; numbers
    f32[2] are the overlap above which a box goes and the score below or at which it does, most
    i64[] bounds the boxes of a class."""
    boxes, scores, most, numbers = inputs
    found = []
    with np.errstate(all="ignore"):
        for batch, group in np.ndindex(scores.shape[:2]):
            here = scores[batch, group]
            open_ = np.flatnonzero(~np.isnan(here) & (
                (here > numbers[1]) if attrs["threshold"] else True))
            corners = _corners(boxes[batch], attrs["centred"])
            mine: list[int] = []
            for at in open_[np.argsort(-here[open_], kind="stable")]:
                if len(mine) >= int(most):
                    break
                if all(_overlap(corners[at], corners[k]) <= numbers[0] for k in mine):
                    mine.append(at)
            found += [(batch, group, at) for at in mine]
    picked = np.zeros(shapes[0], np.int64)
    n = min(len(picked), len(found))
    picked[:n] = np.array(found, np.int64).reshape(-1, 3)[:n]
    return picked, np.array(len(found), np.int64), np.zeros(shapes[2], np.int64)


def _suppress(attrs: Attrs, inputs: Sequence[Array],
              shapes: Sequence[Extents]) -> tuple[Array, ...]:
    """(picked i64[.., r], open bool[.., n]): what ``_nms`` selects for every row of scores [.., n]
    from the boxes of its batch, ``owner`` [..], at most r boxes of each row, then -1."""
    scores, owner, boxes, most, numbers = inputs
    picked = np.full(shapes[0], -1, np.int64)
    for row in np.ndindex(scores.shape[:-1]):
        own = [boxes[owner[row]][None], scores[row][None, None], most, numbers]
        room = picked.shape[-1]
        found = _nms(attrs, own, [(room, 3), (), scores.shape[-1:]])
        count = min(int(found[1]), room)
        picked[row][:count] = found[0][:count, 2]
    return picked, np.zeros(shapes[1], bool)


def _corners(boxes: Array, centred: int) -> Array:
    """[n, 4]: low, low, high, high."""
    if centred:
        half = boxes[:, 2:] * boxes.dtype.type(0.5)
        return np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], 1)
    return np.concatenate([np.minimum(boxes[:, :2], boxes[:, 2:]),
                           np.maximum(boxes[:, :2], boxes[:, 2:])], 1)


def _overlap(one: Array, two: Array) -> Any:
    """Intersection over union; 0 where either has no area."""
    sides = np.maximum(np.minimum(one[2:], two[2:]) - np.maximum(one[:2], two[:2]), 0)
    areas = [(c[2] - c[0]) * (c[3] - c[1]) for c in (one, two)]
    common = sides[0] * sides[1]
    if areas[0] <= 0 or areas[1] <= 0:
        return one.dtype.type(0)
    return common / (areas[0] + areas[1] - common)


JOINS = ("none", "add", "mul", "max", "min")  # in the order of the C function's numbers
_JOIN = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _scatter(attrs: Attrs, inputs: Sequence[Array], shapes: Sequence[Extents]) -> tuple[Array, ...]:
    """(y,): x with rows of updates put into it in order, one per place: the place of a row's first
    element, counted in elements, a row that would not lie inside x left out; ``join`` says what
    becomes of an element that is there."""
    x, places, updates = inputs
    y = x.reshape(-1).copy()
    width = updates.size // places.size if places.size else 0
    join = _JOIN.get(JOINS[attrs["join"]])
    with np.errstate(all="ignore"):
        for at, row in zip(places.reshape(-1), updates.reshape(places.size, width)):
            if 0 <= at <= y.size - width:
                here = slice(at, at + width)
                y[here] = row if join is None else join(y[here], row)
    return (y.reshape(x.shape),)


def _append(attrs: Attrs, inputs: Sequence[Array], shapes: Sequence[Extents]) -> tuple[Array, ...]:
    """(all,): every one of so many ``rows`` of x with a row of new elements put into it from place
    ``start`` on, as far as there is room."""
    x, new = inputs
    rows = attrs["rows"]
    y = x.copy().reshape(rows, x.size // rows if rows else 0)
    if new.size:
        new = new.reshape(rows, -1)
        y[:, attrs["start"]:attrs["start"] + new.shape[1]] = new
    return (y.reshape(x.shape),)


def _ends(shift: int, x: Array, nodes: Array, trees: Array) -> Array:
    """[n, trees]: the leaf that every tree ends in for the rows of ``x`` [n, columns].  A node is
    two words: the bits of a threshold; a column of x and, ``shift`` bits higher, how many nodes
    further on its first child is, the second one behind it for elements above the threshold.  A
    leaf is its own child.  ``trees`` [trees, 2]: the root and the depth of each."""
    split, step = nodes[:, 0].copy().view(x.dtype), nodes[:, 1].astype(np.int64)
    column, child = step & ((1 << shift) - 1), step >> shift
    at = np.broadcast_to(trees[:, 0].astype(np.int64), (len(x), len(trees)))
    row = np.arange(len(x))[:, None]
    for _ in range(trees[:, 1].max(initial=0)):
        at = at + child[at] + (x[row, column[at]] > split[at])
    return at


def _trees(attrs: Attrs, inputs: Sequence[Array], shapes: Sequence[Extents]) -> tuple[Array, ...]:
    """(sums [n, targets],): the thresholds of the leaves that trees end in (``_ends``), summed over
    so many (``each``) trees for each target, one target after the other."""
    x, nodes, trees = inputs
    at = _ends(attrs["shift"], x, nodes, trees).reshape(len(x), shapes[0][-1], attrs["each"])
    said = nodes[:, 0].copy().view(x.dtype)[at]
    return (said.sum(-1, dtype=np.float64).astype(x.dtype),)


def _votes(attrs: Attrs, inputs: Sequence[Array], shapes: Sequence[Extents]) -> tuple[Array, ...]:
    """(sums [n, targets],): rows of ``weights`` [leaves, targets], of each leaf that a tree ends
    in (``_ends``) the one whose number is its threshold's bits, summed."""
    x, nodes, trees, weights = inputs
    said = nodes[:, 0].astype(np.int64)[_ends(attrs["shift"], x, nodes, trees)]
    return (weights[said].sum(1, dtype=np.float64).astype(x.dtype),)


def _ngrams(attrs: Attrs, inputs: Sequence[Array], shapes: Sequence[Extents]) -> tuple[Array, ...]:
    """(counts i64[.., kinds],): how often n-grams occur in rows of tokens i64[.., n], their tokens
    1 to ``gaps`` + 1 places apart.  ``nodes`` [m, 4] is a tree of them: token, first child,
    children (in ascending order), number of the n-gram that ends there or -1; the first ``roots``
    nodes begin n-grams."""
    tokens, nodes = inputs
    counts = np.zeros(shapes[0], np.int64)
    n = tokens.shape[-1]
    for row in np.ndindex(tokens.shape[:-1]):
        for step in range(1, max(min(attrs["gaps"] + 1, n - 1), 1) + 1):
            for first in range(n):
                begin, count = 0, attrs["roots"]
                for at in range(first, n, step):
                    node = begin + np.searchsorted(nodes[begin:begin + count, 0], tokens[row][at])
                    if node == begin + count or nodes[node, 0] != tokens[row][at]:
                        break
                    if nodes[node, 3] >= 0 and (step == 1 or at > first):
                        counts[row][nodes[node, 3]] += 1
                    begin, count = nodes[node, 1:3]
    return (counts,)


LIBRARY = {k.name: k for k in (
    LibraryKernel("topk", (1, 1), (("order", "i64"),), ((0, 1), (1, 1)), ("largest",), _topk),
    LibraryKernel("kept", (1, 1, 0), (("place", "i64"), ("total", "i64")), ((0, 1), (1, 1)), (),
                  _kept),
    LibraryKernel("unique", (2, 1, 1, 1, 0, 1),
                  (("place", "i64"), ("inverse", "i64"), ("counts", "i64"), ("total", "i64"),
                   ("work", "i64")), ((0, 2), (0, 1), (1, 1)), ("sorted",), _unique,
                  (((0, 2), (2, 1)), ((0, 2), (5, 1)), ((1, 1), (3, 1)))),
    LibraryKernel("nms", (3, 3, 0, 1, 2, 0, 1), (("picked", "i64"), ("total", "i64"),
                                                 ("work", "i64")),
                  ((1, 3), (1, 2), (1, 1), (4, 2)), ("threshold", "centred"), _nms,
                  (((0, 3), (1, 3)), ((0, 2), (1, 1)), ((1, 1), (6, 1)))),
    LibraryKernel("scatter", (WHOLE, WHOLE, WHOLE, WHOLE), (("y", ""),), ((0, 0), (1, 0), (2, 0)),
                  ("join",), _scatter, sliced=True),
    LibraryKernel("suppress", (1, 0, 3, 0, 1, 1, 1), (("picked", "i64"), ("open", "bool")),
                  ((0, 1), (5, 1)), ("threshold", "centred"), _suppress,
                  (((0, 1), (2, 2)), ((0, 1), (6, 1))), hosted=False),
    LibraryKernel("append", (WHOLE, WHOLE, WHOLE), (("all", ""),), ((0, 0), (1, 0)), (), _append,
                  numbers=("rows", "start"), grows=True),
    LibraryKernel("ngrams", (1, 2, 1), (("counts", "i64"),), ((0, 1), (2, 1)), ("roots", "gaps"),
                  _ngrams),
    LibraryKernel("trees", (1, 2, 2, 1), (("sums", ""),), ((0, 1), (3, 1)), ("each", "shift"),
                  _trees, rows=32),
    LibraryKernel("votes", (1, 2, 2, 2, 1), (("sums", ""),), ((0, 1), (2, 2), (4, 1)), ("shift",),
                  _votes, (((3, 1), (4, 1)),), rows=32),
)}
HOSTED = tuple(k.name for k in LIBRARY.values() if k.hosted)  # by a C source


def faults(program: "Program", call: "LibCall") -> list[str]:
    """What is malformed in a LibCall of ``program``: list of texts."""
    row = LIBRARY.get(call.kernel)
    if row is None:
        return []  # one that its evaluator is given a function for
    found = []
    names = call.inputs + call.outs
    if len(names) != len(row.inner) or len(call.outs) != len(row.outs):
        return [f"{call.outs[0]}: {call.kernel} takes {len(row.inner)} tensors, got {len(names)}"]
    for name, inner in zip(names, row.inner):
        if inner is not WHOLE and len(program.shape(name)) < inner:
            found.append(f"{call.outs[0]}: {call.kernel} needs {name} of rank {inner} at least")
    for (k, d), (j, e) in row.alike if not found else ():
        here, there = (simplify(program.shape(names[a])[-b]) for a, b in ((k, d), (j, e)))
        # symbols that a check at entry makes equal stay different names
        if isinstance(here, Const) and isinstance(there, Const) and here != there:
            found.append(f"{call.outs[0]}: {call.kernel} needs {names[k]} and {names[j]} to agree "
                         f"in dimensions -{d} and -{e}")
    for name, dtype in zip(call.outs, row.out_dtypes(program.dtype(call.inputs[0]))):
        if program.dtype(name) != dtype:
            found.append(f"{name}: {call.kernel} writes {dtype}, the buffer is "
                         f"{program.dtype(name)}")
    if tuple(k for k, _ in call.attrs) != row.attrs:
        found.append(f"{call.outs[0]}: {call.kernel} takes the attributes {row.attrs}")
    if len(call.numbers) != len(row.numbers):
        found.append(f"{call.outs[0]}: {call.kernel} takes the numbers {row.numbers}")
    return found
