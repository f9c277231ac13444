"""Categories: looked up in lists of them."""

import numpy as np

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import cast, const
from aotc.frontend.building.values import Index, Result, Val
from aotc.frontend.graph import Node
from aotc.frontend.ops.ml.scores import ML
from aotc.frontend.ops.numeric.ops_reduce import fold_axes
from aotc.ir.dtypes import DTYPES, Array, dtype_of, is_float
from aotc.ir.expr import Binary, Const, Expr, Unary, Where, compare
from aotc.ir.program import static_shape


@op("OneHotEncoder", domain=ML)
def one_hot_encoder(node: Node, b: Builder) -> Result:
    """A 1 in the place of an element's category; of another, zeros, or a fault without
    ``zeros``."""
    x = b.input(0)
    if node.attr("cats_strings"):
        raise b.unsupported("categories that are strings", "number them")
    b.need(x, "fiub")
    cats = b.const(np.array(node.attr("cats_int64s") or (), np.int64), f"{node.label}_cats")
    count = cats.size or 0
    if not count:
        raise b.bad("no categories are given")
    one, zero = const(1, "f32"), const(0, "f32")

    def body(i: Index) -> Expr:
        hit = compare("eq", b.index_at(x, i[:-1]), b.at(cats, i[-1:]))
        return Where(hit, one, zero)
    encoded = b.map((*x.shape, Const(count)), body, [x, cats], "" if node.attr("zeros", 1)
                    else "hits")
    if node.attr("zeros", 1):
        return encoded
    hits = fold_axes(b, encoded, [x.rank], "max", None, "some", keep=False)

    def known(i: Index) -> Expr:
        none = Where(compare("eq", b.at(hits, i[:-1]), zero), Const(1), Const(0))
        rule = b.checked(none, 1, "every element is one of the categories")
        return b.at(encoded, i) + cast("f32", rule)
    return b.map(encoded.shape, known, [encoded, hits])


@op("LabelEncoder", since=2, domain=ML)
def label_encoder(node: Node, b: Builder) -> Result:
    x = b.input(0)
    keys, values = _given(b, "keys"), _given(b, "values")
    if len(keys) != len(values):
        raise b.bad(f"{len(keys)} keys for {len(values)} values")
    if dtype_of(keys) != x.dtype and not (is_float(dtype_of(keys)) and is_float(x.dtype)):
        raise b.bad(f"keys {dtype_of(keys)} for elements {x.dtype}")
    other = node.attr("default_tensor")
    if other is None:
        other = node.attr("default_float", -0.0) if is_float(dtype_of(values)) else node.attr(
            "default_int64", -1)
    return looked_up(b, x, keys.astype(DTYPES[x.dtype].numpy), values, np.asarray(other).item())


def _given(b: Builder, what: str) -> Array:
    """The node's keys or values; UnsupportedError for strings."""
    tensor = b.node.attr(f"{what}_tensor")
    if tensor is not None and not isinstance(tensor, tuple):
        return np.asarray(tensor).reshape(-1)
    if b.node.attr(f"{what}_strings"):
        raise b.unsupported("labels that are strings", "number them")
    for kind, dtype in (("floats", np.float32), ("int64s", np.int64)):
        if b.node.attr(f"{what}_{kind}"):
            return np.array(b.node.attr(f"{what}_{kind}"), dtype)
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
