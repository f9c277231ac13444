"""What the attention operators of com.microsoft share: heads, masks, and the sums over keys, all
spelt in ONNX operators.  Queries are [batch, heads, sequence, size], keys and values [batch, heads,
total, size], scores [batch, heads, sequence, total]."""

import math

from aotc.frontend.building.spelling import Spelling
from aotc.frontend.building.values import Val
from aotc.ir.dtypes import is_float
from aotc.ir.expr import Expr, ExprLike
from aotc.ir.program import static_shape

FILTER = -10000.0  # what masked scores get where the model does not say


def width(s: Spelling, extent: Expr, count: int, what: str) -> int:
    """Columns of each of ``count`` heads."""
    static = static_shape((extent,))
    if static is None:
        raise s.b.unsupported(f"a symbolic hidden size of {what}", "make it static")
    if count < 1 or static[0] % count:
        raise s.b.bad(f"{what} of {static[0]} columns has no {count} heads of one size")
    return static[0] // count


def heads(s: Spelling, v: Val, count: int, what: str) -> Val:
    """[batch, sequence, count * size] as [batch, count, sequence, size]."""
    size = width(s, v.shape[-1], count, what)
    return s.transpose(s("Reshape", v, s.ints(0, 0, count, size)), 0, 2, 1, 3)


def joined(s: Spelling, v: Val, out: int | None = 0) -> Val:
    """[batch, count, sequence, size] as [batch, sequence, count * size]."""
    turned = s.transpose(v, 0, 2, 1, 3)
    return s("Reshape", turned, s.ints(0, 0, width(s, v.shape[1], 1, "heads")
                                       * width(s, v.shape[3], 1, "a head")), out=out)


def parts(s: Spelling, v: Val, sizes: list[int]) -> list[Val]:
    """``v`` cut along its last dimension."""
    static = static_shape(v.shape[-1:])
    if static != (sum(sizes),):
        raise s.b.bad(f"{v} has no columns for hidden sizes {sizes}")
    return s.several("Split", [v, s.ints(*sizes)], [None] * len(sizes), axis=-1)


# ---------------------------------------------------------------- masks

def lowest(s: Spelling, dtype: str, value: float = -math.inf) -> Val:
    """``value``, no lower than the dtype's lowest number: what masked scores get."""
    return s.number(max(-65504.0 if dtype == "f16" else -3.4028234663852886e38, value), dtype)


def padding(s: Spelling, mask: Val | None, total: Expr, sequence: Expr, past: ExprLike,
            dtype: str) -> Val | None:
    """What a mask of integers adds to scores, as something that broadcasts to them; None without.

    [batch]: keys of every row; [2 * batch]: ends, then starts; [batch, total]; [batch, sequence,
    total]; [batch, 1, most, most], of which rows from ``past`` on count."""
    if mask is None:
        return None
    if is_float(mask.dtype):
        raise s.b.unsupported(f"a mask of {mask.dtype}", "give it as integers")
    keep = _kept(s, mask, total, sequence, past)
    value = s.attr("mask_filter_value", FILTER)
    return s("Where", keep, s.number(0, dtype), lowest(s, dtype, value))


def _kept(s: Spelling, mask: Val, total: Expr, sequence: Expr, past: ExprLike) -> Val:
    """True where a score counts."""
    if mask.rank == 1:
        return _within(s, mask, total)
    keep = s.cast(mask, "bool") if mask.dtype == "bool" else s(
        "Greater", mask, s.number(0, mask.dtype))
    if mask.rank == 2:
        s.b.require("eq", mask.shape[1], total, "the mask must have a column for every key")
        return s.spread(keep, 1, 2)
    if mask.rank == 3:
        return s.spread(keep, 1)
    if mask.rank != 4:
        raise s.b.bad(f"{mask} is no mask")
    keep = s.cut(keep, 2, past, past + sequence)
    return s.cut(keep, 3, 0, total)


def _within(s: Spelling, mask: Val, total: Expr) -> Val:
    """The keys before each row's end, and from its start on."""
    batch = s.b.input(0).shape[0]
    known = static_shape((batch, mask.shape[0]))
    pairs = known is not None and known[1] == 2 * known[0] or mask.shape[0] == batch * 2
    if not pairs:
        s.b.require("eq", mask.shape[0], batch, "a mask of one dimension has a number per row")
    place = s.cast(s.places(total), mask.dtype)
    end = s.cut(mask, 0, 0, batch) if pairs else mask
    keep = s("Less", place, s.spread(end, 1, 2, 3))
    if not pairs:
        return keep
    start = s.spread(s.cut(mask, 0, batch, batch * 2), 1, 2, 3)
    return s("And", keep, s("GreaterOrEqual", place, start))


def causal(s: Spelling, sequence: Expr, total: Expr, window: int = -1) -> Val:
    """[sequence, total], true where a key is not behind its query, the last ones being of one
    place; ``window``: nor so many before it."""
    query = s.spread(s.places(sequence, total - sequence), 1)
    key = s.places(total)
    keep = s("LessOrEqual", key, query)
    if window < 0:
        return keep
    near = s("Greater", key, s("Sub", query, s.number(window, "i64")))
    return s("And", keep, near)


# ---------------------------------------------------------------- sums over keys

def scores(s: Spelling, q: Val, k: Val, scale: float, cap: float = 0.0) -> Val:
    """Products of queries and keys; ``cap`` bends them into -cap .. cap."""
    turned = s.transpose(k, *range(k.rank - 2), k.rank - 1, k.rank - 2)
    size = width(s, q.shape[-1], 1, "a head")
    scale = scale or 1 / math.sqrt(size)
    out = s("Mul", s("MatMul", q, turned), s.number(scale, q.dtype))
    if not cap:
        return out
    bent = s("Tanh", s("Div", out, s.number(cap, q.dtype)))
    return s("Mul", bent, s.number(cap, q.dtype))


def weights(s: Spelling, score: Val, added: list[Val | None], keep: Val | None,
            out: int | None = None) -> Val:
    """Softmax of scores with all that is added to them, where ``keep`` holds."""
    for v in added:
        score = score if v is None else s("Add", score, v)
    if keep is not None:
        score = s("Where", keep, score, lowest(s, score.dtype))
    return s("Softmax", score, axis=-1, out=out)


def appended(s: Spelling, past: Val | None, new: Val, out: int | None = None) -> Val:
    """Keys or values behind those of earlier calls."""
    return new if past is None else s("Concat", past, new, axis=2, out=out)


