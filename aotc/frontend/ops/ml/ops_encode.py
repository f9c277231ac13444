"""Categories: looked up in lists of them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import op
from aotc.frontend.building.stored_type_operators import is_text
from aotc.frontend.building.symbolic import cast, const
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.graph import Node
from aotc.frontend.ops.ml.scores import ML
from aotc.frontend.ops.numeric.ops_reduce import fold_axes
from aotc.ir.dtypes import DTYPES, INDEX, TEXT, Array, dtype_of, is_float
from aotc.ir.expr import Binary, Const, Expr, Unary, Where, compare
from aotc.ir.program import static_shape

UNUSED = "_Unused"  # what stands for a string that is none of those listed


@op("OneHotEncoder", domain=ML)
def one_hot_encoder(node: Node, b: Builder) -> Result:
    """A 1 in the place of an element's category; of another, zeros, or a fault without
    ``zeros``."""
    x, texts = b.input(0), is_text(b.input(0))
    b.need(x, "fiub")
    given = node.attr("cats_strings" if texts else "cats_int64s") or ()
    if not given:
        raise b.bad(f"no categories are given for {'strings' if texts else 'numbers'}")
    cats = b.const(np.array([b.text(t) if texts else t for t in given], np.int64),
                   f"{node.label}_cats")
    one, zero = const(1, "f32"), const(0, "f32")

    def body(i: Index) -> Expr:
        hit = compare("eq", b.index_at(x, i[:-1]), b.at(cats, i[-1:]))
        return Where(hit, one, zero)
    shape = (*x.shape, Const(len(given)))
    if node.attr("zeros", 1):
        return b.map(shape, body, [x, cats])
    encoded = b.map(shape, body, [x, cats], "hits")
    hits = fold_axes(b, encoded, [x.rank], "max", None, "some", keep=False)

    def known(i: Index) -> Expr:
        none = Where(compare("eq", b.at(hits, i[:-1]), zero), Const(1), Const(0))
        rule = b.checked(none, 1, "every element is one of the categories")
        return b.at(encoded, i) + cast("f32", rule)
    return b.map(encoded.shape, known, [encoded, hits])


@op("LabelEncoder", domain=ML)
def label_encoder_of_classes(node: Node, b: Builder) -> Result:
    """Before opset 2 of its domain it is between strings and their numbers in a list."""
    return _between(b, node.attr("classes_strings") or ())


@op("CategoryMapper", domain=ML)
def category_mapper(node: Node, b: Builder) -> Result:
    return _between(b, node.attr("cats_strings") or (), node.attr("cats_int64s"))


def _between(b: Builder, texts: Sequence[str], numbers: Sequence[int] | None = None) -> Val:
    """Strings as their numbers (places in the list where none are given), or the other way."""
    x, node = b.input(0), b.node
    one = np.array([b.text(t) for t in texts], np.int64)
    two = np.arange(len(one)) if numbers is None else np.array(numbers, np.int64)
    if not len(one) or len(one) != len(two):
        raise b.bad(f"{len(one)} strings for {len(two)} numbers")
    if is_text(x):
        return looked_up(b, x, one, two, node.attr("default_int64", -1))
    if x.dtype != INDEX:
        raise b.bad(f"strings or i64 expected, got {x}")
    other = b.text(node.attr("default_string", UNUSED))
    return replace(looked_up(b, x, two, one, other), stored=TEXT)


@op("LabelEncoder", since=2, domain=ML)
def label_encoder(node: Node, b: Builder) -> Result:
    x = b.input(0)
    (keys, texts), (values, named) = _given(b, "keys"), _given(b, "values")
    if len(keys) != len(values):
        raise b.bad(f"{len(keys)} keys for {len(values)} values")
    alike = dtype_of(keys) == x.dtype or is_float(dtype_of(keys)) and is_float(x.dtype)
    if texts != is_text(x) or not alike:
        raise b.bad(f"keys {TEXT if texts else dtype_of(keys)} for elements "
                    f"{x.stored or x.dtype}")
    other = node.attr("default_tensor")
    if named:
        other = b.text(other[0] if other else node.attr("default_string", UNUSED))
    elif other is None:
        other = node.attr("default_float", -0.0) if is_float(dtype_of(values)) else node.attr(
            "default_int64", -1)
    made = looked_up(b, x, keys.astype(DTYPES[x.dtype].numpy), values, np.asarray(other).item())
    return replace(made, stored=TEXT) if named else made


def _given(b: Builder, what: str) -> tuple[Array, bool]:
    """The node's keys or values, and whether they are texts."""
    tensor = b.node.attr(f"{what}_tensor")
    texts = tensor if isinstance(tensor, tuple) else b.node.attr(f"{what}_strings")
    if texts:
        return np.array([b.text(t) for t in texts], np.int64), True
    if tensor is not None:
        return np.asarray(tensor).reshape(-1), False
    for kind, dtype in (("floats", np.float32), ("int64s", np.int64)):
        if b.node.attr(f"{what}_{kind}"):
            return np.array(b.node.attr(f"{what}_{kind}"), dtype), False
    raise b.bad(f"no {what} are given")


def looked_up(b: Builder, x: Val, keys: Array, values: Array, other: float) -> Val:
    """``values[k]`` where an element is ``keys[k]``, the last of equal keys; ``other`` where it is
    none."""
    table, results = (b.const(a, f"{b.node.label}_{n}")
                      for a, n in ((keys, "keys"), (values, "values")))
    count, lost = static_shape(table.shape), bool(is_float(x.dtype) and np.isnan(keys).any())
    assert count is not None, table  # a constant
    axes = b.axes(x.shape)
    k, = b.axes(table.shape, ["k"])
    e, key = b.load(x, axes), b.at(table, (k,))
    hit = compare("eq", e, key)
    if lost:
        hit = Binary("or", hit, Binary("and", Unary("isnan", e), Unary("isnan", key)))
    place = b.compute(axes, Where(hit, k, Const(-1)), (k,), "max", "place")
    default = const(other, results.dtype)

    def body(i: Index) -> Expr:
        at = b.at(place, i)
        return Where(compare("lt", at, Const(0)), default,
                     b.at(results, (b.checked(at, count[0], "a key has a value"),)))
    return b.map(x.shape, body, [place, results])
