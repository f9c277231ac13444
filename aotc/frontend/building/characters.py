"""Strings as their bytes: what operators that make strings work on.

A tensor of such strings is a Val of u8 with one dimension more, the bytes of UTF-8 of each and
zeros behind them (``Val.stored`` is CHARS); how many there may be is an extent like any other."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from aotc.frontend.building.declared import reads_data
from aotc.frontend.building.symbolic import cast
from aotc.frontend.building.values import Index, Result, Val, Value
from aotc.frontend.graph import Node, all_nodes
from aotc.ir.access import offset_of, volume
from aotc.ir.dtypes import CHARS, INDEX, TEXT
from aotc.ir.expr import Axis, Binary, Const, Expr, Shape, Where, compare, maximum, minimum
from aotc.ir.simplify import simplify

if TYPE_CHECKING:
    from aotc.frontend.building.builder import Builder

_ML = "ai.onnx.ml"  # whose operators compare strings with their attributes
_SET = {(_ML, "LabelEncoder"), (_ML, "CategoryMapper"), (_ML, "OneHotEncoder"),
        ("", "TfIdfVectorizer")}


def characters(b: "Builder", k: int) -> Val:
    """Input ``k`` of the node, strings, as bytes.  UnsupportedError for strings that are places in
    the table of texts: those that it lacks are not told apart."""
    if k >= len(b.node.inputs):
        raise b.bad(f"input {k} is missing")
    v = b.tensor(b.node.inputs[k])
    if v.stored == CHARS:
        return v
    if v.stored != TEXT:
        raise b.bad(f"input {k} must be strings, it is {v}")
    if v.array is None:
        raise b.unsupported("strings that another operator has placed or looked up",
                            "give it an input of the model, a constant, or strings that were made")
    texts = list(b.texts)
    return constant(b, [texts[p] for p in v.array.reshape(-1)], v.shape)


def constant(b: "Builder", texts: Sequence[str], shape: Shape) -> Val:
    """These texts as bytes."""
    codes = [t.encode() for t in texts]
    width = max((len(c) for c in codes), default=0) or 1
    array = np.frombuffer(b"".join(c.ljust(width, b"\0") for c in codes), np.uint8)
    extents = tuple(d.value for d in shape if isinstance(d, Const))
    return replace(b.const(array.reshape(*extents, width), f"{b.node.label}_texts"), stored=CHARS)


def byte(b: "Builder", v: Val, lead: Index, k: Expr) -> Expr:
    """Byte ``k`` of the text at ``lead``; 0 where it has none."""
    width = v.shape[-1]
    inside = Binary("and", compare("ge", k, Const(0)), compare("lt", k, width))
    at = minimum(maximum(k, Const(0)), width - 1)
    return Where(inside, b.at(v, (*lead, at)), Const(0, "u8"))


def lengths(b: "Builder", v: Val) -> Val:
    """The number of bytes of every text."""
    axes, j = b.axes(v.shape[:-1]), Axis("j", v.shape[-1])
    some = compare("ne", b.load(v, (*axes, j)), Const(0, "u8"))
    return b.compute(axes, Where(some, Const(1), Const(0)), (j,), "sum", "length")


def compare_texts(b: "Builder", x: Val, y: Val, shape: Shape, fold_case: bool = False) -> Val:
    """i64 of the broadcast ``shape``: 0 where the texts of ``x`` and ``y`` are the same."""
    axes, j = b.axes(shape), Axis("j", simplify(maximum(x.shape[-1], y.shape[-1])))
    left, right = (byte(b, v, b.pick(_leading(v), axes, shape), j) for v in (x, y))
    if fold_case:
        left, right = lower_letter(left), lower_letter(right)
    return b.compute(axes, Where(compare("ne", left, right), Const(1), Const(0)), (j,), "max",
                     "compared")


def compare_with_table(b: "Builder", x: Val, table: Val, fold_case: bool = False) -> Val:
    """i64 with a last dimension for the texts of ``table`` [n]: 0 where one of ``x`` is that."""
    column = replace(b.move(x, (*x.shape[:-1], Const(1), x.shape[-1]),
                            lambda i: (*i[:-2], i[-1]), "column"), stored=CHARS)
    return compare_texts(b, column, table, (*x.shape[:-1], table.shape[0]), fold_case)


def _leading(v: Val) -> Val:
    """A Val of the dimensions of the texts alone."""
    return Val(v.shape[:-1], "u8", fn=lambda i: Const(0, "u8"))


def lower_letter(e: Expr) -> Expr:
    """A byte, as a small letter if it is a capital of ASCII."""
    capital = Binary("and", compare("ge", e, Const(65, "u8")), compare("le", e, Const(90, "u8")))
    return Where(capital, cast("u8", cast(INDEX, e) + 32), e)


def move_texts(b: "Builder", node: Node, k: int, call: Callable[[Node], Result]) -> Result:
    """The node's Vals, of one that gives the texts of its input ``k`` other places: ``call`` builds
    it of their numbers."""
    v = b.as_tensor(b.env[node.inputs[k]])
    lead, other = v.shape[:-1], f"{node.inputs[k]} by number"
    b.env[other] = b.value(lead, lambda i: offset_of(i, lead))
    made = call(replace(node, inputs=tuple(
        other if j == k else i for j, i in enumerate(node.inputs))))

    def texts(places: Value, out: int) -> Value:
        p = b.as_tensor(places)
        if node.op in ("Shape", "Size"):
            return p
        many = volume(lead)

        def at(i: Index) -> Expr:
            n = b.index_at(p, i[:-1])
            n = n if not reads_data(n) else minimum(maximum(n, Const(0)), many - 1)
            return b.at(v, (*unravel_place(n, lead), i[-1]))
        return replace(b.map((*p.shape, v.shape[-1]), at, [v], out=out), stored=CHARS)
    if isinstance(made, tuple):
        return tuple(None if m is None else texts(m, n) for n, m in enumerate(made))
    return texts(made, 0)


def unravel_place(n: Expr, shape: Shape) -> Index:
    """The index of element ``n`` of a tensor, row by row."""
    out: list[Expr] = []
    for k, d in enumerate(shape):
        rest = volume(shape[k + 1:])
        out.append(simplify(n // rest if k == 0 else (n // rest) % d))
    return tuple(out)


def place_texts(b: "Builder", v: Val) -> Val:
    """Strings as places in the table of texts, -1 for those that it lacks.  UnsupportedError for an
    operator that would compare such with each other."""
    if (b.node.domain, b.node.op) not in _SET:
        raise b.unsupported("strings of an operator or for an operator that makes strings",
                            "they are made, compared (Equal) and looked up among labels only")
    for n in all_nodes((*b.graph.nodes, *b.inner)):  # that later nodes look up
        for a in n.attrs.values() if n.domain == _ML or (n.domain, n.op) in _SET else ():
            for t in (a,) if isinstance(a, str) else a if isinstance(a, tuple) else ():
                if isinstance(t, str):
                    b.text(t)
    table = constant(b, list(b.texts), (Const(len(b.texts)),))
    lead = v.shape[:-1]
    other = compare_with_table(b, v, table)
    axes, j = b.axes(lead), Axis("j", table.shape[0])
    same = compare("eq", b.load(other, (*axes, j)), Const(0))
    found = b.compute(axes, Where(same, j, table.shape[0]), (j,), "min", "found")
    return replace(b.map(lead, lambda i: Where(
        compare("lt", b.at(found, i), table.shape[0]), b.at(found, i), Const(-1)), [found],
        "place"), stored=TEXT)


def compare_strings(b: "Builder") -> Val:
    """Equal, of strings one of which is made."""
    x, y = characters(b, 0), characters(b, 1)
    shape = b.broadcast(x.shape[:-1], y.shape[:-1])
    other = compare_texts(b, x, y, shape)
    return b.map(shape, lambda i: compare("eq", b.at(other, i), Const(0)), [other])
