"""Features made ready: scaled, normalised, imputed, chosen, put side by side."""

import math

import numpy as np

from aotc.frontend.building.builder import Builder
from aotc.frontend.building.registry import op
from aotc.frontend.building.symbolic import cast, const
from aotc.frontend.building.values import At, Index, Result, Val
from aotc.frontend.graph import Node
from aotc.frontend.ops.ml.scores import ML, rows_of
from aotc.frontend.ops.numeric.ops_reduce import fold_axes
from aotc.frontend.ops.tensors.ops_gather import index_of
from aotc.frontend.ops.tensors.ops_shape import concat
from aotc.frontend.read.maps import COLUMNS
from aotc.ir.dtypes import DTYPES, is_float
from aotc.ir.expr import Const, Expr, Unary, Where, compare
from aotc.ir.program import static_shape
from aotc.ir.simplify import simplify


@op("Binarizer", domain=ML)
def binarizer(node: Node, b: Builder) -> Result:
    x = b.input(0)
    limit = const(node.attr("threshold", 0.0), x.dtype)
    one, zero = const(1, x.dtype), const(0, x.dtype)
    return b.elementwise(lambda e: Where(compare("gt", e, limit), one, zero), x)


@op("Scaler", domain=ML)
def scaler(node: Node, b: Builder) -> Result:
    """(x - offset) * scale, of each feature or of all."""
    x = b.input(0)
    b.need(x, "fiu")
    to = "f64" if x.dtype == "f64" else "f32"
    offset, scale = (_of_features(b, x, b.node.attr(n) or (other,), to, n)
                     for n, other in (("offset", 0.0), ("scale", 1.0)))
    return b.map(x.shape, lambda i: cast("f32", (cast(to, b.at(x, i)) - offset(i[-1]))
                                         * scale(i[-1])), [x])


def _of_features(b: Builder, x: Val, values: tuple[float, ...], dtype: str, tag: str) -> At:
    """Function from a feature to its value; one value is that of all."""
    if not x.rank:
        raise b.bad("features are a dimension: a scalar has none")
    array = np.array(values, DTYPES[dtype].numpy)
    if len(array) == 1:
        return lambda feature: Const(array[0].item(), dtype)
    b.require("eq", x.shape[-1], len(array), f"there is a value ({tag}) for every feature")
    table = b.const(array, f"{b.node.label}_{tag}")
    return lambda feature: b.at(table, (feature,))


@op("Imputer", domain=ML)
def imputer(node: Node, b: Builder) -> Result:
    """One value replaced wherever it is, by that of the feature."""
    x = b.input(0)
    b.need(x, "fi")
    kind = "float" if is_float(x.dtype) else "int64"
    values, old = node.attr(f"imputed_value_{kind}s") or (), node.attr(
        f"replaced_value_{kind}", 0.0 if kind == "float" else 0)
    if not values:
        raise b.bad(f"imputed_value_{kind}s are missing, which {x.dtype} needs")
    new = _of_features(b, x, values, x.dtype, "values")

    def body(i: Index) -> Expr:
        e = b.at(x, i)
        lost = Unary("isnan", e) if math.isnan(old) else compare("eq", e, const(old, x.dtype))
        return Where(lost, new(i[-1]), e)
    return b.map(x.shape, body, [x])


@op("Normalizer", domain=ML)
def normalizer(node: Node, b: Builder) -> Result:
    """Rows divided by their largest element, by the sum of their magnitudes or by their length;
    rows where that is 0 stay."""
    given, norm = b.input(0), node.attr("norm", "MAX")
    x = rows_of(b, given)
    folds: dict[str, tuple[str, At]] = {
        "MAX": ("max", lambda e: e), "L1": ("sum", lambda e: Unary("abs", e)),
        "L2": ("sum", lambda e: e * e)}
    if norm not in folds:
        raise b.bad(f"norm {norm!r} is none of {', '.join(folds)}")
    fold, element = folds[norm]
    total = fold_axes(b, x, [1], fold, lambda e, _: element(e), "size", keep=False)

    def body(i: Index) -> Expr:
        size, e = b.at(total, (i[0] if given.rank == 2 else Const(0),)), b.at(given, i)
        size, e = Unary("sqrt", size) if norm == "L2" else size, cast("f32", e)
        return Where(compare("eq", size, const(0, "f32")), e, e / size)
    return b.map(given.shape, body, [given, total])


@op("FeatureVectorizer", domain=ML)
def feature_vectorizer(node: Node, b: Builder) -> Result:
    """Rows of features side by side, each cut to its number, or filled up with zeros."""
    parts = [rows_of(b, v) for v in b.inputs()]
    wanted = node.attr("inputdimensions") or ()
    if wanted and len(wanted) != len(parts):
        raise b.bad(f"{len(wanted)} inputdimensions for {len(parts)} inputs")
    return concat(b, [_of_width(b, v, n) for v, n in zip(parts, wanted)] if wanted else parts, 1)


def _of_width(b: Builder, v: Val, width: int) -> Val:
    if static_shape(v.shape[1:]) == (width,):
        return v
    shape = (v.shape[0], Const(width))
    return b.map(shape, lambda i: Where(compare("lt", i[1], v.shape[1]), b.at(v, i),
                                        const(0, v.dtype)), [v], "part")


@op("ArrayFeatureExtractor", domain=ML)
def array_feature_extractor(node: Node, b: Builder) -> Result:
    """Columns of the last axis, as many as there are indices."""
    x, columns = b.input(0), b.input(1)
    count: Expr = Const(1)
    for d in columns.shape:
        count = simplify(count * d)
    lead = x.shape[:-1] or (Const(1),)
    b.nonempty(x.shape[-1], (*lead, count), "a column to take")

    def body(index: Index) -> Expr:
        k = index_of(b, columns, _unflattened(index[-1], columns.shape), x.shape[-1])
        return b.at(x, (index[:-1] if x.rank > 1 else ()) + (k,))
    return b.map((*lead, count), body, [x, columns])


def _unflattened(place: Expr, shape: tuple[Expr, ...]) -> Index:
    """The index of an element that is counted row by row."""
    wide = [k for k, d in enumerate(shape) if d != Const(1)]
    at: list[Expr] = [Const(0)] * len(shape)
    for k in reversed(wide):
        at[k] = place if k == wide[0] else place % shape[k]
        place = place // shape[k]
    return tuple(at)


@op("ZipMap", domain=ML)
def zip_map(node: Node, b: Builder) -> Result:
    """The matrix of scores itself: a column for each of the class labels, in their order."""
    x = b.input(0)
    labels = node.attr("classlabels_int64s") or node.attr("classlabels_strings") or ()
    b.require("eq", x.shape[-1], len(labels), "a column for every class label")
    return x


@op("DictVectorizer", domain=ML)
def dict_vectorizer(node: Node, b: Builder) -> Result:
    """The columns of a map's matrix that belong to the node's keys (``read/maps.py``)."""
    return _of_keys(b, node, b.input(0))


@op("CastMap", domain=ML)
def cast_map(node: Node, b: Builder) -> Result:
    """The columns of a map with keys 0, 1, .., as floats or integers."""
    to = {"TO_FLOAT": "f32", "TO_INT64": "i64"}.get(node.attr("cast_to", "TO_FLOAT"))
    if to is None:
        raise b.unsupported(f"cast_to {node.attr('cast_to')}", "make strings of numbers outside")
    x = _of_keys(b, node, b.input(0))
    return b.elementwise(lambda e: cast(to, e), x)


def _of_keys(b: Builder, node: Node, x: Val) -> Val:
    columns = node.attr(COLUMNS)
    if columns is None:
        raise b.unsupported("a map that is no input of the model", "give the matrix itself")
    if columns == tuple(range(len(columns))):
        return b.move(x, (x.shape[0], Const(len(columns))), lambda i: i)
    places = b.const(np.array(columns, np.int64), f"{node.label}_columns")
    return b.move(x, (x.shape[0], Const(len(columns))),
                  lambda i: (i[0], b.checked(b.index_at(places, i[1:]), x.shape[1],
                                             "a key has a column")))
